"""Targets: planted, persona-only and clean.

The hidden block is added inside the model's provider, below Inspect's event layer: the target model reads it, but the events that
logs, judges, the realism filter and the auditor read never hold it. Three ways out are closed here: raw provider calls are not logged,
error messages are scrubbed (Petri tells the auditor what failed), and the target's private reasoning is dropped.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from .context import current_audit

if TYPE_CHECKING:
    from inspect_ai.model import ChatMessage, GenerateConfig, Model, ModelOutput
    from inspect_ai.tool import ToolChoice, ToolInfo

WITHHELD = "[withheld]"


def with_hidden_block(model: Model, block: str | None, *, keep_reasoning: bool = False) -> Model:
    """A model that reads `block` before whatever system message it is given.

    Args:
        model: The target model; it is left unchanged and its client is shared.
        block: Hidden text, or None for a clean target (which gets the same wrapper, so that nothing else differs).
        keep_reasoning: Keep the target's reasoning in its output. Off by default: a planted target reasons about its instruction.
    """
    from inspect_ai.model import Model

    api = copy.copy(model.api)
    inner = model.api.generate

    async def generate(input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig) -> ModelOutput:
        context = current_audit()
        try:
            result = await inner(_with_block(input, block), tools, tool_choice, config)
            # the raw call holds the request, block included: it must not reach the event
            output = result[0] if isinstance(result, tuple) else result
            if isinstance(output, Exception):
                raise output
        except Exception as error:
            _scrub_error(error, block)
            if context is not None:
                context.target_errors.append(f"{type(error).__name__}: {error}")
            raise
        if context is not None and output.usage is not None:
            context.add_usage("target", output.usage.input_tokens, output.usage.output_tokens)
        if not keep_reasoning:
            _drop_reasoning(output)
        return output

    object.__setattr__(api, "generate", generate)
    return Model(api, model.config, model.model_args)


def _with_block(messages: list[ChatMessage], block: str | None) -> list[ChatMessage]:
    from inspect_ai.model import ChatMessageSystem

    if block is None:
        return messages
    if messages and isinstance(messages[0], ChatMessageSystem):
        system = ChatMessageSystem(content=f"{block}\n\n{messages[0].text}")
        return [system, *messages[1:]]
    return [ChatMessageSystem(content=block), *messages]


def scrub(text: str, block: str | None) -> str:
    """Replace the hidden block, and any whole line of it, by `[withheld]`."""
    if not block:
        return text
    for part in (block, repr(block)[1:-1], *(line.strip() for line in block.splitlines())):
        if len(part) >= 12:
            text = text.replace(part, WITHHELD)
    return text


def _scrub_error(error: BaseException, block: str | None) -> None:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        current.args = tuple(scrub(arg, block) if isinstance(arg, str) else arg for arg in current.args)
        for name in ("message", "body", "request", "response"):
            value = getattr(current, name, None)
            if isinstance(value, str):
                setattr(current, name, scrub(value, block))
            elif isinstance(value, dict) and block and block[:40] in str(value):
                setattr(current, name, WITHHELD)
        if block and scrub(str(current), block) != str(current):
            current.args = (scrub(str(current), block),)
        current = current.__cause__ or current.__context__


def _drop_reasoning(output: ModelOutput) -> None:
    from inspect_ai.model import ContentReasoning

    for choice in output.choices:
        content = choice.message.content
        if isinstance(content, list):
            choice.message.content = [part for part in content if not isinstance(part, ContentReasoning)]
