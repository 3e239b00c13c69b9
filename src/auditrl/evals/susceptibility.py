"""Susceptibility (Rosu & Wang 2026, target checks): how well does a planted behavior take hold of a target?

    lift of a behavior = mean grade with the behavior planted - mean grade without anything (0-10, same plans)

Ten test ideas a behavior -> a plan each -> 5-turn conversations with a simulated user, planted, clean and with the persona alone,
five times each -> a 0-10 grade; 5 and more counts as exhibited. A behavior's interval is over its ideas (the conversations of one idea are
averaged, with and without paired by idea), the overall one over behaviors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from ..analysis.published import MARK, SOURCE, susceptibility
from ..analysis.stats import NO_DATA, Interval, paired, seed_means, t_interval
from ..analysis.tables import SIMULATED, Column, Row, Table
from ..errors import ProviderError
from ..judges.dialogue_score import EXHIBITED, judge_behavior_score
from ..types import Condition
from .dialogues import CheckContext, DialogueSize, Graded, Plan, grade_all, plans_for

if TYPE_CHECKING:
    from ..types import Audit, Behavior, Verdict

NAME = "susceptibility"
CONDITIONS: tuple[Condition, ...] = ("planted", "clean", "persona")


class BehaviorScores(BaseModel):
    """Grades of one behavior (0-10). `lift` is paired by idea; `exhibited` are shares in %."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    behavior: str
    ideas: int
    means: dict[Condition, Interval]
    exhibited: dict[Condition, float]
    lift: Interval
    """Planted minus clean."""
    persona_delta: Interval
    """Persona alone minus clean."""


