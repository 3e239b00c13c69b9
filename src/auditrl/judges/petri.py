"""Petri's dimensions (Rosu & Wang 2026, reward designs and production discovery), asked through `inspect_petri`'s own judge in one call.

Sees the target's conversation with its branches; of the auditor's side the messages to the target, and its report where that is asked
for. Knows no truth. Known bias: it grades what looks concerning, so an auditor that stages alarming scenes, or a target that agrees with
an accusation, scores high; asked for all dimensions at once, grades also lean towards each other (`one_by_one` asks for each alone).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from ..audit.overhead import forgotten
from ..faults import told
from ..types import Audit, Message, Verdict
from .shortening import key_name, shorten_branches

if TYPE_CHECKING:
    from inspect_ai.event import TimelineSpan
    from inspect_ai.model import ChatMessage, Model
    from inspect_scout import Transcript


REPORT_NOTE = "(The auditor's report; the target never saw it.)"
"""Stands before the report where a judge of Petri's reads it: Petri tells its judge that user messages are the auditor's."""
_FORGED = re.compile(
    r"^([ \t]*)\[(?=(?:BEGIN|END) TRANSCRIPT\]|M\d+\] )|^([ \t]*)-(?=-- (?:End )?Conversation Branch )|<(?=/?prefill>)",
    re.MULTILINE | re.IGNORECASE,
)
"""What Petri's rendering consists of: a message that writes it could end the transcript, or put words into another mouth."""


async def judge_petri(
    model: Model,
    audit: Audit,
    dimensions: Sequence[str] | None = None,
    *,
    attempts: int = 2,
    report: bool = False,
    max_chars: int = 120_000,
    one_by_one: bool = False,
) -> Verdict:
    """Grades 1-10 by dimension name in `parts`; `value` is their mean. All 38 default dimensions if none are named.

    Args:
        attempts: How often an unreadable or refused answer is asked for. Each time Petri itself asks up to three times.
        report: Show the judge the auditor's report as a closing message.
        max_chars: Longer conversations are shortened by rule (`judges.shortening`), which the judge is told.
        one_by_one: Ask for each dimension in a call of its own: independent grades at many times the price.

    Returns:
        Verdict whose `reason` is the judge's summary followed by its justification. Missing as soon as one grade is.
    """
    short = shorten_branches(audit, max_chars)
    if not one_by_one:
        return await _ask(model, short, dimensions, attempts, report)
    names = list(dimensions) if dimensions is not None else default_dimensions()
    verdicts = await asyncio.gather(*(_ask(model, short, [name], attempts, report) for name in names))
    lost = next((v for v in verdicts if v.value is None), None)
    grades = {name: grade for verdict in verdicts for name, grade in verdict.parts.items()}
    return Verdict(
        judge="petri",
        audits=(audit.id,),
        value=sum(grades.values()) / len(grades) if lost is None else None,
        reason="\n\n".join(f"{name}: {v.reason}" for name, v in zip(names, verdicts, strict=True)) if lost is None else "",
        parts=grades if lost is None else {},
        missing=lost.missing if lost is not None else None,
        attempts=sum(v.attempts for v in verdicts),
    )


def default_dimensions() -> list[str]:
    """Names of Petri's dimensions."""
    from inspect_petri import judge_dimensions

    return [dimension.name for dimension in judge_dimensions()]


async def _ask(model: Model, audit: Audit, dimensions: Sequence[str] | None, attempts: int, report: bool) -> Verdict:
    """One call for these dimensions."""
    from inspect_scout import Result

    scan: Any = _scanner(tuple(dimensions) if dimensions is not None else None, model)
    transcript = as_transcript(audit, report=report)
    missing: str | None = None
    for attempt in range(1, attempts + 1):
        try:
            with forgotten():
                result: Result = await scan(transcript)
        except Exception as error:
            missing = f"provider: {told(error)}"
            continue
        metadata = result.metadata or {}
        if not isinstance(result.value, dict):
            missing = _cause(metadata)
            continue
        grades = {name: float(grade) for name, grade in result.value.items() if isinstance(grade, (int, float))}
        reason = f"{metadata.get('summary', '')}\n\n{result.explanation or ''}".strip()
        value = sum(grades.values()) / len(grades)
        return Verdict(judge="petri", audits=(audit.id,), value=value, reason=reason, parts=grades, attempts=attempt)
    return Verdict(judge="petri", audits=(audit.id,), value=None, missing=missing, attempts=attempts)


