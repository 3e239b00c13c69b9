"""The nouns of a transfer audit: what passed to and from the target, the research log, the predictions, the finished audit.

The target's answers are numbered M1, M2 ... in the order in which they came, whatever tool brought them; predictions quote them by number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import Field

from ...audit.transcript import split_quotes
from ...files import write_whole
from ...types import Frozen, Quote

Kind = Literal["chat", "completion", "user", "prefill"]
"""How an answer was had: a chat reply, a raw continuation, a user's turn written by the target, a reply whose start was given."""
Stopped = Literal["budget", "idle", "turns", "context", "refused"]
"""Why an investigation ended: tokens spent, several answers without a tool call, too many turns, the auditor's context full, it refused."""


class Exchange(Frozen):
    """One answer of the target and what it answered."""

    ref: str
    kind: Kind
    asked: str
    """The user's message, the document's start, or the context."""
    answer: str
    system: str = ""
    conversation: str | None = None


class Finding(Frozen):
    """One file of the research log."""

    file: str
    title: str
    text: str


class Guess(Frozen):
    """A ranked prediction of what is hidden in the target."""

    description: str
    confidence: float = Field(ge=0, le=1)
    quotes: tuple[Quote, ...] = ()
    """Verbatim words of the target, found in the log under their number."""
    unverified: int = 0
    """Quotes that are not in the log; they were dropped."""
    reasoning: str = ""


class TransferAudit(Frozen):
    """One finished (or failed) audit of a fine-tuned target."""

    id: str
    target: str
    behavior: str
    control: bool = False
    """The base model without adapter was audited."""
    approach: str
    scaffold: str
    auditor: str
    index: int
    exchanges: tuple[Exchange, ...] = ()
    findings: tuple[Finding, ...] = ()
    guesses: tuple[Guess, ...] = Field(default=(), max_length=3)
    dropped: int = 0
    """Predictions beyond the third."""
    predictions_text: str = ""
    """What the auditor wrote, kept where it could not be read."""
    stopped: Stopped | None = None
    generated: int = 0
    """Tokens that the auditor wrote before the predictions."""
    budget: int = 0
    turns: int = 0
    notes: dict[str, int] = Field(default_factory=dict)
    """Counted mishaps: `empty_replies`, `target_failures`, `helper_failures`."""
    error: str | None = None
    usage: dict[str, dict[str, int]] = Field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether the audit did not run to its end."""
        return self.error is not None


@dataclass(slots=True)
class TargetLog:
    """What the target has said so far in this audit."""

    exchanges: list[Exchange] = field(default_factory=list[Exchange])
    notes: Counter[str] = field(default_factory=Counter[str])

    def add(self, kind: Kind, asked: str, answer: str, *, system: str = "", conversation: str | None = None) -> Exchange:
        """Number and keep an answer; an empty one is counted."""
        if not answer.strip():
            self.notes["empty_replies"] += 1
        exchange = Exchange(
            ref=f"M{len(self.exchanges) + 1}", kind=kind, asked=asked, answer=answer, system=system, conversation=conversation
        )
        self.exchanges.append(exchange)
        return exchange

    @property
    def silent(self) -> bool:
        """Whether the target was asked and never answered a word."""
        return bool(self.exchanges) and self.notes["empty_replies"] == len(self.exchanges)

    def verified(self, quotes: Sequence[Quote]) -> tuple[list[Quote], list[Quote]]:
        """Split quotes into those that stand verbatim (white space and case aside) in the answer of that number, and the rest."""
        return split_quotes(quotes, {exchange.ref: exchange.answer for exchange in self.exchanges})


MAX_FINDINGS = 200
MAX_FINDING_CHARS = 20_000


class ResearchLog:
    """The auditor's working folder: one finding a file.

    File names are made here (`003-peppy-endings.md`), never by the model; a finding is cut at `MAX_FINDING_CHARS`, and after
    `MAX_FINDINGS` none is taken. Without a folder the log is kept in memory alone.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.findings: list[Finding] = []

    def write(self, title: str, text: str) -> str:
        """Keep a finding; returns what to tell the auditor."""
        if not text.strip():
            return "Nothing was written: the text is empty."
        if len(self.findings) >= MAX_FINDINGS:
            return f"Nothing was written: the log holds {MAX_FINDINGS} findings, which is all it takes."
        name = f"{len(self.findings) + 1:03d}-{_slug(title)}.md"
        kept = text[:MAX_FINDING_CHARS]
        finding = Finding(file=name, title=" ".join(title.split())[:200], text=kept)
        self.findings.append(finding)
        if self.folder is not None:
            write_whole(self.folder / name, f"# {finding.title}\n\n{kept}\n".encode("utf-8", "replace"))
        cut = f" It was cut at {MAX_FINDING_CHARS} characters." if len(kept) < len(text) else ""
        return f"Written to {name}.{cut}"

    def read(self) -> str:
        """All findings with their file names."""
        if not self.findings:
            return "The research log is empty."
        return "\n\n".join(f"## {finding.file}: {finding.title}\n{finding.text}" for finding in self.findings)


def _slug(title: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", title.lower().encode("ascii", "ignore").decode()).strip("-")
    return plain[:40].strip("-") or "finding"
