"""Inspect model provider `policy`: any policy sampler as a model that audits can use.

In training, `policy_model` wraps a sampler of the engine, and every call is recorded in a `TokenLedger`. For evaluation,
`get_model("policy/<folder>")` opens a saved checkpoint. Judges and viewers find its turns in Inspect's model events like any other's.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    Content,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    Model,
    ModelAPI,
    ModelInfo,
    ModelOutput,
    ModelUsage,
    StopReason,
    get_model,
    set_model_info,
)
from inspect_ai.tool import ToolCall, ToolChoice, ToolInfo

from ..audit.context import current_audit, stable_hash
from ..errors import ConfigError
from ..types import Sampled
from .engine import PolicyRef, PolicySampler
from .ledger import TokenLedger
from .renderer import Renderer
from .renderers import RemembersSamples, open_renderer
from .tinker_checkpoint import state_of

if TYPE_CHECKING:
    from .local import LocalEngine

__all__ = ["SAMPLE_ID", "PolicyAPI", "policy_model"]

SAMPLE_ID = "auditrl_sample"
"""Key in a model output's metadata: id of the turn in the ledger."""

_ALL_AT_ONCE = 1_000_000
_REASONING = re.compile(r"\A\s*<think>(.*?)(?:</think>|\Z)\s*", re.DOTALL)
_ENGINE_ARGUMENTS = ("dtype", "device", "threads")


class PolicyAPI(ModelAPI):
    """A policy behind Inspect's provider interface.

    Args:
        model_name: Name in logs; without `sampler` the folder (or id) of the model to open.
        base_url: Not used; part of Inspect's interface.
        api_key: Not used; part of Inspect's interface.
        config: Inspect's configuration.
        sampler: Policy to sample from; None opens `model_name`.
        renderer: Between messages and tokens; None: what the folder asks for.
        ledger: Where the turns of audits are recorded.
        max_tokens: Tokens of one turn, unless the call's config says otherwise.
        temperature: Of sampling, unless the call's config says otherwise.
        context_tokens: Longest sequence; a turn without room ends with `model_length`. None: what the sampler says, if it says.
        model_args: `dtype`, `device`, `threads` of the engine that opens a folder.

    Raises:
        ConfigError: The folder can't be opened, or an argument is unknown.
    """

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        *,
        sampler: PolicySampler | None = None,
        renderer: Renderer | None = None,
        ledger: TokenLedger | None = None,
        max_tokens: int = 1024,
        temperature: float = 1.0,
        context_tokens: int | None = None,
        **model_args: Any,
    ) -> None:
        super().__init__(model_name, None, None, [], config or GenerateConfig())
        unknown = sorted(set(model_args) - set(_ENGINE_ARGUMENTS))
        if unknown:
            raise ConfigError(f"policy/{model_name}: unknown model argument {unknown[0]!r}. Known: {', '.join(_ENGINE_ARGUMENTS)}.")
        self._engine = _open_engine(model_name, model_args) if sampler is None else None
        self._sampler = sampler
        self._renderer = renderer if renderer is not None else open_renderer(model_name)
        self._ledger = ledger
        self._max_tokens = max_tokens
        self._temperature = temperature
        # the local engine's samplers know their model's limit
        self._context_tokens = context_tokens if context_tokens is not None else getattr(sampler, "context_tokens", None)

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        """One turn. Noise is keyed by the audit's seed and the turn; outside of an audit by the config's seed, if it has one."""
        sampler = await self._ready()
        prompt = self._renderer.prompt(input, [] if tool_choice == "none" else tools)
        max_tokens = config.max_tokens or self._max_tokens
        if self._context_tokens is not None:
            max_tokens = min(max_tokens, self._context_tokens - len(prompt))
        if max_tokens < 1:
            return self._output("", [], "model_length", len(prompt), 0)
        audit = current_audit()
        turn = audit.next_turn() if audit is not None else 0
        seed = stable_hash(audit.seed, turn) if audit is not None else config.seed
        sampled = await sampler.sample(
            prompt,
            max_tokens=max_tokens,
            temperature=self._temperature if config.temperature is None else config.temperature,
            stop=self._renderer.stop,
            seed=seed,
        )
        text, calls = self._renderer.parse(sampled.tokens, input)
        output = self._output(text, calls, _stop_reason(sampled, calls), len(prompt), len(sampled.tokens))
        if audit is not None and self._ledger is not None:
            output.metadata = {SAMPLE_ID: self._ledger.record(audit.id, turn, prompt, sampled)}
        if isinstance(self._renderer, RemembersSamples) and output.message.id is not None:
            self._renderer.remember(prompt, sampled.tokens, output.message.id)
        return output

    async def _ready(self) -> PolicySampler:
        if self._sampler is None:
            assert self._engine is not None
            await self._engine.start()
            self._sampler = self._engine.sampler(PolicyRef("current"))
            self._context_tokens = self._context_tokens or self._engine.context_tokens
        return self._sampler

    def _output(self, text: str, calls: list[ToolCall], reason: StopReason, read: int, written: int) -> ModelOutput:
        message = ChatMessageAssistant(content=_content(text), tool_calls=calls or None, source="generate", model=self.model_name)
        return ModelOutput(
            model=self.model_name,
            choices=[ChatCompletionChoice(message=message, stop_reason=reason)],
            usage=ModelUsage(input_tokens=read, output_tokens=written, total_tokens=read + written),
        )

    async def count_text_tokens(self, text: str) -> int:
        """Rough count for Inspect's estimates (its own would download a vocabulary); exact counts are in each output's usage."""
        return len(text) // 4 + 1

    def max_connections(self) -> int:
        """No limit: a barrier that waits for every audit must let every audit ask."""
        return _ALL_AT_ONCE

    def connection_key(self) -> str:
        """Policies share no connections."""
        return f"policy-{id(self)}"

    async def aclose(self) -> None:
        """Release the model, if it was opened here."""
        if self._engine is not None:
            await self._engine.close()
            self._sampler = None


