"""Published findings, each a direction with a test on the study's own rows: reproduced, not reproduced, or not testable here.

A finding is reproduced when the 95% interval of its effect lies wholly beyond the margin in the published direction, not reproduced when it
lies wholly on the other side, and else not testable here: the interval holds both. No correction is made for their number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..analysis.stats import Interval, mean_of_intervals, pearson
from ..analysis.sweep_results import COMPOSITE
from ..analysis.tables import DASH, Column, Row, Table
from .data import Effect, StudyData, change, checkpoints, columns, difference, series
from .plan import TARGETS
from .regress import fits

Result = Literal["reproduced", "not reproduced", "not testable here"]
COLLAPSE = 40.0
"""Points of false-positive calibration; published falls are 65 to 95."""
KEPT = 5.0
"""Points that calibration may lose and still count as kept."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One published finding. `test` returns the effect, positive in the published direction, or why there is none."""

    name: str
    says: str
    """The published numbers."""
    test: Callable[[StudyData], Effect | str]
    margin: float = 0.0
    unit: str = "points"


@dataclass(frozen=True, slots=True)
class Judged:
    """What came of a finding."""

    finding: Finding
    result: Result
    effect: Effect | None
    why: str = ""


def judge(finding: Finding, data: StudyData) -> Judged:
    """Test one finding on what there is."""
    found = finding.test(data)
    if isinstance(found, str):
        return Judged(finding, "not testable here", None, found)
    interval = found.interval
    if not interval.known:
        return Judged(finding, "not testable here", found, "one observation has no interval")
    if interval.low > finding.margin:
        return Judged(finding, "reproduced", found)
    if interval.high <= finding.margin:
        return Judged(finding, "not reproduced", found)
    return Judged(finding, "not testable here", found, "undecided: the interval holds both; more random seeds would narrow it")


def judge_all(data: StudyData) -> list[Judged]:
    """Every finding, in the order of the table."""
    return [judge(finding, data) for finding in FINDINGS]


# ---------------------------------------------------------------- tests


def _signed(effect: Effect, sign: int) -> Effect:
    i = effect.interval
    return effect if sign > 0 else Effect(Interval(-i.mean, -i.high, -i.low, i.half, i.n), effect.over)


def _gap(metric: str, first: str, second: str = "", sign: int = 1) -> Callable[[StudyData], Effect | str]:
    """`first` minus `second` (empty: its start), times `sign`."""

    def test(data: StudyData) -> Effect | str:
        other = second or data.start_of(first)
        found = difference(data, first, other, metric)
        return _signed(found, sign) if found is not None else _lacks(data, first, other)

    return test


def _lacks(data: StudyData, *labels: str) -> str:
    planned = set(data.study.plan.labels)
    untrained = [label for label in labels if label not in planned]
    if untrained:
        return f"this study does not train {', '.join(untrained)}"
    unscored = [label for label in labels if not data.cards(label)]
    return f"no scores of {', '.join(unscored)}" if unscored else "no common scenario seed"


def _target_gap(group: tuple[str, str, str], metric: str, sign: int) -> Callable[[StudyData], Effect | str]:
    separate, shared, multi = group

    def test(data: StudyData) -> Effect | str:
        single = separate if separate in data.study.plan.labels else shared
        return _gap(metric, multi, single, sign)(data)

    return test


def _best_dose(data: StudyData) -> Effect | str:
    """4/8 against the best other dose, over both pairwise rewards."""
    effects: list[Effect] = []
    for kind in ("intragroup", "reference"):
        found = [difference(data, f"{kind} 4/8", f"{kind} {m}/8", COMPOSITE) for m in (0, 1, 2)]
        there = [one for one in found if one is not None]
        if there:
            effects.append(min(there, key=lambda one: one.interval.mean))
    if not effects:
        return _lacks(data, "intragroup 4/8", "intragroup 0/8", "reference 4/8", "reference 0/8")
    return Effect(mean_of_intervals([e.interval for e in effects]), effects[0].over)


def _reward_of_binary(data: StudyData) -> Effect | str:
    found = change(data, "binary", "reward")
    return found if found is not None else _no_rows(data, "binary")


