"""What `auditrl cluster` leaves in its folder, and how it shows it.

codebook.json     the frozen codebook
categories.toml   the categories with every top cluster placed; edit it and give it back with --categories
audits.csv        every audit with its clusters, category and description
clusters.csv      every cluster of every level
composition.csv   share of each category by run and step, with intervals; mix.csv: entropy and what the codebook has not seen
composition.svg   stacked areas (and .png)
summary.json      quality, notes, digest of the codebook
report.html       all of it on one page
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...files import write_folder
from ..figures import to_png, to_svg
from ..report import NamedFigure, ReportData, Section, render_report
from ..stats import wilson
from ..tables import SIMULATED, Column, Row, Table, to_markdown
from .categories import Categories, written
from .codebook import Codebook
from .composition import CompositionRow, MixRow, Placed, mix, shares
from .figures import composition_figure
from .quality import Quality

AUDITS = "audits.csv"
_MANY_CLUSTERS = 40
_QUARTER = 4
"""The first and the last quarter of a run's steps stand beside each other."""


@dataclass(frozen=True, slots=True)
class Results:
    """Everything that is written and printed."""

    codebook: Codebook
    categories: Categories
    placed: list[Placed]
    notes: list[str]
    quality: Quality | None = None
    """None for a codebook that was made before."""

    def tables(self) -> list[Table]:
        """Clusters, composition and quality, for the terminal and the page."""
        notes = [*self.notes, *([SIMULATED] if self.codebook.simulated else [])]
        found = [cluster_table(self.codebook, self.placed), composition_table(self.placed, self.codebook, notes)]
        return [*found, quality_table(self.quality)] if self.quality is not None else found


def cluster_table(codebook: Codebook, placed: Sequence[Placed]) -> Table:
    """Top clusters with their category and share of the audits at hand; of very many the largest."""
    counts = [0] * len(codebook.top)
    for item in placed:
        counts[item.clusters[-1]] += 1
    order = sorted(range(len(counts)), key=lambda c: (-counts[c], c))[:_MANY_CLUSTERS]
    rows = tuple(Row((c, codebook.top[c].name, codebook.top[c].category, counts[c], 100 * counts[c] / max(1, len(placed)))) for c in order)
    columns = (
        Column("cluster", "Cluster"),
        Column("name", "Strategy", text=True),
        Column("category", "Category", text=True),
        Column("audits", "Audits"),
        Column("percent", "%"),
    )
    sizes = " < ".join(str(len(level)) for level in reversed(codebook.levels))
    notes = (
        f"{len(placed):,} audits; clusters by level, top first: {sizes}. Codebook {codebook.digest}, found in {codebook.fitted_on:,} audits, "
        f"described by {codebook.describer}, embedded by {codebook.embedding}, named by {codebook.namer}.",
    )
    return Table("Strategies", columns, rows, notes)


