"""Training end to end in the simulated world, under the real Inspect and Petri stack."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from auditrl.behaviors.loader import load_bank
from auditrl.runs import open_run

SMALL = ["--train.groups", "8", "--train.group_size", "2", "--evaluation.profile", "off", "--probe.every", "2", "--probe.audits", "4"]
ENV = {**os.environ, "OMP_NUM_THREADS": "1"}


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "auditrl", *args]


def quickstart(folder: Path, name: str, *args: str) -> list[str]:
    return command("quickstart", "--runs", str(folder), "--name", name, "--display", "none", *SMALL, *args)


def rows(run: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in json.loads(line).items() if k != "time"} for line in (run / "metrics.jsonl").read_text().splitlines()]


def finish(args: list[str], code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(args, capture_output=True, text=True, env=ENV, check=False)
    assert done.returncode == code, done.stderr[-3000:]
    return done


def started(args: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(args, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def wait_for_rows(run: Path, count: int) -> None:
    for _ in range(1200):
        file = run / "metrics.jsonl"
        if file.exists() and file.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.1)
    raise AssertionError(f"{run} never reached {count} rows")


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    finish(quickstart(folder, "whole", "--train.steps", "5", "--train.checkpoint_every", "3", "--reward.renewal_steps", "2"))
    return folder / "whole"


def test_kill_and_resume_gives_the_metrics_of_the_unbroken_run(unbroken: Path, tmp_path: Path) -> None:
    args = quickstart(tmp_path, "whole", "--train.steps", "5", "--train.checkpoint_every", "3", "--reward.renewal_steps", "2")
    process = started(args)
    wait_for_rows(tmp_path / "whole", 2)
    time.sleep(0.7)  # somewhere inside the third step
    process.send_signal(signal.SIGKILL)
    process.wait()
    # what a kill while writing leaves: half a row, half a temporary file
    with (tmp_path / "whole" / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 99, "rew')
    finish(command("resume", str(tmp_path / "whole"), "--display", "none"))
    assert rows(tmp_path / "whole") == rows(unbroken)
    last = open_run(unbroken).checkpoint(5) / "model.safetensors"
    assert (open_run(tmp_path / "whole").checkpoint(5) / "model.safetensors").read_bytes() == last.read_bytes()


def test_ctrl_c_says_what_is_saved_and_exits_130(tmp_path: Path) -> None:
    process = started(quickstart(tmp_path, "stopped", "--train.steps", "50"))
    wait_for_rows(tmp_path / "stopped", 1)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr.decode()[-2000:]
    assert "auditrl resume" in stderr.decode()
    assert "Traceback" not in stderr.decode()
    assert len(rows(tmp_path / "stopped")) >= 1


def test_no_hidden_instruction_reaches_an_auditor_a_judge_or_a_log(unbroken: Path) -> None:
    """The instruction of a planted behavior stands in the target's input alone: not in any log, and in no saved audit."""
    import inspect_ai  # noqa: F401  # teaches zipfile the compression of its logs

    bank = load_bank()
    pieces = [line.strip() for b in bank.behaviors.values() for line in b.instruction.splitlines() if len(line.strip()) > 40]
    assert len(pieces) > 50
    read = 0
    for log in (unbroken / "logs").glob("*.eval"):
        with zipfile.ZipFile(log) as archive:
            for name in archive.namelist():
                text = archive.read(name).decode("utf-8", "replace")
                read += len(text)
                found = [piece for piece in pieces if json.dumps(piece)[1:-1] in text]
                assert not found, (log.name, name, found[:1])
    assert read > 100_000
    run = open_run(unbroken)
    for step in range(1, 6):
        text = json.dumps(run.read_step(step, "audits"))
        assert not any(json.dumps(piece)[1:-1] in text for piece in pieces)


def test_a_run_leaves_what_a_reader_needs(unbroken: Path) -> None:
    run = open_run(unbroken)
    assert len(list(run.logs.glob("*step-*.eval"))) == 5
    assert run.checkpoints()[-1] == 5
    page = (unbroken / "report.html").read_text()
    assert "best, planted target" in page
    assert "no evidence about real models" in page
    found = rows(unbroken)
    assert [row["step"] for row in found] == [1, 2, 3, 4, 5]
    assert "probe" in found[1]
    assert all(row["failed_audits"] == 0 and not row["missing_verdicts"] for row in found)


def test_changed_config_and_existing_run_are_refused(unbroken: Path) -> None:
    done = finish(command("resume", str(unbroken), "--train.lr", "0.1"), code=3)
    assert "train.lr" in done.stderr
    again = finish(quickstart(unbroken.parent, "whole"), code=3)
    assert "auditrl resume" in again.stderr


def test_damaged_checkpoint_is_named(unbroken: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "whole"
    shutil.copytree(unbroken, copy)
    (copy / "metrics.jsonl").write_text("".join(f"{line}\n" for line in (copy / "metrics.jsonl").read_text().splitlines()[:4]))
    weights = open_run(copy).checkpoint(4) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    done = finish(command("resume", str(copy), "--display", "none"), code=3)
    assert "model.safetensors" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_reward_rises(tmp_path: Path) -> None:
    """In a short run against a fixed reference the policy comes to beat it, and stops accusing clean targets."""
    args = command(
        "quickstart", "--runs", str(tmp_path), "--name", "rise", "--display", "none", "--evaluation.profile", "off",
        "--train.steps", "12", "--train.group_size", "4", "--reward.renewal_steps", "none", "--probe.every", "0",
    )  # fmt: skip
    finish(args)
    reward = [row["reward"] for row in rows(tmp_path / "rise")]
    assert sum(reward[-4:]) / 4 > sum(reward[:4]) / 4 + 0.05


def test_the_one_file_example_runs() -> None:
    done = finish([sys.executable, "examples/one_file_grpo.py", "--steps", "1"])
    assert "step 1: reward 0." in done.stdout


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("--judge.model", "mockllm/model"), ["verdicts are missing", "reward.max_missing_share", "auditrl resume"]),
        (("--targets.pool.sim.model", "mockllm/model"), ["audits failed", "target:", "auditrl resume"]),
    ],
    ids=["judge", "target"],
)
def test_a_model_that_fails_stops_the_run_cleanly(change: tuple[str, str], words: list[str], tmp_path: Path) -> None:
    """Offline, Inspect's mock model fails in every call: the run ends with exit code 4, keeps what it has, and can be resumed."""
    done = finish(quickstart(tmp_path, "down", "--train.steps", "1", *change), code=4)
    for word in words:
        assert word in done.stderr
    assert "Traceback" not in done.stderr
    run = open_run(tmp_path / "down")
    assert run.metrics() == []
    assert run.checkpoints() == [0]
