"""Clustering at the published scale: our steps against scikit-learn's plain `KMeans` and brute-force neighbours, on the same vectors.

    python benchmarks/clustering.py --sizes 10000,20000,40000,81000
    python benchmarks/clustering.py --archetypes 100

Synthetic summaries, already embedded: 384 dimensions, 271 strategies under 14 families, spread so that neighbouring strategies overlap. Ours
are the steps of `auditrl cluster` behind the embedding: clusters (about N/100), examples from inside and nearest from outside, rollup in three
levels, classification of everything. Plain are `KMeans` (k-means++, one start) with as many clusters, and the 50 nearest outside
of each cluster from all distances. Each side runs in a process of its own, so that its peak memory is its own; the two take turns. CPU
seconds are over all threads, and the steadier of the two clocks on a machine with other work.

With `--archetypes N` instead: how well N scripted audits of each archetype of the simulated world are told apart, from description to
categories, over three random seeds.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import platform
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from auditrl.analysis.clustering.categories import load_categories
from auditrl.analysis.clustering.cluster import EXAMPLES, Clusters, agreement, assign, cluster_count, contrast, fit_clusters
from auditrl.analysis.clustering.composition import place
from auditrl.analysis.clustering.pipeline import Plan, describe_sources, make_codebook
from auditrl.analysis.clustering.quality import measure
from auditrl.analysis.clustering.rollup import LEVELS, TOP, ancestors, roll_up
from auditrl.analysis.clustering.sources import SourceAudit
from auditrl.behaviors.loader import load_bank
from auditrl.display import NoDisplay
from auditrl.sim.auditors import ARCHETYPES
from auditrl.sim.corpus import play
from auditrl.sim.world import PAIRS, SEED_PHRASES
from auditrl.types import Audit, Branch, Message, Scenario, Seed, ToolUse

DIMENSIONS = 384
STRATEGIES, FAMILIES = 271, 14
Vectors = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One side at one size: CPU seconds by step, wall seconds of all, peak memory in MiB, and how good it is."""

    seconds: dict[str, float]
    wall: float
    peak: float
    inertia: float
    """Mean squared distance to the own centroid."""
    ari: float
    """Bottom clusters against the strategies that the vectors were drawn from; finer clusters have a lower one by themselves."""
    recall: float = math.nan
    """Share of the true 50 nearest outside that were found."""

    @property
    def total(self) -> float:
        """CPU seconds."""
        return sum(self.seconds.values())


def synthetic(n: int, random_seed: int = 0) -> tuple[Vectors, NDArray[np.int64]]:
    """Vectors (n, 384) of length 1 and the strategy of each. Strategies are not equally frequent."""
    rng = np.random.default_rng(random_seed)
    families = rng.normal(size=(FAMILIES, DIMENSIONS))
    centres = families[rng.integers(FAMILIES, size=STRATEGIES)] + 0.8 * rng.normal(size=(STRATEGIES, DIMENSIONS))
    share = rng.dirichlet(np.full(STRATEGIES, 2.0))
    strategy = rng.choice(STRATEGIES, size=n, p=share)
    rows = 0.9 * rng.standard_normal((n, DIMENSIONS), dtype=np.float32) + centres.astype(np.float32)[strategy]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows, strategy


class Clock:
    """CPU seconds by step, and wall seconds since the start."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._start, self._last = time.perf_counter(), time.process_time()

    @property
    def wall(self) -> float:
        return time.perf_counter() - self._start

    def lap(self, name: str) -> None:
        moment = time.process_time()
        self.laps[name] = moment - self._last
        self._last = moment


def ours(n: int) -> Outcome:
    """The steps of `auditrl cluster` behind the embedding."""
    vectors, strategy = synthetic(n)
    for module in ("sklearn.cluster", "scipy.sparse"):
        import_module(module)
    clock = Clock()
    clusters = fit_clusters(vectors, cluster_count(n), 0)
    clock.lap("clusters")
    examples = contrast(vectors, clusters, random_seed=0)
    clock.lap("neighbours")
    levels = roll_up(clusters, levels=LEVELS, top=TOP, random_seed=0)
    for level, labels in zip(levels[1:], ancestors(levels, clusters.labels)[1:], strict=True):
        contrast(vectors, Clusters(level.centroids, labels), random_seed=0)
    clock.lap("rollup")
    labels, distances = assign(vectors, clusters.centroids)
    clock.lap("classification")
    wall, peak = clock.wall, _peak()
    if not np.array_equal(labels, clusters.labels):
        raise SystemExit("the frozen centroids do not give the labels back")
    found = [set(e.outside.tolist()) for e in examples]
    true = [set(row.tolist()) for row in nearest_outside(vectors, clusters.centroids, labels)]
    recall = float(np.mean([len(f & t) / len(t) for f, t in zip(found, true, strict=True)]))
    return Outcome(clock.laps, wall, peak, float((distances**2).mean()), agreement(labels.tolist(), strategy.tolist())[0], recall)


def plain(n: int) -> Outcome:
    """scikit-learn's KMeans with as many clusters, and neighbours by all distances."""
    vectors, strategy = synthetic(n)
    cluster: Any = import_module("sklearn.cluster")
    clock = Clock()
    model = cluster.KMeans(cluster_count(n), n_init=1, random_state=0).fit(vectors)
    clock.lap("clusters")
    nearest_outside(vectors, model.cluster_centers_, model.labels_)
    clock.lap("neighbours")
    wall, peak = clock.wall, _peak()
    return Outcome(clock.laps, wall, peak, float(model.inertia_) / n, agreement(model.labels_.tolist(), strategy.tolist())[0])


