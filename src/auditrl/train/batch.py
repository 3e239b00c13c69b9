"""Which scenarios a gradient step sees: a pure function of (config, bank, step).

Every epoch visits all (behavior, seed) pairs once in a shuffled order; targets rotate; calibration positions are drawn a step. Nothing is
remembered between steps, so a resumed run draws what the unbroken one would have drawn.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache

from ..audit.context import stable_hash
from ..config import RunConfig
from ..errors import ConfigError
from ..rewards.calibration import clean_positions
from ..types import Behavior, Condition, Scenario, Seed

CLEAN_TARGET = "clean"
"""Key of the separate clean target of single-target runs."""
HELD_BACK_EVERY = 13
"""One in so many training seeds is kept out of the batches for the probe."""


def scenario(seed: Seed, condition: Condition, target: str) -> Scenario:
    """Scenario with an id made of its parts."""
    return Scenario(id=f"{seed.id}/{condition}/{target}", seed=seed, condition=condition, behavior=seed.behavior, target=target)


def training_seeds(config: RunConfig, behaviors: Sequence[Behavior], seeds: Sequence[Seed]) -> list[Seed]:
    """The `train` seeds of the behaviors that this run trains on.

    Raises:
        ConfigError: A held-out behavior or an unknown name in `bank.behaviors`, or no seed at all.
    """
    known = {b.name: b for b in behaviors}
    names = config.bank.behaviors or tuple(sorted(b.name for b in behaviors if b.split == "train"))
    for name in names:
        if name not in known:
            raise ConfigError(f"bank.behaviors: unknown behavior {name!r}; `auditrl behaviors list` shows the known ones")
        if known[name].split != "train":
            raise ConfigError(f"bank.behaviors: {name!r} is held out for evaluation and can't be trained on; remove it")
    wanted = set(names)
    chosen = sorted((s for s in seeds if s.behavior in wanted and s.split == "train"), key=lambda s: s.id)
    if not chosen:
        raise ConfigError("bank: no training seed for the chosen behaviors; add seeds, or choose others in bank.behaviors")
    return chosen


def split_held_back(seeds: Sequence[Seed]) -> tuple[list[Seed], list[Seed]]:
    """(seeds for batches, seeds held back for the probe): every 13th of the sorted seeds is held back, none of a very small bank."""
    if len(seeds) < 2 * HELD_BACK_EVERY:
        return list(seeds), list(seeds)
    held = [seed for i, seed in enumerate(seeds) if i % HELD_BACK_EVERY == HELD_BACK_EVERY - 1]
    return [seed for seed in seeds if seed not in held], held


def clean_condition(config: RunConfig) -> Condition:
    """Clean targets from the pool wear the persona, a separate clean model and production targets nothing."""
    return "persona" if config.targets.clean_from_pool else "clean"


def clean_target(config: RunConfig, pooled: str) -> str | None:
    """Key of the target of a clean scenario; `pooled` is the model of the pool whose turn it is. None: the run has no clean target."""
    targets = config.targets
    if targets.clean_from_pool or targets.production:
        return pooled
    return CLEAN_TARGET if targets.clean is not None else None


def draw_batch(config: RunConfig, seeds: Sequence[Seed], step: int) -> list[Scenario]:
    """The scenarios of one gradient step, `train.groups` of them.

    Args:
        seeds: Training seeds in a fixed order.
        step: 0-based.
    """
    groups = config.train.groups
    clean = clean_positions(groups, config.reward.calibration_eighths, random.Random(stable_hash(config.random_seed, "clean", step)))
    pool = sorted(config.targets.pool)
    batch: list[Scenario] = []
    for position in range(groups):
        draw = step * groups + position
        seed = seeds[_order(config.random_seed, draw // len(seeds), len(seeds))[draw % len(seeds)]]
        # planted and clean take the same rotation, so that the target's identity says nothing about the condition
        pooled = pool[stable_hash(config.random_seed, "target", step, position) % len(pool)]
        target = clean_target(config, pooled) if position in clean or config.targets.production else None
        batch.append(scenario(seed, "planted", pooled) if target is None else scenario(seed, clean_condition(config), target))
    return batch


@lru_cache(maxsize=8)
def _order(random_seed: int, epoch: int, count: int) -> tuple[int, ...]:
    """The shuffled places of an epoch."""
    order = list(range(count))
    random.Random(stable_hash(random_seed, "epoch", epoch)).shuffle(order)
    return tuple(order)
