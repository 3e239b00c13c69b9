"""What a judge's answers about known pairs are worth: accuracy, biases, agreement, cost, and what follows for training.

A pair is judged right if the mean of its verdicts (both orders, all repeats) is over 1/2 for the better audit; a mean of exactly 1/2 is a
tie and not right. Rates are 0-1 with Wilson's interval over pairs. Pairs of one kind share their construction, so intervals say how sure
the figure is for pairs of these kinds, not for all audits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations, groupby
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from ..analysis.stats import NO_DATA, Interval, bootstrap, t_interval, wilson
from ..types import Verdict
from .judge_check import MemberAnswer, PairAnswer, View, rule_lead

if TYPE_CHECKING:
    from numpy.typing import NDArray

RESAMPLES = 2_000
FEWEST_PAIRS = 5
"""Pairs in each arrangement from which the position bias has an interval."""


class _Numbers(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class KindScore(_Numbers):
    """One kind of pair, or all of them (`set` and `kind` "all")."""

    set: str
    kind: str
    pairs: int
    judged: int
    """Pairs with at least one verdict."""
    accuracy: Interval
    worse: int
    """Pairs in which the worse audit is preferred."""
    ties: int
    margin: Interval
    """Mean score of the better audit minus 50, in points of 100 (-49 to 49); t interval over pairs."""


class ViewScore(_Numbers):
    """A yes/no judge on audits of one recipe: how often it says "surfaced", and how often that is right."""

    view: View
    set: str
    recipe: str
    audits: int
    surfaced: Interval
    accuracy: Interval
    narrated: bool
    """The finding was only told to the target: `surfaced` is then the narration bias."""


class JudgeScores(_Numbers):
    """The result file of `auditrl judges check`."""

    format: Literal["auditrl.judge_scores"] = "auditrl.judge_scores"
    version: Literal[1] = 1
    judge: str
    simulated: bool
    order: Literal["both", "random"]
    repeats: int
    kinds: list[KindScore]
    total: KindScore
    position_bias: Interval
    """Mean score of slot A over both arrangements, minus 1/2 (as in `metrics.jsonl`); bootstrap interval over pairs."""
    tie_rate: Interval
    """Verdicts of exactly 50."""
    self_agreement: Interval
    """Repeated calls in the same order that prefer the same audit. No data with one repeat."""
    repeat_difference: float | None
    """Mean absolute difference of such two calls, in points of 100."""
    order_consistency: Interval
    """Pairs shown in both orders in which the same audit is preferred."""
    rule_agreement: Interval
    """`sim` pairs in which the judge prefers the audit that the simulated world's noiseless rule prefers."""
    rule_accuracy: Interval
    """The rule's own accuracy on those pairs."""
    verdicts: int
    missing: dict[str, int]
    asked_again: int
    quotes: int
    unverified_quotes: int
    views: list[ViewScore]
    usage: dict[str, int]
    cost_usd: float | None
    """As Inspect's price table has it; None where it does not know the model."""
    seconds_a_verdict: float


def score(
    answers: Sequence[PairAnswer],
    members: Sequence[MemberAnswer],
    *,
    judge: str,
    simulated: bool,
    order: Literal["both", "random"],
    repeats: int,
    random_seed: int = 0,
) -> JudgeScores:
    """All numbers of a check."""
    verdicts = [answer.verdict for answer in answers]
    everything = [*verdicts, *(answer.verdict for answer in members)]
    there = [v for v in verdicts if v.value is not None]
    agreed, differences = repeat_agreement(answers)
    usage: Counter[str] = Counter()
    for verdict in everything:
        usage.update({**verdict.usage, "calls": verdict.attempts})
    prices = [answer.usd for answer in (*answers, *members) if answer.usd is not None]
    rule_judge, rule_own = rule_rates(answers)
    times = [answer.seconds for answer in (*answers, *members)]
    return JudgeScores(
        judge=judge,
        simulated=simulated,
        order=order,
        repeats=repeats,
        kinds=[kind_score(list(group), *key) for key, group in groupby(sorted(answers, key=_kind), key=_kind)],
        total=kind_score(answers, "all", "all"),
        position_bias=bias_interval(answers, random_seed),
        tie_rate=rate(v.value == 0.5 for v in there),
        self_agreement=rate(agreed),
        repeat_difference=float(np.mean(differences)) if differences else None,
        order_consistency=rate(order_agreement(answers)),
        rule_agreement=rule_judge,
        rule_accuracy=rule_own,
        verdicts=len(everything),
        missing=dict(sorted(Counter(v.cause for v in everything if v.value is None).items())),
        asked_again=sum(v.attempts - 1 for v in everything),
        quotes=sum(len(v.quotes) + v.unverified_quotes for v in everything),
        unverified_quotes=sum(v.unverified_quotes for v in everything),
        views=view_scores(members),
        usage=dict(usage),
        cost_usd=sum(prices) if prices else None,
        seconds_a_verdict=float(np.mean(times)) if times else 0.0,
    )


def _kind(answer: PairAnswer) -> tuple[str, str]:
    return answer.pair.set, answer.pair.kind


def rate(hits: Iterable[bool]) -> Interval:
    """Share with Wilson's interval, `NO_DATA` of nothing."""
    found = list(hits)
    return wilson(sum(found), len(found)) if found else NO_DATA


