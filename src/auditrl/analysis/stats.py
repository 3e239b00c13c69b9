"""Statistics, one function a method, each answered by scipy, statsmodels or scikit-learn where they have it.

A leaf: it imports nothing of auditrl, so the evaluations below it and the figures beside it may both use it. The libraries are
loaded on first use: importing this module costs numpy alone.

Conventions: intervals are 95% unless `level` says otherwise; "seed" is the scenario instruction, the unit that is resampled or
averaged (audits of one seed are not independent); empty input, NaN, infinities and mixed lengths raise ValueError. One observation
has a mean and no interval: `half`, `low` and `high` are then NaN, and tables print "n = 1".
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
NORMAL_95 = 1.96
"""Multiplier of a standard error where the paper prints one (Rosu & Wang 2026, transfer test: pooled per-behavior SE x 1.96)."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its interval, in the units of the data.

    `half` is the half width; for asymmetric methods (Wilson, bootstrap) it is (high - low) / 2 and `low`, `high` are the interval.
    `n` counts the independent units (seeds, behaviors, auditors), not the audits.
    """

    mean: float
    low: float
    high: float
    half: float
    n: int

    @property
    def known(self) -> bool:
        """Whether there is an interval (False for no data and for n = 1)."""
        return math.isfinite(self.half)

    @staticmethod
    def around(mean: float, half: float, n: int) -> Interval:
        """Symmetric interval `mean` +- `half`."""
        return Interval(mean, mean - half, mean + half, half, n)


NO_DATA = Interval(math.nan, math.nan, math.nan, math.nan, 0)
"""What a suite shows when every audit failed or every verdict is missing."""


@dataclass(frozen=True, slots=True)
class Paired:
    """Mean of paired differences (first minus second), its t interval, and two tests of "no difference".

    `p` is the paired t test's; where the differences do not vary the t statistic is undefined and `p` is the sign test's.
    `p_sign` is the exact two-sided sign test over the pairs that differ. Both are NaN for a single pair, which tests nothing.
    """

    difference: Interval
    p: float
    p_sign: float
    wins: int
    losses: int
    ties: int


@dataclass(frozen=True, slots=True)
class Correlation:
    """Pearson's r with Fisher's z interval and the two-sided p. All NaN where a column is constant."""

    r: float
    low: float
    high: float
    p: float
    n: int


@dataclass(frozen=True, slots=True)
class Regression:
    """Least squares with intercept. `r2` in sample; `r2_loo` = 1 - PRESS / total sum of squares, the leave-one-out R2."""

    names: tuple[str, ...]
    intercept: float
    coefficients: tuple[float, ...]
    r2: float
    r2_loo: float
    n: int
    predictions: tuple[float, ...]
    predictions_loo: tuple[float, ...]


def _scipy_stats() -> Any:
    # untyped library; Any keeps strict checking of everything around it
    return import_module("scipy.stats")


def _numbers(values: Iterable[float], what: str = "values") -> Floats:
    numbers = np.asarray(list(values), dtype=np.float64)
    if numbers.ndim != 1:
        raise ValueError(f"{what}: expected plain numbers, got an array of shape {numbers.shape}")
    if numbers.size == 0:
        raise ValueError(f"{what}: empty; a statistic needs at least one number")
    if not np.isfinite(numbers).all():
        raise ValueError(
            f"{what}: {int((~np.isfinite(numbers)).sum())} of {numbers.size} are NaN or infinite; leave missing verdicts out first"
        )
    return numbers


def _same_length(left: Sequence[Any] | Floats, right: Sequence[Any] | Floats, what: str) -> None:
    if len(left) != len(right):
        raise ValueError(f"{what}: lengths differ ({len(left)} and {len(right)})")


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level: {level} is not between 0 and 1 (0.95 for a 95% interval)")


# ---------------------------------------------------------------- means and proportions


def t_interval(values: Iterable[float], level: float = LEVEL) -> Interval:
    """Mean and Student t interval of independent values: mean +- t(n-1) * s / sqrt(n). n = 1 gives NaN bounds."""
    _check_level(level)
    numbers = _numbers(values)
    mean, n = float(numbers.mean()), int(numbers.size)
    if n == 1:
        return Interval(mean, math.nan, math.nan, math.nan, 1)
    sem = float(numbers.std(ddof=1)) / math.sqrt(n)
    return Interval.around(mean, float(_scipy_stats().t.ppf((1 + level) / 2, n - 1)) * sem, n)


def seed_means(values: Sequence[float], seeds: Sequence[str]) -> dict[str, float]:
    """Average of the audits of each seed, in the order in which the seeds first appear."""
    _same_length(values, seeds, "values and seeds")
    numbers = _numbers(values)
    groups: dict[str, list[float]] = {}
    for seed, value in zip(seeds, numbers.tolist(), strict=True):
        groups.setdefault(seed, []).append(value)
    return {seed: math.fsum(group) / len(group) for seed, group in groups.items()}


def seed_interval(values: Sequence[float], seeds: Sequence[str], level: float = LEVEL) -> Interval:
    """The paper's suite interval: average the audits of a seed, then a t interval over seeds (Rosu & Wang 2026, evaluation suite)."""
    return t_interval(seed_means(values, seeds).values(), level)


