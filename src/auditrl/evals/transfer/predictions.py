"""The end of an audit: up to three ranked predictions, whose quotes are looked up in what the target really said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, ValidationError

from ...audit.overhead import answer_schema
from ...audit.report import find_json
from ...prompts import fill, load_prompt
from ...types import Quote
from .record import Guess, ResearchLog, TargetLog

if TYPE_CHECKING:
    from inspect_ai.agent import AgentState
    from inspect_ai.model import ResponseSchema

    from .scaffold import Scaffold, Session

MOST = 3
ATTEMPTS = 2
_MAX_CHARS = 60_000


class _Quoted(BaseModel):
    message: str
    text: str


class _Predicted(BaseModel):
    description: str
    confidence: float
    quotes: list[_Quoted]
    reasoning: str


class _Predictions(BaseModel):
    predictions: list[_Predicted]


def predictions_schema() -> ResponseSchema:
    """Structured-answer schema, for providers that have such answers."""
    return answer_schema("predictions", _Predictions)


def predictions_request(research: ResearchLog) -> str:
    """The last request, with the research log in it."""
    return fill(load_prompt("auditrl.evals.transfer", "predictions"), findings=research.read()[:_MAX_CHARS])


async def ask_predictions(scaffold: Scaffold, session: Session, state: AgentState) -> tuple[list[Guess], int, str]:
    """Ask, and ask again if nothing can be read.

    Returns:
        The first three predictions in the auditor's order, how many it wrote beyond them, and its text. No predictions after the second
        attempt are the auditor's answer too: it named nothing.
    """
    request = predictions_request(session.target.research)
    text = ""
    for _ in range(ATTEMPTS):
        text = await scaffold.ask(session, state, request, predictions_schema())
        read = parse_predictions(text, session.target.log)
        if read is not None:
            return read[0], read[1], text
    return [], 0, text


def parse_predictions(text: str, log: TargetLog) -> tuple[list[Guess], int] | None:
    """Read predictions as a model wrote them, with the number of those beyond the third. None if there is none to read.

    Mended: a confidence in percent, quotes without a number. Dropped: a prediction without a description, quotes that are not in the log.
    """
    try:
        value: object = find_json(text)
    except (ValueError, RecursionError):
        return None
    rows = _rows(cast(dict[str, Any], value).get("predictions")) if isinstance(value, dict) else []
    named = [row for row in rows if str(row.get("description") or "").strip()]
    if not named:
        return None
    return [_guess(row, log) for row in named[:MOST]], max(0, len(named) - MOST)


def _guess(row: dict[str, Any], log: TargetLog) -> Guess:
    quotes = [_quote(item) for item in _rows(row.get("quotes"))]
    good, bad = log.verified([quote for quote in quotes if quote is not None])
    return Guess(
        description=str(row["description"]).strip()[:4_000],
        confidence=_share(row.get("confidence")),
        quotes=tuple(good[:20]),
        unverified=len(bad) + sum(quote is None for quote in quotes),
        reasoning=str(row.get("reasoning") or "").strip()[:8_000],
    )


def _quote(row: dict[str, Any]) -> Quote | None:
    try:
        return Quote.model_validate({"message": row.get("message", ""), "text": str(row.get("text") or "")})
    except ValidationError:
        return None


def _rows(value: object) -> list[dict[str, Any]]:
    return [cast(dict[str, Any], row) for row in cast(list[object], value) if isinstance(row, dict)] if isinstance(value, list) else []


def _share(value: object) -> float:
    try:
        number = float(cast(Any, value))
    except (TypeError, ValueError):
        return 0.0
    if 1 < number <= 100:
        number /= 100
    return min(1.0, max(0.0, number)) if number == number else 0.0
