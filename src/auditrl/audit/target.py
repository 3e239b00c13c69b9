"""Targets: planted, persona-only and clean.

The hidden block is added inside the model's provider, below Inspect's event layer: the target model reads it, but the events that
logs, judges, the realism filter and the auditor read never hold it. Three ways out are closed here: the provider's raw call is taken off
the event, errors are scrubbed (Petri tells the auditor what failed, Inspect logs it), and the target's private reasoning is dropped.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .context import current_audit

if TYPE_CHECKING:
    from inspect_ai.model import ChatMessage, GenerateConfig, Model, ModelOutput
    from inspect_ai.tool import ToolChoice, ToolInfo

WITHHELD = "[withheld]"
_QUOTATION = 24


def with_generate(model: Model, generate: Callable[..., Any]) -> Model:
    """A copy of the model with another way to its provider: same client, name, role and settings. Takes what `ModelAPI.generate` takes."""
    api = copy.copy(model.api)
    object.__setattr__(api, "generate", generate)
    changed = copy.copy(model)
    changed.api = api
    return changed


def with_hidden_block(model: Model, block: str | None, *, keep_reasoning: bool = False) -> Model:
    """A model that reads `block` before whatever system message it is given.

    Args:
        model: The target model; it is left unchanged and its client is shared.
        block: Hidden text, or None for a clean target (which gets the same wrapper, so that nothing else differs).
        keep_reasoning: Keep the target's reasoning in its output. Off by default: a planted target reasons about its instruction.
    """
    inner = model.api.generate
    hidden = _Hidden(block)
    failed: list[ChatMessage] | None = None

    async def generate(input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig) -> ModelOutput:
        nonlocal failed
        context = current_audit()
        # Inspect repeats a failed call with the very same list: an earlier failure then was not the last word
        if context is not None and failed is input:
            context.target_errors.pop()
        failed = None
        try:
            result = await inner(_with_block(input, hidden.text), tools, tool_choice, config)
            output = result[0] if isinstance(result, tuple) else result
            if isinstance(output, Exception):
                raise output
        except asyncio.CancelledError:
            # so Inspect ends an attempt that takes too long; whatever else cancels a call ends its audit, which then leaves no record
            if context is not None and config.attempt_timeout is not None:
                failed = input
                context.target_errors.append(f"TimeoutError: no answer within {config.attempt_timeout} s")
            raise
        except Exception as error:
            _scrub_error(error, hidden.text)
            if context is not None:
                failed = input
                context.target_errors.append(f"{type(error).__name__}: {error}")
            raise
        finally:
            _forget_raw_call(hidden.text)
        if context is not None and output.usage is not None:
            context.add_usage("target", output.usage)
        if not keep_reasoning:
            _drop_reasoning(output)
        return output

    return with_generate(model, generate)


class _Hidden:
    """Text that no rendering of local variables shows."""

    def __init__(self, text: str | None) -> None:
        self.text = text

    def __repr__(self) -> str:
        return WITHHELD


def _forget_raw_call(block: str | None) -> None:
    """Take the provider's request off the event of the running call: providers hang it there, block included, before they send it.

    `run_audits` doesn't log raw calls in the first place; this is for evaluations with other settings, where Inspect has by now moved
    the request's long texts to the sample's attachments.
    """
    from inspect_ai.event import ModelEvent
    from inspect_ai.log import transcript

    log = transcript()
    for event in reversed(log.events):
        if isinstance(event, ModelEvent):
            if not event.pending:
                break
            event.call = None
    for key in [key for key, text in log.attachments.items() if scrub(text, block) != text]:
        del log.attachments[key]


def _with_block(messages: list[ChatMessage], block: str | None) -> list[ChatMessage]:
    from inspect_ai.model import ChatMessageSystem

    if block is None:
        return messages
    if messages and isinstance(messages[0], ChatMessageSystem):
        system = ChatMessageSystem(content=f"{block}\n\n{messages[0].text}")
        return [system, *messages[1:]]
    return [ChatMessageSystem(content=block), *messages]


def scrub(text: str, block: str | None) -> str:
    """Replace by `[withheld]` whatever a text quotes from the hidden block, in part or whole, plain or escaped as in JSON or a `repr`.

    A quotation is a run of at least 24 characters (or the whole block, if it is shorter).
    """
    if not block:
        return text
    width = min(_QUOTATION, len(block))
    spellings = {block, repr(block)[1:-1], json.dumps(block)[1:-1], json.dumps(block, ensure_ascii=False)[1:-1]}
    quoted = {s[i : i + width] for s in spellings for i in range(len(s) - width + 1)}
    kept: list[str] = []
    done = run_end = 0
    for i in range(len(text) - width + 1):
        if text[i : i + width] in quoted:
            if i > run_end or not kept:
                kept += [text[done:i], WITHHELD]
            done = run_end = i + width
    return "".join([*kept, text[done:]])


def _scrub_error(error: BaseException, block: str | None) -> None:
    """Scrub an error and everything it refers to, in place: both its text and what log and auditor may be shown of it."""
    if not block:
        return
    seen: set[int] = set()
    queue: list[BaseException | None] = [error]
    while queue:
        current = queue.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        queue += [current.__cause__, current.__context__]
        if isinstance(current, BaseExceptionGroup):
            queue += current.exceptions
        for name, value in list(vars(current).items()):
            clean = _scrubbed(value, block)
            if clean is not value:
                setattr(current, name, clean)
        current.args = tuple(_scrubbed(arg, block) for arg in current.args)
        if scrub(str(current), block) != str(current):
            current.args = (scrub(str(current), block),)
        if os.environ.get("INSPECT_TRACEBACK_LOCALS") == "1":
            # the frames of the provider hold the request, and Inspect would render them
            current.__traceback__ = None


def _scrubbed(value: Any, block: str) -> Any:
    """`value` with the block withheld; the same object where it does not occur. Other objects than text and plain data go whole."""
    if isinstance(value, str):
        clean: Any = scrub(value, block)
    elif isinstance(value, bytes):
        clean = scrub(value.decode("utf-8", "replace"), block).encode()
    elif isinstance(value, dict):
        clean = {key: _scrubbed(item, block) for key, item in value.items()}
    elif isinstance(value, list | tuple):
        clean = type(value)([_scrubbed(item, block) for item in value])
    else:
        return WITHHELD if scrub(repr(value), block) != repr(value) else value
    return value if clean == value else clean


def _drop_reasoning(output: ModelOutput) -> None:
    from inspect_ai.model import ContentReasoning

    for choice in output.choices:
        content = choice.message.content
        if isinstance(content, list):
            choice.message.content = [part for part in content if not isinstance(part, ContentReasoning)]
