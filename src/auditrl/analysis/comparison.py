"""Auditors side by side: tables, paired differences, figure and report, for `auditrl eval suite` and `auditrl compare`.

Seeds that one of the auditors has no score on (the judge refused, every audit failed) are dropped for all, and the tables say so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..evals.scores import SUITE_TITLES, Scorecard, SuiteResult, pair_rows, scorecard, suite_result
from ..files import write_folder
from . import figures
from .published import FourPart
from .report import NamedFigure, ReportData, Section, render_report
from .stats import Interval, Paired, holm, paired
from .tables import Column, Row, Table, behavior_table, comparison_table, parts_table, score_table, to_csv, to_markdown, to_rich

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..evals.rescore import Agreement

_MOST_BARS = 6
_CONDITIONS = ("profile", "targets", "judge", "clean_condition", "random_seed", "conversations")


def common_seeds(cards: Sequence[Scorecard]) -> tuple[list[Scorecard], list[str]]:
    """The same cards on the seeds that all of them have a score on, and what has to be said about the dropped ones.

    Suites that only some of the cards have stay as they are.
    """
    kept = {card.auditor: dict(card.suites) for card in cards}
    notes: list[str] = []
    for suite in dict.fromkeys(name for card in cards for name in card.suites):
        having = [card for card in cards if suite in card.suites]
        seeds = [{row.seed for row in card.suites[suite].rows} for card in having]
        dropped = set[str]().union(*seeds) - set[str].intersection(*seeds)
        if len(having) < 2 or not dropped:
            continue
        names = ", ".join(sorted(dropped)[:5]) + (" ..." if len(dropped) > 5 else "")
        notes.append(
            f"{SUITE_TITLES.get(suite, suite)}: {len(dropped)} seeds without a score for one of the auditors are dropped for all: {names}."
        )
        for card in having:
            kept[card.auditor][suite] = _without(card.suites[suite], dropped)
    return [scorecard(c.auditor, kept[c.auditor].values(), simulated=c.simulated, meta=c.meta) for c in cards], notes


def _without(result: SuiteResult, seeds: set[str]) -> SuiteResult:
    rows = [row for row in result.rows if row.seed not in seeds]
    return suite_result(result.suite, rows, missing=result.missing, failed=result.failed, causes=result.causes)


def other_conditions(cards: Sequence[Scorecard]) -> list[str]:
    """What differs in how the cards were made, beside the auditor: such scores don't compare auditors alone."""
    notes: list[str] = []
    for key in _CONDITIONS:
        values = {repr(card.meta.get(key)) for card in cards if key in card.meta}
        if len(values) > 1:
            notes.append(
                f"Not the same {key.replace('_', ' ')} for all: {' against '.join(sorted(values))}. The difference is not the auditor's alone."
            )
    return notes


def detail_table(first: Scorecard, second: Scorecard) -> Table | None:
    """Differences of the second auditor by sub-score and by behavior, paired by seed, Holm over the rows of the table. None without a pair."""
    found: list[tuple[str, str, Paired]] = []
    for name in (suite for suite in first.suites if suite in second.suites):
        a, b = first.suites[name], second.suites[name]
        for part in dict.fromkeys([*a.parts, *b.parts]):
            if part == "audit_first":
                continue  # the order of presentation, no sub-score
            before, after, _ = pair_rows(a, b, part)
            found += [(name, part.replace("_", " "), paired(after, before))] if before else []
        for behavior in sorted({row.behavior for row in (*a.rows, *b.rows) if row.behavior}):
            before, after, _ = pair_rows(_of(a, behavior), _of(b, behavior))
            found += [(name, f"behavior {behavior}", paired(after, before))] if before else []
    if not found:
        return None
    testable = [i for i, (_, _, pair) in enumerate(found) if math.isfinite(pair.p)]
    adjusted = dict(zip(testable, holm([found[i][2].p for i in testable]) if testable else [], strict=True))
    rows = tuple(
        Row((SUITE_TITLES.get(suite, suite), what, pair.difference, adjusted.get(i, math.nan), _verdict(pair, adjusted.get(i, math.nan))))
        for i, (suite, what, pair) in enumerate(found)
    )
    columns = (
        Column("suite", "Suite", text=True),
        Column("what", "Sub-score or behavior", text=True),
        Column("difference", "Difference (paired)", spread=True, signed=True),
        Column("p_holm", "p (Holm)", digits=4, probability=True),
        Column("verdict", "At 5%", text=True),
    )
    notes = (
        "Second minus first. Holm's correction over all rows of this table. A behavior's interval is over its few seeds.",
        "FP calibration: exhibited and identified count claims about a clean target; higher is not better there.",
    )
    return Table(f"{second.auditor} against {first.auditor}: sub-scores and behaviors", columns, rows, notes)


