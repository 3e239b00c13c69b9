"""What a sweep found, for people: one row a label with the published row beside it, expectations, bars, curves, and the files of all.

It can be made again at any time, and of a sweep that is not done yet. See `sweep_results` for what the numbers are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..evals.scores import SUITE_TITLES, SUITES
from ..files import write_folder
from ..train.sweep_file import START, Plan, axes
from . import figures
from .published import MARK, SOURCE, Configuration, configurations
from .stats import Interval
from .sweep_results import COMPOSITE, CellResult, Finding, collect, dotted, examine, over_seeds, value
from .tables import DASH, SIMULATED, Column, Row, Table, cell_text, to_csv, to_markdown, to_rich

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_BARS = 6

PANELS: tuple[tuple[str, str, str], ...] = (
    ("reward", "Reward", "mean of the step, in each design's own units"),
    ("probe.quality", "Audit quality", "held-back scenarios, 0\u2013100"),
    ("probe.fp_calibration", "FP calibration", "held-back clean targets, 0\u2013100"),
    ("firm_on_clean", "Firm claims on clean targets", "share of the step's audits"),
)
"""Curves: key of the metrics rows, title, unit."""
FURTHER: tuple[tuple[str, str], ...] = (
    ("audit_quality.identified", "Identified"),
    ("target_view", "Target view"),
    ("auditor_view", "Auditor view"),
    ("alarm_step", "First alarm"),
)
"""Columns behind the scores, shown where a run has them."""


@dataclass(frozen=True, slots=True)
class SweepResults:
    """Everything that the results files hold."""

    plan: Plan
    cells: tuple[CellResult, ...]
    table: Table
    findings: tuple[Finding, ...]

    @property
    def simulated(self) -> bool:
        """Whether any run is from the simulated world."""
        return any(result.cell.config.simulated for result in self.cells)


# ---------------------------------------------------------------- tables


def published_row(selector: Mapping[str, Any], where: str) -> Configuration:
    """The row of the published table of configurations that has these columns. ConfigError if none or several have."""
    known = set(Configuration.__dataclass_fields__)
    if unknown := sorted(set(selector) - known):
        raise ConfigError(f"{where}: unknown column {unknown[0]!r}; columns: {', '.join(sorted(known))}")
    found = [row for row in configurations() if all(str(getattr(row, key)) == str(wanted) for key, wanted in selector.items())]
    if len(found) != 1:
        raise ConfigError(
            f"{where}: {len(found)} published rows fit {dict(selector)}; name enough columns to pick one: {', '.join(sorted(known))}"
        )
    return found[0]


def check_published(plan: Plan) -> None:
    """Refuse selectors that pick no row, before anything runs."""
    for label, selector in plan.file.published.items():
        published_row(selector, f"{plan.source}: published.{label}")


def results_table(plan: Plan, cells: Sequence[CellResult]) -> Table:
    """One row a label, in the order of the file, starts first; the published row under its label, marked."""
    further = [(key, title) for key, title in FURTHER if any(value(result, key) is not None for result in cells)]
    columns = (
        Column("label", "Run", text=True),
        *(Column(suite, SUITE_TITLES[suite], spread=True) for suite in SUITES),
        Column(COMPOSITE, "Composite", spread=True),
        *(Column(key, title, spread=True) for key, title in further),
        Column("states", "Random seeds", text=True),
    )
    rows: list[Row] = []
    for label in plan.labels:
        metrics = (*SUITES, COMPOSITE, *(key for key, _ in further))
        rows.append(Row((label, *(over_seeds(cells, label, metric) for metric in metrics), _states(cells, label))))
        if selector := plan.file.published.get(label):
            row = published_row(selector, f"{plan.source}: published.{label}")
            printed = [_printed(getattr(row, m), getattr(row, f"{m}_ci")) for m in (*SUITES, COMPOSITE)]
            rows.append(Row((row.label, *printed, *(None for _ in further), ""), mark=MARK))
    notes = ["0\u2013100, higher is better. \u00b1 is half a 95% t interval over random seeds; each run is one observation."]
    if plan.file.published:
        notes.append(f"Rows marked \u201c{MARK}\u201d: {SOURCE}; \u00b1 as printed there, over scenario seeds.")
    notes += plan.file.notes
    notes += [SIMULATED] if any(result.cell.config.simulated for result in cells) else []
    return Table(plan.file.about or f"Sweep {plan.file.name}", columns, tuple(rows), tuple(notes))


def _printed(mean: float | None, half: float | None) -> Interval | None:
    return None if mean is None else Interval.around(mean, math.nan if half is None else half, 0)


def _states(cells: Sequence[CellResult], label: str) -> str:
    """`3 finished`, or which seeds are in another state, and at which step."""
    mine = [result for result in cells if result.cell.label == label]
    done = sum(result.outcome.state == "finished" for result in mine)
    others = [f"{r.outcome.state} {r.cell.random_seed} (step {r.outcome.step})" for r in mine if r.outcome.state != "finished"]
    return ", ".join([f"{done} finished", *others])


def findings_table(findings: Sequence[Finding]) -> Table:
    """Expectations, what came of them, and the numbers."""
    columns = (
        Column("says", "Published direction", text=True),
        Column("statement", "Tested", text=True),
        Column("effect", "Effect", digits=2, spread=True, signed=True),
        Column("verdict", "Result", text=True),
        Column("detail", "By random seed", text=True),
    )
    rows = tuple(Row((f.says or DASH, f.statement, f.effect, f.verdict, f.detail)) for f in findings)
    notes = (
        "Effect: difference in the expected direction, paired by random seed, with its 95% interval; of a bound, the mean.",
        "A comparison came out if its interval lies beyond the line, a bound if every random seed keeps it.",
    )
    return Table("Expectations", columns, rows, notes)


# ---------------------------------------------------------------- figures


def score_figure(plan: Plan, cells: Sequence[CellResult]) -> Figure | None:
    """Suites and composite by label; with more than six labels, quality, calibration and composite of each. None without a score."""
    labels = [label for label in plan.labels if any(over_seeds(cells, label, metric) for metric in (*SUITES, COMPOSITE))]
    if not labels:
        return None
    unit = "0\u2013100, bars: 95% t intervals over random seeds"
    title = plan.file.about or f"Sweep {plan.file.name}"
    titles = {**SUITE_TITLES, COMPOSITE: "Composite"}
    if len(labels) <= MOST_BARS:
        series = {label: [_within(over_seeds(cells, label, metric)) for metric in titles] for label in labels}
        return figures.bars(list(titles.values()), series, title=title, unit=unit, top=112)
    chosen = ("audit_quality", "fp_calibration", COMPOSITE)
    by_metric = {titles[metric]: [_within(over_seeds(cells, label, metric)) for label in labels] for metric in chosen}
    return figures.bars(labels, by_metric, title=title, unit=unit, top=112)


def _within(interval: Interval | None) -> Interval | None:
    """Drawn inside the scale: a t interval of few runs may reach past 0 and 100."""
    if interval is None or not interval.known:
        return interval
    return replace(interval, low=max(0.0, interval.low), high=min(100.0, interval.high))


def curve_figure(plan: Plan, cells: Sequence[CellResult]) -> Figure | None:
    """Curves over the steps by label: mean of the random seeds, band from the lowest to the highest. None without rows."""
    panels = [
        figures.Panel(title, unit, series)
        for key, title, unit in PANELS
        if (series := [line for label in plan.labels if (line := _curve(cells, label, key)) is not None])
    ]
    return figures.panels(panels, x="step") if panels else None


def axis_figure(plan: Plan, cells: Sequence[CellResult]) -> Figure | None:
    """FP calibration and composite over the grid's values, one line an entry, published values dashed. None unless the grid has one axis."""
    plots: list[figures.Panel] = []
    for metric, title in ((SUITES[1], SUITE_TITLES[SUITES[1]]), (COMPOSITE, "Composite")):
        series = [line for entry in dict.fromkeys(e for e, _ in plan.places.values()) for line in _over_axis(plan, cells, entry, metric)]
        if series:
            plots.append(figures.Panel(title, "0\u2013100, band: 95% t interval over random seeds", series))
    axis = next(iter(axes(plan.file.grid, plan.source)), "")
    return figures.panels(plots, x=axis) if plots else None


