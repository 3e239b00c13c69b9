"""Intragroup pairwise reward (Rosu & Wang 2026, reward designs): win rate against the other audits of the group.

    R_i = mean over the opponents j of win(i, j),  win = 1 if comparison > 50, 1/2 if = 50, else 0

A tie as half a win is not published. `pairs` says who meets whom: `all` C(k, 2) pairs, as published; `swiss`, ceil(log2 k) rounds between
neighbours in the ranking; `sample:n`, n opponents each, drawn at random.

Known bias: rewards always average 1/2 in a group, so a group in which everybody is wrong in the same way still has winners. Without
calibration groups the auditor that claims more wins.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations

from ..audit.context import stable_hash
from ..errors import ConfigError
from ..types import Verdict
from .base import Group, Judges, reward
from .pairing import Pair, sampled_pairs, swiss_round, swiss_rounds
from .reference import win_bit


@reward("intragroup")
class IntragroupPairwise:
    """Win rate inside the group."""

    needs_reference = False
    needs_truth = True
    allows_clean = True

    def __init__(self, pairs: str = "all") -> None:
        kind, _, number = pairs.partition(":")
        if not (pairs in ("all", "swiss") or (kind == "sample" and number.isdecimal() and int(number) > 0)):
            raise ConfigError(f"reward.args.pairs: {pairs!r} is no schedule; use 'all', 'swiss' or 'sample:n' with n from 1")
        self.pairs = kind
        self.opponents = int(number) if number else 0

    async def judge(self, group: Group, judges: Judges) -> list[Verdict]:
        """Each pair of the schedule once (or in both orders, by the run's setting)."""
        count = len(group.finished)
        if self.pairs == "swiss":
            return await self._swiss(group, judges)
        if self.pairs == "sample":
            return await _compare(group, judges, sampled_pairs(count, self.opponents, _rng(group)) if count > 1 else [])
        return await _compare(group, judges, list(combinations(range(count), 2)))

    async def _swiss(self, group: Group, judges: Judges) -> list[Verdict]:
        count, rng = len(group.finished), _rng(group)
        number = {audit.id: i for i, audit in enumerate(group.finished)}
        played: dict[int, set[int]] = defaultdict(set)
        verdicts: list[Verdict] = []
        for _ in range(swiss_rounds(count)):
            wins = self.rewards(group, verdicts)
            scores = [wins.get(audit.id, 0.5) for audit in group.finished]
            found = await _compare(group, judges, swiss_round(scores, played, rng))
            for verdict in found:
                first, second = (number[name] for name in verdict.audits)
                played[first].add(second)
                played[second].add(first)
            verdicts += found
        return verdicts

    def rewards(self, group: Group, verdicts: Sequence[Verdict]) -> dict[str, float]:
        """Mean of wins over the pairs that have a verdict."""
        wins: dict[str, list[float]] = defaultdict(list)
        for verdict in verdicts:
            if verdict.value is not None:
                first, second = verdict.audits
                wins[first].append(win_bit(verdict.value))
                wins[second].append(1 - win_bit(verdict.value))
        return {audit_id: sum(values) / len(values) for audit_id, values in wins.items()}


async def _compare(group: Group, judges: Judges, pairs: Sequence[Pair]) -> list[Verdict]:
    audits = group.finished
    return list(await asyncio.gather(*(judges.compare(audits[a], audits[b]) for a, b in pairs)))


def _rng(group: Group) -> random.Random:
    """Randomness of a group's schedule: the same in a resumed run."""
    return random.Random(stable_hash("pairs", *(audit.id for audit in group.finished)))
