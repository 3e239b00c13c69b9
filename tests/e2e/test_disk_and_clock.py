"""A disk that is full at the wrong moment, a clock that jumps, and a second process: nothing is lost."""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import auditrl.runs
from auditrl.commands.training import work_on
from auditrl.config import load_config, packaged_config
from auditrl.display import NoDisplay
from auditrl.runs import create_run, open_run

SMALL = {
    "name": "whole", "train.groups": "8", "train.group_size": "2", "train.steps": "3", "train.checkpoint_every": "2",
    "evaluation.profile": "off", "probe.every": "0",
}  # fmt: skip
BETWEEN = 1_000_000
"""Bytes that hold the weights of the tiny policy and no state of its optimiser: the checkpoint after step 2 is the first that fails."""
DAY_S = 86_400


def train(folder: Path) -> None:
    work_on(create_run(folder, load_config(packaged_config("quickstart"), [*SMALL.items()])), NoDisplay())


def rows(folder: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in json.loads(line).items() if k != "time"} for line in (folder / "whole" / "metrics.jsonl").open()]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    train(folder)
    return folder


def test_a_full_disk_at_a_checkpoint_stops_the_run_and_a_resume_loses_nothing(unbroken: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "auditrl", "quickstart", "--runs", str(tmp_path), "--display", "none"]
    command += [word for key, value in SMALL.items() for word in (f"--{key}", value)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (BETWEEN, BETWEEN)),
    )
    assert done.returncode == 3, done.stderr[-3000:]
    assert "step-0002: the checkpoint can't be written" in done.stderr
    assert "Free space" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(rows(tmp_path)) == 2
    work_on(open_run(tmp_path / "whole"), NoDisplay())
    assert rows(tmp_path) == rows(unbroken)


def test_a_clock_that_jumps_changes_nothing(unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, rng = time.time, random.Random(1)

    def jump() -> int:
        return rng.choice([-DAY_S, 0, DAY_S])

    class Jumping(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + timedelta(seconds=jump())

    monkeypatch.setattr(time, "time", lambda: real() + jump())
    monkeypatch.setattr(auditrl.runs, "datetime", Jumping)
    train(tmp_path)
    assert rows(tmp_path) == rows(unbroken)
    work_on(open_run(tmp_path / "whole"), NoDisplay())
    assert rows(tmp_path) == rows(unbroken)