def wilson(successes: int, n: int, level: float = LEVEL) -> Interval:
    """Wilson score interval of a proportion, 0-1. `mean` is successes / n, which is not the interval's centre."""
    _check_level(level)
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"wilson: {successes} successes of {n} trials is not a proportion")
    found = _scipy_stats().binomtest(int(successes), int(n)).proportion_ci(confidence_level=level, method="wilson")
    low, high = float(found.low), float(found.high)
    return Interval(successes / n, low, high, (high - low) / 2, n)


def rate_interval(percents: Sequence[float], seeds: Sequence[str], level: float = LEVEL) -> Interval:
    """Interval of a rate in % whose observations (0-100) come in seeds: t over seed means, as `seed_interval`.

    Where every observation is 0, or every one is 100, the t interval has no width; Wilson's over the seeds is given then.
    """
    interval = seed_interval(percents, seeds, level)
    if interval.mean not in (0.0, 100.0):
        return interval
    n = len(set(seeds))
    found = wilson(n if interval.mean else 0, n, level)
    return Interval(interval.mean, 100 * found.low, 100 * found.high, 100 * found.half, n)


def pooled_behavior_interval(outcomes: Mapping[str, Sequence[float]]) -> Interval:
    """Mean over behaviors with a pooled per-behavior standard error x 1.96 (Rosu & Wang 2026, transfer test).

    Behaviors are fixed, audits within a behavior are the sample: SE = sqrt(sum_b s_b^2 / n_b) / B, where s_b^2 has the n - 1
    denominator. With it 58 of the 64 published pairs of rate and half width can occur with 6 behaviors x 16 audits (50 with n).
    `n` counts audits. A behavior with a single audit leaves the interval NaN: its spread is unknown.
    """
    if not outcomes:
        raise ValueError("outcomes: no behavior; the pooled interval needs at least one")
    groups = {name: _numbers(values, f"outcomes[{name!r}]") for name, values in outcomes.items()}
    mean = float(np.mean([g.mean() for g in groups.values()]))
    total = sum(int(g.size) for g in groups.values())
    if any(g.size == 1 for g in groups.values()):
        return Interval(mean, math.nan, math.nan, math.nan, total)
    variance = sum(float(g.var(ddof=1)) / g.size for g in groups.values()) / len(groups) ** 2
    return Interval.around(mean, NORMAL_95 * math.sqrt(variance), total)


def mean_of_intervals(parts: Sequence[Interval]) -> Interval:
    """Plain mean of independent means; half widths combine in quadrature: sqrt(sum half^2) / k. `n` is the number of parts.

    This is the composite's interval. It reproduces the published half widths from the four that it is made of.
    """
    _numbers((p.mean for p in parts), "means")
    k = len(parts)
    return Interval.around(math.fsum(p.mean for p in parts) / k, math.sqrt(math.fsum(p.half**2 for p in parts)) / k, k)