def _no_rows(data: StudyData, label: str) -> str:
    return _lacks(data, label) if label not in data.study.plan.labels else f"{label}: too few steps to compare their first and last quarter"


def _longer_is_worse(data: StudyData) -> Effect | str:
    """Correlation of the step with calibration on held-back clean targets, while intragroup trains without calibration (sign turned)."""
    key, label = "probe.fp_calibration", "intragroup 0/8"
    points = [(float(place), value) for r in data.cells if r.cell.label == label for place, value in enumerate(series(r.rows, key))]
    if len(points) < 4:
        return _no_rows(data, label) if not points else f"{label}: {len(points)} probes, an interval needs 4"
    return _relation([x for x, _ in points], [-y for _, y in points], f"{len(points)} probes")


def _relation(x: Sequence[float], y: Sequence[float], over: str) -> Effect | str:
    found = pearson(x, y)
    if found.r != found.r:
        return "one of the two does not vary"
    return Effect(Interval(found.r, found.low, found.high, (found.high - found.low) / 2, found.n), over)


def _correlation(first: str, second: str, sign: int) -> Callable[[StudyData], Effect | str]:
    def test(data: StudyData) -> Effect | str:
        count = len(checkpoints(data))
        if count < 4:
            return f"{count} evaluated policies; an interval needs 4"
        table = columns(data)
        found = _relation(table[first], table[second], f"{count} evaluated policies")
        return found if isinstance(found, str) else _signed(found, sign)

    return test


def _cruxes(target: str) -> Callable[[StudyData], Effect | str]:
    """Correlation of the left-out predictions of three features with the score."""

    def test(data: StudyData) -> Effect | str:
        if not data.crux:
            return "no policy has played the cruxes"
        fit = next(fit for fit in fits(data) if fit.target == target)
        if fit.three is None or fit.n < 4:
            return f"{fit.n} policies with scores and cruxes; {fit.why or 'an interval needs 4'}"
        return _relation(fit.three.predictions_loo, fit.outcome, f"{fit.n} evaluated policies, each left out once")

    return test


def _approaches(data: StudyData) -> Effect | str:
    """Default chat minus scaffolded text completion, over scripted auditors that detect anything."""
    found: list[Interval] = []
    for result in data.transfer:
        rates: Mapping[str, Interval] = {a.approach: a.detection.interval for a in result.approaches}
        if {"default", "stc"} <= rates.keys() and any(rate.mean > 0 for rate in rates.values()):
            a, b = rates["default"], rates["stc"]
            if a.known and b.known:
                found.append(Interval.around(a.mean - b.mean, (a.half**2 + b.half**2) ** 0.5, a.n))
    if not found:
        return "no transfer evaluation with both approaches"
    return Effect(mean_of_intervals(found), f"audits of {len(found)} scripted auditors")


# ---------------------------------------------------------------- the table

FP, QUALITY, PRODUCTION, REALISM = "fp_calibration", "audit_quality", "production", "realism"

