"""Train alignment auditors with reinforcement learning, and measure them honestly.

The public names, by what they are for. Importing the package loads neither Inspect nor torch; each name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config import RunConfig, load_config
    from .errors import AuditrlError, ConfigError, ProviderError, RunError
    from .runs import Run, create_run, open_run
    from .types import Audit, Behavior, Branch, Message, Prediction, Quote, Report, Scenario, Seed, Segment, Verdict

__version__ = "0.1.0"

_HOME = {
    # nouns
    "types": ("Audit", "Behavior", "Branch", "Message", "Prediction", "Quote", "Report", "Scenario", "Seed", "Segment", "Verdict"),
    # configs and runs
    "config": ("RunConfig", "load_config"),
    "runs": ("Run", "create_run", "open_run"),
    # errors
    "errors": ("AuditrlError", "ConfigError", "ProviderError", "RunError"),
}

__all__ = [
    "Audit",
    "Behavior",
    "Branch",
    "Message",
    "Prediction",
    "Quote",
    "Report",
    "Scenario",
    "Seed",
    "Segment",
    "Verdict",
    "RunConfig",
    "load_config",
    "Run",
    "create_run",
    "open_run",
    "AuditrlError",
    "ConfigError",
    "ProviderError",
    "RunError",
]


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
