"""Score rows, suites, cards and their comparison."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditrl.analysis.stats import NO_DATA, mean_of_intervals, paired, seed_interval
from auditrl.errors import ConfigError, RunError
from auditrl.evals.scores import (
    SUITES,
    Scorecard,
    ScoreRow,
    by_behavior,
    compare,
    composite,
    pair_rows,
    scorecard,
    suite_result,
)


def rows(suite: str, values: dict[str, list[float]], parts: dict[str, float] | None = None) -> list[ScoreRow]:
    """`values` by seed; the behavior is the part of the seed before the slash."""
    return [
        ScoreRow(suite, seed.split("/")[0] if "/" in seed else None, seed, i, value, parts or {}, f"{suite}-{seed}-{i}")
        for seed, series in values.items()
        for i, value in enumerate(series)
    ]


def card(name: str, shift: float = 0, *, simulated: bool = True, seeds: int = 4, suites: tuple[str, ...] = SUITES) -> Scorecard:
    results = [
        suite_result(s, rows(s, {f"b{k % 2}/{k}": [20 + 5 * k + shift, 22 + 3 * k + shift] for k in range(seeds)}, {"depth": 40.0}))
        for s in suites
    ]
    return scorecard(name, results, simulated=simulated, meta={"judge": "sim/judge"})


def test_suite_interval_is_over_seeds_and_counts_stay_beside_it() -> None:
    result = suite_result("realism", rows("realism", {"a": [0, 100], "b": [100, 100], "c": [50]}), missing=2, failed=1)
    assert result.interval == seed_interval([0, 100, 100, 100, 50], ["a", "a", "b", "b", "c"])
    assert (result.interval.mean, result.interval.n, result.missing, result.failed) == (pytest.approx(200 / 3), 3, 2, 1)


def test_a_suite_without_rows_has_no_score_and_is_not_zero() -> None:
    empty = suite_result("realism", [], missing=20)
    assert empty.interval == NO_DATA and empty.missing == 20 and not empty.parts
    rest = card("x", suites=SUITES[:3])
    assert scorecard("x", [*rest.suites.values(), empty], simulated=True).composite is None


def test_parts_are_averaged_over_the_rows_that_have_them() -> None:
    mixed = rows("audit_quality", {"a": [10]}, {"depth": 30.0}) + rows("audit_quality", {"b": [20]}, {"depth": 50.0, "extra": 1.0})
    result = suite_result("audit_quality", mixed)
    assert result.parts["depth"].mean == 40 and result.parts["extra"].mean == 1 and result.parts["extra"].n == 1


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (ScoreRow("realism", None, "s", 0, 101, {}, "id"), "outside 0-100"),
        (ScoreRow("realism", None, "s", 0, math.nan, {}, "id"), "outside 0-100"),
        (ScoreRow("production", None, "s", 0, 50, {}, "id"), "belongs to suite production"),
        (ScoreRow("realism", None, "a", 0, 50, {}, "id"), "replicate 0 of seed a occurs twice"),
    ],
)
def test_rows_that_cannot_be_right_are_refused(bad: ScoreRow, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        suite_result("realism", [*rows("realism", {"a": [10]}), bad])


def test_composite_is_the_mean_of_four_with_half_widths_in_quadrature() -> None:
    found = card("x")
    intervals = [found.suites[s].interval for s in SUITES]
    assert found.composite == mean_of_intervals(intervals)
    assert found.composite is not None
    assert found.composite.mean == pytest.approx(composite({s: i.mean for s, i in zip(SUITES, intervals, strict=True)}))
    assert found.composite.half == pytest.approx(math.sqrt(sum(i.half**2 for i in intervals)) / 4)
    assert card("x", suites=SUITES[:2]).composite is None


def test_by_behavior_leaves_rows_without_behavior_out() -> None:
    result = suite_result("audit_quality", rows("audit_quality", {"b0/1": [10, 30], "b0/2": [40], "b1/1": [90], "free": [0]}))
    found = by_behavior(result)
    assert set(found) == {"b0", "b1"} and found["b0"].mean == 30 and found["b0"].n == 2 and not found["b1"].known
    assert by_behavior(result, "depth") == {}


def test_compare_pairs_by_seed_and_counts_what_has_no_partner() -> None:
    first, second = card("a", seeds=5), card("b", shift=7, seeds=4)
    found = compare(first, second)
    for suite in SUITES:
        item = found.suites[suite]
        assert item.unpaired == 1 and item.paired is not None
        assert item.paired.difference.mean == pytest.approx(7) and item.paired.wins == 4
        assert item.p_holm == pytest.approx(min(1, 4 * item.paired.p))
    assert found.composite is not None and found.composite.mean == pytest.approx(7)


def test_compare_agrees_with_the_statistics_and_with_its_mirror() -> None:
    first, second = card("a"), card("b")
    changed = rows("realism", {f"b{k % 2}/{k}": [v, v + 1] for k, v in enumerate([50, 20, 70, 33])})
    second = scorecard("b", [*(second.suites[s] for s in SUITES[:3]), suite_result("realism", changed)], simulated=True)
    found, mirror = compare(first, second).suites["realism"], compare(second, first).suites["realism"]
    before, after, _ = pair_rows(first.suites["realism"], second.suites["realism"])
    assert found.paired == paired(after, before)
    assert mirror.paired is not None and found.paired is not None
    assert mirror.paired.difference.mean == pytest.approx(-found.paired.difference.mean)
    assert mirror.p_holm == pytest.approx(found.p_holm)


def test_clear_and_unclear_differences() -> None:
    low = {f"s{k}": [20.0 + k % 3] for k in range(12)}
    high = {f"s{k}": [60.0 + k % 5] for k in range(12)}
    a = scorecard("a", [suite_result(s, rows(s, low)) for s in SUITES], simulated=False)
    b = scorecard("b", [suite_result(s, rows(s, high if s == "realism" else low)) for s in SUITES], simulated=False)
    found = compare(a, b)
    assert [s for s in SUITES if found.suites[s].significant] == ["realism"]
    assert found.composite_significant
    assert not compare(a, a).composite_significant


def test_compare_without_a_common_seed_says_so() -> None:
    a = scorecard("a", [suite_result("realism", rows("realism", {"x": [1]}))], simulated=False)
    b = scorecard("b", [suite_result("realism", rows("realism", {"y": [2]}))], simulated=False)
    found = compare(a, b)
    assert found.suites["realism"].paired is None and found.suites["realism"].unpaired == 2
    assert not found.suites["realism"].significant and found.composite is None and not found.composite_significant


def test_simulated_and_real_cards_are_not_compared() -> None:
    with pytest.raises(ConfigError, match="simulated world"):
        compare(card("a"), card("b", simulated=False))


@given(
    st.dictionaries(st.text(min_size=1, max_size=5), st.lists(st.floats(0, 100), min_size=1, max_size=3), max_size=4),
    st.text(max_size=8),
)
@settings(max_examples=15, deadline=None)
def test_json_round_trip(values: dict[str, list[float]], name: str) -> None:
    once = scorecard(name, [suite_result("realism", rows("realism", values))], simulated=True, meta={"n": [1, None, "x"]})
    text = once.to_json()
    # NaN is not equal to itself, so cards are compared by what they write
    assert Scorecard.from_json(text).to_json() == text
    json.loads(text, parse_constant=lambda c: pytest.fail(f"{c} is not JSON"))


def test_json_round_trip_is_equal_when_every_bound_is_known() -> None:
    whole = card("x")
    assert Scorecard.from_json(whole.to_json()) == whole


GOOD = card("x").to_json()


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("", "whole file"),
        ("[]", "whole file"),
        (GOOD[:400], "whole file"),
        (GOOD.replace('"version": 1', '"version": 2'), "version"),
        (GOOD.replace('"auditrl.scorecard"', '"other"'), "format"),
        (GOOD.replace('"auditor": "x",', ""), "scorecard.auditor"),
        (GOOD.replace('"replicate": 0', '"replicate": "first"', 1), "replicate"),
    ],
)
def test_unreadable_cards_name_file_key_and_mend(text: str, key: str) -> None:
    with pytest.raises(RunError, match=rf"card\.json: .*{key}.*Score the logs again"):
        Scorecard.from_json(text, "card.json")
