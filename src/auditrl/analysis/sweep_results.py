"""The numbers of a sweep: values of a run, their interval over random seeds, and what came of the expectations.

Reads run directories only. Intervals are 95% t intervals over random seeds (each run is one observation), differences are paired by random
seed: runs of one seed meet the same evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ..errors import RunError
from ..evals.scores import SUITES, Scorecard
from ..runs import open_run
from ..train.sweep import Outcome, standing
from ..train.sweep_file import Cell, Expect, Plan
from .run_report import read_card
from .stats import Interval, paired, t_interval

COMPOSITE = "composite"
Verdict = Literal["came out", "did not", "undecided", "no data"]


@dataclass(frozen=True, slots=True)
class CellResult:
    """One run, or one start (no rows). `card` is None until it is evaluated."""

    cell: Cell
    outcome: Outcome
    card: Scorecard | None
    rows: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Finding:
    """An expectation and what came of it. `effect`: the difference in the expected direction, or the value that has a bound."""

    statement: str
    verdict: Verdict
    effect: Interval | None
    detail: str
    says: str


# ---------------------------------------------------------------- values


def collect(plan: Plan, out: Path) -> tuple[CellResult, ...]:
    """How every cell of a plan stands, with its scores and rows. RunError if none has begun."""
    found: list[CellResult] = []
    for cell in plan.cells:
        path = out / cell.name
        if (path / "run.json").exists():
            run = open_run(path)
            found.append(CellResult(cell, standing(cell, out), read_card(run, "before" if cell.is_start else "after"), run.metrics()))
        else:
            found.append(CellResult(cell, standing(cell, out), None, ()))
    if not any(result.card is not None or result.rows for result in found):
        raise RunError(f"{out}: no run of the sweep {plan.file.name!r} has results yet; run it without --report")
    return tuple(found)


def value(result: CellResult, metric: str, moment: str = "end") -> float | None:
    """One number of one run, None where there is none.

    Args:
        metric: A suite, `composite`, `suite.part`, `target_view` and `auditor_view` (%), `alarms` (steps that raised one), `alarm_step` (of
            the first), `alarm_share` (the same as a share of all steps, 1 without alarm), or a dotted key of the metrics rows, averaged over
            the last fifth of the steps that have it.
        moment: `begin` takes the first fifth instead.
    """
    suite, _, part = metric.partition(".")
    if metric == COMPOSITE or suite in SUITES:
        return _score(result.card, suite, part)
    if metric in ("alarms", "alarm_step", "alarm_share"):
        return _alarms(result, metric)
    if metric in ("target_view", "auditor_view"):
        return _view(result, metric, moment)
    found = [v for row in result.rows if (v := dotted(row, metric)) is not None]
    window = max(1, len(found) // 5)
    chosen = found[:window] if moment == "begin" else found[-window:]
    return math.fsum(chosen) / len(chosen) if chosen else None


def _score(card: Scorecard | None, suite: str, part: str) -> float | None:
    if card is None:
        return None
    if suite == COMPOSITE:
        interval = card.composite
    elif suite not in card.suites:
        return None
    else:
        interval = card.suites[suite].parts.get(part) if part else card.suites[suite].interval
    return interval.mean if interval is not None and math.isfinite(interval.mean) else None


def _view(result: CellResult, metric: str, moment: str) -> float | None:
    """The judges' detection rate: the reward itself of a binary run, else that of the cruxes that a probe played."""
    if metric == "target_view" and result.cell.config.reward.kind == "binary":
        rate = value(result, "reward_planted", moment)
        return None if rate is None else 100 * rate
    return value(result, f"probe.crux_{metric}", moment)


def dotted(row: Mapping[str, Any], key: str) -> float | None:
    """`probe.fp_calibration` of a nested row; None unless it is a finite number."""
    found: Any = row
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return float(found) if isinstance(found, (int, float)) and math.isfinite(found) else None


def _alarms(result: CellResult, metric: str) -> float | None:
    if not result.rows:
        return None
    raised = [float(row["step"]) for row in result.rows if row.get("alarms")]
    if metric == "alarms":
        return float(len(raised))
    if metric == "alarm_step":
        return raised[0] if raised else None
    return raised[0] / result.cell.config.train.steps if raised else 1.0


