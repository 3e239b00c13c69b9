"""Restoring a moment in the middle of an audit by replay (Rosu & Wang 2026, crux evaluation).

Petri's trajectories cannot be serialised, but an audit is a function of what its two models said: the recorded turns of the auditor are
given back through Petri's `generate` hook, the recorded replies of the target through its provider, and the tools between them run again.
Rollbacks, restarts, tool results and refused calls come out as they did; then both models go live. Every reply is given only if the
conversation before it is the recorded one, and the auditor goes live only if it sees what was recorded: anything else is refused.

What a record does not hold is not restored: private reasoning of the auditor, and content that is not text.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..types import Audit, Branch, Message

if TYPE_CHECKING:
    from inspect_ai.model import CachePolicy, ChatMessage, GenerateConfig, Model, ModelOutput
    from inspect_ai.tool import Tool, ToolCall, ToolChoice, ToolInfo
    from inspect_petri import AuditorGenerate

MEND = "build the cruxes again from audits of this version, with the audit settings that those audits had"


class ReplayMismatch(ConfigError):
    """A replay that does not come out as it was recorded. Exit code 2."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A recorded reply of the target and the conversation that it answered."""

    message: Message
    context: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Recording:
    """The first `turns` auditor turns of an audit, and how many live ones follow."""

    auditor: tuple[Message, ...]
    """The auditor's side up to the cut: its turns and what came back."""
    replies: tuple[Reply, ...]
    live_turns: int

    @property
    def turns(self) -> int:
        """Recorded auditor turns."""
        return sum(message.role == "assistant" for message in self.auditor)

    @property
    def max_turns(self) -> int:
        """Turns of the whole audit, recorded and live."""
        return self.turns + self.live_turns


def auditor_turns(audit: Audit) -> list[tuple[Message, ...]]:
    """The auditor's side in turns: each starts with what the auditor wrote. What stands before the first turn belongs to it."""
    starts = [i for i, message in enumerate(audit.auditor_messages) if message.role == "assistant"]
    bounds = [0, *starts[1:], len(audit.auditor_messages)] if starts else []
    return [audit.auditor_messages[a:b] for a, b in pairwise(bounds)]


def record(audit: Audit, turns: int, live_turns: int) -> Recording:
    """The state before auditor turn `turns + 1`, as something to replay.

    Raises:
        ReplayMismatch: The audit has fewer turns, or a reply that the auditor read is not in the record.
    """
    kept = auditor_turns(audit)[:turns]
    if len(kept) < turns:
        raise ReplayMismatch(f"audit {audit.id}: it has {len(kept)} auditor turns, turn {turns} can't be restored; {MEND}")
    messages = tuple(message for turn in kept for message in turn)
    spoken = _replies(audit.branches)
    refs = _refs_read(messages)
    lost = [ref for ref in refs if ref not in spoken]
    if lost:
        raise ReplayMismatch(f"audit {audit.id}: the record lacks the target's reply {lost[0]}; {MEND}")
    return Recording(messages, tuple(spoken[ref] for ref in refs), live_turns)


def cut(audit: Audit, turns: int) -> Audit:
    """The first `turns` auditor turns as an audit of its own, without a report: what a judge of the prefix reads."""
    messages = tuple(message for turn in auditor_turns(audit)[:turns] for message in turn)
    read = set(_refs_read(messages))
    branches: list[Branch] = []
    for branch in audit.branches:
        last = max((i for i, m in enumerate(branch.messages) if i >= branch.shared and m.ref in read), default=None)
        if last is not None:
            branches.append(branch.model_copy(update={"messages": branch.messages[: last + 1]}))
    changes = {
        "auditor_messages": messages,
        "branches": tuple(branches),
        "report": None,
        "report_text": "",
        "turns": turns,
        "target_turns": len(read),
        "usage": {},
    }
    return audit.model_copy(update=changes)


def difference(restored: Audit, prefix: Audit) -> str | None:
    """Where a replay without live turns differs from the recorded prefix (`cut`), None if it does not.

    The auditor's side must be equal, message numbers included. Of the target's side the branches with a reply are compared; the numbers
    of prefills are left out, as they are only given when somebody first reads them.
    """
    if restored.error is not None:
        return restored.error
    if restored.auditor_messages != prefix.auditor_messages:
        return _first_difference(restored.auditor_messages, prefix.auditor_messages)
    for number, (left, right) in enumerate(zip(_replied(restored), _replied(prefix), strict=False), start=1):
        if [_plain(m) for m in left] != [_plain(m) for m in right]:
            return f"branch {number} of the target's conversation differs"
    if len(_replied(restored)) != len(_replied(prefix)):
        return f"the target's conversation has {len(_replied(restored))} branches with a reply, {len(_replied(prefix))} are recorded"
    return None


def _replied(audit: Audit) -> list[tuple[Message, ...]]:
    return [b.messages for b in audit.branches if any(m.role == "assistant" and not m.prefill for m in b.messages[b.shared :])]


def _plain(message: Message) -> Message:
    return message.model_copy(update={"ref": None}) if message.prefill else message


def _refs_read(messages: Iterable[Message]) -> list[str]:
    return [m.ref for m in messages if m.role == "tool" and m.tool == "resume" and m.ref and not m.error]


