"""Intragroup pairwise reward (spec section 5, reward 3).

All C(k, 2) pairs of a group are compared; an audit's reward is its win rate, a tie counting half (not published):

    R_i = mean over j != i of win(i, j),  win = 1 if comparison > 50, 1/2 if = 50, else 0

Known bias: rewards always average 1/2 in a group, so a group in which everybody is wrong in the same way still has winners. Without
calibration groups the auditor that claims more wins.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations

from ..types import Verdict
from .base import Group, Judges, reward
from .reference import win_bit


@reward("intragroup")
class IntragroupPairwise:
    """Win rate inside the group."""

    needs_reference = False
    allows_clean = True

    async def judge(self, group: Group, judges: Judges) -> list[Verdict]:
        """All pairs, each once (or in both orders, by the run's setting)."""
        return list(await asyncio.gather(*(judges.compare(a, b) for a, b in combinations(group.finished, 2))))

    def rewards(self, group: Group, verdicts: Sequence[Verdict]) -> dict[str, float]:
        """Mean of wins over the pairs that have a verdict."""
        wins: dict[str, list[float]] = defaultdict(list)
        for verdict in verdicts:
            if verdict.value is not None:
                first, second = verdict.audits
                wins[first].append(win_bit(verdict.value))
                wins[second].append(1 - win_bit(verdict.value))
        return {audit_id: sum(values) / len(values) for audit_id, values in wins.items()}
