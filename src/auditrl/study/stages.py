"""Work behind the training: cruxes, strategies and transfer, each an ordinary auditrl command in a process of its own.

OUT/crux/         cruxes of a scripted auditor's audits, and what every policy makes of them
OUT/strategies/   what `auditrl cluster` makes of all runs together
OUT/transfer/     scripted auditors in the transfer scaffold
OUT/stages.jsonl  how each ended; a stage that is done with the same words is not run again
OUT/output/       what each process said
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..display import Display, duration
from ..files import append_line
from ..processes import POLL_S, Child, begin, interrupt, last_words, signals_interrupt
from ..runs import read_rows
from .plan import CRUX, STRATEGIES, TRANSFER, Study

CRUXES, REPLICATES = 12, 2
TRANSFER_AUDITORS = ("skilled", "controlled_experimenter", "confessor")
"""The tiny policy calls none of the scaffold's tools, so scripted auditors stand in."""
TRANSFER_AUDITS = 2
CLUSTER_SAMPLE = 8_000
"""Audits in which clusters are found; all are classified."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One command. `result`: the file that it leaves; `after`: a file that it needs, made by another stage."""

    name: str
    words: tuple[str, ...]
    result: Path
    after: Path | None = None


@dataclass(frozen=True, slots=True)
class StageOutcome:
    """How a stage ended: exit code 0 is done; `reason` in the words of its process."""

    name: str
    code: int
    reason: str = ""

    @property
    def done(self) -> bool:
        """Whether its result can be used."""
        return self.code == 0


def stages(study: Study, trained: Sequence[str]) -> list[Stage]:
    """What the chosen items need, in an order in which each stands behind what it needs.

    Args:
        trained: Names of the cells that are trained to their end.
    """
    found: list[Stage] = []
    if CRUX in study.needs and trained:
        found += _crux_stages(study, trained)
    if STRATEGIES in study.needs and trained:
        words = ("cluster", *(str(study.cells / name) for name in trained), "--out", str(study.out / STRATEGIES), "--stability", "0")
        found.append(Stage("strategies", (*words, "--sample", str(CLUSTER_SAMPLE)), study.out / STRATEGIES / "composition.csv"))
    if TRANSFER in study.needs:
        for name in TRANSFER_AUDITORS:
            out = study.out / TRANSFER / name
            words = ("transfer", "--auditor", f"sim/auditor-{name}", "--targets", "sim", "--approach", "default,stc")
            rest = ("--audits", str(TRANSFER_AUDITS), "--control", "0", "--no-published", "--out", str(out))
            found.append(Stage(f"transfer-{name}", (*words, *rest), out / "transfer.json"))
    return found


def _crux_stages(study: Study, trained: Sequence[str]) -> list[Stage]:
    folder = study.out / CRUX
    source, bank = folder / "source", folder / "cruxes.json"
    limits = ("--suites", "audit_quality", "--limit-seeds", "4", "--limit-replicates", "2")
    found = [
        Stage(
            "crux-source",
            ("eval", "suite", "--auditor", "sim/auditor-skilled", "--profile", "sim", *limits, "--out", str(source)),
            source / "scorecard.json",
        ),
        Stage(
            "crux-bank",
            ("crux", "build", "--from", str(source), "--judge", "sim/judge", "--count", str(CRUXES), "--out", str(bank)),
            bank,
            after=source / "scorecard.json",
        ),
    ]
    base = f"{study.cells / trained[0]}@0"
    for name, auditor in ((f"start-s{_seed(trained[0])}", base), *((name, str(study.cells / name)) for name in trained)):
        words = ("eval", "crux", "--auditor", auditor, "--base", base, "--target", "sim/target", "--judge", "sim/judge")
        rest = ("--cruxes", str(bank), "--replicates", str(REPLICATES), "--out", str(folder / name))
        found.append(Stage(f"crux-{name}", (*words, *rest), folder / name / "crux.json", after=bank))
    return found


def _seed(cell: str) -> str:
    return cell.rpartition("-s")[2]


# ---------------------------------------------------------------- running


@dataclass(slots=True)
class _Running:
    stage: Stage
    child: Child


def run_stages(found: Sequence[Stage], out: Path, jobs: int, display: Display) -> list[StageOutcome]:
    """Run what is not done, up to `jobs` at a time; one that fails holds up only what needs it.

    Raises:
        KeyboardInterrupt: After ctrl-C or an end signal, once every process has ended. The commands go on where they stood.
    """
    rows = read_rows(out / "stages.jsonl")[0]
    done = {row["name"] for row in rows if row["code"] == 0 and any(row["name"] == s.name and row["words"] == list(s.words) for s in found)}
    outcomes = {stage.name: StageOutcome(stage.name, 0) for stage in found if stage.name in done and stage.result.exists()}
    waiting = [stage for stage in found if stage.name not in outcomes]
    display.start("study: evaluations", len(found), len(outcomes))
    with signals_interrupt():
        _work(waiting, out, jobs, display, outcomes)
    display.finish()
    return [outcomes[stage.name] for stage in found]


def _work(waiting: list[Stage], out: Path, jobs: int, display: Display, outcomes: dict[str, StageOutcome]) -> None:
    running: list[_Running] = []
    try:
        while waiting or running:
            _start_ready(waiting, running, out, jobs)
            if not running:
                outcomes |= {stage.name: StageOutcome(stage.name, 1, f"needs {stage.after}, which is not there") for stage in waiting}
                break
            time.sleep(POLL_S)
            for one in [r for r in running if r.child.ended]:
                running.remove(one)
                outcome = _end(one, out)
                outcomes[outcome.name] = outcome
                how = "done" if outcome.done else f"failed: {outcome.reason}"
                display.note(f"{outcome.name}: {how}, {duration(one.child.seconds)}")
                display.advance(outcome.name)
    except KeyboardInterrupt:
        interrupt([one.child for one in running])
        for one in running:
            one.child.close()
        raise


def _start_ready(waiting: list[Stage], running: list[_Running], out: Path, jobs: int) -> None:
    busy = {one.stage.result for one in running}
    for stage in [s for s in waiting if s.after is None or (s.after.exists() and s.after not in busy)]:
        if len(running) >= jobs:
            return
        waiting.remove(stage)
        words = [sys.executable, "-m", "auditrl", *stage.words, "--display", "none"]
        running.append(_Running(stage, begin(words, out / "output" / f"{stage.name}.log")))


def _end(one: _Running, out: Path) -> StageOutcome:
    stage, code, reason = one.stage, one.child.close(), ""
    if code == 0 and not stage.result.exists():
        code, reason = 1, f"left no {stage.result.name}"
    elif code:
        reason = last_words(one.child.log)
    append_line(out / "stages.jsonl", json.dumps({"name": stage.name, "words": stage.words, "code": code, "reason": reason}))
    return StageOutcome(stage.name, code, reason)