def _over_axis(plan: Plan, cells: Sequence[CellResult], entry: str, metric: str) -> list[figures.Series]:
    labels = [label for label, (owner, _) in plan.places.items() if owner == entry]
    points = [(plan.places[label][1], _within(found)) for label in labels if (found := over_seeds(cells, label, metric)) is not None]
    ours = [(x, y) for x, y in points if y is not None]
    rows = {label: published_row(plan.file.published[label], plan.source) for label in labels if label in plan.file.published}
    printed = [(plan.places[label][1], number) for label, row in rows.items() if (number := getattr(row, metric)) is not None]
    lines = [figures.Series(entry, [x for x, _ in ours], [y for _, y in ours])] if ours else []
    return [
        *lines,
        *(
            [figures.Series(f"{entry}, published", [x for x, _ in printed], [y for _, y in printed], dashed=True)]
            if printed and ours
            else []
        ),
    ]


def _curve(cells: Sequence[CellResult], label: str, key: str) -> figures.Series | None:
    points: dict[float, list[float]] = {}
    for result in cells:
        if result.cell.label == label:
            for row in result.rows:
                number = dotted(row, key)
                if number is not None:
                    points.setdefault(float(row["step"]), []).append(number)
    if not points:
        return None
    x = sorted(points)
    means = [math.fsum(points[step]) / len(points[step]) for step in x]
    spans = [
        Interval(m, min(points[s]), max(points[s]), (max(points[s]) - min(points[s])) / 2, len(points[s]))
        for m, s in zip(means, x, strict=True)
    ]
    return figures.Series(label, x, spans)