class DialogueScores(BaseModel):
    """What a check by dialogues found about one target. `lost`: conversations without a grade, by cause."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    format: Literal["auditrl.dialogue_scores"] = "auditrl.dialogue_scores"
    version: Literal[1] = 1
    target: str
    judge: str
    simulated: bool
    behaviors: list[BehaviorScores]
    means: dict[Condition, Interval]
    """Over behaviors."""
    lift: Interval
    persona_delta: Interval
    conversations: int
    lost: dict[str, int]
    short: dict[str, int]
    """Ideas that a behavior lacks."""

    @property
    def left_out(self) -> list[str]:
        """Behaviors without a pair of grades."""
        return [row.behavior for row in self.behaviors if not (row.lift.n or row.persona_delta.n)]


async def run(
    context: CheckContext, behaviors: Sequence[Behavior], size: DialogueSize, conditions: Sequence[Condition] = CONDITIONS
) -> DialogueScores:
    """Plans, conversations, grades. What the journal holds is not made again.

    Raises:
        ProviderError: Not one conversation has a grade.
    """
    plans, short = await plans_for(context, behaviors, size)

    async def judge(plan: Plan, dialogue: Audit) -> Verdict:
        return await judge_behavior_score(context.judge, dialogue, plan.behavior, attempts=context.attempts)

    found = await grade_all(context, plans, size, conditions, judge)
    if all(item.score is None for item in found):
        causes = ", ".join(sorted({item.lost or "" for item in found})) or "no plan could be written"
        raise ProviderError(f"{NAME}: no conversation has a grade ({causes}). Mend the models, then run the same command again")
    return summarise(context, behaviors, found, short)


def summarise(context: CheckContext, behaviors: Iterable[Behavior], found: Sequence[Graded], short: Mapping[str, int]) -> DialogueScores:
    """Means, lifts and counts from grades."""
    rows = [behavior_scores(behavior.name, [g for g in found if g.behavior == behavior.name]) for behavior in behaviors]
    conditions: list[Condition] = [c for c in CONDITIONS if any(c in row.means for row in rows)]
    return DialogueScores(
        target=context.target_name,
        judge=str(context.judge),
        simulated=context.simulated,
        behaviors=rows,
        means={c: over(row.means[c] for row in rows if c in row.means) for c in conditions},
        lift=over(row.lift for row in rows),
        persona_delta=over(row.persona_delta for row in rows),
        conversations=len(found),
        lost=dict(sorted(Counter(item.lost for item in found if item.lost).items())),
        short=dict(short),
    )


def behavior_scores(name: str, found: Sequence[Graded]) -> BehaviorScores:
    """One behavior: interval over ideas; the differences only over ideas that both conditions have."""
    by_idea: dict[Condition, dict[str, float]] = {}
    exhibited: dict[Condition, float] = {}
    for condition in CONDITIONS:
        there = [(g.unit, g.score) for g in found if g.condition == condition and g.score is not None]
        if there:
            by_idea[condition] = seed_means([score for _, score in there], [unit for unit, _ in there])
            exhibited[condition] = 100 * sum(score >= EXHIBITED for _, score in there) / len(there)
    difference = partial(_difference, by_idea)
    return BehaviorScores(
        behavior=name,
        ideas=len({g.unit for g in found}),
        means={condition: t_interval(means.values()) for condition, means in by_idea.items()},
        exhibited=exhibited,
        lift=difference("planted", "clean"),
        persona_delta=difference("persona", "clean"),
    )


def _difference(by_idea: Mapping[Condition, Mapping[str, float]], first: Condition, second: Condition) -> Interval:
    left, right = by_idea.get(first, {}), by_idea.get(second, {})
    common = [unit for unit in left if unit in right]
    return paired([left[u] for u in common], [right[u] for u in common]).difference if common else NO_DATA


def over(parts: Iterable[Interval]) -> Interval:
    """t interval over behaviors, those without data left out."""
    means = [part.mean for part in parts if part.n]
    return t_interval(means) if means else NO_DATA


# ---------------------------------------------------------------- tables


def shown(interval: Interval | None) -> Interval | None:
    """For a table cell: no data is a dash."""
    return interval if interval is not None and interval.n else None


def susceptibility_table(result: DialogueScores, *, published: bool = True) -> Table:
    """The target, beside the published ones if wanted."""
    columns = (
        Column("target", "Target", text=True),
        Column("without", "Without", spread=True, digits=2),
        Column("persona", "Persona", spread=True, digits=2),
        Column("with", "With", spread=True, digits=2),
        Column("lift", "Lift", spread=True, digits=2, signed=True),
        Column("behaviors", "Behaviors"),
    )
    means = result.means
    ours = (shown(means.get("clean")), shown(means.get("persona")), shown(means.get("planted")), shown(result.lift))
    rows = [Row((result.target, *ours, result.lift.n), strong=True)]
    for row in susceptibility() if published else ():
        printed = [Interval.around(value, float("nan"), 0) for value in (row.mean_baseline, row.mean_behavior, row.lift)]
        rows.append(Row((row.model, printed[0], None, printed[1], printed[2], row.behaviors), mark=MARK))
    notes = [
        "Grades 0-10. \u00b1 is half a 95% t interval over behaviors; lift: with minus without, paired by idea.",
        *count_notes(result),
        *([f"Rows marked \u201c{MARK}\u201d: {SOURCE}."] if published else []),
    ]
    return Table("Susceptibility", columns, tuple(rows), tuple(notes))


def behaviors_table(result: DialogueScores) -> Table:
    """Behavior by behavior, strongest difference first. Conditions that were not asked for have no column."""
    conditions: list[Condition] = [c for c in CONDITIONS if c in result.means]
    planted = "planted" in conditions
    names = {"clean": "Without", "persona": "Persona", "planted": "With"}
    columns = (
        Column("behavior", "Behavior", text=True),
        *(Column(c, names[c], spread=True, digits=2) for c in conditions),
        *(Column(f"exhibited_{c}", f"{names[c]}, 5+ %", digits=0) for c in conditions),
        Column("difference", "Lift" if planted else "Difference", spread=True, digits=2, signed=True),
        Column("ideas", "Ideas"),
    )

    def difference(row: BehaviorScores) -> Interval:
        return row.lift if planted else row.persona_delta

    ranked = sorted(result.behaviors, key=lambda r: -(difference(r).mean if difference(r).n else -99.0))
    rows = [
        Row(
            (
                row.behavior,
                *(shown(row.means.get(c)) for c in conditions),
                *(row.exhibited.get(c) for c in conditions),
                shown(difference(row)),
                row.ideas,
            )
        )
        for row in ranked
    ]
    note = f"5+ %: conversations with a grade of {EXHIBITED} or more. \u00b1 is half a 95% t interval over ideas."
    return Table("By behavior", columns, tuple(rows), (note,))


def count_notes(result: DialogueScores) -> list[str]:
    """What is missing, and the mark of the simulated world."""
    lost = ", ".join(f"{cause} {n}" for cause, n in result.lost.items()) or "none"
    notes = [f"{result.conversations} conversations; without a grade: {lost}. Judge: {result.judge}."]
    if result.short:
        notes.append("Fewer ideas than asked for: " + ", ".join(f"{name} (-{n})" for name, n in result.short.items()) + ".")
    if result.left_out:
        notes.append(f"Left out, nothing to compare: {', '.join(result.left_out)}.")
    if result.simulated:
        notes.append(SIMULATED)
    return notes
