"""A tiny study with real training processes in the simulated world, and again without work."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

STUDY = """
name = "study-tiny"
base = "quickstart"
random_seeds = [1]
[set]
train = { steps = 2, groups = 8, group_size = 2 }
probe.every = 0
alarms.every = 0
evaluation.profile = "off"
[[runs]]
label = "intragroup 0/8"
set = { "reward.kind" = "intragroup", "reward.calibration_eighths" = 0 }
[[runs]]
label = "reference 4/8"
"""


def test_a_tiny_study_trains_clusters_and_draws(tmp_path: Path) -> None:
    file, out = tmp_path / "tiny.toml", tmp_path / "out"
    file.write_text(STUDY, encoding="utf-8")
    words = ["study", "--profile", str(file), "--only", "curves,rewards,strategies", "--out", str(out), "--display", "plain"]
    command = [sys.executable, "-m", "auditrl", *words]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "strategies: done" in done.stderr
    assert "No scores of intragroup 0/8 (finished at step 2); reference 4/8 (finished at step 2)" in done.stdout
    assert (out / "figures" / "curves.png").exists()
    assert (out / "figures" / "strategies.svg").exists()
    rows = list(csv.DictReader((out / "figures" / "curves.csv").open(encoding="utf-8")))
    assert [(row["label"], row["step"]) for row in rows] == [(label, s) for label in ("intragroup 0/8", "reference 4/8") for s in "12"]
    page = (out / "study.html").read_text(encoding="utf-8")
    assert "Strategies over training" in page

    again = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr[-3000:]
    assert "finished" not in again.stderr and "strategies: done" not in again.stderr  # nothing was run again