# ---------------------------------------------------------------- output


def gather(plan: Plan, out: Path) -> SweepResults:
    """Read the runs, make the table and test the expectations."""
    cells = collect(plan, out)
    known = {*plan.labels, START}
    # of a part of a sweep (`--only`) only what is said about that part
    findings = tuple(examine(expect, cells, plan) for expect in plan.file.expect if known.issuperset(expect.labels))
    return SweepResults(plan, cells, results_table(plan, cells), findings)


def write_results(plan: Plan, out: Path) -> tuple[SweepResults, list[Path]]:
    """Write `results.csv`, `.json`, `.md`, `.png`, `.svg`, `curves.png`, `.svg`, and for a grid of one axis `axis.png`, `.svg`, into the sweep's folder.

    Raises:
        RunError: No run has results yet, or the folder can't be written.
    """
    results = gather(plan, out)
    tables = [results.table, *([findings_table(results.findings)] if results.findings else [])]
    contents: dict[str, bytes | str] = {
        "results.csv": to_csv(results.table),
        "results.json": json.dumps(as_json(results), indent=1),
        "results.md": "\n".join(to_markdown(table) for table in tables),
    }
    draw: dict[str, Callable[[Plan, Sequence[CellResult]], Figure | None]] = {
        "results": score_figure,
        "axis": axis_figure,
        "curves": curve_figure,
    }
    for name, make in draw.items():
        figure = make(plan, results.cells)
        if figure is not None:
            contents |= {f"{name}.png": figures.to_png(figure), f"{name}.svg": figures.to_svg(figure)}
    return results, write_folder(out, contents)


def as_json(results: SweepResults) -> dict[str, Any]:
    """Every number of the results, by run and by label; NaN bounds (one random seed) become null."""
    metrics = (*SUITES, COMPOSITE, *(key for key, _ in FURTHER), *(key for key, _, _ in PANELS))
    return {
        "format": 1,
        "sweep": results.plan.file.name,
        "simulated": results.simulated,
        "cells": [
            {
                **asdict(result.outcome),
                "label": result.cell.label,
                "random_seed": result.cell.random_seed,
                "of": 0 if result.cell.is_start else result.cell.config.train.steps,
                "digest": result.cell.config.digest,
                "values": {metric: number for metric in metrics if (number := value(result, metric)) is not None},
            }
            for result in results.cells
        ],
        "labels": {
            label: {metric: _numbers(found) for metric in metrics if (found := over_seeds(results.cells, label, metric)) is not None}
            for label in results.plan.labels
        },
        "expectations": [{**asdict(f), "effect": _numbers(f.effect) if f.effect else None} for f in results.findings],
    }


def _numbers(interval: Interval) -> dict[str, float | int | None]:
    return {key: number if math.isfinite(number) else None for key, number in asdict(interval).items()}


def print_results(results: SweepResults) -> None:
    """The tables on the terminal, at full width where the output is none; then one line an expectation."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    console.print(to_rich(results.table))
    effect = Column("effect", "", digits=2, signed=True)
    for finding in results.findings:
        source = f" ({finding.says})" if finding.says else ""
        line = f"{finding.verdict.upper()}: {finding.statement}{source}: {cell_text(finding.effect, effect)} [{finding.detail}]"
        console.print(line, markup=False, highlight=False)
