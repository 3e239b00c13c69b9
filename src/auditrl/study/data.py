"""The saved rows of a study, and the numbers with intervals that its figures and findings are made of.

With three or more random seeds of a run an interval is Student's t over them. With fewer it is over the evaluation's scenario seeds inside
each run (composite and several runs: half widths in quadrature): it then says how sure the score of this policy is, and leaves out how
much training again would change it.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..analysis.clustering.composition import CompositionRow
from ..analysis.stats import Interval, mean_of_intervals, paired, t_interval
from ..analysis.sweep_results import COMPOSITE, CellResult, by_seed, dotted
from ..errors import RunError
from ..evals.crux import CruxResult
from ..evals.scores import SUITES, Scorecard, compare
from ..evals.transfer.score import TransferResult
from ..runs import open_run
from ..train.sweep import standing
from ..train.sweep_file import START
from .plan import CRUX, STRATEGIES, TRANSFER, Study
from .stages import TRANSFER_AUDITORS

ENOUGH_SEEDS = 3


@dataclass(frozen=True, slots=True)
class StudyData:
    """Everything that a study has made so far. `problems` says what failed or is not there, one line each."""

    study: Study
    cells: tuple[CellResult, ...]
    crux: Mapping[str, CruxResult]
    """By name of the cell."""
    transfer: tuple[TransferResult, ...]
    composition: tuple[CompositionRow, ...]
    problems: tuple[str, ...]

    @property
    def simulated(self) -> bool:
        """Whether any run is from the simulated world."""
        return any(result.cell.config.simulated for result in self.cells)

    def cards(self, label: str) -> dict[int, Scorecard]:
        """Random seed -> scores of a label."""
        return {r.cell.random_seed: r.card for r in self.cells if r.cell.label == label and r.card is not None}

    def rows(self, label: str) -> int:
        """Steps that a label's runs have made."""
        return sum(len(r.rows) for r in self.cells if r.cell.label == label)

    def start_of(self, label: str) -> str:
        """Label of the start that a label's runs began from."""
        return self.study.plan.start_of.get(label, START)


@dataclass(frozen=True, slots=True)
class Effect:
    """A number with its interval and what the interval is over."""

    interval: Interval
    over: str


# ---------------------------------------------------------------- reading


def read_study(study: Study, problems: Sequence[str] = ()) -> StudyData:
    """Read what there is. What can't be read, or was not made, is a problem of the data and no error."""
    found = list(problems)
    cells: list[CellResult] = []
    for cell in study.plan.cells if study.trains else ():
        place = study.cells / cell.name
        try:
            outcome = standing(cell, study.cells)
            rows = open_run(place).metrics() if (place / "run.json").exists() else []
            cells.append(CellResult(cell, outcome, _card(place, "before" if cell.is_start else "after"), rows))
        except RunError as error:
            found.append(f"{cell.name}: can't be read: {error}")
    crux = (
        {path.parent.name: CruxResult.load(path) for path in sorted((study.out / CRUX).glob("*/crux.json"))} if CRUX in study.needs else {}
    )
    names = TRANSFER_AUDITORS if TRANSFER in study.needs else ()
    files = [path for name in names if (path := study.out / TRANSFER / name / "transfer.json").exists()]
    transfer = tuple(TransferResult.model_validate_json(path.read_text(encoding="utf-8")) for path in files)
    rows = _composition(study.out / STRATEGIES / "composition.csv") if STRATEGIES in study.needs else ()
    return StudyData(study, tuple(cells), crux, transfer, rows, tuple(found))


def _card(place: Path, label: str) -> Scorecard | None:
    path = place / "evaluation" / label / "scorecard.json"
    return Scorecard.from_json(path.read_text(encoding="utf-8"), str(path)) if path.exists() else None


