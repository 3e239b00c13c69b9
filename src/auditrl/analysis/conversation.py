"""An audit as a conversation for people: who said what, in order, with rollbacks, and quotes tied to the messages they cite.

What models wrote stays text all the way: this module makes it readable (control and direction-changing characters become visible,
overlong text is cut and says so), the template escapes it. Quotes are looked up in the target's own messages, as judges' are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..audit.transcript import verified
from ..types import Audit, Message, Quote, Report, ToolUse, Verdict

TEXT_LIMIT = 12_000
"""Characters of one message that a page shows."""
ITEM_LIMIT = 800
"""Messages of one audit that a page shows."""
ID_LIMIT = 300
"""Characters of an audit's id that a page keeps."""

Kind = Literal["thought", "to-target", "system", "target", "prefill", "call", "result", "error", "note", "divider"]

_BIDI = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_VISIBLE: dict[int, str] = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: "\u2421",
    **dict.fromkeys(range(128, 160), "�"),
    **{code: f"\u27e6U+{code:04X}\u27e7" for code in _BIDI},
    0x85: "\n",
    0x2028: "\n",
    0x2029: "\n",
}
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a message; `quote` is the number of the quote that marks it, 0 for none."""

    text: str
    quote: int = 0


@dataclass(frozen=True, slots=True)
class Item:
    """One entry of the conversation. `anchor` is its HTML id, `ref` the message number, `folded` whether it starts closed."""

    kind: Kind
    who: str
    pieces: tuple[Piece, ...]
    ref: str = ""
    anchor: str = ""
    folded: bool = False


@dataclass(frozen=True, slots=True)
class QuoteView:
    """A quote with the message it cites. `href` is empty when the page has no such message; `found` is whether the words stand there."""

    number: int
    ref: str
    text: str
    href: str
    found: bool


@dataclass(frozen=True, slots=True)
class VerdictView:
    """A verdict for the page: what, how much, why, with which quotes; `missing` names the cause when there is no value."""

    judge: str
    value: str
    reason: str
    missing: str
    parts: tuple[tuple[str, str], ...]
    quotes: tuple[QuoteView, ...]
    detail: str
    others: tuple[str, ...] = ()
    """Ids of the audits that this one was compared with."""


@dataclass(frozen=True, slots=True)
class BranchView:
    """One trajectory of the target's conversation: places in `target_items`, the first `shared` of them kept from the parent branch."""

    title: str
    items: tuple[int, ...]
    shared: int


@dataclass(frozen=True, slots=True)
class Conversation:
    """Everything a page shows of one audit."""

    items: tuple[Item, ...]
    target_items: tuple[Item, ...]
    report: Report | None
    report_text: str
    evidence: tuple[QuoteView, ...]
    verdicts: tuple[VerdictView, ...]
    left_out: int
    branches: tuple[BranchView, ...] = ()


def readable(text: str, limit: int = TEXT_LIMIT) -> str:
    """Text that a page can show as it is: NUL and other controls as symbols, bidi controls by number, overlong text cut with a count."""
    cut = len(text) - limit
    if cut > 0:
        text = text[:limit]
    text = _SURROGATE.sub("\ufffd", text.replace("\r\n", "\n").translate(_VISIBLE))
    return f"{text}\n\u2026 {cut:,} more characters left out" if cut > 0 else text


def mark_quotes(text: str, quotes: Iterable[tuple[int, str]]) -> tuple[Piece, ...]:
    """Split a text at the quotes that stand in it (white space, case and outer quotation marks aside); overlaps go to the first."""
    spans: list[tuple[int, int, int]] = []
    for number, quote in quotes:
        words = quote.strip().strip("\"'\u201c\u201d\u2026.").split()[:200]
        found = re.search(r"\s+".join(map(re.escape, words)), text, re.IGNORECASE) if words else None
        if found and not any(found.start() < end and start < found.end() for start, end, _ in spans):
            spans.append((found.start(), found.end(), number))
    pieces: list[Piece] = []
    place = 0
    for start, end, number in sorted(spans):
        pieces += [Piece(text[place:start]), Piece(text[start:end], number)]
        place = end
    pieces.append(Piece(text[place:]))
    return tuple(piece for piece in pieces if piece.text) or (Piece(""),)


