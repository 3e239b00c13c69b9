"""Judge prompts that providers' caches can serve.

A provider serves the beginning of a prompt from its cache if an earlier call began with the very same tokens and has been read by then.
Three things follow. A prompt holds first what most calls share: rules, hidden behavior, seed, then the audit in slot A. A line
`<!-- cache -->` in a prompt file says where such a part ends, for providers that cache up to marks only. And calls that begin alike must
not all be sent at once: the first goes ahead, the rest follow when it is answered (`Following`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..prompts import fill

if TYPE_CHECKING:
    from inspect_ai.model import Content, Model

MARK = "\n<!-- cache -->\n"
MARKING = ("anthropic", "openai", "openrouter")
"""Providers to which Inspect passes marks on, or (OpenRouter, for Claude) a mark of its own before the last part of a message. Others get
one text: not every server takes a message in parts."""


def material(template: str, values: dict[str, str], model: Model) -> str | list[Content]:
    """The user message of a judge: the filled template, in parts that end at the marks where the provider takes marks."""
    from inspect_ai.model import ContentText, ModelName

    parts = [fill(part, **values) for part in template.split(MARK)]
    if len(parts) == 1 or ModelName(model).api not in MARKING:
        return "\n".join(parts)
    return [*(ContentText(text=f"{part}\n", cache_breakpoint=True) for part in parts[:-1]), ContentText(text=parts[-1])]


@dataclass(slots=True)
class Following:
    """Lets the first of several calls with the same beginning go ahead, and holds the others back until it is over.

    It costs the time of one call, and is over when that call has failed too.
    """

    _over: dict[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])

    @asynccontextmanager
    async def turn(self, beginning: str) -> AsyncGenerator[None]:
        """Entered around one call that begins as every other of this name does."""
        first = self._over.get(beginning)
        if first is not None:
            await first.wait()
            yield
            return
        over = self._over[beginning] = asyncio.Event()
        try:
            yield
        finally:
            over.set()

    def forget(self) -> None:
        """Start anew: whatever has been read so far may have left the caches by the next step."""
        self._over = {}
