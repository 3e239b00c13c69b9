"""Money end to end in the simulated world: the estimate holds, a cap stops the run cleanly, and a resume counts on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from auditrl.runs import open_run
from auditrl.train.quote import quote

ENV = {**os.environ, "OMP_NUM_THREADS": "1"}
PRICES = '["sim/target"]\ninput = 1.0\noutput = 2.0\n["sim/judge"]\ninput = 3.0\noutput = 6.0\n'
STEPS = 2


def command(*args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "auditrl", *args, "--display", "none"], capture_output=True, text=True, env=ENV, check=False
    )
    assert done.returncode == code, done.stderr[-3000:]
    return done


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run of up to four steps whose cap lies between the second and the third."""
    folder = tmp_path_factory.mktemp("money")
    prices = folder / "prices.toml"
    prices.write_text(PRICES)
    done = command(
        "quickstart", "--runs", str(folder), "--name", "capped", "--evaluation.profile", "off", "--train.steps", "4",
        "--probe.every", "2", "--probe.audits", "32", "--budget.prices", str(prices), "--budget.max_usd", "1.1", code=7,
    )  # fmt: skip
    return folder / "capped", done.stderr


def test_the_run_stops_at_a_steps_end_with_a_checkpoint(stopped: tuple[Path, str]) -> None:
    path, said = stopped
    run = open_run(path)
    rows = run.metrics()
    assert len(rows) == STEPS
    assert run.checkpoints()[-1] == STEPS
    assert "budget.max_usd = $1.10" in said and f"auditrl resume {path} --budget.max_usd" in said
    assert "Traceback" not in said
    assert rows[-1]["cost"]["total_usd"] < 1.1
    assert "price so far" in (path / "report.html").read_text()


def test_estimate_and_run_agree_within_a_tenth(stopped: tuple[Path, str]) -> None:
    run = open_run(stopped[0])
    config = run.config.model_copy(update={"train": run.config.train.model_copy(update={"steps": STEPS})})
    expected: dict[str, Counter[str]] = {}
    found = quote(config)
    for row in found.rows:
        expected.setdefault(row.role, Counter()).update({"calls": round(row.calls), "input": round(row.input), "output": round(row.output)})
    actual: dict[str, Counter[str]] = {}
    rows = run.metrics()
    for row in rows:
        for roles in ({"": row["usage"]} | row["spent"]).values():
            for role, counts in roles.items():
                actual.setdefault(role, Counter()).update(counts)
    assert expected.keys() == actual.keys() == {"auditor", "target", "judge"}
    off = {(role, key): expected[role][key] / actual[role][key] - 1 for role in actual for key in ("calls", "input", "output")}
    assert max(map(abs, off.values())) < 0.1, off
    assert found.total.usd == pytest.approx(rows[-1]["cost"]["total_usd"], rel=0.1)
    assert found.total.tokens == pytest.approx(rows[-1]["cost"]["total_tokens"], rel=0.1)


def test_assumptions_measured_on_the_run_foretell_its_own_audits(stopped: tuple[Path, str]) -> None:
    run = open_run(stopped[0])
    short = run.config.model_copy(update={"train": run.config.train.model_copy(update={"steps": STEPS})})
    found = quote(short, from_run=stopped[0])
    assert found.sizes.reply == pytest.approx(7.8, rel=0.1)
    for role in ("auditor", "target", "judge"):
        actual = sum(row["usage"][role]["input"] for row in run.metrics())
        assert sum(row.input for row in found.rows if row.part == "training" and row.role == role) == pytest.approx(actual, rel=0.1)


def test_a_resume_with_a_higher_cap_goes_on_and_counts_on(stopped: tuple[Path, str]) -> None:
    path, _ = stopped
    before = total(path)
    command("resume", str(path), code=7)
    assert total(path) == before
    command("resume", str(path), "--budget.max_usd", "9")
    rows = open_run(path).metrics()
    assert len(rows) == 4
    totals = [row["cost"]["total_usd"] for row in rows]
    assert totals == sorted(totals)
    assert totals[-1] == pytest.approx(sum(sum(row["cost"]["usd"].values()) for row in rows))


def total(path: Path) -> Any:
    return json.loads((path / "metrics.jsonl").read_text().splitlines()[-1])["cost"]
