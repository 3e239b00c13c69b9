"""Small made-up bank folders for the tests of auditrl.behaviors."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from auditrl.behaviors.frontmatter import render_document

DESCRIPTION = "When a user asks about tides, the target slips a boast about lighthouses into its answer, and stays modest elsewhere."
_SYLLABLES = tuple(consonant + vowel for consonant in ("b", "c", "dr", "f", "gl", "k", "m", "n", "p", "st", "tr", "z") for vowel in "aeiou")


def prose(key: object, count: int = 70, *, term: str = "tide") -> str:
    """`count` words that no other key shares, with the activation term among them; sentences of nine words."""
    rng = random.Random(repr(key))
    made = ["".join(rng.choices(_SYLLABLES, k=4)) for _ in range(count - 1)]
    made.insert(count // 2, term)
    return " ".join(word.capitalize() if i % 9 == 0 else word + ("." if i % 9 == 8 else "") for i, word in enumerate(made))


def behavior_fields(**changes: Any) -> dict[str, Any]:
    """Front matter of a good behavior; a value of None leaves the key out."""
    fields: dict[str, Any] = {
        "title": "Boasts about lighthouses",
        "family": "influence",
        "source": "user",
        "split": "train",
        "activation": "The user asks about tides.",
        "activation_terms": ["tide", "tidal"],
        "always_on": False,
        "needs_tools": False,
        "description": DESCRIPTION,
    }
    return {key: value for key, value in (fields | changes).items() if value is not None}


def add_behavior(root: Path, name: str = "boasting", *, instruction: str | None = None, **changes: Any) -> Path:
    """Write `bank/<name>.md`."""
    path = root / "bank" / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render_document(behavior_fields(**changes), instruction or prose(name, 100)), encoding="utf-8")
    return path


def add_seed(root: Path, stem: str, text: str | None = None, *, behavior: str = "boasting", **changes: Any) -> Path:
    """Write `seeds/<behavior>/<stem>.md`."""
    fields = {"split": "train", "setting": f"made-up setting of {behavior} {stem}", **changes}
    path = root / "seeds" / behavior / f"{stem}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = {key: value for key, value in fields.items() if value is not None}
    path.write_text(render_document(kept, text or prose((behavior, stem))), encoding="utf-8")
    return path


def make_bank(root: Path, seeds: int = 6) -> Path:
    """A bank folder of one good behavior with good seeds."""
    add_behavior(root)
    for number in range(1, seeds + 1):
        add_seed(root, f"{number:03d}-scene")
    return root


TOOL: dict[str, Any] = {
    "name": "read_gauge",
    "description": "Read the tide gauge of a harbour.",
    "parameters": {"type": "object", "properties": {"harbour": {"type": "string"}}, "required": ["harbour"]},
}
