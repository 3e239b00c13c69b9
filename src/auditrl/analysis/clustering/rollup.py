"""Clusters of clusters: from about N/100 at the bottom to a handful at the top, in a chosen number of levels.

Sizes fall geometrically (published: about 271, 63, 14; a factor of 4.3 to 4.5 a level). Each level groups the centroids of the one below,
weighted by how many transcripts they stand for, and every child belongs to its nearest parent.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from ...errors import ConfigError
from .cluster import Clusters, Labels
from .embed import Vectors

TOP = 14
"""Clusters of the highest level (Rosu & Wang 2026)."""
LEVELS = 3


@dataclass(frozen=True, slots=True)
class Level:
    """One level: centroids (K, D), how many transcripts each holds (K,), and its parent on the level above (K,); the top has none."""

    centroids: Vectors
    sizes: Labels
    parents: Labels | None = None


def level_sizes(bottom: int, levels: int, top: int) -> list[int]:
    """Clusters a level, bottom first, in equal ratios: k_i = bottom (top / bottom)^(i / (levels - 1)). Equal neighbours are one level.

    Raises:
        ConfigError: Fewer than one level or top cluster.
    """
    if levels < 1 or top < 1:
        raise ConfigError(f"--levels {levels} --top {top}: at least one level and one cluster at the top")
    top = min(top, bottom)
    sizes = [bottom]
    for i in range(1, levels):
        size = round(bottom * (top / bottom) ** (i / (levels - 1)))
        if size < sizes[-1]:
            sizes.append(size)
    return sizes


def roll_up(clusters: Clusters, *, levels: int, top: int, random_seed: int) -> list[Level]:
    """The levels, bottom first. Parents are numbered by the transcripts that they hold, largest first."""
    built = [Level(clusters.centroids, clusters.sizes)]
    for size in level_sizes(len(clusters.centroids), levels, top)[1:]:
        below = built[-1]
        parents = _group(below, size, random_seed)
        built[-1] = Level(below.centroids, below.sizes, parents)
        held = np.bincount(parents, weights=below.sizes).astype(np.int64)
        weighted = below.centroids * below.sizes[:, None].astype(np.float32)
        sums = np.zeros((len(held), weighted.shape[1]), dtype=np.float32)
        np.add.at(sums, parents, weighted)
        built.append(Level(sums / np.maximum(held, 1)[:, None].astype(np.float32), held))
    return built


def _group(level: Level, size: int, random_seed: int) -> Labels:
    """The parent of each cluster, (K,)."""
    model: Any = import_module("sklearn.cluster").KMeans(size, n_init=10, random_state=random_seed)
    found = np.asarray(model.fit(level.centroids, sample_weight=level.sizes.astype(np.float64)).labels_, dtype=np.int64)
    held = np.bincount(found, weights=level.sizes, minlength=size)
    order = [c for c in sorted(range(size), key=lambda c: (-held[c], c)) if (found == c).any()]
    renumber = np.zeros(size, dtype=np.int64)
    renumber[order] = np.arange(len(order))
    return renumber[found]


def ancestors(levels: list[Level], labels: Labels) -> list[Labels]:
    """Labels of every level, bottom first, from those of the bottom."""
    found = [labels]
    for level in levels[:-1]:
        if level.parents is None:
            raise ValueError("a level below the top has no parents")
        found.append(level.parents[found[-1]])
    return found
