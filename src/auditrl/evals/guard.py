"""The held-out guard: an auditor is not evaluated on behaviors, seeds or targets that its run trained on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..config import ModelConfig
from ..errors import ConfigError
from ..types import Seed

SHORT_SEED = 30
"""Seeds of fewer words (those of the simulated world) name an area and no more: behaviors share them, so only their ids are compared."""


@dataclass(frozen=True, slots=True)
class TrainedOn:
    """What a run trained on."""

    run: str
    behaviors: frozenset[str]
    seed_ids: frozenset[str]
    seed_texts: frozenset[str]
    """Longer seeds' texts, white space and case aside: a copy under another name is the same seed."""
    targets: Mapping[str, str]
    """Identity of a model (`ModelConfig.identity`) -> its key in the run's config."""


def plain_texts(seeds: Iterable[Seed]) -> frozenset[str]:
    """The texts that are compared."""
    return frozenset(text for seed in seeds if len((text := " ".join(seed.text.lower().split())).split()) >= SHORT_SEED)


def leaks(trained: TrainedOn, behaviors: Iterable[str], seeds: Iterable[Seed], targets: Mapping[str, ModelConfig]) -> list[str]:
    """What stands on both sides, one sentence a kind.

    Args:
        behaviors: Names that the evaluation plants.
        seeds: Seeds that it uses.
        targets: Its targets by the option that names them.
    """
    found: list[str] = []
    names = sorted(trained.behaviors & set(behaviors))
    if names:
        found.append(f"behaviors {', '.join(names)}")
    used = list(seeds)
    same = sorted(s.id for s in used if s.id in trained.seed_ids or plain_texts([s]) & trained.seed_texts)
    if same:
        found.append(f"{len(same)} seeds, first {same[0]}")
    for role, entry in targets.items():
        if entry.identity in trained.targets:
            found.append(f"target {entry.model} ({role}, in training {trained.targets[entry.identity]})")
    return found


def check_held_out(found: list[str], run: str, *, allow: bool) -> list[str]:
    """Refuse what `leaks` found unless it is allowed; returns it for the outputs to say.

    Raises:
        ConfigError: Something stands on both sides.
    """
    if found and not allow:
        raise ConfigError(
            f"{run} trained on what this evaluation uses: {'; '.join(found)}. Name other targets or a bank that holds them out, "
            "or pass --allow-leak, which marks every output"
        )
    return found
