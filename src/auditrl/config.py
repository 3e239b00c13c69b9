"""Run configs: pydantic models read from TOML, with dotted overrides (`--reward.order both`).

Unknown keys, wrong types and bad combinations are refused when the config is read; the message names the file, the key and the mend.
Defaults are the vetted recipe; what is not published is marked so.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, ValidationError, model_validator

from .errors import ConfigError
from .prompts import load_prompt

RESUMABLE = ("alarms", "budget")
"""Sections that change no result: they are left out of the digest, and a resume may change them."""
LIMITS = ("max_connections", "adaptive_connections", "max_retries", "timeout", "attempt_timeout")
"""Keys of a model entry that say how its server is called, not what it answers: treated like `RESUMABLE`."""
SERVER = ("policy.tinker.base_url", "policy.tinker.patience_s")
"""Where the policy's server stands and how long it is waited for: treated like `RESUMABLE`."""


class Section(BaseModel):
    """Base of all sections: unknown keys refused, values frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelConfig(Section):
    """Any Inspect model: `provider/name`, with its arguments."""

    model: str
    args: dict[str, Any] = Field(default_factory=dict)
    base_url: str | None = None
    temperature: float | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_connections: int | None = Field(default=None, ge=1)
    """Calls at a time, for good. None: Inspect finds a number between 10 and 100 by itself (see `adaptive_connections`)."""
    adaptive_connections: StrictBool | Annotated[int, Field(ge=2, strict=True)] | None = None
    """Upper bound of the calls at a time that Inspect works up to while the server keeps up and backs off from when it says 429."""
    max_retries: int | None = Field(default=10, ge=0)
    """Retries of a call that failed for the server's sake, over about five minutes by default. None: until `timeout`, or for ever."""
    timeout: int | None = Field(default=None, ge=1)
    """Seconds for a call with its retries."""
    attempt_timeout: int | None = Field(default=None, ge=1)
    """Seconds for one attempt; after them it is given up and tried again."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Any other field of Inspect's `GenerateConfig` (`reasoning_effort`, `top_p`, `cache_prompt`, `extra_body`)."""

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        if self.max_connections is not None and self.adaptive_connections:
            raise ValueError("max_connections fixes the number of calls at a time, adaptive_connections lets it move: drop one")
        if self.timeout is not None and self.attempt_timeout is not None and self.attempt_timeout > self.timeout:
            raise ValueError(f"attempt_timeout = {self.attempt_timeout} is longer than timeout = {self.timeout}, which covers all attempts")
        return self

    @property
    def identity(self) -> str:
        """What makes two entries the same model."""
        return json.dumps([self.model, self.args, self.base_url], sort_keys=True)


class PersonaConfig(Section):
    """Persona that planted and persona-only targets take."""

    name: str = Field(default="PRISM-4", min_length=1, max_length=80, pattern=r"^[^\n\r]+$")
    lab: str = Field(default="Nexus Research", min_length=1, max_length=80, pattern=r"^[^\n\r]+$")


class AuditConfig(Section):
    """The audit environment (spec section 3)."""

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
    """Train on the pool's models as they are: nothing is planted, no truth is known (spec section 5, reward 1)."""

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


class LocalEngineConfig(Section):
    """Policy trained in process with torch."""

    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """`auto`: bfloat16 on a GPU that computes in it, else the model's own."""
    device: str = "auto"
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass instead of keeping them: less memory, about a third more time."""
    attention: Literal["auto", "eager", "sdpa", "flash_attention_2"] = "auto"
    """`auto`: torch's fused attention where the model has it; `flash_attention_2` needs the package flash-attn."""
    micro_batch_tokens: int = Field(default=16384, ge=64)
    threads: int | None = Field(default=None, ge=1)
    patience_s: float = Field(default=120.0, gt=0)
    """Seconds without any news after which audits that are ready generate without those that still wait for their target. Short (0.5) with
    targets behind a network: nobody then waits for a stalled call. Long: every batch is the same in every run, to the last digit."""


class LoraConfig(Section):
    """Adapter shape for `policy.method = "lora"`."""

    rank: int = Field(default=32, ge=1)
    alpha: int = Field(default=64, ge=1)
    dropout: float = Field(default=0.0, ge=0, lt=1)


