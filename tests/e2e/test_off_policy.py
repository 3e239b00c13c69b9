"""Audits that run one step ahead of the update: what they are made by, that a kill changes nothing, and that an interruption ends them."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from test_training import SMALL, command, finish, quickstart, rows, started, wait_for_rows

from auditrl.runs import open_run

assert SMALL  # the size of the runs below
AHEAD = ("--train.off_policy_steps", "1", "--train.steps", "6", "--train.checkpoint_every", "4", "--reward.renewal_steps", "none")
ROUNDING = 1e-3
"""How far a ratio may lie from 1 on-policy: sampling and update add up in different orders."""


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ahead")
    finish(quickstart(folder, "whole", *AHEAD))
    return folder / "whole"


def test_a_step_is_off_policy_unless_it_follows_a_checkpoint(unbroken: Path) -> None:
    found = rows(unbroken)
    drifted = [abs(row["update"]["ratio_max"] - 1) > ROUNDING for row in found]
    assert drifted == [False, True, True, True, False, True]
    assert all("probe" in row for row in found[1::2])
    assert all({"ratio_mean", "ratio_max", "clip_share", "masked_share"} <= row["update"].keys() for row in found)


def test_a_kill_changes_nothing(unbroken: Path, tmp_path: Path) -> None:
    process = started(quickstart(tmp_path, "whole", *AHEAD))
    wait_for_rows(tmp_path / "whole", 2)
    time.sleep(0.5)  # somewhere inside the third step, whose audits run beside the second update
    process.send_signal(signal.SIGKILL)
    process.wait()
    finish(command("resume", str(tmp_path / "whole"), "--display", "none"))
    assert rows(tmp_path / "whole") == rows(unbroken)
    weights = [open_run(run).checkpoint(6) / "model.safetensors" for run in (unbroken, tmp_path / "whole")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_ctrl_c_ends_what_runs_ahead(tmp_path: Path) -> None:
    process = started(quickstart(tmp_path, "stopped", *AHEAD, "--train.steps", "50"))
    wait_for_rows(tmp_path / "stopped", 2)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr.decode()[-2000:]
    assert "Traceback" not in stderr.decode()
    assert "never retrieved" not in stderr.decode()
