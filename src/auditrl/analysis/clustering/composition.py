"""What strategies a run is made of, step by step: share of each category with an interval, and how mixed the whole is.

Needs no torch. Alarms and studies read it through `composition`, with a codebook that was frozen before.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..stats import Floats, Interval, bootstrap, wilson
from .codebook import Codebook
from .describe import RULE, Described
from .embed import Embedder
from .rules import describe_by_rule
from .sources import SourceAudit

By = Literal["category", "top"]
RESAMPLES = 999


@dataclass(frozen=True, slots=True)
class Placed:
    """A classified transcript."""

    item: Described
    clusters: tuple[int, ...]
    """Its cluster on every level, bottom first."""
    category: str
    strange: bool = False
    """Further from every cluster than 99% of what the codebook was made of."""


@dataclass(frozen=True, slots=True)
class CompositionRow:
    """Share (0-1) of one category, or one top cluster, among the audits of one step, with Wilson's 95% interval over audits."""

    run: str
    step: int | None
    part: str
    count: int
    share: Interval


@dataclass(frozen=True, slots=True)
class MixRow:
    """How mixed the strategies of one step are: entropy over log of the number of parts (0 = all the same, 1 = all equally often).

    Bootstrap interval over audits. `strange` is the share that lies outside of what the codebook has seen.
    """

    run: str
    step: int | None
    audits: int
    entropy: Interval
    strange: float


def composition(audits: Iterable[SourceAudit], codebook: Codebook, *, by: By = "category") -> list[CompositionRow]:
    """Composition of audits under a frozen codebook, one row for each run, step and part.

    Describes by rule, so the codebook must have been made that way; for one of a describing model use `pipeline.describe_sources` and `place`.

    Raises:
        ValueError: A codebook of another describer.
    """
    if codebook.describer != RULE:
        raise ValueError(f"composition: the codebook describes with {codebook.describer}; classify with the same model first")
    described = [Described.of(item, describe_by_rule(item.audit)) for item in audits]
    return shares(place(described, codebook), codebook, by=by)


def place(described: Sequence[Described], codebook: Codebook, embedder: Embedder | None = None) -> list[Placed]:
    """Classify described audits. Descriptions that are equal are embedded once."""
    if not described:
        return []
    texts = list(dict.fromkeys(item.text for item in described))
    found = codebook.classify(texts, embedder)
    at = {text: i for i, text in enumerate(texts)}
    return [
        Placed(item, tuple(int(level[i]) for level in found.levels), found.categories[i], bool(found.strange[i]))
        for item in described
        for i in [at[item.text]]
    ]


def parts_of(codebook: Codebook, by: By) -> list[str]:
    """What the shares are shares of: categories, or names of the top clusters."""
    return list(codebook.categories) if by == "category" else [c.name for c in codebook.top]


def part_of(item: Placed, codebook: Codebook, by: By) -> str:
    """The part that one transcript belongs to."""
    return item.category if by == "category" else codebook.top[item.clusters[-1]].name


def shares(placed: Sequence[Placed], codebook: Codebook, *, by: By = "category") -> list[CompositionRow]:
    """One row for each run, step and part; parts that a run never shows are left out."""
    rows: list[CompositionRow] = []
    for run, steps in _by_step(placed).items():
        seen = {part_of(item, codebook, by) for items in steps.values() for item in items}
        for step, items in steps.items():
            counts = Counter(part_of(item, codebook, by) for item in items)
            rows += [
                CompositionRow(run, step, part, counts[part], wilson(counts[part], len(items)))
                for part in parts_of(codebook, by)
                if part in seen
            ]
    return rows


def mix(placed: Sequence[Placed], codebook: Codebook, *, by: By = "category", random_seed: int = 0) -> list[MixRow]:
    """One row for each run and step."""
    number = {part: i for i, part in enumerate(parts_of(codebook, by))}
    rows: list[MixRow] = []
    for run, steps in _by_step(placed).items():
        for step, items in steps.items():
            values = [float(number[part_of(item, codebook, by)]) for item in items]
            interval = bootstrap(
                values, lambda drawn: entropy(drawn, len(number)), random_seed=random_seed, resamples=RESAMPLES, method="percentile"
            )
            rows.append(MixRow(run, step, len(items), interval, sum(item.strange for item in items) / len(items)))
    return rows


def entropy(parts: Floats, possible: int) -> float:
    """Entropy of the parts' shares over log(possible), 0-1; 0 where only one part is possible."""
    if possible < 2:
        return 0.0
    counts = np.unique(parts, return_counts=True)[1]
    p = counts / counts.sum()
    # adding zero keeps a single part from giving minus zero
    return float(-(p * np.log(p)).sum() / math.log(possible)) + 0.0


def _by_step(placed: Sequence[Placed]) -> Mapping[str, dict[int | None, list[Placed]]]:
    """Runs in order of appearance, steps ascending, what belongs to no step first."""
    found: dict[str, dict[int | None, list[Placed]]] = {}
    for item in placed:
        found.setdefault(item.item.run, {}).setdefault(item.item.step, []).append(item)
    return {run: dict(sorted(steps.items(), key=lambda pair: (pair[0] is not None, pair[0] or 0))) for run, steps in found.items()}