def by_seed(cells: Sequence[CellResult], name: str, metric: str) -> dict[int, float]:
    """Random seed -> value of a label; `name` may end in `@begin` or `@end`."""
    label, _, moment = name.partition("@")
    found = {r.cell.random_seed: value(r, metric, moment or "end") for r in cells if r.cell.label == label}
    return {seed: number for seed, number in found.items() if number is not None}


def over_seeds(cells: Sequence[CellResult], label: str, metric: str) -> Interval | None:
    """Mean and t interval over random seeds, None without a value."""
    numbers = by_seed(cells, label, metric)
    return t_interval(numbers.values()) if numbers else None


# ---------------------------------------------------------------- expectations


def examine(expect: Expect, cells: Sequence[CellResult], plan: Plan) -> Finding:
    """Whether a statement holds over the random seeds.

    A comparison came out when the paired 95% interval lies beyond `by` in the expected direction, did not when it lies wholly on the
    other side, and is undecided between. A bound came out when every random seed keeps it, did not when their mean breaks it.
    """
    if expect.of is not None:
        return _bound(expect, cells)
    if expect.best:
        return _best(expect, cells, plan)
    assert expect.than is not None
    ours = expect.higher or expect.lower or ""
    other = expect.than
    if other == "start":
        other = plan.start_of.get(ours.partition("@")[0], other)
    words = "higher" if expect.higher else "lower"
    statement = f"{expect.metric}: {ours} {words} than {expect.than}" + (f" by {expect.by:g}" if expect.by else "")
    return _compared(
        expect, statement, by_seed(cells, ours, expect.metric), by_seed(cells, other, expect.metric), 1 if expect.higher else -1
    )


def _compared(expect: Expect, statement: str, first: Mapping[int, float], second: Mapping[int, float], sign: int) -> Finding:
    common = sorted(first.keys() & second.keys())
    if not common:
        return Finding(statement, "no data", None, "no random seed has both", expect.says)
    effect = paired([sign * first[s] for s in common], [sign * second[s] for s in common]).difference
    shown = ", ".join(f"{second[s]:.1f} to {first[s]:.1f}" if abs(first[s]) >= 2 else f"{second[s]:.2f} to {first[s]:.2f}" for s in common)
    if not effect.known:
        return Finding(statement, "undecided", effect, f"one random seed: {shown}", expect.says)
    verdict: Verdict = "came out" if effect.low > expect.by else "did not" if effect.high <= expect.by else "undecided"
    return Finding(statement, verdict, effect, shown, expect.says)


def _bound(expect: Expect, cells: Sequence[CellResult]) -> Finding:
    least = expect.at_least is not None
    limit = expect.at_least if expect.at_least is not None else expect.at_most
    assert limit is not None and expect.of is not None
    statement = f"{expect.metric}: {expect.of} at {'least' if least else 'most'} {limit:g} on every random seed"
    numbers = by_seed(cells, expect.of, expect.metric)
    if not numbers:
        return Finding(statement, "no data", None, "no random seed has a value", expect.says)

    def keeps(number: float) -> bool:
        return number >= limit if least else number <= limit

    mean = t_interval(numbers.values())
    verdict: Verdict = "came out" if all(map(keeps, numbers.values())) else "undecided" if keeps(mean.mean) else "did not"
    return Finding(statement, verdict, mean, ", ".join(f"{numbers[s]:.1f}" for s in sorted(numbers)), expect.says)


def _best(expect: Expect, cells: Sequence[CellResult], plan: Plan) -> Finding:
    statement = f"{expect.metric}: best of all is {' or '.join(expect.best)}"
    labels = [label for label in plan.start_of or plan.labels if label not in expect.best]

    def top(names: Sequence[str]) -> str | None:
        means = {name: found.mean for name in names if (found := over_seeds(cells, name, expect.metric)) is not None}
        return max(means, key=lambda name: means[name]) if means else None

    ours, other = top(expect.best), top(labels)
    if ours is None or other is None:
        return Finding(statement, "no data", None, "not all have a value", expect.says)
    found = _compared(expect, statement, by_seed(cells, ours, expect.metric), by_seed(cells, other, expect.metric), 1)
    return replace(found, detail=f"{ours} against {other}: {found.detail}")
