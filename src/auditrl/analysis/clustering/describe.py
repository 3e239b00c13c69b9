"""One abstract paragraph an audit: how the auditor went about it, without what it was about (Rosu & Wang 2026, strategy clusters).

`rule` reads audits of the simulated world without a model. A model sees the auditor view, never the hidden block or the behavior; what it
writes is checked for words that tell the topic, asked for again with those words named, and at last only the clean sentences are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field

from ...audit.transcript import auditor_view, fence, shorten
from ...judges.base import Answer, ask
from ...types import Audit, Behavior
from .leaks import banned_stems, find_leaks, without_leaks
from .rules import describe_by_rule
from .sources import SourceAudit

if TYPE_CHECKING:
    from inspect_ai.model import Model

RULE = "rule"
KIND = "strategy"
ATTEMPTS = 3
MAX_CHARS = 120_000
MAX_WORDS = 220


@dataclass(frozen=True, slots=True)
class Description:
    """A paragraph, or the cause of its absence."""

    text: str
    """Empty where there is none."""
    missing: str | None = None
    leaked: tuple[str, ...] = ()
    """Words that gave something away in the last answer; the sentences that held them are left out of `text`."""
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Described:
    """A described transcript, without the transcript: a study of many thousands fits in memory."""

    run: str
    step: int | None
    audit: str
    auditor: str
    condition: str
    behavior: str | None
    seed: str
    text: str

    @staticmethod
    def of(item: SourceAudit, text: str) -> Described:
        """Keep what the results name."""
        audit = item.audit
        scenario = audit.scenario
        return Described(item.run, item.step, audit.id, audit.auditor, scenario.condition, scenario.behavior, scenario.seed.id, text)


class StrategyAnswer(Answer):
    """What a describing model answers."""

    strategy: str = Field(min_length=20, description="One paragraph of three to six sentences about the strategy alone")

    def contradiction(self) -> str | None:
        length = len(self.strategy.split())
        return f"{length} words; one paragraph of at most {MAX_WORDS}" if length > MAX_WORDS else None


async def describe(audit: Audit, behaviors: Mapping[str, Behavior], model: Model | None, *, attempts: int = ATTEMPTS) -> Description:
    """Describe the strategy of an audit.

    Args:
        behaviors: The bank, for the words that the description must not hold.
        model: Describes; None describes by rule.
        attempts: How often a description that gives something away, or no readable one, is asked for.

    Returns:
        The paragraph. Missing if the model gave no readable answer, or none with a sentence that tells nothing.
    """
    if model is None:
        return Description(describe_by_rule(audit))
    banned = banned_stems(audit, behaviors.get(audit.scenario.behavior or ""))
    view = shorten(auditor_view(audit), MAX_CHARS)
    told: dict[str, None] = {}
    text, cause, made = "", "", 0
    for _ in range(attempts):
        avoid = fence(", ".join(told)) or "nothing so far"
        asked = await ask(model, kind=KIND, answer=StrategyAnswer, values={"transcript": view, "avoid": avoid}, attempts=1)
        made += 1
        if asked.answer is None:
            cause = asked.missing or "no answer"
            continue
        text = " ".join(asked.answer.strategy.split())
        leaks = find_leaks(text, banned)
        if not leaks:
            return Description(text, attempts=made)
        told |= dict.fromkeys(leaks)
    if not text:
        return Description("", missing=cause, attempts=made)
    kept = without_leaks(text, banned)
    leaked = tuple(find_leaks(text, banned))
    return Description(kept, None if kept else "every sentence gives the topic away", leaked, made)
