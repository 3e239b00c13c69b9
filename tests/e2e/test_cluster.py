"""Strategies end to end: scripted auditors under the real Petri stack, their logs scanned by Scout and clustered by the command."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import auditrl.analysis.clustering.scanner as scanner
from auditrl.analysis.clustering.rules import describe_by_rule
from auditrl.audit.run import run_audits
from auditrl.audit.task import Unit
from auditrl.config import AuditConfig
from auditrl.sim.auditors import ARCHETYPES
from auditrl.sim.world import sim_seeds
from auditrl.types import Audit, Scenario

ENV = {**os.environ, "OMP_NUM_THREADS": "1", "INSPECT_DISPLAY": "none"}
EACH = 4


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Audit]]:
    """One log an archetype, and the audits in them."""
    from inspect_ai.model import get_model

    folder = tmp_path_factory.mktemp("logs")
    target = get_model("sim/target", memoize=False)
    audits: list[Audit] = []

    async def play() -> None:
        for archetype in ARCHETYPES:
            name = f"sim/auditor-{archetype}"
            seeds = sim_seeds()[:: 320 // EACH][:EACH]
            scenarios = [Scenario(id=s.id, seed=s, condition="clean", behavior=s.behavior) for s in seeds]
            units = [Unit(scenario, 0, None, number, batch=archetype) for number, scenario in enumerate(scenarios)]
            done, _ = await run_audits(
                units,
                AuditConfig(max_turns=8),
                auditors={"": get_model(name, memoize=False)},
                targets={"target": target},
                auditor_name=name,
                log_dir=folder,
                name=archetype.replace("_", "-"),
            )
            audits.extend(done)

    asyncio.run(play())
    return folder, audits


def test_scout_runs_the_extraction_over_the_logs(logs: tuple[Path, list[Audit]], tmp_path: Path) -> None:
    from inspect_scout import scan_results_df

    folder, audits = logs
    scout = Path(sys.executable).with_name("scout")
    args = [str(scout), "scan", scanner.__file__, "-T", str(folder), "--scans", str(tmp_path), "--display", "plain", "--max-processes", "1"]
    done = subprocess.run(args, capture_output=True, text=True, env=ENV, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (scan,) = tmp_path.glob("scan_id=*")
    found = scan_results_df(str(scan)).scanners["strategy"]
    said = {json.loads(row["metadata"])["audit"]: row["value"] for _, row in found.iterrows()}
    assert said == {audit.id: describe_by_rule(audit) for audit in audits}


def test_the_command_finds_the_archetypes_in_the_logs(logs: tuple[Path, list[Audit]], tmp_path: Path) -> None:
    folder, audits = logs
    args = [sys.executable, "-m", "auditrl", "cluster", str(folder), "--out", str(tmp_path), "--k", "12", "--top", "8", "--stability", "1"]
    done = subprocess.run([*args, "--display", "none"], capture_output=True, text=True, env=ENV, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    with (tmp_path / "audits.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == len(audits) == EACH * len(ARCHETYPES)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["simulated"] is True
    assert {a["grouping"]: a["ari"] for a in summary["quality"]["agreements"]}["categories against archetypes' categories"] >= 0.8
    assert "no evidence about real models" in " ".join(done.stdout.split())