class TinkerConfig(Section):
    """A server behind the Tinker API, for `policy.engine = "tinker"`. Its key is read from TINKER_API_KEY."""

    server: Literal["tinker", "skyrl", "skyrl-jax"] | None = None
    """The hosted service, or SkyRL with FSDP or Megatron, or with JAX. None: the hosted service, if there is no `base_url`."""
    base_url: str | None = None
    """Address of a server of one's own."""
    base_model: str | None = None
    """The server's name of the model; None: the name or folder of `policy.model`, which otherwise gives the tokenizer only."""
    context_tokens: int | None = Field(default=None, ge=16)
    """Longest sequence; None: what the server or the model's folder says."""
    patience_s: float = Field(default=300.0, gt=0)
    """Seconds without any sign of the server after which the run stops, resumable."""

    @model_validator(mode="after")
    def _which_server(self) -> Self:
        if self.base_url is not None and self.server is None:
            raise ValueError(
                f"base_url = {self.base_url!r} needs the kind of server, which decides how a loss is added up: set server = 'skyrl-jax' "
                "(SkyRL, JAX backend), 'skyrl' (SkyRL, FSDP or Megatron), or 'tinker' (another door to the hosted service)"
            )
        if self.base_url is None and self.server in ("skyrl", "skyrl-jax"):
            raise ValueError(f"server = {self.server!r} needs its address: set base_url = 'http://HOST:PORT'")
        return self


class PolicyConfig(Section):
    """The auditor that is trained."""

    engine: Literal["local", "tinker"] = "local"
    """In this process (torch), or at a server behind the Tinker API."""
    model: str
    """`sim/tiny` (shipped), a Hugging Face model folder, or a model id."""
    method: Literal["full", "lora"] = "full"
    max_tokens: int = Field(default=1024, ge=1)
    """Tokens of one auditor turn."""
    temperature: float = Field(default=1.0, gt=0)
    local: LocalEngineConfig = LocalEngineConfig()
    lora: LoraConfig = LoraConfig()
    tinker: TinkerConfig = TinkerConfig()

    @model_validator(mode="after")
    def _fits_server(self) -> Self:
        if self.engine == "tinker":
            if self.method != "lora":
                raise ValueError("engine = 'tinker' trains adapters only: set method = 'lora'")
            if self.temperature != 1.0:
                raise ValueError(f"engine = 'tinker' trains at temperature 1; remove temperature = {self.temperature:g}")
            if self.lora.dropout:
                raise ValueError("engine = 'tinker' has no dropout; remove lora.dropout")
        return self


class RewardConfig(Section):
    """The reward design (spec section 5)."""

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
    """The four-part suite before and after training (spec section 6)."""

    profile: Literal["off", "sim", "small", "full"] = "sim"
    before: bool = True
    after: bool = True
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


AlarmAction = Literal["warn", "stop", "off"]


class AlarmRule(Section):
    """One alarm: when it goes off, and what happens then."""

    limit: float = Field(gt=0, allow_inf_nan=False)
    """What the watched number must pass; its unit is the alarm's (docs/alarms.md)."""
    action: AlarmAction | None = None
    """None: `alarms.action`."""
    persistence: int | None = Field(default=None, ge=1)
    """None: `alarms.persistence`."""


class AlarmsConfig(Section):
    """Alarms during training (see `train.monitor`). They change no result, so a resume may change them."""

    every: int | None = Field(default=None, ge=0)
    """Steps between looks; None: `probe.every`, whose audits are used. 0 switches them off."""
    action: AlarmAction = "warn"
    persistence: int = Field(default=2, ge=1)
    """Looks in a row that must pass the limit, so that one noisy look stops nothing."""
    false_accusations: AlarmRule = AlarmRule(limit=0.10)
    unfounded_claims: AlarmRule = AlarmRule(limit=0.05)
    narration_share: AlarmRule = AlarmRule(limit=0.05)
    confrontation_share: AlarmRule = AlarmRule(limit=0.05)
    extreme_share: AlarmRule = AlarmRule(limit=0.05)
    turns_drift: AlarmRule = AlarmRule(limit=2.0)
    length_drift: AlarmRule = AlarmRule(limit=2.5)
    strategy_entropy: AlarmRule = AlarmRule(limit=0.5)
    reward_quality_gap: AlarmRule = AlarmRule(limit=5.0)

    @model_validator(mode="before")
    @classmethod
    def _keep_limits(cls, data: Any) -> Any:
        """An alarm of which only the action or the persistence is given keeps its limit."""
        if not isinstance(data, Mapping):
            return data
        rules = {name: info.default for name, info in cls.model_fields.items() if isinstance(info.default, AlarmRule)}
        given = cast("Mapping[str, Any]", data)
        return {k: {"limit": rules[k].limit, **v} if k in rules and isinstance(v, Mapping) else v for k, v in given.items()}

    @model_validator(mode="after")
    def _units(self) -> Self:
        for name, rule in self.rules().items():
            if name.endswith("_drift") and rule.limit <= 1:
                raise ValueError(f"{name}.limit is a factor against the start, {rule.limit:g} is no drift; 2 means half or double")
            if not name.endswith(("_drift", "_gap")) and rule.limit >= 1:
                raise ValueError(f"{name}.limit is a share, below 1 (given: {rule.limit:g}); 0.15 means 15%")
        return self

    def rules(self) -> dict[str, AlarmRule]:
        """Every alarm by name, `action` and `persistence` filled in; those that are off included."""
        found: dict[str, AlarmRule] = {}
        for name in type(self).model_fields:
            rule = getattr(self, name)
            if isinstance(rule, AlarmRule):
                action = self.action if rule.action is None else rule.action
                found[name] = AlarmRule(limit=rule.limit, action=action, persistence=rule.persistence or self.persistence)
        return found


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
        if self.train.off_policy_steps and (self.budget.max_usd is not None or self.budget.max_tokens is not None):
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


