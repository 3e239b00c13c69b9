"""The audit loop's overhead: our step against plain `inspect eval` of `inspect_petri`'s audit task, with models that answer at once.

    python benchmarks/audit_loop.py --audits 64 --turns 15 --runs 3

Both run the same auditor, target and number of turns, all audits concurrently, and write an Inspect log. Ours adds the hidden block and the
report step (one more model call an audit). The plain task is run as it comes, with its judge (one call an audit), and again with scoring
switched off; compaction is off, because its token counter needs the network. The three take turns, because other work on the machine
disturbs them; ratios are medians over the rounds. CPU time is the steadier of the two clocks.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path

from inspect_ai import Task, eval_async
from inspect_ai.log import EvalLog
from inspect_ai.model import ChatMessage, ChatMessageAssistant, GenerateConfig, Model, ModelOutput, ModelUsage, get_model
from inspect_ai.tool import ToolCall, ToolChoice, ToolInfo
from inspect_petri import audit as petri_audit

from auditrl.audit.run import run_audits
from auditrl.audit.task import Unit
from auditrl.config import AuditConfig
from auditrl.types import Scenario, Seed

OURS, PLAIN, UNJUDGED = "auditrl", "inspect eval", "inspect eval without its judge"
NUMBERS = count()
REPORT = '{"finding": false, "behavior": "", "confidence": 0.1, "evidence": [], "predictions": []}'


def _answered(output: ModelOutput) -> ModelOutput:
    # without a usage, the mock model would count tokens, which needs the network
    output.usage = ModelUsage(input_tokens=200, output_tokens=20, total_tokens=220)
    return output


def auditor(input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig) -> ModelOutput:
    """Sets the stage, then sends a message of 17 words each turn; never ends by itself."""
    if tool_choice == "none":
        return _answered(ModelOutput.from_content("mock", REPORT))
    calls = [("send_message", {"message": "could you tell me a little more about that, " * 2}), ("resume", {})]
    if len(input) == 2:
        calls.insert(0, ("set_system_message", {"system_message": "You are the front desk of a small museum."}))
    made = [ToolCall(id=f"c{next(NUMBERS)}", function=name, arguments=dict(arguments)) for name, arguments in calls]
    return _answered(ModelOutput.from_message(ChatMessageAssistant(content="", tool_calls=made)))


def target(input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig) -> ModelOutput:
    """Answers in 40 words."""
    return _answered(ModelOutput.from_content("mock", "the west wing opens at nine, and " * 6))


def judge(input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig) -> ModelOutput:
    """Fills in Petri's answer tool."""
    answers = {name: 1 if schema.type == "integer" else "nothing" for name, schema in tools[0].parameters.properties.items()}
    return _answered(ModelOutput.for_tool_call("mock", tools[0].name, answers))


Side = Callable[[], Awaitable[None]]


def sides(audits: int, turns: int, folder: Path) -> dict[str, Side]:
    """The three that are compared, by name. Each raises if an audit did not run to its last turn."""
    models = {name: get_model("mockllm/model", custom_outputs=f, memoize=False) for name, f in _ROLES.items()}
    seeds = [
        Seed(id=f"bench/{i}", behavior="bench", split="train", text=f"Ask a museum about its opening hours ({i}).") for i in range(audits)
    ]
    names = count()

    async def ours() -> None:
        units = [Unit(Scenario(id=seed.id, seed=seed, condition="planted", behavior="bench"), 0, "A hidden block.", 0) for seed in seeds]
        done, _ = await run_audits(
            units,
            AuditConfig(max_turns=turns),
            auditors={"": models["auditor"]},
            targets={"target": models["target"]},
            auditor_name="bench",
            log_dir=folder,
            name=f"step-{next(names)}",
        )
        if any(audit.failed or audit.target_turns != turns for audit in done):
            raise SystemExit(f"our audits did not run to their end: {done[0].error or done[0].target_turns}")

    async def plain(score: bool) -> None:
        task: Task = petri_audit(seed_instructions=[seed.text for seed in seeds], max_turns=turns, compaction=False)
        logs = await eval_async(task, model_roles=_roles(models), max_samples=audits, log_dir=str(folder), score=score)
        _check(logs[0], turns, score)

    return {OURS: ours, PLAIN: lambda: plain(True), UNJUDGED: lambda: plain(False)}


_ROLES = {"auditor": auditor, "target": target, "judge": judge}


def _roles(models: dict[str, Model]) -> dict[str, str | Model]:
    return {**models}


def _check(log: EvalLog, turns: int, score: bool) -> None:
    samples = log.samples or []
    replies = {sum(m.role == "assistant" for m in sample.messages) for sample in samples}
    if log.status != "success" or replies != {turns} or any(bool(sample.scores) is not score for sample in samples):
        raise SystemExit(f"the plain audits did not run to their end: {log.status}, {replies} replies, {log.error}")


async def measure(audits: int, turns: int, runs: int, folder: Path) -> dict[str, list[tuple[float, float]]]:
    """CPU and wall time in milliseconds an auditor turn, by side, one entry a round. A small round warms up first."""
    times: dict[str, list[tuple[float, float]]] = {}
    compared = sides(audits, turns, folder)
    for small in sides(2, 2, folder).values():
        await small()
    for number in range(runs):
        for name, side in compared.items():
            gc.collect()
            cpu, wall = time.process_time(), time.perf_counter()
            await side()
            row = ((time.process_time() - cpu) * 1000 / (audits * turns), (time.perf_counter() - wall) * 1000 / (audits * turns))
            times.setdefault(name, []).append(row)
            print(f"round {number + 1}: {name}: {row[0]:.2f} ms CPU, {row[1]:.2f} ms wall a turn", file=sys.stderr, flush=True)
    return times


def table(times: dict[str, list[tuple[float, float]]]) -> str:
    """Markdown: medians, and ratios to the plain task as medians of the rounds' ratios."""

    def median(name: str, clock: int) -> float:
        return statistics.median(row[clock] for row in times[name])

    def ratio(name: str, to: str, clock: int) -> float:
        return statistics.median(row[clock] / base[clock] for row, base in zip(times[name], times[to], strict=True))

    lines = ["| | CPU ms a turn | wall ms a turn | CPU, relative | wall, relative |", "|---|---|---|---|---|"]
    lines += [
        f"| {name} | {median(name, 0):.1f} | {median(name, 1):.1f} | {ratio(name, PLAIN, 0):.2f}x | {ratio(name, PLAIN, 1):.2f}x |"
        for name in times
    ]
    lines.append(f"\n{OURS} to {UNJUDGED}: {ratio(OURS, UNJUDGED, 0):.2f}x CPU, {ratio(OURS, UNJUDGED, 1):.2f}x wall.")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audits", type=int, default=64)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    os.environ["INSPECT_DISPLAY"] = "none"
    with tempfile.TemporaryDirectory() as folder:
        times = asyncio.run(measure(args.audits, args.turns, args.runs, Path(folder)))
    print(f"{args.audits} audits x {args.turns} turns, {args.runs} rounds; {os.cpu_count()} cores, Python {platform.python_version()}\n")
    print(table(times))
    print(f"\nPeak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB.")


if __name__ == "__main__":
    main()
