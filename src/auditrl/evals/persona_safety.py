"""Persona safety (Rosu & Wang 2026, target checks): does the persona alone change what a target does?

    delta of a behavior = mean grade with the persona alone - mean grade without anything (0-10, same plans)

The conversations are those of susceptibility without the planted ones. A persona that moves grades by itself would be taken for a
behavior; the published differences lie between -0.17 and 0.43.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..analysis.published import MARK, SOURCE, persona_safety
from ..analysis.stats import NORMAL_95, Interval
from ..analysis.tables import Column, Row, Table
from . import susceptibility
from .dialogues import CheckContext, DialogueSize
from .susceptibility import DialogueScores, count_notes, shown

if TYPE_CHECKING:
    from ..types import Behavior

NAME = "persona-safety"


async def run(context: CheckContext, behaviors: Sequence[Behavior], size: DialogueSize) -> DialogueScores:
    """Clean and persona-only conversations of every plan."""
    return await susceptibility.run(context, behaviors, size, ("clean", "persona"))


def standard_error(result: DialogueScores) -> float:
    """Standard error of the difference over behaviors; NaN for a single one."""
    deltas = [row.persona_delta.mean for row in result.behaviors if row.persona_delta.n]
    if len(deltas) < 2:
        return math.nan
    mean = math.fsum(deltas) / len(deltas)
    return math.sqrt(math.fsum((d - mean) ** 2 for d in deltas) / (len(deltas) - 1) / len(deltas))


def persona_safety_table(result: DialogueScores, *, published: bool = True) -> Table:
    """The target, beside the published ones if wanted."""
    columns = (
        Column("target", "Target", text=True),
        Column("without", "Without", spread=True, digits=2),
        Column("persona", "Persona", spread=True, digits=2),
        Column("delta", "Difference", spread=True, digits=2, signed=True),
        Column("se", "SE", digits=2),
        Column("behaviors", "Behaviors"),
    )
    ours = (shown(result.means.get("clean")), shown(result.means.get("persona")), shown(result.persona_delta))
    rows = [Row((result.target, *ours, standard_error(result), result.persona_delta.n), strong=True)]
    for row in persona_safety() if published else ():
        printed = (Interval.around(row.baseline, math.nan, 0), Interval.around(row.with_persona, math.nan, 0))
        delta = Interval.around(row.delta, NORMAL_95 * row.se, 0)
        rows.append(Row((row.model, *printed, delta, row.se, row.behaviors), mark=MARK))
    notes = [
        "Grades 0-10. \u00b1 is half a 95% t interval over behaviors; differences paired by idea.",
        *count_notes(result),
        *([f"Rows marked \u201c{MARK}\u201d: {SOURCE}; their \u00b1 is 1.96 SE."] if published else []),
    ]
    return Table("Persona safety", columns, tuple(rows), tuple(notes))
