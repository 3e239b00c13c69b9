"""Judging beside auditing: when a group is judged, in whose context, and that the order of arrival decides nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from audits import audit, scenario
from hypothesis import given, settings
from hypothesis import strategies as st
from inspect_ai.model import Model, ModelOutput, ModelUsage, get_model

from auditrl.audit.context import audit_context, current_audit
from auditrl.errors import MissingVerdictsError
from auditrl.evals.metering import meter, metered
from auditrl.rewards import Group, Judges
from auditrl.train import judging
from auditrl.train.judging import Judging
from auditrl.types import Audit, Scenario, Verdict

SCENARIOS = [scenario(name=name) for name in ("one", "two", "three")]
GROUPS = [(where, [f"{where.id}.{i}" for i in range(2)]) for where in SCENARIOS]
AUDITS = [audit(name, where=where) for where, names in GROUPS for name in names]
REFERENCES = {SCENARIOS[0].id: "reference.0"}
REFERENCE = audit("reference.0", where=SCENARIOS[0])


class Design:
    """Rewards each audit by its place; remembers what it was asked, and from within which audit."""

    needs_reference = True
    needs_truth = False
    allows_clean = True

    def __init__(self, missing: Sequence[str] = (), slow: float = 0.0) -> None:
        self.missing = missing
        self.slow = slow
        self.waiting = 0
        self.model = answering()
        self.asked: list[Group] = []
        self.inside: list[object] = []
        self.ended: list[str] = []

    async def judge(self, group: Group, judges: Judges) -> list[Verdict]:
        self.asked.append(group)
        self.inside.append(current_audit())
        await self.model.generate("?")
        self.waiting += 1
        try:
            await asyncio.sleep(self.slow)
        finally:
            self.ended.append(group.scenario.id)
        return [
            Verdict(
                judge="d", audits=(a.id,), value=None if a.id in self.missing else 0.5, missing="refusal" if a.id in self.missing else None
            )
            for a in group.finished
        ]

    def rewards(self, group: Group, verdicts: Sequence[Verdict]) -> dict[str, float]:
        return {v.audits[0]: float(i) for i, v in enumerate(verdicts) if v.value is not None}


def answering() -> Model:
    def answer(*_: Any) -> ModelOutput:
        output = ModelOutput.from_content("mockllm/model", "yes")
        output.usage = ModelUsage(input_tokens=2, output_tokens=1, total_tokens=3)
        return output

    return metered(get_model("mockllm/model", custom_outputs=answer))


class Cached:
    def __init__(self, cached: Audit | None) -> None:
        self.cached = cached

    def get(self, where: Scenario, step: int) -> Audit | None:
        return self.cached if where.id == SCENARIOS[1].id else None


def shop(design: Design, *, cached: Audit | None = None, share: float = 0.2) -> Any:
    return SimpleNamespace(
        design=design,
        judges=SimpleNamespace(forget=lambda: None),
        references=Cached(cached),
        config=SimpleNamespace(reward=SimpleNamespace(max_missing_share=share)),
        run=SimpleNamespace(path=Path("runs/r")),
    )


def make(design: Design, **options: Any) -> Judging:
    groups: list[tuple[Scenario, Sequence[str]]] = [*GROUPS]
    return Judging(shop(design, **options), 4, groups, REFERENCES)


@settings(deadline=None)
@given(st.permutations([*AUDITS, REFERENCE]))
def test_the_order_of_arrival_decides_nothing(order: list[Audit]) -> None:
    async def run() -> list[Any]:
        work = make(Design(), cached=audit("cached"))
        for one in order:
            work.over(one)
            if random.Random(one.id).random() < 0.5:
                await asyncio.sleep(0)
        return await work.finished()

    judged = asyncio.run(run())
    assert [(g.group.scenario.id, tuple(a.id for a in g.group.audits), g.rewards) for g in judged] == [
        (where.id, tuple(names), {names[0]: 0.0, names[1]: 1.0}) for where, names in GROUPS
    ]
    assert [g.group.reference and g.group.reference.id for g in judged] == ["reference.0", "cached", None]


def test_a_group_is_judged_when_it_is_complete_and_not_before() -> None:
    async def run() -> list[list[str]]:
        design = Design()
        work, seen = make(design), list[list[str]]()
        for one in [AUDITS[2], AUDITS[0], AUDITS[3], AUDITS[1], REFERENCE, AUDITS[4]]:
            work.over(one)
            await asyncio.sleep(0)
            seen.append([g.scenario.id for g in design.asked])
        await work.close()
        return seen

    one, two = SCENARIOS[0].id, SCENARIOS[1].id
    assert asyncio.run(run()) == [[], [], [two], [two], [two, one], [two, one]]


def test_a_judgement_belongs_to_no_audit_and_counts_to_the_step() -> None:
    async def run() -> tuple[list[object], dict[str, int]]:
        design = Design()
        with meter() as usage:
            work = make(design)
            for one in [*AUDITS, REFERENCE]:
                with audit_context(one.id, 1), meter():
                    work.over(one)
                    await asyncio.sleep(0)
            await work.finished()
        return design.inside, usage

    inside, usage = asyncio.run(run())
    assert inside == [None] * 3
    assert usage == {"input": 6, "output": 3, "calls": 3}


def test_a_reference_that_failed_is_none() -> None:
    async def run() -> Audit | None:
        work = make(Design())
        for one in [*AUDITS, audit("reference.0", where=SCENARIOS[0], error="target: down")]:
            work.over(one)
        return (await work.finished())[0].group.reference

    assert asyncio.run(run()) is None


def test_too_many_missing_verdicts_stop_the_step() -> None:
    async def run(share: float) -> int:
        work = make(Design(missing=[AUDITS[0].id, AUDITS[5].id]), share=share)
        for one in [*AUDITS, REFERENCE]:
            work.over(one)
        return sum(len(g.missing) for g in await work.finished())

    assert asyncio.run(run(0.4)) == 2
    with pytest.raises(MissingVerdictsError, match=r"step 5: 2 of 6 verdicts are missing \(\{'refusal': 2\}\).*auditrl resume runs/r"):
        asyncio.run(run(0.3))


def test_an_interrupted_step_leaves_no_judgement_behind() -> None:
    async def run() -> tuple[list[str], set[str]]:
        design = Design(slow=60.0)
        work = make(design)
        for one in AUDITS[2:]:
            work.over(one)
        while design.waiting < 2:
            await asyncio.sleep(0.001)
        await work.close()
        return design.ended, {task.get_coro().__qualname__ for task in asyncio.all_tasks()}  # type: ignore[union-attr]

    ended, alive = asyncio.run(run())
    assert sorted(ended) == sorted([SCENARIOS[1].id, SCENARIOS[2].id])
    assert judging.reward_group.__qualname__ not in alive