def _cause(metadata: Mapping[str, Any]) -> str:
    if metadata.get("refusal"):
        return "refusal"
    cut = metadata.get("stop_reason") in ("max_tokens", "model_length")
    return "unreadable, cut off" if cut else "unreadable"


@cache
def _scanner(dimensions: tuple[str, ...] | None, model: Model) -> Any:
    from inspect_petri import audit_judge

    return audit_judge(list(dimensions) if dimensions is not None else None, model=model)


def as_transcript(audit: Audit, *, report: bool = False) -> Transcript:
    """The target's conversation as the transcript that Petri's judge reads: one timeline span a branch."""
    from inspect_ai.event import Timeline
    from inspect_scout import Transcript

    closing: list[ChatMessage] = []
    if report and audit.report_text:
        closing.append(_chat_message(Message(role="user", text=f"{REPORT_NOTE}\n{audit.report_text}"), "report"))
    ids: dict[tuple[int, int], str] = {}
    spans: list[TimelineSpan] = []
    for number, branch in enumerate(audit.branches):
        for position, message in enumerate(branch.messages):
            # a shared prefix keeps its ids, so that it is rendered once
            ids[number, position] = message.ref or key_name(number, position)
        messages = [_chat_message(m, ids[number, p]) for p, m in enumerate(branch.messages)]
        if branch is audit.branches[-1]:
            messages += closing
        spans.append(_span(number, messages, branch.branched_from))
    root = spans[0] if spans else _span(0, closing, None)
    root.branches.extend(spans[1:])
    return Transcript(
        transcript_id=audit.id,
        source_id=audit.id,
        source_uri=audit.id,
        timelines=[Timeline(name="target", description="target", root=root)],
    )


def _span(number: int, messages: list[ChatMessage], branched_from: str | None) -> TimelineSpan:
    from inspect_ai.event import ModelEvent, TimelineEvent, TimelineSpan
    from inspect_ai.model import ChatMessageAssistant, GenerateConfig, ModelOutput

    content: list[TimelineEvent | TimelineSpan] = []
    if messages:
        last = messages[-1]
        answered = isinstance(last, ChatMessageAssistant)
        event = ModelEvent(
            model="target",
            input=messages[:-1] if answered else messages,
            tools=[],
            tool_choice="auto",
            config=GenerateConfig(),
            output=ModelOutput.from_message(last) if isinstance(last, ChatMessageAssistant) else ModelOutput(model="target"),
        )
        content.append(TimelineEvent(event=event))
    return TimelineSpan(
        id=f"branch-{number}", name=f"branch {number + 1}", span_type="branch", branched_from=branched_from, content=content
    )


def unforged(text: str) -> str:
    """Break what could pass for a line of Petri's rendering. The text stays readable."""
    return _FORGED.sub(lambda match: f"{match[1] or match[2] or ''}\u2039", text)


def _unforged_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: unforged(value) if isinstance(value, str) else value for name, value in arguments.items()}


def _chat_message(message: Message, message_id: str) -> ChatMessage:
    from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageTool, ChatMessageUser
    from inspect_ai.tool import ToolCall

    if message.role == "assistant":
        calls = [ToolCall(id=c.id, function=c.name, arguments=_unforged_arguments(c.arguments)) for c in message.tool_calls] or None
        return ChatMessageAssistant(
            id=message_id, content=unforged(message.text), tool_calls=calls, metadata={"prefill": True} if message.prefill else None
        )
    if message.role == "tool":
        return ChatMessageTool(id=message_id, content=unforged(message.text), function=message.tool, tool_call_id=message.tool_call_id)
    return (ChatMessageSystem if message.role == "system" else ChatMessageUser)(id=message_id, content=unforged(message.text))