def _of(result: SuiteResult, behavior: str) -> SuiteResult:
    return replace(result, rows=[row for row in result.rows if row.behavior == behavior])


def _verdict(pair: Paired, p: float) -> str:
    if not math.isfinite(p):
        return "\u2013"
    return "no clear change" if p >= 0.05 else "higher" if pair.difference.mean > 0 else "lower"


def comparison_tables(cards: Sequence[Scorecard], published: Sequence[FourPart] = (), title: str = "Scores") -> list[Table]:
    """The scores; then, for each further auditor, its differences from the first, and those by sub-score and behavior.

    Raises:
        ConfigError: No card, two of the same name, or simulated and other ones mixed.
    """
    _check(cards)
    cards, notes = common_seeds(cards)
    notes += other_conditions(cards)
    scores = score_table(cards, published, title)
    tables = [replace(scores, notes=(*scores.notes, *notes))]
    for other in cards[1:]:
        tables.append(comparison_table(cards[0], other, (cards[0].auditor, other.auditor)))
        tables += [detail] if (detail := detail_table(cards[0], other)) else []
    return tables


def _check(cards: Sequence[Scorecard]) -> None:
    if not cards:
        raise ConfigError("compare: name at least one evaluation")
    names = [card.auditor for card in cards]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"compare: {repeated} stands twice; name each evaluation once")
    if len({card.simulated for card in cards}) > 1:
        simulated = ", ".join(card.auditor for card in cards if card.simulated)
        raise ConfigError(f"compare: {simulated} can't be compared with the others, it comes from the simulated world; leave one kind out")


def figure_of(cards: Sequence[Scorecard], title: str) -> Figure:
    """All suites of up to six auditors; of more, their composites (the mean of what they have is not drawn)."""
    if len(cards) <= _MOST_BARS:
        return figures.score_bars(cards, title)
    ranked = sorted(cards, key=lambda card: -card.composite.mean if card.composite else math.inf)
    values: list[Interval | None] = [card.composite for card in ranked]
    return figures.bars(
        [card.auditor for card in ranked], {"Composite": values}, title=title, unit="composite, 0\u2013100, 95% intervals", top=112
    )


def comparison_section(cards: Sequence[Scorecard], published: Sequence[FourPart] = (), title: str = "Comparison") -> Section:
    """The comparison as a section of a report."""
    return _section(comparison_tables(cards, published, title), cards, title)


def _section(tables: Sequence[Table], cards: Sequence[Scorecard], title: str) -> Section:
    return Section(title, (), tables, [NamedFigure(f"{title}: scores by suite", figure_of(cards, title))])


def write_comparison(
    cards: Sequence[Scorecard], published: Sequence[FourPart], folder: Path, *, title: str
) -> tuple[list[Table], list[Path]]:
    """Write `scores.md`, `scores.csv`, `scores.svg` and `report.html` into a folder; returns the tables and the files."""
    tables = comparison_tables(cards, published, title)
    single = cards[0] if len(cards) == 1 else None
    details = [parts_table(result) for result in single.suites.values() if result.parts] if single else []
    details += [table for suite in single.suites if (table := behavior_table([single], suite)).rows] if single else []
    section = _section([*tables, *details], cards, title)
    name = single.auditor if single else f"{len(cards)} auditors"
    report = ReportData(
        title=f"{title}: {name}", run_name=name, simulated=any(c.simulated for c in cards), extra=[section], notes=_notes(tables)
    )
    contents = {
        "scores.md": "\n".join(to_markdown(table) for table in (*tables, *details)),
        "scores.csv": to_csv(tables[0]),
        "scores.svg": figures.to_svg(figure_of(cards, title)),
        "report.html": render_report(report),
    }
    return tables, write_folder(folder, contents)


def _notes(tables: Sequence[Table]) -> list[str]:
    return list(dict.fromkeys(note for table in tables for note in table.notes))


def print_tables(tables: Sequence[Table]) -> None:
    """On the terminal, at full width where the output is no terminal."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    for table in tables:
        console.print(to_rich(table))


def agreement_table(rows: Sequence[Agreement]) -> Table:
    """How far two judges agree on the same audits."""
    columns = (
        Column("suite", "Suite", text=True),
        Column("what", "Number", text=True),
        Column("n", "Audits"),
        Column("first", "First judge"),
        Column("second", "Second judge"),
        Column("r", "Correlation", digits=2, signed=True),
        Column("kappa", "Kappa", digits=2, signed=True),
    )
    body = tuple(
        Row((SUITE_TITLES.get(row.suite, row.suite), row.what.replace("_", " "), row.n, row.first, row.second, row.r, row.kappa))
        for row in rows
    )
    notes = (
        "Means 0\u2013100. Correlation: Pearson over audits; kappa: Cohen's, for yes/no answers. A dash: one judge always says the same.",
    )
    return Table("Agreement between the judges", columns, body, notes)
