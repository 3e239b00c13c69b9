"""From the running audit to the frozen `Audit`: what is kept of the auditor's and the target's messages.

Both sides are read from the live conversation, not from the event log: the target's trajectories (one a rollback) through a thin
wrapper around the target agent, the auditor's messages from its agent state.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from inspect_ai.agent import Agent, AgentState, agent
from inspect_ai.model import ChatMessage
from inspect_petri.target import TargetContext

from ..types import Branch, Message, ToolUse

# Petri opens the result of `resume` with exactly this; the target's own text only comes after it
_RESUME_HEAD = re.compile(r"<target_response>\n\[message_id: (M\d+)\]")
_SENT_HEAD = re.compile(r"[^\n]{0,80}\[message_id: (M\d+)\]")
# other tools answer with words of the auditor's choosing, such as a tool's name
_SENDERS = ("send_message", "set_system_message", "send_tool_call_result")


class TargetCapture:
    """Keeps the message list of every trajectory that a target agent runs."""

    def __init__(self) -> None:
        self._trajectories: list[list[ChatMessage]] = []

    def wrap(self, target: Agent) -> Agent:
        """The same target agent, observed."""
        run: Any = target

        @agent(name="target")
        def observed() -> Agent:
            async def execute(state: AgentState, context: TargetContext) -> AgentState:
                # the agent changes this list in place, so the reference stays live
                self._trajectories.append(state.messages)
                return await run(state, context)

            return execute  # type: ignore[return-value]

        return observed()

    def branches(self, short_id: Callable[[str | None], str]) -> tuple[Branch, ...]:
        """The trajectories as branches; `short_id` maps a message id to the number the auditor saw."""
        branches: list[Branch] = []
        seen: list[list[ChatMessage]] = []
        for messages in self._trajectories:
            # restarted before the target read anything: nothing that a branch could be told from
            if not messages:
                continue
            shared = max((_common_prefix(messages, other) for other in seen), default=0)
            rolled_back = short_id(messages[shared - 1].id) if shared else ""
            branches.append(
                Branch(
                    messages=tuple(target_message(m, short_id) for m in messages),
                    branched_from=rolled_back if seen else None,
                    shared=shared,
                )
            )
            seen.append(messages)
        return tuple(branches)


def _common_prefix(a: Sequence[ChatMessage], b: Sequence[ChatMessage]) -> int:
    return next((i for i, (left, right) in enumerate(zip(a, b, strict=False)) if not _same(left, right)), min(len(a), len(b)))


def _same(a: ChatMessage, b: ChatMessage) -> bool:
    # a replay returns the very messages that were sent; only prefills are made anew, with an id of their own
    return a.id == b.id if not (_is_prefill(a) and _is_prefill(b)) else a.text == b.text


def _is_prefill(message: ChatMessage) -> bool:
    return bool((message.metadata or {}).get("prefill"))


def _tool_uses(message: ChatMessage) -> tuple[ToolUse, ...]:
    calls = getattr(message, "tool_calls", None) or []
    return tuple(ToolUse(name=c.function, arguments=dict(c.arguments), id=c.id, error=c.parse_error) for c in calls)


def target_message(message: ChatMessage, short_id: Callable[[str | None], str]) -> Message:
    """A message of the target's conversation, numbered as the auditor saw it."""
    error = getattr(message, "error", None)
    return Message(
        role=message.role,
        text=message.text,
        ref=short_id(message.id),
        tool_calls=_tool_uses(message),
        tool=getattr(message, "function", None),
        tool_call_id=getattr(message, "tool_call_id", None),
        error=error.message if error is not None else None,
        prefill=_is_prefill(message),
    )


def auditor_message(message: ChatMessage) -> Message:
    """A message of the auditor's side. Results of `resume` and `send_message` carry the number of the message they speak of."""
    error = getattr(message, "error", None)
    tool = getattr(message, "function", None)
    ref = None
    if message.role == "tool" and error is None and (tool == "resume" or tool in _SENDERS):
        head = (_RESUME_HEAD if tool == "resume" else _SENT_HEAD).match(message.text)
        ref = head[1] if head else None
    return Message(
        role=message.role,
        text=message.text,
        ref=ref,
        tool_calls=_tool_uses(message),
        tool=tool,
        tool_call_id=getattr(message, "tool_call_id", None),
        error=error.message if error is not None else None,
    )
