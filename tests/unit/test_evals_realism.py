"""Matching of real conversations and seeds, and the similarity judge."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from eval_tools import answering, context, real, seed

from auditrl.errors import MissingVerdictsError, RunError
from auditrl.evals.base import Size
from auditrl.evals.realism import assign, judged_similarity, match, text_similarity
from auditrl.evals.records import read_pairs, write_pairs
from auditrl.evals.suite import run_suite
from auditrl.judges.similarity import SIMILARITY_SCALES, judge_similarity


def grades(value: int) -> dict[str, Any]:
    return {"reasoning": "r", **dict.fromkeys(SIMILARITY_SCALES, value)}


def test_the_assignment_is_one_to_one_and_of_greatest_total() -> None:
    # the greedy choice (0, 0) would leave 1 for the second row
    assert assign(np.array([[9.0, 8.0, 0.0], [8.0, 1.0, 0.0]])) == [(0, 1), (1, 0)]


def test_text_similarity_prefers_shared_words_and_repeats_exactly() -> None:
    seeds = [seed(1).model_copy(update={"text": "my boat leaks badly"}), seed(2).model_copy(update={"text": "tax return forms"})]
    found = text_similarity([real("a")], seeds)
    assert found.shape == (1, 2) and found[0, 0] > found[0, 1] == 0
    assert (found == text_similarity([real("a")], seeds)).all()


@pytest.mark.parametrize(("grade", "value"), [(1, 0.0), (10, 1.0), (4, 1 / 3)])
def test_the_similarity_judge_averages_five_scales(grade: int, value: float) -> None:
    verdict = asyncio.run(judge_similarity(answering(lambda _: grades(grade)), real("a"), seed()))
    assert verdict.value == pytest.approx(value) and verdict.audits == ("a", "lighthouse/001")
    assert verdict.parts == dict.fromkeys(SIMILARITY_SCALES, float(grade))


@pytest.mark.parametrize("answer", [None, "no JSON", {**grades(3), "tone": 11}, {"reasoning": "r"}])
def test_a_missing_similarity_is_missing_and_chosen_last(answer: Any) -> None:
    def judge(prompt: str) -> Any:
        return answer if "number 1" in prompt else grades(2)

    matrix, verdicts = asyncio.run(judged_similarity(answering(judge), [real("a")], [seed(1), seed(2)]))
    assert [v.value is None for v in verdicts] == [True, False] and matrix.tolist() == [[0.0, pytest.approx(1 / 9)]]
    assert assign(matrix) == [(0, 1)]


def test_matching_by_judge_is_kept_and_counted(tmp_path: Path) -> None:
    where = context(tmp_path, answering(lambda p: grades(9 if "number 3" in p else 2)), similarity="judge", real=[real("a")])
    pairs, verdicts = asyncio.run(match(where, Size(20, 5, 10)))
    assert [(p.real.id, p.seed.id) for p in pairs] == [("a", "lighthouse/003")] and len(verdicts) == 3
    write_pairs(tmp_path / "p.json", pairs, {"judge": {"calls": 3}}, 0)
    assert read_pairs(tmp_path / "p.json") == (pairs, {"cost": {"judge": {"calls": 3}}, "missing": 0})


def test_a_similarity_judge_that_mostly_refuses_stops_the_suite(tmp_path: Path) -> None:
    where = context(tmp_path, answering(lambda _: None), similarity="judge")
    with pytest.raises(
        MissingVerdictsError, match=r"6 of 6 similarity verdicts are missing \(refusal\); use another judge, or --similarity text"
    ):
        asyncio.run(run_suite(where, "small", folder=tmp_path, only=("realism",)))


@pytest.mark.parametrize("text", ["", "{}", '{"format": 99}', '{"format": 1, "pairs": [{}]}'])
def test_a_damaged_matching_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(RunError, match=r"p\.json: can't be read"):
        read_pairs(tmp_path / "p.json")
    with pytest.raises(RunError, match="missing; realism audits can only be judged"):
        read_pairs(tmp_path / "q.json")
