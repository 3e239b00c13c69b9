"""The four-part suite of one auditor. Audits and verdicts are kept as they come: an evaluation that was stopped goes on where it stood."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import AuditrlError, ConfigError, MissingVerdictsError, ProviderError
from ..faults import root_cause
from ..files import write_whole
from ..types import Audit, Verdict
from . import audit_quality, fp_calibration, production, realism
from .base import EvalContext, Profile, Scoring, Size, Suite, held_out, result_of
from .metering import Cost, cost_of, meter, metered, sum_costs
from .records import SuiteRecords, check_manifest, owned_folder, read_pairs, write_pairs
from .scores import SUITES, Scorecard, scorecard

if TYPE_CHECKING:
    from inspect_ai.model import Model

    from ..audit.task import Unit

FOUR: Mapping[str, Suite] = {s.name: s for s in (audit_quality.SUITE, fp_calibration.SUITE, production.SUITE, realism.SUITE)}
"""The suites by name, in the order of every table."""


def sizes(profile: Profile, seeds: int | None = None, replicates: int | None = None, turns: int | None = None) -> dict[str, Size]:
    """Seeds, replicates and turns of each suite, no more of each than given."""
    return {name: suite.sizes[profile].limited(seeds, replicates, turns) for name, suite in FOUR.items()}


async def run_suite(
    context: EvalContext,
    profile: Profile,
    *,
    folder: Path,
    only: Sequence[str] = SUITES,
    override: Mapping[str, Size] | None = None,
) -> Scorecard:
    """Evaluate one auditor; audits, verdicts and suites that `folder` already holds are not made again.

    Writes `<suite>.json` (scores), `<suite>.audits.jsonl` (audits with their verdicts) and `scorecard.json`; see `records`.

    Raises:
        ConfigError: An unknown suite, or nothing to evaluate on.
        RunError: The folder holds another evaluation, another process works on it, or it can't be written.
        ProviderError: Too many audits failed or too many verdicts could not be had; what there is is kept.
    """
    table = {**sizes(profile), **(override or {})}
    for name in only:
        if name not in FOUR:
            raise ConfigError(f"suite: unknown suite {name!r}; known: {', '.join(SUITES)}")
    context = replace(context, judge=metered(context.judge))
    with owned_folder(folder):
        check_manifest(folder, identity(context, profile, table))
        cards = [await _one(context, FOUR[name], table[name], folder) for name in only]
        card = scorecard(
            context.auditor_name,
            [result for saved in cards for result in saved.suites.values()],
            simulated=context.simulated,
            meta={
                **description(context, profile),
                "cost": sum_costs(saved.meta.get("cost", {}) for saved in cards),
                "seconds": round(sum(saved.meta.get("seconds", 0.0) for saved in cards), 1),
            },
        )
        write_whole(folder / "scorecard.json", card.to_json())
    return card


# ---------------------------------------------------------------- what is evaluated


def model_name(model: Model) -> str:
    """`provider/name`, with a digest of its arguments where it has any (they may hold a key)."""
    arguments = {**model.model_args, "base_url": getattr(model.api, "base_url", None)}
    given = {key: value for key, value in arguments.items() if value is not None}
    return f"{model}#{_digest(given)}" if given else str(model)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=lambda one: type(one).__name__).encode()).hexdigest()[:8]


def description(context: EvalContext, profile: Profile) -> dict[str, Any]:
    """What a scorecard says about how it was made."""
    return {
        "profile": profile,
        "random_seed": context.random_seed,
        "targets": {key: model_name(model) for key, model in sorted(context.targets.items())},
        "judge": model_name(context.judge),
        "clean_condition": context.clean_condition,
        "conversations": sorted({conversation.source for conversation in context.real}),
        "similarity": context.similarity,
        "leak": list(context.leaks),
    }


def identity(context: EvalContext, profile: Profile, table: Mapping[str, Size]) -> dict[str, Any]:
    """Everything that must not change when an evaluation is continued."""
    return {
        **description(context, profile),
        "auditor": context.auditor_name,
        "auditor_model": model_name(context.auditor),
        "simulated": context.simulated,
        "sizes": {name: asdict(size) for name, size in table.items()},
        "audit": context.audit.model_dump(mode="json", exclude={"max_turns", "max_concurrent"}),
        "behaviors": [behavior.name for behavior in held_out(context)],
        "bank": _digest([[b.model_dump() for b in held_out(context)], [s.model_dump() for s in context.seeds if s.split == "eval"]]),
        "real": _digest([c.text for c in context.real]),
        "attempts": context.attempts,
    }


# ---------------------------------------------------------------- one suite


async def _one(context: EvalContext, suite: Suite, size: Size, folder: Path) -> Scorecard:
    saved = folder / f"{suite.name}.json"
    if saved.exists():
        return Scorecard.from_json(saved.read_text(encoding="utf-8"), str(saved))
    began = time.monotonic()
    spent: Cost = {}
    if suite.name == realism.NAME:
        context, spent = await _matched(context, size, folder)
    records = SuiteRecords.load(folder, suite.name)
    records.reopen()
    work = suite.units(context, size)
    if not work:
        raise ConfigError(f"{suite.name}: no evaluation seed to run on; the bank needs held-out behaviors with evaluation seeds (--bank)")
    await _run(context, suite, size, work, records)
    order = [unit.audit_id for unit in work]
    _check_share(suite.name, order, records, context.max_failed_share)
    result = result_of(suite, [records.audits[i] for i in order], records.verdicts)
    records.finish(order)
    cost = sum_costs([spent, cost_of((records.audits[i] for i in order), records.verdicts.values())])
    meta = {**_description_of(context), "cost": cost, "seconds": round(time.monotonic() - began, 1)}
    card = scorecard(context.auditor_name, [result], simulated=context.simulated, meta=meta)
    write_whole(saved, card.to_json())
    return card


def _description_of(context: EvalContext) -> dict[str, Any]:
    return {"judge": model_name(context.judge), "leak": list(context.leaks)}


async def _matched(context: EvalContext, size: Size, folder: Path) -> tuple[EvalContext, Cost]:
    """The context with the matching of real conversations and seeds, and what the matching cost."""
    path = folder / f"{realism.NAME}.pairs.json"
    if path.exists():
        pairs, rest = read_pairs(path)
        return replace(context, pairs=pairs), rest["cost"]
    with meter() as usage:
        pairs, verdicts = await realism.match(context, size)
    cost: Cost = {"judge": dict(usage)} if usage else {}
    missing = sum(verdict.value is None for verdict in verdicts)
    if missing > context.max_failed_share * len(verdicts):
        raise MissingVerdictsError(
            f"realism: {missing} of {len(verdicts)} similarity verdicts are missing ({next(v for v in verdicts if v.value is None).cause}); "
            "use another judge, or --similarity text"
        )
    if missing:
        context.display.note(f"realism: {missing} of {len(verdicts)} similarity verdicts are missing; these pairs were chosen last")
    write_pairs(path, pairs, cost, missing)
    return replace(context, pairs=pairs), cost


async def _run(context: EvalContext, suite: Suite, size: Size, work: Sequence[Unit], records: SuiteRecords) -> None:
    """Run the audits that are not there yet, and judge each as soon as it is over."""
    todo = [unit for unit in work if unit.audit_id not in records.audits]
    waiting = [audit for audit in records.audits.values() if audit.id not in records.verdicts]
    scoring, display = context.scoring(), context.display
    display.start(
        f"{context.label or context.auditor_name}: {suite.name.replace('_', ' ')}", len(work), len(work) - len(todo) - len(waiting)
    )
    # audits end inside their own context; judges must not count as part of the audit
    outside = contextvars.copy_context()
    problems: list[Exception] = []

    async def judge(audit: Audit) -> None:
        records.add_verdict(await judged(suite, scoring, audit))
        display.advance()

    def over(audit: Audit) -> None:
        try:
            records.add_audit(audit)
        except AuditrlError as error:
            # raised here it would be taken for a failure of the audit
            problems.append(error)
            return
        if audit.failed:
            display.advance("an audit failed")
        else:
            group.create_task(judge(audit), context=outside.copy())

    try:
        async with asyncio.TaskGroup() as group:
            for audit in waiting:
                group.create_task(judge(audit))
            if todo:
                await _audits(context, suite.name, size, todo, over)
    except* AuditrlError as errors:
        raise root_cause(errors) from None
    if problems:
        raise problems[0]
    display.finish()


async def judged(suite: Suite, scoring: Scoring, audit: Audit) -> Verdict:
    """One verdict, with what it cost where the judge's model is metered."""
    with meter() as usage:
        verdict = await suite.judge(scoring, audit)
    return verdict.model_copy(update={"usage": dict(usage) or verdict.usage})


