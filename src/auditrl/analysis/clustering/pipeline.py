"""From audits to a frozen codebook, and from a codebook to classified audits: the steps of `auditrl cluster` in order."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from ...audit.context import stable_hash
from ...display import Display
from ...errors import ConfigError, ProviderError
from ...evals.journal import Journal, gather_limited
from ...prompts import load_prompt
from ...types import Behavior
from .categories import Categories, category_by_model, category_by_signs
from .cluster import Clusters, Examples, cluster_count, contrast, fit_clusters
from .codebook import Array, Codebook, CodeCluster, TfidfState
from .describe import KIND, RULE, Described, Description, describe
from .embed import Embedder, Tfidf, Vectors
from .leaks import banned_stems
from .names import TERMS, Name, common_bans, is_taken, name_by_model, name_by_terms
from .rollup import LEVELS, TOP, Level, ancestors, roll_up
from .sources import Skipped, SourceAudit

if TYPE_CHECKING:
    from inspect_ai.model import Model

_BATCH = 512
"""Audits that stand in memory at a time while they are described."""
_SHOWN = 5
MAX_MISSING = 0.5


@dataclass(slots=True)
class Material:
    """Described audits, with what a reader has to know about them."""

    items: list[Described] = field(default_factory=list[Described])
    bans: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """Seed id -> stems that make a name a topic; empty unless they were asked for."""
    simulated: bool = False
    missing: Counter[str] = field(default_factory=Counter[str])
    """Audits without a description, by cause."""
    leaked: int = 0
    """Descriptions from which sentences that gave the topic away were left out."""
    skipped: Skipped = field(default_factory=Skipped)

    def notes(self) -> list[str]:
        """What has to stand beside the results."""
        found = self.skipped.notes()
        if self.missing:
            causes = ", ".join(f"{cause} {count}" for cause, count in self.missing.most_common(5))
            found.append(f"{self.missing.total():,} audits without a description left out: {causes}.")
        if self.leaked:
            found.append(f"{self.leaked:,} descriptions gave the topic away until the last try; their telling sentences are left out.")
        return found


@dataclass(frozen=True, slots=True)
class Plan:
    """How a codebook is made. `k` None is about N/100; `sample` None fits to all."""

    k: int | None = None
    levels: int = LEVELS
    top: int | None = None
    sample: int | None = None
    random_seed: int = 0
    describer: str = RULE
    namer: str = TERMS


@dataclass(frozen=True, slots=True)
class Fitted:
    """A codebook with the clustering that it was made from, for the figures of merit."""

    codebook: Codebook
    vectors: Vectors
    clusters: Clusters
    fitted: list[Described]
    notes: list[str]


# ---------------------------------------------------------------- describing


def prompt_digest() -> str:
    """Identifies the describer's prompt: another prompt gives other descriptions."""
    return hashlib.sha256(load_prompt("auditrl.judges", KIND).encode()).hexdigest()[:12]


async def describe_sources(
    sources: Iterable[SourceAudit],
    behaviors: Mapping[str, Behavior],
    model: Model | None,
    display: Display,
    *,
    journal: Journal | None = None,
    max_concurrent: int = 20,
    skipped: Skipped | None = None,
    keep_bans: bool = False,
) -> Material:
    """Describe every audit.

    Args:
        behaviors: The bank.
        model: The describing model; None describes by rule.
        journal: Keeps what a model wrote, so that it is asked for once.
        skipped: The counter that `sources` fills.
        keep_bans: Keep the stems that make a name a topic; a naming model needs them.

    Raises:
        ProviderError: Over half of the audits have no description; the commonest cause is named.
    """
    material = Material(skipped=skipped or Skipped())
    number = 0
    for batch in _batches(sources):
        found = await _describe_batch(batch, behaviors, model, journal, max_concurrent)
        for item, description in zip(batch, found, strict=True):
            _take(material, item, description)
            if keep_bans and item.audit.scenario.seed.id not in material.bans:
                # what one report claimed is no ban for the names of a cluster
                plain = item.audit.model_copy(update={"report": None})
                material.bans[item.audit.scenario.seed.id] = banned_stems(plain, behaviors.get(item.audit.scenario.behavior or ""))
        number += len(batch)
        if model is not None:
            display.note(f"described {number:,} audits")
    lost = material.missing.total()
    if number and lost > MAX_MISSING * number:
        cause, count = material.missing.most_common(1)[0]
        raise ProviderError(
            f"describing: {lost} of {number} audits have no description ({cause}: {count}); check the model, then run again"
        )
    return material


def _batches(sources: Iterable[SourceAudit]) -> Iterator[list[SourceAudit]]:
    rest = iter(sources)
    while batch := list(islice(rest, _BATCH)):
        yield batch