FINDINGS: tuple[Finding, ...] = (
    Finding(
        "Calibration rises with its dose (intragroup 4/8 over 0/8)",
        "6.3, 27.8, 93.3, 97.4 for 0, 1, 2, 4 of 8",
        _gap(FP, "intragroup 4/8", "intragroup 0/8"),
    ),
    Finding(
        "Two of eight already do most of it (2/8 over 0/8)", "93.3 against 6.3", _gap(FP, "intragroup 2/8", "intragroup 0/8"), COLLAPSE
    ),
    Finding(
        "Intragroup without calibration collapses (from its start)", "98.9 falls to 6.3", _gap(FP, "intragroup 0/8", sign=-1), COLLAPSE
    ),
    Finding("Concerningness collapses calibration (from its start)", "98.9 falls to 3.3", _gap(FP, "concerningness", sign=-1), COLLAPSE),
    Finding("Binary loses calibration (from its start)", "98.9 falls to 71.5", _gap(FP, "binary", sign=-1)),
    Finding("Reference 0/8 keeps calibration longer than intragroup 0/8", "93.0 against 6.3", _gap(FP, "reference 0/8", "intragroup 0/8")),
    Finding("Reference 4/8 keeps calibration (loses less than 5 points)", "98.9 to 100", _gap(FP, "reference 4/8"), -KEPT),
    Finding("Intragroup 4/8 keeps calibration (loses less than 5 points)", "98.9 to 97.4", _gap(FP, "intragroup 4/8"), -KEPT),
    Finding("Renewal matters: as every 50 steps over every 100", "98.1 against 65.9", _gap(FP, "renewed 50", "reference 0/8")),
    Finding("The best composite is at 4/8, against the best other dose", "48.1 against 42.7 (intragroup)", _best_dose),
    Finding("Binary first raises target-view detection (its reward)", "rises in training", _reward_of_binary, unit="share"),
    Finding("Binary then loses audit quality (from its start)", "71.8, 69.3, 57.5 by epoch", _gap(QUALITY, "binary", sign=-1)),
    Finding("Concerningness raises production discovery", "7.8 to 23.0", _gap(PRODUCTION, "concerningness")),
    Finding("Calibrated training raises audit quality (reference 4/8)", "65.6 to 72.7 in three epochs", _gap(QUALITY, "reference 4/8")),
    Finding("Calibrated training raises realism (reference 4/8)", "4.6 to 14.0 in three epochs", _gap(REALISM, "reference 4/8")),
    Finding("Longer training without calibration is worse", "58.5, 6.3, 2.8 by epoch", _longer_is_worse, unit="r, sign turned"),
    Finding("Multi-target intragroup 4/8 has lower audit quality", "50.5 against 71.0", _target_gap(TARGETS[0], QUALITY, -1)),
    Finding("Multi-target intragroup 4/8 keeps more calibration", "99.3 against 90.4", _target_gap(TARGETS[0], FP, 1)),
    Finding("Multi-target reference 4/8 has higher audit quality", "76.5 against 66.3", _target_gap(TARGETS[1], QUALITY, 1)),
    Finding("Production and calibration trade off", "r = \u22120.66", _correlation(PRODUCTION, FP, -1), unit="r, sign turned"),
    Finding("Calibration carries the composite", "r = 0.65", _correlation(FP, COMPOSITE, 1), unit="r"),
    Finding(
        "Crux features predict the identification rate", "R2 0.39 with three features", _cruxes("identification rate"), unit="r, left out"
    ),
    Finding("Crux features predict calibration", "R2 0.20 with three features", _cruxes("fp calibration"), unit="r, left out"),
    Finding("Default chat detects more than text completion", "33.3 against 11.5 untrained", _approaches),
)


def verdict_table(found: Sequence[Judged]) -> Table:
    """Findings, published numbers, our effect with interval, and the verdict."""
    columns_ = (
        Column("finding", "Published finding", text=True),
        Column("result", "Result", text=True),
        Column("effect", "Effect here", digits=2, spread=True, signed=True),
        Column("margin", "Must pass", digits=0, signed=True),
        Column("unit", "Unit", text=True),
        Column("published", "Published", text=True),
        Column("over", "Interval over", text=True),
        Column("why", "Why not", text=True),
    )
    rows = tuple(
        Row(
            (
                j.finding.name,
                j.result,
                j.effect.interval if j.effect is not None else None,
                j.finding.margin,
                j.finding.unit,
                j.finding.says,
                j.effect.over if j.effect is not None else DASH,
                j.why or DASH,
            )
        )
        for j in found
    )
    counts = ", ".join(f"{sum(j.result == name for j in found)} {name}" for name in ("reproduced", "not reproduced", "not testable here"))
    notes = (
        f"{len(found)} findings: {counts}. An effect is positive in the published direction; 95% intervals, not corrected for their number.",
        "Intervals over scenario seeds of one run leave out how much training again would change it; the full profile has three random seeds.",
        "\u201cReproduced\u201d means: the simulated world, whose rules are ours, shows the same direction. It says nothing about real models.",
    )
    return Table("Published findings", columns_, rows, notes)