async def _audits(context: EvalContext, name: str, size: Size, todo: Sequence[Unit], over: Any) -> None:
    from ..audit.run import run_audits
    from ..audit.task import not_joined

    settings = context.audit.model_copy(update={"max_turns": size.turns})
    with context.session(min(len(todo), settings.max_concurrent or len(todo))):
        await run_audits(
            todo,
            settings,
            auditors={"": context.auditor},
            targets=context.targets,
            auditor_name=context.auditor_name,
            log_dir=context.log_dir,
            name=name,
            joined=context.joined or not_joined,
            on_audit=over,
        )


def _check_share(name: str, order: Sequence[str], records: SuiteRecords, share: float) -> None:
    failed = [records.audits[i] for i in order if records.audits[i].failed]
    if len(failed) > share * len(order):
        raise ProviderError(
            f"{name}: {len(failed)} of {len(order)} audits failed, first: {failed[0].error}. "
            "Mend the cause and run the same command again: finished audits are kept"
        )
    lost = [v for v in records.verdicts.values() if (v.missing or "").startswith("provider")]
    if len(lost) > share * len(order):
        raise MissingVerdictsError(
            f"{name}: {len(lost)} of {len(order)} verdicts could not be had, first: {lost[0].missing}. "
            "Mend the cause and run the same command again: audits and verdicts are kept"
        )
