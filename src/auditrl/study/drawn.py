"""What an item of a study consists of, and the table and bars of scores that several items share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..analysis import figures
from ..analysis.published import MARK, SOURCE, FourPart
from ..analysis.report import NamedFigure
from ..analysis.stats import Interval
from ..analysis.sweep_report import published_row
from ..analysis.sweep_results import COMPOSITE
from ..analysis.tables import Column, Row, Table
from ..evals.scores import SUITE_TITLES
from .data import StudyData, over, score

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES: Mapping[str, str] = {**SUITE_TITLES, COMPOSITE: "Composite"}
MOST_BARS = 6


@dataclass(slots=True)
class Drawn:
    """One item. `data`: tables that are too long for the page and are written as CSV alone; `missing`: what could not be computed, and why."""

    text: list[str] = field(default_factory=list[str])
    tables: list[Table] = field(default_factory=list[Table])
    data: list[Table] = field(default_factory=list[Table])
    figures: list[NamedFigure] = field(default_factory=list[NamedFigure])
    missing: list[str] = field(default_factory=list[str])

    def draw(self, caption: str, make: Callable[[], Figure | None]) -> None:
        """Add a figure; one that has nothing to show is missing, with its reason."""
        try:
            figure = make()
        except ValueError as error:
            self.missing.append(f"No figure: {error}.")
            return
        if figure is None:
            self.missing.append(f"No figure \u201c{caption}\u201d: no run has its rows.")
        else:
            self.figures.append(NamedFigure(caption, figure))


def scores_table(data: StudyData, labels: Sequence[str], title: str) -> Table:
    """A row a label with its published row under it; the start first."""
    shown = [label for label in dict.fromkeys([*map(data.start_of, labels), *labels]) if data.cards(label)]
    selectors = data.study.plan.file.published
    rows: list[Row] = []
    for label in shown:
        rows.append(Row((label, *(score(data, label, metric) for metric in TITLES), len(data.cards(label)))))
        if label in selectors:
            printed = published_row(selectors[label], f"{data.study.plan.source}: published.{label}")
            rows.append(Row((printed.label, *(printed_interval(printed, metric) for metric in TITLES), None), mark=MARK))
    columns_ = (
        Column("label", "Auditor", text=True),
        *(Column(metric, name, spread=True) for metric, name in TITLES.items()),
        Column("random_seeds", "Random seeds"),
    )
    most = max((len(data.cards(label)) for label in shown), default=1)
    notes = [f"0\u2013100, higher is better. \u00b1 is half a 95% interval over {over(most)}."]
    notes.append(f"Rows marked \u201c{MARK}\u201d: {SOURCE}; other models and other targets, to compare directions with.")
    return Table(title, columns_, tuple(rows), tuple(notes))


def printed_interval(row: FourPart, metric: str) -> Interval | None:
    """A published score with its printed half width."""
    mean, half = getattr(row, metric), getattr(row, f"{metric}_ci")
    return None if mean is None else Interval.around(mean, math.nan if half is None else half, 0)


def within(interval: Interval | None) -> Interval | None:
    """Drawn inside the scale."""
    if interval is None or not interval.known:
        return interval
    low, high = max(0.0, interval.low), min(100.0, interval.high)
    return Interval(interval.mean, low, high, (high - low) / 2, interval.n)


def score_bars(data: StudyData, labels: Sequence[str], title: str) -> Figure | None:
    """Suites and composite of up to six labels that have scores; None if none has."""
    shown = [label for label in labels if data.cards(label)]
    if not shown:
        return None
    series = {label: [within(score(data, label, metric)) for metric in TITLES] for label in shown[:MOST_BARS]}
    return figures.bars(list(TITLES.values()), series, title=title, unit="0\u2013100, bars: 95% intervals", top=112)


def point(value: float) -> Interval:
    """A number without an interval."""
    return Interval.around(value, math.nan, 0)


def percent(interval: Interval | None) -> Interval | None:
    """Times 100: bars carry whole numbers."""
    if interval is None:
        return None
    return Interval(100 * interval.mean, 100 * interval.low, 100 * interval.high, 100 * interval.half, interval.n)
