"""How well crux features predict the suite: least squares over the evaluated policies (Rosu & Wang 2026, crux evaluation)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..analysis.stats import Regression, ols
from ..evals.crux import FEATURES
from ..evals.scores import Scorecard
from .data import StudyData, checkpoints

THREE = ("target_view", "auditor_view", "pairwise_win")
"""The three rates; which three the paper took is not published."""
TARGETS: Mapping[str, str] = {
    "realism": "realism",
    "production needs_attention": "production.needs_attention",
    "production concerning": "production.concerning",
    "identification rate": "audit_quality.identified",
    "coherence": "audit_quality.coherence",
    "depth": "audit_quality.depth",
    "evidence quality": "audit_quality.evidence",
    "fp calibration": "fp_calibration",
}
"""Published name -> our score."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Regressions of one suite score. `why` says why one is missing."""

    target: str
    n: int
    three: Regression | None
    eight: Regression | None
    outcome: tuple[float, ...]
    why: str = ""


def fits(data: StudyData) -> list[Fit]:
    """One fit a published target, over the policies that have both scores and cruxes."""
    both = [(card, data.crux[name].values) for name, _, card in checkpoints(data) if name in data.crux]
    return [_fit(target, key, both) for target, key in TARGETS.items()]


def _fit(target: str, key: str, both: Sequence[tuple[Scorecard, Mapping[str, float]]]) -> Fit:
    rows = [(value, features) for card, features in both if (value := _value(card, key)) is not None]
    outcome = tuple(value for value, _ in rows)
    found: list[Regression | None] = []
    reasons: list[str] = []
    for names in (THREE, FEATURES):
        # the held-out rate equals the plain one where every crux is of a held-out behavior
        kept = [name for name in names if all(name in features for _, features in rows)]
        table = {name: [features[name] for _, features in rows] for name in kept}
        if "target_view_held_out" in table and table["target_view_held_out"] == table.get("target_view"):
            del table["target_view_held_out"]
        try:
            found.append(ols(table, outcome))
        except ValueError as error:
            found.append(None)
            reasons.append(f"{len(names)} features: {str(error).removeprefix('regression: ')}")
    return Fit(target, len(rows), found[0], found[1], outcome, "; ".join(reasons))


def _value(card: Scorecard, key: str) -> float | None:
    suite, _, part = key.partition(".")
    result = card.suites.get(suite)
    found = None if result is None else result.parts.get(part) if part else result.interval
    return found.mean if found is not None and found.n else None