def _composition(path: Path) -> tuple[CompositionRow, ...]:
    if not path.exists():
        return ()
    found: list[CompositionRow] = []
    with path.open(newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            low, high = float(row["share_low"]), float(row["share_high"])
            share = Interval(float(row["share"]), low, high, (high - low) / 2, int(row["audits"]))
            step = int(row["step"]) if row["step"] else None
            found.append(CompositionRow(row["run"], step, row["category"], int(row["count"]), share))
    return tuple(found)


# ---------------------------------------------------------------- numbers


def score(data: StudyData, label: str, metric: str) -> Interval | None:
    """A suite, `suite.part` or `composite` of a label (0-100), None without one."""
    found = [one for card in data.cards(label).values() if (one := _of(card, metric)) is not None]
    return _joined(found)


def _of(card: Scorecard, metric: str) -> Interval | None:
    suite, _, part = metric.partition(".")
    if metric == COMPOSITE:
        return card.composite
    result = card.suites.get(suite)
    found = None if result is None else result.parts.get(part) if part else result.interval
    return found if found is not None and math.isfinite(found.mean) else None


def _joined(found: Sequence[Interval]) -> Interval | None:
    if not found:
        return None
    if len(found) == 1:
        return found[0]
    return t_interval(one.mean for one in found) if len(found) >= ENOUGH_SEEDS else mean_of_intervals(found)


def difference(data: StudyData, first: str, second: str, metric: str) -> Effect | None:
    """First minus second: paired by random seed, or by the evaluation's scenario seeds where there are few. None if one has no score."""
    ours, theirs = data.cards(first), data.cards(second)
    found: list[Interval] = []
    for seed in sorted(ours.keys() & theirs.keys()):
        pair = compare(theirs[seed], ours[seed])
        item = pair.suites.get(metric)
        one = pair.composite if metric == COMPOSITE else item.paired.difference if item is not None and item.paired is not None else None
        if one is not None:
            found.append(one)
    joined = _joined(found)
    return None if joined is None else Effect(joined, over(len(found)))


def over(count: int) -> str:
    """What an interval of so many random seeds is over."""
    if count >= ENOUGH_SEEDS:
        return f"{count} random seeds"
    return "scenario seeds of one run" if count == 1 else f"scenario seeds of {count} runs each"


def change(data: StudyData, label: str, key: str) -> Effect | None:
    """Last minus first values of a dotted metrics key of a label, in its own units: over random seeds, or over the steps of a single run.

    Steps of one run follow each other, so an interval over them is a rough one.
    """
    begin, end = by_seed(data.cells, f"{label}@begin", key), by_seed(data.cells, f"{label}@end", key)
    common = sorted(begin.keys() & end.keys())
    if len(common) >= ENOUGH_SEEDS:
        return Effect(paired([end[s] for s in common], [begin[s] for s in common]).difference, over(len(common)))
    found: list[Interval] = []
    for result in data.cells:
        if result.cell.label == label and result.cell.random_seed in common:
            values = series(result.rows, key)
            window = max(2, len(values) // 4)
            if len(values) >= 2 * window:
                found.append(paired(values[-window:], values[:window]).difference)
    joined = mean_of_intervals(found) if found else None
    return None if joined is None else Effect(joined, "steps of the first and last quarter")


def series(rows: Sequence[Mapping[str, object]], key: str) -> list[float]:
    """The finite values of a dotted key, in the order of the steps."""
    return [value for row in rows if (value := dotted(row, key)) is not None]


def checkpoints(data: StudyData) -> list[tuple[str, str, Scorecard]]:
    """(cell, label, scores) of every evaluated policy that has all four suites."""
    whole = [(r.cell.name, r.cell.label, r.card) for r in data.cells if r.card is not None and r.card.composite is not None]
    return [(name, label, card) for name, label, card in whole if all(suite in card.suites for suite in SUITES)]


def columns(data: StudyData) -> dict[str, list[float]]:
    """The four scores and the composite over all evaluated policies."""
    cards = [card for _, _, card in checkpoints(data)]
    found = {suite: [card.suites[suite].interval.mean for card in cards] for suite in SUITES}
    return {**found, COMPOSITE: [card.composite.mean for card in cards if card.composite is not None]}
