"""Schedules of comparisons inside a group: who meets whom, how often, and what that costs."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from audits import audit, scenario
from hypothesis import given
from hypothesis import strategies as st
from test_rewards import Scripted

from auditrl.errors import ConfigError
from auditrl.rewards import Group, make_reward, reward_group
from auditrl.rewards.pairing import sampled_pairs, swiss_round, swiss_rounds


@given(st.integers(2, 20), st.integers(1, 25), st.integers(0, 99))
def test_sampled_pairs_are_fair(players: int, per_player: int, seed: int) -> None:
    pairs = sampled_pairs(players, per_player, random.Random(seed))
    met = Counter(player for pair in pairs for player in pair)
    wanted = min(per_player, players - 1)
    assert len(set(pairs)) == len(pairs)
    assert all(a < b for a, b in pairs)
    assert all(wanted - 1 <= met[p] <= wanted for p in range(players))
    assert sum(met[p] < wanted for p in range(players)) <= (players * wanted) % 2


@given(st.integers(2, 16), st.integers(0, 99))
def test_swiss_rounds_never_repeat_a_pair_and_play_the_right_number(players: int, seed: int) -> None:
    rng = random.Random(seed)
    strength = [rng.random() for _ in range(players)]
    played: dict[int, set[int]] = {p: set() for p in range(players)}
    wins = [0.0] * players
    seen: set[tuple[int, int]] = set()
    for _ in range(swiss_rounds(players)):
        pairs = swiss_round([w / max(1, len(played[p])) for p, w in enumerate(wins)], played, rng)
        assert len({p for pair in pairs for p in pair}) == 2 * len(pairs)
        for a, b in pairs:
            assert (a, b) not in seen
            seen.add((a, b))
            played[a].add(b)
            played[b].add(a)
            wins[a if strength[a] > strength[b] else b] += 1
    assert len(seen) <= players // 2 * swiss_rounds(players)


@pytest.mark.parametrize(("players", "rounds"), [(0, 0), (1, 0), (2, 1), (3, 2), (8, 3), (9, 4), (64, 6)])
def test_number_of_rounds(players: int, rounds: int) -> None:
    assert swiss_rounds(players) == rounds


def _judged(pairs: str, names: str, failed: str = "") -> tuple[dict[str, float], list[tuple[str, ...]]]:
    """Rewards and comparisons of a group in which earlier names are better."""
    where = scenario("planted")
    table: dict[tuple[str, ...], float | None] = {(a, b): 0.9 if a < b else 0.1 for a in names for b in names if a != b}
    judges = Scripted(table)
    group = Group(where, tuple(audit(n, where=where, error="target: down" if n in failed else None) for n in names))
    return asyncio.run(reward_group(make_reward("intragroup", pairs=pairs), group, judges)).rewards, judges.asked


@pytest.mark.parametrize(("pairs", "calls"), [("all", 28), ("swiss", 12), ("sample:2", 8), ("sample:3", 12), ("sample:99", 28)])
def test_calls_of_a_group_of_eight(pairs: str, calls: int) -> None:
    found, asked = _judged(pairs, "abcdefgh")
    assert len(asked) == calls
    assert set(found) == set("abcdefgh")
    assert sum(found.values()) / 8 == pytest.approx(0.5)


def test_swiss_finds_the_best_and_the_worst() -> None:
    found, _ = _judged("swiss", "abcdefgh")
    assert found["a"] == max(found.values()) == 1.0
    assert found["h"] == min(found.values()) == 0.0


@pytest.mark.parametrize("pairs", ["all", "swiss", "sample:2"])
def test_one_surviving_audit_has_nobody_to_meet(pairs: str) -> None:
    assert _judged(pairs, "abc", failed="bc") == ({}, [])


def test_a_schedule_is_the_same_when_it_is_made_again() -> None:
    assert _judged("sample:2", "abcdefgh") == _judged("sample:2", "abcdefgh")


@pytest.mark.parametrize("pairs", ["some", "sample", "sample:0", "sample:x", "swiss:2", ""])
def test_unknown_schedules_are_named(pairs: str) -> None:
    with pytest.raises(ConfigError, match=r"reward\.args\.pairs"):
        make_reward("intragroup", pairs=pairs)