def _replies(branches: Iterable[Branch]) -> dict[str, Reply]:
    """Replies by message number, each in the branch in which it was given."""
    found: dict[str, Reply] = {}
    for branch in branches:
        for i, message in enumerate(branch.messages):
            if i >= branch.shared and message.role == "assistant" and not message.prefill and message.ref:
                found.setdefault(message.ref, Reply(message, branch.messages[:i]))
    return found


@dataclass(slots=True)
class Replay:
    """One replay of a recording; holds how far it is. Outputs are made anew for each replay, because Petri changes them in place."""

    recording: Recording
    _turn: int = 0
    _reply: int = 0
    _problem: str | None = None
    _turns: tuple[Message, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._turns = tuple(m for m in self.recording.auditor if m.role == "assistant")

    def auditor(self, live: AuditorGenerate) -> AuditorGenerate:
        """Petri's hook: recorded turns first, then `live`. Raises ReplayMismatch instead of going live from another state."""

        async def generate(model: Model, messages: list[ChatMessage], tools: list[Tool], cache: bool | CachePolicy) -> ModelOutput:
            if self._turn > len(self._turns):
                return await live(model, messages, tools, cache)
            self._turn += 1
            if self._problem is None and self._turn <= len(self._turns):
                return _output(self._turns[self._turn - 1])
            # the first two messages are instructions, which name other turn limits
            self.check(messages[2:])
            return await live(model, messages, tools, cache)

        return generate

    def target(self, model: Model) -> Model:
        """The target: recorded replies first, then the model."""
        from inspect_ai.model import Model

        api = copy.copy(model.api)
        inner = model.api.generate

        async def generate(
            input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
        ) -> ModelOutput | tuple[ModelOutput | Exception, object]:
            if self._reply == len(self.recording.replies):
                return await inner(input, tools, tool_choice, config)
            reply = self.recording.replies[self._reply]
            self._reply += 1
            # an error raised here would only be told to the auditor as a failure of the target: the hook raises it
            if self._problem is None and not _same_context(input, reply.context):
                self._problem = f"the conversation before the target's reply {reply.message.ref} is another one"
            return _output(reply.message)

        object.__setattr__(api, "generate", generate)
        return Model(api, model.config, model.model_args)

    def check(self, messages: Sequence[ChatMessage]) -> None:
        """Compare the restored state with the recorded one. `messages`: the auditor's side without its instructions."""
        from .capture import auditor_message

        restored = tuple(auditor_message(message) for message in messages)
        if self._problem is None and self._reply < len(self.recording.replies):
            self._problem = f"the target was asked {self._reply} times, {len(self.recording.replies)} replies are recorded"
        if self._problem is None and restored != self.recording.auditor:
            self._problem = _first_difference(restored, self.recording.auditor)
        if self._problem is not None:
            raise ReplayMismatch(f"the restored state is not the recorded one: {self._problem}. Mend: {MEND}")


def _output(message: Message) -> ModelOutput:
    """A model output that says what was recorded; a new object each time."""
    from inspect_ai.model import ChatMessageAssistant, ModelOutput

    return ModelOutput.from_message(ChatMessageAssistant(content=message.text, tool_calls=_calls(message), source="generate"))


def _calls(message: Message) -> list[ToolCall] | None:
    from inspect_ai.tool import ToolCall

    made = [ToolCall(id=c.id, function=c.name, arguments=copy.deepcopy(c.arguments), parse_error=c.error) for c in message.tool_calls]
    return made or None


def _same_context(given: Sequence[ChatMessage], recorded: Sequence[Message]) -> bool:
    """Whether the target is asked in the recorded conversation. The system message may have a hidden block before it."""
    from .capture import target_message

    now = [target_message(message, lambda _: "") for message in given]
    system = [m.text for m in now if m.role == "system"]
    wanted = [m.text for m in recorded if m.role == "system"]
    if wanted and not (system and system[-1].endswith(wanted[-1])):
        return False
    return _spoken(now) == _spoken(recorded)


def _spoken(messages: Iterable[Message]) -> list[tuple[object, ...]]:
    """What was said, by whom. Neighbours of one role are one, as some providers join them; white space and numbers don't count."""
    rest = [m for m in messages if m.role != "system"]
    spoken: list[tuple[object, ...]] = []
    for role, group in groupby(rest, key=lambda m: m.role):
        members = list(group)
        calls = [(c.name, c.id, repr(sorted(c.arguments.items()))) for m in members for c in m.tool_calls]
        answered = [(m.tool_call_id, m.error) for m in members if m.role == "tool"]
        spoken.append((role, " ".join(" ".join(m.text for m in members).split()), tuple(calls), tuple(answered)))
    return spoken


def _first_difference(restored: Sequence[Message], recorded: Sequence[Message]) -> str:
    for number, (left, right) in enumerate(zip(restored, recorded, strict=False), start=1):
        if left != right:
            name = f" of {right.tool}" if right.tool else ""
            return f"message {number} of the auditor's side ({right.role}{name}) differs"
    return f"the auditor's side has {len(restored)} messages, {len(recorded)} are recorded"
