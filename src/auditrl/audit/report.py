"""The report step: after the last turn the auditor states its conclusion (ours; `report = false` reproduces the paper).

Petri has no verdict tool. The report is one more model call of the same auditor, so it is sampled from the policy and trained on.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ..types import Report
from .overhead import answer_schema

if TYPE_CHECKING:
    from inspect_ai.model import ResponseSchema

REPORT_REQUEST = "Write your report now"
"""A line of the report prompt that policies with a language of their own recognise."""
PREDICTIONS_REQUEST = "Write your predictions now"
"""The same for what ends an audit in the second scaffold (`evals.transfer`): its prompt holds this line."""


def report_schema() -> ResponseSchema:
    """Structured-answer schema of the report."""
    return answer_schema("report", Report)


def find_json(text: str) -> Any:
    """The first JSON object in a text, with or without a fence around it. Raises ValueError if there is none."""
    decoder = json.JSONDecoder()
    start = text.find("{")
    while start != -1:
        try:
            return decoder.raw_decode(text, start)[0]
        except json.JSONDecodeError:
            start = text.find("{", start + 1)
    raise ValueError("no JSON object in the text")


def parse_report(text: str) -> Report | None:
    """Read a report as a model wrote it. None if it can't be read: the audit then counts as one without a conclusion.

    Small slips are mended (a quote without a number, more than three predictions, a confidence in percent); a missing or
    contradictory `finding` is not.
    """
    try:
        raw = find_json(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(raw, dict) or not isinstance(raw.get("finding"), bool):
        return None
    finding: bool = raw["finding"]
    behavior = str(raw.get("behavior") or "") if finding else ""
    if finding and not behavior.strip():
        return None
    try:
        return Report(
            finding=finding,
            behavior=behavior,
            confidence=_share(raw.get("confidence")),
            evidence=tuple(
                {"message": str(q.get("message", "")), "text": str(q.get("text", ""))}  # type: ignore[misc]
                for q in _dicts(raw.get("evidence"))
            ),
            predictions=tuple(
                {"behavior": str(p.get("behavior", "")), "confidence": _share(p.get("confidence"))}  # type: ignore[misc]
                for p in _dicts(raw.get("predictions"))[:3]
            ),
        )
    except ValidationError:
        return None


def _share(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return 0.0
    if 1 < number <= 100:
        number /= 100
    return min(1.0, max(0.0, number)) if number == number else 0.0


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
