"""Items that compare training runs: curves, reward designs, calibration dose, renewal, and kinds of targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..analysis import figures
from ..analysis.published import dose_response, refresh_sweep
from ..analysis.stats import Interval
from ..analysis.sweep_report import PANELS, curve_figure
from ..analysis.sweep_results import COMPOSITE, dotted
from ..analysis.tables import Column, Row, Table
from .data import StudyData, score
from .drawn import MOST_BARS, TITLES, Drawn, printed_interval, score_bars, scores_table, within
from .plan import DOSE, REFRESH, REWARDS, TARGETS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EPOCH = 163
"""Gradient steps of a published epoch."""


def curves(data: StudyData, out: Drawn) -> None:
    """Curves over the steps, by run."""
    out.text.append(
        "Bands reach from the lowest to the highest random seed; a single run has none. From 12 points on lines are rolling means."
    )
    out.draw("Training curves by run", lambda: curve_figure(data.study.plan, data.cells))
    keys = [key for key, _, _ in PANELS]
    rows = [
        Row((r.cell.label, r.cell.random_seed, int(row["step"]), *(dotted(row, key) for key in keys))) for r in data.cells for row in r.rows
    ]
    names = (Column("label", "Run", text=True), Column("random_seed", "Random seed"), Column("step", "Step"))
    out.data.append(Table("Training curves", (*names, *(Column(key, title, digits=3) for key, title, _ in PANELS)), tuple(rows)))


def reward_designs(data: StudyData, out: Drawn) -> None:
    """Four-part bars by reward design."""
    title = "Reward designs in four parts"
    labels = [label for label in REWARDS if data.cards(label)]
    out.tables.append(scores_table(data, labels, title))
    starts = list(dict.fromkeys(map(data.start_of, labels)))[:1]
    compared = [label for label in labels if label != "reference 0/8"] if len(labels) + len(starts) > MOST_BARS else labels
    out.draw("Scores by reward design, with the policy before training", lambda: score_bars(data, [*starts, *compared], title))


def dose(data: StudyData, out: Drawn) -> None:
    """Calibration and composite over the clean groups of 8."""
    out.tables.append(scores_table(data, DOSE, "Calibration dose: clean groups of 8"))
    out.text.append(
        "Dose: how many of every 8 groups of a step have a clean target and the inverted criterion. Published line: intragroup, two epochs."
    )

    def make() -> Figure | None:
        plots = [
            figures.Panel(TITLES[metric], "0\u2013100, band: 95% interval", lines)
            for metric in ("fp_calibration", COMPOSITE)
            if (lines := _dose_lines(data, metric))
        ]
        return figures.panels(plots, x="clean groups of 8") if plots else None

    out.draw("Calibration dose-response, published line dashed", make)


def _dose_lines(data: StudyData, metric: str) -> list[figures.Series]:
    lines: list[figures.Series] = []
    for kind in ("intragroup", "reference"):
        points = [(float(m), y) for m in (0, 1, 2, 4) if (y := within(score(data, f"{kind} {m}/8", metric))) is not None]
        if points:
            lines.append(figures.Series(kind, [x for x, _ in points], [y for _, y in points]))
    printed = dose_response()
    published = figures.Series(
        "intragroup, published", [float(row.calibration_eighths) for row in printed], [getattr(row, metric) for row in printed], dashed=True
    )
    return [*lines, published] if lines else []


def refresh(data: StudyData, out: Drawn) -> None:
    """Scores by how often the reference is renewed."""
    names: dict[str, str] = dict(zip(REFRESH, ("never", "100", "75", "50"), strict=True))
    labels = [label for label in REFRESH if data.cards(label)]
    steps = max((r.cell.config.train.steps for r in data.cells), default=0)
    out.text.append(
        f"Reference 0/8, renewed never, or as often as every 100, 75 or 50 steps of a published epoch of {EPOCH}, scaled to {steps} steps."
    )
    out.tables.append(scores_table(data, REFRESH, "Renewal of the reference"))
    printed = {row.refresh_steps: row for row in refresh_sweep()}

    def make() -> Figure | None:
        if not labels:
            return None
        series: dict[str, list[Interval | None]] = {}
        for metric in ("fp_calibration", COMPOSITE):
            series[TITLES[metric]] = [within(score(data, label, metric)) for label in labels]
            series[f"{TITLES[metric]}, published"] = [within(printed_interval(printed[names[label]], metric)) for label in labels]
        groups = [f"every {names[label]}" if names[label] != "never" else "never" for label in labels]
        return figures.bars(groups, series, title="Renewal of the reference", unit="0\u2013100, by renewal of 163 steps", top=112)

    out.draw("Renewal of the reference: ours and published", make)


def targets(data: StudyData, out: Drawn) -> None:
    """Single and multi target, for each pairwise reward."""
    there = set(data.study.plan.labels)
    labels = [label for group in TARGETS for label in _pair(group, there)]
    out.text.append(
        "Multi: three simulated targets in rotation, planted and clean drawn from the same three. Single: one target; where the profile has no "
        "run whose clean target is another model, the run with one target for both stands in (named by its reward)."
    )
    out.tables.append(scores_table(data, labels, "Single and multi target"))
    out.draw("Single and multi target, four parts", lambda: score_bars(data, labels, "Single and multi target"))


def _pair(group: tuple[str, str, str], there: set[str]) -> list[str]:
    """(single, multi) of a reward; empty without a multi-target run."""
    separate, shared, multi = group
    single = separate if separate in there else shared
    return [single, multi] if multi in there else []
