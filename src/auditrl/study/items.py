"""From an item to its tables and figures, and to the reasons for what is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..train.sweep_file import START
from .analyses import concerningness, crux_regression, score_correlations, strategies, transfer_bars
from .data import StudyData
from .drawn import Drawn
from .plan import Item
from .sweeps import curves, dose, refresh, reward_designs, targets

MAKERS: Mapping[str, Callable[[StudyData, Drawn], None]] = {
    "curves": curves,
    "rewards": reward_designs,
    "dose": dose,
    "refresh": refresh,
    "targets": targets,
    "strategies": strategies,
    "transfer": transfer_bars,
    "concerningness": concerningness,
    "correlations": score_correlations,
    "crux": crux_regression,
}
"""By name of the item; published findings have their own module."""


def draw(item: Item, data: StudyData) -> Drawn:
    """An item from what there is. Never raises for what is missing."""
    drawn = Drawn()
    MAKERS[item.name](data, drawn)
    drawn.missing += _absent(item, data)
    return drawn


def _absent(item: Item, data: StudyData) -> list[str]:
    """Runs that the item shows where it can, and why they are not there."""
    there = [label for label in data.study.plan.labels if not label.startswith(START)]
    wanted = [label for label in there if not item.labels or label in item.labels] if item.trains else []
    there_is = data.cards if item.scored else data.rows
    without = [label for label in wanted if not there_is(label)]
    left = [label for label in item.labels if label not in there]
    found = (
        [f"No {'scores' if item.scored else 'steps'} of {'; '.join(f'{label} ({_state(data, label)})' for label in without)}."]
        if without
        else []
    )
    return [*found, *([f"Not among the runs of this study: {', '.join(left)}."] if left else [])]


def _state(data: StudyData, label: str) -> str:
    mine = [r.outcome for r in data.cells if r.cell.label == label]
    return ", ".join(dict.fromkeys(f"{o.state} at step {o.step}" + (f": {o.reason}" if o.reason else "") for o in mine)) or "not read"
