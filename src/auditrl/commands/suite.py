"""From the options of `auditrl eval suite` to an evaluation: which models, which bank, which sizes, and the guard."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..config import AuditConfig, EvaluationConfig, ModelConfig, RunConfig, load_config, packaged_config
from ..display import Display
from ..errors import ConfigError
from ..evals.auditors import AuditorEntry, RunReference, run_reference
from ..evals.base import EvalContext, Profile, Size, held_out, seeds_of
from ..evals.guard import check_held_out, leaks
from ..evals.scores import Scorecard
from ..evals.wildchat import RealConversation, load_wildchat, offline_conversations
from ..runs import Run, open_run
from ..types import Behavior, Seed

if TYPE_CHECKING:
    from inspect_ai.model import Model

ROLES = ("target", "clean_target", "production_target", "judge")
_TARGETS = {"target": "planted", "clean_target": "clean", "production_target": "production"}
API_CONCURRENCY = 20
"""Audits at a time against other people's servers: what an interruption can lose."""
LOCAL_CONCURRENCY = 64
"""Audits at a time for a checkpoint, which samples for all of them in one batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One evaluation as it was asked for. Roles that are None are filled in from the auditor's run or the simulated world."""

    profile: Profile
    suites: Sequence[str]
    target: ModelConfig | None = None
    clean_target: ModelConfig | None = None
    production_target: ModelConfig | None = None
    judge: ModelConfig | None = None
    bank: Path | None = None
    wildchat: Path | None = None
    choice: Path | None = None
    similarity: Literal["text", "judge"] = "text"
    allow_leak: bool = False
    limit_seeds: int | None = None
    limit_replicates: int | None = None
    limit_turns: int | None = None
    max_concurrent: int | None = None
    random_seed: int = 0
    attempts: int = 2

    def overrides(self) -> dict[str, Size]:
        """Sizes of the profile within the limits."""
        from ..evals.suite import sizes

        return sizes(self.profile, self.limit_seeds, self.limit_replicates, self.limit_turns)


def is_simulated(entry: ModelConfig) -> bool:
    """Whether a model is one of the simulated world's."""
    return entry.model.startswith("sim/")


def resolve_roles(request: Request, auditor: AuditorEntry, run: Run | None) -> dict[str, ModelConfig]:
    """Every role's model: as asked for, else of the run's own evaluation, else (simulated world) of the packaged quickstart.

    Raises:
        ConfigError: A role has no model, or simulated and other models are mixed.
    """
    given: dict[str, ModelConfig | None] = {role: getattr(request, role) for role in ROLES}
    fallback: EvaluationConfig | None = None
    if run is not None:
        fallback = run.config.evaluation
    elif request.profile == "sim" or (is_simulated(auditor) and not any(given.values())):
        fallback = quickstart().evaluation
    found = {role: entry or (getattr(fallback, role) if fallback is not None else None) for role, entry in given.items()}
    if found["judge"] is None and run is not None:
        found["judge"] = run.config.judge
    for role, entry in found.items():
        if entry is None:
            raise ConfigError(f"--{role.replace('_', '-')}: no model for this role; name one as provider/name (--profile sim needs none)")
    roles = {role: entry for role, entry in found.items() if entry is not None}
    kinds = {role: is_simulated(entry) for role, entry in roles.items()}
    if len(set(kinds.values())) > 1:
        real = ", ".join(f"--{role.replace('_', '-')}" for role, sim in kinds.items() if not sim)
        raise ConfigError(f"{real}: targets and judge must be all simulated (sim/...) or none; name the others too")
    if request.profile == "sim" and not all(kinds.values()):
        raise ConfigError(
            "--profile sim: is for the models of the simulated world; use --profile small or full for these targets and judge"
        )
    return roles


def quickstart() -> RunConfig:
    """The packaged config of the simulated world: its models and audit settings are the defaults there."""
    return load_config(packaged_config("quickstart"))


def load_material(request: Request, run: Run | None, sim_seeds: bool) -> tuple[dict[str, Behavior], list[Seed]]:
    """Behaviors and seeds: of `--bank`, of the run, or the package's."""
    from ..behaviors.loader import load_bank

    if run is not None and request.bank is None:
        from ..train.workshop import bank_for

        return bank_for(run.config)
    bank = load_bank(request.bank)
    if sim_seeds:
        from ..sim.world import sim_seeds as seeds_of_the_world

        return dict(bank.behaviors), seeds_of_the_world()
    return dict(bank.behaviors), list(bank.seeds)


def real_conversations(request: Request, sim_seeds: bool) -> Sequence[RealConversation]:
    """The user's WildChat export, else the simulated world's or the package's."""
    if request.wildchat is not None:
        return load_wildchat(request.wildchat, choice=request.choice)
    if request.choice is not None:
        raise ConfigError("--wildchat-choice: needs --wildchat, the export that the chosen conversations are in")
    return offline_conversations(sim_seeds)


