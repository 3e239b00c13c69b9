"""The four suites as plain Inspect tasks, for people who work with `inspect eval` rather than with `auditrl eval suite`.

    inspect eval auditrl/audit_quality --model-role auditor=... --model-role target=... --model-role judge=...

The roles `auditor`, `target` and `judge` name the models; the target is the planted, the clean or the production one, as the suite needs.
The suite's own judge is the scorer. Audits, seeds and formulas are those of `auditrl eval suite`, so are the audits' ids.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from inspect_ai import Task
from inspect_ai.model import Model, get_model
from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, mean, metric, scorer
from inspect_ai.solver import TaskState

from ..analysis.stats import seed_interval
from ..audit.task import audit_task
from ..behaviors.loader import load_bank
from ..config import AuditConfig, load_config, packaged_config
from ..errors import ConfigError
from ..types import Audit, Condition, Seed
from .base import EvalContext, Pair, Scoring, Suite
from .realism import NAME as REALISM
from .realism import assign, candidate_seeds, text_similarity
from .suite import FOUR
from .wildchat import RealConversation, load_wildchat, offline_conversations

AUDITOR_NAME = "auditor"
"""Recorded in audits: the role, because the model is known when they run."""


class RoleModels(Mapping[str, Model]):
    """Target models by any key: all are whatever model has the role `target` when an audit runs."""

    def __getitem__(self, key: str) -> Model:
        return get_model(role="target", required=True)

    def __iter__(self) -> Iterator[str]:
        return iter(("planted", "clean", "production"))

    def __len__(self) -> int:
        return 3


def suite_task(
    name: str,
    *,
    profile: str = "small",
    seeds: int | None = None,
    replicates: int | None = None,
    turns: int | None = None,
    clean_condition: str = "persona",
    wildchat: str | None = None,
    choice: str | None = None,
    bank: str | None = None,
    random_seed: int = 0,
    attempts: int = 2,
) -> Task:
    """One suite as a task.

    Args:
        name: Suite.
        profile: `full`, `small`, or `sim` (the simulated world's seeds; use `sim/` models).
        seeds: At most so many seeds (a behavior).
        replicates: At most so many audits a seed.
        turns: At most so many auditor turns.
        clean_condition: What a clean target wears: `persona` (the planted target's model) or `clean` (a model of its own).
        wildchat: WildChat export for realism; None uses the stand-ins of the package (see `wildchat`).
        choice: File with the hashes of the conversations to use.
        bank: Folder with further behaviors and seeds.
        random_seed: Keys the audits' noise and the order of pairs.
        attempts: How often an unreadable judgement is asked for.

    Raises:
        ConfigError: An unknown profile or condition, or material that can't be used.
    """
    if profile not in ("full", "small", "sim"):
        raise ConfigError(f"profile: {profile!r} is not known; use full, small or sim")
    if clean_condition not in ("persona", "clean"):
        raise ConfigError(f"clean_condition: {clean_condition!r} is not known; use persona or clean")
    for role in ("auditor", "target", "judge"):
        _role(role, name)
    suite, simulated = FOUR[name], profile == "sim"
    size = suite.sizes[profile].limited(seeds, replicates, turns)
    settings = load_config(packaged_config("quickstart")).audit if simulated else AuditConfig()
    models: Any = RoleModels()
    loaded = load_bank(bank)
    context = EvalContext(
        # models are looked up by role when an audit or a judgement needs them
        auditor=cast(Model, None),
        judge=cast(Model, None),
        auditor_name=AUDITOR_NAME,
        targets=models,
        behaviors=loaded.behaviors,
        seeds=_seeds(loaded.seeds, simulated),
        audit=settings,
        log_dir=Path(tempfile.gettempdir()),
        random_seed=random_seed,
        simulated=simulated,
        sim_seeds=simulated,
        attempts=attempts,
        clean_condition=cast(Condition, clean_condition),
        real=_real(wildchat, choice, simulated),
    )
    if name == REALISM:
        pool = candidate_seeds(context)
        chosen = list(context.real)[: min(size.seeds, len(pool))]
        similarity = text_similarity(chosen, pool)
        context.pairs = [Pair(pool[j], chosen[i], float(similarity[i, j])) for i, j in assign(similarity)]
    return audit_task(
        suite.units(context, size),
        settings.model_copy(update={"max_turns": size.turns}),
        models,
        auditor_name=AUDITOR_NAME,
        name=name,
        scorer=suite_scorer(suite, context),
    )


def _role(role: str, task: str) -> Model:
    try:
        return get_model(role=role, required=True)
    except Exception as error:  # Inspect's own message names no option
        raise ConfigError(f"auditrl/{task}: no model has the role {role!r} ({error}); add --model-role {role}=provider/name") from None


def _seeds(bank_seeds: list[Seed], simulated: bool) -> list[Seed]:
    if not simulated:
        return bank_seeds
    from ..sim.world import sim_seeds

    return sim_seeds()


def _real(wildchat: str | None, choice: str | None, simulated: bool) -> list[RealConversation]:
    if wildchat is not None:
        return load_wildchat(Path(wildchat), choice=Path(choice) if choice is not None else None)
    return offline_conversations(simulated)


@metric
def half_width() -> Metric:
    """Half of the 95% t interval over seeds (the audits of a seed are averaged first); 0 with fewer than two seeds."""

    def compute(scores: list[SampleScore]) -> float:
        values = [score.score.as_float() for score in scores]
        seeds = [str((score.score.metadata or {}).get("seed", score.sample_id)) for score in scores]
        interval = seed_interval(values, seeds) if values else None
        return interval.half if interval is not None and interval.known else 0.0

    return compute


def suite_scorer(suite: Suite, context: EvalContext) -> Scorer:
    """The suite's judge as a scorer: `score` and the sub-scores, 0-100. No verdict and no audit leave a sample unscored."""

    @scorer(metrics={"*": [mean(), half_width()]}, name=suite.name)
    def build() -> Scorer:
        async def score(state: TaskState, target: Target) -> Score | None:
            saved = state.store.get("audit")
            audit = Audit.model_validate_json(saved) if saved is not None else None
            if audit is None or audit.failed:
                return None
            partners = {pair.seed.id: pair.real for pair in context.pairs}
            verdict = await suite.judge(
                Scoring(_role("judge", suite.name), context.behaviors, context.attempts, context.random_seed, partners), audit
            )
            if verdict.value is None:
                return Score.unscored(reason="scoring_failed", explanation=f"no verdict: {verdict.missing}")
            value, parts = suite.to_row(audit, verdict)
            return Score(
                value={"score": value, **parts},
                explanation=verdict.reason,
                metadata={"seed": audit.scenario.seed.id, "quotes": [quote.model_dump() for quote in verdict.quotes]},
            )

        return score

    return build()