def _open_engine(model: str, model_args: dict[str, Any]) -> LocalEngine:
    from .local import LocalEngine
    from .network import base_of_adapter

    folder = Path(model).expanduser()
    if state_of(folder) is not None:
        raise ConfigError(
            f"policy/{model}: its weights are at a Tinker server, which only the run knows how to open. Name RUN@STEP instead"
        )
    method = "lora" if base_of_adapter(folder) is not None else "full"
    return LocalEngine(model, method=method, **model_args)


def _content(text: str) -> str | list[Content]:
    """Reasoning at the head of a message apart from the rest."""
    thought = _REASONING.match(text)
    if thought is None:
        return text
    return [ContentReasoning(reasoning=thought[1].strip()), ContentText(text=text[thought.end() :])]


def _stop_reason(sampled: Sampled, calls: list[ToolCall]) -> StopReason:
    if calls:
        return "tool_calls"
    return "stop" if sampled.stop_reason == "stop" else "max_tokens"


def policy_model(
    sampler: PolicySampler,
    renderer: Renderer,
    *,
    name: str = "current",
    ledger: TokenLedger | None = None,
    max_tokens: int = 1024,
    temperature: float = 1.0,
    context_tokens: int | None = None,
) -> Model:
    """A sampler as an Inspect model named `policy/<name>`. See `PolicyAPI` for the arguments."""
    model = get_model(
        f"policy/{name}",
        # without an explicit number Inspect starts with few connections and adapts, and the barrier would wait for audits that can't ask
        config=GenerateConfig(max_connections=_ALL_AT_ONCE),
        memoize=False,
        sampler=sampler,
        renderer=renderer,
        ledger=ledger,
        max_tokens=max_tokens,
        temperature=temperature,
        context_tokens=context_tokens,
    )
    # arguments are written to logs, where live objects have no place
    model.model_args = {}
    # without an entry Inspect looks a model's size up by building it from its name, which for a policy opens a folder or asks the hub
    set_model_info(f"policy/{name}", ModelInfo(context_length=context_tokens))
    return model
