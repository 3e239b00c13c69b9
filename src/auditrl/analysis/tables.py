"""Tables of scores: the same rows for a terminal, Markdown, CSV and the HTML report.

A table holds values, not text: the renderers decide how an interval looks ("64.4 ± 2.1"; three columns in CSV). Names come from configs
and logs and are untrusted: markup, pipes and line breaks in them are neutralised here, HTML is escaped by the report's template.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..evals.scores import SUITE_TITLES, SUITES, Comparison, Scorecard, SuiteResult, by_behavior, compare, leaked, marks, pair_rows
from .published import MARK, SOURCE, FourPart
from .stats import Interval, paired

if TYPE_CHECKING:
    from rich.table import Table as RichTable

DASH = "\u2013"
Cell = str | int | float | Interval | None


@dataclass(frozen=True, slots=True)
class Column:
    """A column: CSV key, header, decimals of its numbers. `spread` columns hold intervals and become four in CSV; `signed` shows a plus."""

    key: str
    header: str
    digits: int = 1
    spread: bool = False
    signed: bool = False
    text: bool = False
    probability: bool = False
    """A p value: one too small for the decimals is shown as "< 0.0001", never as zero."""


@dataclass(frozen=True, slots=True)
class Row:
    """Cells in the order of the columns. `mark` says where a row comes from ("published, not reproduced"); `strong` sets it off."""

    cells: tuple[Cell, ...]
    mark: str = ""
    strong: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its title and the notes that must stand under it. Raises ValueError when a row has the wrong width."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise ValueError(f"table {self.title!r}: a row has {len(row.cells)} cells for {len(self.columns)} columns")


# ---------------------------------------------------------------- rendering


def number(value: float, digits: int = 1, *, signed: bool = False) -> str:
    """A number for people: fixed decimals, a dash where there is none, a true minus sign."""
    if not math.isfinite(value):
        return DASH
    text = f"{value:{'+' if signed else ''}.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("+-")
    return text.replace("-", "\u2212")


def cell_text(cell: Cell, column: Column) -> str:
    """One cell as plain text. An interval of a single unit says so."""
    if cell is None:
        return DASH
    if isinstance(cell, str):
        return cell
    if isinstance(cell, Interval):
        mean = number(cell.mean, column.digits, signed=column.signed)
        if cell.known:
            return f"{mean} \u00b1 {number(cell.half, column.digits)}"
        return f"{mean} (n = 1)" if cell.n == 1 else mean
    if column.probability and 0 <= cell < 10**-column.digits:
        return f"< {10**-column.digits:.{column.digits}f}"
    return str(cell) if isinstance(cell, int) else number(cell, column.digits, signed=column.signed)


def row_texts(table: Table, row: Row) -> list[str]:
    """Cells of a row as plain text, the row's mark behind its first cell."""
    texts = [cell_text(cell, column) for cell, column in zip(row.cells, table.columns, strict=True)]
    return [f"{texts[0]} [{row.mark}]" if row.mark else texts[0], *texts[1:]]


def to_rich(table: Table) -> RichTable:
    """For the terminal. Cells are `Text`, so square brackets in a name are not markup."""
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(title=Text(table.title), caption=Text("\n".join(table.notes)) if table.notes else None, caption_justify="left")
    for column in table.columns:
        shown.add_column(Text(column.header), justify="left" if column.text else "right", no_wrap=not column.text)
    for row in table.rows:
        style = "bold" if row.strong else "dim" if row.mark else ""
        shown.add_row(*(Text(" ".join(text.split()), style=style) for text in row_texts(table, row)))
    return shown


def _markdown(text: str) -> str:
    flat = " ".join(text.split())
    return flat.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")


def to_markdown(table: Table) -> str:
    """GitHub-flavoured Markdown with the title above and the notes below."""
    lines = [
        f"**{_markdown(table.title)}**",
        "",
        "| " + " | ".join(_markdown(column.header) for column in table.columns) + " |",
        "|" + "|".join("---" if column.text else "---:" for column in table.columns) + "|",
    ]
    for row in table.rows:
        cells = [_markdown(text) for text in row_texts(table, row)]
        lines.append("| " + " | ".join(f"**{c}**" if row.strong else c for c in cells) + " |")
    return "\n".join([*lines, *(f"\n{_markdown(note)}" for note in table.notes)]) + "\n"


