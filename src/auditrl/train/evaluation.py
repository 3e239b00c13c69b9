"""Runs and the four-part suite: evaluation before and after training, a saved checkpoint as auditor, and what a run trained on."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from inspect_ai.model import Model

from ..config import EvaluationConfig, RunConfig
from ..errors import RunError
from ..evals.base import EvalContext
from ..evals.guard import TrainedOn, plain_texts
from ..evals.scores import Scorecard
from ..evals.suite import run_suite, sizes
from ..evals.wildchat import offline_conversations
from ..faults import by_role, tally
from ..models import build_model
from ..policy.engine import TrainEngine
from ..policy.model import policy_model
from ..policy.renderers import open_renderer
from ..runs import Run
from .batch import training_seeds
from .workshop import CURRENT, Workshop, bank_for, make_engine, policy_folder


async def evaluate(shop: Workshop, label: str) -> Scorecard | None:
    """Evaluate the current policy on behaviors, seeds and a target that training never used; None if the config switches it off.

    `label` (`before`, `after`) names the folder under `evaluation/`; what it already holds is not made again.
    """
    settings = shop.config.evaluation
    if settings.profile == "off":
        return None
    folder, within = shop.run.path / "evaluation" / label, sizes(settings.profile, replicates=settings.replicates)
    with tally() as faults:
        card = await run_suite(eval_context(shop, settings, label), settings.profile, folder=folder, override=within)
    if faults:
        shop.run.event("server faults", during=f"evaluation/{label}", faults=by_role(faults))
    return card


def eval_context(shop: Workshop, settings: EvaluationConfig, label: str) -> EvalContext:
    """Context of an evaluation: its own targets and judge, the policy as auditor."""
    assert settings.target is not None and settings.clean_target is not None and settings.production_target is not None
    behaviors, seeds = bank_for(shop.config)
    sim_seeds = shop.config.bank.seeds == "sim"
    return EvalContext(
        auditor=shop.auditor(CURRENT),
        auditor_name=f"{shop.config.name} ({label})",
        targets={
            "planted": build_model(settings.target, "evaluation.target"),
            "clean": build_model(settings.clean_target, "evaluation.clean_target"),
            "production": build_model(settings.production_target, "evaluation.production_target"),
        },
        judge=build_model(settings.judge, "evaluation.judge") if settings.judge is not None else shop.judges.model,
        behaviors=behaviors,
        seeds=seeds,
        audit=shop.config.audit,
        log_dir=shop.run.path / "evaluation" / label / "logs",
        random_seed=shop.seed("evaluation"),
        simulated=shop.config.simulated,
        sim_seeds=sim_seeds,
        clean_condition="persona" if clean_persona(shop.config) else "clean",
        real=offline_conversations(sim_seeds),
        joined=shop.engine.joined,
        session=shop.engine.session,
        display=shop.display,
        label=label,
    )


def clean_persona(config: RunConfig) -> bool:
    """Whether the evaluation's clean target wears the persona: as in training, unless the config says otherwise."""
    chosen = config.evaluation.clean_persona
    return config.targets.clean_from_pool if chosen is None else chosen


@dataclass(frozen=True, slots=True)
class CheckpointAuditor:
    """A policy of a run, ready to audit."""

    model: Model
    name: str
    engine: TrainEngine


@asynccontextmanager
async def checkpoint_auditor(run: Run, step: int | None = None) -> AsyncGenerator[CheckpointAuditor]:
    """Open the policy after `step` steps (None: the last checkpoint) for as long as the block runs.

    Raises:
        RunError: There is no checkpoint, or none after that step; the message names those there are.
    """
    chosen = chosen_step(run, step)
    policy = run.config.policy
    folder = policy_folder(policy.model)
    engine = make_engine(run.config, folder)
    try:
        await engine.start()
        await engine.load(str(run.checkpoint(chosen)))
        name = f"{run.config.name}@{chosen}"
        model = policy_model(
            engine.sampler(CURRENT), open_renderer(folder), max_tokens=policy.max_tokens, temperature=policy.temperature, name=name
        )
        yield CheckpointAuditor(model, name, engine)
    finally:
        await engine.close()


def chosen_step(run: Run, step: int | None) -> int:
    """The checkpoint to use. RunError if it is not there."""
    known = run.checkpoints()
    if not known:
        raise RunError(f"{run.path}: no checkpoint yet; go on with the run (`auditrl resume {run.path}`)")
    if step is None:
        return known[-1]
    if step not in known:
        raise RunError(f"{run.path}: no checkpoint after step {step}; there are {', '.join(map(str, known))}")
    return step


def trained_on(config: RunConfig) -> TrainedOn:
    """Behaviors, seeds and targets that a run of this config trains on."""
    behaviors, seeds = bank_for(config)
    used = training_seeds(config, list(behaviors.values()), seeds)
    targets = {entry.identity: f"targets.pool.{key}" for key, entry in config.targets.pool.items()}
    if config.targets.clean is not None:
        targets[config.targets.clean.identity] = "targets.clean"
    return TrainedOn(
        run=config.name,
        behaviors=frozenset(seed.behavior for seed in used if seed.behavior is not None),
        seed_ids=frozenset(seed.id for seed in used),
        seed_texts=plain_texts(used),
        targets=targets,
    )
