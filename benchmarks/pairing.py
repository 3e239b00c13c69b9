"""What cheaper schedules of intragroup comparison lose: judge calls and agreement with all pairs, by group size.

    python benchmarks/pairing.py

Audits have a true strength drawn from N(0, 1); a judge prefers the better one with probability sigmoid(1.7 x difference / 1.6), which is
the noise of the simulated world's judge on audits that differ by a typical 1.7 points. Agreement: Kendall's tau-b of the rewards with the
rewards of all pairs (same judgements) and with the true strength, mean over groups.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from inspect_ai.model import get_model
from scipy.stats import kendalltau

from auditrl.rewards import Group, Judges, make_reward
from auditrl.types import Audit, Scenario, Seed, Verdict

GROUPS = 200
SIZES = (4, 8, 16, 32)
SCHEDULES = ("all", "swiss", "sample:2", "sample:4")


class Noisy(Judges):
    """A judge whose answer about a pair is drawn once and kept."""

    def __init__(self, strength: dict[str, float], rng: random.Random) -> None:
        super().__init__(model=get_model("mockllm/model"), behaviors={})
        self.calls = 0
        self.answers: dict[frozenset[str], str] = {}
        for a, b in combinations(strength, 2):
            p = 1 / (1 + math.exp(-1.7 * (strength[a] - strength[b]) / 1.6))
            self.answers[frozenset((a, b))] = a if rng.random() < p else b

    async def compare(self, first: Audit, second: Audit) -> Verdict:
        self.calls += 1
        won = self.answers[frozenset((first.id, second.id))] == first.id
        return Verdict(judge="noisy", audits=(first.id, second.id), value=0.9 if won else 0.1)


def agreement(a: Sequence[float], b: Sequence[float]) -> float:
    """Kendall's tau-b."""
    result: Any = kendalltau(a, b)
    return float(result.statistic)


async def one_group(size: int, rng: random.Random) -> dict[str, tuple[int, float, float]]:
    """Calls, agreement with all pairs and with the truth, by schedule."""
    where = Scenario(id="s", seed=Seed(id="s", behavior="b", split="train", text="x"), condition="planted", behavior="b")
    strength = {f"{rng.random()}-{i}": rng.gauss(0, 1) for i in range(size)}
    group = Group(where, tuple(Audit(id=name, scenario=where, auditor="a") for name in strength))
    judges = Noisy(strength, rng)
    found: dict[str, tuple[int, float, float]] = {}
    full: list[float] = []
    for schedule in SCHEDULES:
        judges.calls = 0
        design = make_reward("intragroup", pairs=schedule)
        rewards = design.rewards(group, await design.judge(group, judges))
        values = [rewards[name] for name in strength]
        full = full or values
        found[schedule] = (judges.calls, agreement(values, full), agreement(values, list(strength.values())))
    return found


def main() -> None:
    rng = random.Random(0)
    print("| group | schedule | calls | agreement with all pairs | agreement with the truth |\n|---|---|---|---|---|")
    for size in SIZES:
        rows = [asyncio.run(one_group(size, rng)) for _ in range(GROUPS)]
        for schedule in SCHEDULES:
            calls, full, truth = (np.nanmean([row[schedule][i] for row in rows]) for i in range(3))
            print(f"| {size} | {schedule} | {calls:.0f} | {full:.2f} | {truth:.2f} |")


if __name__ == "__main__":
    main()
