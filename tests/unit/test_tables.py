"""The same rows as text, Markdown, CSV and in the terminal."""

from __future__ import annotations

import csv
import io
import math

import pytest
from rich.console import Console

from auditrl.analysis import published
from auditrl.analysis.stats import Interval
from auditrl.analysis.tables import (
    Cell,
    Column,
    Row,
    Table,
    behavior_table,
    cell_text,
    comparison_table,
    number,
    parts_table,
    score_table,
    to_csv,
    to_markdown,
    to_rich,
)
from auditrl.evals.scores import SUITES, Scorecard, ScoreRow, scorecard, suite_result


def card(name: str, level: float, spread: float = 3, *, simulated: bool = True) -> Scorecard:
    results = [
        suite_result(
            suite,
            [
                ScoreRow(suite, f"b{k % 2}", f"b{k % 2}/{k}", 0, level + spread * ((k * 7) % 5 - 2), {"depth": level}, f"{suite}{k}")
                for k in range(10)
            ],
        )
        for suite in SUITES
    ]
    return scorecard(name, results, simulated=simulated)


BEFORE, AFTER = card("warm start", 40), card("step 60", 60)


@pytest.mark.parametrize(
    ("value", "digits", "signed", "text"),
    [
        (12.345, 1, False, "12.3"),
        (-2.25, 2, True, "\u22122.25"),
        (3, 1, True, "+3.0"),
        (-0.04, 1, False, "0.0"),
        (0.0, 1, True, "0.0"),
        (math.nan, 1, False, "\u2013"),
    ],
)
def test_numbers(value: float, digits: int, signed: bool, text: str) -> None:
    assert number(value, digits, signed=signed) == text


@pytest.mark.parametrize(
    ("cell", "column", "text"),
    [
        (Interval(50, 45, 55, 5, 9), Column("x", "X"), "50.0 \u00b1 5.0"),
        (Interval(50, math.nan, math.nan, math.nan, 1), Column("x", "X"), "50.0 (n = 1)"),
        (Interval(math.nan, math.nan, math.nan, math.nan, 0), Column("x", "X"), "\u2013"),
        (0.00001, Column("p", "p", digits=4, probability=True), "< 0.0001"),
        (0.0319, Column("p", "p", digits=4, probability=True), "0.0319"),
        (7, Column("x", "X"), "7"),
        (None, Column("x", "X"), "\u2013"),
        ("name", Column("x", "X"), "name"),
    ],
)
def test_cells(cell: Cell, column: Column, text: str) -> None:
    assert cell_text(cell, column) == text


def test_score_table_ranks_ours_and_marks_the_published() -> None:
    table = score_table([BEFORE, AFTER], published.frontier()[:2])
    assert [row.cells[0] for row in table.rows] == ["step 60", "warm start", "Opus 4.7", "Opus 4.6"]
    assert [row.mark for row in table.rows] == ["", "", published.MARK, published.MARK]
    assert any("no evidence about real models" in note for note in table.notes)
    assert any("arXiv 2608.25460" in note for note in table.notes)
    assert not any("simulated" in note.lower() for note in score_table([card("a", 50, simulated=False)]).notes)


def test_illegible_published_cells_are_dashes() -> None:
    row = next(c for c in published.configurations() if c.reward == "concerningness")
    table = score_table([], [row])
    texts = [cell_text(cell, column) for cell, column in zip(table.rows[0].cells, table.columns, strict=True)]
    assert texts[1:] == ["\u2013", "3.3", "23.0", "\u2013", "\u2013"]


def test_comparison_table_states_direction_only_when_clear() -> None:
    table = comparison_table(BEFORE, AFTER)
    assert [row.cells[0] for row in table.rows] == ["Audit quality", "FP calibration", "Production", "Realism", "Composite"]
    assert {row.cells[-1] for row in table.rows} == {"higher"}
    assert {row.cells[-1] for row in comparison_table(AFTER, BEFORE).rows} == {"lower"}
    assert {row.cells[-1] for row in comparison_table(BEFORE, BEFORE).rows} == {"no clear change"}
    difference = table.rows[0].cells[3]
    assert isinstance(difference, Interval) and difference.mean == pytest.approx(20)


def test_comparison_table_says_what_was_dropped() -> None:
    short = scorecard("short", [suite_result(s, AFTER.suites[s].rows[:8]) for s in SUITES], simulated=True)
    assert any("8 seeds have a score on one side only" in note for note in comparison_table(BEFORE, short).notes)


def test_parts_and_behaviors() -> None:
    both = parts_table(AFTER.suites["realism"], BEFORE.suites["realism"])
    assert len(both.columns) == 4 and cell_text(both.rows[0].cells[3], both.columns[3]) == "+20.0 \u00b1 0.0"
    assert len(parts_table(AFTER.suites["realism"]).columns) == 2
    behaviors = behavior_table([BEFORE, AFTER], "realism")
    assert [row.cells[0] for row in behaviors.rows] == ["b0", "b1"] and len(behaviors.columns) == 3
    assert behavior_table([BEFORE], "transfer").rows == ()


def test_csv_holds_full_precision_and_the_source() -> None:
    table = score_table([AFTER], published.frontier()[:1])
    ours, theirs = csv.DictReader(io.StringIO(to_csv(table)))
    interval = AFTER.suites["realism"].interval
    assert (float(ours["realism"]), float(ours["realism_low"]), ours["realism_n"]) == (interval.mean, interval.low, "10")
    assert (theirs["source"], theirs["auditor"], theirs["realism"], theirs["realism_n"]) == (published.MARK, "Opus 4.7", "12.9", "")
    assert ours["source"] == ""


HOSTILE = "[bold red]=cmd()|<script>`x`\n| a |\\"


def test_hostile_names_stay_names() -> None:
    table = Table("t", (Column("a", "A", text=True), Column("b", "B")), (Row((HOSTILE, 1.0)), Row(("=1+1", 2.0))))
    lines = to_markdown(table).splitlines()
    assert len(lines) == 6 and all(line.replace("\\|", "").count("|") == 3 for line in lines[2:])
    assert "<script>" not in to_markdown(table)
    parsed = list(csv.reader(io.StringIO(to_csv(table))))
    assert parsed[1][0] == HOSTILE and parsed[2][0] == "'=1+1"
    console = Console(width=160, file=io.StringIO(), record=True)
    console.print(to_rich(table))
    assert "[bold red]=cmd()|<script>`x` | a |\\" in console.export_text()


def test_markdown_of_the_comparison() -> None:
    text = to_markdown(comparison_table(BEFORE, AFTER))
    assert "| **Composite** | **40.0 \u00b1" in text and text.startswith("**Before and after**\n\n| Suite |")


def test_rich_rendering_has_every_row() -> None:
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(to_rich(score_table([BEFORE, AFTER], published.frontier()[:1])))
    shown = console.export_text()
    assert all(text in shown for text in ("warm start", "step 60", "Opus 4.7 [published, not reproduced]", "no evidence about real models"))


def test_a_row_of_the_wrong_width_is_refused() -> None:
    with pytest.raises(ValueError, match="2 cells for 1 columns"):
        Table("t", (Column("a", "A"),), (Row((1, 2)),))
