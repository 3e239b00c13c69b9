"""Calibration mix (Rosu & Wang 2026): m of every 8 groups of a batch have a clean target.

Nothing is planted there, the auditor does not know, and the comparison is made by the inverted criterion (`judges.calibration`). Works with
the pairwise designs. The share is fixed a batch, so that every gradient step sees both kinds.
"""

from __future__ import annotations

import random

from ..errors import ConfigError
from .base import RewardDesign


def clean_positions(groups: int, eighths: int, rng: random.Random) -> frozenset[int]:
    """Which of a batch's groups are clean: exactly groups x eighths / 8 positions, drawn anew each step."""
    return frozenset(rng.sample(range(groups), groups * eighths // 8))


def check_mix(design: RewardDesign, kind: str, eighths: int, *, production: bool = False) -> None:
    """Refuse a calibration share for a design that has no criterion for clean targets, and production targets for one that needs a truth."""
    if production and design.needs_truth:
        raise ConfigError(
            f"targets.production = true: nothing is planted there, and {kind} compares with what is planted; use concerningness, or set it to false"
        )
    if eighths and not design.allows_clean:
        raise ConfigError(
            f"reward.calibration_eighths = {eighths}: {kind} has no criterion for clean targets; use reference or intragroup, or set it to 0"
        )
