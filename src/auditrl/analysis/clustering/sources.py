"""Audits from wherever they stand: runs, evaluation folders, JSON lines and Inspect logs, one after the other.

A source is read file by file, so that a large study never stands in memory as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ...audit.context import stable_hash
from ...errors import RunError
from ...evals.records import read_manifest
from ...runs import Run, open_run, read_rows
from ...types import Audit

_STEP = re.compile(r"step-(\d+)")


@dataclass(frozen=True, slots=True)
class SourceAudit:
    """An audit and where it comes from."""

    audit: Audit
    run: str
    """Name of the run, or of the folder or file."""
    step: int | None = None
    """Gradient step, counted from 1; None outside of training."""
    simulated: bool = False
    """From the simulated world: a model of the method."""


@dataclass(slots=True)
class Skipped:
    """What was passed over while reading, to be said beside the results."""

    failed: int = 0
    """Audits that did not run to their end: what a provider broke off is no strategy."""
    missing_files: int = 0
    """Steps of a run whose audits are gone, and samples of a log that hold none."""
    repeated: int = 0
    """Audits of another source that were read already: a log and the step it belongs to."""

    def notes(self) -> list[str]:
        """One sentence for each kind that occurred."""
        said = [
            (self.failed, "failed audits left out: what a provider broke off is no strategy"),
            (self.missing_files, "steps or samples without a readable audit left out"),
            (self.repeated, "audits given twice, by a log and a step say, counted once"),
        ]
        return [f"{count:,} {text}." for count, text in said if count]


def read_audits(paths: Sequence[Path], skipped: Skipped) -> Iterator[SourceAudit]:
    """Every finished audit of the sources, each once, in order.

    Args:
        paths: Run directories, folders of evaluations, `*.jsonl` files with one audit a line, `.eval` logs or folders of them.
        skipped: Counts what is passed over.

    Raises:
        RunError: A source that isn't there, holds no audit or can't be read; the file and the mend are named.
    """
    seen: set[int] = set()
    names = _names(paths)
    for path, name in zip(paths, names, strict=True):
        found = False
        for item in _read(path, name, skipped):
            found = True
            if item.audit.failed:
                skipped.failed += 1
                continue
            # ids repeat between evaluations of several auditors: what an audit holds identifies it
            key = stable_hash(item.audit.model_dump_json())
            if key in seen:
                skipped.repeated += 1
                continue
            seen.add(key)
            yield item
        if not found:
            raise RunError(f"{path}: no audit in it; name a run that has made a step, an evaluation's folder, a .jsonl file or .eval logs")


def _names(paths: Sequence[Path]) -> list[str]:
    """Last parts of the paths; those that are not unique get the one before."""
    short = [path.resolve().name for path in paths]
    resolved = [path.resolve() for path in paths]
    return [
        name if len({resolved[j] for j, other in enumerate(short) if other == name}) == 1 else f"{resolved[i].parent.name}/{name}"
        for i, name in enumerate(short)
    ]


def _read(path: Path, name: str, skipped: Skipped) -> Iterator[SourceAudit]:
    if (path / "run.json").exists():
        yield from _of_run(open_run(path), name, skipped)
    elif path.suffix == ".eval":
        yield from _of_log(path, name, skipped)
    elif path.is_file():
        yield from _of_lines(path, name)
    elif path.is_dir():
        lines, logs = sorted(path.rglob("*audits.jsonl")), sorted(path.glob("*.eval"))
        for file in lines:
            yield from _of_lines(file, name)
        # the logs beside saved audits hold the same ones
        for file in () if lines else logs:
            yield from _of_log(file, name, skipped)
    else:
        raise RunError(f"{path}: no such file or folder; `auditrl runs list` shows the runs")


def _of_run(run: Run, name: str, skipped: Skipped) -> Iterator[SourceAudit]:
    for row in run.metrics():
        step = int(row["step"])
        if not run.step_file(step, "audits.json.gz").exists():
            skipped.missing_files += 1
            continue
        for record in run.read_step(step, "audits"):
            audit = _audit(record.get("audit"), f"{run.step_file(step, 'audits.json.gz')}")
            yield SourceAudit(audit, name, step, run.config.simulated)


def _of_lines(path: Path, name: str) -> Iterator[SourceAudit]:
    manifest = path.parent / "evaluation.json"
    simulated = bool(read_manifest(path.parent).get("simulated")) if manifest.exists() else False
    for number, row in enumerate(read_rows(path)[0], start=1):
        # a bare audit is as good as one with verdicts beside it
        audit = _audit(row.get("audit", row), f"{path}: line {number}")
        yield SourceAudit(audit, name, simulated=simulated or audit.auditor.startswith("sim/"))


def _of_log(path: Path, name: str, skipped: Skipped) -> Iterator[SourceAudit]:
    from inspect_ai.log import read_eval_log_samples

    try:
        for sample in read_eval_log_samples(str(path), all_samples_required=False):
            saved = sample.store.get("audit")
            if not isinstance(saved, str):
                skipped.missing_files += 1
                continue
            audit = _audit(saved, f"{path}: sample {sample.id}")
            step = _STEP.match(audit.id)
            simulated = any(model.startswith("sim/") for model in sample.model_usage)
            yield SourceAudit(audit, name, int(step[1]) if step else None, simulated)
    except RunError:
        raise
    except Exception as error:  # a log that is cut off or no log fails in as many ways as zip files do
        raise RunError(f"{path}: no readable Inspect log ({type(error).__name__}: {error}); leave it out") from None


def _audit(value: Any, where: str) -> Audit:
    try:
        return Audit.model_validate_json(value) if isinstance(value, str) else Audit.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, first["loc"])) or "audit"
        raise RunError(f"{where}: key {key}: {first['msg']}; it holds no audit of this version. Leave it out, or evaluate again") from None
