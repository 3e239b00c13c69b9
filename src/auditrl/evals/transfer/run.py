"""Run transfer audits: one Inspect sample an audit, one log a target."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from inspect_ai import Task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import Model
from inspect_ai.solver import Generate, Solver, TaskState, solver

from ...audit.context import audit_context, stable_hash
from ...audit.run import evaluate
from ...audit.task import Joined, not_joined
from ...errors import ProviderError
from ...faults import told
from .limits import Limits
from .predictions import ask_predictions
from .record import Guess, ResearchLog, TransferAudit
from .scaffold import Session, make_scaffold
from .targets import Target
from .tools import Approach, TargetTools


@dataclass(frozen=True, slots=True)
class TransferUnit:
    """One audit to run."""

    target: str
    behavior: str
    approach: Approach
    index: int
    control: bool = False

    @property
    def id(self) -> str:
        """Name of the audit in results. It names the target, so it stays out of everything that an auditor's host can see."""
        return f"{self.approach}/{self.target}{'/base' if self.control else ''}#{self.index}"


@dataclass(frozen=True, slots=True)
class Investigators:
    """The auditor's side of all audits of an evaluation."""

    auditor: Model
    auditor_name: str
    helper: Model | None
    limits: Limits
    scaffold: str
    random_seed: int
    folder: Path
    """Research logs are kept under `findings/`, Inspect's logs under `logs/`."""
    joined: Joined = not_joined
    max_concurrent: int = 20
    sandbox: str | None = None
    """Inspect sandbox for hosts that need one."""


async def run_units(who: Investigators, units: Sequence[TransferUnit], target: Target, on_audit: Callable[[TransferAudit], None]) -> None:
    """Run audits of one opened target and wait for all. `on_audit` gets each as it ends, failed ones included.

    Raises:
        ProviderError: The evaluation itself did not finish (not: single audits that failed).
        CancelledError: It was interrupted.
    """
    done: set[str] = set()

    def collect(audit: TransferAudit) -> None:
        done.add(audit.id)
        on_audit(audit)

    # sample ids, unlike our own, are seen by sandboxes and by whoever works inside of one
    opaque = {f"audit-{stable_hash(who.random_seed, unit.id):016x}": unit for unit in units}
    task = Task(
        name="transfer",
        dataset=MemoryDataset([Sample(id=key, input="") for key in opaque], name="transfer"),
        solver=_solver(who, opaque, target, collect),
        sandbox=who.sandbox,
        fail_on_error=False,
    )
    log = await evaluate(task, audits=len(units), log_dir=who.folder / "logs", max_samples=who.max_concurrent, model=who.auditor)
    if log.status != "success" or len(done) < len(units):
        cause = log.error.message if log.error else f"{len(units) - len(done)} audits left no record"
        raise ProviderError(f"transfer: the audits did not finish ({cause}). The log is {log.location}. Mend the cause and run again")


def _solver(who: Investigators, units: Mapping[str, TransferUnit], target: Target, collect: Callable[[TransferAudit], None]) -> Solver:
    @solver(name="transfer_audit")
    def build() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            unit = units[str(state.sample_id)]
            audit = await _audit(who, unit, target, str(state.sample_id))
            state.store.set("transfer_audit", audit.model_dump_json())
            collect(audit)
            return state

        return solve

    return build()


async def _audit(who: Investigators, unit: TransferUnit, target: Target, key: str) -> TransferAudit:
    """One audit. Whatever fails in it is its recorded outcome; an interruption is not."""
    seed = stable_hash(who.random_seed, unit.id)
    tools = TargetTools(target, unit.approach, who.helper, who.limits, seed, ResearchLog(_fresh(who.folder / "findings" / key)))
    session = Session(who.auditor, tools, who.limits)
    guesses: list[Guess] = []
    dropped, text = 0, ""
    error: str | None = None
    with audit_context(unit.id, seed):
        try:
            scaffold = make_scaffold(who.scaffold)
            async with who.joined(unit.id):
                state = await scaffold.investigate(session)
                if tools.gone is None and not tools.log.silent:
                    guesses, dropped, text = await ask_predictions(scaffold, session, state)
        except Exception as problem:
            error = _failure(problem)
    if tools.gone is not None:
        error = f"target: {tools.gone}"
    elif error is None and tools.log.silent:
        error = f"target: it answered nothing, {len(tools.log.exchanges)} times"
    return TransferAudit(
        id=unit.id,
        target=unit.target,
        behavior=unit.behavior,
        control=unit.control,
        approach=unit.approach,
        scaffold=who.scaffold,
        auditor=who.auditor_name,
        index=unit.index,
        exchanges=tuple(tools.exchanges),
        findings=tuple(tools.research.findings),
        guesses=tuple(guesses),
        dropped=dropped,
        predictions_text="" if guesses else text[:20_000],
        stopped=session.stopped,
        generated=session.budget.spent,
        budget=who.limits.budget,
        turns=session.turns or session.budget.answers,
        notes={name: count for name, count in sorted(tools.log.notes.items()) if count},
        error=error,
        usage={**tools.usage, "auditor": dict(session.spending.usage)},
    )


def _fresh(folder: Path) -> Path:
    """Findings of an earlier, unfinished try of the same audit are not this one's."""
    if folder.is_dir():
        for path in folder.iterdir():
            os.unlink(path)
    return folder


def _failure(error: BaseException) -> str:
    return f"scaffold: {told(error, 500)}"
