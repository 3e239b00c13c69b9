"""The report of a run: one HTML file that opens from disk, without a server, a remote asset or a library.

Safety: the template escapes everything (jinja2 autoescape, undefined names are errors). Only three things enter as markup: the style
sheet and script shipped beside the template, and SVG drawn here from numbers and sanitised labels. A content security policy allows
exactly that script, so text which got past the escaping could still not run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from markupsafe import Markup

from ..errors import RunError
from ..evals.scores import SUITE_TITLES, SUITES, Scorecard, compare
from ..files import write_whole
from ..types import Audit, Verdict
from . import figures
from .conversation import ID_LIMIT, Conversation, audit_facts, conversation, readable
from .page import asset, digest, environment
from .published import FourPart
from .stats import Interval
from .tables import SIMULATED, Cell, Column, Row, Table, behavior_table, cell_text, comparison_table, number, parts_table, score_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEP_ROWS = 240
"""Rows of the step table; longer runs are thinned evenly, first and last step kept."""
STEP_COLUMNS = 14
_FIRST_COLUMNS = (
    "step",
    "reward",
    "reward_mean",
    "composite_proxy",
    "fp_share",
    "position_bias",
    "missing",
    "failed",
    "loss",
    "tokens_per_s",
)


@dataclass(frozen=True, slots=True)
class ShowcaseAudit:
    """An audit to show in full: why it is shown ("best"), the audit, its reward (None if it has none), what judges said."""

    label: str
    audit: Audit
    reward: float | None
    verdicts: Sequence[Verdict] = ()


@dataclass(frozen=True, slots=True)
class NamedFigure:
    """A figure with its caption (also its accessible name)."""

    caption: str
    figure: Figure


@dataclass(frozen=True, slots=True)
class Section:
    """A further section: paragraphs, tables and figures, in this order, then links to audits of the showcase (by id)."""

    title: str
    text: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[NamedFigure] = ()
    audits: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """Everything a report shows. `metrics` are rows of metrics.jsonl; nothing here is read from a run directory.

    `failures` counts missing verdicts and failed audits by cause; `cost` holds what the run used (tokens, money, time), in words or
    numbers; `alarms` are sentences, the newest last; `published` rows are shown beside the scores, marked.
    """

    title: str
    run_name: str
    simulated: bool
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    metrics: Sequence[Mapping[str, Any]] = ()
    before: Scorecard | None = None
    after: Scorecard | None = None
    showcase: Sequence[ShowcaseAudit] = ()
    notes: Sequence[str] = ()
    extra: Sequence[Section] = ()
    alarms: Sequence[str] = ()
    failures: Mapping[str, int] = field(default_factory=dict[str, int])
    cost: Mapping[str, Any] = field(default_factory=dict[str, Any])
    published: Sequence[FourPart] = ()
    reader: str = ""
    """Address of the transcript reader, relative to the report; empty when there is none."""


# ---------------------------------------------------------------- what the template reads


@dataclass(frozen=True, slots=True)
class Tile:
    """One headline number with what it means; `tone` is good, bad or empty."""

    name: str
    value: str
    detail: str
    tone: str = ""


@dataclass(frozen=True, slots=True)
class AuditView:
    """One audit of the showcase, ready for the template."""

    anchor: str
    label: str
    reward: str
    heading: str
    facts: tuple[tuple[str, str], ...]
    seed: str
    error: str
    talk: Conversation
    link: str = ""
    """Address of this audit in the reader."""


@dataclass(frozen=True, slots=True)
class SectionView:
    """A further section, figures drawn."""

    anchor: str
    title: str
    text: tuple[str, ...]
    tables: tuple[Table, ...]
    figures: tuple[tuple[str, Markup], ...]
    links: tuple[tuple[str, str], ...] = ()
    """(anchor, words) of audits."""


def _show(value: Any) -> str:
    """A config value, cost or metric as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "\u2013"
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else "\u2013"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, (list, tuple)):
        return readable(", ".join(_show(v) for v in cast("Sequence[Any]", value)) or "none", 2_000)
    return readable(str(value), 2_000)


