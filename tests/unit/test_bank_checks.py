"""Each check has a bank that it passes and a bank that it finds fault with; the packaged bank passes all."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bank_files import TOOL, add_behavior, add_seed, make_bank, prose

from auditrl.behaviors.checks import CHECKS, Finding, check_bank, failing
from auditrl.behaviors.loader import Bank, forget_banks, load_bank, load_roots
from auditrl.behaviors.similarity import cosines, pair_cosines, runs, shared_runs, stem
from auditrl.behaviors.statistics import bank_statistics

RUN8 = "the harbour master rings a small brass bell"
FIRST = prose(("boasting", "001-scene"))
RUN6 = "the pilot writes down three numbers"


def _mixed(key: object, other: object, share: float) -> str:
    """Seventy words, a share of them another key's, spread so that no long run is shared."""
    mine, theirs = prose(key).split(), prose(other).split()
    return " ".join(theirs[i] if int((i + 1) * share) > int(i * share) else mine[i] for i in range(70))


def _strip_canary(path: Path) -> Path:
    path.write_text(re.sub(r"canary: .*\n", "", path.read_text()))
    return path


def _with_run(root: Path, run: str, count: int) -> Path:
    paths = [add_seed(root, f"{n:03d}-run", f"{prose(n, 64)}\n\nThen {run}.") for n in range(10, 10 + count)]
    return paths[-1]


def _alike(root: Path) -> Path:
    """Ten seeds with pairwise cosines below 0.6 whose mean is above 0.25."""
    for path in (root / "seeds/boasting").glob("*.md"):
        path.unlink()
    paths = [add_seed(root, f"{n:03d}-alike", _mixed(n, "common", 0.8)) for n in range(1, 11)]
    return paths[-1]


def _held_out(root: Path, text: str) -> Path:
    add_behavior(root, "shy", split="eval")
    return add_seed(root, "001-scene", text, behavior="shy", split="eval")


def _repeated_settings(root: Path) -> Path:
    add_seed(root, "007-again", setting="harbour pilot, terse")
    add_seed(root, "005-scene", setting="made-up setting of boasting 001-scene")
    return add_seed(root, "008-again", setting="Harbour  pilot, terse")


# name: (check, what breaks a good bank of six seeds, words of the message, severity)
FAULTS: dict[str, tuple[str, Callable[[Path], Path], tuple[str, ...], str]] = {
    "no canary in a seed": ("schema", lambda r: _strip_canary(r / "seeds/boasting/002-scene.md"), ("add the line `canary:",), "fail"),
    "no canary in a behavior": ("schema", lambda r: _strip_canary(r / "bank/boasting.md"), ("add the line `canary:",), "fail"),
    "no setting": ("schema", lambda r: add_seed(r, "002-scene", setting=None), ("add `setting:",), "fail"),
    "number twice": ("number", lambda r: add_seed(r, "002-twin"), ("number 002 stands 2 times", "next free number"), "fail"),
    "short seed": ("length", lambda r: add_seed(r, "002-scene", prose("s", 59)), ("seed of 59 words (60-120", "add at least 1"), "fail"),
    "long seed": ("length", lambda r: add_seed(r, "002-scene", prose("s", 123)), ("123 words", "cut at least 3"), "fail"),
    "short instruction": ("length", lambda r: add_behavior(r, instruction=prose("b", 79)), ("instruction of 79 words (80-300",), "fail"),
    "near-duplicate": (
        "duplicates",
        lambda r: add_seed(r, "007-copy", _mixed("new", ("boasting", "001-scene"), 0.8)),
        ("too close to boasting/001-scene", "rewrite"),
        "fail",
    ),
    "seeds too much alike": ("duplicates", _alike, ("too much alike (mean cosine 0.", "vary task"), "fail"),
    "run of eight words": ("shared", lambda r: _with_run(r, RUN8, 3), (f'"then {RUN8.rsplit(" ", 1)[0]}" stands in 3 seeds',), "fail"),
    "run of six words": ("template", lambda r: _with_run(r, RUN6, 4), ("stands in 4 seeds", "say it in other words"), "warn"),
    "name in the text": (
        "leak",
        lambda r: add_seed(r, "002-scene", prose("s", 66) + " Boasting, says the mate."),
        ("names its behavior (boasting)", "describe the scene"),
        "fail",
    ),
    "description in the text": (
        "leak",
        lambda r: add_seed(r, "002-scene", prose("s", 60) + "\n\nWatch whether the target slips in a boast about lighthouses."),
        ("gives its behavior away", "boast, lighthouses", "neutral terms"),
        "fail",
    ),
    "held-out seed close to a training seed": (
        "held_out",
        lambda r: _held_out(r, _mixed("new", ("boasting", "001-scene"), 0.63)),
        ("too close to boasting/001-scene", "0.5)"),
        "fail",
    ),
    "held-out seed with a training seed's words": (
        "held_out",
        lambda r: _held_out(r, " ".join([*prose("new").split()[:60], *FIRST.split()[:8]])),
        ("none across training and held-out",),
        "warn",
    ),
    "context not reached": (
        "reach",
        lambda r: add_seed(r, "002-scene", prose("s", term="river")),
        ("does not reach the context of `boasting`", "tide, tidal"),
        "fail",
    ),
    "no activation terms": (
        "reach",
        lambda r: add_behavior(r, activation_terms=None),
        ("no activation_terms", "`always_on: true`"),
        "fail",
    ),
}


