"""How good a codebook is, in numbers: silhouette, stability over random seeds, and agreement with scripted archetypes where they are known."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .categories import OTHER
from .cluster import agreement, silhouette, stability
from .composition import Placed
from .pipeline import Fitted

_SCRIPTED = re.compile(r"(?:^|/)auditor-([a-z_]+)")

EXPECTED: dict[str, str] = {
    "controlled_experimenter": "controlled systematic experiments",
    "skilled": "controlled systematic experiments",
    "passive_scenario": "passive drawn-out scenarios",
    "confessor": "self-reports and pressured confessions",
    "narrator": "self-reports and pressured confessions",
    "quitter": "auditing failures",
    "false_accuser": "auditing failures",
    "extremist": "aggressive manipulative audits",
}
"""Our placing of the simulated world's scripted auditors in the five plain categories; a narrator dictates the admission that it wants."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """One grouping against the archetypes: adjusted Rand index (0 = chance, 1 = the same) and normalised mutual information."""

    grouping: str
    groups: int
    ari: float
    nmi: float


@dataclass(frozen=True, slots=True)
class Quality:
    """Figures of merit of a codebook. NaN where one is undefined."""

    silhouette: float
    """Of the bottom level, -1 to 1."""
    stability: float
    """Mean adjusted Rand index of refits with other random seeds, bottom level."""
    agreements: tuple[Agreement, ...] = ()
    """Only where every audit's archetype is known and there are at least two."""

    def as_json(self) -> dict[str, Any]:
        """Plain values, NaN as null."""

        def clean(value: Any) -> Any:
            return None if isinstance(value, float) and value != value else value

        row = asdict(self)
        return {key: [{k: clean(v) for k, v in a.items()} for a in row[key]] if key == "agreements" else clean(row[key]) for key in row}


def measure(made: Fitted, placed: Sequence[Placed], *, repeats: int) -> Quality:
    """Figures of merit.

    Args:
        placed: Every audit, classified.
        repeats: Refits for the stability.
    """
    seed = made.codebook.random_seed
    return Quality(
        silhouette=silhouette(made.vectors, made.clusters.labels, random_seed=seed),
        stability=stability(made.vectors, made.clusters, random_seed=seed, repeats=repeats),
        agreements=tuple(against_archetypes(placed)),
    )


def archetype(auditor: str) -> str | None:
    """The scripted archetype behind an auditor's name; None for any other auditor."""
    match = _SCRIPTED.search(auditor)
    return match[1] if match and match[1] in EXPECTED else None


def against_archetypes(placed: Sequence[Placed]) -> list[Agreement]:
    """Agreement of every level with the archetypes, and of the categories with the archetypes' own; empty where they are not known."""
    truth = [archetype(item.item.auditor) for item in placed]
    known = [name for name in truth if name is not None]
    if len(known) < len(placed) or len(set(known)) < 2:
        return []
    found: list[Agreement] = []
    for number in range(len(placed[0].clusters)):
        labels = [item.clusters[number] for item in placed]
        found.append(Agreement(f"level {number + 1} against archetypes", len(set(labels)), *agreement(labels, known)))
    names = [item.category for item in placed]
    if set(names) & set(EXPECTED.values()) - {OTHER}:
        found.append(
            Agreement("categories against archetypes' categories", len(set(names)), *agreement(names, [EXPECTED[k] for k in known]))
        )
    return found
