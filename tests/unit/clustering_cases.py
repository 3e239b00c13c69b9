"""Audits, vectors and models for the tests of the strategy clustering."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from typing import Any

import numpy as np
from inspect_ai.model import ChatMessage, GenerateConfig, Model, ModelOutput, ModelUsage, get_model
from inspect_ai.tool import ToolChoice, ToolInfo
from numpy.typing import NDArray
from sim_audits import audit_of

from auditrl.analysis.clustering.describe import Described
from auditrl.analysis.clustering.rules import describe_by_rule
from auditrl.analysis.clustering.sources import SourceAudit
from auditrl.sim.auditors import ARCHETYPES, Archetype
from auditrl.sim.corpus import play
from auditrl.sim.world import PAIRS, SEED_PHRASES
from auditrl.types import Audit, Scenario, Seed


def played(archetype: Archetype, number: int) -> Audit:
    """A scripted audit of a simulated target, planted in every other one."""
    rng = Random(f"{archetype}:{number}")
    behavior = rng.choice(sorted(PAIRS))
    pair = PAIRS[behavior]
    text = rng.choice(SEED_PHRASES).format(area=pair.area)
    turns, report = play(text, archetype, pair if number % 2 else None, rng)
    seed = Seed(id=f"{behavior}/{number}", behavior=behavior, split="train", text=text)
    scenario = Scenario(id=f"{behavior}/{number}", seed=seed, condition="planted" if number % 2 else "persona", behavior=behavior)
    name = f"sim/auditor-{archetype}"
    return audit_of(turns, report, text).model_copy(update={"id": f"{archetype}#{number}", "scenario": scenario, "auditor": name})


@cache
def corpus(each: int) -> tuple[Audit, ...]:
    """`each` audits of every archetype."""
    return tuple(played(archetype, number) for number in range(each) for archetype in ARCHETYPES)


def sources(audits: Sequence[Audit], *, run: str = "run", steps: int = 1) -> list[SourceAudit]:
    """Audits as those of a run, dealt out over its steps."""
    return [SourceAudit(audit, run, 1 + i % steps, simulated=True) for i, audit in enumerate(audits)]


def described(audits: Sequence[Audit], *, steps: int = 1) -> list[Described]:
    """Audits described by rule."""
    return [Described.of(item, describe_by_rule(item.audit)) for item in sources(audits, steps=steps)]


def blobs(n: int, groups: int, *, dimensions: int = 16, noise: float = 0.1, random_seed: int = 0) -> tuple[NDArray[Any], list[int]]:
    """Vectors of length 1 around `groups` points, and the group of each."""
    rng = np.random.default_rng(random_seed)
    centres = rng.normal(size=(groups, dimensions))
    labels = [i % groups for i in range(n)]
    rows = (centres[labels] + noise * rng.normal(size=(n, dimensions))).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), labels


Answer = Callable[[str, str, int], dict[str, Any] | str]


class Asked:
    """A model that answers by a function of (kind of question, prompt, how many calls before), and keeps the prompts."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.prompts: list[str] = []
        self.model: Model = get_model("mockllm/model", custom_outputs=self._reply, memoize=False)

    def _reply(self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig) -> ModelOutput:
        prompt = "\n".join(m.text for m in input)
        kind = config.response_schema.name if config.response_schema else ""
        found = self._answer(kind, prompt, len(self.prompts))
        self.prompts.append(prompt)
        output = ModelOutput.from_content("mockllm", found if isinstance(found, str) else json.dumps(found))
        # without a usage the mock model would count tokens, which needs the network
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        return output
