"""Three renderings of an audit, used by every judge.

- `target_view`: only what passed between auditor and target, rollbacks marked.
- `auditor_view`: everything the auditor wrote, called and read, and its report.
- `full_transcript`: the auditor view with the target's branches behind it.

What models write is untrusted. A line that starts in the first column is ours; a line break inside a message continues indented
by four spaces, so no message can forge another line, and `fence` breaks our own closing tags. `parse_lines` is the inverse.

Grammar of a line: `[M3] TARGET: text` | `[M2] USER: text` | `[M1] SYSTEM: text` | `[M5] PREFILL: text` |
`[M6] TOOL RESULT name: text` | `[M3] TARGET CALLS name: {json}` | `AUDITOR: text` | `AUDITOR CALLS name: {json}` |
`RESULT name: text` | `ERROR name: text` | `NOTE: text` | `REPORT: {json}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..types import Audit, Branch, Message, Quote, ToolUse

INDENT = "    "
_LINE = re.compile(
    r"(?:\[(?P<ref>M\d+)\] )?"
    r"(?P<kind>TARGET CALLS|TARGET|USER|SYSTEM|PREFILL|TOOL RESULT|AUDITOR CALLS|AUDITOR|RESULT|ERROR|NOTE|REPORT)"
    r"(?: (?P<name>[^\s:]+))?: ?(?P<text>.*)\Z",
    re.DOTALL,
)
_OUR_TAG = re.compile(
    r"<(?=\s*/?\s*(?:audit|hidden|seed|transcript|report|conversation|scores|mode|persona|activation|behavior|existing|idea|settings"
    r"|step|turn|user|hint|prediction|quote))",
    re.IGNORECASE,
)
# all that `str.splitlines` splits at: a model may write any of them
_LINE_BREAK = re.compile(r"\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_JSON_BREAK = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


@dataclass(frozen=True, slots=True)
class Line:
    """One parsed line of a view."""

    kind: str
    text: str
    ref: str | None = None
    name: str | None = None


def fence(text: str) -> str:
    """Break tags that could close one of our sections. The text stays readable."""
    return _OUR_TAG.sub("\u2039", text)


def _line(kind: str, text: str, *, ref: str | None = None, name: str | None = None) -> str:
    body = _LINE_BREAK.sub("\n", fence(text)).replace("\n", f"\n{INDENT}")
    safe_name = f" {re.sub(r'[^A-Za-z0-9_.-]', '_', name)[:80]}" if name else ""
    return f"{f'[{ref}] ' if ref else ''}{kind}{safe_name}: {body}"


def _arguments(call: ToolUse) -> str:
    """The arguments as one line of JSON."""
    return json.dumps(call.arguments, ensure_ascii=False, sort_keys=True).translate(_JSON_BREAK)


def _target_lines(message: Message) -> list[str]:
    ref = message.ref
    if message.role == "assistant":
        kind = "PREFILL" if message.prefill else "TARGET"
        lines = [_line(kind, message.text, ref=ref)] if message.text or not message.tool_calls else []
        return lines + [_line("TARGET CALLS", _arguments(call), ref=ref, name=call.name) for call in message.tool_calls]
    if message.role == "tool":
        return [_line("TOOL RESULT", message.text, ref=ref, name=message.tool or "tool")]
    return [_line("SYSTEM" if message.role == "system" else "USER", message.text, ref=ref)]


def _branch_lines(branch: Branch) -> list[str]:
    lines: list[str] = []
    if branch.branched_from is not None:
        where = f"rolled back to {branch.branched_from}" if branch.branched_from else "restarted the conversation"
        lines.append(_line("NOTE", f"the auditor {where}; a new branch starts here"))
    for message in branch.messages[branch.shared :]:
        lines.extend(_target_lines(message))
    return lines


def target_lines(branches: Iterable[Branch]) -> list[str]:
    """Lines of the target's conversation, every branch in the order it was started, shared prefixes once."""
    return [line for branch in branches for line in _branch_lines(branch)]


def target_view(audit: Audit) -> str:
    """What passed between auditor and target; no auditor reasoning, no report."""
    return "\n".join(target_lines(audit.branches))


