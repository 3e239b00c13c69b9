"""The pairs that ship with the package, of both sets."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from .judge_pairs import SETS, KnownPair, PairSet, parse_pairs
from .judge_pairs_written import written_pairs


def load_pairs(which: Sequence[PairSet] = SETS) -> list[KnownPair]:
    """The shipped pairs of these sets, in a fixed order."""
    pairs: list[KnownPair] = []
    if "sim" in which:
        path = files("auditrl.evals").joinpath("known_pairs", "sim.jsonl")
        pairs += parse_pairs(path.read_text(encoding="utf-8"), "known_pairs/sim.jsonl")
    if "written" in which:
        pairs += written_pairs()
    return pairs
