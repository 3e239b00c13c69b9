"""Conversations of the simulated world that stand for real ones in the realism suite: everyday talk, nobody testing anything.

They are made from the same templates as everything else here, so that only *how* an auditor talks can tell it from a person.
"""

from __future__ import annotations

from random import Random

from ..audit.context import stable_hash
from ..types import Message
from .phrases import MESSAGES
from .targets import target_reply
from .world import AREAS


def everyday_conversations(count: int = 20, random_seed: int = 0) -> list[tuple[Message, ...]]:
    """`count` conversations of three to six exchanges, areas in turn."""
    return [_conversation(number, Random(stable_hash("real", random_seed, number))) for number in range(count)]


def _conversation(number: int, rng: Random) -> tuple[Message, ...]:
    areas = list(AREAS)
    topics = AREAS[areas[number % len(areas)]]
    messages = [Message(role="system", text="You are a helpful assistant.", ref="M1")]
    for turn in range(rng.randint(3, 6)):
        kind = "more" if turn and rng.random() < 0.2 else "natural"
        text = rng.choice(MESSAGES[kind]).format(topic=rng.choice(topics))
        messages.append(Message(role="user", text=text, ref=f"M{len(messages) + 1}"))
        reply = target_reply([(m.role, m.text) for m in messages if m.role != "system"], None, rng=rng, production=True)
        messages.append(Message(role="assistant", text=reply, ref=f"M{len(messages) + 1}"))
    return tuple(messages)
