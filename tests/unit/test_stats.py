"""Every statistic against scipy, statsmodels, scikit-learn or a worked example."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as sps
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint
from statsmodels.stats.weightstats import DescrStatsW

from auditrl.analysis import published, stats

RNG = np.random.default_rng(7)
X = RNG.normal(50, 12, 23).tolist()
Y = (np.asarray(X) * 0.6 + RNG.normal(0, 9, 23)).tolist()


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
def test_t_interval_matches_statsmodels(level: float) -> None:
    found = stats.t_interval(X, level)
    low, high = DescrStatsW(X).tconfint_mean(alpha=1 - level)
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.n == 23 and found.half == pytest.approx((high - low) / 2)


def test_t_interval_worked_example() -> None:
    # 2, 4, 6: mean 4, s = 2, t(0.975, 2) = 4.3027, half = 4.3027 * 2 / sqrt(3)
    found = stats.t_interval([2, 4, 6])
    assert found.mean == 4 and found.half == pytest.approx(4.96828, abs=1e-4)


def test_one_value_has_a_mean_and_no_interval() -> None:
    found = stats.t_interval([71.5])
    assert (found.mean, found.n, found.known) == (71.5, 1, False)
    assert math.isnan(found.half) and math.isnan(found.low) and math.isnan(found.high)


def test_seed_interval_averages_the_audits_of_a_seed_first() -> None:
    values, seeds = [10, 20, 30, 60, 60, 90], ["a", "a", "a", "b", "b", "c"]
    assert stats.seed_means(values, seeds) == {"a": 20, "b": 60, "c": 90}
    assert stats.seed_interval(values, seeds) == stats.t_interval([20, 60, 90])


@given(st.lists(st.floats(0, 100), min_size=2, max_size=8), st.integers(1, 4))
@settings(max_examples=15, deadline=None)
def test_copies_of_an_audit_narrow_nothing(values: list[float], copies: int) -> None:
    seeds = [str(i) for i in range(len(values))]
    once, often = stats.seed_interval(values, seeds), stats.seed_interval(values * copies, seeds * copies)
    assert (once.mean, once.half, once.n) == pytest.approx((often.mean, often.half, often.n))


@pytest.mark.parametrize(("successes", "n"), [(0, 16), (1, 16), (8, 16), (16, 16), (260, 270)])
def test_wilson_matches_statsmodels(successes: int, n: int) -> None:
    found = stats.wilson(successes, n)
    assert (found.low, found.high) == pytest.approx(proportion_confint(successes, n, method="wilson"))
    assert found.mean == successes / n and found.n == n


def test_pooled_behavior_interval_worked_example() -> None:
    # two behaviors, 1 of 4 and 4 of 4 found: s^2 = 0.25 and 0, SE = sqrt(0.25 / 4) / 2 = 0.125
    found = stats.pooled_behavior_interval({"a": [1, 0, 0, 0], "b": [1, 1, 1, 1]})
    assert (found.mean, found.half, found.n) == pytest.approx((0.625, 1.96 * 0.125, 8))
    assert not stats.pooled_behavior_interval({"a": [1], "b": [1, 0]}).known


def test_pooled_behavior_interval_can_produce_the_published_half_widths() -> None:
    """Every way in which 6 behaviors x 16 audits can come out, against the 64 printed pairs (rate, half width)."""
    counts = np.array(list(itertools.combinations_with_replacement(range(17), 6)))
    rates = np.round(100 * counts.sum(axis=1) / 96, 1)
    variance = (counts / 16 * (1 - counts / 16) * 16 / 15 / 16).sum(axis=1) / 36
    possible = set(zip(rates.tolist(), np.round(196 * np.sqrt(variance), 1).tolist(), strict=True))
    pairs = [pair for row in published.transfer() for pair in ((row.stc, row.stc_ci), (row.default, row.default_ci))]
    assert sum(pair in possible for pair in pairs) >= 58
    # the enumeration above is the function under test
    sample = counts[30_000]
    outcomes = {str(i): [1.0] * int(c) + [0.0] * (16 - int(c)) for i, c in enumerate(sample)}
    assert stats.pooled_behavior_interval(outcomes).half == pytest.approx(1.96 * math.sqrt(float(variance[30_000])))


def test_mean_of_intervals_reproduces_the_published_composite_half_widths() -> None:
    rows = [row for row in (*published.frontier(), *published.configurations(), *published.refresh_sweep()) if len(row.halves) == 4]
    assert len(rows) == 54
    for row in rows:
        parts = [stats.Interval.around(row.scores[s], row.halves[s], 90) for s in row.scores]
        # five numbers rounded to one decimal: 0.05 of its own, and at most 0.05 from the four
        assert stats.mean_of_intervals(parts).half == pytest.approx(row.composite_ci, abs=0.1), row.label


def test_paired_matches_scipy() -> None:
    found = stats.paired(X, Y)
    wanted = sps.ttest_rel(X, Y)
    bounds = wanted.confidence_interval(0.95)
    assert found.p == pytest.approx(wanted.pvalue)
    assert (found.difference.low, found.difference.high) == pytest.approx((bounds.low, bounds.high))
    assert found.p_sign == pytest.approx(sps.binomtest(found.wins, found.wins + found.losses).pvalue)


def test_paired_without_variation_falls_back_to_the_sign_test() -> None:
    constant = stats.paired([60] * 6, [50] * 6)
    assert constant.p == constant.p_sign == pytest.approx(2 / 2**6)
    equal = stats.paired([50.0] * 6, [50.0] * 6)
    assert (equal.p, equal.p_sign, equal.ties) == (1.0, 1.0, 6)
    single = stats.paired([3], [1])
    assert math.isnan(single.p) and math.isnan(single.p_sign) and (single.wins, single.ties) == (1, 0)


@pytest.mark.parametrize(("wins", "losses", "p"), [(0, 0, 1.0), (5, 0, 2 / 32), (9, 1, 22 / 1024), (3, 3, 1.0)])
def test_sign_test_by_hand(wins: int, losses: int, p: float) -> None:
    assert stats.sign_test(wins, losses) == pytest.approx(p)
    assert stats.sign_test(losses, wins) == pytest.approx(p)


@settings(max_examples=12, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_agrees_with_statsmodels(p_values: list[float]) -> None:
    assert stats.holm(p_values) == pytest.approx(list(multipletests(p_values, method="holm")[1]), abs=1e-12)


def test_holm_worked_example() -> None:
    # sorted: .005 x4, .01 x3, .03 x2, .04 x1 -> .02, .03, .06, .06 (never decreasing)
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_pearson_matches_scipy_and_fisher_by_hand() -> None:
    found = stats.pearson(X, Y)
    wanted: Any = sps.pearsonr(X, Y)
    assert (found.r, found.p) == pytest.approx((wanted.statistic, wanted.pvalue))
    z, half = math.atanh(found.r), 1.959964 / math.sqrt(len(X) - 3)
    assert (found.low, found.high) == pytest.approx((math.tanh(z - half), math.tanh(z + half)), abs=1e-6)


def test_pearson_matrix_is_symmetric_and_a_constant_column_is_undefined() -> None:
    matrix = stats.pearson_matrix({"x": X, "y": Y, "flat": [1.0] * len(X)})
    assert matrix["x", "y"].r == pytest.approx(matrix["y", "x"].r)
    assert matrix["x", "x"].r == pytest.approx(1)
    assert math.isnan(matrix["x", "flat"].r) and math.isnan(matrix["flat", "flat"].low)


def test_ols_matches_sklearn_in_sample_and_left_out() -> None:
    features = {"a": X, "b": RNG.normal(size=23).tolist()}
    found = stats.ols(features, Y)
    design, y = np.column_stack(list(features.values())), np.asarray(Y)
    model = LinearRegression().fit(design, y)
    assert found.coefficients == pytest.approx(model.coef_.tolist()) and found.intercept == pytest.approx(model.intercept_)
    assert found.r2 == pytest.approx(model.score(design, y))
    left_out: Any = cross_val_predict(LinearRegression(), design, y, cv=LeaveOneOut())
    assert found.predictions_loo == pytest.approx(left_out.tolist())
    assert found.r2_loo == pytest.approx(1 - ((y - left_out) ** 2).sum() / ((y - y.mean()) ** 2).sum())
    assert found.r2_loo < found.r2


def test_bootstrap_is_seeded_and_matches_scipy() -> None:
    found = stats.bootstrap(X, random_seed=5, resamples=999)
    assert found == stats.bootstrap(X, random_seed=5, resamples=999)
    assert found != stats.bootstrap(X, random_seed=6, resamples=999)
    wanted = sps.bootstrap((np.asarray(X),), lambda v: float(v.mean()), n_resamples=999, vectorized=False, rng=5).confidence_interval
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high))


def test_bootstrap_of_values_that_do_not_vary() -> None:
    assert stats.bootstrap([4.0] * 5, random_seed=1, resamples=99) == stats.Interval(4.0, 4.0, 4.0, 0.0, 5)
    assert not stats.bootstrap([4.0], random_seed=1).known


def test_cluster_bootstrap_is_wider_than_pretending_independence() -> None:
    values = [float(10 * c + i) for c in range(8) for i in range(3)]
    clusters = [str(c) for c in range(8) for _ in range(3)]
    whole = stats.cluster_bootstrap(values, clusters, random_seed=3, resamples=999)
    naive = stats.bootstrap(values, random_seed=3, resamples=999, method="percentile")
    assert whole.n == 8 and whole.half > 1.5 * naive.half
    # clusters of one are the plain bootstrap
    alone = stats.cluster_bootstrap(values, [str(i) for i in range(24)], random_seed=3, resamples=999)
    assert (alone.low, alone.high) == pytest.approx((naive.low, naive.high))


BAD: list[tuple[str, Callable[[], object]]] = [
    ("empty", lambda: stats.t_interval([])),
    ("NaN", lambda: stats.t_interval([1, math.nan])),
    ("infinite", lambda: stats.bootstrap([1, math.inf], random_seed=1)),
    ("level", lambda: stats.t_interval([1, 2], level=95)),
    ("lengths differ", lambda: stats.seed_interval([1, 2], ["a"])),
    ("lengths differ", lambda: stats.paired([1, 2], [1])),
    ("lengths differ", lambda: stats.pearson([1, 2, 3], [1, 2])),
    ("lengths differ", lambda: stats.cluster_bootstrap([1, 2], ["a"], random_seed=1)),
    ("not a proportion", lambda: stats.wilson(3, 2)),
    ("not a proportion", lambda: stats.wilson(0, 0)),
    ("no behavior", lambda: stats.pooled_behavior_interval({})),
    ("empty", lambda: stats.pooled_behavior_interval({"a": []})),
    ("empty", lambda: stats.mean_of_intervals([])),
    ("negative", lambda: stats.sign_test(-1, 2)),
    ("empty", lambda: stats.holm([])),
    ("between 0 and 1", lambda: stats.holm([0.5, 1.5])),
    ("at least 3", lambda: stats.pearson([1, 2], [1, 2])),
    ("no columns", lambda: stats.pearson_matrix({})),
    ("no features", lambda: stats.ols({}, [1, 2, 3])),
    ("3 rows for 2 features", lambda: stats.ols({"a": [1, 2, 4], "b": [2, 1, 1]}, [1, 2, 3])),
    ("collinear", lambda: stats.ols({"a": [1, 2, 3, 4, 5], "b": [2, 4, 6, 8, 10]}, [1, 2, 1, 2, 1])),
    ("outcome is constant", lambda: stats.ols({"a": [1, 2, 3, 4]}, [1, 1, 1, 1])),
    ("leverage 1", lambda: stats.ols({"a": [0, 0, 0, 1], "b": [1, 2, 3, 9]}, [1, 2, 1, 2])),
]


@pytest.mark.parametrize(("message", "call"), BAD)
def test_bad_input_is_named(message: str, call: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=message):
        call()
