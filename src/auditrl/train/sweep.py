"""Runs a plan: each cell an ordinary run directory, made by a process of its own.

    OUT/sweep.json            which sweep this is
    OUT/<label>-s<seed>/      a run (`auditrl resume`, `auditrl report` and all else work on it)
    OUT/start-s<seed>/        the evaluation of the policy before training
    OUT/output/<cell>.log     what the process said
    OUT/outcomes.jsonl        how each process ended

A cell that is done is not run again, one that was interrupted goes on where it stood, one that fails is reported while the others go on.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ..display import Display, duration
from ..errors import EXIT_INTERRUPTED, RunError
from ..files import append_line, locked, write_whole
from ..processes import POLL_S, Child, begin, interrupt, last_words, signals_interrupt
from ..runs import Run, config_differences, create_run, open_run, read_rows
from .sweep_file import Cell, Plan, start_key

STOPS: Mapping[int, str] = {6: "stopped by an alarm", 7: "stopped by the budget"}
"""Exit codes that are results of a run, not failures."""
PROGRESS_S = 15.0
"""Seconds between progress lines while no cell ends."""

State = Literal["finished", "stopped", "failed", "unfinished"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a cell stands. `step`: rows of its metrics; `reason`: why it stopped or failed, in the words of its process."""

    cell: str
    state: State
    step: int
    code: int = 0
    reason: str = ""
    seconds: float = 0.0


def default_jobs() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# ---------------------------------------------------------------- what is there


@contextmanager
def sweep_folder(plan: Plan, out: Path) -> Generator[None]:
    """Own the folder of a sweep for as long as the block runs; makes it if it is new.

    Raises:
        RunError: It belongs to another sweep, holds other things, can't be written, or another process works on it.
    """
    mark = out / "sweep.json"
    try:
        out.mkdir(parents=True, exist_ok=True)
        with locked(out / ".lock") as mine:
            if not mine:
                raise RunError(f"{out}: another process runs this sweep; wait for it, or stop it first")
            _check_mark(plan, out, mark)
            write_whole(mark, json.dumps({"format": 1, "name": plan.file.name, "source": Path(plan.source).name}, indent=1))
            yield
    except OSError as error:
        raise RunError(f"{out}: can't write the sweep's folder ({error.strerror}); choose another with --out") from None


def _check_mark(plan: Plan, out: Path, mark: Path) -> None:
    if not mark.exists():
        if any(p.name != ".lock" for p in out.iterdir()):
            raise RunError(f"{out}: the folder is not empty and holds no sweep; choose another with --out")
        return
    try:
        name = json.loads(mark.read_text(encoding="utf-8"))["name"]
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{mark}: can't be read ({error}); restore it, or choose another folder with --out") from None
    if name != plan.file.name:
        raise RunError(f"{out}: this folder belongs to the sweep {name!r}, not to {plan.file.name!r}; choose another with --out")


def differences(cell: Cell, run: Run) -> list[str]:
    """Keys in which a run is not the cell; of a start only what its evaluation depends on."""
    found = config_differences(run.config, cell.config)
    return [] if cell.is_start and start_key(run.config) == start_key(cell.config) else found


def reuse(plan: Plan, out: Path, folders: Sequence[Path]) -> list[str]:
    """Copy whole runs of the same name and config from other sweeps' folders; returns the names. What is there already stays."""
    copied: list[str] = []
    for cell in plan.cells:
        for source in (folder / cell.name for folder in folders):
            if (out / cell.name).exists() or not (source / "run.json").exists():
                continue
            run = open_run(source)
            if not differences(cell, run) and is_whole(cell, run):
                part = out / f".{cell.name}.part"
                shutil.rmtree(part, ignore_errors=True)
                shutil.copytree(source, part)
                part.rename(out / cell.name)
                copied.append(cell.name)
    return copied


def check_cells(plan: Plan, out: Path) -> None:
    """Refuse to go on with runs that were made with another config. RunError names run and keys."""
    for cell in plan.cells:
        if (out / cell.name / "run.json").exists():
            changed = differences(cell, open_run(out / cell.name))
            if changed:
                raise RunError(
                    f"{out / cell.name}: this run was made with another config: {', '.join(changed)}. "
                    "Undo the change, remove this folder, or choose another with --out"
                )


def is_whole(cell: Cell, run: Run) -> bool:
    """Whether nothing is left to do for a cell."""
    settings = cell.config.evaluation
    if cell.is_start:
        return (run.path / "evaluation" / "before" / "scorecard.json").exists()
    evaluated = settings.profile == "off" or not settings.after or (run.path / "evaluation" / "after" / "scorecard.json").exists()
    return evaluated and len(run.metrics()) >= cell.config.train.steps


