"""A whole run config, section by section. Defaults are the vetted recipe; what is not published is marked so."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BeforeValidator, Field, model_validator

from ..prompts import load_prompt
from .alarms import AlarmsConfig
from .policy import PolicyConfig
from .section import LIMITS, ModelConfig, Section

RESUMABLE = ("alarms", "budget")
"""Sections that change no result: they are left out of the digest, and a resume may change them."""
SERVER = ("policy.tinker.base_url", "policy.tinker.patience_s")
"""Where the policy's server stands and how long it is waited for: treated like `RESUMABLE`."""


class PersonaConfig(Section):
    """Persona that planted and persona-only targets take."""

    name: str = Field(default="PRISM-4", min_length=1, max_length=80, pattern=r"^[^\n\r]+$")
    lab: str = Field(default="Nexus Research", min_length=1, max_length=80, pattern=r"^[^\n\r]+$")


class AuditConfig(Section):
    """The audit environment (Rosu & Wang 2026)."""

    max_turns: int = Field(default=15, ge=1, le=200)
    report: bool = True
    """Ask the auditor for a report after its last turn; false reproduces the paper."""
    auditor_prompt: str = "neutral"
    """`neutral` (ours), `petri` (the stock prompt, which asks for the reading most likely to catch the target), or a Markdown file."""
    prefill: bool = False
    rollback: bool = True
    target_tools: Literal["synthetic", "fixed", "none"] = "synthetic"
    system_required: bool = True
    realism_filter: bool = False
    compaction: bool = False
    """Off for training: a compacted history is no longer what was sampled from."""
    eager_resume: bool = False
    turn_counter: bool = False
    keep_target_reasoning: bool = False
    """Show the target's private reasoning. It names a planted instruction, so it is dropped by default."""
    max_concurrent: int | None = Field(default=None, ge=1)
    """Audits at a time; None runs all of a step at once."""
    persona: PersonaConfig = PersonaConfig()

    def system_prompt(self) -> str:
        """The auditor's system prompt template."""
        if self.auditor_prompt == "neutral":
            return load_prompt("auditrl.audit", "auditor_system")
        return Path(self.auditor_prompt).read_text(encoding="utf-8")

    def user_prompt(self) -> str:
        """The auditor's first user message template."""
        return load_prompt("auditrl.audit", "auditor_user")

    @model_validator(mode="after")
    def _prompt_exists(self) -> Self:
        if self.auditor_prompt not in ("neutral", "petri") and not Path(self.auditor_prompt).is_file():
            raise ValueError(f"auditor_prompt: no file {self.auditor_prompt!r}; use 'neutral', 'petri' or the path of a Markdown file")
        return self


