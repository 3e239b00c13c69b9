"""How a policy sees an audit: Inspect messages to tokens, sampled tokens to text and tool calls.

Two renderers implement the protocol: `policy/renderers.py` for models with a chat template, `sim/language.py` for the tiny policy.
Inspect is imported for type checking only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from inspect_ai.model import ChatMessage
    from inspect_ai.tool import ToolCall, ToolInfo

__all__ = ["Renderer"]


class Renderer(Protocol):
    """Turns a conversation into a prompt, and a sample into an assistant message.

    Tokens that were sampled are never re-encoded into others: while a conversation only grows, the prompt of a turn starts with the
    prompt and the sampled tokens of the turn before, so that consecutive turns merge into one training segment.
    """

    @property
    def stop(self) -> list[int]:
        """Tokens that end a turn. The stop token is part of the sample."""
        ...

    def prompt(self, messages: Sequence[ChatMessage], tools: Sequence[ToolInfo]) -> list[int]:
        """Tokens that the policy reads before its next turn."""
        ...

    def parse(self, tokens: Sequence[int], messages: Sequence[ChatMessage]) -> tuple[str, list[ToolCall]]:
        """Text and tool calls of a sampled turn.

        `messages` is the conversation that `prompt` was made from: a renderer may need it to complete what the policy says in short (the
        first turn, quotes of a report). Malformed samples don't raise: they become plain text, or a call with `parse_error`.
        """
        ...
