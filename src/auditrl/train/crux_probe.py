"""Crux scores during training (`probe.cruxes`): how often the current policy surfaces what was planted, from saved moments of audits.

Two continuations of each crux, five live turns, judged by the training judge on the first target of the pool; without a base model, so
the pairwise features are left out (`auditrl eval crux --base` has them). Cruxes are only measured on: held-out behaviors may be among them.
"""

from __future__ import annotations

from ..evals.base import EvalContext
from ..evals.crux import crux_features
from ..evals.crux_bank import load_cruxes
from .workshop import CURRENT, Workshop

REPLICATES = 2


async def crux_probe(shop: Workshop, step: int) -> dict[str, float]:
    """`crux_target_view`, `crux_auditor_view`, `crux_target_view_held_out` in %; those without a verdict are left out."""
    path = shop.config.probe.cruxes
    if path is None:
        return {}
    context = EvalContext(
        auditor=shop.auditor(CURRENT),
        auditor_name=shop.config.name,
        targets={"planted": shop.targets[min(shop.config.targets.pool)]},
        judge=shop.judges.model,
        behaviors=shop.behaviors,
        seeds=(),
        audit=shop.config.audit,
        log_dir=shop.run.logs,
        random_seed=shop.seed("crux"),
        simulated=shop.config.simulated,
        attempts=shop.judges.attempts,
        joined=shop.engine.joined,
        session=shop.engine.session,
    )
    found = await crux_features(context, load_cruxes(path), replicates=REPLICATES, batch=f"crux-{step:04d}")
    return {f"crux_{name}": value for name, value in found.values.items()}
