"""Run configs: pydantic models read from TOML, with dotted overrides (`--reward.order both`).

Unknown keys, wrong types and bad combinations are refused when the config is read; the message names the file, the key and the mend.
Defaults are the vetted recipe; what is not published is marked so.
"""

from .alarms import AlarmAction, AlarmRule, AlarmsConfig
from .files import check_config, describe_validation, load_config, merged, packaged_config, parse_overrides, read_extended, read_toml
from .policy import LocalEngineConfig, LoraConfig, PolicyConfig, TinkerConfig
from .run import (
    RESUMABLE,
    SERVER,
    AuditConfig,
    BankConfig,
    BudgetConfig,
    EvaluationConfig,
    LossSettings,
    PersonaConfig,
    ProbeConfig,
    RewardConfig,
    RunConfig,
    TargetsConfig,
    TrainConfig,
    changes_results,
)
from .section import LIMITS, ModelConfig, Section

__all__ = [
    "AlarmAction",
    "AlarmRule",
    "AlarmsConfig",
    "AuditConfig",
    "BankConfig",
    "BudgetConfig",
    "EvaluationConfig",
    "LIMITS",
    "LocalEngineConfig",
    "LoraConfig",
    "LossSettings",
    "ModelConfig",
    "PersonaConfig",
    "PolicyConfig",
    "ProbeConfig",
    "RESUMABLE",
    "RewardConfig",
    "RunConfig",
    "SERVER",
    "Section",
    "TargetsConfig",
    "TinkerConfig",
    "TrainConfig",
    "changes_results",
    "check_config",
    "describe_validation",
    "load_config",
    "merged",
    "packaged_config",
    "parse_overrides",
    "read_extended",
    "read_toml",
]
