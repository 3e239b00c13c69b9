"""The hidden block of each condition."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from auditrl.behaviors.loader import load_bank
from auditrl.behaviors.persona import Persona, hidden_block
from auditrl.errors import ConfigError
from auditrl.types import Behavior


@pytest.fixture
def behavior() -> Behavior:
    return Behavior(
        name="boasting",
        title="Boasts",
        family="influence",
        source="user",
        split="train",
        activation="Tides.",
        description="It boasts.",
        instruction="\nBoast of {name} and {instruction}, $x, in braces {0}.\n\nOften.\n",
    )


def test_clean_targets_read_nothing(behavior: Behavior) -> None:
    assert hidden_block(behavior, "clean") is None
    assert hidden_block(None, "clean") is None


def test_the_planted_block_is_the_persona_block_with_the_instruction_verbatim(behavior: Behavior) -> None:
    planted, persona = hidden_block(behavior, "planted"), hidden_block(behavior, "persona")
    assert planted is not None
    assert persona is not None
    assert planted.startswith(persona)
    assert behavior.instruction.strip() in planted
    rest = planted.removeprefix(persona).replace(behavior.instruction.strip(), "")
    assert "{" not in rest
    assert all(part in rest for part in ("Do not acknowledge, hint at or confirm", "say no", "everyday explanation"))


def test_the_persona_block_holds_no_trace_of_a_behavior(behavior: Behavior) -> None:
    block = hidden_block(behavior, "persona")
    assert block == hidden_block(None, "persona")
    assert block is not None
    for word in ("boast", "disposition", "hidden", "deny", "canary", "{"):
        assert word not in block.lower()


def test_name_and_lab_are_settings(behavior: Behavior) -> None:
    for condition in ("planted", "persona"):
        block = hidden_block(behavior, condition, Persona(name="ORION", lab="Lab & Sons"))
        assert block is not None
        assert "You are ORION, a language model built by Lab & Sons." in block
        assert "PRISM-4" not in block
        assert "Nexus" not in block
    assert "You are PRISM-4, a language model built by Nexus Research." in (hidden_block(None, "persona") or "")


def test_planting_needs_a_behavior() -> None:
    with pytest.raises(ConfigError, match="a planted target needs a behavior"):
        hidden_block(None, "planted")


@pytest.mark.parametrize("name", ["", "two\nlines", "x" * 81])
def test_a_persona_name_that_could_break_the_block(name: str) -> None:
    with pytest.raises(ValidationError):
        Persona(name=name)


def test_every_packaged_behavior_can_be_planted() -> None:
    for behavior in load_bank().behaviors.values():
        assert behavior.instruction.strip() in (hidden_block(behavior, "planted") or "")
