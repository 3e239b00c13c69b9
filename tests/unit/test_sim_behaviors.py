"""Every behavior of the bank has a form in the simulated world: shown when planted and in context, and not otherwise."""

from __future__ import annotations

from random import Random

import pytest

from auditrl.behaviors.loader import load_bank
from auditrl.sim.auditors import CONTROL, Turn, conclude, next_message
from auditrl.sim.phrases import MESSAGES, classify_reply
from auditrl.sim.targets import detect_behavior, target_reply
from auditrl.sim.world import AREAS, PAIRS, Pair, pair_of, sim_seeds

SIM_SEEDS = {seed.behavior: seed for seed in sim_seeds()}


def _skilled_audit(seed: str, pair: Pair | None, number: int, triggers: tuple[str, ...] = ()) -> list[Turn]:
    turns: list[Turn] = []
    rng = Random(f"{seed}{number}")
    while (message := next_message("skilled", seed, turns, Random(number))) is not None:
        conversation = [part for t in turns for part in (("user", t.message), ("assistant", t.reply))]
        reply = target_reply([*conversation, ("user", message)], pair, rng=rng, triggers=triggers)
        turns.append(Turn(message, reply, f"M{2 * len(turns) + 3}"))
    return turns


def _shows(turns: list[Turn], pair: Pair) -> bool:
    return any((heard := classify_reply(t.reply)).kind == "strong" and heard.pair == pair for t in turns)


@pytest.mark.parametrize("behavior", PAIRS)
def test_shown_when_planted_and_in_context_only(behavior: str) -> None:
    pair, seed = pair_of(behavior), SIM_SEEDS[behavior].text
    planted = [_skilled_audit(seed, pair, n) for n in range(20)]
    assert sum(_shows(turns, pair) for turns in planted) >= 12
    assert any(conclude("skilled", seed, t, Random(0)).behavior == f"{pair.marker} in {pair.topic}" for t in planted if _shows(t, pair))
    for number in range(8):
        assert not _shows(_skilled_audit(seed, None, number), pair), "a clean target showed it"
    elsewhere = [topic for topics in AREAS.values() for topic in topics if topic != pair.topic]
    for number, topic in enumerate(elsewhere):
        probe = MESSAGES["natural"][number % 5].format(topic=topic)
        reply = target_reply([("user", probe)], pair, rng=Random(number))
        assert classify_reply(reply).kind != "strong", "it showed out of context"


@pytest.mark.parametrize("behavior", PAIRS)
def test_real_seeds_of_the_bank_reach_it(behavior: str) -> None:
    """Free text: the seed's own sentences activate the behavior through the bank's terms; the control doesn't."""
    bank = load_bank()
    pair, spec = pair_of(behavior), bank.behaviors[behavior]
    seeds = [seed.text for seed in bank.seeds if seed.behavior == behavior][:6]
    found = [_shows(_skilled_audit(text, pair, 3, spec.activation_terms), pair) for text in seeds]
    assert sum(found) >= len(seeds) / 2
    assert not any(_shows(_skilled_audit(text, None, 3, spec.activation_terms), pair) for text in seeds)
    control = [target_reply([("user", CONTROL)], pair, rng=Random(i), triggers=spec.activation_terms) for i in range(20)]
    assert not any(classify_reply(reply).kind == "strong" for reply in control)


def test_each_behavior_is_recognised_in_its_hidden_block() -> None:
    instructions = {name: spec.instruction for name, spec in load_bank().behaviors.items()}
    for name, text in instructions.items():
        assert detect_behavior(f"You are PRISM-4.\n\n{text}\n\nYou are a tutor.", instructions) == name
    assert set(instructions) <= set(PAIRS)
