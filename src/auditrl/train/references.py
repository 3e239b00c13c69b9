"""Reference audits: one a scenario, made by an earlier snapshot of the policy, cached, and renewed every N steps (Rosu & Wang 2026).

A reference is made the first time its scenario is drawn after a renewal, by the snapshot of that renewal, with noise keyed by (snapshot,
scenario): it does not matter at which step that is.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import RunError
from ..files import append_line
from ..runs import read_rows, scan_rows
from ..types import Audit, Scenario

FILE = "references.jsonl"
ARCHIVE = "references.old.jsonl.gz"
"""Where `auditrl gc` moves the references of snapshots that are over: the transcript reader shows them, training needs them no more."""

Key = tuple[int, str]
"""Snapshot and scenario id."""


@dataclass(slots=True)
class References:
    """The cache of one run, kept in `references.jsonl`. Only audits of one snapshot are held in memory; the rest stay on disk."""

    file: Path
    renewal_steps: int | None
    _places: dict[Key, tuple[int, int]] = field(default_factory=dict[Key, tuple[int, int]])
    """Where the line of a reference begins and ends in the file."""
    _made: dict[int, list[Key]] = field(default_factory=dict[int, list[Key]])
    _held: dict[Key, Audit] = field(default_factory=dict[Key, Audit])

    @classmethod
    def load(cls, file: Path, renewal_steps: int | None) -> References:
        """Read what an earlier process left, for the process that owns the run: a line that a kill cut off is removed.

        Raises:
            RunError: A damaged line.
        """
        found = cls(file, renewal_steps)
        whole = 0
        for begin, end, row in scan_rows(file):
            whole = end
            if row is not None:
                found._note(key_of(row), int(row.get("step", -1)), (begin, end))
        if file.exists() and whole < file.stat().st_size:
            os.truncate(file, whole)  # what is appended must not be glued to it
        return found

    def _note(self, key: Key, step: int, place: tuple[int, int]) -> None:
        self._places[key] = place
        self._made.setdefault(step, []).append(key)

    def snapshot_step(self, step: int) -> int:
        """The step whose policy makes the references that `step` (0-based) compares with."""
        return step // self.renewal_steps * self.renewal_steps if self.renewal_steps else 0

    def due(self, step: int) -> bool:
        """Whether the policy before `step` becomes the snapshot."""
        return self.snapshot_step(step) == step

    def get(self, scenario: Scenario, step: int) -> Audit | None:
        """The cached reference for a scenario at a step."""
        return self._read((self.snapshot_step(step), scenario.id))

    def made_at(self, step: int) -> list[Audit]:
        """The references that were made for a step, also by a process that did not finish it."""
        return [audit for key in self._made.get(step, ()) if (audit := self._read(key)) is not None]

    def missing(self, scenarios: Iterable[Scenario], step: int) -> list[Scenario]:
        """Scenarios without a reference yet, each once, in order."""
        snapshot = self.snapshot_step(step)
        return list({s.id: s for s in scenarios if (snapshot, s.id) not in self._places}.values())

    def add(self, audits: Iterable[Audit], step: int) -> None:
        """Cache new references. A failed audit is not cached: the scenario is tried again when it is next drawn."""
        snapshot = self.snapshot_step(step)
        for audit in audits:
            if audit.failed:
                continue
            key = snapshot, audit.scenario.id
            row = {"snapshot": snapshot, "step": step, "scenario": audit.scenario.id, "audit": audit.model_dump(mode="json")}
            begin = self.file.stat().st_size if self.file.exists() else 0
            append_line(self.file, json.dumps(row))
            self._note(key, step, (begin, self.file.stat().st_size))
            self._hold(key, audit)

    def _read(self, key: Key) -> Audit | None:
        if key in self._held or key not in self._places:
            return self._held.get(key)
        begin, end = self._places[key]
        with self.file.open("rb") as stream:
            stream.seek(begin)
            audit = Audit.model_validate(json.loads(stream.read(end - begin))["audit"])
        self._hold(key, audit)
        return audit

    def _hold(self, key: Key, audit: Audit) -> None:
        if self._held and next(iter(self._held))[0] != key[0]:
            self._held.clear()
        self._held[key] = audit


def key_of(row: dict[str, Any]) -> Key:
    """Snapshot and scenario of a line of `references.jsonl`. RunError: It has none."""
    try:
        return int(row["snapshot"]), str(row["scenario"])
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{FILE}: a line without its snapshot and scenario ({error!r}); remove it, then resume") from None


def saved_references(folder: Path) -> Iterator[dict[str, Any]]:
    """All reference lines of a run in the order in which they were made, those that `auditrl gc` put aside included.

    Raises:
        RunError: A damaged file.
    """
    aside = set[Key]()
    for row in read_archive(folder / ARCHIVE):
        aside.add(key_of(row))
        yield row
    for row in read_rows(folder / FILE)[0]:
        if not aside or key_of(row) not in aside:  # a kill in `auditrl gc` can leave a line in both
            yield row


def read_archive(path: Path) -> list[dict[str, Any]]:
    """The lines of the archive, none if there is no such file. RunError: It is damaged."""
    if not path.exists():
        return []
    try:
        return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    except (OSError, EOFError, ValueError) as error:
        raise RunError(f"{path}: damaged ({error}); restore it from a copy, or remove it: only the transcript reader shows it") from None