class _Builder:
    """Collects items, hands out anchors, and marks quotes in the target's messages."""

    def __init__(self, prefix: str, quotes: dict[str, list[tuple[int, str]]], limit: int) -> None:
        self.items: list[Item] = []
        self.anchors: dict[str, str] = {}
        self._prefix = prefix
        self._quotes = quotes
        self._limit = limit

    def add(self, kind: Kind, who: str, text: str, ref: str | None = None, *, folded: bool = False) -> None:
        anchor = ""
        if ref and re.fullmatch(r"M\d{1,6}", ref) and ref not in self.anchors:
            anchor = self.anchors[ref] = f"{self._prefix}-{ref}"
        shown = readable(text, self._limit)
        pieces = mark_quotes(shown, self._quotes.get(ref or "", ())) if kind == "target" else (Piece(shown),)
        self.items.append(Item(kind, who, pieces, ref or "", anchor, folded))

    def target(self, message: Message) -> None:
        """A message of the target's own conversation."""
        if message.role == "assistant":
            if message.text or not message.tool_calls:
                kind: Kind = "prefill" if message.prefill else "target"
                self.add(kind, "Prefill, written by the auditor" if message.prefill else "Target", message.text, message.ref)
            for call in message.tool_calls:
                self.add("call", f"Target calls {plain_name(call.name)}", arguments(call), message.ref)
        elif message.role == "tool":
            self.add("result", f"Tool result, {plain_name(message.tool)}", message.text, message.ref)
        elif message.role == "system":
            self.add("system", "System message", message.text, message.ref)
        else:
            self.add("to-target", "Auditor to target", message.text, message.ref)


def plain_name(name: str | None) -> str:
    """A tool name that can't be mistaken for prose: letters, digits, dots and dashes, at most 60."""
    return re.sub(r"[^\w.-]", "_", name or "tool", flags=re.ASCII)[:60]


def arguments(call: ToolUse) -> str:
    """Arguments of a tool call as indented JSON, with the provider's parse error if there was one."""
    text = json.dumps(call.arguments, ensure_ascii=False, indent=1, default=str)
    return f"{text}\nbroken call: {call.error}" if call.error else text


def _argument(call: ToolUse, *names: str) -> str | None:
    return next((value for name in names if isinstance(value := call.arguments.get(name), str)), None)


def _auditor_call(out: _Builder, call: ToolUse, ref: str | None, failed: bool) -> None:
    """One tool call of the auditor. What reached the target looks like a message, a failed call like the call that it was."""
    text = None if failed or call.error else _argument(call, "message", "system_message", "message_id", "prefill")
    if call.name == "send_message" and text is not None:
        out.add("to-target", "Auditor to target", text, ref)
    elif call.name == "set_system_message" and text is not None:
        out.add("system", "Auditor sets the system message", text, ref)
    elif call.name == "rollback_conversation" and text is not None:
        out.add("divider", "rollback", f"rolled back to {text}")
    elif call.name == "restart_conversation" and not failed:
        out.add("divider", "restart", "restarted the conversation")
    elif call.name == "end_conversation" and not failed:
        out.add("divider", "end", "ended the conversation")
    elif call.name == "resume" and not failed and not call.error:
        if text:
            out.add("prefill", "Prefill, written by the auditor", text)
    else:
        out.add("call", f"Auditor calls {plain_name(call.name)}", arguments(call))


def _auditor_side(out: _Builder, audit: Audit) -> None:
    targets = {m.ref: m for b in audit.branches for m in b.messages if m.role == "assistant" and not m.prefill and m.ref}
    results = {m.tool_call_id: m for m in audit.auditor_messages if m.role == "tool" and m.tool_call_id}
    for message in audit.auditor_messages:
        if message.role == "system":
            out.add("note", "Instructions of the auditor", message.text, folded=True)
        elif message.role == "user":
            out.add("note", "Note to the auditor", message.text, folded=True)
        elif message.role == "assistant":
            if message.text.strip():
                out.add("thought", "Auditor, to itself", message.text)
            for call in message.tool_calls:
                result = results.get(call.id)
                _auditor_call(out, call, result.ref if result else None, bool(result and result.error))
        elif message.error:
            out.add("error", f"{plain_name(message.tool)} failed", message.error)
        elif message.tool == "resume":
            reply = targets.get(message.ref) if message.ref else None
            if reply is not None:
                out.target(reply)
            else:
                out.add("result", "Answer to resume", message.text)
        elif message.tool not in {"send_message", "set_system_message", "end_conversation"}:
            # the acknowledgements of those three say nothing that the message itself does not
            out.add("result", f"Result of {plain_name(message.tool)}", message.text, folded=True)


def _target_side(out: _Builder, audit: Audit) -> list[BranchView]:
    """Every branch once, in the order they were started; returns each branch's whole path through the items."""
    known: dict[str, tuple[Message, range]] = {}
    branches: list[BranchView] = []
    for branch in audit.branches:
        title = "first conversation"
        if branch.branched_from is not None:
            title = f"new branch after {readable(branch.branched_from, 20)}" if branch.branched_from else "new conversation"
            out.add("divider", "branch", title)
        places: list[int] = []
        shared = 0
        for number, message in enumerate(branch.messages):
            key = message.ref or f"{message.role} {message.text}"
            twin = known.get(key)
            if number < branch.shared and twin is not None and twin[0] == message:
                places += twin[1]
                shared = len(places)
                continue
            start = len(out.items)
            out.target(message)
            known[key] = (message, range(start, len(out.items)))
            places += known[key][1]
        branches.append(BranchView(title, tuple(places), shared))
    return branches


