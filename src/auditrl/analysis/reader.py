"""The transcript reader: every audit of a run or an evaluation as a page that opens from disk, without a server.

    reader/index.html         the page, its script and its styles
    reader/data/index.js      one short row an audit: what the list shows and filters by
    reader/data/part-0001.js  the conversations, some dozens a file, loaded when one of them is opened

A page opened from disk may not fetch files, but it may run scripts: the data files hand over JSON text to one function. Safety is in four
layers: control and direction-changing characters are made visible here (`conversation.readable`), data travels as JSON inside an ASCII
string, the page only ever sets text, and its content security policy lets nothing run but its own script and what that script loads
(Trusted Types included, where the browser has them). File names are counted, never taken from data.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ..errors import RunError
from ..files import locked
from ..types import FIRM, Audit, Scenario, Verdict
from .conversation import ID_LIMIT, Item, QuoteView, VerdictView, audit_facts, conversation, readable
from .page import asset, digest, environment

FORMAT = 1
PART_AUDITS = 64
"""Audits of one data file at most."""
PART_CHARS = 1_500_000
"""Characters after which a data file is closed: what opening an audit has to parse."""
TEXT_LIMIT = 200_000
"""Characters of one message that the reader keeps."""
ITEM_LIMIT = 2_000
"""Messages of one side of an audit that the reader keeps."""
SHARED_TEXT = 60
"""Texts from this length on stand once in a data file, however many audits and views repeat them."""
_SCRIPTS = ("reader/store.js", "reader/filters.js", "reader/list.js", "reader/audit.js", "reader/main.js")
_STYLES = ("theme.css", "talk.css", "reader/reader.css")
_FIELDS = (
    "id", "step", "suite", "behavior", "condition", "seed", "score", "report", "outcome", "category", "turns", "branches", "group", "said",
    "part", "place",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """One audit for the reader. `score` is its reward or its value in a suite, None if it has none; `step` counts from 1."""

    audit: Audit
    verdicts: Sequence[Verdict] = ()
    score: float | None = None
    step: int | None = None
    suite: str = ""


@dataclass(frozen=True, slots=True)
class Collection:
    """Audits that are listed together because their scores have one scale. `key` is a word for addresses.

    `entries` may be a generator: it is read once, and may add to `notes` (what can't be shown, and why) while it is read.
    """

    key: str
    title: str
    score_name: str
    entries: Iterable[Entry]
    notes: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class Hidden:
    """What was hidden in a target: the text, None for nothing; `note` says where it is from, or why it can't be shown."""

    text: str | None
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderData:
    """Everything a reader shows. `report` is the address of the report relative to the page, `categories` maps audit ids to strategies."""

    title: str
    simulated: bool
    collections: Sequence[Collection]
    hidden: Callable[[Scenario], Hidden]
    report: str = ""
    categories: Mapping[str, str] = field(default_factory=dict[str, str])
    notes: Sequence[str] = ()


# ---------------------------------------------------------------- what an audit came to


def report_kind(audit: Audit) -> str:
    """How firmly the auditor claims: `firm claim`, `tentative claim`, `no finding`, `no report`."""
    if audit.report is None:
        return "no report"
    if not audit.report.finding:
        return "no finding"
    return "firm claim" if audit.report.confidence >= FIRM else "tentative claim"


def outcome(entry: Entry) -> str:
    """What the judges made of it: `failed`, `no verdict`, `won`, `tied` or `lost` (comparisons, by their mean), `yes` or `no`, `scored`."""
    if entry.audit.failed:
        return "failed"
    values = [v for v in entry.verdicts if v.value is not None]
    if not values:
        return "no verdict"
    pairs = [v.value if v.audits[0] == entry.audit.id else 1 - v.value for v in values if v.value is not None and len(v.audits) > 1]
    if pairs:
        mean = sum(pairs) / len(pairs)
        return "tied" if math.isclose(mean, 0.5) else "won" if mean > 0.5 else "lost"
    if len(values) == 1 and values[0].value in (0.0, 1.0):
        return "yes" if values[0].value else "no"
    return "scored"


# ---------------------------------------------------------------- the data files


class _Part:
    """A data file in the making. Repeated texts are kept once; audits refer to them by number."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}
        self.audits: list[dict[str, Any]] = []
        self.chars = 0

    @property
    def full(self) -> bool:
        return len(self.audits) >= PART_AUDITS or self.chars >= PART_CHARS

    def text(self, value: str) -> str | int:
        if len(value) < SHARED_TEXT:
            self.chars += len(value)
            return value
        if value not in self.texts:
            self.texts[value] = len(self.texts)
            self.chars += len(value)
        return self.texts[value]

    def item(self, item: Item) -> list[Any]:
        """[kind, who, ref, folded, text], the text as [text, quote] pairs where a quote marks some of it."""
        plain = len(item.pieces) == 1 and not item.pieces[0].quote
        text = self.text(item.pieces[0].text) if plain else [[self.text(piece.text), piece.quote] for piece in item.pieces]
        return [item.kind, readable(item.who, 120), item.ref and readable(item.ref, 20), int(item.folded), text]

    def script(self, name: str) -> str:
        return data_script(name, {"texts": list(self.texts), "audits": self.audits})


def data_script(name: str, value: Any) -> str:
    """A script that hands JSON text to the page: ASCII, without a character that could end a string or open a tag."""
    text = json.dumps(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False))
    return f'auditrlReader("{name}", {text.replace("<", chr(92) + "u003c")});\n'


def _quotes(quotes: Sequence[QuoteView]) -> list[list[Any]]:
    return [[q.number, q.ref, q.text, int(bool(q.href)), int(q.found)] for q in quotes]


def _verdict(verdict: VerdictView) -> dict[str, Any]:
    return {
        "judge": verdict.judge,
        "value": verdict.value,
        "reason": verdict.reason,
        "missing": verdict.missing,
        "parts": [list(part) for part in verdict.parts],
        "quotes": _quotes(verdict.quotes),
        "detail": verdict.detail,
        "others": list(verdict.others),
    }


def _report(audit: Audit, evidence: Sequence[QuoteView]) -> dict[str, Any] | None:
    if audit.report is None:
        return None
    report = audit.report
    return {
        "finding": report.finding,
        "behavior": readable(report.behavior, TEXT_LIMIT),
        "confidence": finite(report.confidence),
        "evidence": _quotes(evidence),
        "predictions": [[readable(p.behavior, 300), finite(p.confidence)] for p in report.predictions],
    }


def finite(value: float | None) -> float | None:
    """The number rounded for showing; None for none and for what JSON has no word for."""
    return round(value, 4) if value is not None and math.isfinite(value) else None


class _Writer:
    """Writes parts as audits come, and collects the rows of the index."""

    def __init__(self, folder: Path, data: ReaderData) -> None:
        self.count = 0
        self._folder = folder
        self._data = data
        self._part = _Part()
        self._parts = 0
        self._blocks: dict[str, int] = {}
        self._seeds: dict[tuple[str, str], int] = {}

    def collect(self, collection: Collection) -> dict[str, Any]:
        """Write the audits of a collection; returns what the index says about it."""
        groups: dict[str, int] = {}
        rows: list[list[Any]] = []
        for entry in collection.entries:
            group = groups.setdefault(f"{entry.step} {entry.audit.id.rpartition('#')[0]}", len(groups))
            rows.append(self._row(entry, group))
        return {
            "key": collection.key,
            "title": collection.title,
            "scoreName": collection.score_name,
            "notes": [readable(note, 600) for note in collection.notes],
            "rows": rows,
        }

    def _row(self, entry: Entry, group: int) -> list[Any]:
        audit, scenario = entry.audit, entry.audit.scenario
        seed = (readable(scenario.seed.id, 200), readable(scenario.seed.text, 300))
        part, place = self._body(entry)
        self.count += 1
        return [
            readable(audit.id, ID_LIMIT),
            entry.step,
            readable(entry.suite, 60).replace("_", " "),
            readable(scenario.behavior or "no behavior", 120).replace("_", " "),
            scenario.condition,
            self._seeds.setdefault(seed, len(self._seeds)),
            finite(entry.score),
            report_kind(audit),
            outcome(entry),
            readable(self._data.categories.get(audit.id, ""), 120),
            audit.turns,
            len(audit.branches),
            group,
            readable(audit.error or (audit.report.behavior if audit.report else audit.report_text), 200),
            part,
            place,
        ]

    def _body(self, entry: Entry) -> tuple[int, int]:
        """Add the conversation to the open part; returns the number of the part and the place in it."""
        if self._part.full:
            self.close_part()
        part, audit, prefix = self._part, entry.audit, "a"
        talk = conversation(audit, entry.verdicts, prefix, text_limit=TEXT_LIMIT, item_limit=ITEM_LIMIT)
        hidden = self._data.hidden(audit.scenario)
        block = None if hidden.text is None else self._blocks.setdefault(readable(hidden.text), len(self._blocks))
        part.audits.append(
            {
                "facts": [list(fact) for fact in audit_facts(audit)],
                "seed": part.text(readable(audit.scenario.seed.text, TEXT_LIMIT)),
                "hidden": block,
                "hiddenNote": readable(hidden.note, 600),
                "error": readable(audit.error or "", 4_000),
                "leftOut": talk.left_out,
                "items": [part.item(item) for item in talk.items],
                "target": [part.item(item) for item in talk.target_items],
                "branches": [[branch.title, list(branch.items), branch.shared] for branch in talk.branches],
                "report": _report(audit, talk.evidence),
                "reportText": "" if audit.report else part.text(readable(audit.report_text, TEXT_LIMIT)),
                "verdicts": [_verdict(verdict) for verdict in talk.verdicts],
            }
        )
        return self._parts + 1, len(part.audits) - 1

    def close_part(self) -> None:
        """Write the open part, if anything is in it."""
        if self._part.audits:
            self._parts += 1
            name = f"part-{self._parts:04d}"
            (self._folder / "data" / f"{name}.js").write_text(self._part.script(name), encoding="ascii")
            self._part = _Part()

    def finish(self, collections: Sequence[Mapping[str, Any]]) -> None:
        """Write the last part, the index and the page."""
        self.close_part()
        data = self._data
        index = {
            "format": FORMAT,
            "title": readable(data.title, 200),
            "simulated": data.simulated,
            "report": data.report,
            "notes": [readable(note, 600) for note in data.notes],
            "blocks": list(self._blocks),
            "seeds": [list(seed) for seed in self._seeds],
            "fields": _FIELDS,
            "sets": [found for found in collections if found["rows"] or found["notes"]],
        }
        (self._folder / "data" / "index.js").write_text(data_script("index", index), encoding="ascii")
        (self._folder / "index.html").write_text(render_page(data.title), encoding="utf-8")


def render_page(title: str) -> str:
    """The page without its data."""
    script = "(() => {\n" + asset(*_SCRIPTS) + "\n})();"
    style = asset(*_STYLES)
    return (
        environment()
        .get_template("reader/index.html.j2")
        .render(title=title, style=Markup(style), style_hash=digest(style), script=Markup(script), script_hash=digest(script))
    )


def write_reader(folder: Path, data: ReaderData) -> Path | None:
    """Write a reader into `folder` (which it replaces as a whole) and return its page; None, and nothing written, if there is no audit.

    Raises:
        RunError: The folder can't be written, holds something else, or another process is writing it.
    """
    part, old = folder.with_name(f".{folder.name}.part"), folder.with_name(f".{folder.name}.old")
    try:
        with locked(folder.with_name(f".{folder.name}.lock")) as mine:
            if not mine:
                raise RunError(f"{folder}: another process is writing this reader; wait for it")
            if folder.exists() and not (folder / "data" / "index.js").is_file():
                raise RunError(f"{folder}: holds something that is no reader; move it away")
            for leftover in (part, old):
                shutil.rmtree(leftover, ignore_errors=True)
            (part / "data").mkdir(parents=True)
            writer = _Writer(part, data)
            writer.finish([writer.collect(collection) for collection in data.collections])
            if writer.count == 0:
                shutil.rmtree(part)
                return None
            if folder.exists():
                folder.rename(old)
            part.rename(folder)
            shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise RunError(f"{folder}: can't write the reader ({error.strerror}). Make room, or name a folder that can be written.") from error
    return folder / "index.html"