def to_csv(table: Table) -> str:
    """Full-precision CSV: an interval becomes `key`, `key_low`, `key_high`, `key_n`; `source` holds the rows' marks."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    header: list[str] = []
    for column in table.columns:
        header += [column.key, *(f"{column.key}_{end}" for end in ("low", "high", "n") if column.spread)]
    writer.writerow([*header, "source"])
    for row in table.rows:
        values: list[str] = []
        for cell, column in zip(row.cells, table.columns, strict=True):
            values += _csv_values(cell, column)
        writer.writerow([*values, row.mark])
    return out.getvalue()


def _csv_values(cell: Cell, column: Column) -> list[str]:
    if isinstance(cell, Interval):
        # printed half widths have no n: an empty cell, not a zero
        return [_csv_number(v) for v in (cell.mean, cell.low, cell.high)] + [str(cell.n) if cell.n else ""]
    if cell is None:
        value = ""
    elif isinstance(cell, float):
        value = _csv_number(cell)
    else:
        value = str(cell)
        if value.startswith(("=", "+", "-", "@", "\t", "\r")):
            value = "'" + value  # a spreadsheet would run it as a formula
    return [value, "", "", ""] if column.spread else [value]


def _csv_number(value: float) -> str:
    return repr(value) if math.isfinite(value) else ""


# ---------------------------------------------------------------- which tables there are

SIMULATED = "Simulated world: a model of the method, no evidence about real models."
"""Stands under whatever comes from the simulated world."""
_INTERVALS = (
    "0\u2013100, higher is better. \u00b1 is half a 95% t interval over seeds; composite: mean of the four, half widths in quadrature."
)


def _score_columns(first: Column) -> tuple[Column, ...]:
    suites = tuple(Column(suite, SUITE_TITLES[suite], spread=True) for suite in SUITES)
    return (first, *suites, Column("composite", "Composite", spread=True))


def _printed(mean: float | None, half: float | None) -> Interval | None:
    if mean is None:
        return None
    return Interval.around(mean, math.nan if half is None else half, 0)


def score_table(cards: Sequence[Scorecard], published: Iterable[FourPart] = (), title: str = "Scores") -> Table:
    """Auditors x four scores and composite, best composite first; published rows follow, marked."""
    ranked = sorted(cards, key=lambda card: -card.composite.mean if card.composite else math.inf)
    rows = [
        Row((card.auditor, *(card.suites[s].interval if s in card.suites else None for s in SUITES), card.composite)) for card in ranked
    ]
    printed = [
        Row(
            (
                row.label,
                *(_printed(getattr(row, s), getattr(row, f"{s}_ci")) for s in SUITES),
                _printed(row.composite, row.composite_ci),
            ),
            mark=MARK,
        )
        for row in published
    ]
    notes = [_INTERVALS]
    if printed:
        notes.append(f"Rows marked \u201c{MARK}\u201d: {SOURCE}.")
    notes += _said(cards)
    return Table(_titled(title, cards), _score_columns(Column("auditor", "Auditor", text=True)), tuple(rows + printed), tuple(notes))


def comparison_table(first: Scorecard, second: Scorecard, names: tuple[str, str] = ("Before", "After")) -> Table:
    """Suites x (first, second, paired difference, p after Holm, verdict, wins/ties/losses over seeds); the composite last."""
    found: Comparison = compare(first, second)
    columns = (
        Column("suite", "Suite", text=True),
        Column("first", names[0], spread=True),
        Column("second", names[1], spread=True),
        Column("difference", "Difference (paired)", spread=True, signed=True),
        Column("p_holm", "p (Holm)", digits=4, probability=True),
        Column("p_sign", "p (sign test)", digits=4, probability=True),
        Column("seeds", "Seeds won / tied / lost", text=True),
        Column("verdict", "At 5%", text=True),
    )
    rows: list[Row] = []
    for suite, item in found.suites.items():
        pair = item.paired
        rows.append(
            Row(
                (
                    SUITE_TITLES.get(suite, suite),
                    first.suites[suite].interval,
                    second.suites[suite].interval,
                    pair.difference if pair else None,
                    item.p_holm,
                    pair.p_sign if pair else None,
                    f"{pair.wins} / {pair.ties} / {pair.losses}" if pair else DASH,
                    _direction(pair.difference if pair else None, item.significant),
                )
            )
        )
    whole = (first.composite, second.composite, found.composite)
    rows.append(Row(("Composite", *whole, None, None, DASH, _direction(found.composite, found.composite_significant)), strong=True))
    dropped = sum(item.unpaired for item in found.suites.values())
    notes = [
        _INTERVALS,
        "Differences are paired by seed; p: paired t test, Holm over the suites; sign test unadjusted.",
        "The composite is judged by its interval.",
    ]
    if dropped:
        notes.append(f"{dropped} seeds have a score on one side only and are left out of the differences.")
    notes += _said((first, second))
    title = f"{names[0]} and {names[1].lower()}" if names == ("Before", "After") else f"{names[0]} and {names[1]}"
    return Table(_titled(title, (first, second)), columns, tuple(rows), tuple(notes))


def _said(cards: Sequence[Scorecard]) -> list[str]:
    """What must stand under every table of these cards."""
    notes = list(dict.fromkeys(note for card in cards for note in marks(card)))
    return [*notes, SIMULATED] if any(card.simulated for card in cards) else notes


def _titled(title: str, cards: Sequence[Scorecard]) -> str:
    return f"{title} (held-out guard off)" if any(leaked(card) for card in cards) else title


def _direction(difference: Interval | None, significant: bool) -> str:
    if difference is None or not difference.known:
        return DASH
    if not significant:
        return "no clear change"
    return "higher" if difference.mean > 0 else "lower"


def parts_table(result: SuiteResult, earlier: SuiteResult | None = None, names: tuple[str, str] = ("Before", "After")) -> Table:
    """Sub-scores of one suite, beside an earlier result of it where there is one (differences paired by seed)."""
    columns = [Column("part", "Sub-score", text=True)]
    if earlier is not None:
        columns += [Column("first", names[0], spread=True)]
    columns += [Column("second", names[1] if earlier is not None else "Score", spread=True)]
    if earlier is not None:
        columns += [Column("difference", "Difference (paired)", spread=True, signed=True)]
    rows: list[Row] = []
    for part in dict.fromkeys([*(earlier.parts if earlier else ()), *result.parts]):
        cells: list[Cell] = [part.replace("_", " "), result.parts.get(part)]
        if earlier is not None:
            before, after, _ = pair_rows(earlier, result, part)
            cells = [cells[0], earlier.parts.get(part), cells[1], paired(after, before).difference if before else None]
        rows.append(Row(tuple(cells)))
    return Table(SUITE_TITLES.get(result.suite, result.suite), tuple(columns), tuple(rows))


def behavior_table(cards: Sequence[Scorecard], suite: str, names: Sequence[str] | None = None) -> Table:
    """Behaviors x auditors for one suite, seed-level intervals; cards without that suite show a dash. `names` replace the auditors'."""
    found = [by_behavior(card.suites[suite]) if suite in card.suites else {} for card in cards]
    behaviors = sorted({behavior for intervals in found for behavior in intervals})
    headers = names or [card.auditor for card in cards]
    columns = (Column("behavior", "Behavior", text=True), *(Column(header, header, spread=True) for header in headers))
    rows = tuple(Row((behavior, *(intervals.get(behavior) for intervals in found))) for behavior in behaviors)
    notes = ("Intervals are over the seeds of one behavior: with few seeds they are wide, and may pass 0 or 100.",)
    return Table(f"{SUITE_TITLES.get(suite, suite)} by behavior", columns, rows, notes if rows else ())
