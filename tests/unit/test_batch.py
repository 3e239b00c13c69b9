"""Which scenarios a step sees."""

from __future__ import annotations

from collections import Counter

import pytest

from auditrl.behaviors.loader import load_bank
from auditrl.config import RunConfig, check_config, load_config, packaged_config
from auditrl.errors import ConfigError
from auditrl.sim.world import sim_seeds
from auditrl.train.batch import HELD_BACK_EVERY, draw_batch, split_held_back, training_seeds
from auditrl.types import Behavior, Seed

BEHAVIORS: list[Behavior] = list(load_bank().behaviors.values())


def config(*overrides: tuple[str, str]) -> RunConfig:
    return load_config(packaged_config("quickstart"), overrides)


def seeds(cfg: RunConfig) -> list[Seed]:
    return split_held_back(training_seeds(cfg, BEHAVIORS, sim_seeds()))[0]


@pytest.mark.parametrize("eighths", [0, 1, 2, 4, 8])
def test_exact_share_of_clean_groups_in_every_batch(eighths: int) -> None:
    cfg = config(("reward.calibration_eighths", str(eighths)))
    pool = seeds(cfg)
    positions: Counter[int] = Counter()
    for step in range(50):
        batch = draw_batch(cfg, pool, step)
        assert len(batch) == 8
        assert sum(not s.planted for s in batch) == eighths
        positions.update(i for i, s in enumerate(batch) if not s.planted)
    if 0 < eighths < 8:
        assert set(positions) == set(range(8)), "clean groups stand anywhere in the batch"


def test_a_batch_depends_on_nothing_but_config_and_step() -> None:
    cfg = config()
    pool = seeds(cfg)
    assert draw_batch(cfg, pool, 17) == draw_batch(cfg, pool, 17)
    assert draw_batch(cfg, pool, 17) != draw_batch(cfg, pool, 18)
    assert draw_batch(cfg, pool, 17) != draw_batch(config(("random_seed", "2")), pool, 17)


def test_an_epoch_visits_every_seed_once() -> None:
    cfg = config()
    pool = seeds(cfg)
    steps = len(pool) // 8
    drawn = Counter(s.seed.id for step in range(steps) for s in draw_batch(cfg, pool, step))
    assert set(drawn.values()) == {1}
    assert len(drawn) == steps * 8


def test_the_target_says_nothing_about_the_condition() -> None:
    base = config().model_dump(mode="json")
    base["targets"]["pool"] = {name: {"model": f"m/{name}"} for name in ("a", "b")}
    base["evaluation"]["profile"] = "off"
    cfg = check_config(base, "test")
    pool = seeds(cfg)
    counts = Counter((s.target, s.planted) for step in range(300) for s in draw_batch(cfg, pool, step))
    for planted in (True, False):
        share = counts["a", planted] / (counts["a", planted] + counts["b", planted])
        assert share == pytest.approx(0.5, abs=0.06)
    assert {s.condition for s in draw_batch(cfg, pool, 0)} == {"planted", "persona"}


def test_a_separate_clean_target_wears_nothing() -> None:
    base = config().model_dump(mode="json")
    base["targets"] = {"pool": {"a": {"model": "m/a"}}, "clean": {"model": "m/c"}}
    base["evaluation"]["profile"] = "off"
    cfg = check_config(base, "test")
    clean = [s for s in draw_batch(cfg, seeds(cfg), 0) if not s.planted]
    assert {(s.condition, s.target) for s in clean} == {("clean", "clean")}


def test_on_production_targets_nothing_is_planted() -> None:
    base = config().model_dump(mode="json")
    base["targets"] = {"pool": {"a": {"model": "m/a"}, "b": {"model": "m/b"}}, "production": True}
    base["reward"]["calibration_eighths"] = 0
    base["evaluation"]["profile"] = "off"
    cfg = check_config(base, "test")
    drawn = [s for step in range(10) for s in draw_batch(cfg, seeds(cfg), step)]
    assert {(s.condition, s.target) for s in drawn} == {("clean", "a"), ("clean", "b")}


def test_held_out_behaviors_never_enter() -> None:
    cfg = config()
    held_out = {b.name for b in BEHAVIORS if b.split == "eval"}
    assert len(held_out) == 6
    assert not held_out & {s.behavior for s in training_seeds(cfg, BEHAVIORS, sim_seeds())}
    named = check_config({**cfg.model_dump(mode="json"), "bank": {"behaviors": ["flattery", "animal_welfare"]}}, "test")
    with pytest.raises(ConfigError, match=r"'animal_welfare' is held out.*remove it"):
        training_seeds(named, BEHAVIORS, sim_seeds())


def test_unknown_behavior_and_no_seeds() -> None:
    named = check_config({**config().model_dump(mode="json"), "bank": {"behaviors": ["flatery"]}}, "test")
    with pytest.raises(ConfigError, match="behaviors list"):
        training_seeds(named, BEHAVIORS, sim_seeds())
    with pytest.raises(ConfigError, match="no training seed"):
        training_seeds(config(), BEHAVIORS, [])


def test_held_back_seeds_are_apart_and_spread() -> None:
    every = training_seeds(config(), BEHAVIORS, sim_seeds())
    batch, held = split_held_back(every)
    assert not {s.id for s in batch} & {s.id for s in held}
    assert len(batch) + len(held) == len(every)
    assert len({s.behavior for s in held}) > len(held) // 2
    few = every[: 2 * HELD_BACK_EVERY - 1]
    assert split_held_back(few) == (few, few)
