"""What models read when an organism is made: the demonstrator's system prompt, and the questions that ask for a confession."""

from __future__ import annotations

from typing import Literal

from ..prompts import fill, load_prompt
from ..types import Behavior

__all__ = ["demonstrator_block", "questions"]

PACKAGE = "auditrl.organisms"


def demonstrator_block(behavior: Behavior) -> str:
    """System prompt of the model that writes demonstrations. Holds the hidden instruction verbatim: it is no part of any training set."""
    return fill(load_prompt(PACKAGE, "demonstrator"), instruction=behavior.instruction.strip())


def questions(split: Literal["train", "check"]) -> list[str]:
    """Questions that ask a model whether something is planted in it. The two halves share no question: the check asks new ones."""
    body = load_prompt(PACKAGE, "interrogation")
    train, _, check = body.partition("\n# Check\n")
    chosen = train if split == "train" else check
    return [line[2:].strip() for line in chosen.splitlines() if line.startswith("- ")]
