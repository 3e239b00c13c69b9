"""Alarms in a real run: they change nothing, stop cleanly, and let go when they are told to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from auditrl.runs import list_runs, open_run

ENV = {**os.environ, "OMP_NUM_THREADS": "1"}
SMALL = [
    "--display", "plain", "--train.groups", "2", "--train.group_size", "2", "--train.steps", "3", "--evaluation.profile", "off", "--probe.every", "1",
    "--probe.audits", "4",
]  # fmt: skip
TOUCHY = ["--alarms.length_drift.limit", "1.0001", "--alarms.length_drift.action", "stop", "--alarms.persistence", "1"]
BESIDE_TRAINING = {"time", "signals", "alarms", "cost", "spent"}


def auditrl(*args: str, code: int = 0) -> str:
    done = subprocess.run([sys.executable, "-m", "auditrl", *args], capture_output=True, text=True, env=ENV, check=False)
    assert done.returncode == code, done.stderr[-3000:]
    assert "Traceback" not in done.stderr
    return done.stderr


def training(run: Path) -> list[dict[str, Any]]:
    """The rows without what alarms add and cost."""
    return [{k: v for k, v in row.items() if k not in BESIDE_TRAINING} for row in open_run(run).metrics()]


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run without alarms."""
    folder = tmp_path_factory.mktemp("off")
    auditrl("quickstart", "--runs", str(folder), "--name", "run", *SMALL, "--alarms.action", "off")
    return folder / "run"


def test_without_alarms_there_is_no_trace_of_them(silent: Path) -> None:
    rows = open_run(silent).metrics()
    assert not any({"signals", "alarms"} & row.keys() for row in rows)
    assert not list(silent.glob("steps/*.probe.json.gz"))
    assert not (silent / "alarms.jsonl").exists()


def test_an_alarm_stops_the_run_and_lets_go_with_the_same_training(silent: Path, tmp_path: Path) -> None:
    """Exit code 6 behind a checkpoint and a report; a plain resume is refused; with the alarm on `warn` the run ends as one without alarms."""
    run = tmp_path / "run"
    told = auditrl("quickstart", "--runs", str(tmp_path), "--name", "run", *SMALL, *TOUCHY, code=6)
    done = len(open_run(run).metrics())
    assert 1 <= done < 3
    assert f"alarm: step {done}: characters a conversation" in told
    assert f"auditrl resume {run} --alarms.length_drift.action warn" in told
    assert open_run(run).checkpoints()[-1] == done
    assert "stopped the run" in (run / "report.html").read_text(encoding="utf-8")
    assert list_runs(tmp_path)[0]["state"] == "stopped by alarm"
    alarms = [json.loads(line) for line in (run / "alarms.jsonl").read_text().splitlines()]
    assert [alarm["alarm"] for alarm in alarms] == ["length_drift"]
    assert alarms == open_run(run).metrics()[-1]["alarms"]

    auditrl("resume", str(run), "--display", "none", code=6)
    assert len(open_run(run).metrics()) == done

    auditrl("resume", str(run), "--display", "none", "--alarms.length_drift.action", "warn")
    assert training(run) == training(silent)
    weights = [open_run(path).checkpoint(3) / "model.safetensors" for path in (run, silent)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert list_runs(tmp_path)[0]["state"] == "finished"