async def _describe_batch(
    batch: Sequence[SourceAudit], behaviors: Mapping[str, Behavior], model: Model | None, journal: Journal | None, limit: int
) -> list[Description]:
    async def one(item: SourceAudit) -> Description:
        key = f"{stable_hash(item.audit.model_dump_json()):x}" if journal is not None else ""
        known = journal.get(key) if journal is not None else None
        if known is not None:
            return Description(known["text"], known["missing"], tuple(known["leaked"]), known["attempts"])
        found = await describe(item.audit, behaviors, model)
        # what a provider's failure prevented is asked for again at the next start
        if journal is not None and not (found.missing or "").startswith("provider"):
            record = {"text": found.text, "missing": found.missing, "leaked": list(found.leaked), "attempts": found.attempts}
            journal.add(key, record)
        return found

    return await gather_limited(limit, [lambda item=item: one(item) for item in batch])


def _take(material: Material, item: SourceAudit, description: Description) -> None:
    material.simulated |= item.simulated
    if not description.text:
        material.missing[description.missing or "empty"] += 1
        return
    material.leaked += bool(description.leaked)
    material.items.append(Described.of(item, description.text))


# ---------------------------------------------------------------- the codebook


def default_top(bottom: int) -> int:
    """14 as published, fewer where the bottom level is small."""
    return min(TOP, max(1, round(bottom / 2)))


async def make_codebook(
    material: Material,
    embedder: Embedder | None,
    categories: Categories,
    plan: Plan,
    display: Display,
    *,
    namer: Model | None = None,
    max_concurrent: int = 20,
) -> Fitted:
    """Find the clusters, name them, roll them up, give the top ones a category, freeze it all.

    Args:
        embedder: None fits TF-IDF to the descriptions.
        namer: Names clusters and places them in categories; None does both by terms.

    Raises:
        ConfigError: No audits, or a plan that can't be (k or levels below 1).
    """
    if not material.items:
        raise ConfigError("cluster: no audit with a description; nothing to cluster")
    fitted, notes = _sampled(material.items, plan)
    texts = [item.text for item in fitted]
    if embedder is None:
        embedder = Tfidf.fit(texts, random_seed=plan.random_seed)
    vectors = embed_all(embedder, texts)
    wanted = plan.k or cluster_count(len(texts))
    clusters = fit_clusters(vectors, wanted, plan.random_seed)
    k = len(clusters.centroids)
    if k < wanted:
        notes.append(f"{k} clusters instead of {wanted}: {len(set(texts)):,} different descriptions, or clusters that stayed empty.")
    display.note(f"{k} clusters of {len(texts):,} descriptions")
    top = plan.top or default_top(k)
    levels = roll_up(clusters, levels=plan.levels, top=top, random_seed=plan.random_seed)
    if len(levels) < plan.levels:
        notes.append(f"{len(levels)} levels instead of {plan.levels}: {k} clusters do not make more.")
    tree = _Tree(levels)
    for number, labels in enumerate(ancestors(levels, clusters.labels)):
        tree.examples.append(contrast(vectors, Clusters(levels[number].centroids, labels), random_seed=plan.random_seed))
        tree.names.append(await _names(tree.examples[-1], fitted, material.bans, namer, max_concurrent))
        display.note(f"named {len(tree.names[-1])} clusters of level {number + 1}")
    refused = sum(len(name.refused) for level in tree.names for name in level)
    if refused:
        notes.append(f"{refused} names were refused: a topic, taken, too long or unreadable.")
    inside = [[texts[i] for i in examples.inside] for examples in tree.examples[-1]]
    tree.categories = await _categories(tree.names[-1], inside, categories, namer, max_concurrent)
    state = None
    if isinstance(embedder, Tfidf):
        state = TfidfState(terms=embedder.terms, idf=Array.of(embedder.idf), components=Array.of(embedder.components))
    distances = np.linalg.norm(vectors - clusters.centroids[clusters.labels], axis=1)
    book = Codebook(
        random_seed=plan.random_seed,
        simulated=material.simulated,
        describer=plan.describer,
        namer=plan.namer,
        embedding=embedder.name,
        fitted_on=len(texts),
        radius=float(np.quantile(distances, 0.99, method="higher")),
        categories=tuple(categories.names),
        levels=tuple(_frozen(tree, texts)),
        centroids=Array.of(clusters.centroids),
        tfidf=state,
    )
    return Fitted(book, vectors, clusters, fitted, notes)


@dataclass(slots=True)
class _Tree:
    """The levels, bottom first, with what was found out about their clusters."""

    levels: list[Level]
    examples: list[list[Examples]] = field(default_factory=list[list[Examples]])
    names: list[list[Name]] = field(default_factory=list[list[Name]])
    categories: list[str] = field(default_factory=list[str])
    """Of the top level."""


