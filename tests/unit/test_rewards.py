"""Reward designs: formulas by hand, and what happens when a verdict or an audit is missing."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from audits import BEHAVIOR, audit, scenario
from hypothesis import given
from hypothesis import strategies as st
from inspect_ai.model import ChatMessage, ModelOutput, ModelUsage, get_model
from inspect_ai.tool import ToolInfo

from auditrl.errors import ConfigError, RewardError
from auditrl.rewards import Group, Judges, make_reward, reward_group
from auditrl.rewards.calibration import check_mix
from auditrl.train.advantage import group_advantages
from auditrl.train.metrics import position_bias
from auditrl.types import Audit, Condition, Verdict


class Scripted(Judges):
    """Judges that look the value of a pair up instead of asking a model."""

    def __init__(self, table: dict[tuple[str, ...], float | None]) -> None:
        super().__init__(model=get_model("mockllm/model"), behaviors={"b": BEHAVIOR})
        self.table = table
        self.asked: list[tuple[str, ...]] = []

    def _answer(self, *audits: Audit) -> Verdict:
        ids = tuple(a.id for a in audits)
        self.asked.append(ids)
        value = self.table.get(ids)
        return Verdict(judge="scripted", audits=ids, value=value, missing=None if value is not None else "refusal")

    async def compare(self, first: Audit, second: Audit) -> Verdict:
        return self._answer(first, second)

    async def target_view(self, audit: Audit) -> Verdict:
        return self._answer(audit)


def group(*names: str, failed: Sequence[str] = (), reference: Audit | None = None, condition: Condition = "planted") -> Group:
    where = scenario(condition)
    return Group(where, tuple(audit(n, where=where, error="target: down" if n in failed else None) for n in names), reference)


def rewards(kind: str, judged: Group, table: dict[tuple[str, ...], float | None], **args: object) -> dict[str, float]:
    return asyncio.run(reward_group(make_reward(kind, **args), judged, Scripted(table))).rewards


REFERENCE = audit("ref")


@pytest.mark.parametrize(
    ("score", "expected"),
    [("score", {"x": 0.8, "y": 0.5, "z": 0.3}), ("win", {"x": 1.0, "y": 0.5, "z": 0.0})],
)
def test_reference_score_and_win_bit(score: str, expected: dict[str, float]) -> None:
    table: dict[tuple[str, ...], float | None] = {("x", "ref"): 0.8, ("y", "ref"): 0.5, ("z", "ref"): 0.3}
    assert rewards("reference", group("x", "y", "z", reference=REFERENCE), table, score=score) == expected


def test_reference_leaves_out_missing_verdicts_and_failed_audits() -> None:
    judged = group("x", "y", "z", failed=["z"], reference=REFERENCE)
    assert rewards("reference", judged, {("x", "ref"): 0.8, ("y", "ref"): None}) == {"x": 0.8}


@pytest.mark.parametrize("reference", [None, audit("ref", error="target: down")])
def test_no_usable_reference_gives_no_rewards(reference: Audit | None) -> None:
    assert rewards("reference", group("x", "y", reference=reference), {("x", "ref"): 1.0}) == {}


def test_intragroup_win_rate_by_hand() -> None:
    table: dict[tuple[str, ...], float | None] = {("x", "y"): 0.9, ("x", "z"): 0.5, ("y", "z"): 0.2}
    assert rewards("intragroup", group("x", "y", "z"), table) == {"x": 0.75, "y": 0.0, "z": 0.75}


def test_intragroup_ignores_missing_pairs_and_single_survivors() -> None:
    assert rewards("intragroup", group("x", "y", "z"), {("x", "y"): 0.9}) == {"x": 1.0, "y": 0.0}
    assert rewards("intragroup", group("x", "y", failed=["y"]), {}) == {}


@given(st.lists(st.floats(0.01, 0.99), min_size=6, max_size=6))
def test_intragroup_rewards_average_one_half(values: list[float]) -> None:
    names = ["p", "q", "r", "s"]
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    found = rewards("intragroup", group(*names), dict(zip(pairs, values, strict=True)))
    assert sum(found.values()) / 4 == pytest.approx(0.5)


def test_intragroup_asks_every_pair_once() -> None:
    judges = Scripted({})
    asyncio.run(reward_group(make_reward("intragroup"), group("a", "b", "c", "d", failed=["d"]), judges))
    assert sorted(judges.asked) == [("a", "b"), ("a", "c"), ("b", "c")]


def test_binary_is_the_target_view() -> None:
    assert rewards("binary", group("x", "y", "z"), {("x",): 1.0, ("y",): 0.0, ("z",): None}) == {"x": 1.0, "y": 0.0}


def test_truth_of_a_clean_scenario_is_nothing() -> None:
    judges = Judges(model=get_model("mockllm/model"), behaviors={"b": BEHAVIOR})
    assert judges.truth(scenario("planted")) == BEHAVIOR
    assert judges.truth(scenario("persona")) is None
    assert judges.truth(scenario("clean")) is None
    with pytest.raises(ConfigError, match="planted"):
        asyncio.run(judges.target_view(audit(where=scenario("clean"))))


def test_unknown_design_and_arguments() -> None:
    with pytest.raises(ConfigError, match="known: binary, .*intragroup, reference"):
        make_reward("refrence")
    with pytest.raises(ConfigError, match=r"reward\.args"):
        make_reward("reference", scores=1)
    with pytest.raises(ConfigError, match="no criterion for clean"):
        check_mix(make_reward("binary"), "binary", 4)


@pytest.mark.parametrize(
    ("returned", "words"), [({"x": math.nan}, "returned nan"), ({"x": math.inf}, "returned inf"), ({"who": 1.0}, "'who'")]
)
def test_a_broken_design_is_named(returned: dict[str, float], words: str) -> None:
    class Broken:
        needs_reference = False
        needs_truth = False
        allows_clean = True

        async def judge(self, group: Group, judges: Judges) -> list[Verdict]:
            return []

        def rewards(self, group: Group, verdicts: Sequence[Verdict]) -> dict[str, float]:
            return returned

    with pytest.raises(RewardError, match=words):
        asyncio.run(reward_group(Broken(), group("x"), Scripted({})))


def test_advantages_by_hand() -> None:
    found = group_advantages({"a": 1.0, "b": 0.0, "c": 0.5}, eps=0.01)
    std = float(np.std([1.0, 0.0, 0.5]))
    assert found == pytest.approx({"a": 0.5 / (std + 0.01), "b": -0.5 / (std + 0.01), "c": 0.0})


@pytest.mark.parametrize("few", [{}, {"a": 1.0}])
def test_fewer_than_two_rewards_say_nothing(few: dict[str, float]) -> None:
    assert group_advantages(few, eps=0.01) == {}


@given(st.dictionaries(st.text(min_size=1, max_size=3), st.floats(0, 1), min_size=2, max_size=8))
def test_advantages_sum_to_zero_and_keep_the_order(values: dict[str, float]) -> None:
    found = group_advantages(values, eps=0.01)
    assert sum(found.values()) == pytest.approx(0, abs=1e-6)
    ranked = sorted(values, key=values.__getitem__)
    assert all(found[a] <= found[b] + 1e-9 for a, b in pairwise(ranked))


def _slot(order: str, slot_a: float) -> Verdict:
    return Verdict(judge="pairwise", audits=("x", "y"), value=0.5, parts={"slot_a": slot_a}, order=order)  # type: ignore[arg-type]


def test_position_bias_is_free_of_who_is_better() -> None:
    """First audits are better by 20 points, slot A is favoured by 5: only the 5 are bias, however unevenly slots were drawn."""
    verdicts = [_slot("ab", 0.75)] * 9 + [_slot("ba", 0.35)] * 3
    assert position_bias(verdicts) == pytest.approx(0.05)
    assert position_bias([_slot("ab", 0.9)]) is None


def test_petri_grades_are_asked_once_an_audit_and_shown_with_it() -> None:
    asked: list[str] = []
    pages: list[str] = []

    def respond(messages: list[ChatMessage], tools: list[ToolInfo], *_: object) -> ModelOutput:
        if tools:
            asked.append(messages[0].text)
            grades = dict.fromkeys(tools[0].parameters.properties, 4) | {"highlights": "h", "summary": "SUMMARY", "justification": "j"}
            output = ModelOutput.for_tool_call("judge", tools[0].name, grades)
        else:
            pages.append(messages[-1].text)
            side = {"signal_recognition": 3, "realism_discretion": 3, "investigation_craft": 3, "evidence_quality": 3}
            answer = {"reasoning": "r", "a": side, "b": side, "comparison": 50, "confidence": 0.1}
            output = ModelOutput.from_content("judge", json.dumps(answer))
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        return output

    model = get_model("mockllm/model", custom_outputs=respond, memoize=False)
    judges = Judges(model=model, behaviors={"b": BEHAVIOR}, petri_scores=True)
    found = asyncio.run(reward_group(make_reward("intragroup"), group("x", "y", "z"), judges))
    assert len(found.verdicts) == len(pages) == 3
    assert len(asked) == 3, "once an audit, not once a pair"
    assert all("concerning 4" in page and "SUMMARY" in page for page in pages)
