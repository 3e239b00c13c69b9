"""A run against a server that misbehaves, beside the same run against a healthy one: audits, verdicts, counts, wall time.

    python benchmarks/faults.py --steps 20

Both runs are the tiny policy of the simulated world with target and judge behind HTTP (`tests/fault_server.py`); the server takes its
time for every answer, as a model does. `--share` of the calls, drawn by a seed, meet one of eleven faults. The two runs go side by side, so
that whatever else the machine does slows both. Prints tables in Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from fault_server import KEY, MIX, FaultServer, config_text, serving


@dataclass(frozen=True)
class Measured:
    """One run."""

    seconds: float
    rows: list[dict[str, Any]]
    records: list[dict[str, Any]]
    calls: int
    injected: dict[str, dict[str, int]]
    healthy: set[str]
    """Reasons that the judge gave in answers that were not faulty."""


def measure(share: float, arguments: argparse.Namespace) -> Measured:
    """Train once, and read what the run left."""
    from auditrl.runs import open_run

    with tempfile.TemporaryDirectory() as folder, serving(FaultServer(share=share, seed=1, latency_s=arguments.latency)) as server:
        file = Path(folder) / "http.toml"
        text = config_text(server.base_url, steps=arguments.steps, group_size=arguments.group_size, attempt_timeout=arguments.timeout)
        file.write_text(text, encoding="utf-8")
        overrides = ["--policy.local.patience_s", str(arguments.patience), "--targets.pool.http.max_connections", "64"]
        overrides += ["--judge.max_connections", "64"]
        command = [sys.executable, "-m", "auditrl", "train", str(file), "--runs", folder, "--display", "none", *overrides]
        began = time.perf_counter()
        subprocess.run(command, check=True, env={**os.environ, "FAULTY_API_KEY": KEY, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - began
        run = open_run(Path(folder) / "http")
        rows = run.metrics()
        records = [record for row in rows for record in run.read_step(row["step"], "audits")]
        reasons = {str(json.loads(text).get("reasoning")) for text in server.answers if text.startswith("{")}
        return Measured(seconds, rows, records, server.calls.total(), server.counted(), reasons)


def counted(run: Measured) -> dict[str, dict[str, int]]:
    """Faults by role and kind as the run's rows hold them."""
    total: dict[str, Counter[str]] = {}
    for row in run.rows:
        for role, kinds in row["faults"].items():
            total.setdefault(role, Counter()).update(kinds)
    return {role: dict(sorted(kinds.items())) for role, kinds in sorted(total.items())}


def faulty_rewards(run: Measured) -> int:
    """Rewards that do not stand on a verdict whose words the server gave in a healthy answer."""
    return sum(
        record["reward"] is not None and not any(v["value"] is not None and v["reason"] in run.healthy for v in record["verdicts"])
        for record in run.records
    )


def missing(run: Measured) -> int:
    """Verdicts that are not there."""
    return sum(sum(row["missing_verdicts"].values()) for row in run.rows)


def rewards(run: Measured) -> int:
    """Audits with a reward."""
    return sum(record["reward"] is not None for record in run.records)


def report(quiet: Measured, faulty: Measured) -> None:
    """The table, and whether every fault is in the counts."""
    print("| | healthy server | faulty server |\n|---|---|---|")
    lines: list[tuple[str, Any, Any]] = [
        ("calls", quiet.calls, faulty.calls),
        ("faults injected", sum(sum(k.values()) for k in quiet.injected.values()), sum(sum(k.values()) for k in faulty.injected.values())),
        ("audits", len(quiet.records), len(faulty.records)),
        ("of these failed", sum(r["failed_audits"] for r in quiet.rows), sum(r["failed_audits"] for r in faulty.rows)),
        ("verdicts", sum(r["verdicts"] for r in quiet.rows), sum(r["verdicts"] for r in faulty.rows)),
        ("of these missing", missing(quiet), missing(faulty)),
        ("rewards", rewards(quiet), rewards(faulty)),
        ("of these from a faulty verdict", faulty_rewards(quiet), faulty_rewards(faulty)),
        ("wall time", f"{quiet.seconds:.0f} s", f"{faulty.seconds:.0f} s ({faulty.seconds / quiet.seconds:.2f}x)"),
    ]
    for name, left, right in lines:
        print(f"| {name} | {left} | {right} |")
    print("\n| role | fault | injected | counted by the run |\n|---|---|---|---|")
    found = counted(faulty)
    for role, kinds in sorted(faulty.injected.items()):
        for kind, number in sorted(kinds.items()):
            print(f"| {role} | {kind} | {number} | {found.get(role, {}).get(kind, 0)} |")
    extra = {role: {k: n for k, n in kinds.items() if k not in faulty.injected.get(role, {})} for role, kinds in found.items()}
    print(f"\nCounted beside these: {extra}")


def main() -> None:
    """Both runs, side by side."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--group-size", type=int, default=8, help="audits of each of 8 scenarios")
    parser.add_argument("--share", type=float, default=0.1, help="of the calls that are faulty")
    parser.add_argument("--latency", type=float, default=1.0, help="mean seconds of an answer")
    parser.add_argument("--timeout", type=int, default=3, help="seconds after which an attempt is given up")
    parser.add_argument("--patience", type=float, default=0.25, help="policy.local.patience_s")
    arguments = parser.parse_args()
    print(f"{arguments}; weights of the kinds of fault: {dict(MIX)}\n", flush=True)
    with ThreadPoolExecutor(2) as side_by_side:
        quiet, faulty = side_by_side.map(measure, (0.0, arguments.share), (arguments, arguments))
    report(quiet, faulty)


if __name__ == "__main__":
    main()
