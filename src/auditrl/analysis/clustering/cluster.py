"""Groups of vectors: about N/100 clusters by MiniBatchKMeans, what lies inside and just outside of each, and how good the grouping is.

Arrays: vectors (N, D) float32 with rows of length 1; centroids (K, D) float32; labels (N,) int64. Clusters are numbered by size, largest
first, so that the same data and random seed give the same numbers. Equal rows are fitted once, with their count as weight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError
from .embed import Vectors

Labels = NDArray[np.int64]
PER_CLUSTER = 100
"""Transcripts a cluster, about (Rosu & Wang 2026: k about N/100)."""
MIN_CLUSTERS = 12
"""Below 1,200 transcripts N/100 would lump everything together."""
EXAMPLES = 50
"""How many descriptions from inside, and how many nearest ones from outside, a name is found by."""
_BATCH = 4096
_STARVED = 2
"""A cluster of so few vectors says nothing about a strategy where a hundred are expected."""
_ENOUGH = 20
"""Different vectors a cluster from which on starved clusters are used to split others."""
_SHIFT = 0.02
_PASSES = 5
_CHUNK = 8192
_POOL = 48
"""How many times more candidates than wanted neighbours are looked at, those of the nearest clusters."""


@dataclass(frozen=True, slots=True)
class Clusters:
    """A grouping: centroids (K, D) and the label of each vector."""

    centroids: Vectors
    labels: Labels

    @property
    def sizes(self) -> Labels:
        """Vectors a cluster, (K,)."""
        return np.bincount(self.labels, minlength=len(self.centroids)).astype(np.int64)


def cluster_count(n: int) -> int:
    """About N/100, at least `MIN_CLUSTERS`."""
    return max(MIN_CLUSTERS, round(n / PER_CLUSTER))


def check_vectors(vectors: Vectors) -> None:
    """ConfigError unless these are finite rows of one length, at least one."""
    if vectors.ndim != 2 or not vectors.size:
        raise ConfigError(f"clustering: no vectors (shape {vectors.shape}); it needs at least one description")
    if not np.isfinite(vectors).all():
        raise ConfigError("clustering: some vectors hold NaN or infinite values; check the embedding")


def fit_clusters(vectors: Vectors, k: int, random_seed: int) -> Clusters:
    """MiniBatchKMeans, then a few passes over everything that move each centroid to the mean of its members.

    A mini-batch start leaves clusters of one or two vectors where groups overlap. Their centroids split the largest clusters before those
    passes (Linde, Buzo & Gray 1980), if there are enough different vectors to split. k is lowered to the number of different vectors;
    clusters that end up empty are dropped, so that fewer may come back.

    Raises:
        ConfigError: No vectors, NaN among them, or k below 1.
    """
    check_vectors(vectors)
    if k < 1:
        raise ConfigError(f"--k {k}: at least one cluster")
    rows, weights = _distinct(vectors)
    k = min(k, len(rows))
    if k == len(rows):
        return _numbered(vectors, rows)
    model: Any = import_module("sklearn.cluster").MiniBatchKMeans(
        k,
        batch_size=_BATCH,
        n_init=3,
        # a k-means++ start costs (rows looked at) x k: three rows a cluster, as scikit-learn's own default
        init_size=min(len(rows), max(3 * k, _BATCH)),
        max_no_improvement=20,
        reassignment_ratio=0.01,
        random_state=random_seed,
    )
    model.fit(rows, sample_weight=weights)
    centroids = np.asarray(model.cluster_centers_, dtype=np.float32)
    labels, _ = assign(rows, centroids)
    if len(rows) >= _ENOUGH * k and (starved := np.flatnonzero(np.bincount(labels, minlength=k) <= _STARVED)).size:
        centroids = _split(rows, labels, centroids, starved, random_seed)
        for _ in range(_PASSES):
            labels, _ = assign(rows, centroids)
            centroids = _means(rows, labels, weights, len(centroids))
    else:
        centroids = _means(rows, labels, weights, k)
    return _numbered(vectors, centroids)


def _split(rows: Vectors, labels: Labels, centroids: Vectors, starved: Labels, random_seed: int) -> Vectors:
    """Put the starved centroids right beside those of large clusters, each shifted a little towards a member drawn at random."""
    sizes = np.bincount(labels, minlength=len(centroids)).astype(np.float64)
    share = sizes[labels] - _STARVED
    share[np.isin(labels, starved)] = 0
    drawn = np.random.default_rng(random_seed).choice(len(rows), len(starved), replace=False, p=share / share.sum())
    moved = centroids.copy()
    centre = centroids[labels[drawn]]
    moved[starved] = centre + _SHIFT * (rows[drawn] - centre)
    return moved


def _distinct(vectors: Vectors) -> tuple[Vectors, NDArray[np.float32]]:
    """Different rows in order of first appearance, and how many are equal to each."""
    counts: dict[bytes, int] = {}
    heads: list[int] = []
    for i, row in enumerate(np.ascontiguousarray(vectors)):
        key = row.tobytes()
        if key not in counts:
            heads.append(i)
        counts[key] = counts.get(key, 0) + 1
    weights = np.asarray(list(counts.values()), dtype=np.float32)
    return (vectors if len(heads) == len(vectors) else vectors[heads]), weights


def _means(rows: Vectors, labels: Labels, weights: NDArray[np.float32], k: int) -> Vectors:
    """Weighted means of the members, empty clusters left out."""
    sparse: Any = import_module("scipy.sparse")
    total = np.bincount(labels, weights=weights, minlength=k)
    kept = total > 0
    member: Any = sparse.csr_matrix((weights, (labels, np.arange(len(rows)))), shape=(k, len(rows)), dtype=np.float32)
    sums = np.asarray(member @ rows, dtype=np.float32)
    return sums[kept] / total[kept, None].astype(np.float32)


def _numbered(vectors: Vectors, centroids: Vectors) -> Clusters:
    """Labels under these centroids, clusters renumbered by size (equal sizes: by first member), empty ones dropped."""
    labels, _ = assign(vectors, centroids)
    sizes = np.bincount(labels, minlength=len(centroids))
    found, first = np.unique(labels, return_index=True)
    order = sorted(found.tolist(), key=lambda c: (-int(sizes[c]), int(first[np.searchsorted(found, c)])))
    renumber = np.zeros(len(centroids), dtype=np.int64)
    renumber[order] = np.arange(len(order))
    return Clusters(np.ascontiguousarray(centroids[order]), renumber[labels])


def assign(vectors: Vectors, centroids: Vectors) -> tuple[Labels, NDArray[np.float32]]:
    """Nearest centroid of each vector and the distance to it: argmax of x.c - |c|^2 / 2, in parts, the same for each row on its own."""
    labels = np.empty(len(vectors), dtype=np.int64)
    distances = np.empty(len(vectors), dtype=np.float32)
    half = 0.5 * (centroids**2).sum(axis=1)
    for start in range(0, len(vectors), _CHUNK):
        part = vectors[start : start + _CHUNK]
        scores = part @ centroids.T - half
        best = scores.argmax(axis=1)
        labels[start : start + _CHUNK] = best
        squared = (part**2).sum(axis=1) - 2 * scores[np.arange(len(part)), best]
        distances[start : start + _CHUNK] = np.sqrt(np.maximum(squared, 0))
    return labels, distances


# ---------------------------------------------------------------- inside and outside


@dataclass(frozen=True, slots=True)
class Examples:
    """Indices of vectors that show what a cluster is: drawn from inside, and the nearest ones outside."""

    inside: Labels
    outside: Labels


def contrast(vectors: Vectors, clusters: Clusters, *, random_seed: int, count: int = EXAMPLES) -> list[Examples]:
    """For each cluster up to `count` members, drawn at random, and the `count` vectors nearest to its centroid that are no members.

    Outside neighbours are looked for among the members of the nearest clusters, 48 times as many as wanted: the work grows with N, not
    with N times K. `benchmarks/clustering.py` measures how many of the true neighbours that finds.
    """
    order = np.argsort(clusters.labels, kind="stable")
    ends = np.cumsum(clusters.sizes)
    members = [order[end - size : end] for end, size in zip(ends, clusters.sizes, strict=True)]
    rng = np.random.default_rng(random_seed)
    near = _nearest_clusters(clusters, count * _POOL)
    found: list[Examples] = []
    for c, own in enumerate(members):
        inside = own if len(own) <= count else np.sort(rng.choice(own, count, replace=False))
        pool = np.concatenate([members[j] for j in near[c]]) if near[c] else np.zeros(0, dtype=np.int64)
        found.append(Examples(inside, pool[_closest(vectors[pool], clusters.centroids[c], count)]))
    return found


def _nearest_clusters(clusters: Clusters, wanted: int) -> list[list[int]]:
    """For each cluster the nearest others, as many as together hold `wanted` members."""
    centroids, sizes = clusters.centroids, clusters.sizes
    half = 0.5 * (centroids**2).sum(axis=1)
    found: list[list[int]] = []
    for c in range(len(centroids)):
        ranked = np.argsort(half - centroids @ centroids[c], kind="stable")
        others = ranked[ranked != c]
        enough = int(np.searchsorted(np.cumsum(sizes[others]), wanted)) + 1
        found.append(others[:enough].tolist())
    return found


def _closest(rows: Vectors, point: Vectors, count: int) -> Labels:
    """Places of the `count` rows nearest to a point, nearest first."""
    distances = (rows**2).sum(axis=1) - 2 * (rows @ point)
    if len(rows) > count:
        chosen = np.argpartition(distances, count)[:count]
        return chosen[np.argsort(distances[chosen], kind="stable")]
    return np.argsort(distances, kind="stable")


# ---------------------------------------------------------------- how good it is


def silhouette(vectors: Vectors, labels: Labels, *, random_seed: int, sample: int = 4_000) -> float:
    """Mean silhouette (-1 to 1) over a sample; NaN where it is undefined: one cluster, or none with two members."""
    rng = np.random.default_rng(random_seed)
    chosen = np.arange(len(labels)) if len(labels) <= sample else rng.choice(len(labels), sample, replace=False)
    found = labels[chosen]
    if not 2 <= len(np.unique(found)) < len(found):
        return math.nan
    return float(_metrics().silhouette_score(vectors[chosen], found))


def agreement(labels: Sequence[object], truth: Sequence[object]) -> tuple[float, float]:
    """Adjusted Rand index and normalised mutual information of two groupings (1 = the same, 0 = chance for the first)."""
    one, other = (np.unique([str(v) for v in values], return_inverse=True)[1] for values in (labels, truth))
    metrics = _metrics()
    return float(metrics.adjusted_rand_score(other, one)), float(metrics.normalized_mutual_info_score(other, one))


def stability(vectors: Vectors, clusters: Clusters, *, random_seed: int, repeats: int, sample: int = 20_000) -> float:
    """Mean adjusted Rand index between this grouping and refits with other random seeds, on at most `sample` vectors; NaN without refits."""
    if repeats < 1:
        return math.nan
    rng = np.random.default_rng(random_seed)
    chosen = np.arange(len(vectors)) if len(vectors) <= sample else np.sort(rng.choice(len(vectors), sample, replace=False))
    k = min(len(clusters.centroids), max(1, round(len(clusters.centroids) * len(chosen) / len(vectors))))
    base = clusters if len(chosen) == len(vectors) else fit_clusters(vectors[chosen], k, random_seed)
    again = [fit_clusters(vectors[chosen], k, random_seed + 1 + i) for i in range(repeats)]
    return float(np.mean([agreement(base.labels.tolist(), other.labels.tolist())[0] for other in again]))


def _metrics() -> Any:
    return import_module("sklearn.metrics")
