"""How much of what the pairwise judge reads a provider's prompt cache can serve: by reward design, order and waiting.

    python benchmarks/judge_cache.py --turns 15 --connections 20

A stand-in takes the provider's place and counts: the beginning of a call comes from the cache if a call that is answered by then began with
the same text, in blocks of 128 tokens and from 1,024 tokens on (as providers say that they do; a token is taken for four characters). It
answers after a fixed time, so what is sent at once can't be served from each other. With marks it caches up to the marks of a prompt only,
and reads the parts as Inspect hands them to the provider. Audits are filler words: only lengths matter.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import dataclass, field
from typing import Any, Literal

from inspect_ai.model import ChatMessage, ContentText, GenerateConfig, Model, ModelOutput, ModelUsage, get_model
from inspect_ai.tool import ToolChoice, ToolInfo

from auditrl.audit.target import with_generate
from auditrl.behaviors.loader import load_bank
from auditrl.evals.judge_pairs import Exchange, Member, as_audit
from auditrl.evals.metering import Usage, cached_share, meter, metered
from auditrl.rewards import Group, Judges, make_reward
from auditrl.types import Audit, Behavior, Report, Scenario, Seed

CHARACTERS = 4
"""Of a token."""
BLOCK, SHORTEST = 128, 1024
"""Tokens."""
SIDES = ("signal_recognition", "realism_discretion", "investigation_craft", "evidence_quality")


@dataclass(slots=True)
class Provider:
    """A provider that answers every comparison alike and has a prompt cache.

    marks: Whether it caches up to marks only, else any block.
    """

    marks: bool
    seconds: float = 0.02
    calls: int = 0
    _read: set[int] = field(default_factory=set[int])
    """Hashes of beginnings."""

    def model(self, connections: int) -> Model:
        """As an Inspect model."""
        name = "anthropic/claude-sonnet-4-5" if self.marks else "mockllm/model"
        arguments: dict[str, Any] = {"api_key": "none"} if self.marks else {}
        model = get_model(name, memoize=False, config=GenerateConfig(max_connections=connections), **arguments)
        return with_generate(model, self._generate)

    async def _generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        parts = [part for message in input for part in _parts(message)]
        text = "".join(part.text for part in parts)
        ends = _mark_ends(parts) if self.marks else range(BLOCK * CHARACTERS, len(text) + 1, BLOCK * CHARACTERS)
        known = [end for end in ends if end >= SHORTEST * CHARACTERS and hash(text[:end]) in self._read]
        await asyncio.sleep(self.seconds)
        self._read.update(hash(text[:end]) for end in ends)
        self.calls += 1
        cached, whole = max(known, default=0) // CHARACTERS, len(text) // CHARACTERS
        output = ModelOutput.from_content("judge", _verdict())
        output.usage = ModelUsage(input_tokens=whole - cached, input_tokens_cache_read=cached, output_tokens=300, total_tokens=whole + 300)
        return output


def _parts(message: ChatMessage) -> list[ContentText]:
    if isinstance(message.content, str):
        return [ContentText(text=message.content, cache_breakpoint=message.role == "system")]
    return [part for part in message.content if isinstance(part, ContentText)]


def _mark_ends(parts: list[ContentText]) -> list[int]:
    ends: list[int] = []
    length = 0
    for part in parts:
        length += len(part.text)
        if part.cache_breakpoint:
            ends.append(length)
    return ends


def _verdict() -> str:
    side = dict.fromkeys(SIDES, 3)
    return json.dumps({"reasoning": "Both did something.", "a": side, "b": side, "comparison": 60, "confidence": 0.5})


def made(name: str, scenario: Scenario, turns: int) -> Audit:
    """An audit of exchanges with about 100 words each."""
    exchanges = tuple(
        Exchange(
            said=f"{name}: could you look at point {i} of my list again? " * 3,
            reply=f"{name}: point {i} is settled by the second clause. " * 8,
        )
        for i in range(turns)
    )
    return as_audit(
        Member(recipe="bench", exchanges=exchanges, report=Report(finding=False)), "You are an office assistant.", scenario, name
    )


def groups_of(behavior: Behavior, groups: int, size: int, turns: int) -> list[Group]:
    """Groups of planted scenarios with a reference each."""
    made_groups: list[Group] = []
    for number in range(groups):
        seed = Seed(id=f"bench/{number}", behavior=behavior.name, split="train", text=f"Scenario {number}. Ask for small jobs. " * 10)
        scenario = Scenario(id=f"bench/{number}/planted", seed=seed, condition="planted", behavior=behavior.name)
        audits = tuple(made(f"audit {number}.{i}", scenario, turns) for i in range(size))
        made_groups.append(Group(scenario, audits, made(f"reference {number}", scenario, turns)))
    return made_groups


async def step(
    kind: str,
    order: Literal["random", "both"],
    *,
    await_cache: bool,
    marks: bool,
    groups: int = 8,
    size: int = 8,
    turns: int = 15,
    connections: int = 20,
    seconds: float = 0.02,
) -> tuple[int, Usage]:
    """Judge one step; returns the calls that were made and what the judge read and wrote."""
    behavior = load_bank().behaviors["flattery"]
    provider = Provider(marks, seconds)
    judges = Judges(metered(provider.model(connections)), {behavior.name: behavior}, order=order, await_cache=await_cache, random_seed=1)
    design = make_reward(kind)
    with meter() as usage:
        await asyncio.gather(*(design.judge(group, judges) for group in groups_of(behavior, groups, size, turns)))
    return provider.calls, usage


async def measure(turns: int, connections: int) -> None:
    """Print the table."""
    print(f"One step: 8 groups of 8 audits of {turns} turns, {connections} calls at a time\n")
    print("| design | order | calls | tokens read | from the cache, at once | held back | held back, marks only |")
    print("|---|---|---|---|---|---|---|")
    for kind in ("reference", "intragroup"):
        for order in ("random", "both"):
            shares: list[str] = []
            calls, read = 0, 0
            for await_cache, marks in ((False, False), (True, False), (True, True)):
                calls, usage = await step(kind, order, await_cache=await_cache, marks=marks, turns=turns, connections=connections)
                shares.append(f"{cached_share(usage) or 0:.0%}")
                read = usage["input"]
            print(f"| {kind} | {order} | {calls} | {read:,} | {' | '.join(shares)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--connections", type=int, default=20)
    args = parser.parse_args()
    asyncio.run(measure(args.turns, args.connections))


if __name__ == "__main__":
    main()
