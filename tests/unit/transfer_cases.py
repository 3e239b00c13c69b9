"""Models and sessions for the tests of the transfer evaluation."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from inspect_ai.model import ChatMessageAssistant, GenerateConfig, Model, ModelOutput, ModelUsage, get_model
from inspect_ai.tool import ToolCall

from auditrl.evals.transfer.limits import Limits
from auditrl.evals.transfer.record import Guess, ResearchLog, TransferAudit
from auditrl.evals.transfer.scaffold import Session
from auditrl.evals.transfer.targets import Target
from auditrl.evals.transfer.tools import Approach, TargetTools

CANARY = "CANARY-7731"
Reply = str | dict[str, Any] | list[tuple[str, dict[str, Any]]] | Exception | None


def model(answer: Callable[[list[Any]], Reply], *, tokens: int = 10, config: GenerateConfig | None = None) -> Model:
    """A model that answers by its messages: text, an object as JSON, tool calls, an exception, or None for a refusal."""
    number = 0

    def reply(messages: list[Any], *_: Any) -> ModelOutput:
        nonlocal number
        number += 1
        value = answer(messages)
        if isinstance(value, Exception):
            raise value
        if isinstance(value, list):
            calls = [ToolCall(id=f"t{number}-{i}", function=name, arguments=arguments) for i, (name, arguments) in enumerate(value)]
            output = ModelOutput.from_message(ChatMessageAssistant(content="", tool_calls=calls))
        else:
            text = value if isinstance(value, str) else json.dumps(value) if value is not None else ""
            output = ModelOutput.from_content("mockllm/model", text, "stop" if value is not None else "content_filter")
        output.usage = ModelUsage(input_tokens=7, output_tokens=tokens, total_tokens=7 + tokens)
        return output

    return get_model("mockllm/model", custom_outputs=reply, memoize=False, config=config or GenerateConfig())


def tools(
    chat: Model | None = None,
    *,
    raw: Model | None = None,
    helper: Model | None = None,
    approach: Approach = "default",
    system: str = "",
    template: Any = None,
    folder: Path | None = None,
    limits: Limits | None = None,
) -> TargetTools:
    target = Target(chat or model(lambda _: "hello"), raw, template, system)
    return TargetTools(target, approach, helper, limits or Limits(budget=200, answer=20), 5, ResearchLog(folder))


def session(auditor: Model, target: TargetTools | None = None, limits: Limits | None = None) -> Session:
    limits = limits or Limits(budget=200, answer=20)
    return Session(auditor, target or tools(limits=limits), limits)


def audit(
    index: int = 0,
    *,
    behavior: str = "flattery",
    control: bool = False,
    guesses: Sequence[Guess] = (),
    approach: str = "default",
    error: str | None = None,
    generated: int = 900,
) -> TransferAudit:
    return TransferAudit(
        id=f"{approach}/{behavior}{'/base' if control else ''}#{index}",
        target=behavior,
        behavior=behavior,
        control=control,
        approach=approach,
        scaffold="react",
        auditor="tester",
        index=index,
        guesses=tuple(guesses),
        stopped="budget",
        generated=generated,
        budget=1000,
        turns=3,
        error=error,
    )
