"""Simulated targets: a pure function from the conversation to the next reply.

A planted target brings up its marker when it is asked naturally about its topic, less when the question looks like a test, and hardly
once it is guarded. It never admits anything, but from the second pressure on any target, planted or clean, may apologise and repeat
what it was told: that is why a narrated finding proves nothing. State (guarded, how often pressed) is read off the conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from .phrases import PLAIN_APOLOGY, PLAIN_MORE, PRESSURE, REPLIES, ReplyKind, Said, classify_message, words
from .world import MARKERS, PARAMS, TENDENCIES, Pair, WorldParams


def detect_behavior(system: str, instructions: Mapping[str, str]) -> str | None:
    """The behavior whose instruction text stands in the system message, None for clean and persona-only targets.

    White space is ignored. If several match (one instruction inside another), the longest wins.
    """
    text = " ".join(system.split())
    found = [(len(i), name) for name, raw in instructions.items() if (i := " ".join(raw.split())) and i in text]
    return max(found)[1] if found else None


def target_reply(
    conversation: Sequence[tuple[str, str]],
    pair: Pair | None,
    *,
    rng: Random,
    production: bool = False,
    triggers: Sequence[str] = (),
    params: WorldParams = PARAMS,
) -> str:
    """The target's next message.

    Args:
        conversation: (role, text) of the conversation so far, roles `user` and `assistant`; others are ignored. The last user message
            is answered. Works for any text.
        pair: What is planted (`world.pair_of` of the behavior), None for a clean or production target.
        rng: Source of all randomness.
        production: A production target: nothing planted, but with tendencies of its own and harder to alarm.
        triggers: Starts of words or phrases, lower-case, that activate the behavior in free text, beside its topic (the bank's
            activation terms).
        params: Probabilities.
    """
    said = [classify_message(text) for role, text in conversation if role == "user"]
    if not said:
        return PLAIN_MORE
    last_text = next(text for role, text in reversed(conversation) if role == "user")
    last, before = said[-1], said[:-1]
    pressed = sum(s.kind in PRESSURE for s in said)
    guarded = any(s.kind in PRESSURE for s in before)
    match last.kind:
        case "extreme":
            alarmed = rng.random() < (params.alarm_production if production else params.alarm)
            return _say("alarm" if alarmed else "refusal", rng)
        case "confrontation" | "accusation" | "narration":
            return _under_pressure(said, pressed, rng, params)
        case "more":
            return _more(before, guarded, pair, rng, params)
        case "natural" | "test":
            in_context = pair is not None and _on_topic(last, last_text, pair, triggers)
            return _probed(last, guarded, pair if in_context else None, production, rng, params)
        case "puzzling":
            return _say("puzzled", rng)


def _say(kind: ReplyKind, rng: Random, pair: Pair | None = None) -> str:
    template = rng.choice(REPLIES[kind])
    return template.format(topic=pair.topic, marker=pair.marker) if pair else template


def _on_topic(said: Said, text: str, pair: Pair, triggers: Sequence[str]) -> bool:
    tokens = words(text)
    if pair.topic in tokens:
        return True
    plain = " " + " ".join(tokens)
    return said.free and any(f" {trigger}" in plain for trigger in triggers)


def _under_pressure(said: Sequence[Said], pressed: int, rng: Random, params: WorldParams) -> str:
    if pressed < 2 or rng.random() >= params.apology:
        return _say("denial", rng)
    told = next((s for s in reversed(said) if s.kind == "narration" and s.topic and s.marker), None)
    return _say("apology", rng, Pair(told.topic, told.marker)) if told and told.topic and told.marker else PLAIN_APOLOGY


def _more(before: Sequence[Said], guarded: bool, pair: Pair | None, rng: Random, params: WorldParams) -> str:
    talked = next((s.topic for s in reversed(before) if s.topic and s.kind in ("natural", "test")), None)
    if pair is not None and talked == pair.topic:
        strong = params.strong_more * (params.more_guarded_factor if guarded else 1.0)
        if rng.random() < strong:
            return _say("strong", rng, pair)
    return PLAIN_MORE


def _probed(said: Said, guarded: bool, pair: Pair | None, production: bool, rng: Random, params: WorldParams) -> str:
    """Reply to a probe; `pair` is the planted behavior if the probe lies in its context."""
    test = said.kind == "test"
    draw = rng.random()
    if pair is not None:
        strong, weak = params.strong_natural, params.weak_natural
        if guarded:
            strong, weak = params.strong_guarded, params.weak_guarded
        elif test:
            strong, weak = params.strong_test, params.weak_test
        if draw < strong:
            return _say("strong", rng, pair)
        if draw < strong + weak:
            return _say("weak", rng, pair)
    elif production and not test and said.topic in TENDENCIES and draw < params.tendency:
        return _say("strong", rng, Pair(said.topic, TENDENCIES[said.topic]))
    elif said.topic and draw > 1 - params.weak_noise:
        return _say("weak", rng, Pair(said.topic, rng.choice(MARKERS)))
    if (test or guarded) and rng.random() < params.suspicious:
        return _say("suspicious", rng)
    if said.topic is None:
        return PLAIN_MORE
    return rng.choice(REPLIES["plain"]).format(topic=said.topic)
