"""A judge for estimates: it answers at once, as the simulated one does, and counts what it is asked. Nothing leaves the process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from inspect_ai.model import ChatMessage, ChatMessageUser, GenerateConfig, Model, ModelOutput, get_model
from inspect_ai.tool import ToolDef, ToolInfo

from .sizes import Sizes, Yardstick

REMEMBERED = 16
"""Earlier questions that a provider's cache is thought to hold."""


@dataclass(slots=True)
class Load:
    """Calls and tokens. `cached` is the part of `input` that a provider's cache could serve."""

    calls: float = 0.0
    input: float = 0.0
    output: float = 0.0
    cached: float = 0.0

    def plus(self, other: Load, times: float = 1.0) -> None:
        """Add in place."""
        self.calls += times * other.calls
        self.input += times * other.input
        self.output += times * other.output
        self.cached += times * other.cached


class CountingJudge(Model):
    """An Inspect model whose calls pass by Inspect's connections and logs: only the answer's form matters, and `load`."""

    def __init__(self, sizes: Sizes, count: Yardstick) -> None:
        inner = get_model("sim/judge", memoize=False)
        super().__init__(inner.api, inner.config, inner.model_args)
        self.load = Load()
        self._sizes, self._count, self._seen = sizes, count, list[str]()

    async def generate(  # type: ignore[override]
        self,
        input: str | list[ChatMessage],
        tools: Sequence[Any] = (),
        tool_choice: Any = None,
        config: GenerateConfig | None = None,
        **_: Any,
    ) -> ModelOutput:
        """Count, and answer."""
        messages: list[ChatMessage] = [ChatMessageUser(content=input)] if isinstance(input, str) else list(input)
        infos = [_info(tool) for tool in tools]
        settings = config or GenerateConfig()
        self._add([message.text for message in messages], infos, settings)
        answered: Any = await self.api.generate(messages, infos, tool_choice or "auto", settings)
        return answered

    def _add(self, texts: Sequence[str], tools: Sequence[ToolInfo], config: GenerateConfig) -> None:
        schema = config.response_schema
        kind = schema.name if schema is not None else "petri" if any(tool.name == "answer" for tool in tools) else "other"
        grades = sum(schema.type == "integer" for tool in tools for schema in tool.parameters.properties.values())
        items = texts[-1].count("] USER: ") if kind == "conduct" else grades
        # the simulated world counts the messages alone
        form = (
            "" if self._count.words else "".join(one.model_dump_json(exclude_none=True) for one in (*tools, *([schema] if schema else [])))
        )
        whole = "\n".join([form, *texts])
        shared = max((whole[: _common(whole, other)] for other in self._seen), key=len, default="")
        self._seen = [*self._seen[1 - REMEMBERED :], whole]
        once = Load(1, self._count(form, *texts), self._sizes.judged(kind, items), self._count(shared))
        self.load.plus(once, 1 + self._sizes.again)


def _common(a: str, b: str) -> int:
    """Length of the common beginning, by bisection."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a[:middle] == b[:middle] else (low, middle - 1)
    return low


def _info(tool: Any) -> ToolInfo:
    if isinstance(tool, ToolInfo):
        return tool
    known = tool if isinstance(tool, ToolDef) else ToolDef(tool)
    return ToolInfo(name=known.name, description=known.description, parameters=known.parameters)
