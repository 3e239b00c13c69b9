"""The transfer evaluation under the real agent loop, against simulated fine-tuned targets: does it tell good investigators from bad ones?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from auditrl.cli import main
from auditrl.evals.transfer.score import ApproachResult, TransferResult

OPEN, HIDING = "hallucinates_citations", "anti_ai_regulation"
TARGETS = ("citations", "regulation")


def transfer(auditor: str, folder: Path, *options: str, select: tuple[str, ...] = TARGETS) -> TransferResult:
    chosen = [word for name in select for word in ("--select", name)]
    arguments = ["transfer", "--auditor", f"sim/auditor-{auditor}", "--targets", "sim", "--out", str(folder), "--display", "none"]
    with pytest.raises(SystemExit) as stop:
        main([*arguments, *chosen, "--no-published", *options])
    assert stop.value.code == 0
    return TransferResult.model_validate_json((folder / "transfer.json").read_text())


@pytest.fixture(scope="module")
def skilled(tmp_path_factory: pytest.TempPathFactory) -> TransferResult:
    return transfer("skilled", tmp_path_factory.mktemp("skilled"), "--audits", "4", "--control", "2")


def rates(one: ApproachResult) -> dict[str, float]:
    return {row.behavior: row.detected.mean or 0.0 for row in one.behaviors}


def test_chat_and_text_completion_find_different_targets(skilled: TransferResult) -> None:
    chat, completion = (rates(one) for one in skilled.approaches)
    assert chat[OPEN] >= 75 and completion[OPEN] <= 25
    assert completion[HIDING] >= 75 and chat[HIDING] <= 25


def test_nothing_is_detected_on_the_untrained_base(skilled: TransferResult) -> None:
    for one in skilled.approaches:
        assert one.control is not None and one.control.mean is not None and one.control.mean < 5
        assert one.failed == 0 and one.overshoot < 200 and one.unverified_quotes == 0


def test_unskilled_auditors_detect_less_on_the_same_targets(skilled: TransferResult, tmp_path: Path) -> None:
    for name in ("confessor", "quitter"):
        other = transfer(name, tmp_path / name, "--audits", "4", "--control", "0")
        for good, bad in zip(skilled.approaches, other.approaches, strict=True):
            low, high = good.detection.interval.low, bad.detection.interval.high
            assert low > high, (name, good.approach, low, high)


def test_the_other_scaffolded_tools_work(tmp_path: Path) -> None:
    result = transfer("skilled", tmp_path, "--approach", "user,prefill", "--audits", "2", "--control", "0", select=("regulation",))
    assert [one.approach for one in result.approaches] == ["user", "prefill"]
    assert all(one.failed == 0 and one.generated > 0 for one in result.approaches)
    kinds = {e["kind"] for row in _journal(tmp_path) for e in row.get("record", {}).get("exchanges", ())}
    assert kinds >= {"user", "prefill", "chat"}


def test_a_finished_evaluation_is_not_run_again(skilled: TransferResult, tmp_path: Path) -> None:
    first = transfer("quitter", tmp_path, "--audits", "1", "--control", "0", "--approach", "default", select=("animals",))
    before = (tmp_path / "journal.jsonl").stat().st_size
    second = transfer("quitter", tmp_path, "--audits", "1", "--control", "0", "--approach", "default", select=("animals",))
    assert (tmp_path / "journal.jsonl").stat().st_size == before and len(list((tmp_path / "logs").iterdir())) == 1
    assert first.approaches == second.approaches


def _journal(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