def flatten(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """A nested mapping as dotted keys with shown values, in order: what `--section.key` overrides are called."""
    rows: list[tuple[str, str]] = []
    for key, value in values.items():
        name = readable(f"{prefix}{key}", 200)
        if isinstance(value, Mapping) and value:
            rows += flatten(cast("Mapping[str, Any]", value), f"{name}.")
        else:
            rows.append((name, "none" if value == {} else _show(value)))
    return rows


def _delta(interval: Interval | None) -> str:
    return "" if interval is None else cell_text(interval, Column("", "", signed=True))


def _tiles(data: ReportData) -> list[Tile]:
    tiles: list[Tile] = []
    last = data.after or data.before
    found = compare(data.before, data.after) if data.before and data.after else None
    if last and last.composite:
        change = found.composite if found else None
        tone = "" if not found or not found.composite_significant or change is None else "good" if change.mean > 0 else "bad"
        tiles.append(Tile("Composite", number(last.composite.mean), _delta(change) if change else "mean of four", tone))
    for suite in SUITES:
        if last and suite in last.suites and last.suites[suite].interval.n:
            item = found.suites.get(suite) if found else None
            pair = item.paired if item else None
            tone = "" if not item or not item.significant or not pair else "good" if pair.difference.mean > 0 else "bad"
            value = number(last.suites[suite].interval.mean)
            tiles.append(Tile(SUITE_TITLES[suite], value, _delta(pair.difference) if pair else "0\u2013100", tone))
    if data.metrics:
        tiles.append(Tile("Steps", str(len(data.metrics)), "gradient steps"))
    return tiles


def _rows_missing(data: ReportData) -> list[tuple[str, str, int]]:
    """(which card, suite, count) of what the evaluation could not score."""
    rows: list[tuple[str, str, int]] = []
    for name, card in (("before", data.before), ("after", data.after)):
        for suite, result in card.suites.items() if card else ():
            rows += [(name, f"{SUITE_TITLES.get(suite, suite)}: missing verdicts", result.missing)] if result.missing else []
            rows += [(name, f"{SUITE_TITLES.get(suite, suite)}: failed audits", result.failed)] if result.failed else []
    return rows


def _score_tables(data: ReportData) -> tuple[list[Table], list[Table]]:
    """The main tables, and those behind a fold (sub-scores, behaviors)."""
    cards = [card for card in (data.before, data.after) if card]
    if not cards:
        return [], []
    main = [comparison_table(cards[0], cards[1])] if len(cards) == 2 else []
    if len(cards) == 1 or data.published:
        main.append(score_table(cards, data.published))
    last, first = cards[-1], cards[0] if len(cards) == 2 else None
    detail = [parts_table(r, first.suites.get(s) if first else None) for s, r in last.suites.items() if r.parts]
    names = ("Before", "After") if first else None
    detail += [table for suite in last.suites if (table := behavior_table(cards, suite, names)).rows]
    return main, detail


def step_table(metrics: Sequence[Mapping[str, Any]]) -> Table | None:
    """Metrics rows as a table: the columns people look at first, then the other scalars. None when there are no rows."""
    if not metrics:
        return None
    scalar = dict.fromkeys(k for row in metrics for k, v in row.items() if isinstance(v, (int, float)))
    keys = [k for k in _FIRST_COLUMNS if k in scalar] + [k for k in scalar if k not in _FIRST_COLUMNS]
    shown = keys[:STEP_COLUMNS]
    count = len(metrics)
    places = range(count) if count <= STEP_ROWS else sorted({round(i * (count - 1) / (STEP_ROWS - 1)) for i in range(STEP_ROWS)})
    rows = tuple(Row(tuple(_metric(metrics[place].get(key)) for key in shown)) for place in places)
    notes = [f"{count} steps, {len(rows)} shown."] if len(rows) < count else []
    if len(keys) > len(shown):
        notes.append(
            f"metrics.jsonl holds {len(keys) - len(shown)} more columns: {', '.join(readable(k, 60) for k in keys[len(shown) :])}."
        )
    columns = tuple(Column(key, readable(key, 60).replace("_", " ")) for key in shown)
    return Table("Steps", columns, rows, tuple(notes))


def _metric(value: Any) -> Cell:
    if not isinstance(value, (int, float)):
        return None
    return f"{value:.4g}" if isinstance(value, float) and math.isfinite(value) else _show(value)


def _audit_view(item: ShowcaseAudit, place: int, reader: str) -> AuditView:
    audit, anchor = item.audit, f"audit-{place}"
    facts = audit_facts(audit)
    return AuditView(
        anchor=anchor,
        label=readable(item.label, 80),
        reward="\u2013" if item.reward is None else number(item.reward, 3, signed=True),
        heading=readable(facts[0][1], 120),
        facts=facts,
        seed=readable(audit.scenario.seed.text),
        error=readable(audit.error or "", 1_000),
        talk=conversation(audit, item.verdicts, anchor),
        link=f"{reader}#training/{quote(readable(audit.id, ID_LIMIT), safe='')}" if reader else "",
    )


def _inline(name: str, caption: str, figure: Figure) -> tuple[str, Markup]:
    return readable(caption, 300), Markup(figures.to_inline_svg(figure, name, caption))


def _sections(data: ReportData) -> list[SectionView]:
    places = {item.audit.id: (f"audit-{place}", readable(item.label, 80)) for place, item in enumerate(data.showcase)}
    return [
        SectionView(
            f"extra-{i}",
            readable(section.title, 120),
            tuple(readable(text) for text in section.text),
            tuple(section.tables),
            tuple(_inline(f"x{i}-{j}", named.caption, named.figure) for j, named in enumerate(section.figures)),
            tuple(places[name] for name in section.audits if name in places),
        )
        for i, section in enumerate(data.extra)
    ]


# ---------------------------------------------------------------- the page


def render_report(data: ReportData) -> str:
    """The whole page as text. Raises ConfigError when before and after come from different worlds (see `compare`)."""
    script = asset("report.js")
    main_tables, detail_tables = _score_tables(data)
    try:
        curves = _inline("curves", "Training curves", figures.training_curves(data.metrics)) if data.metrics else None
    except ValueError:
        curves = None  # rows without any of the curves: the step table below still shows what they hold
    cards = [card for card in (data.before, data.after) if card]
    named = [(name, card) for name, card in (("before", data.before), ("after", data.after)) if card]
    bars = None
    if cards:
        labels = [Scorecard(name, c.suites, c.composite, c.simulated) for name, c in named]
        bars = _inline("scores-bars", "Scores by suite, " + " and ".join(name for name, _ in named), figures.score_bars(labels))
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            data=data,
            warning=SIMULATED,
            style=Markup(asset("theme.css", "talk.css", "report.css")),
            script=Markup(script),
            script_hash=digest(script),
            tiles=_tiles(data),
            curves=curves,
            bars=bars,
            main_tables=main_tables,
            detail_tables=detail_tables,
            steps=step_table(data.metrics),
            audits=[_audit_view(item, place, data.reader) for place, item in enumerate(data.showcase)],
            failures=[*(("training", readable(k, 300), v) for k, v in data.failures.items() if v), *_rows_missing(data)],
            config=flatten(data.config),
            versions=flatten(data.versions),
            cost=flatten(data.cost),
            sections=_sections(data),
        )
    )


def write_report(data: ReportData, path: Path) -> Path:
    """Write the page (whole, then renamed) and return its path. Raises RunError when the folder can't be written."""
    text = render_report(data)
    try:
        write_whole(path, text)
    except OSError as error:
        raise RunError(f"{path}: can't write the report ({error.strerror}). Name a path in a folder that can be written.") from error
    return path
