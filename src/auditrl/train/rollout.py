"""The audits of a step and their judgements: units, one Inspect evaluation, judged groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from inspect_ai.model import Model

from ..audit.run import run_audits
from ..audit.task import Unit
from ..behaviors.persona import hidden_block
from ..errors import ProviderError
from ..policy.engine import PolicyRef
from ..rewards import GroupReward
from ..types import Audit, Scenario
from .clock import Clock
from .judging import Judging
from .workshop import CURRENT, REFERENCE, Workshop


def unit(shop: Workshop, scenario: Scenario, index: int, *, batch: str, random_seed: int, auditor: str) -> Unit:
    """One audit of a scenario, with what is hidden in its target."""
    behavior = shop.behaviors.get(scenario.behavior or "")
    block = hidden_block(behavior, scenario.condition, shop.config.audit.persona)
    return Unit(scenario, index, block, random_seed, batch=batch, auditor=auditor)


async def roll_out(
    shop: Workshop, scenarios: Sequence[Scenario], step: int, clock: Clock, *, policy: PolicyRef = CURRENT
) -> list[GroupReward]:
    """Audit every scenario `group_size` times with the policy, make the references that are missing beside them, and judge each group as
    soon as it is complete.

    Raises:
        ProviderError: More audits failed than `train.max_failed_share` allows.
        MissingVerdictsError: More verdicts are missing than `reward.max_missing_share` allows.
    """
    groups = [
        [
            unit(shop, scenario, i, batch=f"step-{step + 1:04d}.{g}", random_seed=shop.seed("audit", step), auditor="policy")
            for i in range(shop.config.train.group_size)
        ]
        for g, scenario in enumerate(scenarios)
    ]
    snapshot = shop.references.snapshot_step(step)
    references = [
        unit(shop, scenario, 0, batch=f"reference-{snapshot:04d}", random_seed=shop.seed("reference", snapshot), auditor=REFERENCE)
        for scenario in (shop.references.missing(scenarios, step) if shop.design.needs_reference else [])
    ]
    auditors = {"policy": shop.auditor(policy, shop.ledger)}
    if references:
        auditors[REFERENCE] = shop.auditor(PolicyRef(REFERENCE))

    ids = [(scenario, [unit.audit_id for unit in units]) for scenario, units in zip(scenarios, groups, strict=True)]
    judging = Judging(shop, step, ids, {unit.scenario.id: unit.audit_id for unit in references})
    try:
        work = [*chain.from_iterable(groups), *references]
        audits = await audit(shop, work, auditors, f"step-{step + 1:04d}", on_audit=judging.over)
        shop.references.add(audits[len(audits) - len(references) :], step)
        _check_failures(shop, audits, step)
        clock.lap("audits")
        judged = await judging.finished()
        clock.lap("judging")
    finally:
        await judging.close()
    return judged


async def audit(
    shop: Workshop, work: Sequence[Unit], auditors: Mapping[str, Model], name: str, on_audit: Callable[[Audit], None] | None = None
) -> list[Audit]:
    """Run units in one Inspect log, batched by the engine over all audits that are alive."""
    settings = shop.config.audit
    with shop.engine.session(min(len(work), settings.max_concurrent or len(work))):
        audits, _ = await run_audits(
            work,
            settings,
            auditors=auditors,
            targets=shop.targets,
            auditor_name=shop.config.name,
            log_dir=shop.run.logs,
            name=name,
            joined=shop.engine.joined,
            extra_roles=shop.roles,
            on_audit=on_audit,
        )
    return audits


def _check_failures(shop: Workshop, audits: Sequence[Audit], step: int) -> None:
    failed = [a for a in audits if a.failed]
    if len(failed) > shop.config.train.max_failed_share * len(audits):
        raise ProviderError(
            f"step {step + 1}: {len(failed)} of {len(audits)} audits failed, more than train.max_failed_share allows; first: {failed[0].error}. "
            f"Mend the model or server, then `auditrl resume {shop.run.path}`"
        )
