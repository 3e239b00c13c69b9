"""A study's output: PNG, SVG and CSV of every item under `figures/`, and one HTML page that opens from disk."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..analysis.figures import to_png, to_svg
from ..analysis.report import ReportData, Section, render_report
from ..analysis.tables import Table, to_csv
from ..files import write_folder
from ..runs import package_versions
from .data import StudyData
from .drawn import Drawn
from .items import draw
from .plan import ITEMS, Item
from .verdicts import Judged, judge_all, verdict_table

LARGEST_PAGE = 15 * 1024 * 1024
"""Bytes; a page beyond is written without its figures, which stand beside it."""
VERDICTS = ITEMS[0].name


@dataclass(frozen=True, slots=True)
class Written:
    """What was written, and what came of the published findings (empty where they were not asked for)."""

    page: Path
    files: tuple[Path, ...]
    verdicts: Table | None
    missing: tuple[str, ...]


def write_study(data: StudyData) -> Written:
    """Draw the chosen items from saved rows and write everything.

    Raises:
        RunError: The folder can't be written.
    """
    contents: dict[str, bytes | str] = {}
    sections: list[Section] = []
    judged = judge_all(data) if any(item.name == VERDICTS for item in data.study.items) else []
    table = verdict_table(judged) if judged else None
    missing: list[str] = []
    for item in data.study.items:
        drawn = Drawn(tables=[table]) if item.name == VERDICTS and table is not None else draw(item, data)
        contents |= _files(item, drawn)
        missing += [f"{item.title}: {line}" for line in drawn.missing]
        sections.append(Section(item.title, [*drawn.text, *drawn.missing], drawn.tables, drawn.figures))
    if judged:
        contents[f"{VERDICTS}.json"] = json.dumps([_plain(one) for one in judged], indent=1)
    study = data.study
    written = write_folder(study.out, {f"{study.figures.name}/{name}": content for name, content in contents.items()})
    write_folder(study.out, {study.page.name: _page(data, sections)})
    return Written(study.page, tuple(written), table, tuple(missing))


def _files(item: Item, drawn: Drawn) -> dict[str, bytes | str]:
    """`<item>.csv`, `.png`, `.svg`; further ones of an item are numbered from 2."""
    found: dict[str, bytes | str] = {}
    for place, table in enumerate([*drawn.tables, *drawn.data], start=1):
        found[f"{_numbered(item.name, place)}.csv"] = to_csv(table)
    for place, named in enumerate(drawn.figures, start=1):
        name = _numbered(item.name, place)
        found |= {f"{name}.png": to_png(named.figure), f"{name}.svg": to_svg(named.figure)}
    return found


def _numbered(name: str, place: int) -> str:
    return name if place == 1 else f"{name}-{place}"


def _page(data: StudyData, sections: Sequence[Section]) -> str:
    report = ReportData(
        title="The study",
        run_name=data.study.profile,
        simulated=data.simulated or not data.study.trains,
        versions=package_versions(),
        extra=sections,
        notes=_notes(data),
        config=_shape(data),
    )
    page = render_report(report)
    if len(page.encode()) <= LARGEST_PAGE:
        return page
    note = f"The figures would make this page larger than {LARGEST_PAGE >> 20} MB; they stand in figures/."
    bare = [Section(s.title, [note, *s.text], s.tables) for s in sections]
    return render_report(
        ReportData(title=report.title, run_name=report.run_name, simulated=report.simulated, extra=bare, notes=report.notes)
    )


def _notes(data: StudyData) -> list[str]:
    done = sum(r.outcome.state == "finished" and not r.cell.is_start for r in data.cells)
    runs = [r for r in data.cells if not r.cell.is_start]
    notes = [
        "Every figure and table is drawn from saved rows; each stands as PNG, SVG and CSV in figures/. Published numbers come from other models "
        "and targets: compare directions, not heights.",
    ]
    if runs:
        notes.append(
            f"{done} of {len(runs)} training runs are finished; the policy before training is evaluated once for each random seed."
        )
    return [*notes, *(f"Not done: {problem}" for problem in data.problems)]


def _shape(data: StudyData) -> dict[str, Any]:
    file = data.study.plan.file
    return {
        "profile": file.name,
        "random seeds": sorted({cell.random_seed for cell in data.study.plan.cells}),
        "steps": sorted({cell.config.train.steps for cell in data.study.plan.cells}),
        "runs": [cell.name for cell in data.study.plan.cells],
    }


def _plain(judged: Judged) -> dict[str, Any]:
    effect = judged.effect
    numbers = {key: value if math.isfinite(value) else None for key, value in asdict(effect.interval).items()} if effect else None
    return {
        "finding": judged.finding.name,
        "published": judged.finding.says,
        "margin": judged.finding.margin,
        "unit": judged.finding.unit,
        "effect": numbers,
        "over": effect.over if effect else None,
        "result": judged.result,
        "why": judged.why,
    }
