"""Where a reader's audits come from: the steps, references and evaluations of a run, or the folder of one evaluation.

What is missing or damaged is left out and said on the page; only a folder that holds no run or evaluation is an error.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ..behaviors.loader import load_bank
from ..behaviors.persona import hidden_block
from ..config import PersonaConfig
from ..errors import AuditrlError, ConfigError, RunError
from ..evals.records import SuiteRecords, read_manifest
from ..evals.scores import SUITES, Scorecard
from ..runs import Run
from ..train.references import saved_references
from ..types import Audit, Behavior, Scenario, Verdict
from .reader import Collection, Entry, Hidden, ReaderData, write_reader

LIMIT = 4_000
"""Training audits that a reader holds unless told otherwise; longer runs are thinned to evenly spaced whole steps."""
FOLDER = "reader"


def write_run_reader(run: Run, *, limit: int = LIMIT, strategies: Path | None = None) -> Path | None:
    """Write `RUN/reader/` and return its page, None if the run has no audits yet.

    Args:
        limit: Training audits at most.
        strategies: Folder that `auditrl cluster` wrote; None: `RUN/strategies`, if it is there.

    Raises:
        RunError: The reader can't be written, or the folder of strategies that was named can't be used.
    """
    categories, notes = _strategies(run.path, strategies)
    evaluations = [path for path in (run.path / "evaluation" / "before", run.path / "evaluation" / "after") if path.is_dir()]
    bank = run.config.bank
    return write_reader(
        run.path / FOLDER,
        ReaderData(
            title=run.config.name,
            simulated=run.config.simulated,
            collections=[
                training(run, limit),
                *(evaluation(path, path.name, f"Evaluation {path.name}") for path in evaluations),
                references(run, limit),
            ],
            hidden=hidden_blocks(bank.path, run.config.audit.persona, merge=not bank.alone),
            report="../report.html",
            categories=categories,
            notes=notes,
        ),
    )


def write_evaluation_reader(folder: Path, bank: Path | None = None, strategies: Path | None = None) -> Path | None:
    """Write `FOLDER/reader/` for the folder of an evaluation and return its page, None if it has no audits yet.

    Args:
        bank: Folder with further behaviors, if the evaluation used one: hidden blocks are rebuilt from it.
        strategies: Folder that `auditrl cluster` wrote; None: `FOLDER/strategies`, if it is there.

    Raises:
        RunError: No evaluation there, the reader can't be written, or the folder of strategies that was named can't be used.
        ConfigError: The bank can't be used.
    """
    manifest = read_manifest(folder)
    try:
        persona = PersonaConfig.model_validate((manifest.get("audit") or {}).get("persona") or {})
    except ValidationError as error:
        raise RunError(f"{folder / 'evaluation.json'}: audit.persona: {error.errors()[0]['msg']}; restore the file from a copy") from None
    if bank is not None:
        load_bank(bank)  # asked for by name: an error, not a note on the page
    categories, notes = _strategies(folder, strategies)
    return write_reader(
        folder / FOLDER,
        ReaderData(
            title=str(manifest.get("auditor") or folder.name),
            simulated=bool(manifest.get("simulated")),
            collections=[evaluation(folder, "evaluation", "Evaluation")],
            hidden=hidden_blocks(bank, persona),
            categories=categories,
            notes=notes,
        ),
    )


# ---------------------------------------------------------------- collections


def training(run: Run, limit: int) -> Collection:
    """The audits of the training steps with their rewards."""
    found = (run.path / "steps").glob("step-*.audits.json.gz")
    steps = sorted(int(match[1]) for path in found if (match := re.fullmatch(r"step-(\d+)\.audits\.json\.gz", path.name)))
    chosen = spread(steps, max(1, limit // (run.config.train.groups * run.config.train.group_size)))
    notes: list[str] = []
    if len(chosen) < len(steps):
        notes.append(f"{len(chosen)} of {len(steps)} steps, evenly spaced; `auditrl report RUN --audits N` holds more.")
    if missing := sorted(set(range(1, len(run.metrics()) + 1)) - set(steps)):
        notes.append(f"Not there any more: the audits of {len(missing)} steps ({shorten(missing)}).")
    return Collection("training", "Training", "Reward", _steps(run, chosen, notes), notes)


def _steps(run: Run, steps: list[int], notes: list[str]) -> Iterator[Entry]:
    for step in steps:
        try:
            records = run.read_step(step, "audits")
            entries = [Entry(*_record(record), score=record["reward"], step=step) for record in records]
        except (AuditrlError, ValidationError, KeyError, TypeError) as error:
            notes.append(f"Step {step} can't be read and is left out: {first_line(error)}")
            continue
        yield from entries


def _record(record: Mapping[str, Any]) -> tuple[Audit, list[Verdict]]:
    return Audit.model_validate(record["audit"]), [Verdict.model_validate(verdict) for verdict in record["verdicts"]]


def references(run: Run, limit: int) -> Collection:
    """The cached audits that rewards were compared with; their step is the one whose policy made them."""
    notes: list[str] = []
    return Collection("references", "References", "Score", _references(run.path, limit, notes), notes)


def _references(folder: Path, limit: int, notes: list[str]) -> Iterator[Entry]:
    try:
        rows = list(saved_references(folder))
        shown = spread(list(range(len(rows))), max(1, limit))
        if len(shown) < len(rows):
            notes.append(f"{len(shown)} of {len(rows)} references, evenly spaced; `auditrl report RUN --audits N` holds more.")
        entries = [Entry(Audit.model_validate(rows[i]["audit"]), step=int(rows[i]["snapshot"])) for i in shown]
    except (AuditrlError, ValidationError, KeyError, TypeError, ValueError) as error:
        notes.append(f"The references can't be read: {first_line(error)}")
        return
    yield from entries


def evaluation(folder: Path, key: str, title: str) -> Collection:
    """The audits of an evaluation's suites with their values, 0-100."""
    notes: list[str] = []
    return Collection(key, title, "Score", _suites(folder, notes), notes)


