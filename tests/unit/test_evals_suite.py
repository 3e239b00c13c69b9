"""The runner of the suites: records, continuation, missing verdicts, cost. Audits are handed over by a stand-in for the audit loop."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from eval_tools import SUITE_ANSWER, answering, audit, context, sent, talk

import auditrl.audit.run
from auditrl.errors import ConfigError, MissingVerdictsError, ProviderError, RunError
from auditrl.evals.base import EvalContext, Size
from auditrl.evals.records import SuiteRecords, read_manifest
from auditrl.evals.scores import Scorecard, marks
from auditrl.evals.suite import FOUR, run_suite
from auditrl.types import Audit

SIZES = {name: Size(2, 2, 5) for name in FOUR}


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Replaces the audit loop; counts the audits that are run, by id. `failing` and `stop_after` are set on it."""
    ran: Counter[str] = Counter()

    async def run(units: Sequence[Any], *_: Any, on_audit: Callable[[Audit], None], **__: Any) -> None:
        for unit in units:
            if STATE["stop_after"] is not None and ran.total() >= STATE["stop_after"]:
                raise asyncio.CancelledError
            ran[unit.audit_id] += 1
            number = int(unit.scenario.seed.id[-3:])
            said = (f"hello {number} {unit.index}", "the lighthouse is fine")
            made = audit(talk(said), index=unit.index, number=number, auditor_messages=sent(said))
            error = "target: down" if unit.audit_id in STATE["failing"] else None
            on_audit(made.model_copy(update={"id": unit.audit_id, "scenario": unit.scenario, "error": error}))
            await asyncio.sleep(0)

    STATE.update(stop_after=None, failing=set())
    monkeypatch.setattr(auditrl.audit.run, "run_audits", run)
    return ran


STATE: dict[str, Any] = {}


def judge_by_text(prompt: str) -> Any:
    return SUITE_ANSWER


def evaluate(where: EvalContext, folder: Path, only: tuple[str, ...] = ("audit_quality",)) -> Scorecard:
    return asyncio.run(run_suite(where, "small", folder=folder, only=only, override=SIZES))


def test_scores_follow_the_formula_and_every_role_is_counted(tmp_path: Path, loop: Counter[str]) -> None:
    card = evaluate(context(tmp_path, answering(judge_by_text)), tmp_path)
    result = card.suites["audit_quality"]
    grade = 100 * 4 / 9
    assert len(result.rows) == 4 and result.interval.mean == pytest.approx((3 * grade + 100 + 100 + 0) / 6)
    assert card.meta["cost"] == {"auditor": {"input": 40, "output": 8, "calls": 4}, "judge": {"input": 28, "output": 12, "calls": 4}}
    assert card.composite is None and card.meta["conversations"] == ["packaged"]
    assert Scorecard.from_json((tmp_path / "scorecard.json").read_text()) == card
    assert not (tmp_path / "audit_quality.verdicts.jsonl").exists()


def test_an_interrupted_suite_goes_on_and_equals_the_uninterrupted_one(tmp_path: Path, loop: Counter[str]) -> None:
    asked: Counter[str] = Counter()

    def judge(prompt: str) -> Any:
        asked[prompt] += 1
        return SUITE_ANSWER

    STATE["stop_after"] = 3
    with pytest.raises(asyncio.CancelledError):
        evaluate(context(tmp_path, answering(judge)), tmp_path / "a")
    kept = SuiteRecords.load(tmp_path / "a", "audit_quality")
    assert len(kept.audits) == 3 and not (tmp_path / "a" / "audit_quality.json").exists()
    STATE["stop_after"] = None
    continued = evaluate(context(tmp_path, answering(judge)), tmp_path / "a")
    assert set(loop.values()) == {1} and set(asked.values()) == {1}, "no audit and no judgement is paid for twice"
    whole = evaluate(context(tmp_path, answering(judge)), tmp_path / "b")
    assert continued.suites == whole.suites
    assert (tmp_path / "a" / "audit_quality.audits.jsonl").read_bytes() == (tmp_path / "b" / "audit_quality.audits.jsonl").read_bytes()
    before = loop.copy()
    assert evaluate(context(tmp_path, answering(judge)), tmp_path / "b").suites == whole.suites and loop == before


def test_a_cut_off_line_is_dropped_and_its_audit_run_again(tmp_path: Path, loop: Counter[str]) -> None:
    STATE["stop_after"] = 3
    with pytest.raises(asyncio.CancelledError):
        evaluate(context(tmp_path, answering(judge_by_text)), tmp_path)
    file = tmp_path / "audit_quality.audits.jsonl"
    file.write_bytes(file.read_bytes()[:-40])
    STATE["stop_after"] = None
    card = evaluate(context(tmp_path, answering(judge_by_text)), tmp_path)
    assert sorted(loop.values()) == [1, 1, 1, 2] and len(card.suites["audit_quality"].rows) == 4


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nonsense", "line 1 can't be read"),
        ('{"audit": {"id": "x"}}', r"line 1: scenario: Field required; it was written by another version"),
    ],
)
def test_damaged_records_are_named(tmp_path: Path, loop: Counter[str], line: str, message: str) -> None:
    (tmp_path / "audit_quality.audits.jsonl").write_text(f"{line}\n{{}}\n")
    with pytest.raises(RunError, match=message):
        evaluate(context(tmp_path, answering(judge_by_text)), tmp_path)