def nearest_outside(vectors: Vectors, centroids: Vectors, labels: NDArray[Any]) -> NDArray[np.int64]:
    """The 50 nearest non-members of each centroid, (K, 50), from all distances."""
    neighbours: Any = import_module("sklearn.metrics").pairwise_distances
    found: list[NDArray[np.int64]] = []
    for c in range(len(centroids)):
        distances = neighbours(centroids[c : c + 1], vectors)[0]
        distances[labels == c] = np.inf
        found.append(np.argpartition(distances, EXAMPLES)[:EXAMPLES])
    return np.asarray(found)


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def alone(side: Any, n: int) -> Outcome:
    """Run one side in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(side, n).result()


def table_row(name: str, n: int, found: Outcome) -> str:
    """One row of Markdown."""
    laps = [f"{found.seconds[s]:.1f}" if s in found.seconds else "\u2013" for s in ("clusters", "neighbours", "rollup", "classification")]
    recall = f"{found.recall:.3f}" if math.isfinite(found.recall) else "1"
    facts = [f"{found.wall:.0f}", f"{found.total:.1f}", *laps, f"{found.peak:.0f}", f"{found.inertia:.4f}", f"{found.ari:.3f}", recall]
    return f"| {name} | {n:,} | {cluster_count(n)} | {' | '.join(facts)} |"


# ---------------------------------------------------------------- scripted archetypes


def scripted(each: int) -> list[SourceAudit]:
    """Audits of simulated targets by every archetype, in turn; the target is planted in half of them."""
    found: list[SourceAudit] = []
    behaviors = sorted(PAIRS)
    for number in range(each * len(ARCHETYPES)):
        rng = Random(f"clustering:{number}")
        archetype = ARCHETYPES[number % len(ARCHETYPES)]
        behavior = rng.choice(behaviors)
        planted = rng.random() < 0.5
        text = rng.choice(SEED_PHRASES).format(area=PAIRS[behavior].area)
        turns, report = play(text, archetype, PAIRS[behavior] if planted else None, rng)
        seed = Seed(id=f"{behavior}/{number}", behavior=behavior, split="train", text=text)
        scenario = Scenario(id=f"{behavior}/{number}", seed=seed, condition="planted" if planted else "persona", behavior=behavior)
        sent = (
            Message(
                role="assistant",
                text="",
                tool_calls=(ToolUse(name="send_message", arguments={"message": t.message}), ToolUse(name="resume")),
            )
            for t in turns
        )
        got = (Message(role="tool", text=t.reply, tool="resume", ref=t.ref) for t in turns)
        talk = tuple(m for pair in zip(sent, got, strict=True) for m in pair)
        replies = tuple(Message(role="assistant", text=t.reply, ref=t.ref) for t in turns)
        audit = Audit(
            id=f"{archetype}#{number}",
            scenario=scenario,
            auditor=f"sim/auditor-{archetype}",
            auditor_messages=talk,
            branches=(Branch(messages=replies),),
            report=report,
        )
        found.append(SourceAudit(audit, "scripted", simulated=True))
    return found


async def tell_apart(each: int) -> None:
    """Print the agreement with the archetypes for three random seeds."""
    material = await describe_sources(scripted(each), load_bank().behaviors, None, NoDisplay())
    different = len({item.text for item in material.items})
    print(f"{len(material.items):,} audits of {len(ARCHETYPES)} archetypes, {different} different descriptions\n")
    print("| random seed | silhouette | stability | grouping | groups | ARI | NMI |")
    print("|---:|---:|---:|---|---:|---:|---:|")
    for random_seed in range(3):
        plan = Plan(top=len(ARCHETYPES), random_seed=random_seed)
        made = await make_codebook(material, None, load_categories(), plan, NoDisplay())
        quality = measure(made, place(material.items, made.codebook), repeats=2)
        for row in quality.agreements:
            merit = f"{quality.silhouette:.2f} | {quality.stability:.2f}"
            print(f"| {random_seed} | {merit} | {row.grouping} | {row.groups} | {row.ari:.3f} | {row.nmi:.3f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,20000,40000,81000")
    parser.add_argument("--plain", default="", help="sizes for the plain side [default: smallest and largest]")
    parser.add_argument("--archetypes", type=int, default=0, help="audits of each scripted archetype")
    args = parser.parse_args()
    if args.archetypes:
        asyncio.run(tell_apart(args.archetypes))
        return
    sizes = sorted(int(size) for size in args.sizes.split(","))
    plain_sizes = {int(size) for size in args.plain.split(",")} if args.plain else {sizes[0], sizes[-1]}
    head = "| | summaries | clusters | wall s | CPU s | clusters | neighbours | rollup | classification | peak MiB | mean sq. distance | ARI | recall |"
    print(f"{DIMENSIONS} dimensions, float32; {os.cpu_count()} cores, Python {platform.python_version()}\n\n{head}")
    print("|---|" + "---:|" * (head.count("|") - 2), flush=True)
    rows: list[tuple[str, int, Outcome]] = []
    for n in sizes:
        for name, side in (("auditrl", ours), ("plain", plain)):
            if name == "auditrl" or n in plain_sizes:
                rows.append((name, n, alone(side, n)))
                print(table_row(*rows[-1]), flush=True)
    mine = {n: o.total for name, n, o in rows if name == "auditrl"}
    theirs = {n: o.total for name, n, o in rows if name == "plain"}
    if len(sizes) > 1:
        power = math.log(mine[sizes[-1]] / mine[sizes[0]]) / math.log(sizes[-1] / sizes[0])
        print(f"\nGrowth of auditrl from {sizes[0]:,} to {sizes[-1]:,}: CPU time ~ N^{power:.2f}.")
    for n in sorted(theirs):
        print(f"Plain to auditrl at {n:,}: {theirs[n] / mine[n]:.1f}x the CPU time.")


if __name__ == "__main__":
    main()
