"""Group-relative advantages (GRPO): (R - mean) / (std + eps) inside each group."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


def group_advantages(rewards: Mapping[str, float], eps: float) -> dict[str, float]:
    """Advantage by audit id, from the rewards of one group.

    Uses the population standard deviation. A group with fewer than two rewards says nothing about what is better and gives none; a group
    whose rewards are all equal gives zeros.
    """
    if len(rewards) < 2:
        return {}
    values = np.array(list(rewards.values()), dtype=np.float64)
    advantages = (values - values.mean()) / (values.std() + eps)
    return dict(zip(rewards, advantages.tolist(), strict=True))
