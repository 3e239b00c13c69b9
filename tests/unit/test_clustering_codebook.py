"""Names, categories, the frozen file, and what is counted with it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clustering_cases import Asked, blobs, corpus, described, sources

from auditrl.analysis.clustering.categories import OTHER, Categories, category_by_signs, load_categories, written
from auditrl.analysis.clustering.codebook import Array, Codebook, load_codebook
from auditrl.analysis.clustering.composition import composition, entropy, mix, place, shares
from auditrl.analysis.clustering.embed import Vectors
from auditrl.analysis.clustering.figures import composition_figure
from auditrl.analysis.clustering.names import common_bans, distinctive_terms, name_by_model, name_by_terms, name_problem
from auditrl.analysis.clustering.pipeline import Fitted, Material, Plan, make_codebook, recategorised
from auditrl.analysis.clustering.quality import EXPECTED, archetype, measure
from auditrl.analysis.figures import to_svg
from auditrl.display import NoDisplay
from auditrl.errors import ConfigError, ProviderError
from auditrl.sim.auditors import ARCHETYPES


def make(audits: Any, plan: Plan | None = None, *, embedder: Any = None, namer: Any = None, steps: int = 1) -> Fitted:
    items = described(audits, steps=steps)
    material = Material(items=items, bans={item.seed: frozenset({"taxe"}) for item in items}, simulated=True)
    plan = plan or Plan(top=8)
    return asyncio.run(make_codebook(material, embedder, load_categories(), plan, NoDisplay(), namer=namer))


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    return make(corpus(40), Plan(k=12, top=8), steps=4)


# ---------------------------------------------------------------- names


INSIDE = ["Presses the target to confess, and repeats itself.", "Presses the target to confess. Ends badly."]
OUTSIDE = ["Compares conditions, and repeats itself.", "Compares conditions. Ends well."]


def test_terms_set_the_inside_apart() -> None:
    terms = distinctive_terms(INSIDE, OUTSIDE, 2)
    assert terms[0] == "presses the target to confess"
    assert "repeats" not in " ".join(terms)
    assert distinctive_terms(["..."], ["?"], 3) == []


def test_equal_names_become_different_ones() -> None:
    first = name_by_terms(INSIDE, OUTSIDE, [])
    second = name_by_terms(INSIDE, OUTSIDE, [first.name])
    third = name_by_terms(INSIDE, OUTSIDE, [first.name, second.name])
    assert len({first.name, second.name, third.name}) == 3
    assert name_by_terms([], [], []).name == "no words"


GOOD = {"reasoning": "r", "name": "Pressing for a confession", "summary": "They press; the others compare."}


@pytest.mark.parametrize(
    ("answer", "taken", "reason"),
    [
        ({**GOOD, "name": "Questions about taxes"}, [], "tells the topic: taxes"),
        ({**GOOD, "summary": "They all speak of taxes."}, [], "tells the topic: taxes"),
        ({**GOOD, "name": "Auditing Claude gently"}, [], "tells the topic: claude"),
        (GOOD, ["pressing for a CONFESSION!"], "taken by another group"),
        ({**GOOD, "name": "one two three four five six seven eight nine ten"}, [], "longer than 9 words"),
        ("no answer", [], "no name: unreadable"),
    ],
)
def test_a_bad_name_is_asked_for_again_with_the_reason_and_then_given_up(answer: Any, taken: list[str], reason: str) -> None:
    model = Asked(lambda *_: answer)
    name = asyncio.run(name_by_model(model.model, INSIDE, OUTSIDE, {"taxe": 2}, taken))
    assert name.source == "terms"
    assert len(name.refused) == len(model.prompts) == 3
    assert reason in name.refused[0]
    assert reason in model.prompts[1]
    assert reason not in model.prompts[0]


def test_a_good_name_is_taken_after_a_refused_one() -> None:
    model = Asked(lambda kind, prompt, calls: {**GOOD, "name": "On taxes"} if calls == 0 else GOOD)
    name = asyncio.run(name_by_model(model.model, INSIDE, OUTSIDE, {"taxe": 2}, []))
    assert (name.name, name.source, len(name.refused)) == ("Pressing for a confession", "model", 1)
    assert "1. Presses the target" in model.prompts[0]


def test_bans_of_a_name_are_those_of_a_tenth_of_the_examples() -> None:
    bans = [frozenset({"tax", f"only{i}"}) for i in range(20)]
    assert common_bans(bans) == {"tax": 20}
    assert common_bans(bans[:1]) == {"tax": 1, "only0": 1}
    assert name_problem("?!", "", {}, []) == "no words"


def test_a_model_that_names_all_alike_gets_different_names_in_the_end() -> None:
    answers = {"strategy_name": GOOD, "strategy_category": {"reasoning": "r", "category": "Auditing failures"}}
    model = Asked(lambda kind, *_: answers[kind])
    made = make(corpus(6), Plan(k=6, levels=2, top=3, namer="m"), namer=model.model)
    for level in made.codebook.levels:
        names = [c.name for c in level]
        assert len(set(names)) == len(names)
        assert names.count("Pressing for a confession") == 1
    assert {c.category for level in made.codebook.levels for c in level} == {"auditing failures"}
    assert any("names were refused" in note for note in made.notes)


# ---------------------------------------------------------------- categories


def test_signs_decide_without_a_model() -> None:
    categories = load_categories()
    assert len(categories.category) == 5
    assert category_by_signs(categories, ["Varies one condition against a baseline."]) == "controlled systematic experiments"
    assert category_by_signs(categories, ["Gives up."]) == "auditing failures"
    assert category_by_signs(categories, ["invariant uncontrolled"]) == OTHER


def test_a_model_that_knows_no_category_leaves_it_to_the_signs() -> None:
    model = Asked(lambda kind, *_: GOOD if kind == "strategy_name" else {"reasoning": "r", "category": "space travel"})
    made = make(corpus(2), Plan(k=2, levels=1, namer="m"), namer=model.model)
    assert {c.category for c in made.codebook.top} <= set(load_categories().names) - {OTHER}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("category = 3", "key category"),
        ("[[category]]\nname = 'a'\nextra = 1", "key category.0.extra"),
        ("[[category]]\nname = 'a'\n[[category]]\nname = 'a'", "stands twice"),
        ("[[category]]\nname = 'other'", "stands twice"),
        ("[[category]]\nname = 'a'\n[clusters]\n3 = 'b'", "no such category"),
        ("[[", "can't be read"),
    ],
)
def test_a_bad_categories_file_is_named(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(ConfigError, match=words):
        load_categories(tmp_path / "c.toml")


def test_the_written_file_can_be_edited_and_given_back(fitted: Fitted, tmp_path: Path) -> None:
    book = fitted.codebook
    path = tmp_path / "categories.toml"
    path.write_text(written(load_categories(), {i: (c.category, 'odd "name"\n[clusters]') for i, c in enumerate(book.top)}))
    same = load_categories(path)
    assert recategorised(book, same) == book
    moved = Categories(category=same.category, clusters={**same.clusters, 0: OTHER})
    changed = recategorised(book, moved)
    assert changed.top[0].category == OTHER
    assert {c.category for c in changed.levels[0] if changed.levels[1][c.parent or 0].category == OTHER} <= {OTHER}
    assert changed.digest == book.digest
    with pytest.raises(ConfigError, match="clusters 0 to"):
        recategorised(book, Categories(category=same.category, clusters={99: OTHER}))


# ---------------------------------------------------------------- the file


def test_reading_back_changes_nothing(fitted: Fitted, tmp_path: Path) -> None:
    fitted.codebook.save(tmp_path / "codebook.json")
    again = load_codebook(tmp_path / "codebook.json")
    assert again == fitted.codebook
    texts = [item.text for item in fitted.fitted]
    one, two = fitted.codebook.classify(texts), again.classify(texts)
    assert np.array_equal(one.levels[0], fitted.clusters.labels)
    assert all(np.array_equal(a, b) for a, b in zip(one.levels, two.levels, strict=True))
    assert one.categories == two.categories
    assert one.strange.mean() <= 0.01
    alone = again.classify(texts[7:8])
    assert [int(level[0]) for level in alone.levels] == [int(level[7]) for level in one.levels]


def test_what_no_cluster_is_like_is_strange(fitted: Fitted) -> None:
    assert fitted.codebook.classify(["Sings an aria backwards while juggling"]).strange.all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 2}, "version 2, this auditrl reads auditrl.codebook 1"),
        ({"format": "x"}, "format 'x'"),
        ({"levels": []}, "key levels"),
        ({"centroids": {"shape": [1, 2], "data": "AAAAAAAAAAA="}}, "does not fit"),
        ({"tfidf": None}, "tfidf: must be there"),
        ({"extra": 1}, "key extra"),
    ],
)
def test_another_or_damaged_codebook_is_named(fitted: Fitted, change: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = tmp_path / "codebook.json"
    path.write_text(json.dumps(json.loads(fitted.codebook.model_dump_json()) | change))
    with pytest.raises(ConfigError, match=words):
        load_codebook(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}"])
def test_no_codebook_at_all(text: str, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(ConfigError, match=r"c\.json"):
        load_codebook(tmp_path / "c.json")
    with pytest.raises(ConfigError, match="can't be read"):
        load_codebook(tmp_path / "missing.json")


def test_vectors_of_another_model_are_refused(fitted: Fitted) -> None:
    width = fitted.vectors.shape[1]
    with pytest.raises(ConfigError, match="vectors of length 3"):
        fitted.codebook.place(np.ones((2, 3), dtype=np.float32))
    with pytest.raises(ConfigError, match="NaN"):
        fitted.codebook.place(np.full((2, width), np.nan, dtype=np.float32))


def test_arrays_survive_as_text() -> None:
    values, _ = blobs(5, 2)
    assert np.array_equal(Array.of(values).values(), values)


# ---------------------------------------------------------------- making one


class Broken:
    """An embedder whose vectors hold NaN."""

    name = "broken"

    def embed(self, texts: Any) -> Vectors:
        raise ProviderError("broken: 1 of 1 vectors hold NaN")


@pytest.mark.parametrize(("count", "clusters"), [(1, 1), (2, 2)])
def test_very_few_audits_degrade_and_say_so(count: int, clusters: int) -> None:
    made = make(corpus(1)[:count], Plan())
    assert len(made.codebook.levels[0]) == clusters
    assert any("clusters instead of 12" in note for note in made.notes)
    assert measure(made, place(made.fitted, made.codebook), repeats=1).stability == 1.0


def test_nothing_and_broken_vectors_are_refused() -> None:
    with pytest.raises(ConfigError, match="nothing to cluster"):
        make([])
    with pytest.raises(ProviderError, match="NaN"):
        make(corpus(1), embedder=Broken())
    with pytest.raises(ConfigError, match="--sample 0"):
        make(corpus(1), Plan(sample=0))


def test_the_same_audits_and_random_seed_give_the_same_codebook() -> None:
    one, two = make(corpus(10)), make(corpus(10))
    assert one.codebook == two.codebook


def test_a_sample_finds_the_clusters_and_all_are_classified() -> None:
    made = make(corpus(10), Plan(sample=40, random_seed=1))
    assert made.codebook.fitted_on == 40
    assert any("40 of 80" in note for note in made.notes)
    assert len(place(described(corpus(10)), made.codebook)) == 80


# ---------------------------------------------------------------- counting


def test_shares_add_up_and_have_intervals(fitted: Fitted) -> None:
    rows = composition(sources(corpus(40), steps=4), fitted.codebook)
    assert rows == shares(place(described(corpus(40), steps=4), fitted.codebook), fitted.codebook)
    for step in (1, 2, 3, 4):
        mine = [row for row in rows if row.step == step]
        assert sum(row.share.mean for row in mine) == pytest.approx(1)
        assert sum(row.count for row in mine) == 80
        assert all(row.share.low <= row.share.mean <= row.share.high for row in mine)
    top = shares(place(described(corpus(4)), fitted.codebook), fitted.codebook, by="top")
    assert sum(row.count for row in top) == 32


def test_how_mixed_a_step_is(fitted: Fitted) -> None:
    audits = [a for a in corpus(40) if a.auditor.endswith("extremist")]
    (alone,) = mix(place(described(audits), fitted.codebook), fitted.codebook)
    (all_,) = mix(place(described(corpus(40)), fitted.codebook), fitted.codebook)
    assert alone.entropy.mean < 0.2 < all_.entropy.low < all_.entropy.mean
    assert (alone.audits, all_.audits) == (40, 320)
    (single,) = mix(place(described(audits[:1]), fitted.codebook), fitted.codebook)
    assert (single.entropy.mean, single.entropy.known) == (0.0, False)


def test_entropy_lies_between_none_and_all() -> None:
    assert entropy(np.zeros(5), 6) == 0.0
    assert entropy(np.arange(6.0), 6) == pytest.approx(1.0)
    assert entropy(np.zeros(5), 1) == 0.0


def test_another_describers_codebook_is_refused(fitted: Fitted) -> None:
    other = fitted.codebook.model_copy(update={"describer": "openai/x"})
    with pytest.raises(ValueError, match="openai/x"):
        composition(sources(corpus(1)), other)
    assert place([], fitted.codebook) == []


@pytest.mark.parametrize("steps", [1, 2, 16])
def test_the_figure_shows_every_category(fitted: Fitted, steps: int) -> None:
    rows = shares(place(described(corpus(40), steps=steps), fitted.codebook), fitted.codebook)
    svg = to_svg(composition_figure(rows))
    for name in {row.part for row in rows if row.count}:
        assert name in svg
    with pytest.raises(ValueError, match="nothing to draw"):
        composition_figure([])


def test_archetypes_are_found_again(fitted: Fitted) -> None:
    quality = measure(fitted, place(fitted.fitted, fitted.codebook), repeats=1)
    found = {a.grouping: a.ari for a in quality.agreements}
    assert found["level 3 against archetypes" if len(fitted.codebook.levels) == 3 else "level 2 against archetypes"] >= 0.8
    assert found["categories against archetypes' categories"] >= 0.9
    assert quality.silhouette > 0.5
    assert json.loads(json.dumps(quality.as_json()))["stability"] == quality.stability


def test_archetypes_are_known_by_name_only() -> None:
    assert archetype("sim/auditor-narrator") == "narrator"
    assert archetype("sim/auditor-nobody") is None
    assert archetype("runs/mine") is None
    assert set(EXPECTED) == set(ARCHETYPES)
    assert set(EXPECTED.values()) <= set(load_categories().names)
    assert Codebook.model_fields["version"].default == 1
