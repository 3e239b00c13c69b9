"""Which pairs of a group are compared. All of them cost k (k - 1)/2 judge calls; the two cheaper schedules grow like k log k and k n.

`benchmarks/pairing.py` prints what the cheaper ones lose in agreement with all pairs.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

Pair = tuple[int, int]


def sampled_pairs(players: int, per_player: int, rng: random.Random) -> list[Pair]:
    """Every player meets `per_player` others (one fewer for some if players x per_player is odd), at random.

    The players sit in a circle in random order and meet their neighbours at distance 1, 2, ...: so nobody is compared more often than
    another, which independent draws would not give.
    """
    wanted = min(per_player, players - 1)
    seat = list(range(players))
    rng.shuffle(seat)
    pairs: set[Pair] = set()
    for distance in range(1, wanted // 2 + 1):
        pairs |= {_sorted(seat[i], seat[(i + distance) % players]) for i in range(players)}
    if wanted % 2:
        # with an odd number of meetings left, everybody meets the one across
        half = players // 2
        pairs |= {_sorted(seat[i], seat[i + half]) for i in range(half)}
    return sorted(pairs)


def swiss_rounds(players: int) -> int:
    """Rounds after which a Swiss tournament has told k players apart: ceil(log2 k)."""
    return max(1, math.ceil(math.log2(players))) if players > 1 else 0


def swiss_round(scores: Sequence[float], played: Mapping[int, set[int]], rng: random.Random) -> list[Pair]:
    """Pairs of the next round: neighbours in the ranking that have not met. With an odd number the lowest without a partner sits out."""
    order = list(range(len(scores)))
    rng.shuffle(order)
    order.sort(key=lambda player: -scores[player])
    pairs: list[Pair] = []
    while len(order) > 1:
        first = order.pop(0)
        fresh = next((p for p in order if p not in played.get(first, set())), None)
        if fresh is None:
            continue
        order.remove(fresh)
        pairs.append(_sorted(first, fresh))
    return pairs


def _sorted(a: int, b: int) -> Pair:
    return (a, b) if a < b else (b, a)
