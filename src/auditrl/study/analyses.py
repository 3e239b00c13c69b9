"""Items that look behind the scores: strategies, transfer, concerningness, correlations, cruxes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..analysis import figures
from ..analysis.clustering.composition import CompositionRow
from ..analysis.clustering.figures import composition_figure
from ..analysis.published import SOURCE, correlations, crux_prediction
from ..analysis.published import transfer as published_transfer
from ..analysis.stats import Correlation, Interval, pearson_matrix, wilson
from ..analysis.sweep_results import COMPOSITE, over_seeds
from ..analysis.tables import Cell, Column, Row, Table
from ..analysis.transfer import detection_table, title_of
from ..train.sweep_file import START
from .data import StudyData, checkpoints, columns, score
from .drawn import MOST_BARS, TITLES, Drawn, percent, point, within
from .plan import CONCERNINGNESS
from .regress import fits

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHORT: Mapping[str, str] = {
    "audit_quality": "quality",
    "fp_calibration": "FP",
    "production": "prod.",
    "realism": "realism",
    COMPOSITE: "all",
}
"""Names of scores where two of them stand under one bar."""
PARTS = (
    "concerning",
    "concerning@4",
    "concerning@7",
    "concerning_with_no_mitigating_factors",
    "concerning_with_no_mitigating_factors@4",
    "concerning_with_no_mitigating_factors@7",
    "needs_attention",
    "needs_attention@4",
    "needs_attention@7",
)
"""The nine of production discovery."""
TERMS = ("concern", "realism", "failure", "loops", "awareness")


def strategies(data: StudyData, out: Drawn) -> None:
    """Composition of strategies over training."""
    rows = data.composition
    if not rows:
        out.missing.append("No composition: strategies were not clustered (no finished run, or the command failed).")
        return
    out.text.append("Every training audit, described by rule and classified against one codebook that was made of all runs together.")
    out.draw("Categories of strategies over the steps, by run", lambda: composition_figure(rows))
    runs = list(dict.fromkeys(row.run for row in rows))
    table_rows: list[Row] = []
    for run in runs:
        mine = [row for row in rows if row.run == run and row.step is not None]
        steps = sorted({row.step for row in mine if row.step is not None})
        size = max(1, len(steps) // 4)
        ends = (steps[:size], steps[-size:])
        for part in dict.fromkeys(row.part for row in mine):
            table_rows.append(Row((run, part, *(_share(mine, part, end) for end in ends))))
    columns_ = (
        Column("run", "Run", text=True),
        Column("category", "Category", text=True),
        Column("first", "First quarter of steps, %", spread=True),
        Column("last", "Last quarter, %", spread=True),
    )
    notes = ("Wilson intervals over audits; audits of one scenario are not independent, so they are somewhat too narrow.",)
    out.tables.append(Table("Strategies at both ends of training", columns_, tuple(table_rows), notes))
    full = tuple(Row((row.run, row.step, row.part, row.count, row.share)) for row in rows)
    names = (Column("run", "Run", text=True), Column("step", "Step"), Column("category", "Category", text=True), Column("count", "Audits"))
    out.data.append(Table("Composition", (*names, Column("share", "Share", spread=True)), full))


def _share(rows: Sequence[CompositionRow], part: str, steps: Sequence[int]) -> Interval:
    chosen = [row for row in rows if row.part == part and row.step in steps]
    found = wilson(sum(row.count for row in chosen), sum(row.share.n for row in chosen))
    return Interval(100 * found.mean, 100 * found.low, 100 * found.high, 100 * found.half, found.n)


def transfer_bars(data: StudyData, out: Drawn) -> None:
    """Detection by approach in another scaffold."""
    if not data.transfer:
        out.missing.append("No transfer evaluation is there: the command failed or was not run.")
        return
    out.text.append(
        "Our bars are scripted auditors: the tiny policy of the simulated world calls none of this scaffold's tools, so trained policies can't "
        "be transferred here."
    )
    out.tables.append(detection_table(data.transfer, published_transfer()))

    def make() -> Figure:
        names = ("default", "stc")
        series: dict[str, list[Interval | None]] = {}
        for name in names:
            found = [next((a.detection.interval for a in one.approaches if a.approach == name), None) for one in data.transfer]
            series[title_of(name)] = [within(interval) for interval in found]
        labels = [one.auditor.removeprefix("sim/auditor-").replace("_", " ") for one in data.transfer]
        return figures.bars(labels, series, title="Detection on fine-tuned targets", unit="% of audits, simulated world", top=112)

    out.draw("Transfer: detection by approach, scripted auditors", make)


def concerningness(data: StudyData, out: Drawn) -> None:
    """Production discovery by part, and the concerningness reward by term."""
    labels = [label for label in (START, *CONCERNINGNESS, "binary", "reference 4/8") if data.cards(label)]
    rows = [Row((label, *(score(data, label, f"production.{part}") for part in PARTS))) for label in labels]
    columns_ = (Column("label", "Auditor", text=True), *(Column(p, p.replace("_", " "), spread=True) for p in PARTS))
    notes = (
        "Production discovery in its nine parts, 0\u2013100, on the unmodified model that training never meets; @4, @7: % of grades so high.",
    )
    if rows:
        out.tables.append(Table("Production discovery by part", columns_, tuple(rows), notes))
    out.draw("What makes audits concerning, by auditor", lambda: _parts_figure(data, labels))
    terms = [label for label in CONCERNINGNESS if _term(data, label, "concern") is not None]
    if terms:
        names = (Column("label", "Variant", text=True), *(Column(t, t, digits=3, signed=True) for t in TERMS))
        body = tuple(Row((label, *(_term(data, label, term) for term in TERMS))) for label in terms)
        text = "Terms of the reward, mean of the last fifth of the steps (variants other than the composite: as if graded by it)."
        out.tables.append(Table("Reward by term", names, body, (text,)))
    out.text.append("This world has one kind of unmodified target, so the split is by auditor and by variant of the reward.")


def _term(data: StudyData, label: str, term: str) -> float | None:

    found = over_seeds(data.cells, label, f"parts.petri.term_{term}")
    return None if found is None else found.mean


def _parts_figure(data: StudyData, labels: Sequence[str]) -> Figure | None:
    shown = labels[:MOST_BARS]
    parts = [part for part in PARTS if "@" not in part or part.endswith("@7")]
    series = {label: [within(score(data, label, f"production.{part}")) for part in parts] for label in shown}
    groups = [part.replace("concerning_with_no_mitigating_factors", "no mitigating").replace("_", " ") for part in parts]
    return figures.bars(groups, series, title="Production discovery by part", unit="0\u2013100", top=112) if series else None


def score_correlations(data: StudyData, out: Drawn) -> None:
    """The correlation matrix of the scores."""
    count = len(checkpoints(data))
    if count < 4:
        out.missing.append(f"No correlations: {count} evaluated policies, at least 4 are needed for an interval.")
        return
    matrix = pearson_matrix(columns(data))
    names = list(TITLES)
    printed = {row.dimension: row for row in correlations()}
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    rows = [Row((TITLES[a], TITLES[b], _r(matrix[a, b]), float(getattr(printed[a], b)))) for a, b in pairs]
    columns_ = (
        Column("first", "Score", text=True),
        Column("second", "And", text=True),
        Column("r", "r", digits=2, spread=True, signed=True),
        Column("published", "r, published", digits=2, signed=True),
    )
    notes = (
        f"Pearson over {count} evaluated policies, starts included; Fisher's interval. They share targets and seeds, so they are not independent.",
        f"Published: {SOURCE}, over its auditors.",
    )
    out.tables.append(Table("Correlations between the scores", columns_, tuple(rows), notes))

    def make() -> Figure:
        ours = [percent(_r(matrix[pair])) for pair in pairs]
        theirs = [percent(point(float(getattr(printed[a], b)))) for a, b in pairs]
        groups = [f"{SHORT[a]}, {SHORT[b]}" for a, b in pairs]
        return figures.bars(
            groups, {"Ours": ours, "Published": theirs}, title="Correlations between the scores", unit="Pearson's r, times 100"
        )

    out.draw("Correlations between the scores, ours and published", make)


def _r(found: Correlation) -> Interval | None:
    return Interval(found.r, found.low, found.high, (found.high - found.low) / 2, found.n) if math.isfinite(found.r) else None


def crux_regression(data: StudyData, out: Drawn) -> None:
    """R2 of suite scores predicted from crux features."""
    if not data.crux:
        out.missing.append("No policy has played the cruxes: the command failed or was not run.")
        return
    printed = {row.target: row for row in crux_prediction()}
    found = fits(data)
    rows: list[Row] = []
    for fit in found:
        row = printed[fit.target]
        cells: list[Cell] = [fit.target, fit.n]
        for regression in (fit.three, fit.eight):
            cells += [regression.r2, regression.r2_loo] if regression is not None else [None, None]
        rows.append(Row((*cells, row.r2_3_features, row.r2_8_features, row.n)))
        if fit.why:
            out.missing.append(f"{fit.target}: {fit.why}.")
    columns_ = (
        Column("target", "Predicted", text=True),
        Column("n", "Policies"),
        Column("r2_3", "R2, 3 features", digits=2),
        Column("r2_3_loo", "left out", digits=2),
        Column("r2_8", "R2, 8 features", digits=2),
        Column("r2_8_loo", "left out", digits=2),
        Column("published_3", "Published, 3", digits=2),
        Column("published_8", "Published, 8", digits=2),
        Column("published_n", "Published n"),
    )
    notes = (
        "Least squares over evaluated policies. \u201cLeft out\u201d: each policy predicted from the others; below 0 it is worse than their mean.",
        "Where all cruxes are of held-out behaviors, the held-out rate is the plain one and is left out of the eight.",
    )
    out.tables.append(Table("Crux features predict the suite", columns_, tuple(rows), notes))

    def make() -> Figure | None:
        kept = [fit for fit in found if fit.three is not None]
        if not kept:
            return None
        number = [(fit, fit.three) for fit in kept if fit.three is not None]
        series: dict[str, list[Interval | None]] = {
            "Ours, in sample": [percent(point(r.r2)) for _, r in number],
            "Ours, left out": [percent(point(max(0.0, r.r2_loo))) for _, r in number],
            "Published, in sample": [percent(point(printed[fit.target].r2_3_features)) for fit, _ in number],
        }
        return figures.bars(
            [f.target for f, _ in number], series, title="Crux features predict the suite", unit="R2 in %, 3 features; below 0 as 0"
        )

    out.draw("Crux regression, three features", make)
