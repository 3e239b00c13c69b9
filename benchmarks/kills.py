"""A run that is killed (SIGKILL) again and again at random moments, against the same run left alone.

    OMP_NUM_THREADS=1 python benchmarks/kills.py --kills 100 --steps 40

The quickstart recipe with fewer audits and without its evaluation; references are renewed, checkpoints written and the policy probed every
few steps, so that kills hit all of them. Each life is a process that is forked from this one after all imports, so that it dies at work and
not while Python loads. The moments are drawn from `--seed`, evenly over the steps. After every third kill the garbage of the run directory
is collected. In the end metrics (without times), saved audits, references and the weights of the last checkpoint must be those of the run
that was left alone.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from auditrl.commands.training import work_on
from auditrl.config import load_config, packaged_config
from auditrl.display import NoDisplay
from auditrl.runs import Run, create_run, open_run
from auditrl.train.gc import collect
from auditrl.train.references import saved_references

RECIPE = {
    "train.groups": "8",
    "train.group_size": "2",
    "train.checkpoint_every": "3",
    "reward.renewal_steps": "4",
    "probe.every": "2",
    "probe.audits": "4",
    "audit.max_turns": "2",
    "evaluation.profile": "off",
}
MOST = [
    "auditrl.train.session", "auditrl.analysis.run_report", "auditrl.policy.local", "transformers.models.llama.modeling_llama", "anthropic", "openai",
]  # fmt: skip
"""Most of what a life imports while it works; Inspect loads the last two where they are installed."""
GC_EVERY = 3
"""Kills between two garbage collections."""


@dataclass
class Tally:
    """What the kills met and left."""

    kills: int = 0
    without_progress: int = 0
    """Lives that ended before they finished a step."""
    cut_rows: int = 0
    unfinished_checkpoints: int = 0
    unfinished_files: int = 0
    collections: int = 0


def start_life(run: Path, loaded: Path | None = None) -> int:
    """Fork a process that works on a run as `auditrl resume` does; returns its id. `loaded` takes the names of the modules that it used."""
    with warnings.catch_warnings():
        # the threads that Python warns of are idle ones of pyarrow's allocator and of duckdb, which other packages load
        warnings.filterwarnings("ignore", ".* is multi-threaded", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        work_on(open_run(run), NoDisplay())
        if loaded is not None:
            loaded.write_text("\n".join(sys.modules))
        code = 0
    finally:
        os._exit(code)


def load(names: list[str]) -> None:
    """Import what a life imports while it works, so that it does not have to."""
    for name in names:
        with suppress(ImportError):
            import_module(name)


def ended(pid: int) -> bool:
    """Whether the process has ended by itself; SystemExit if it failed."""
    done, status = os.waitpid(pid, os.WNOHANG)
    if done and os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"a life ended with code {os.waitstatus_to_exitcode(status)}; its message stands above")
    return bool(done)


def live(pid: int, *, until: Callable[[], bool] = lambda: False) -> bool:
    """Wait; returns whether the process ended by itself before `until` was so."""
    while not ended(pid):
        if until():
            return False
        time.sleep(0.002)
    return True


def rows_of(run: Path) -> list[dict[str, Any]]:
    """Whole metrics rows, without times."""
    return [{key: value for key, value in row.items() if key != "time"} for row in open_run(run).metrics()]


def make(folder: Path, steps: int) -> Run:
    """A new run of the recipe."""
    overrides = [*RECIPE.items(), ("train.steps", str(steps)), ("name", "kills")]
    return create_run(folder, load_config(packaged_config("quickstart"), overrides))


def kill_over(run: Path, moments: list[float], step_s: float) -> Tally:
    """Work on a run that is killed at these moments, counted in steps: 3.4 is 0.4 of a step's time after three steps are done, or after the
    life began if they were done before. The last life ends by itself."""
    tally = Tally()
    for moment in moments:
        before = len(rows_of(run))
        pid = start_life(run)
        if live(pid, until=partial(has_done, run, int(moment))) or live(pid, until=after(moment % 1 * step_s)):
            break  # the run is finished: nothing is left to kill
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        tally.kills += 1
        look(run, tally, before)
        if tally.kills % GC_EVERY == 0:
            collect(open_run(run))
            tally.collections += 1
    live(start_life(run))
    return tally


def has_done(run: Path, steps: int) -> bool:
    """Whether so many rows are whole."""
    file = run / "metrics.jsonl"
    return steps == 0 or (file.exists() and file.read_bytes().count(b"\n") >= steps)


def after(seconds: float) -> Callable[[], bool]:
    """Whether so much time has passed since this call."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


def look(run: Path, tally: Tally, before: int) -> None:
    """Count what a kill has left."""
    metrics = run / "metrics.jsonl"
    tally.cut_rows += metrics.exists() and not metrics.read_bytes().endswith(b"\n")
    tally.unfinished_checkpoints += sum(1 for _ in (run / "checkpoints").glob(".step-*"))
    tally.unfinished_files += sum(1 for _ in run.rglob(".*.part"))
    tally.without_progress += len(rows_of(run)) == before


def differences(killed: Path, whole: Path, steps: int) -> list[str]:
    """What is not the same in the two runs."""
    found = [f"metrics of step {a['step']}" for a, b in zip(rows_of(killed), rows_of(whole), strict=False) if a != b]
    if len(rows_of(killed)) != len(rows_of(whole)):
        found.append("number of steps")
    one, two = open_run(killed), open_run(whole)
    found += [f"audits of step {step}" for step in range(1, steps + 1) if one.read_step(step, "audits") != two.read_step(step, "audits")]
    if list(saved_references(killed)) != list(saved_references(whole)):
        found.append("references")
    weights = "model.safetensors"
    if (one.checkpoint(steps) / weights).read_bytes() != (two.checkpoint(steps) / weights).read_bytes():
        found.append("weights of the last checkpoint")
    return found


def replayed(run: Path) -> tuple[int, int]:
    """Resumptions behind a finished step, and updates that they replayed."""
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    resumed = [event for event in events if event["event"] == "resumed"]
    return len(resumed), sum(event["step"] - event["checkpoint"] for event in resumed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="Keep both runs here (whole/, killed/).")
    args = parser.parse_args()
    load(MOST)
    with tempfile.TemporaryDirectory() as place:
        folder = args.out or Path(place)
        whole, killed = make(folder / "whole", args.steps).path, make(folder / "killed", args.steps).path
        live(start_life(whole, Path(place) / "modules"))
        step_s = statistics.median(row["time"]["total"] for row in open_run(whole).metrics())
        load((Path(place) / "modules").read_text().splitlines())
        rng = random.Random(args.seed)
        tally = kill_over(killed, sorted(rng.random() * args.steps for _ in range(args.kills)), step_s)
        collect(open_run(killed))
        live(start_life(killed))  # a finished run without its garbage: the resume finds what it loads, and changes nothing
        found = differences(killed, whole, args.steps)
        resumptions, updates = replayed(killed)
    print(f"{tally.kills} kills over a run of {args.steps} steps")
    print(
        f"{tally.without_progress} lives were killed before they finished a step; {resumptions} resumed behind one, {updates} updates replayed"
    )
    print(
        f"left by kills: {tally.cut_rows} cut rows, {tally.unfinished_checkpoints} unfinished checkpoints, {tally.unfinished_files} unfinished files"
    )
    print(f"{tally.collections} garbage collections between kills")
    print(f"different from the run left alone: {', '.join(found) or 'nothing'}")
    sys.exit(1 if found or tally.kills < args.kills else 0)


if __name__ == "__main__":
    main()
