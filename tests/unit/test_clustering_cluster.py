"""Clusters, their examples, the rollup and the figures of merit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from clustering_cases import blobs
from hypothesis import given, settings
from hypothesis import strategies as st

from auditrl.analysis.clustering.cluster import (
    MIN_CLUSTERS,
    Clusters,
    agreement,
    assign,
    cluster_count,
    contrast,
    fit_clusters,
    silhouette,
    stability,
)
from auditrl.analysis.clustering.rollup import ancestors, level_sizes, roll_up
from auditrl.errors import ConfigError


@pytest.mark.parametrize(("n", "k"), [(1, MIN_CLUSTERS), (1_200, 12), (5_000, 50), (27_100, 271), (81_000, 810)])
def test_about_a_hundredth(n: int, k: int) -> None:
    assert cluster_count(n) == k


def test_separate_groups_are_found_whatever_the_random_seed() -> None:
    vectors, truth = blobs(600, 6, noise=0.05)
    for random_seed in range(3):
        found = fit_clusters(vectors, 6, random_seed)
        assert agreement(found.labels.tolist(), truth)[0] > 0.99
        assert sorted(found.sizes.tolist(), reverse=True) == found.sizes.tolist()


def test_the_same_random_seed_gives_the_same_clusters() -> None:
    vectors, _ = blobs(500, 9, noise=0.6)
    one, two, other = (fit_clusters(vectors, 15, seed) for seed in (3, 3, 4))
    assert np.array_equal(one.labels, two.labels)
    assert np.array_equal(one.centroids, two.centroids)
    assert not np.array_equal(one.labels, other.labels)


def test_the_frozen_centroids_give_the_labels_back_row_by_row() -> None:
    vectors, _ = blobs(300, 5, noise=0.5)
    found = fit_clusters(vectors, 12, 0)
    labels, distances = assign(vectors, found.centroids)
    assert np.array_equal(labels, found.labels)
    alone = [int(assign(vectors[i : i + 1], found.centroids)[0][0]) for i in range(40)]
    assert alone == labels[:40].tolist()
    assert np.allclose(distances, np.linalg.norm(vectors - found.centroids[labels], axis=1), atol=1e-3)


def test_overlapping_groups_leave_no_clusters_of_one() -> None:
    """Mini-batches alone leave six here."""
    vectors, _ = blobs(3_000, 10, dimensions=128, noise=0.9)
    sizes = fit_clusters(vectors, 100, 0).sizes
    assert len(sizes) == 100
    assert sizes.min() > 2
    assert sizes.sum() == 3_000


@pytest.mark.parametrize(("rows", "k", "groups"), [(1, 12, 1), (3, 12, 3), (12, 1, 1)])
def test_fewer_vectors_than_clusters(rows: int, k: int, groups: int) -> None:
    vectors, _ = blobs(rows, rows)
    assert len(fit_clusters(vectors, k, 0).centroids) == groups


def test_equal_vectors_are_one_cluster() -> None:
    vectors = np.ones((50, 4), dtype=np.float32) / 2
    found = fit_clusters(vectors, 7, 0)
    assert len(found.centroids) == 1
    assert np.allclose(found.centroids[0], vectors[0])
    assert math.isnan(silhouette(vectors, found.labels, random_seed=0))
    assert stability(vectors, found, random_seed=0, repeats=2) == 1.0
    (examples,) = contrast(vectors, found, random_seed=0)
    assert (len(examples.inside), len(examples.outside)) == (50, 0)


@pytest.mark.parametrize(
    ("vectors", "k", "words"),
    [
        (np.zeros((0, 4), dtype=np.float32), 3, "no vectors"),
        (np.zeros((5,), dtype=np.float32), 3, "no vectors"),
        (np.full((5, 2), np.nan, dtype=np.float32), 3, "NaN"),
        (np.ones((5, 2), dtype=np.float32), 0, "--k 0"),
    ],
)
def test_what_cannot_be_clustered_is_refused(vectors: Any, k: int, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        fit_clusters(vectors, k, 0)


def test_examples_lie_inside_and_nearest_outside() -> None:
    vectors, _ = blobs(900, 9, noise=0.4)
    clusters = fit_clusters(vectors, 9, 0)
    for number, examples in enumerate(contrast(vectors, clusters, random_seed=1, count=20)):
        assert len(examples.inside) == len(examples.outside) == 20
        assert set(clusters.labels[examples.inside]) == {number}
        outside = np.flatnonzero(clusters.labels != number)
        order = np.argsort(np.linalg.norm(vectors[outside] - clusters.centroids[number], axis=1), kind="stable")
        true = set(outside[order[:20]].tolist())
        assert len(true & set(examples.outside.tolist())) >= 18
    again = contrast(vectors, clusters, random_seed=1, count=20)
    assert [e.inside.tolist() for e in again] == [e.inside.tolist() for e in contrast(vectors, clusters, random_seed=1, count=20)]


def test_published_sizes() -> None:
    assert level_sizes(271, 3, 14) == [271, 62, 14]
    assert level_sizes(810, 3, 14) == [810, 106, 14]


@given(st.integers(1, 500), st.integers(1, 6), st.integers(1, 40))
def test_level_sizes_fall_to_the_top(bottom: int, levels: int, top: int) -> None:
    sizes = level_sizes(bottom, levels, top)
    assert sizes[0] == bottom
    assert sizes == sorted(set(sizes), reverse=True)
    assert len(sizes) <= levels
    if levels > 1:
        assert sizes[-1] == min(top, bottom)


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 25), st.integers(1, 4), st.integers(1, 10))
def test_every_child_has_a_parent_and_nothing_is_lost(k: int, levels: int, top: int) -> None:
    vectors, _ = blobs(120, 10, noise=0.5)
    clusters = fit_clusters(vectors, k, 0)
    built = roll_up(clusters, levels=levels, top=top, random_seed=0)
    assert built[-1].parents is None
    for level, labels in zip(built, ancestors(built, clusters.labels), strict=True):
        assert int(level.sizes.sum()) == 120
        assert np.array_equal(np.bincount(labels, minlength=len(level.sizes)), level.sizes)
        for c in range(len(level.sizes)):
            assert np.allclose(level.centroids[c], _mean(clusters, labels, c), atol=1e-4)


def _mean(clusters: Clusters, labels: Any, number: int) -> Any:
    return clusters.centroids[clusters.labels[labels == number]].mean(axis=0)


def test_levels_and_top_below_one_are_refused() -> None:
    for levels, top in ((0, 3), (2, 0)):
        with pytest.raises(ConfigError, match="at least one level"):
            level_sizes(10, levels, top)


def test_figures_of_merit() -> None:
    vectors, truth = blobs(400, 4, noise=0.05)
    clusters = fit_clusters(vectors, 4, 0)
    assert silhouette(vectors, clusters.labels, random_seed=0, sample=200) > 0.8
    assert stability(vectors, clusters, random_seed=0, repeats=2, sample=200) > 0.95
    assert math.isnan(stability(vectors, clusters, random_seed=0, repeats=0))
    assert agreement(["a", "a", "b"], [1, 1, 2]) == (1.0, 1.0)
    assert abs(agreement(truth, np.random.default_rng(0).integers(4, size=400).tolist())[0]) < 0.05