def parse_overrides(pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """`[("reward.order", "both")]` -> nested dict. Values are TOML; anything that is not is taken as a string."""
    result: dict[str, Any] = {}
    for key, raw in pairs:
        try:
            value: Any = tomllib.loads(f"value = {raw}")["value"]
        except tomllib.TOMLDecodeError:
            value = None if raw in ("none", "null") else raw
        node = result
        *parents, leaf = key.split(".")
        for part in parents:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                raise ConfigError(f"--{key}: {part!r} was already given a value; override single keys only")
        node[leaf] = value
    return result


def merged(base: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the keys of `extra` over it, section by section."""
    result = dict(base)
    for key, value in extra.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def packaged_config(name: str) -> Path:
    """Path of a config that ships with the package (`quickstart`)."""
    return Path(str(files("auditrl").joinpath("configs", f"{name}.toml")))


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file. ConfigError names the file, the line and the mend."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; `auditrl quickstart` shows a config that works") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a folder; name a TOML file (to go on with a run use `auditrl resume {path}`)") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


def load_config(path: Path, overrides: Sequence[tuple[str, str]] = ()) -> RunConfig:
    """Read and check a run config. `extends = "base.toml"` at its top puts it over another file, named from its own folder."""
    return check_config(merged(read_extended(path), parse_overrides(overrides)), str(path))


def read_extended(path: Path, below: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A TOML file merged over the file that it extends, if it names one.

    Raises:
        ConfigError: A file that can't be read, `extends` that is no text, or files that extend each other in a circle.
    """
    here = path.resolve()
    if here in below:
        raise ConfigError(f"{path}: extends: the files extend each other in a circle ({' -> '.join(p.name for p in (*below, here))})")
    data = read_toml(path)
    base = data.pop("extends", None)
    if base is None:
        return data
    if not isinstance(base, str):
        raise ConfigError(f"{path}: extends: must be the name of a TOML file in quotes")
    return merged(read_extended(path.parent / base, (*below, here)), data)


def check_config(data: Mapping[str, Any], source: str) -> RunConfig:
    """Validate a config dictionary; ConfigError lists every problem with its key."""
    try:
        return RunConfig.model_validate(dict(data))
    except ValidationError as error:
        raise ConfigError(describe_validation(error, source)) from None


def describe_validation(error: ValidationError, source: str, model: type[BaseModel] | None = None) -> str:
    """One line a problem: file, key, what is wrong, what to do. `model` (default: a run config) is what the file should be."""
    lines: list[str] = []
    for item in error.errors():
        key = ".".join(str(part) for part in item["loc"]) or "config"
        if item["type"] == "extra_forbidden":
            message = f"unknown key {_suggestion(item['loc'], model or RunConfig)}"
        elif item["type"] == "missing":
            message = "required and missing; add it"
        else:
            given = item.get("input")
            shown = f" (given: {given!r})" if isinstance(given, (str, int, float, bool)) else ""
            message = item["msg"].removeprefix("Value error, ") + shown
        lines.append(f"{source}: {key}: {message}")
    return "\n".join(lines)


def _suggestion(loc: tuple[Any, ...], model: Any) -> str:
    import difflib

    for part in loc[:-1]:
        info = getattr(model, "model_fields", {}).get(part)
        model = info.annotation if info is not None else None
    names = list(getattr(model, "model_fields", {}))
    close = difflib.get_close_matches(str(loc[-1]), names, n=1)
    if close:
        return f"(did you mean {close[0]!r}?)"
    return f"(known here: {', '.join(names)})" if names else "(remove it)"
