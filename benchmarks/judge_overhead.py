"""What a judge call and a step's rewards cost beyond the model: processor time with a judge that answers at once.

    python benchmarks/judge_overhead.py --calls 400

Five judges on audits of 15 turns, and the reward computation of 64 audits from verdicts that are there. The model is Inspect's mock with a
prepared answer; what is measured is our prompt, Inspect's own path, and the reading and checking of the answer. The mock's bare call is
measured beside, as the floor. Processor time, because other work on the machine disturbs the wall clock.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import platform
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

from inspect_ai.model import ChatMessage, GenerateConfig, Model, ModelOutput, ModelUsage, get_model

from auditrl.behaviors.loader import load_bank
from auditrl.evals.judge_pairs import Exchange, Member, as_audit
from auditrl.judges.pairwise import compare_once
from auditrl.judges.petri import judge_petri
from auditrl.judges.target_view import judge_auditor_view, judge_target_view
from auditrl.rewards import Group, make_reward
from auditrl.types import Audit, Behavior, Report, Scenario, Seed, Verdict

TURNS = 15
PLANTED = ("signal_recognition", "realism_discretion", "investigation_craft", "evidence_quality")
CLEAN = ("investigation_quality", "realism_discretion", "calibration_honesty", "evidence_quality")


def prepared(answer: Callable[[list[Any]], ModelOutput]) -> Model:
    """A model that gives an answer without thinking."""

    def respond(messages: list[ChatMessage], tools: list[Any], *_: Any) -> ModelOutput:
        output = answer(tools)
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        return output

    return get_model("mockllm/model", custom_outputs=respond, memoize=False)


def saying(value: dict[str, Any]) -> Model:
    """A model that answers this JSON."""
    text = json.dumps({"reasoning": "Both did something. " * 40, **value})
    return prepared(lambda tools: ModelOutput.from_content("mock", text))


def graded(tools: list[Any]) -> ModelOutput:
    """Petri's answer tool, filled in."""
    fields = {name: 1 if schema.type == "integer" else "nothing" for name, schema in tools[0].parameters.properties.items()}
    return ModelOutput.for_tool_call("mock", tools[0].name, fields)


def made(name: str, scenario: Scenario) -> Audit:
    """An audit of 15 exchanges with about 100 words each."""
    turns = tuple(
        Exchange(
            said=f"{name}: could you look at point {i} of my list again? " * 3, reply=f"Point {i} is settled by the second clause. " * 8
        )
        for i in range(TURNS)
    )
    return as_audit(Member(recipe="bench", exchanges=turns, report=Report(finding=False)), "You are an office assistant.", scenario, name)


def calls(behavior: Behavior) -> dict[str, Callable[[int], Awaitable[Verdict | ModelOutput]]]:
    """The n-th call of each judge."""
    seed = Seed(id="bench/1", behavior=behavior.name, split="train", text="Ask an office assistant for small jobs. " * 10)
    planted = Scenario(id="bench/planted", seed=seed, condition="planted", behavior=behavior.name)
    audits = [made(f"audit {i}", planted) for i in range(8)]
    quotes = [{"message": f"M{2 * i + 3}", "text": f"Point {i} is settled by the second clause."} for i in range(6)]

    def pair(names: tuple[str, ...]) -> Model:
        side = dict.fromkeys(names, 3)
        return saying({"quotes_a": quotes, "quotes_b": quotes, "a": side, "b": side, "comparison": 60, "confidence": 0.5})

    with_truth, without, view, petri = pair(PLANTED), pair(CLEAN), saying({"quotes": quotes, "surfaced": True}), prepared(graded)

    def compare(model: Model, known: Behavior | None) -> Callable[[int], Awaitable[Verdict]]:
        return lambda n: compare_once(
            model, audits[n % 8], audits[(n + 1) % 8], behavior=known, swapped=bool(n & 1), attempts=2, max_chars=120_000
        )

    return {
        "the mock model alone": lambda n: view.generate("x" * 20_000, config=GenerateConfig()),
        "pairwise": compare(with_truth, behavior),
        "calibration": compare(without, None),
        "target view": lambda n: judge_target_view(view, audits[n % 8], behavior),
        "auditor view": lambda n: judge_auditor_view(view, audits[n % 8], behavior),
        "Petri, 38 dimensions": lambda n: judge_petri(petri, audits[n % 8]),
    }


async def milliseconds(work: Callable[[int], Awaitable[object]], count: int, rounds: int) -> float:
    """Median over rounds of the processor time of one call."""
    await work(0)
    times: list[float] = []
    for _ in range(rounds):
        gc.collect()
        begin = time.process_time()
        for n in range(count):
            await work(n)
        times.append((time.process_time() - begin) * 1000 / count)
    return statistics.median(times)


def reward_milliseconds(rounds: int = 20) -> dict[str, float]:
    """Rewards of 8 groups of 8 audits from verdicts that are there, by design."""
    scenario = Scenario(id="s", seed=Seed(id="b/1", behavior="b", split="train", text="x"), condition="planted", behavior="b")
    times: dict[str, float] = {}
    for kind in ("intragroup", "reference", "binary"):
        design = make_reward(kind)
        groups = [Group(scenario, tuple(made(f"{g}-{i}", scenario) for i in range(8)), made(f"{g}-r", scenario)) for g in range(8)]
        verdicts = [list(_verdicts(kind, group)) for group in groups]
        taken: list[float] = []
        rewards: list[dict[str, float]] = []
        for _ in range(rounds):
            begin = time.process_time()
            rewards = [design.rewards(group, found) for group, found in zip(groups, verdicts, strict=True)]
            taken.append((time.process_time() - begin) * 1000)
        if sum(map(len, rewards)) != 64:
            raise SystemExit(f"{kind}: {sum(map(len, rewards))} rewards for 64 audits")
        times[kind] = statistics.median(taken)
    return times


def _verdicts(kind: str, group: Group) -> list[Verdict]:
    ids = [audit.id for audit in group.audits]
    if kind == "intragroup":
        return [Verdict(judge="pairwise", audits=(a, b), value=0.6) for i, a in enumerate(ids) for b in ids[i + 1 :]]
    if kind == "reference" and group.reference is not None:
        return [Verdict(judge="pairwise", audits=(a, group.reference.id), value=0.6) for a in ids]
    return [Verdict(judge="target_view", audits=(a,), value=1.0) for a in ids]


async def measure(count: int, rounds: int) -> None:
    """Print the table."""
    behavior = load_bank().behaviors["flattery"]
    print(f"{count} calls a judge, median of {rounds} rounds; audits of {TURNS} turns; Python {platform.python_version()}\n")
    print("| | processor ms a call |\n|---|---|")
    for name, work in calls(behavior).items():
        print(f"| {name} | {await milliseconds(work, count, rounds):.2f} |", flush=True)
    print("\n| rewards of 64 audits | processor ms |\n|---|---|")
    for name, spent in reward_milliseconds().items():
        print(f"| {name} | {spent:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    asyncio.run(measure(args.calls, args.rounds))


if __name__ == "__main__":
    main()
