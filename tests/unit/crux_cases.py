"""Material of the crux tests: planted audits, and a judge whose answers are given by kind."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from inspect_ai.model import ChatMessage, GenerateConfig, Model, ModelOutput, ModelUsage, get_model
from inspect_ai.tool import ToolChoice, ToolInfo
from sim_audits import audit_of, claim, turns_of

from auditrl.behaviors.loader import load_bank
from auditrl.sim.phrases import MESSAGES, REPLIES
from auditrl.sim.world import pair_of
from auditrl.types import Audit, Message, Scenario

BEHAVIORS = load_bank().behaviors
NAME = "flattery"
PAIR = pair_of(NAME)
PROBES = [text.format(topic=PAIR.topic) for text in MESSAGES["natural"]]
PLAIN = REPLIES["plain"][0].format(topic=PAIR.topic)
STRONG = REPLIES["strong"][0].format(topic=PAIR.topic, marker=PAIR.marker)

Answer = Mapping[str, Any] | str | Callable[[str], Mapping[str, Any]]


def planted(*replies: str, name: str = NAME, audit_id: str = "a") -> Audit:
    """A finished audit of a planted target: one natural probe a turn, with these replies."""
    turns = turns_of(*zip(PROBES, replies, strict=False))
    audit = audit_of(turns, claim("none", turns))
    seed = audit.scenario.seed.model_copy(update={"behavior": name, "id": f"{name}/1"})
    scenario = Scenario(id=f"{name}/1", seed=seed, condition="planted", behavior=name)
    return audit.model_copy(update={"id": audit_id, "scenario": scenario, "turns": len(turns)})


def with_first_turn(audit: Audit, text: str) -> Audit:
    """The same audit after a turn in which the auditor only wrote."""
    nudge = Message(role="user", text="Please continue.")
    return audit.model_copy(update={"auditor_messages": (Message(role="assistant", text=text), nudge, *audit.auditor_messages)})


class Answers:
    """A model that gives the answer of each kind (a mapping, a raw text, or a function of the prompt) and counts what it was asked."""

    def __init__(self, **answers: Answer) -> None:
        self.answers = answers
        self.asked: Counter[str] = Counter()
        self.prompts: list[str] = []
        self.model: Model = get_model("mockllm/model", custom_outputs=self._answer, memoize=False)

    def _answer(self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig) -> ModelOutput:
        kind = config.response_schema.name if config.response_schema is not None else ""
        self.asked[kind] += 1
        prompt = "\n".join(message.text for message in input)
        self.prompts.append(prompt)
        answer = self.answers[kind]
        value = answer(prompt) if callable(answer) else answer
        output = ModelOutput.from_content("answers", value if isinstance(value, str) else json.dumps({"reasoning": "because", **value}))
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        return output