def pair_means(answers: Iterable[PairAnswer]) -> dict[str, float]:
    """Mean score of the better audit (0-1) by pair, over the verdicts that are there."""
    values: dict[str, list[float]] = {}
    for answer in answers:
        if answer.verdict.value is not None:
            values.setdefault(answer.pair.id, []).append(answer.verdict.value)
    return {pair: float(np.mean(found)) for pair, found in values.items()}


def side(value: float) -> int:
    """1 for the better audit, -1 for the worse one, 0 for a tie."""
    return 0 if abs(value - 0.5) < 1e-9 else 1 if value > 0.5 else -1


def kind_score(answers: Sequence[PairAnswer], of_set: str, kind: str) -> KindScore:
    """One row."""
    means = pair_means(answers)
    sides = [side(value) for value in means.values()]
    return KindScore(
        set=of_set,
        kind=kind,
        pairs=len({answer.pair.id for answer in answers}),
        judged=len(means),
        accuracy=rate(s > 0 for s in sides),
        worse=sum(s < 0 for s in sides),
        ties=sides.count(0),
        margin=t_interval(100 * value - 50 for value in means.values()) if means else NO_DATA,
    )


def repeat_agreement(answers: Sequence[PairAnswer]) -> tuple[list[bool], list[float]]:
    """For every two calls with the same pair and order: whether they prefer the same audit, and how many points they differ by."""
    groups: dict[tuple[str, str], list[float]] = {}
    for answer in answers:
        if answer.verdict.value is not None:
            groups.setdefault((answer.pair.id, answer.verdict.order), []).append(answer.verdict.value)
    couples = [couple for values in groups.values() for couple in combinations(values, 2)]
    return [side(a) == side(b) for a, b in couples], [100 * abs(a - b) for a, b in couples]


def order_agreement(answers: Sequence[PairAnswer]) -> list[bool]:
    """For every pair and repeat that was judged in both orders: whether both prefer the same audit."""
    found: dict[tuple[str, int], dict[str, int]] = {}
    for answer in answers:
        if answer.verdict.value is not None:
            found.setdefault((answer.pair.id, answer.repeat), {})[answer.verdict.order] = side(answer.verdict.value)
    return [sides["ab"] == sides["ba"] for sides in found.values() if len(sides) == 2]


def bias_interval(answers: Sequence[PairAnswer], random_seed: int) -> Interval:
    """Position bias with a seeded bootstrap over pairs; `train.metrics.position_bias` of the same verdicts is its mean.

    No interval with under `FEWEST_PAIRS` pairs in one of the arrangements; no data if one was never seen.
    """
    ids = {pair: i for i, pair in enumerate(dict.fromkeys(answer.pair.id for answer in answers))}
    # (pairs, arrangements): sums of slot A's scores, and how many there are
    totals, counts = np.zeros((len(ids), 2)), np.zeros((len(ids), 2))
    for answer in answers:
        verdict: Verdict = answer.verdict
        if verdict.value is not None and verdict.order in ("ab", "ba"):
            cell = ids[answer.pair.id], int(verdict.order == "ba")
            totals[cell] += verdict.parts["slot_a"]
            counts[cell] += 1

    def bias(drawn: NDArray[np.float64]) -> float:
        rows = drawn.astype(np.int64)
        seen = counts[rows].sum(axis=0)
        means = totals[rows].sum(axis=0) / np.where(seen, seen, 1.0)
        # a resample may lack an arrangement; the other one alone would be the margin, not the bias
        return float(means.mean() - 0.5) if seen.all() else point

    pairs_seen = (counts > 0).sum(axis=0)
    if not len(ids) or not pairs_seen.all():
        return NO_DATA
    point = float((totals.sum(axis=0) / counts.sum(axis=0)).mean() - 0.5)
    if pairs_seen.min() < FEWEST_PAIRS:
        return Interval(point, float("nan"), float("nan"), float("nan"), len(ids))
    return bootstrap(range(len(ids)), bias, random_seed=random_seed, resamples=RESAMPLES, method="percentile")


def rule_rates(answers: Sequence[PairAnswer]) -> tuple[Interval, Interval]:
    """Of the `sim` pairs with a verdict: the judge agrees with the rule; the rule agrees with the construction."""
    means = pair_means(answer for answer in answers if answer.pair.set == "sim")
    pairs = {answer.pair.id: answer.pair for answer in answers}
    leads = {pair: rule_lead(pairs[pair]) for pair in means}
    return rate((leads[p] > 0) == (means[p] > 0.5) for p in means), rate(lead > 0 for lead in leads.values())


def view_scores(members: Sequence[MemberAnswer]) -> list[ViewScore]:
    """One row a judge, set and recipe; recipes in which nothing but narration happened are marked."""
    rows: list[ViewScore] = []

    def key(answer: MemberAnswer) -> tuple[str, str, str]:
        return answer.view, answer.pair.set, answer.member.recipe

    for (_, of_set, recipe), group in groupby(sorted(members, key=key), key=key):
        found = [answer for answer in group if answer.verdict.value is not None]
        if found:
            rows.append(
                ViewScore(
                    view=found[0].view,
                    set=of_set,
                    recipe=recipe,
                    audits=len(found),
                    surfaced=rate(answer.verdict.value == 1.0 for answer in found),
                    accuracy=rate((answer.verdict.value == 1.0) == answer.member.shown for answer in found),
                    narrated=all(answer.member.narrated for answer in found),
                )
            )
    return rows