def _check(root: Path, check: str) -> list[Finding]:
    return [finding for finding in check_bank(load_bank(root, merge=False)) if finding.check == check]


def test_every_check_has_a_fault() -> None:
    assert {check for check, *_ in FAULTS.values()} | {"settings"} == set(CHECKS)


@pytest.mark.parametrize("case", FAULTS)
def test_a_fault_is_found_and_named(case: str, tmp_path: Path) -> None:
    check, spoil, said, severity = FAULTS[case]
    make_bank(tmp_path)
    assert check_bank(load_bank(tmp_path, merge=False)) == []
    path = spoil(tmp_path)
    forget_banks()
    findings = _check(tmp_path, check)
    assert [f.file for f in findings] == [path]
    assert findings[0].severity == severity
    for part in said:
        assert part in findings[0].message


def test_settings_that_repeat(tmp_path: Path) -> None:
    make_bank(tmp_path)
    last = _repeated_settings(tmp_path)
    first, second = _check(tmp_path, "settings")
    assert [first.file.stem, second.file] == ["005-scene", last]
    assert "6 distinct settings for 8 seeds (at least 80%)" in second.message
    assert "this one repeats boasting/007-again: give it a setting of its own" in second.message


def test_every_seed_beyond_the_limit_shares_too_much(tmp_path: Path) -> None:
    make_bank(tmp_path)
    _with_run(tmp_path, RUN8, 5)
    assert [f.file.stem for f in _check(tmp_path, "shared")] == ["012-run", "013-run", "014-run"]
    assert [f.file.stem for f in _check(tmp_path, "template")] == ["013-run", "014-run"]


def test_a_finding_points_at_the_line_of_the_text(tmp_path: Path) -> None:
    make_bank(tmp_path)
    path = _with_run(tmp_path, RUN8, 3)
    (finding,) = _check(tmp_path, "shared")
    assert RUN8 in path.read_text().splitlines()[finding.line - 1]
    assert str(finding).startswith(f"{path}:{finding.line}: [shared] ")


ALLOWED: dict[str, Callable[[Path], Any]] = {
    "two seeds share a long run": lambda r: _with_run(r, RUN8, 2),
    "three seeds share a short run": lambda r: [_with_run(r, RUN6, 3)],
    "behavior that is always on needs no terms": lambda r: [
        add_behavior(r, always_on=True, activation_terms=None),
        add_seed(r, "002-scene", prose("s", term="river")),
    ],
    "tools where they are needed": lambda r: [
        add_behavior(r, needs_tools=True),
        *(add_seed(r, f"{n:03d}-scene", tools=[TOOL]) for n in range(1, 7)),
    ],
    "one setting twice among six": lambda r: add_seed(r, "006-scene", setting="made-up setting of boasting 001-scene"),
    "limits of length": lambda r: [add_seed(r, "001-scene", prose("s", 60)), add_seed(r, "002-scene", prose("l", 120))],
}


@pytest.mark.parametrize("case", ALLOWED)
def test_what_is_allowed_passes(case: str, tmp_path: Path) -> None:
    make_bank(tmp_path)
    ALLOWED[case](tmp_path)
    assert check_bank(load_bank(tmp_path, merge=False)) == []


def test_a_behavior_that_needs_tools(tmp_path: Path) -> None:
    make_bank(tmp_path, 2)
    add_behavior(tmp_path, needs_tools=True)
    assert [f.file.stem for f in _check(tmp_path, "schema")] == ["001-scene", "002-scene"]


def test_near_duplicates_across_behaviors(tmp_path: Path) -> None:
    make_bank(tmp_path)
    add_behavior(tmp_path, "humming")
    path = add_seed(tmp_path, "001-scene", _mixed("new", ("boasting", "001-scene"), 0.8), behavior="humming")
    (finding,) = _check(tmp_path, "duplicates")
    assert finding.file == path
    assert "too close to boasting/001-scene" in finding.message


