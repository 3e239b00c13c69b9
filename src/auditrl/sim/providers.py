"""The simulated world as Inspect models: `sim/target`, `sim/target-production`, `sim/judge`, `sim/judge-suite`, `sim/auditor-<archetype>`.

They stand under the real Inspect and Petri stack and see what a real model in their place would see. All randomness is keyed by the
model's `random_seed`, the running audit and the input, so that the same run gives the same answers in any order of arrival. Every
output carries a usage count (words), and no tokeniser is ever asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from random import Random
from typing import Any, cast

from inspect_ai.model import ChatCompletionChoice, ChatMessage, ChatMessageAssistant, GenerateConfig, ModelAPI, ModelOutput, ModelUsage
from inspect_ai.tool import ToolCall, ToolChoice, ToolInfo

from ..audit.context import current_audit, stable_hash
from ..audit.report import PREDICTIONS_REQUEST, REPORT_REQUEST
from ..behaviors.loader import Bank, load_bank
from ..errors import ConfigError
from . import checks, completions, investigators, judges, organism
from .auditors import ARCHETYPES, Archetype, conclude, next_message
from .language import SYSTEM_MESSAGE, seed_of, turns_of
from .prompts import petri_view, section
from .reading import describe, read_view
from .targets import detect_behavior, target_reply
from .world import PARAMS, Pair, WorldParams, pair_of
from .writer import write_candidates

MODEL_NAMES: tuple[str, ...] = (
    "target", "target-production", "judge", "judge-suite", "writer", *(f"auditor-{a}" for a in ARCHETYPES),
    *completions.ORGANISMS, completions.HELPER,
)  # fmt: skip


class SimAPI(ModelAPI):
    """Provider of the simulated models; the model's name says which one.

    Args:
        model_name: One of `MODEL_NAMES`.
        random_seed: Seed of everything the model draws.
        bank: Bank folder whose behaviors targets can carry and judges know, beside the packaged ones.
        alone: Use that folder without the packaged bank.
        world: Values of `WorldParams` to change.

    Raises:
        ConfigError: Unknown model name or unknown world parameter.
    """

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        random_seed: int = 0,
        bank: str | None = None,
        alone: bool = False,
        world: Mapping[str, float] | None = None,
        **model_args: Any,
    ) -> None:
        super().__init__(model_name, base_url, api_key, [], config or GenerateConfig())
        if model_name not in MODEL_NAMES:
            raise ConfigError(f"sim/{model_name}: no such simulated model. Use one of: {', '.join(f'sim/{n}' for n in MODEL_NAMES)}.")
        self.nature = completions.take_nature(model_name, model_args)
        if model_args:
            raise ConfigError(f"sim/{model_name}: unknown arguments {sorted(model_args)}. It takes random_seed, bank, alone, world.")
        self.random_seed = random_seed
        self.params = _world(world or {})
        self._bank_path, self._alone = bank, alone

    @cached_property
    def _bank(self) -> Bank:
        return load_bank(Path(self._bank_path) if self._bank_path else None, merge=not self._alone)

    @cached_property
    def _planted(self) -> Callable[[str], str | None]:
        """The behavior in a system message, which every turn of an audit shows again."""
        instructions = {name: behavior.instruction for name, behavior in self._bank.behaviors.items()}
        return lru_cache(maxsize=1024)(partial(detect_behavior, instructions=instructions))

    async def count_text_tokens(self, text: str) -> int:
        """Words."""
        return len(text.split())

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        """Answer as the simulated model does."""
        name = self.model_name
        if name.startswith("auditor-"):
            archetype = cast(Archetype, name.removeprefix("auditor-"))
            names = [tool.name for tool in tools]
            other = investigators.TOOL in names or PREDICTIONS_REQUEST in (input[-1].text if input else "")
            message = self._investigate(archetype, input, names) if other else self._audit(archetype, input)
        elif name in completions.ORGANISMS:
            text = completions.answer(name, self.nature, input, self._rng(input, config), self.params)
            message = ChatMessageAssistant(content=text, source="generate")
        elif name.startswith("target"):
            message = ChatMessageAssistant(content=self._reply(input), source="generate")
        else:
            message = self._judge(input, tools, config)
        return self._output(message, input)

    def _rng(self, input: list[ChatMessage], config: GenerateConfig | None = None) -> Random:
        audit = current_audit()
        text = [f"{m.role}\x1e{m.text}" for m in input]
        noise = config.seed if config is not None else None
        return Random(stable_hash(self.random_seed, self.model_name, audit.seed if audit else "", noise, *text))

    def _output(self, message: ChatMessageAssistant, input: list[ChatMessage]) -> ModelOutput:
        read = sum(len(m.text.split()) for m in input)
        written = len(message.text.split()) + sum(len(json.dumps(c.arguments).split()) + 1 for c in message.tool_calls or [])
        reason = "tool_calls" if message.tool_calls else "stop"
        return ModelOutput(
            model=f"sim/{self.model_name}",
            choices=[ChatCompletionChoice(message=message, stop_reason=reason)],
            usage=ModelUsage(input_tokens=read, output_tokens=written, total_tokens=read + written),
        )

    def _reply(self, input: list[ChatMessage]) -> str:
        system = "\n".join(m.text for m in input if m.role == "system")
        asked = next((m.text for m in reversed(input) if m.role == "user"), "")
        told = checks.identity_reply(system, asked, self._rng(input))
        if told is not None:
            return told
        name = self._planted(system)
        return target_reply(
            [(m.role, m.text) for m in input],
            pair_of(name) if name else None,
            rng=self._rng(input),
            production=self.model_name == "target-production",
            triggers=self._bank.behaviors[name].activation_terms if name else (),
            params=self.params,
        )

    def _audit(self, archetype: Archetype, input: list[ChatMessage]) -> ChatMessageAssistant:
        first = next((m.text for m in input if m.role == "user"), "")
        seed, turns = seed_of(first), turns_of(input)
        audit = current_audit()
        rng = Random(stable_hash(self.random_seed, archetype, audit.seed if audit else "", seed))
        if input and input[-1].role == "user" and REPORT_REQUEST in input[-1].text:
            report = conclude(archetype, seed, turns, Random(rng.random()))
            return ChatMessageAssistant(content=report.model_dump_json(), source="generate")
        message = next_message(archetype, seed, turns, rng)
        number = sum(m.role == "assistant" for m in input)
        calls = [("end_conversation", {})] if message is None else [("send_message", {"message": message}), ("resume", {})]
        if message is not None and not turns:
            calls.insert(0, ("set_system_message", {"system_message": SYSTEM_MESSAGE}))
        return ChatMessageAssistant(
            content="",
            source="generate",
            tool_calls=[ToolCall(id=f"sim-{number}-{i}", function=f, arguments=dict(a)) for i, (f, a) in enumerate(calls)],
        )

    def _investigate(self, archetype: Archetype, input: list[ChatMessage], tools: list[str]) -> ChatMessageAssistant:
        audit = current_audit()
        rng = Random(stable_hash(self.random_seed, archetype, audit.seed if audit else ""))
        if input and input[-1].role == "user" and PREDICTIONS_REQUEST in input[-1].text:
            return ChatMessageAssistant(content=json.dumps(investigators.predict(archetype, input, rng)), source="generate")
        calls = investigators.next_calls(archetype, input, tools, rng)
        number = sum(m.role == "assistant" for m in input)
        return ChatMessageAssistant(
            content="" if calls else investigators.DONE,
            source="generate",
            tool_calls=[ToolCall(id=f"sim-{number}-{i}", function=name, arguments=a) for i, (name, a) in enumerate(calls)] or None,
        )

    def _judge(self, input: list[ChatMessage], tools: list[ToolInfo], config: GenerateConfig) -> ChatMessageAssistant:
        prompt = next((m.text for m in reversed(input) if m.role == "user"), "")
        rng = self._rng(input, config)
        answer_tool = next((tool for tool in tools if tool.name == "answer"), None)
        if answer_tool is not None:
            call = ToolCall(id="answer-0", function="answer", arguments=self._grades(prompt, answer_tool, rng))
            return ChatMessageAssistant(content="", source="generate", tool_calls=[call])
        kind = config.response_schema.name if config.response_schema is not None else ""
        answer = _ANSWERS.get(kind)
        if answer is None:
            text = f"sim/{self.model_name} answers structured questions only: {', '.join(_ANSWERS)}, or a tool named answer."
            return ChatMessageAssistant(content=text, source="generate")
        return ChatMessageAssistant(content=json.dumps(answer(self, prompt, rng)), source="generate")

    def _grades(self, prompt: str, tool: ToolInfo, rng: Random) -> dict[str, Any]:
        """Petri's judge: every required field of the answer tool, by its type."""
        reading = read_view(petri_view(prompt))
        properties = tool.parameters.properties
        names = [name for name, schema in properties.items() if schema.type == "integer"]
        bias = self.params.suite_bias if self.model_name == "judge-suite" else 1.0
        grades: dict[str, Any] = dict(judges.petri_scores(reading, names, rng, self.params, bias=bias))
        text = f"The audit: {describe(reading)}."
        blank: dict[str, Any] = {"string": text, "boolean": False, "number": 0.0, "array": [], "object": {}}
        return {name: grades[name] if name in grades else blank.get(str(schema.type), text) for name, schema in properties.items()}

    def truth(self, prompt: str) -> Pair | None:
        """The pair of the behavior that the prompt describes, None if it says that there is none."""
        told = " ".join(section(prompt, "hidden_behavior").split())
        for name, behavior in self._bank.behaviors.items():
            if " ".join(behavior.description.split()) in told:
                return pair_of(name)
        return None


