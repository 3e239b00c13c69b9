"""A tiny sweep with real training processes in the simulated world, interrupted and gone on with."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from auditrl.config import load_config, packaged_config
from auditrl.display import NoDisplay
from auditrl.evals.base import Size
from auditrl.evals.scores import Scorecard
from auditrl.runs import create_run

SWEEP = """
name = "tiny"
base = "quickstart"
random_seeds = [1]
[set]
train = { steps = 2, groups = 8, group_size = 2 }
probe.every = 0
alarms.every = 0
evaluation.profile = "off"
[[runs]]
label = "calibrated 4/8"
[[runs]]
label = "uncalibrated 0/8"
set = { "reward.calibration_eighths" = 0 }
[[expect]]
metric = "reward"
higher = "calibrated 4/8"
than = "calibrated 4/8@begin"
"""


def test_a_sweep_is_stopped_goes_on_and_reports(tmp_path: Path) -> None:
    file, out = tmp_path / "tiny.toml", tmp_path / "out"
    file.write_text(SWEEP, encoding="utf-8")
    words = [sys.executable, "-m", "auditrl", "sweep", str(file), "--out", str(out), "--jobs", "1", "--display", "plain"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    rows = out / "calibrated-4-8-s1" / "metrics.jsonl"
    while not rows.exists() and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 130, said
    assert "run the same command again to go on" in said
    assert "Traceback" not in said

    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "calibrated-4-8-s1: finished, step 2 of 2" in done.stderr
    assert "resumed after step" in (out / "output" / "calibrated-4-8-s1.log").read_text()
    assert "UNDECIDED: reward: calibrated 4/8 higher than calibrated 4/8@begin" in done.stdout
    results = json.loads((out / "results.json").read_text())
    assert [(cell["label"], cell["state"], cell["step"]) for cell in results["cells"]] == [
        ("calibrated 4/8", "finished", 2),
        ("uncalibrated 0/8", "finished", 2),
    ]
    assert (out / "curves.png").exists()


def test_the_start_is_evaluated_without_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process of a start opens the run's policy and evaluates it into `evaluation/before`; no step is made."""
    from auditrl.train import evaluation
    from auditrl.train.start import evaluate_start

    asked: list[tuple[str, str, str, str]] = []
    replicates: set[int] = set()

    async def run_suite(context: Any, profile: str, *, folder: Path, override: Mapping[str, Size]) -> Scorecard:
        asked.append((context.label, profile, context.clean_condition, str(folder)))
        replicates.update(size.replicates for size in override.values())
        return Scorecard("x", {}, None, True)

    monkeypatch.setattr(evaluation, "run_suite", run_suite)
    changes = [("name", "start-s1"), ("evaluation.clean_persona", "false"), ("evaluation.replicates", "2")]
    config = load_config(packaged_config("quickstart"), changes)
    run = create_run(tmp_path, config)
    asyncio.run(evaluate_start(run, NoDisplay()))
    assert asked == [("before", "sim", "clean", str(run.path / "evaluation" / "before"))]
    assert replicates == {2}, "of 3, 4 and 5 that the profile has"
    assert not run.metrics()
    assert not run.checkpoints()