def standing(cell: Cell, out: Path) -> Outcome:
    """How a cell stands, from its run directory and the recorded outcomes. A cell that was never begun is unfinished at step 0."""
    path = out / cell.name
    if not (path / "run.json").exists():
        return Outcome(cell.name, "unfinished", 0)
    run = open_run(path)
    step = len(run.metrics())
    if is_whole(cell, run):
        return Outcome(cell.name, "finished", step)
    last = next((row for row in reversed(read_rows(out / "outcomes.jsonl")[0]) if row["cell"] == cell.name), None)
    # one that somebody went on with by hand has more steps than when it ended
    if last is None or (last["state"] == "stopped" and last["step"] != step):
        return Outcome(cell.name, "unfinished", step)
    recorded: dict[str, Any] = {**last, "step": step}
    return Outcome(**recorded)


def steps_done(cell: Cell, out: Path) -> int:
    """Whole lines of its metrics file; cheap enough to ask several times a second."""
    file = out / cell.name / "metrics.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


# ---------------------------------------------------------------- running


@dataclass(slots=True)
class _Running:
    cell: Cell
    child: Child
    reported: int
    """Steps that the display has been told of."""


def run_sweep(plan: Plan, out: Path, jobs: int, display: Display, reused: Sequence[Path] = ()) -> list[Outcome]:
    """Bring every cell to its end, up to `jobs` at a time; returns how each stands, in the plan's order.

    Args:
        reused: Folders of other sweeps; whole runs of the same name and config are copied from there.

    Raises:
        RunError: The folder or a run in it can't be used.
        KeyboardInterrupt: After ctrl-C, or an end signal, once every process has saved its step.
    """
    with sweep_folder(plan, out):
        check_cells(plan, out)
        for name in reuse(plan, out, reused):
            display.note(f"{name}: copied, it is done already")
        found = {cell.name: standing(cell, out) for cell in plan.cells}
        todo = [cell for cell in plan.cells if found[cell.name].state in ("unfinished", "failed")]
        total = sum(_units(cell) for cell in plan.cells)
        left = sum(_units(cell) - found[cell.name].step for cell in todo)
        display.start(f"sweep {plan.file.name}", total, total - left)
        with signals_interrupt():
            _work(todo, out, jobs, display, found)
        display.finish()
        return [found[cell.name] for cell in plan.cells]


def _units(cell: Cell) -> int:
    """What a cell counts for in the progress: its steps, and a few more for its evaluation."""
    return 5 if cell.is_start else cell.config.train.steps


def _work(todo: Sequence[Cell], out: Path, jobs: int, display: Display, found: dict[str, Outcome]) -> None:
    waiting, running = list(todo), list[_Running]()
    told = time.monotonic()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(_begin(waiting.pop(0), out))
            time.sleep(POLL_S)
            for one in [r for r in running if r.child.ended]:
                running.remove(one)
                outcome = _end(one, out)
                found[outcome.cell] = outcome
                display.note(_line(outcome, one.cell))
                display.advance(f"{len(waiting) + len(running)} cells left", max(0, _units(one.cell) - one.reported))
            if running and time.monotonic() - told > PROGRESS_S:
                told = time.monotonic()
                _tell(running, out, display)
    except KeyboardInterrupt:
        interrupt([one.child for one in running])
        for one in running:
            found[one.cell.name] = _end(one, out, interrupted=True)
        raise


def command(cell: Cell, path: Path) -> list[str]:
    """The process that brings a run directory to its end."""
    words = ["auditrl.train.start", str(path)] if cell.is_start else ["auditrl", "resume", str(path), "--display", "plain"]
    return [sys.executable, "-m", *words]


def _begin(cell: Cell, out: Path) -> _Running:
    path = out / cell.name
    if not (path / "run.json").exists():
        create_run(out, cell.config)
    child = begin(command(cell, path), out / "output" / f"{cell.name}.log")
    return _Running(cell, child, steps_done(cell, out))


def _end(one: _Running, out: Path, *, interrupted: bool = False) -> Outcome:
    """Record how a process ended; one that was told to end is unfinished, whatever it said."""
    code = one.child.close()
    whole = is_whole(one.cell, open_run(out / one.cell.name))
    state: State = "failed"
    if code in STOPS:
        state = "stopped"
    elif code == 0 and whole:
        state = "finished"
    elif interrupted or code == EXIT_INTERRUPTED:
        state = "unfinished"
    outcome = Outcome(
        cell=one.cell.name,
        state=state,
        step=steps_done(one.cell, out),
        code=code,
        reason="" if state in ("finished", "unfinished") else last_words(one.child.log),
        seconds=round(one.child.seconds, 1),
    )
    append_line(out / "outcomes.jsonl", json.dumps(asdict(outcome)))
    return outcome


def _line(outcome: Outcome, cell: Cell) -> str:
    how = STOPS.get(outcome.code, outcome.state)
    steps = "" if cell.is_start else f", step {outcome.step} of {cell.config.train.steps}"
    why = f": {outcome.reason}" if outcome.reason else ""
    return f"{outcome.cell}: {how}{steps}, {duration(outcome.seconds)}{why}"


def _tell(running: Sequence[_Running], out: Path, display: Display) -> None:
    """Progress inside the running cells."""
    units = 0
    for one in running:
        done = min(steps_done(one.cell, out), _units(one.cell))
        units += max(0, done - one.reported)
        one.reported = max(done, one.reported)
    if units:
        display.advance(f"running: {', '.join(one.cell.name for one in running)}", units)
