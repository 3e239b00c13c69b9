"""Reading the prompts that judges get: sections in tags, and Petri's own rendering of a conversation."""

from __future__ import annotations

import re
from itertools import zip_longest

from ..audit.transcript import INDENT
from ..judges.petri import REPORT_NOTE

_HEADER = re.compile(r"^\[M(?P<number>\d+)\] (?P<prefill><prefill>\n)?(?P<role>SYSTEM|USER|ASSISTANT|TOOL[^\n:]*):[ \n]?", re.MULTILINE)
_TRANSCRIPT = re.compile(r"\[BEGIN TRANSCRIPT\]\n=+\n(?P<body>.*)\n=+\n\[END TRANSCRIPT\]", re.DOTALL)
_KINDS = {"SYSTEM": "SYSTEM", "USER": "USER", "ASSISTANT": "TARGET"}


def section(prompt: str, tag: str) -> str:
    """Text between `<tag>` and `</tag>`, empty if there is none."""
    match = re.search(rf"<{tag}>\n?(.*?)\n?</{tag}>", prompt, re.DOTALL)
    return match[1] if match else ""


def petri_view(prompt: str) -> str:
    """The conversation in the prompt of Petri's judge as a target view in our own grammar.

    A header counts only with the number that is due, so that a message can't forge the next one by chance; branches, which Petri lists
    behind the conversation, are read as its continuation.
    """
    match = _TRANSCRIPT.search(prompt)
    body = match["body"] if match else prompt
    found: list[re.Match[str]] = []
    for header in _HEADER.finditer(body):
        if int(header["number"]) == len(found) + 1:
            found.append(header)
    lines: list[str] = []
    for header, following in zip_longest(found, found[1:]):
        text = body[header.end() : following.start() if following else len(body)]
        text = re.sub(r"\n--- (?:End )?Conversation Branch [^\n]*---\s*\Z", "", text.rstrip()).removesuffix("</prefill>").strip()
        kind = "PREFILL" if header["prefill"] else _KINDS.get(header["role"], "TOOL RESULT tool")
        if following is None and text.startswith(REPORT_NOTE):
            kind, text = "REPORT", text.removeprefix(REPORT_NOTE).strip()
        indented = text.replace("\n", f"\n{INDENT}")
        lines.append(f"[M{header['number']}] {kind}: {indented}")
    return "\n".join(lines)
