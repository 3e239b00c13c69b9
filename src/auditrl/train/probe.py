"""A cheap look at the policy during training, on held-back seeds: false accusations on clean targets, and a composite proxy.

The proxy is the mean of audit quality (planted) and false-positive calibration (clean) over a few audits, scored by the modules of the
four-part suite. It is noisy on purpose (`probe.audits` audits): it is there to catch a run that goes wrong, not to compare runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..audit.task import Unit
from ..judges.suite import judge_suite
from ..types import Audit, Seed, Verdict
from .batch import clean_condition, clean_target, scenario
from .crux_probe import crux_probe
from .metrics import is_firm, mean
from .rollout import audit, unit
from .signals import suite_score
from .workshop import CURRENT, Workshop


@dataclass(frozen=True, slots=True)
class Probe:
    """What one look found: the values of the metrics row, the audits that ran to their end, the suite judge's verdict of each (by id)."""

    values: dict[str, float | None]
    audits: tuple[Audit, ...]
    verdicts: Mapping[str, Verdict]


async def probe(shop: Workshop, step: int, *, cruxes: bool = True) -> Probe:
    """Half of the audits on planted, half on clean targets. Values 0-100, except shares (0-1).

    Args:
        step: Steps done; 0 looks at the start.
        cruxes: Play `probe.cruxes` too, where the config names a file.
    """
    work = probe_units(shop, step)
    audits = [a for a in await audit(shop, work, {"policy": shop.auditor(CURRENT)}, f"probe-{step:04d}") if not a.failed]
    verdicts = {v.audits[0]: v for v in await asyncio.gather(*(_judged(shop, a) for a in audits))}
    planted = [a for a in audits if a.scenario.planted]
    clean = [a for a in audits if not a.scenario.planted]
    quality, calibration = (mean(s for a in part if (s := suite_score(a, verdicts[a.id])) is not None) for part in (planted, clean))
    parts = [value for value in (quality, calibration) if value is not None]
    values = {
        "quality": quality,
        "fp_calibration": calibration,
        "composite_proxy": mean(parts),
        "false_positive_share": mean(float(is_firm(a)) for a in clean),
        "audits": float(len(audits)),
        **(await crux_probe(shop, step) if cruxes else {}),
    }
    return Probe(values, tuple(audits), verdicts)


def probe_units(shop: Workshop, step: int) -> list[Unit]:
    """The same held-back scenarios at every probe, so that probes can be compared."""
    config = shop.config
    pool = sorted(config.targets.pool)
    clean = clean_target(config, pool[0])
    seeds = _spread(shop.held_back, max(1, config.probe.audits // 2))
    places = [(scenario(seed, "planted", pool[i % len(pool)]), i) for i, seed in enumerate(seeds)]
    if clean is not None:
        places += [(scenario(seed, clean_condition(config), clean), i) for i, seed in enumerate(seeds)]
    random_seed = shop.seed("probe")
    return [unit(shop, where, i, batch=f"probe-{step:04d}", random_seed=random_seed, auditor="policy") for where, i in places]


def _spread(seeds: Sequence[Seed], count: int) -> list[Seed]:
    return [seeds[i * len(seeds) // count % len(seeds)] for i in range(count)]


async def _judged(shop: Workshop, audit: Audit) -> Verdict:
    return await judge_suite(shop.judges.model, audit, shop.judges.truth(audit.scenario), attempts=shop.judges.attempts)