def composition_table(placed: Sequence[Placed], codebook: Codebook, notes: Sequence[str]) -> Table:
    """Share of each category by run, of all audits and of the first and last quarter of the steps (Wilson intervals over audits)."""
    rows: list[Row] = []
    stepped = any(item.item.step is not None for item in placed)
    for run in dict.fromkeys(item.item.run for item in placed):
        mine = [item for item in placed if item.item.run == run]
        steps = sorted({item.item.step for item in mine if item.item.step is not None})
        size = max(1, len(steps) // _QUARTER)
        ends = [steps[:size], steps[-size:]] if len(steps) > 1 else [[], []]
        windows = [mine, *([item for item in mine if item.item.step in end] for end in ends)] if stepped else [mine]
        for name in codebook.categories:
            if any(item.category == name for item in mine):
                rows.append(Row((run, name, *(_share(window, name) for window in windows))))
    columns = [Column("run", "Run", text=True), Column("category", "Category", text=True), Column("all", "All, %", spread=True)]
    if stepped:
        columns += [Column("first", "First quarter of steps, %", spread=True), Column("last", "Last quarter, %", spread=True)]
    strange = sum(item.strange for item in placed)
    seen = f"{strange:,} audits ({100 * strange / max(1, len(placed)):.1f}%) lie further from every cluster than 99% of the codebook's own."
    return Table("Composition", tuple(columns), tuple(rows), ("Intervals: Wilson, 95%, over audits.", seen, *notes))


def _share(window: Sequence[Placed], name: str) -> Any:
    if not window:
        return None
    found = wilson(sum(item.category == name for item in window), len(window))
    return type(found)(100 * found.mean, 100 * found.low, 100 * found.high, 100 * found.half, found.n)


def quality_table(quality: Quality) -> Table:
    """Silhouette, stability, and agreement with the archetypes where they are known."""
    rows = [
        Row(("silhouette (bottom level)", None, quality.silhouette, None)),
        Row(("stability over random seeds (mean ARI, bottom level)", None, quality.stability, None)),
    ]
    rows += [Row((a.grouping, a.groups, a.ari, a.nmi)) for a in quality.agreements]
    columns = (
        Column("what", "Quality", text=True),
        Column("groups", "Groups"),
        Column("value", "Value or ARI", digits=3),
        Column("nmi", "NMI", digits=3),
    )
    notes = (
        "ARI: adjusted Rand index, 0 = chance, 1 = the same grouping. A finer grouping than the archetypes' has a lower one by itself.",
    )
    return Table("Quality", columns, tuple(rows), notes if quality.agreements else ())


# ---------------------------------------------------------------- files


def write_results(results: Results, folder: Path) -> list[Path]:
    """Write everything. RunError if the folder can't be written."""
    book, placed = results.codebook, results.placed
    rows, mixes = shares(placed, book), mix(placed, book, random_seed=book.random_seed)
    figure = composition_figure(rows)
    title = ", ".join(dict.fromkeys(item.item.run for item in placed))
    section = Section("Strategies", (), results.tables(), [NamedFigure("Strategies over training: share of audits", figure)])
    page = ReportData(title=f"Strategies: {title}", run_name=title, simulated=book.simulated, extra=[section], notes=results.notes)
    top = {i: (cluster.category, cluster.name) for i, cluster in enumerate(book.top)}
    contents: Mapping[str, str | bytes] = {
        "codebook.json": book.model_dump_json(indent=1),
        "categories.toml": written(results.categories, top),
        AUDITS: audits_csv(placed, book),
        "clusters.csv": clusters_csv(book),
        "composition.csv": composition_csv(rows),
        "mix.csv": mix_csv(mixes),
        "composition.svg": to_svg(figure),
        "composition.png": to_png(figure),
        "tables.md": "\n".join(to_markdown(table) for table in results.tables()),
        "summary.json": json.dumps(summary(results, mixes), indent=1),
        "report.html": render_report(page),
    }
    return write_folder(folder, contents)


def summary(results: Results, mixes: Sequence[MixRow]) -> dict[str, Any]:
    """The facts that other programs read."""
    book = results.codebook
    return {
        "audits": len(results.placed),
        "runs": list(dict.fromkeys(item.item.run for item in results.placed)),
        "simulated": book.simulated,
        "codebook": book.digest,
        "clusters": [len(level) for level in book.levels],
        "quality": results.quality.as_json() if results.quality is not None else None,
        "entropy": [{"run": row.run, "step": row.step, "entropy": row.entropy.mean} for row in mixes],
        "notes": results.notes,
    }


def audits_csv(placed: Sequence[Placed], book: Codebook) -> str:
    """One line an audit. Cluster columns hold numbers, bottom level first; `strategy` is the top cluster's name."""
    levels = [f"level_{i + 1}" for i in range(len(book.levels))]
    head = ["run", "step", "audit", "auditor", "condition", "behavior", "category", "strategy", *levels, "strange", "description"]
    lines: list[list[Any]] = []
    for placing in placed:
        item = placing.item
        facts = [item.run, _blank(item.step), item.audit, item.auditor, item.condition, item.behavior or ""]
        named = [placing.category, book.top[placing.clusters[-1]].name]
        lines.append([*facts, *named, *placing.clusters, int(placing.strange), item.text])
    return _csv(head, lines)


def clusters_csv(book: Codebook) -> str:
    """One line a cluster of any level."""
    head = ["level", "cluster", "parent", "size", "category", "name", "summary"]
    return _csv(
        head,
        [
            [number + 1, i, _blank(c.parent), c.size, c.category, c.name, c.summary]
            for number, level in enumerate(book.levels)
            for i, c in enumerate(level)
        ],
    )


def composition_csv(rows: Sequence[CompositionRow]) -> str:
    """Shares in 0-1 with Wilson intervals."""
    head = ["run", "step", "category", "audits", "count", "share", "share_low", "share_high"]
    return _csv(head, [[r.run, _blank(r.step), r.part, r.share.n, r.count, r.share.mean, r.share.low, r.share.high] for r in rows])


def mix_csv(rows: Sequence[MixRow]) -> str:
    """Entropy in 0-1 with bootstrap intervals; no interval for a single audit."""
    head = ["run", "step", "audits", "entropy", "entropy_low", "entropy_high", "strange"]

    def known(value: float) -> float | str:
        return value if value == value else ""

    return _csv(
        head, [[r.run, _blank(r.step), r.audits, r.entropy.mean, known(r.entropy.low), known(r.entropy.high), r.strange] for r in rows]
    )


def _blank(value: int | None) -> int | str:
    return "" if value is None else value


def _csv(head: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(lines)
    return out.getvalue()
