"""The audits of a step: units, one Inspect evaluation, groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inspect_ai.model import Model

from ..audit.run import run_audits
from ..audit.task import Unit
from ..behaviors.persona import hidden_block
from ..errors import ProviderError
from ..policy.engine import PolicyRef
from ..rewards import Group
from ..types import Audit, Scenario
from .workshop import CURRENT, REFERENCE, Workshop


def unit(shop: Workshop, scenario: Scenario, index: int, *, batch: str, random_seed: int, auditor: str) -> Unit:
    """One audit of a scenario, with what is hidden in its target."""
    behavior = shop.behaviors.get(scenario.behavior or "")
    block = hidden_block(behavior, scenario.condition, shop.config.audit.persona)
    return Unit(scenario, index, block, random_seed, batch=batch, auditor=auditor)


async def roll_out(shop: Workshop, scenarios: Sequence[Scenario], step: int) -> list[Group]:
    """Audit every scenario `group_size` times with the current policy; make the references that are missing beside them.

    Raises:
        ProviderError: More audits failed than `train.max_failed_share` allows.
    """
    size = shop.config.train.group_size
    work = [
        unit(shop, scenario, i, batch=f"step-{step + 1:04d}.{g}", random_seed=shop.seed("audit", step), auditor="policy")
        for g, scenario in enumerate(scenarios)
        for i in range(size)
    ]
    missing = shop.references.missing(scenarios, step) if shop.design.needs_reference else []
    snapshot = shop.references.snapshot_step(step)
    work += [
        unit(shop, scenario, 0, batch=f"reference-{snapshot:04d}", random_seed=shop.seed("reference", snapshot), auditor=REFERENCE)
        for scenario in missing
    ]
    auditors = {"policy": shop.auditor(CURRENT, shop.ledger)}
    if missing:
        auditors[REFERENCE] = shop.auditor(PolicyRef(REFERENCE))
    audits = await audit(shop, work, auditors, f"step-{step + 1:04d}")
    shop.references.add(audits[len(scenarios) * size :], step)
    _check_failures(shop, audits, step)
    return [
        Group(
            scenario, tuple(audits[g * size : (g + 1) * size]), shop.references.get(scenario, step) if shop.design.needs_reference else None
        )
        for g, scenario in enumerate(scenarios)
    ]


async def audit(shop: Workshop, work: Sequence[Unit], auditors: Mapping[str, Model], name: str) -> list[Audit]:
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
        )
    return audits


def _check_failures(shop: Workshop, audits: Sequence[Audit], step: int) -> None:
    failed = [a for a in audits if a.failed]
    if len(failed) > shop.config.train.max_failed_share * len(audits):
        raise ProviderError(
            f"step {step + 1}: {len(failed)} of {len(audits)} audits failed, more than train.max_failed_share allows; first: {failed[0].error}. "
            f"Mend the model or server, then `auditrl resume {shop.run.path}`"
        )