def _suites(folder: Path, notes: list[str]) -> Iterator[Entry]:
    names = {path.name.removesuffix(".audits.jsonl") for path in folder.glob("*.audits.jsonl")}
    for suite in sorted(names, key=lambda name: (SUITES.index(name) if name in SUITES else len(SUITES), name)):
        try:
            records = SuiteRecords.load(folder, suite)
            values = _values(folder / f"{suite}.json", suite)
        except (AuditrlError, OSError, UnicodeDecodeError) as error:
            notes.append(f"{suite.replace('_', ' ')} can't be read and is left out: {first_line(error)}")
            continue
        if values is None:
            notes.append(f"{suite.replace('_', ' ')} is not finished: its audits have no scores yet.")
        for audit in records.audits.values():
            verdict = records.verdicts.get(audit.id)
            yield Entry(audit, [verdict] if verdict else [], (values or {}).get(audit.id), suite=suite)


def _values(path: Path, suite: str) -> dict[str, float] | None:
    """Value by audit id; None before the suite is finished."""
    if not path.exists():
        return None
    card = Scorecard.from_json(path.read_text(encoding="utf-8"), str(path))
    return {row.audit_id: row.value for row in card.suites[suite].rows} if suite in card.suites else {}


def _strategies(source: Path, folder: Path | None) -> tuple[dict[str, str], list[str]]:
    """Strategy category by audit id, and notes: what was named must be readable, what merely lies there is left out with a note."""
    if folder is not None:
        return saved_strategies(folder, source), []
    place = source / "strategies"
    if not (place / "audits.csv").is_file():
        return {}, []
    try:
        return saved_strategies(place, source), []
    except RunError as error:
        return {}, [f"Strategies are left out: {error}"]


def saved_strategies(folder: Path, source: Path) -> dict[str, str]:
    """Strategy category by audit id, of the audits of one run or evaluation, from a folder that `auditrl cluster` wrote.

    Ids repeat between runs, so only lines of `source` count: those with its name, or all if the folder is about one source.

    Raises:
        RunError: No table of audits there, or one that can't be read.
    """
    path = folder / "audits.csv"
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            lines = [(row["run"], row["audit"], row["category"]) for row in csv.DictReader(stream)]
    except FileNotFoundError:
        raise RunError(f"{folder}: no audits.csv; name the folder that `auditrl cluster` wrote") from None
    except (OSError, UnicodeDecodeError, KeyError, csv.Error) as error:
        raise RunError(f"{path}: can't be read ({first_line(error)}); run `auditrl cluster` again") from None
    place = source.resolve()
    names = {place.name, f"{place.parent.name}/{place.name}"}
    alone = len({run for run, _, _ in lines}) == 1
    return {audit: category for run, audit, category in lines if alone or run in names}


# ---------------------------------------------------------------- what was hidden


def hidden_blocks(bank: Path | None, persona: PersonaConfig, *, merge: bool = True) -> Callable[[Scenario], Hidden]:
    """Rebuilds what was hidden in a target, from the bank and the persona: audits don't hold it, so that it can't leak from them."""
    problem = ""
    behaviors: dict[str, Behavior] = {}
    try:
        behaviors = load_bank(bank, merge=merge).behaviors
    except ConfigError as error:
        problem = f"the bank can't be read ({first_line(error)})"

    def find(scenario: Scenario) -> Hidden:
        behavior = behaviors.get(scenario.behavior or "")
        if scenario.planted and behavior is None:
            return Hidden(None, f"can't be shown: {problem or f'the bank has no behavior {scenario.behavior}'}.")
        text = hidden_block(behavior, scenario.condition, persona)
        return Hidden(text, "Rebuilt from the bank and the persona as they are now." if text else "nothing was hidden in this target.")

    return find


def spread(items: list[int], count: int) -> list[int]:
    """At most `count` items, evenly spaced, the first and the last among them (of one: the last)."""
    if len(items) <= count:
        return items
    if count == 1:
        return items[-1:]
    return [items[round(i * (len(items) - 1) / (count - 1))] for i in range(count)]


def shorten(numbers: list[int]) -> str:
    """The first few numbers."""
    return ", ".join(map(str, numbers[:5])) + (", ..." if len(numbers) > 5 else "")


def first_line(error: Exception) -> str:
    """What went wrong, in a line."""
    if isinstance(error, KeyError):
        return f"no key {error}"
    return str(error).strip().partition("\n")[0][:300]
