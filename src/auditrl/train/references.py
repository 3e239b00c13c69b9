"""Reference audits: one a scenario, made by an earlier snapshot of the policy, cached, and renewed every N steps (spec section 5, reward 4).

A reference is made the first time its scenario is drawn after a renewal, by the snapshot of that renewal, with noise keyed by (snapshot,
scenario): it does not matter at which step that is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ..files import append_line
from ..runs import read_rows
from ..types import Audit, Scenario


@dataclass(slots=True)
class References:
    """The cache of one run, kept in `references.jsonl`."""

    file: Path
    renewal_steps: int | None
    _audits: dict[tuple[int, str], Audit] = field(default_factory=dict)
    _made: dict[int, list[Audit]] = field(default_factory=dict)

    @classmethod
    def load(cls, file: Path, renewal_steps: int | None) -> References:
        """Read what an earlier process left."""
        rows, _ = read_rows(file)
        cached = {(int(row["snapshot"]), str(row["scenario"])): Audit.model_validate(row["audit"]) for row in rows}
        found = cls(file, renewal_steps, cached)
        for row in rows:
            found._made.setdefault(int(row.get("step", -1)), []).append(cached[int(row["snapshot"]), str(row["scenario"])])
        return found

    def snapshot_step(self, step: int) -> int:
        """The step whose policy makes the references that `step` (0-based) compares with."""
        return step // self.renewal_steps * self.renewal_steps if self.renewal_steps else 0

    def due(self, step: int) -> bool:
        """Whether the policy before `step` becomes the snapshot."""
        return self.snapshot_step(step) == step

    def get(self, scenario: Scenario, step: int) -> Audit | None:
        """The cached reference for a scenario at a step."""
        return self._audits.get((self.snapshot_step(step), scenario.id))

    def made_at(self, step: int) -> list[Audit]:
        """The references that were made for a step, also by a process that did not finish it."""
        return self._made.get(step, [])

    def missing(self, scenarios: Iterable[Scenario], step: int) -> list[Scenario]:
        """Scenarios without a reference yet, each once, in order."""
        return list({s.id: s for s in scenarios if self.get(s, step) is None}.values())

    def add(self, audits: Iterable[Audit], step: int) -> None:
        """Cache new references. A failed audit is not cached: the scenario is tried again when it is next drawn."""
        snapshot = self.snapshot_step(step)
        for audit in audits:
            if audit.failed:
                continue
            self._audits[snapshot, audit.scenario.id] = audit
            self._made.setdefault(step, []).append(audit)
            row = {"snapshot": snapshot, "step": step, "scenario": audit.scenario.id, "audit": audit.model_dump(mode="json")}
            append_line(self.file, json.dumps(row))
