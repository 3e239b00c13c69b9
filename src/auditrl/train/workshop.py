"""Everything a run needs, opened once: bank, models, engine, judges, reward design."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from inspect_ai.model import Model

from ..audit.context import stable_hash
from ..behaviors.loader import load_bank
from ..config import RunConfig
from ..costs import register
from ..display import Display
from ..errors import ConfigError
from ..evals.metering import counted, metered
from ..models import build_model, check_limits, models_of
from ..policy.engine import PolicyRef, TrainEngine
from ..policy.ledger import TokenLedger
from ..policy.model import policy_model
from ..policy.renderer import Renderer
from ..policy.renderers import open_renderer
from ..rewards import Judges, RewardDesign, make_reward
from ..rewards.calibration import check_mix
from ..rewards.files import load_reward_file
from ..runs import Run
from ..types import Behavior, Seed
from .batch import CLEAN_TARGET, split_held_back, training_seeds
from .budget import Tariff, check_prices
from .references import FILE as REFERENCES_FILE
from .references import References

CURRENT = PolicyRef("current")
BEHIND = PolicyRef("behind")
"""The policy before the last update, where audits run ahead of it (see `ahead`)."""
REFERENCE = "reference"


@dataclass(slots=True)
class Workshop:
    """What the loop works with."""

    config: RunConfig
    run: Run
    display: Display
    engine: TrainEngine
    renderer: Renderer
    ledger: TokenLedger
    targets: Mapping[str, Model]
    roles: Mapping[str, Model]
    """Further Inspect roles (`realism`)."""
    judges: Judges
    design: RewardDesign
    references: References
    behaviors: Mapping[str, Behavior]
    seeds: Sequence[Seed]
    held_back: Sequence[Seed]
    tariff: Tariff

    def auditor(self, ref: PolicyRef, ledger: TokenLedger | None = None) -> Model:
        """The policy, or a snapshot of it, as an Inspect model."""
        policy = self.config.policy
        return policy_model(
            self.engine.sampler(ref),
            self.renderer,
            ledger=ledger if ledger is not None else TokenLedger(),
            max_tokens=policy.max_tokens,
            temperature=policy.temperature,
            name=f"{self.config.name}-{ref.name}",
        )

    def seed(self, *parts: object) -> int:
        """A random seed of this run for a purpose."""
        return stable_hash(self.config.random_seed, *parts)


def bank_for(config: RunConfig) -> tuple[dict[str, Behavior], list[Seed]]:
    """Behaviors and seeds that a config draws from."""
    bank = load_bank(config.bank.path, merge=not config.bank.alone)
    if config.bank.seeds == "sim":
        from ..sim.world import sim_seeds

        return dict(bank.behaviors), sim_seeds()
    return dict(bank.behaviors), list(bank.seeds)


def policy_folder(model: str) -> str | Path:
    """Where the starting policy lies: `sim/tiny` ships with the package, an existing path is itself, `owner/name` is left to the hub.

    Raises:
        ConfigError: A path that does not exist.
    """
    if model == "sim/tiny":
        from ..sim.tiny import SHIPPED

        return SHIPPED
    path = Path(model).expanduser()
    if path.exists():
        return path
    if model.startswith((".", "/", "~")) or model.count("/") != 1:
        raise ConfigError(
            f"policy.model: no model folder {model!r}; give an existing Hugging Face folder, a model id (owner/name), or sim/tiny"
        )
    return model


def check_run(config: RunConfig) -> RewardDesign:
    """Refuse what only the bank, the reward registry, the model folder or a provider can tell, before anything is made."""
    behaviors, seeds = bank_for(config)
    training_seeds(config, list(behaviors.values()), seeds)
    policy_folder(config.policy.model)
    args = dict(config.reward.args)
    kind = load_reward_file(config.reward.file) if config.reward.file is not None else config.reward.kind
    if kind == "reference":
        args.setdefault("score", config.reward.score)
    design = make_reward(kind, **args)
    check_mix(design, kind, config.reward.calibration_eighths, production=config.targets.production)
    return design


def build_targets(config: RunConfig) -> dict[str, Model]:
    """Target models by the key that scenarios name."""
    targets = {key: build_model(entry, f"targets.pool.{key}") for key, entry in sorted(config.targets.pool.items())}
    if config.targets.clean is not None:
        targets[CLEAN_TARGET] = build_model(config.targets.clean, "targets.clean")
    return targets


def check_models(config: RunConfig) -> None:
    """Build every model that the config names once, so that a wrong name or a missing key is told before a run is made."""
    check_limits(config)
    for key, entry in models_of(config).items():
        build_model(entry, key)


def check_engine(config: RunConfig) -> None:
    """Refuse an engine whose SDK, key or server is not there, before anything is made.

    Raises:
        ConfigError: No SDK, another version, no key or a refused one, no Tinker server at the address.
        ProviderError: The server does not answer.
    """
    if config.policy.engine == "tinker":
        from ..policy.tinker_server import reach

        reach(config.policy.tinker.kind, config.policy.tinker.base_url)


def open_workshop(run: Run, display: Display) -> Workshop:
    """Open everything. ConfigError for what can't be opened."""
    config = run.config
    design = check_run(config)
    tariff = Tariff.load(config)
    check_prices(tariff)
    register(tariff.prices)
    behaviors, all_seeds = bank_for(config)
    seeds, held_back = split_held_back(training_seeds(config, list(behaviors.values()), all_seeds))
    folder = policy_folder(config.policy.model)
    return Workshop(
        config=config,
        run=run,
        display=display,
        engine=make_engine(config, folder),
        renderer=open_renderer(folder),
        ledger=TokenLedger(),
        targets=build_targets(config),
        roles={"realism": counted(build_model(config.realism, "realism"), "realism")} if config.realism is not None else {},
        judges=Judges(
            model=metered(build_model(config.judge, "judge")),
            behaviors=behaviors,
            order=config.reward.order,
            attempts=config.reward.judge_attempts,
            petri_scores=config.reward.petri_scores,
            await_cache=config.reward.await_cache,
            random_seed=config.random_seed,
        ),
        design=design,
        references=References.load(run.path / REFERENCES_FILE, config.reward.renewal_steps),
        behaviors=behaviors,
        seeds=seeds,
        held_back=held_back,
        tariff=tariff,
    )


def make_engine(config: RunConfig, folder: str | Path) -> TrainEngine:
    """The training engine that `policy.engine` names."""
    policy = config.policy
    if policy.engine == "tinker":
        from ..policy.tinker import TinkerEngine, context_of

        tinker = policy.tinker
        return TinkerEngine(
            tinker.base_model or str(folder),
            server=tinker.kind,
            base_url=tinker.base_url,
            rank=policy.lora.rank,
            seed=config.random_seed,
            temperature=policy.temperature,
            context_tokens=tinker.context_tokens or context_of(folder),
            patience_s=tinker.patience_s,
        )
    from ..policy.local import LocalEngine, LoraSettings

    return LocalEngine(
        folder,
        method=policy.method,
        lora=LoraSettings(rank=policy.lora.rank, alpha=policy.lora.alpha, dropout=policy.lora.dropout) if policy.method == "lora" else None,
        dtype=policy.local.dtype,
        device=policy.local.device,
        gradient_checkpointing=policy.local.gradient_checkpointing,
        attention=policy.local.attention,
        micro_batch_tokens=policy.local.micro_batch_tokens,
        threads=policy.local.threads,
        patience_s=policy.local.patience_s,
        seed=config.random_seed,
        temperature=policy.temperature,
    )
