"""Shortening an audit for judges that read messages and not one of our views (Petri's).

The rule is that of `audit.transcript.shorten`: long messages are cut first, then messages from the middle are left out, and what is
missing is said where it is missing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ..types import Audit, Branch, Message

LONG = 2000
"""Characters from which a message is cut when the conversation is too long."""
_HEADER = 20
"""What a message's number and role take, about."""

Key = tuple[int, int]
"""Branch and position of a message where it first appears."""


def shorten_branches(audit: Audit, max_chars: int) -> Audit:
    """The audit with a target conversation of at most about `max_chars` characters, itself if it fits.

    Messages that a branch starts from are kept, so that a rollback still leads somewhere; first and last messages go last.
    """
    if _total(audit.branches) <= max_chars:
        return audit
    branches = [branch.model_copy(update={"messages": tuple(map(_cut, branch.messages))}) for branch in audit.branches]
    if _total(branches) > max_chars:
        left_out = _middle(branches, max_chars)
        branches = [_without(branches, number, left_out) for number in range(len(branches))]
    report = audit.report_text if len(audit.report_text) <= LONG else _cut_text(audit.report_text)
    return audit.model_copy(update={"branches": tuple(branches), "report_text": report})


def _size(message: Message) -> int:
    return _HEADER + len(message.text) + sum(len(json.dumps(call.arguments, ensure_ascii=False)) for call in message.tool_calls)


def _total(branches: Sequence[Branch]) -> int:
    """What is rendered: prefixes that a branch shares with another are rendered once."""
    return sum(_size(message) for branch in branches for message in branch.messages[branch.shared :])


def _cut(message: Message) -> Message:
    text = message.text if len(message.text) <= LONG else _cut_text(message.text)
    calls = tuple(call.model_copy(update={"arguments": _cut_arguments(call.arguments)}) for call in message.tool_calls)
    return message.model_copy(update={"text": text, "tool_calls": calls})


def _cut_text(text: str) -> str:
    kept = text[: LONG - 100].rstrip()
    return f"{kept} [... {len(text) - len(kept)} characters left out]"


def _cut_arguments(arguments: Mapping[str, object]) -> dict[str, object]:
    written = json.dumps(arguments, ensure_ascii=False)
    return dict(arguments) if len(written) <= LONG else {"shortened": _cut_text(written)}


def _middle(branches: Sequence[Branch], max_chars: int) -> frozenset[Key]:
    """Messages to leave out: those nearest to the middle, until the rest fits."""
    anchors = {branch.branched_from for branch in branches if branch.branched_from}
    order: list[Key] = [(b, m) for b, branch in enumerate(branches) for m in range(branch.shared, len(branch.messages))]
    free = [key for key in order if branches[key[0]].messages[key[1]].ref not in anchors]
    middle = (len(free) - 1) / 2
    excess = _total(branches) - max_chars
    left_out: set[Key] = set()
    for rank in sorted(range(len(free)), key=lambda i: (abs(i - middle), i)):
        if excess <= 0 or len(free) - len(left_out) <= 2:
            break
        key = free[rank]
        left_out.add(key)
        excess -= _size(branches[key[0]].messages[key[1]])
    return frozenset(left_out)


def _without(branches: Sequence[Branch], number: int, left_out: frozenset[Key]) -> Branch:
    """A branch with a note in place of each run of messages that are left out, in its shared prefix too."""
    branch = branches[number]
    note = f"[messages are left out here for length: {len(left_out)} in all, from the middle of this conversation]"
    lost = {branches[b].messages[m].ref or key_name(b, m) for b, m in left_out}
    messages: list[Message] = []
    shared, gap = 0, False
    for position, message in enumerate(branch.messages):
        name = message.ref or key_name(number, position)
        if name in lost:
            if not gap:
                # numbered after the first message that it stands for, so that a shared note is shared
                messages.append(Message(role="user", text=note, ref=f"{name}-left-out"))
            gap = True
        else:
            messages.append(message)
            gap = False
        if position < branch.shared:
            shared = len(messages)
    return branch.model_copy(update={"messages": tuple(messages), "shared": shared})


def key_name(branch: int, position: int) -> str:
    """What stands for the number of a message that has none."""
    return f"b{branch}-{position}"
