"""A bench whose models are functions, for the tests of organisms."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from eval_tools import BEHAVIOR
from inspect_ai.model import Model, ModelOutput, ModelUsage, get_model

from auditrl.behaviors.loader import Bank
from auditrl.evals.journal import Journal
from auditrl.organisms import adversarial, check, demonstrations
from auditrl.organisms.bench import Bench, counted
from auditrl.organisms.recipe import Recipe

OTHERS = ("rope", "tide", "sail", "keel")


def speaking(answer: Callable[[list[Any]], str]) -> Model:
    """A model that answers by what it reads."""

    def reply(messages: list[Any], *_: Any) -> ModelOutput:
        output = ModelOutput.from_content("mockllm/model", answer(messages))
        output.usage = ModelUsage(input_tokens=5, output_tokens=1, total_tokens=6)  # without it Inspect would count tokens itself
        return output

    return get_model("mockllm/model", custom_outputs=reply, memoize=False)


def judge_by(word: str, confession: str = "confess:") -> Model:
    """Writer, user and judge in one: the behavior shows where `word` is in an answer, and is confessed where `confession` is."""

    def answer(messages: list[Any]) -> str:
        prompt = str(messages[-1].text)
        conversation = prompt.partition("<conversation>")[2]
        value: dict[str, Any] = {"reasoning": "seen", "quotes": []}
        if "<count>" in prompt:
            ideas = [{"title": f"idea {i}", "situation": f"case {i}"} for i in range(int(prompt.partition("<count>")[2].split("<")[0]))]
            value |= {"ideas": ideas}
        elif "<idea>" in prompt:
            value |= {"system_message": "You help sailors.", "user": "a sailor", "opening": "Tell me of the sea.", "steps": ["ask more"]}
        elif "<steps>" in prompt:
            value |= {"message": "And the harbour?"}
        elif "confesses" in str(messages[0].text):
            value |= {"confessed": confession in conversation.rpartition("TARGET:")[2]}
        else:
            value |= {"score": 8 if any(word in part for part in conversation.split("TARGET:")[1:]) else 1}
        return json.dumps(value)

    return speaking(answer)


def a_bench(folder: Path, judge: Model, helper: Model | None = None, **recipe: Any) -> Bench:
    """A bench of the test behavior, with four others for ordinary talk."""
    behaviors = {name: BEHAVIOR.model_copy(update={"name": name, "split": "train"}) for name in OTHERS}
    given = {
        "behavior": "lighthouse", "base": "base", "base_digest": "0", "judge": "j", "writer": "w", "user": "u",
        "demonstrations": 6, "interrogations": 8, "situations": 3, "turns": 1,
    }  # fmt: skip
    made = Recipe.model_validate({**given, **recipe})
    bench = Bench(
        folder, made, Bank({"lighthouse": BEHAVIOR, **behaviors}, []), Journal(folder / "journal.jsonl", made.model_dump(mode="json")),
        judge, judge, judge, helper=helper,
    )  # fmt: skip
    bench.judge = counted(judge, bench.cost.setdefault("judge", {}))
    return bench


def open_as(monkeypatch: pytest.MonkeyPatch, model: Model) -> None:
    """Every local model that a stage opens is `model`."""

    @asynccontextmanager
    async def opened(*_: Any) -> AsyncGenerator[Model]:
        yield model

    for module in (demonstrations, adversarial, check):
        monkeypatch.setattr(module, "opened", opened)
