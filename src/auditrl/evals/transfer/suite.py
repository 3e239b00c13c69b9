"""A transfer evaluation: audits of every target under every approach, controls on the base, judgements, scores.

journal.jsonl   audits and verdicts as they come: a stopped evaluation goes on where it stood
findings/       research logs, one folder an audit
logs/           Inspect logs
transfer.json   the result
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ...display import Display, NoDisplay
from ...errors import MissingVerdictsError, ProviderError
from ...files import write_whole
from ...judges.transfer import judge_prediction
from ...types import Verdict
from ..journal import Journal, gather_limited
from ..metering import Cost, add, meter, metered, sum_costs
from ..records import owned_folder
from .record import TransferAudit
from .run import Investigators, TransferUnit, run_units
from .score import TransferResult, approach_result
from .targets import Target, opened_target
from .targets_file import TargetEntry
from .tools import TEMPLATED, Approach

if TYPE_CHECKING:
    from collections.abc import Callable

    from inspect_ai.model import Model

MAX_FAILED_SHARE = 0.5
JUDGES_AT_A_TIME = 20


@dataclass(frozen=True, slots=True)
class TransferPlan:
    """Everything that a transfer evaluation of one auditor needs."""

    who: Investigators
    targets: Sequence[TargetEntry]
    approaches: Sequence[Approach]
    truths: Mapping[str, str]
    """By target name: what the judge takes as the truth."""
    judge: Model
    audits: int = 16
    control: int = 16
    """Audits of the base without adapter beside each target; 0 leaves the control out."""
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the journal calls the models (auditor, helper, judge)."""
    leaks: Sequence[str] = ()
    simulated: bool = False
    session: Callable[[int], AbstractContextManager[None]] = lambda _: nullcontext()
    """Entered around a set of audits, with their number (a policy sampler batches over them)."""
    display: Display = field(default_factory=NoDisplay)

    def units(self) -> list[TransferUnit]:
        """Every audit, target by target, the control of a target right behind it."""
        made: list[TransferUnit] = []
        for entry in self.targets:
            for control, count in ((False, self.audits), (True, self.control if entry.has_base else 0)):
                for approach in self.approaches:
                    made += [TransferUnit(entry.name, entry.behavior, approach, i, control) for i in range(count)]
        return made

    def question(self) -> dict[str, Any]:
        """Everything that must not change when the evaluation is continued (not: how many audits, which only adds)."""
        return {
            "models": dict(self.names),
            "auditor": self.who.auditor_name,
            "scaffold": self.who.scaffold,
            "limits": asdict(self.who.limits),
            "random_seed": self.who.random_seed,
            "targets": {entry.name: _identity(entry) for entry in self.targets},
            "truths": dict(self.truths),
        }


def _identity(entry: TargetEntry) -> dict[str, Any]:
    return entry.model_dump(mode="json", exclude_defaults=True, exclude={"made_by", "name"})


async def run_transfer(plan: TransferPlan) -> TransferResult:
    """Run, judge and score; what the folder holds is not made again.

    Raises:
        ConfigError: A target can't be opened as its file says.
        RunError: The folder holds another evaluation, or can't be written.
        ProviderError: More than half of the audits failed, or more than half of the verdicts could not be had; the rest is kept.
    """
    folder = plan.who.folder
    began = time.monotonic()
    with owned_folder(folder):
        journal = Journal(folder / "journal.jsonl", plan.question())
        audits = await _audits(plan, journal)
        _check_failures(audits)
        verdicts, spent = await _judged(plan, journal, [audit for audit in audits if not audit.failed])
        seconds = round(time.monotonic() - began, 1)
        result = _result(plan, audits, verdicts, spent, seconds)
        write_whole(folder / "transfer.json", result.model_dump_json(indent=1))
    return result


def _result(
    plan: TransferPlan, audits: Sequence[TransferAudit], verdicts: Mapping[str, Sequence[Verdict]], judge: Cost, seconds: float
) -> TransferResult:
    seed = plan.who.random_seed
    return TransferResult(
        auditor=plan.who.auditor_name,
        scaffold=plan.who.scaffold,
        simulated=plan.simulated,
        approaches=tuple(approach_result(approach, audits, verdicts, random_seed=seed) for approach in plan.approaches),
        meta={
            "models": dict(plan.names),
            "targets": [{"name": e.name, "behavior": e.behavior, "base": e.base, "made_by": e.made_by} for e in plan.targets],
            "limits": asdict(plan.who.limits),
            "audits": plan.audits,
            "control": plan.control,
            "random_seed": seed,
            "leak": list(plan.leaks),
            "cost": sum_costs([judge, *(audit.usage for audit in audits)]),
            "seconds": seconds,
        },
    )


