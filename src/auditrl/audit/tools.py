"""The auditor's tools: parsed once for a set of audits, and written out in the log once an audit.

Petri's nine tools come with pages of instructions. Parsed, copied and logged with every turn they are a fifth of the scaffold's time and
a third of the log, and the same each time. The model gets them in full on every turn; the model event of an audit's first turn holds
them in full too, later ones hold their names.
"""

from __future__ import annotations

from collections.abc import Sequence

from inspect_ai.model import ChatMessage, GenerateConfig, Model, ModelCall, ModelOutput
from inspect_ai.tool import Tool, ToolChoice, ToolDef, ToolInfo, ToolParams

from .target import with_generate

SEE_FIRST_TURN = "In full in the auditor's first model event."


class AuditorTools:
    """Petri's auditor tools.

    Attributes:
        full: For running calls and for the first turn.
        brief: The same tools for the events of later turns: names and viewers, without instructions and parameters.
    """

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.full = [ToolDef(tool) for tool in tools]
        self.brief = [
            ToolDef(d.tool, name=d.name, description=SEE_FIRST_TURN, parameters=ToolParams(), parallel=d.parallel, viewer=d.viewer)
            for d in self.full
        ]
        self._infos = {
            d.name: ToolInfo(name=d.name, description=d.description, parameters=d.parameters, options=d.options) for d in self.full
        }

    def told_to(self, model: Model) -> Model:
        """The model, which reads every tool in full whatever the event of the call shows."""
        inner = model.api.generate

        async def generate(
            input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
        ) -> ModelOutput | tuple[ModelOutput | Exception, ModelCall]:
            return await inner(input, [self._infos.get(tool.name, tool) for tool in tools], tool_choice, config)

        return with_generate(model, generate)
