"""The quickstart recipe on several random seeds: one row a seed, before and after training (docs/results.md).

    python benchmarks/random_seeds.py --seeds 1 2 3 4 5 --jobs 2

Runs that are already there are not run again; unfinished ones are resumed. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from auditrl.analysis.run_report import read_card
from auditrl.evals.scores import SUITE_TITLES, SUITES, Scorecard, compare
from auditrl.runs import Run, open_run


def run_seed(root: Path, seed: int, extra: list[str]) -> Run:
    """Run, or go on with, the recipe under one random seed."""
    name = f"seed-{seed}"
    path = root / name
    begin = ["quickstart", "--runs", str(root), "--name", name, "--random_seed", str(seed), *extra]
    words = ["resume", str(path)] if (path / "run.json").exists() else begin
    if not (path / "evaluation" / "after" / "scorecard.json").exists():
        with (root / f"{name}.log").open("a") as log:
            subprocess.run([sys.executable, "-m", "auditrl", *words, "--display", "plain"], check=True, stdout=log, stderr=log)
    return open_run(path)


def cells(before: Scorecard, after: Scorecard) -> str:
    """Each suite and the composite as `before → after`."""
    shown = [f"{before.suites[s].interval.mean:.1f} → {after.suites[s].interval.mean:.1f}" for s in SUITES]
    assert before.composite is not None
    assert after.composite is not None
    shown.append(f"{before.composite.mean:.1f} ± {before.composite.half:.1f} → {after.composite.mean:.1f} ± {after.composite.half:.1f}")
    difference = compare(before, after).composite
    assert difference is not None
    shown.append(f"{difference.mean:+.1f} ± {difference.half:.1f}")
    return " | ".join(shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    options, extra = parser.parse_known_args()
    options.runs.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        started = [pool.submit(run_seed, options.runs, seed, extra) for seed in options.seeds]
        runs = [work.result() for work in started]
    titles = " | ".join(SUITE_TITLES[s] for s in SUITES)
    print(f"| random seed | {titles} | Composite | Difference (paired) |\n|---|{'---|' * (len(SUITES) + 2)}")
    for seed, run in zip(options.seeds, runs, strict=True):
        before, after = read_card(run, "before"), read_card(run, "after")
        assert before is not None
        assert after is not None
        print(f"| {seed} | {cells(before, after)} |")
    minutes = [sum(row["time"]["total"] for row in run.metrics()) / 60 for run in runs]
    print(f"\nTraining time: {min(minutes):.1f} to {max(minutes):.1f} minutes a run.")


if __name__ == "__main__":
    main()