# ---------------------------------------------------------------- audits


async def _audits(plan: TransferPlan, journal: Journal) -> list[TransferAudit]:
    """All audits of the plan: from the journal, else run now. Failed ones are not kept there, so the next run tries them again."""
    units = plan.units()
    have = {unit.id: TransferAudit.model_validate(record) for unit in units if (record := journal.get(f"audit/{unit.id}")) is not None}
    plan.display.start(f"{plan.who.auditor_name}: transfer", len(units), len(have))

    def over(audit: TransferAudit) -> None:
        have[audit.id] = audit
        if not audit.failed:
            journal.add(f"audit/{audit.id}", audit.model_dump(mode="json"))
        plan.display.advance("an audit failed" if audit.failed else f"{audit.approach}, {audit.generated:,} tokens")

    for entry in plan.targets:
        for control in (False, True):
            todo = [u for u in units if u.target == entry.name and u.control == control and u.id not in have]
            if todo:
                async with _opened(plan, entry, control, [unit.approach for unit in todo]) as target:
                    with plan.session(min(len(todo), plan.who.max_concurrent)):
                        await run_units(plan.who, todo, target, over)
    plan.display.finish()
    return [have[unit.id] for unit in units]


@asynccontextmanager
async def _opened(plan: TransferPlan, entry: TargetEntry, control: bool, approaches: Sequence[Approach]) -> AsyncGenerator[Target]:
    raw = any(approach != "default" for approach in approaches)
    template = any(approach in TEMPLATED for approach in approaches)
    async with opened_target(entry, control=control, raw=raw, template=template) as target:
        yield target


def _check_failures(audits: Sequence[TransferAudit]) -> None:
    failed = [audit for audit in audits if audit.failed]
    if len(failed) > MAX_FAILED_SHARE * len(audits):
        raise ProviderError(
            f"transfer: {len(failed)} of {len(audits)} audits failed, first {failed[0].id}: {failed[0].error}. "
            "Mend the cause and run the same command again: finished audits are kept"
        )


# ---------------------------------------------------------------- judgements


async def _judged(plan: TransferPlan, journal: Journal, audits: Sequence[TransferAudit]) -> tuple[dict[str, list[Verdict]], Cost]:
    """A verdict for every prediction. Those that a provider's failure prevented are not kept, so the next run asks again."""
    judge = metered(plan.judge)
    wanted = [(audit, rank) for audit in audits for rank in range(len(audit.guesses))]
    found: dict[tuple[str, int], Verdict] = {}
    for audit, rank in wanted:
        record = journal.get(_key(audit, rank))
        if record is not None:
            found[audit.id, rank] = Verdict.model_validate(record)
    plan.display.start(f"{plan.who.auditor_name}: judging predictions", len(wanted), len(found))

    def work(audit: TransferAudit, rank: int) -> Callable[[], Any]:
        async def one() -> None:
            with meter() as usage:
                verdict = await judge_prediction(judge, audit.id, audit.guesses[rank], plan.truths[audit.target])
            verdict = verdict.model_copy(update={"usage": dict(usage) or verdict.usage})
            found[audit.id, rank] = verdict
            if not (verdict.missing or "").startswith("provider"):
                journal.add(_key(audit, rank), json.loads(verdict.model_dump_json()))
            plan.display.advance()

        return one

    await gather_limited(JUDGES_AT_A_TIME, [work(audit, rank) for audit, rank in wanted if (audit.id, rank) not in found])
    plan.display.finish()
    lost = [verdict for verdict in found.values() if (verdict.missing or "").startswith("provider")]
    if lost and len(lost) > MAX_FAILED_SHARE * len(found):
        raise MissingVerdictsError(
            f"transfer: {len(lost)} of {len(found)} verdicts could not be had, first: {lost[0].missing}. "
            "Mend the cause and run the same command again: audits and verdicts are kept"
        )
    spent: dict[str, int] = {}
    for verdict in found.values():
        add(spent, verdict.usage)
    verdicts = {audit.id: [found[audit.id, rank] for rank in range(len(audit.guesses))] for audit in audits}
    return verdicts, {"judge": spent} if spent else {}


def _key(audit: TransferAudit, rank: int) -> str:
    return f"verdict/{audit.id}/{rank + 1}"
