"""Petri's dimensions (spec section 5, reward 1; section 6, production), asked through `inspect_petri`'s own judge in one call.

Sees the target's conversation with its branches and nothing of the auditor's side. Known bias: it grades what looks concerning, so an
auditor that stages alarming scenes, or a target that agrees with an accusation, scores high.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from ..types import Audit, Message, Verdict

if TYPE_CHECKING:
    from inspect_ai.event import TimelineSpan
    from inspect_ai.model import ChatMessage, Model
    from inspect_scout import Transcript


async def judge_petri(model: Model, audit: Audit, dimensions: Sequence[str] | None = None, *, attempts: int = 2) -> Verdict:
    """Grades 1-10 by dimension name in `parts`; `value` is their mean. All 38 default dimensions if none are named.

    `reason` is the judge's summary followed by its justification.
    """
    from inspect_scout import Result

    scan: Any = _scanner(tuple(dimensions) if dimensions is not None else None, model)
    transcript = as_transcript(audit)
    missing: str | None = None
    for attempt in range(1, attempts + 1):
        try:
            result: Result = await scan(transcript)
        except Exception as error:
            missing = f"provider: {type(error).__name__}: {str(error)[:200]}"
            continue
        metadata = result.metadata or {}
        if isinstance(result.value, dict):
            grades = {name: float(grade) for name, grade in result.value.items() if isinstance(grade, (int, float))}
            reason = f"{metadata.get('summary', '')}\n\n{result.explanation or ''}".strip()
            return Verdict(
                judge="petri", audits=(audit.id,), value=sum(grades.values()) / len(grades), reason=reason, parts=grades, attempts=attempt
            )
        missing = "refusal" if metadata.get("refusal") else "unreadable"
    return Verdict(judge="petri", audits=(audit.id,), value=None, missing=missing, attempts=attempts)


@cache
def _scanner(dimensions: tuple[str, ...] | None, model: Model) -> Any:
    from inspect_petri import audit_judge

    return audit_judge(list(dimensions) if dimensions is not None else None, model=model)


def as_transcript(audit: Audit) -> Transcript:
    """The target's conversation as the transcript that Petri's judge reads: one timeline span a branch."""
    from inspect_ai.event import Timeline
    from inspect_scout import Transcript

    ids: dict[tuple[int, int], str] = {}
    spans: list[TimelineSpan] = []
    for number, branch in enumerate(audit.branches):
        for position, message in enumerate(branch.messages):
            # a shared prefix keeps its ids, so that it is rendered once
            ids[number, position] = message.ref or f"b{number}-{position}"
        messages = [_chat_message(m, ids[number, p]) for p, m in enumerate(branch.messages)]
        spans.append(_span(number, messages, branch.branched_from))
    root = spans[0] if spans else _span(0, [], None)
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


def _chat_message(message: Message, message_id: str) -> ChatMessage:
    from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageTool, ChatMessageUser
    from inspect_ai.tool import ToolCall

    if message.role == "assistant":
        calls = [ToolCall(id=c.id, function=c.name, arguments=c.arguments) for c in message.tool_calls] or None
        return ChatMessageAssistant(
            id=message_id, content=message.text, tool_calls=calls, metadata={"prefill": True} if message.prefill else None
        )
    if message.role == "tool":
        return ChatMessageTool(id=message_id, content=message.text, function=message.tool, tool_call_id=message.tool_call_id)
    return (ChatMessageSystem if message.role == "system" else ChatMessageUser)(id=message_id, content=message.text)