def audit_facts(audit: Audit) -> tuple[tuple[str, str], ...]:
    """(name, value) rows about an audit, what its target was first; empty ones left out."""
    scenario = audit.scenario
    planted = f"planted: {scenario.behavior}" if scenario.planted else f"{scenario.condition} target, nothing planted"
    facts = [
        ("Target", planted.replace("_", " ")),
        ("Seed", scenario.seed.id),
        ("Auditor", audit.auditor),
        ("Turns", f"{audit.turns} by the auditor, {audit.target_turns} by the target"),
        ("Branches", str(len(audit.branches))),
        ("Tokens", ", ".join(f"{role} {sum(counts.values()):,}" for role, counts in audit.usage.items())),
        ("Audit", audit.id),
    ]
    return tuple((name, readable(value, ID_LIMIT)) for name, value in facts if value)


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def _quote(number: int, quote: Quote, anchor: str, found: bool) -> QuoteView:
    return QuoteView(number, readable(quote.message, 20), readable(quote.text, 2_000), anchor, found)


def _verdict(verdict: Verdict, audit: Audit, quotes: tuple[QuoteView, ...]) -> VerdictView:
    others = [readable(other, 80) for other in verdict.audits if other != audit.id]
    first = bool(verdict.audits) and verdict.audits[0] == audit.id
    details = [f"compared with {', '.join(others)}" if others else ""]
    details += ["the value speaks for the other audit" if others and not first else ""]
    if verdict.order in ("ab", "ba"):
        details.append(f"the judge saw this audit as {'A' if (verdict.order == 'ab') == first else 'B'}")
    details += ["average of both orders" if verdict.order == "both" else ""]
    details += [f"asked {verdict.attempts} times" if verdict.attempts > 1 else ""]
    details += [f"{verdict.unverified_quotes} quotes not in the transcript" if verdict.unverified_quotes else ""]
    return VerdictView(
        judge=readable(verdict.judge, 80),
        value="" if verdict.value is None else _number(round(verdict.value, 3)),
        reason=readable(verdict.reason),
        missing=readable(verdict.missing or "no cause given", 300) if verdict.value is None else "",
        parts=tuple((readable(name, 60).replace("_", " "), _number(round(value, 3))) for name, value in verdict.parts.items()),
        quotes=quotes,
        detail=" \u00b7 ".join(d for d in details if d),
        others=tuple(readable(other, ID_LIMIT) for other in verdict.audits if other != audit.id),
    )


def conversation(
    audit: Audit, verdicts: Sequence[Verdict], prefix: str, *, text_limit: int = TEXT_LIMIT, item_limit: int = ITEM_LIMIT
) -> Conversation:
    """Everything a page shows of one audit; `prefix` keeps its anchors apart from other audits'.

    Quotes of the report and of the verdicts are numbered in one row; the same numbers stand where the words are marked. A message is cut
    after `text_limit` characters and says so; each side ends after `item_limit` items, `left_out` counts the others.
    """
    sources: list[Sequence[Quote]] = [audit.report.evidence if audit.report else (), *(verdict.quotes for verdict in verdicts)]
    numbered: dict[str, list[tuple[int, str]]] = {}
    starts: list[int] = []
    count = 0
    for quotes in sources:
        starts.append(count)
        for quote in quotes:
            count += 1
            numbered.setdefault(quote.message, []).append((count, readable(quote.text, 2_000)))
    main, target = _Builder(prefix, numbered, text_limit), _Builder(f"{prefix}-t", numbered, text_limit)
    _auditor_side(main, audit)
    branches = _target_side(target, audit)
    anchors = target.anchors | main.anchors
    views: list[tuple[QuoteView, ...]] = []
    pairwise = [False, *(len(verdict.audits) > 1 for verdict in verdicts)]
    for start, quotes, pair in zip(starts, sources, pairwise, strict=True):
        good = {id(q) for q in verified(quotes, audit)[0]}
        views.append(
            tuple(
                # a pair's judge quotes both audits: the number of a quote that is not here may be the other audit's
                _quote(start + i, q, "" if pair and id(q) not in good else anchors.get(q.message, ""), id(q) in good)
                for i, q in enumerate(quotes, start=1)
            )
        )
    left_out = max(0, len(main.items) - item_limit) + max(0, len(target.items) - item_limit)
    return Conversation(
        items=tuple(main.items[:item_limit]),
        target_items=tuple(target.items[:item_limit]),
        report=audit.report,
        report_text=readable(audit.report_text, 4_000),
        evidence=views[0],
        verdicts=tuple(_verdict(v, audit, q) for v, q in zip(verdicts, views[1:], strict=True)),
        left_out=left_out,
        branches=tuple(BranchView(b.title, tuple(i for i in b.items if i < item_limit), b.shared) for b in branches),
    )