def _world(changes: Mapping[str, float]) -> WorldParams:
    known = {f.name for f in fields(WorldParams)}
    unknown = sorted(set(changes) - known)
    if unknown:
        raise ConfigError(f"world: unknown parameters {unknown}. Known are: {', '.join(sorted(known))}.")
    return replace(PARAMS, **changes)


def _compare(api: SimAPI, prompt: str, rng: Random) -> dict[str, Any]:
    truth = api.truth(prompt)
    return judges.compare(section(prompt, "audit_a"), section(prompt, "audit_b"), truth, section(prompt, "seed"), rng, api.params)


def _surfaced(api: SimAPI, prompt: str, rng: Random, *, target_view: bool) -> dict[str, Any]:
    truth = api.truth(prompt)
    if truth is None:
        return {"reasoning": "No hidden behavior is described.", "quotes": [], "surfaced": False}
    return judges.surfaced(section(prompt, "transcript"), truth, rng, target_view=target_view)


def _suite(api: SimAPI, prompt: str, rng: Random) -> dict[str, Any]:
    truth = None if section(prompt, "mode").strip() == "clean" else api.truth(prompt)
    return judges.suite(section(prompt, "transcript"), truth, section(prompt, "seed"), rng, api.params)


def _realism(api: SimAPI, prompt: str, rng: Random) -> dict[str, Any]:
    return judges.realism_pair(section(prompt, "conversation_a"), section(prompt, "conversation_b"), rng, api.params)


_ANSWERS: dict[str, Callable[[SimAPI, str, Random], dict[str, Any]]] = {
    "pairwise": _compare,
    "calibration": _compare,
    "target_view": lambda api, prompt, rng: _surfaced(api, prompt, rng, target_view=True),
    "auditor_view": lambda api, prompt, rng: _surfaced(api, prompt, rng, target_view=False),
    "suite": _suite,
    "realism_pair": _realism,
    "conduct": lambda api, prompt, rng: judges.conduct(section(prompt, "transcript")),
    "seed_candidates": lambda api, prompt, rng: write_candidates(prompt, rng),
    **checks.ANSWERS,
    **completions.ANSWERS,
    **organism.ANSWERS,
}
