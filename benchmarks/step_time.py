"""Where the time of a training step goes: audits, judging, update (quickstart recipe, median over steps).

    python benchmarks/step_time.py --steps 6

Prints a Markdown table and the peak memory of the process.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import sys
import tempfile
from pathlib import Path

from auditrl.config import load_config, packaged_config
from auditrl.display import NoDisplay
from auditrl.runs import create_run
from auditrl.train.session import whole_run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=6)
    steps = parser.parse_args().steps
    overrides = [("train.steps", str(steps)), ("evaluation.profile", "off"), ("probe.every", "0"), ("name", "step-time")]
    config = load_config(packaged_config("quickstart"), overrides)
    with tempfile.TemporaryDirectory() as folder:
        run = create_run(Path(folder), config)
        asyncio.run(whole_run(run, NoDisplay()))
        rows = run.metrics()[1:]  # the first step also pays for imports and caches
    parts = {name: statistics.median(row["time"][name] for row in rows) for name in ("audits", "judging", "update")}
    total = sum(parts.values())
    turns = statistics.median(row["turns"] for row in rows)
    audits = config.train.groups * config.train.group_size
    print("| part | seconds a step (median) | share |\n|---|---|---|")
    for name, seconds in parts.items():
        print(f"| {name} | {seconds:.2f} | {100 * seconds / total:.0f}% |")
    print(f"| total | {total:.2f} | 100% |")
    print(f"\n{audits} audits a step, {turns:.1f} auditor turns and a report each; median of {len(rows)} steps.")
    unit = 1 if sys.platform == "darwin" else 1024
    print(f"Peak memory of the process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30:.2f} GiB.")


if __name__ == "__main__":
    main()