def test_only_files_in_focus_are_found_fault_with(tmp_path: Path) -> None:
    base, mine = tmp_path / "base", tmp_path / "mine"
    make_bank(base)
    add_seed(base, "007-short", "A tide.")
    copy = add_seed(mine, "001-a", _mixed("new", ("boasting", "006-scene"), 0.8))
    findings = check_bank(load_roots((base, mine)), mine)
    # number 001 stands in both folders, and 001-a sorts first, but the base's files are not in focus
    assert {(f.check, f.file) for f in findings} == {("duplicates", copy), ("number", copy)}


def test_an_empty_bank_has_no_findings_and_no_numbers() -> None:
    empty = Bank({}, [])
    assert check_bank(empty) == []
    numbers = bank_statistics(empty)
    assert (numbers.rows, numbers.max_cosine_across, numbers.long_runs) == ((), 0.0, 0)


def test_statistics_count_what_is_there(tmp_path: Path) -> None:
    make_bank(tmp_path, 4)
    add_seed(tmp_path, "005-crux", split="crux", tools=[TOOL], setting="made-up setting of boasting 001-scene")
    add_behavior(tmp_path, "shy", split="eval")
    add_seed(tmp_path, "001-scene", prose("x", 90), behavior="shy", split="eval")
    bank = load_bank(tmp_path, merge=False)
    numbers = bank_statistics(bank)
    first, second = numbers.rows
    assert (first.behavior, first.train, first.eval, first.crux, first.settings, first.tools) == ("boasting", 4, 0, 1, 4, 1)
    assert (first.fewest_words, first.most_words) == (70, 70)
    assert first.mean_cosine == pytest.approx(float(pair_cosines(cosines([s.text for s in bank.seeds_for("boasting")])).mean()))
    assert (second.behavior, second.eval, second.most_words, second.mean_cosine) == ("shy", 1, 90, 0.0)
    assert 0 < numbers.max_cosine_held_out == numbers.max_cosine_across < 0.1
    text = numbers.markdown()
    assert "| boasting | 4/0/1 | 4 | 1 | 70-70 |" in text
    assert "| train / eval / crux seeds | 4 / 1 / 1 |" in text


def test_cosines_against_hand_counts() -> None:
    matrix = cosines(["alpha beta", "alpha beta", "gamma delta"])
    assert np.allclose(matrix, [[1, 1, 0], [1, 1, 0], [0, 0, 1]])
    assert np.allclose(pair_cosines(matrix), [1, 0, 0])
    assert np.array_equal(cosines(["the and", "of"]), np.zeros((2, 2)))


def test_shared_runs_give_one_run_a_passage() -> None:
    texts = ["One two, three four five.", "zero one TWO three four five six", "one two three", "two three nine"]
    assert runs(texts[0], 4) == ["one two three four", "two three four five"]
    assert shared_runs(texts, 3, 2) == {(0, 1, 2): "one two three"}
    assert shared_runs(texts, 3, 1) == {(0, 1, 2): "one two three", (0, 1): "two three four"}
    assert shared_runs(["a b a b a b"], 2, 0) == {(0,): "a b"}


@pytest.mark.parametrize(
    "family", [("flatters", "flattery", "flattering", "flattered"), ("compare", "comparing", "compares"), ("stop", "stopped", "stops")]
)
def test_stems_agree(family: tuple[str, ...]) -> None:
    assert len({stem(word) for word in family}) == 1


def test_stems_keep_different_words_apart() -> None:
    different = ("tide", "tidy", "string", "strong", "need", "news", "less", "user", "urge")
    assert len({stem(word) for word in different}) == len(different)


def test_packaged_bank_is_complete() -> None:
    bank = load_bank()
    assert len(bank.behaviors) == 32
    assert len(bank.training()) == 26
    assert len(bank.seeds) == 1600
    for behavior in bank.behaviors.values():
        counts = {split: len(bank.seeds_for(behavior.name, split)) for split in ("train", "eval", "crux")}
        assert counts == ({"train": 50, "eval": 0, "crux": 0} if behavior.split == "train" else {"train": 0, "eval": 15, "crux": 35})
    assert [str(finding) for finding in failing(check_bank(bank))] == []


def test_the_numbers_in_the_docs_are_the_bank_s() -> None:
    page = (Path(__file__).parents[2] / "docs" / "behaviors.md").read_text(encoding="utf-8")
    assert bank_statistics(load_bank()).markdown() in page, "print them anew: auditrl behaviors stats --markdown"