def test_another_evaluation_in_the_folder_is_refused_with_its_keys(tmp_path: Path, loop: Counter[str]) -> None:
    evaluate(context(tmp_path, answering(judge_by_text)), tmp_path)
    with pytest.raises(RunError, match=r"random_seed \(was 0, is 5\)"):
        evaluate(context(tmp_path, answering(judge_by_text), random_seed=5), tmp_path)
    manifest = read_manifest(tmp_path)
    (tmp_path / "evaluation.json").write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(RunError, match="format 99, this version reads 1"):
        evaluate(context(tmp_path, answering(judge_by_text)), tmp_path)


def test_failed_audits_are_counted_and_run_again_only_while_the_suite_is_open(tmp_path: Path, loop: Counter[str]) -> None:
    name = "audit_quality/lighthouse/001/planted/planted#0"
    STATE["failing"] = {name}
    card = evaluate(context(tmp_path, answering(judge_by_text)), tmp_path / "few")
    assert card.suites["audit_quality"].failed == 1 and len(card.suites["audit_quality"].rows) == 3
    assert any("left out of the score: 1 failed" in note for note in marks(card))
    STATE["failing"] = {f"audit_quality/lighthouse/00{n}/planted/planted#{i}" for n in (1, 2) for i in (0, 1)} - {name}
    with pytest.raises(ProviderError, match=r"3 of 4 audits failed, first: target: down.*finished audits are kept"):
        evaluate(context(tmp_path, answering(judge_by_text)), tmp_path / "many")
    STATE["failing"], before = set(), loop[name]
    assert len(evaluate(context(tmp_path, answering(judge_by_text)), tmp_path / "many").suites["audit_quality"].rows) == 4
    assert loop[name] == before


def test_a_refusing_judge_leaves_audits_out_and_says_so(tmp_path: Path, loop: Counter[str]) -> None:
    card = evaluate(context(tmp_path, answering(lambda p: None if "hello 1 " in p else SUITE_ANSWER)), tmp_path)
    result = card.suites["audit_quality"]
    assert {row.seed for row in result.rows} == {"lighthouse/002"} and result.missing == 2 and result.causes == {"refusal": 2}


def test_a_judge_that_can_not_be_reached_stops_the_suite_with_everything_kept(tmp_path: Path, loop: Counter[str]) -> None:
    def down(prompt: str) -> Any:
        raise ConnectionError("no route")

    with pytest.raises(MissingVerdictsError, match=r"4 of 4 verdicts could not be had, first: provider: ConnectionError"):
        evaluate(context(tmp_path, answering(down)), tmp_path)
    card = evaluate(context(tmp_path, answering(judge_by_text)), tmp_path)
    assert set(loop.values()) == {1} and len(card.suites["audit_quality"].rows) == 4


def test_realism_counts_ties_and_refusals_apart(tmp_path: Path, loop: Counter[str]) -> None:
    def judge(prompt: str) -> Any:
        if "hello 1 0" in prompt:
            return {"reasoning": "r", "real": "tie"}
        if "hello 1 1" in prompt:
            return None
        audit_is_a = prompt.index("hello 2") < prompt.index("boat leaks")
        return {"reasoning": "r", "real": "a" if audit_is_a else "b"}

    where = context(tmp_path, answering(judge), seeds=context(tmp_path, answering(judge)).seeds[:2])
    result = evaluate(where, tmp_path, ("realism",)).suites["realism"]
    assert result.causes == {"tie": 1, "refusal": 1} and result.missing == 2
    assert [row.value for row in result.rows] == [100.0, 100.0] and result.interval.n == 1
    assert {row.parts["audit_first"] for row in result.rows} <= {0.0, 100.0}


def test_the_clean_suite_needs_both_a_claim_and_its_absence_in_the_target(tmp_path: Path, loop: Counter[str]) -> None:
    answers = {"hello 1 0": (True, True), "hello 1 1": (False, True), "hello 2 0": (False, False), "hello 2 1": (True, False)}

    def judge(prompt: str) -> Any:
        exhibited, identified = next(v for k, v in answers.items() if k in prompt)
        return {**SUITE_ANSWER, "exhibited": exhibited, "identified": identified}

    result = evaluate(context(tmp_path, answering(judge)), tmp_path, ("fp_calibration",)).suites["fp_calibration"]
    assert [row.value for row in result.rows] == [100.0, 0.0, 100.0, 100.0] and result.interval.mean == 75


def test_nothing_to_evaluate_and_unknown_suites(tmp_path: Path, loop: Counter[str]) -> None:
    judge = answering(judge_by_text)
    with pytest.raises(ConfigError, match="no evaluation seed to run on"):
        evaluate(context(tmp_path, judge, seeds=[]), tmp_path / "a")
    with pytest.raises(ConfigError, match="needs real conversations and evaluation seeds"):
        evaluate(context(tmp_path, judge, real=[]), tmp_path / "b", ("realism",))
    with pytest.raises(ConfigError, match="unknown suite 'honesty'"):
        evaluate(context(tmp_path, judge), tmp_path / "c", ("honesty",))


def test_a_full_disk_is_an_error_of_the_evaluation_not_of_an_audit(
    tmp_path: Path, loop: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("auditrl.evals.records.append_line", full)
    with pytest.raises(RunError, match="No space left on device"):
        evaluate(context(tmp_path, answering(judge_by_text)), tmp_path)
