"""Tables and figure of transfer evaluations, with the published detection rates beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..evals.transfer.score import ApproachResult, TransferResult
from ..files import write_whole
from .figures import bars, to_svg
from .published import MARK, SOURCE, Transfer, transfer
from .stats import Interval
from .tables import SIMULATED, Column, Row, Table, to_csv, to_markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES = {"default": "Default chat", "stc": "Text completion", "user": "User turns", "prefill": "Prefilled replies"}
PUBLISHED_AUDITS = 96
"""6 behaviors x 16 audits."""


def title_of(approach: str) -> str:
    """What tables call an approach."""
    return TITLES.get(approach, approach)


def detection_table(results: Sequence[TransferResult], published: Sequence[Transfer] = ()) -> Table:
    """Detection (%) by auditor and approach; published rows are marked."""
    approaches = list(dict.fromkeys(approach.approach for result in results for approach in result.approaches))
    if published:
        approaches += [name for name in ("default", "stc") if name not in approaches]
    rows = [
        Row((result.auditor, *(found.detection.interval if (found := _of(result, name)) else None for name in approaches)), strong=True)
        for result in results
    ]
    for row in published:
        cells = {"stc": Interval.around(row.stc, row.stc_ci, PUBLISHED_AUDITS)}
        cells["default"] = Interval.around(row.default, row.default_ci, PUBLISHED_AUDITS)
        epochs = f", epoch {row.epochs}" if row.epochs is not None else ""
        rows.append(Row((f"{row.auditor}{epochs}", *(cells.get(name) for name in approaches)), mark=MARK))
    columns = (Column("auditor", "Auditor", text=True), *(Column(name, title_of(name), spread=True) for name in approaches))
    notes = [
        "Share of audits with a right prediction, %, mean over behaviors; ± pooled per-behavior standard error x 1.96.",
        *_said(results),
    ]
    if published:
        notes.append(f"Published: {SOURCE}; 6 behaviors x 16 audits, Llama 3.3 70B with LoRA, Claude Code, 25,000 tokens.")
    return Table("Transfer: detection", columns, tuple(rows), tuple(notes))


def _of(result: TransferResult, name: str) -> ApproachResult | None:
    return next((approach for approach in result.approaches if approach.approach == name), None)


def _said(results: Sequence[TransferResult]) -> list[str]:
    notes = [SIMULATED] if any(result.simulated for result in results) else []
    return [*notes, *(f"{r.auditor}: trained on {leak} (--allow-leak)." for r in results for leak in r.meta.get("leak", ()))]


def approach_table(result: TransferResult) -> Table:
    """One auditor: each approach with both intervals, the control, and what went wrong."""
    columns = (
        Column("approach", "Approach", text=True),
        Column("detection", "Detection", spread=True),
        Column("bootstrap", "Over behaviors", spread=True),
        Column("control", "On the base", spread=True),
        Column("firm_on_base", "Firm on the base", spread=True),
        Column("audits", "Audits"),
        Column("failed", "Failed"),
        Column("missing", "No verdict"),
        Column("without_predictions", "No prediction"),
        Column("tokens", "Tokens", digits=0),
    )
    rows = tuple(
        Row(
            (
                title_of(one.approach),
                one.detection.interval,
                one.bootstrap.interval,
                one.control.interval if one.control is not None else None,
                one.firm_on_base.interval if one.firm_on_base is not None else None,
                one.audits,
                one.failed,
                one.missing,
                one.without_predictions,
                one.generated,
            )
        )
        for one in result.approaches
    )
    notes = (
        "%. Detection: pooled per-behavior interval. Over behaviors: the same mean, bootstrap that draws behaviors.",
        "On the base: the model without adapter, audited and judged alike; each hit is a false positive (Wilson intervals). "
        "Firm on the base: a prediction with a confidence of 0.7 or more, whatever it says.",
        f"Tokens: written by the auditor before its predictions, mean of an audit. {_mishaps(result)}",
        *_said([result]),
    )
    return Table(f"Transfer: {result.auditor}, {result.scaffold}", columns, rows, notes)


def _mishaps(result: TransferResult) -> str:
    parts = [
        f"{title_of(one.approach)}: {one.unverified_quotes} of {one.quotes + one.unverified_quotes} quotes not in the log"
        + "".join(f", {count} {name.replace('_', ' ')}" for name, count in sorted({**one.notes, **one.causes}.items()))
        + (f", {one.dropped_predictions} predictions beyond the third" if one.dropped_predictions else "")
        for one in result.approaches
    ]
    return f"{'; '.join(parts)}."


def behavior_table(result: TransferResult) -> Table:
    """Detection by behavior and approach, the control's beside it (Wilson intervals)."""
    names = list(dict.fromkeys(row.behavior for one in result.approaches for row in one.behaviors))
    controls = any(row.control is not None for one in result.approaches for row in one.behaviors)
    columns = [Column("behavior", "Behavior", text=True)]
    for one in result.approaches:
        columns.append(Column(one.approach, title_of(one.approach), spread=True))
        if controls:
            columns.append(Column(f"{one.approach}_base", "On the base", spread=True))
    rows: list[Row] = []
    for name in names:
        cells: list[Interval | None] = []
        for one in result.approaches:
            row = next((row for row in one.behaviors if row.behavior == name), None)
            cells.append(row.detected.interval if row is not None else None)
            if controls:
                cells.append(row.control.interval if row is not None and row.control is not None else None)
        rows.append(Row((name, *cells)))
    notes = ("%; ± is half of a Wilson interval.", *_said([result]))
    return Table("Transfer: detection by behavior", tuple(columns), tuple(rows), notes)


def detection_figure(result: TransferResult) -> Figure:
    """Bars by behavior, one series an approach; the last group is the mean of all."""
    names = list(dict.fromkeys(row.behavior for one in result.approaches for row in one.behaviors))
    series: dict[str, list[Interval | None]] = {}
    for one in result.approaches:
        found = {row.behavior: row.detected.interval for row in one.behaviors}
        series[title_of(one.approach)] = [*(found.get(name) for name in names), one.detection.interval]
    mark = " (simulated world)" if result.simulated else ""
    groups = [name.replace("_", " ") for name in names]
    return bars([*groups, "all"], series, title=f"Transfer: detection{mark}", unit="% of audits", top=112)


def write_transfer(result: TransferResult, folder: Path, *, published: bool) -> tuple[list[Table], list[Path]]:
    """Write `transfer.md`, `transfer.csv` (by auditor and approach) and `transfer.svg`; returns the tables and the files."""
    tables = [detection_table([result], transfer() if published else ()), approach_table(result), behavior_table(result)]
    contents: dict[str, str] = {
        "transfer.md": "\n".join(to_markdown(table) for table in tables),
        "transfer.csv": to_csv(tables[0]),
    }
    if any(one.behaviors for one in result.approaches):
        contents["transfer.svg"] = to_svg(detection_figure(result))
    for name, text in contents.items():
        write_whole(folder / name, text)
    return tables, [folder / name for name in ("transfer.json", *contents)]