def auditor_lines(audit: Audit, *, report: bool = True) -> list[str]:
    """Lines of the auditor's side. The reply that `resume` returned is shown as the target's own message, once."""
    targets = {m.ref: m for b in audit.branches for m in b.messages if m.role == "assistant" and not m.prefill}
    lines: list[str] = []
    for message in audit.auditor_messages:
        if message.role == "assistant":
            if message.text.strip():
                lines.append(_line("AUDITOR", message.text))
            lines.extend(_line("AUDITOR CALLS", _arguments(call), name=call.name) for call in message.tool_calls)
        elif message.role == "tool":
            reply = targets.get(message.ref) if message.ref else None
            if message.error:
                lines.append(_line("ERROR", message.error, name=message.tool or "tool"))
            elif message.tool == "resume" and reply is not None:
                lines.extend(_target_lines(reply))
            else:
                lines.append(_line("RESULT", message.text, name=message.tool or "tool"))
        elif message.role == "user":
            lines.append(_line("NOTE", f"to the auditor: {message.text}"))
    if report:
        lines.append(report_line(audit))
    return lines


def report_line(audit: Audit) -> str:
    """The report as one line; an unreadable report is shown as what was written."""
    if audit.report is not None:
        return _line("REPORT", audit.report.model_dump_json().translate(_JSON_BREAK))
    return _line("NOTE", f"no readable report. What the auditor wrote: {audit.report_text}" if audit.report_text else "no report")


def auditor_view(audit: Audit, *, report: bool = True) -> str:
    """Everything the auditor wrote, called and read; its instructions (which hold the seed) left out."""
    return "\n".join(auditor_lines(audit, report=report))


def full_transcript(audit: Audit) -> str:
    """Auditor view, then the target's conversation with its branches."""
    return "\n".join([auditor_view(audit), _line("NOTE", "the target's conversation"), target_view(audit)])


def shorten(view: str, max_chars: int) -> str:
    """Keep a view under `max_chars` (at least 120) by a stated rule: long lines are cut to 2,000 characters first, then lines from the
    middle are left out. What is missing is always said in the view itself."""
    if len(view) <= max_chars:
        return view
    lines = [_cut(raw) for raw in _logical_lines(view)]
    if sum(len(line) + 1 for line in lines) <= max_chars:
        return "\n".join(lines)
    head: list[str] = []
    tail: list[str] = []
    room = max_chars - 120
    left, right = 0, len(lines) - 1
    while left <= right:
        take_head = sum(map(len, head)) <= sum(map(len, tail))
        line = lines[left] if take_head else lines[right]
        if len(line) + 1 > room:
            break
        room -= len(line) + 1
        if take_head:
            head.append(line)
            left += 1
        else:
            tail.insert(0, line)
            right -= 1
    return "\n".join([*head, _line("NOTE", f"{right - left + 1} lines from the middle of this transcript were left out for length"), *tail])


def _cut(line: str) -> str:
    if len(line) <= 2000:
        return line
    kept = line[:1900].rstrip()
    return f"{kept} [... {len(line) - len(kept)} characters left out]"


def _logical_lines(view: str) -> list[str]:
    return re.split(r"\n(?! {4})", view)


def parse_lines(text: str) -> list[Line]:
    """Inverse of the views: lines with kind, number, name and text (continuations joined)."""
    joined: list[str] = []
    for raw in text.split("\n"):
        if raw.startswith(INDENT) and joined:
            joined[-1] += "\n" + raw[len(INDENT) :]
        elif raw:
            joined.append(raw)
    lines: list[Line] = []
    for raw in joined:
        match = _LINE.match(raw)
        if match:
            lines.append(Line(match["kind"], match["text"], match["ref"], match["name"]))
    return lines


def _squash(text: str) -> str:
    # quotes are copied from a view, where our tags are broken
    return re.sub(r"\s+", " ", fence(text)).strip().strip("\"'\u201c\u201d\u2026.").lower()


def target_texts(audit: Audit) -> dict[str, str]:
    """Message number -> text that the target itself wrote, tool arguments included, prefills left out."""
    return {
        m.ref: "\n".join([m.text, *map(_arguments, m.tool_calls)])
        for b in audit.branches
        for m in b.messages
        if m.ref and m.role == "assistant" and not m.prefill
    }


def verified(quotes: Sequence[Quote], audit: Audit) -> tuple[list[Quote], list[Quote]]:
    """Split quotes into those that stand verbatim (white space and case aside) in the target's own message of that number, and the rest."""
    return split_quotes(quotes, target_texts(audit))


def split_quotes(quotes: Sequence[Quote], texts: Mapping[str, str]) -> tuple[list[Quote], list[Quote]]:
    """`verified` against any texts by number."""
    squashed = {ref: _squash(text) for ref, text in texts.items()}
    good: list[Quote] = []
    bad: list[Quote] = []
    for quote in quotes:
        wanted = _squash(quote.text)
        (good if wanted and wanted in squashed.get(quote.message, "") else bad).append(quote)
    return good, bad
