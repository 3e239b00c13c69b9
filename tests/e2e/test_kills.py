"""A run that is killed at random moments, with its garbage collected in between, is in the end the run that was left alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from auditrl.analysis.run_report import write_report
from auditrl.runs import Run, open_run
from auditrl.train.gc import collect

KILLS, STEPS = 5, 4
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "kills.py"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """The run that was left alone, and the one that was killed five times."""
    folder = tmp_path_factory.mktemp("kills")
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "--kills", str(KILLS), "--steps", str(STEPS), "--out", str(folder)],
        capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert f"{KILLS} kills over a run of {STEPS} steps" in done.stdout
    return {name: open_run(folder / name / "kills") for name in ("whole", "killed")}


def events(run: Run, kind: str) -> list[dict[str, Any]]:
    return [event for line in (run.path / "events.jsonl").read_text().splitlines() if (event := json.loads(line))["event"] == kind]


def test_nothing_is_lost_and_no_digit_differs(runs: dict[str, Run]) -> None:
    whole, killed = runs["whole"], runs["killed"]
    rows = [[{key: value for key, value in row.items() if key != "time"} for row in run.metrics()] for run in (whole, killed)]
    assert rows[0] == rows[1]
    assert [row["step"] for row in rows[0]] == list(range(1, STEPS + 1))
    for step in range(1, STEPS + 1):
        assert killed.read_step(step, "audits") == whole.read_step(step, "audits")
    weights = [(run.checkpoint(STEPS) / "model.safetensors").read_bytes() for run in (whole, killed)]
    assert weights[0] == weights[1]
    assert not list((killed.path / "checkpoints").glob(".*"))


def test_kills_hit_a_run_at_work_and_its_garbage_was_collected(runs: dict[str, Run]) -> None:
    assert events(runs["killed"], "resumed") and not events(runs["whole"], "resumed")
    assert len(events(runs["killed"], "checkpoint")) >= len(events(runs["whole"], "checkpoint"))


def test_garbage_collection_leaves_report_and_reader_as_they_were(runs: dict[str, Run]) -> None:
    run = runs["whole"]

    def written() -> dict[str, bytes]:
        write_report(run)
        files = [run.path / "report.html", *sorted((run.path / "reader").rglob("*.*"))]
        return {path.name: path.read_bytes() for path in files if path.is_file()}

    before = written()
    freed = collect(run, logs=True)
    assert freed.kinds().keys() >= {"references", "segments", "logs"}
    assert written() == before
    assert len(before) > 2 and not collect(run).waste