async def evaluate_auditor(request: Request, auditor: AuditorEntry, folder: Path, display: Display) -> Scorecard:
    """Evaluate one auditor into a folder; what the folder holds is not made again.

    Raises:
        ConfigError: A role, the bank or the conversations can't be used, or the guard refuses.
        RunError: The run or the folder can't be used.
        ProviderError: Models failed; what was finished is kept.
    """
    from ..evals.suite import run_suite
    from ..reach import ask_servers

    reference = run_reference(auditor.model)
    run = open_run(reference.path) if reference is not None else None
    roles = resolve_roles(request, auditor, run)
    asked = {**roles, **({"auditor": auditor_model(auditor)} if reference is None else {})}
    await ask_servers({f"--{role.replace('_', '-')}": entry for role, entry in asked.items()})
    context = make_context(request, auditor, roles, run, folder, display)
    async with opened(context, auditor, reference, run) as ready:
        return await run_suite(ready, request.profile, folder=folder, only=request.suites, override=request.overrides())


def make_context(
    request: Request, auditor: AuditorEntry, roles: dict[str, ModelConfig], run: Run | None, folder: Path, display: Display
) -> EvalContext:
    """Everything but the auditor's model, which is opened last (`opened`)."""
    from ..models import build_model

    sim_seeds = run.config.bank.seeds == "sim" if run is not None else request.profile == "sim"
    behaviors, seeds = load_material(request, run, sim_seeds)
    built = {role: build_model(entry, f"--{role.replace('_', '-')}") for role, entry in roles.items()}
    # a clean target that is the planted one's model takes the persona too, so that style gives nothing away
    condition = "persona" if roles["clean_target"].identity == roles["target"].identity else "clean"
    context = EvalContext(
        auditor=built["judge"],
        auditor_name=auditor.name,
        targets={key: built[role] for role, key in _TARGETS.items()},
        judge=built["judge"],
        behaviors=behaviors,
        seeds=seeds,
        audit=audit_settings(request, run),
        log_dir=folder / "logs",
        random_seed=request.random_seed,
        simulated=is_simulated(roles["judge"]),
        sim_seeds=sim_seeds,
        attempts=request.attempts,
        clean_condition=condition,
        real=real_conversations(request, sim_seeds),
        similarity=request.similarity,
        display=display,
    )
    return replace(context, leaks=guard(request, context, roles, run))


def audit_settings(request: Request, run: Run | None) -> AuditConfig:
    """The run's own audit settings, else the simulated world's or the defaults."""
    if run is not None:
        settings, limit = run.config.audit, LOCAL_CONCURRENCY
    elif request.profile == "sim":
        settings, limit = quickstart().audit, LOCAL_CONCURRENCY
    else:
        settings, limit = AuditConfig(), API_CONCURRENCY
    return settings.model_copy(update={"max_concurrent": request.max_concurrent or limit})


def guard(request: Request, context: EvalContext, roles: dict[str, ModelConfig], run: Run | None) -> list[str]:
    """Refuse what the run trained on; with `--allow-leak` say it."""
    if run is None:
        return []
    from ..train.evaluation import trained_on

    behaviors = held_out(context)
    seeds = [seed for behavior in behaviors for seed in seeds_of(context, behavior, len(context.seeds))]
    targets = {f"--{role.replace('_', '-')}": roles[role] for role in _TARGETS}
    found = leaks(trained_on(run.config), [b.name for b in behaviors], seeds, targets)
    return check_held_out(found, run.config.name, allow=request.allow_leak)


@asynccontextmanager
async def opened(
    context: EvalContext, auditor: AuditorEntry, reference: RunReference | None, run: Run | None
) -> AsyncGenerator[EvalContext]:
    """The context with its auditor: a checkpoint samples through its own engine, any other model through Inspect."""
    if run is not None and reference is not None:
        from ..train.evaluation import checkpoint_auditor

        async with checkpoint_auditor(run, reference.step) as checkpoint:
            engine: Any = checkpoint.engine
            name = auditor.label or checkpoint.name
            yield replace(context, auditor=checkpoint.model, auditor_name=name, joined=engine.joined, session=engine.session)
        return
    yield replace(context, auditor=_model_of(auditor))


def _model_of(auditor: AuditorEntry) -> Model:
    from ..models import build_model

    return build_model(auditor_model(auditor), "--auditor")


def auditor_model(auditor: AuditorEntry) -> ModelConfig:
    """The entry's model without its label."""
    return ModelConfig.model_validate(auditor.model_dump(exclude={"label"}))