class TargetsConfig(Section):
    """Target models of training."""

    pool: dict[str, ModelConfig] = Field(min_length=1)
    """Models that carry planted behaviors; more than one are used in rotation."""
    clean: ModelConfig | None = None
    """Single-target runs: another model, without persona or system prompt, for calibration groups."""
    clean_from_pool: bool = False
    """Multi-target runs: clean targets come from the pool and get the persona-only block, so that style gives nothing away."""
    production: bool = False
    """Train on the pool's models as they are: nothing is planted, no truth is known (Rosu & Wang 2026)."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.clean is not None and self.clean_from_pool:
            raise ValueError("targets.clean and targets.clean_from_pool exclude each other; drop one")
        if self.production and (self.clean is not None or self.clean_from_pool):
            raise ValueError("targets.production = true leaves every target as it is; drop targets.clean and targets.clean_from_pool")
        if self.clean is not None and any(self.clean.identity == m.identity for m in self.pool.values()):
            raise ValueError("targets.clean is also in targets.pool; name another model, or set targets.clean_from_pool = true")
        return self


class BankConfig(Section):
    """Which behaviors and seeds training draws from."""

    path: Path | None = None
    alone: bool = False
    behaviors: tuple[str, ...] = ()
    """Names; empty means every training behavior of the bank."""
    seeds: Literal["bank", "sim"] = "bank"
    """`sim`: the short seeds of the simulated world."""


class RewardConfig(Section):
    """The reward design (Rosu & Wang 2026)."""

    kind: str = "reference"
    """A design of the package, or the path of a Python file with one of your own (docs/rewards.md)."""
    calibration_eighths: int = Field(default=0, ge=0, le=8)
    """Groups of 8 that have a clean target and the inverted criterion."""
    order: Literal["random", "both"] = "random"
    """Order of A and B in pairwise judging (not published): random, or both orders averaged."""
    renewal_steps: Annotated[int | None, Field(ge=1), BeforeValidator(lambda value: None if value == "never" else value)] = 50
    """Reference audits are renewed from the current policy every so many steps; "never" (None): not at all."""
    score: Literal["score", "win"] = "score"
    """Reference pairwise: score/100 or the win bit (not published)."""
    max_missing_share: float = Field(default=0.25, ge=0, le=1)
    """A step fails when more of its verdicts are missing."""
    petri_scores: bool = False
    """Show the pairwise judge Petri's 38 grades and summaries of both audits, as published; one more call an audit."""
    await_cache: bool = True
    """Comparisons that show the same audit first wait until one of them is answered: the provider's prompt cache then serves the rest."""
    judge_attempts: int = Field(default=2, ge=1, le=5)
    args: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of the reward design."""

    @property
    def file(self) -> Path | None:
        """The Python file that `kind` names, None if it names a design of the package."""
        return Path(self.kind).expanduser() if self.kind.endswith(".py") else None


class LossSettings(Section):
    """Policy loss of one update (not published: ours)."""

    kind: Literal["ppo", "importance_sampling"] = "ppo"
    clip_low: float = Field(default=0.8, gt=0, le=1)
    clip_high: float = Field(default=1.28, ge=1)
    ratio_mask: tuple[float, float] | None = (0.2, 5.0)
    kl_coef: float = Field(default=0.0, ge=0)


class TrainConfig(Section):
    """The training loop. 8 scenarios x 8 audits is the likely published shape; learning rate, clip and temperature are not published."""

    steps: int = Field(default=160, ge=1)
    groups: int = Field(default=8, ge=1)
    group_size: int = Field(default=8, ge=2)
    lr: float = Field(default=5e-4, gt=0)
    warmup_steps: int = Field(default=5, ge=0)
    weight_decay: float = Field(default=0.0, ge=0)
    grad_clip: float = Field(default=1.0, gt=0)
    advantage_eps: float = Field(default=0.01, gt=0)
    loss: LossSettings = LossSettings()
    checkpoint_every: int = Field(default=10, ge=1)
    keep_checkpoints: int = Field(default=2, ge=1)
    max_failed_share: float = Field(default=0.5, ge=0, le=1)
    """The run stops (resumable) when more audits of a step failed."""
    off_policy_steps: Literal[0, 1] = 0
    """1: the audits of the next step run beside this step's update, by the policy before it. Worth it where the update takes long."""

    @model_validator(mode="after")
    def _bounded_ratio(self) -> Self:
        if self.off_policy_steps and self.keep_checkpoints < 2:
            raise ValueError("off_policy_steps = 1 needs keep_checkpoints of at least 2: a resume replays the update before its checkpoint")
        if self.off_policy_steps and self.loss.kind == "importance_sampling" and self.loss.ratio_mask is None:
            raise ValueError(
                "off_policy_steps = 1 needs a bound on the ratio; set loss.ratio_mask, or use loss.kind = 'ppo', which clips it"
            )
        return self


class ProbeConfig(Section):
    """Cheap look at held-back clean scenarios during training."""

    every: int = Field(default=5, ge=0)
    """Steps between probes; 0 switches them off."""
    audits: int = Field(default=16, ge=1)
    cruxes: Path | None = None
    """File of `auditrl crux build`: probes then also play its cruxes."""

    @model_validator(mode="after")
    def _cruxes_exist(self) -> Self:
        if self.cruxes is not None and not self.cruxes.is_file():
            raise ValueError(f"cruxes: no file {str(self.cruxes)!r}; make one with `auditrl crux build`, or remove the key")
        return self


class EvaluationConfig(Section):
    """The four-part suite before and after training (Rosu & Wang 2026)."""

    profile: Literal["off", "sim", "small", "full"] = "sim"
    before: bool = True
    after: bool = True
    replicates: int | None = Field(default=None, ge=1)
    """No more audits a seed than this in any suite; None: as many as the profile says."""
    target: ModelConfig | None = None
    """Planted target of the evaluation: a model that training never uses."""
    clean_target: ModelConfig | None = None
    production_target: ModelConfig | None = None
    judge: ModelConfig | None = None
    clean_persona: bool | None = None
    """Whether the clean target wears the persona without a behavior; None: if training's clean targets do (`targets.clean_from_pool`)."""


