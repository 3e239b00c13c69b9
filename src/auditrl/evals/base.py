"""What every suite shares: the models, the truth, the sizes, the plan of its audits, and how an audit becomes a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..audit.context import stable_hash
from ..behaviors.persona import hidden_block
from ..config import AuditConfig
from ..display import Display, NoDisplay
from ..types import Audit, Behavior, Condition, Scenario, Seed, Verdict
from .scores import ScoreRow, SuiteResult, suite_result
from .wildchat import RealConversation

if TYPE_CHECKING:
    from inspect_ai.model import Model

    from ..audit.task import Joined, Unit

Profile = Literal["sim", "small", "full"]


@dataclass(frozen=True, slots=True)
class Size:
    """Seeds per behavior (or in all, where a suite has no behaviors), audits a seed, auditor turns."""

    seeds: int
    replicates: int
    turns: int

    def limited(self, seeds: int | None = None, replicates: int | None = None, turns: int | None = None) -> Size:
        """No more than the given numbers; None leaves one as it is."""
        return Size(
            min(self.seeds, seeds or self.seeds), min(self.replicates, replicates or self.replicates), min(self.turns, turns or self.turns)
        )


@dataclass(frozen=True, slots=True)
class Pair:
    """A seed and the real conversation that its audits are compared with (realism)."""

    seed: Seed
    real: RealConversation
    similarity: float


@dataclass(frozen=True, slots=True)
class Scoring:
    """What turns an audit into a row. It needs no auditor and no target, so saved audits can be scored again by another judge."""

    judge: Model
    behaviors: Mapping[str, Behavior]
    attempts: int = 2
    random_seed: int = 0
    partners: Mapping[str, RealConversation] = field(default_factory=dict[str, RealConversation])
    """Seed id -> real conversation (realism)."""

    def coin(self, *parts: object) -> bool:
        """A fair coin that falls the same way for the same parts in every process."""
        return bool(stable_hash(self.random_seed, *parts) & 1)


@dataclass(slots=True)
class EvalContext:
    """One auditor under evaluation and everything that its audits need.

    `targets` are used by key: `planted`, `clean`, `production`. `random_seed` keys the audits, so that two auditors meet the same
    seeds and the same noise.
    """

    auditor: Model
    auditor_name: str
    targets: Mapping[str, Model]
    judge: Model
    behaviors: Mapping[str, Behavior]
    seeds: Sequence[Seed]
    audit: AuditConfig
    log_dir: Path
    random_seed: int = 0
    simulated: bool = False
    """The targets and the judge are those of the simulated world; every output says so."""
    sim_seeds: bool = False
    """Seeds and conversations are those of the simulated world, in its small language."""
    attempts: int = 2
    clean_condition: Condition = "clean"
    real: Sequence[RealConversation] = ()
    similarity: Literal["text", "judge"] = "text"
    """How real conversations are matched with seeds: TF-IDF, or a judge on five scales (paid: conversations x seeds calls)."""
    pairs: Sequence[Pair] = ()
    """The matching, once it is made."""
    leaks: Sequence[str] = ()
    """What the auditor trained on and is evaluated on all the same (`--allow-leak`)."""
    max_failed_share: float = 0.5
    joined: Joined | None = None
    session: Callable[[int], AbstractContextManager[None]] = lambda _: nullcontext()
    """Entered around all audits of a suite, with their number (a policy sampler batches over them)."""
    display: Display = field(default_factory=NoDisplay)
    label: str = ""

    def scoring(self) -> Scoring:
        """The judge's side of this context."""
        partners = {pair.seed.id: pair.real for pair in self.pairs}
        return Scoring(self.judge, self.behaviors, self.attempts, self.random_seed, partners)


ToRow = Callable[[Audit, Verdict], tuple[float, dict[str, float]]]


@dataclass(frozen=True, slots=True)
class Suite:
    """One suite: its sizes by profile, which audits it runs, how one is judged, and what a verdict is worth (value and parts, 0-100)."""

    name: str
    sizes: Mapping[Profile, Size]
    units: Callable[[EvalContext, Size], list[Unit]]
    judge: Callable[[Scoring, Audit], Awaitable[Verdict]]
    to_row: ToRow


def held_out(context: EvalContext) -> list[Behavior]:
    """Behaviors that no training run may use, by name."""
    return [context.behaviors[name] for name in sorted(context.behaviors) if context.behaviors[name].split == "eval"]


def seeds_of(context: EvalContext, behavior: Behavior, count: int) -> list[Seed]:
    """The first `count` evaluation seeds of a behavior."""
    return [seed for seed in sorted(context.seeds, key=lambda s: s.id) if seed.behavior == behavior.name and seed.split == "eval"][:count]


def units(context: EvalContext, seeds: Sequence[Seed], size: Size, *, suite: str, condition: Condition, target: str) -> list[Unit]:
    """`size.replicates` audits of each seed."""
    from ..audit.task import Unit

    made: list[Unit] = []
    for seed in seeds:
        behavior = context.behaviors.get(seed.behavior or "")
        block = hidden_block(behavior, condition, context.audit.persona)
        scenario = Scenario(id=f"{seed.id}/{condition}/{target}", seed=seed, condition=condition, behavior=seed.behavior, target=target)
        made += [Unit(scenario, i, block, context.random_seed, batch=suite) for i in range(size.replicates)]
    return made


def result_of(suite: Suite, audits: Sequence[Audit], verdicts: Mapping[str, Verdict]) -> SuiteResult:
    """Rows and intervals of a suite. A missing verdict or a failed audit is counted by its cause, never scored zero.

    Args:
        verdicts: By audit id; every audit that did not fail has one.
    """
    finished = [audit for audit in audits if not audit.failed]
    rows: list[ScoreRow] = []
    causes: Counter[str] = Counter()
    for audit in finished:
        verdict = verdicts[audit.id]
        if verdict.value is None:
            causes[verdict.cause] += 1
            continue
        value, parts = suite.to_row(audit, verdict)
        seed = audit.scenario.seed
        rows.append(ScoreRow(suite.name, seed.behavior, seed.id, audit.index, value, parts, audit.id))
    return suite_result(suite.name, rows, missing=len(finished) - len(rows), failed=len(audits) - len(finished), causes=dict(causes))