def embed_all(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """Vectors of all texts, each different one embedded once."""
    different = list(dict.fromkeys(texts))
    rows = embedder.embed(different)
    at = {text: i for i, text in enumerate(different)}
    return rows if len(different) == len(texts) else rows[[at[text] for text in texts]]


def _sampled(items: Sequence[Described], plan: Plan) -> tuple[list[Described], list[str]]:
    """All, or `plan.sample` drawn at random, in their order."""
    if plan.sample is None or plan.sample >= len(items):
        return list(items), []
    if plan.sample < 1:
        raise ConfigError(f"--sample {plan.sample}: at least one transcript")
    chosen = np.sort(np.random.default_rng(plan.random_seed).choice(len(items), plan.sample, replace=False))
    return [items[i] for i in chosen], [f"Clusters were found in {plan.sample:,} of {len(items):,} transcripts; all were classified."]


async def _names(
    shown: Sequence[Examples], fitted: Sequence[Described], bans: Mapping[str, frozenset[str]], namer: Model | None, limit: int
) -> list[Name]:
    """Names of one level. A model is asked for all at once; then, largest cluster first, those whose name is taken ask again: which
    name stays does not depend on which answer came first."""
    inside = [[fitted[i].text for i in examples.inside] for examples in shown]
    outside = [[fitted[i].text for i in examples.outside] for examples in shown]
    found: dict[str, Name] = {}
    if namer is None:
        for here, there in zip(inside, outside, strict=True):
            name = name_by_terms(here, there, found)
            found[name.name] = name
        return list(found.values())

    async def ask(number: int, taken: Collection[str] = ()) -> Name:
        banned = common_bans([bans[fitted[i].seed] for i in shown[number].inside])
        return await name_by_model(namer, inside[number], outside[number], banned, taken)

    for number, name in enumerate(await gather_limited(limit, [lambda n=n: ask(n) for n in range(len(shown))])):
        kept = await ask(number, found) if is_taken(name.name, found) else name
        found[kept.name] = kept
    return list(found.values())


async def _categories(
    names: Sequence[Name], inside: Sequence[Sequence[str]], categories: Categories, namer: Model | None, limit: int
) -> list[str]:
    """Category of each top cluster: by hand, else by the model, else by signs."""

    async def one(number: int) -> str:
        if number in categories.clusters:
            return categories.clusters[number]
        if namer is None:
            return category_by_signs(categories, inside[number])
        return await category_by_model(namer, categories, names[number].name, names[number].summary, inside[number])

    return await gather_limited(limit, [lambda number=number: one(number) for number in range(len(names))])


def _frozen(tree: _Tree, texts: Sequence[str]) -> list[tuple[CodeCluster, ...]]:
    """The levels as they stand in the codebook: everything below a top cluster has its category."""
    frozen: list[tuple[CodeCluster, ...]] = []
    category = list(tree.categories)
    for level, names, shown in zip(reversed(tree.levels), reversed(tree.names), reversed(tree.examples), strict=True):
        parents = level.parents
        if parents is not None:
            category = [category[int(parent)] for parent in parents]
        rows = [
            CodeCluster(
                name=name.name,
                summary=name.summary,
                size=int(level.sizes[c]),
                parent=int(parents[c]) if parents is not None else None,
                category=category[c],
                examples=tuple(dict.fromkeys(texts[int(i)] for i in examples.inside))[:_SHOWN],
            )
            for c, (name, examples) in enumerate(zip(names, shown, strict=True))
        ]
        frozen.insert(0, tuple(rows))
    return frozen


def recategorised(codebook: Codebook, categories: Categories) -> Codebook:
    """The same clusters under an edited categories file: by hand where it says so, else by the signs of the kept examples.

    Raises:
        ConfigError: A cluster placed by hand that the top level does not have.
    """
    wrong = [number for number in categories.clusters if not 0 <= number < len(codebook.top)]
    if wrong:
        raise ConfigError(f"[clusters] {wrong[0]}: the top level has clusters 0 to {len(codebook.top) - 1}")
    category = [categories.clusters.get(i) or category_by_signs(categories, cluster.examples) for i, cluster in enumerate(codebook.top)]
    levels: list[tuple[CodeCluster, ...]] = []
    for level in reversed(codebook.levels):
        if level[0].parent is not None:
            category = [category[c.parent] for c in level if c.parent is not None]
        levels.insert(0, tuple(c.model_copy(update={"category": name}) for c, name in zip(level, category, strict=True)))
    return codebook.model_copy(update={"levels": tuple(levels), "categories": tuple(categories.names)})