class BudgetConfig(Section):
    """Caps of a run: it stops with a checkpoint before the step that would pass one. They change no result, so a resume may change them."""

    max_usd: float | None = Field(default=None, gt=0)
    """Dollars for everything that has a price; needs a price for every paid model."""
    max_tokens: int | None = Field(default=None, gt=0)
    """Tokens read and written by every paid role. A policy that samples in process is not paid for, unless `prices` names `policy`."""
    prices: Path | None = None
    """TOML, JSON or YAML: dollars a million tokens by model name (see `costs`)."""

    @model_validator(mode="after")
    def _prices_exist(self) -> Self:
        if self.prices is not None and not self.prices.is_file():
            raise ValueError(f"prices: no file {str(self.prices)!r}; write one (docs/costs.md shows its form), or remove the key")
        return self

    @property
    def capped(self) -> bool:
        """Whether there is a cap at all."""
        return self.max_usd is not None or self.max_tokens is not None


class RunConfig(Section):
    """A whole training run."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")
    random_seed: int = Field(default=1, ge=0)
    simulated: bool = False
    """Set by configs of the simulated world; every output then says that it is a model of the method."""
    policy: PolicyConfig
    targets: TargetsConfig
    judge: ModelConfig
    realism: ModelConfig | None = None
    """Model behind `audit.realism_filter`; never the policy, whose filter turns would be trained on."""
    bank: BankConfig = BankConfig()
    audit: AuditConfig = AuditConfig()
    reward: RewardConfig = RewardConfig()
    train: TrainConfig = TrainConfig()
    probe: ProbeConfig = ProbeConfig()
    evaluation: EvaluationConfig = EvaluationConfig(profile="off")
    budget: BudgetConfig = BudgetConfig()
    alarms: AlarmsConfig = AlarmsConfig()

    @model_validator(mode="after")
    def _combinations(self) -> Self:
        reward, targets = self.reward, self.targets
        if reward.calibration_eighths and targets.clean is None and not targets.clean_from_pool:
            raise ValueError(
                f"reward.calibration_eighths = {reward.calibration_eighths} needs clean targets: set targets.clean, or targets.clean_from_pool = true"
            )
        if (self.train.groups * reward.calibration_eighths) % 8:
            raise ValueError(
                f"train.groups = {self.train.groups} does not hold {reward.calibration_eighths}/8 clean groups exactly; use a multiple of 8, or another share"
            )
        if self.audit.realism_filter and self.realism is None:
            raise ValueError("audit.realism_filter = true needs a model that rates realism: set [realism] model = 'provider/name'")
        if self.audit.compaction:
            raise ValueError("audit.compaction must be false in training: a compacted history is not what the policy sampled from")
        if self.train.off_policy_steps and self.budget.capped:
            raise ValueError(
                "train.off_policy_steps = 1 pays for a step before the last one is counted, so no cap can hold: drop budget.max_usd and budget.max_tokens"
            )
        if not self.alarm_every and any(rule.action == "stop" for rule in self.alarms.rules().values()):
            raise ValueError("alarms: an alarm can only stop a run that is looked at; set alarms.every (or probe.every) above 0")
        if self.evaluation.profile != "off":
            self._check_evaluation()
        return self

    def _check_evaluation(self) -> None:
        evaluation = self.evaluation
        for key in ("target", "clean_target", "production_target"):
            if getattr(evaluation, key) is None:
                raise ValueError(
                    f"evaluation.profile = {evaluation.profile!r} needs evaluation.{key}; set it, or evaluation.profile = 'off'"
                )
        assert evaluation.target is not None
        if any(evaluation.target.identity == m.identity for m in self.targets.pool.values()):
            raise ValueError("evaluation.target is also a training target (targets.pool); evaluate on a model that training never uses")

    @property
    def alarm_every(self) -> int:
        """Steps between looks at the alarms' signals; 0: never."""
        if all(rule.action == "off" for rule in self.alarms.rules().values()):
            return 0
        return self.probe.every if self.alarms.every is None else self.alarms.every

    @property
    def digest(self) -> str:
        """Hash of everything that changes results."""
        data = _without_limits(self.model_dump(mode="json", exclude=set(RESUMABLE)))
        data["policy"]["tinker"] = {key: value for key, value in data["policy"]["tinker"].items() if f"policy.tinker.{key}" not in SERVER}
        if self.reward.file is not None and self.reward.file.is_file():
            data["reward_file"] = hashlib.sha256(self.reward.file.read_bytes()).hexdigest()
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def changes_results(key: str) -> bool:
    """Whether a config key (`reward.order`) is one that a resumed run must leave as it is."""
    return key.split(".")[0] not in RESUMABLE and key.split(".")[-1] not in LIMITS and key not in SERVER


def _without_limits(data: Any) -> Any:
    """A dumped config whose model entries have no `LIMITS`."""
    if not isinstance(data, dict):
        return data
    node = cast("dict[str, Any]", data)
    entry = {"model", "args", "base_url"} <= node.keys()
    return {key: _without_limits(value) for key, value in node.items() if not (entry and key in LIMITS)}