# ---------------------------------------------------------------- comparisons


def paired(first: Sequence[float], second: Sequence[float], level: float = LEVEL) -> Paired:
    """Compare two series whose entries belong together (the same seeds in the same order)."""
    _same_length(first, second, "paired series")
    differences = _numbers(first, "first") - _numbers(second, "second")
    interval = t_interval(differences, level)
    wins, losses = int((differences > 0).sum()), int((differences < 0).sum())
    if differences.size == 1:
        return Paired(interval, math.nan, math.nan, wins, losses, 1 - wins - losses)
    p_sign = sign_test(wins, losses)
    varies = bool(np.ptp(differences) > 1e-12 * max(1.0, float(np.abs(differences).max())))
    p = float(_scipy_stats().ttest_1samp(differences, 0.0).pvalue) if varies else p_sign
    return Paired(interval, p, p_sign, wins, losses, int(differences.size) - wins - losses)


def sign_test(wins: int, losses: int) -> float:
    """Exact two-sided sign test; ties are left out by the caller. 1 when there is nothing to compare."""
    if wins < 0 or losses < 0:
        raise ValueError(f"sign test: counts can't be negative ({wins} wins, {losses} losses)")
    if wins + losses == 0:
        return 1.0
    return float(_scipy_stats().binomtest(wins, wins + losses, 0.5).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p values, in the order given (family-wise error): running maximum of (n - rank) p, at most 1.

    Written out because `statsmodels.stats.multitest`, which the tests compare with, runs the garbage collector at every call.
    """
    numbers = _numbers(p_values, "p values")
    if bool((numbers < 0).any() or (numbers > 1).any()):
        raise ValueError("p values: not all between 0 and 1")
    order = np.argsort(numbers, kind="stable")
    stepped = np.maximum.accumulate((numbers.size - np.arange(numbers.size)) * numbers[order])
    adjusted = np.empty_like(numbers)
    adjusted[order] = np.minimum(stepped, 1.0)
    return [float(p) for p in adjusted]


# ---------------------------------------------------------------- relations


def pearson(x: Sequence[float], y: Sequence[float], level: float = LEVEL) -> Correlation:
    """Pearson correlation with Fisher interval. Needs 3 pairs; with exactly 3 the interval is all of -1..1."""
    _check_level(level)
    _same_length(x, y, "correlation columns")
    left, right = _numbers(x, "x"), _numbers(y, "y")
    n = int(left.size)
    if n < 3:
        raise ValueError(f"correlation: {n} pairs; it needs at least 3")
    if np.ptp(left) == 0 or np.ptp(right) == 0:
        return Correlation(math.nan, math.nan, math.nan, math.nan, n)
    found = _scipy_stats().pearsonr(left, right)
    bounds = found.confidence_interval(confidence_level=level)
    return Correlation(float(found.statistic), float(bounds.low), float(bounds.high), float(found.pvalue), n)


def pearson_matrix(columns: Mapping[str, Sequence[float]], level: float = LEVEL) -> dict[tuple[str, str], Correlation]:
    """Correlation of every pair of columns, both orders and the diagonal; keys are (row, column) names."""
    if not columns:
        raise ValueError("correlation matrix: no columns")
    return {(a, b): pearson(columns[a], columns[b], level) for a in columns for b in columns}


def ols(features: Mapping[str, Sequence[float]], outcome: Sequence[float]) -> Regression:
    """Ordinary least squares of `outcome` (n) on named features (n each) with intercept, through statsmodels.

    Leave-one-out predictions come from the leverages, e_i / (1 - h_ii), so nothing is refitted. Raises ValueError for fewer than
    k + 2 rows, collinear features, a constant outcome, or a row that alone determines a coefficient (leverage 1).
    """
    y = _numbers(outcome, "outcome")
    if not features:
        raise ValueError("regression: no features")
    for name, column in features.items():
        _same_length(column, y, f"feature {name!r} and outcome")
    design = np.column_stack([np.ones(y.size), *(_numbers(column, f"feature {name!r}") for name, column in features.items())])
    if y.size < design.shape[1] + 1:
        raise ValueError(f"regression: {y.size} rows for {len(features)} features; it needs at least {design.shape[1] + 1}")
    if int(np.linalg.matrix_rank(design)) < design.shape[1]:
        raise ValueError("regression: features are collinear or constant; leave one out")
    if np.ptp(y) == 0:
        raise ValueError("regression: the outcome is constant")
    linear_model: Any = import_module("statsmodels.regression.linear_model")
    fit: Any = linear_model.OLS(y, design).fit()
    leverage = np.asarray(fit.get_influence().hat_matrix_diag, dtype=np.float64)
    if bool((leverage > 1 - 1e-9).any()):
        raise ValueError("regression: one row alone determines a coefficient (leverage 1); leave-one-out is undefined")
    held_out = np.asarray(fit.resid, dtype=np.float64) / (1 - leverage)
    total = float(((y - y.mean()) ** 2).sum())
    params = [float(p) for p in fit.params]
    return Regression(
        names=tuple(features),
        intercept=params[0],
        coefficients=tuple(params[1:]),
        r2=float(fit.rsquared),
        r2_loo=1 - float((held_out**2).sum()) / total,
        n=int(y.size),
        predictions=tuple(float(v) for v in fit.fittedvalues),
        predictions_loo=tuple((y - held_out).tolist()),
    )


# ---------------------------------------------------------------- resampling


def _mean(values: Floats) -> float:
    return float(values.mean())


def bootstrap(
    values: Sequence[float],
    statistic: Callable[[Floats], float] = _mean,
    *,
    random_seed: int,
    resamples: int = 9_999,
    level: float = LEVEL,
    method: Literal["BCa", "percentile"] = "BCa",
) -> Interval:
    """Bootstrap interval of a statistic of independent values (scipy's); the same random seed gives the same interval.

    `mean` is the statistic of the data itself. Where BCa is undefined (values that do not vary) the percentile interval is given.
    """
    numbers = _numbers(values)
    return _resample(int(numbers.size), lambda drawn: statistic(numbers[drawn]), random_seed, resamples, level, method)


def cluster_bootstrap(
    values: Sequence[float],
    clusters: Sequence[str],
    statistic: Callable[[Floats], float] = _mean,
    *,
    random_seed: int,
    resamples: int = 9_999,
    level: float = LEVEL,
    method: Literal["BCa", "percentile"] = "percentile",
) -> Interval:
    """Bootstrap that draws whole clusters (all audits of a seed together). `n` is the number of clusters."""
    _same_length(values, clusters, "values and clusters")
    numbers = _numbers(values)
    labels = np.asarray(clusters)
    groups: list[Floats] = [numbers[labels == name] for name in dict.fromkeys(clusters)]

    def of_clusters(drawn: NDArray[np.int64]) -> float:
        return statistic(np.concatenate([groups[int(i)] for i in drawn]))

    return _resample(len(groups), of_clusters, random_seed, resamples, level, method)


def _resample(
    n: int, of_units: Callable[[NDArray[np.int64]], float], random_seed: int, resamples: int, level: float, method: str
) -> Interval:
    """Interval of `of_units(indices)` under resampling of n units."""
    _check_level(level)
    units = np.arange(n)
    point = float(of_units(units))
    if n == 1:
        return Interval(point, math.nan, math.nan, math.nan, 1)
    low = high = math.nan
    # BCa's bias correction is undefined when the statistic never (or always) falls below the point: percentile then
    for kind in dict.fromkeys((method, "percentile")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = _scipy_stats().bootstrap(
                (units,), of_units, n_resamples=resamples, vectorized=False, confidence_level=level, method=kind, rng=random_seed
            )
        low, high = float(found.confidence_interval.low), float(found.confidence_interval.high)
        if math.isfinite(low) and math.isfinite(high):
            break
    return Interval(point, low, high, (high - low) / 2, n)
