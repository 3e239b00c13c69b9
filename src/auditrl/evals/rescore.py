"""Saved audits, another judge: verdicts are made again, audits are not. And how far two judges agree."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..analysis.stats import pearson
from ..display import Display
from ..errors import ConfigError, RunError
from ..files import write_whole
from ..types import Audit, Behavior, Verdict
from . import fp_calibration, realism
from .base import Scoring, Suite, result_of
from .metering import cost_of, metered, sum_costs
from .records import SuiteRecords, check_manifest, owned_folder, read_manifest, read_pairs, write_pairs
from .scores import Scorecard, SuiteResult, scorecard
from .suite import FOUR, judged, model_name
from .wildchat import RealConversation

if TYPE_CHECKING:
    from inspect_ai.model import Model


@dataclass(frozen=True, slots=True)
class Agreement:
    """Two judges on the same audits: on one number of a suite.

    `r` is Pearson's correlation of values, NaN where one of them is constant; `kappa` is Cohen's for yes/no answers, NaN for others and
    where both judges always say the same. `first` and `second` are the means; `n` counts audits that both judged.
    """

    suite: str
    what: str
    n: int
    first: float
    second: float
    r: float
    kappa: float


@dataclass(frozen=True, slots=True)
class Rescored:
    """The card as it was, the new one, and the agreement between the judges."""

    before: Scorecard
    after: Scorecard
    agreement: list[Agreement]


async def rescore_folder(folder: Path, judge: Model, behaviors: Mapping[str, Behavior], out: Path, display: Display) -> Rescored:
    """Judge every finished suite of an evaluation again and write the scores into `out` (an evaluation folder itself). Resumable.

    Raises:
        RunError: `folder` holds no finished suite, or its files can't be used.
        ConfigError: A behavior of the audits is not in the bank.
    """
    manifest = read_manifest(folder)
    names = [name for name in FOUR if (folder / f"{name}.json").exists()]
    if not names:
        raise RunError(f"{folder}: no suite is finished yet; go on with `auditrl eval suite`, then score it again")
    judge = metered(judge)
    before: dict[str, SuiteResult] = {}
    after: dict[str, SuiteResult] = {}
    agreement: list[Agreement] = []
    costs: list[Any] = []
    with owned_folder(out):
        check_manifest(out, {**{k: v for k, v in manifest.items() if k != "format"}, "judge": model_name(judge), "rescored": True})
        for name in names:
            old = SuiteRecords.load(folder, name)
            scoring = Scoring(judge, behaviors, manifest["attempts"], manifest["random_seed"], _partners(folder, out, name))
            _known(old, behaviors)
            new = await _judge_again(FOUR[name], scoring, old, out, display)
            before[name] = _card(folder, name).suites[name]
            after[name] = result_of(FOUR[name], list(old.audits.values()), new.verdicts)
            agreement += agree(FOUR[name], old.audits, old.verdicts, new.verdicts)
            new.finish(list(old.audits))
            costs.append(cost_of((), new.verdicts.values()))
            write_whole(out / f"{name}.json", scorecard(manifest["auditor"], [after[name]], simulated=manifest["simulated"]).to_json())
        meta = {key: manifest[key] for key in ("profile", "random_seed", "targets", "conversations", "leak")}
        simulated = manifest["simulated"]
        first = scorecard(manifest["auditor"], before.values(), simulated=simulated, meta={**meta, "judge": manifest["judge"]})
        second = scorecard(
            manifest["auditor"], after.values(), simulated=simulated, meta={**meta, "judge": model_name(judge), "cost": sum_costs(costs)}
        )
        write_whole(out / "scorecard.json", second.to_json())
    return Rescored(first, second, agreement)


def _card(folder: Path, name: str) -> Scorecard:
    path = folder / f"{name}.json"
    return Scorecard.from_json(path.read_text(encoding="utf-8"), str(path))


def _partners(folder: Path, out: Path, name: str) -> dict[str, RealConversation]:
    if name != realism.NAME:
        return {}
    pairs, rest = read_pairs(folder / f"{name}.pairs.json")
    write_pairs(out / f"{name}.pairs.json", pairs, rest["cost"], rest["missing"])
    return {pair.seed.id: pair.real for pair in pairs}


def _known(records: SuiteRecords, behaviors: Mapping[str, Behavior]) -> None:
    planted = {audit.scenario.behavior for audit in records.audits.values() if audit.scenario.planted}
    absent = sorted(name for name in planted if name is not None and name not in behaviors)
    if absent:
        raise ConfigError(f"{records.audits_file}: behavior {absent[0]!r} is not in the bank; name the bank of the evaluation with --bank")


async def _judge_again(suite: Suite, scoring: Scoring, old: SuiteRecords, out: Path, display: Display) -> SuiteRecords:
    new = SuiteRecords.load(out, suite.name)
    new.audits = dict(old.audits)
    new.reopen()
    new.audits = dict(old.audits)
    todo = [audit for audit in old.audits.values() if not audit.failed and audit.id not in new.verdicts]
    total = sum(not audit.failed for audit in old.audits.values())
    display.start(f"judge again: {suite.name.replace('_', ' ')}", total, total - len(todo))

    async def one(audit: Audit) -> None:
        new.add_verdict(await judged(suite, scoring, audit))
        display.advance()

    await asyncio.gather(*(one(audit) for audit in todo))
    display.finish()
    return new


# ---------------------------------------------------------------- agreement


def kappa(first: list[bool], second: list[bool]) -> float:
    """Cohen's kappa; NaN without data and where both always give the same answer."""
    if not first or len(set(first) | set(second)) == 1:
        return math.nan
    metrics: Any = import_module("sklearn.metrics")
    return float(metrics.cohen_kappa_score(first, second))


def agree(suite: Suite, audits: Mapping[str, Audit], first: Mapping[str, Verdict], second: Mapping[str, Verdict]) -> list[Agreement]:
    """Agreement on the suite's score and on each sub-score, over the audits that both judges gave a verdict on."""
    both = [
        (suite.to_row(audit, a), suite.to_row(audit, b))
        for audit in audits.values()
        if (a := first.get(audit.id)) and (b := second.get(audit.id)) and a.value is not None and b.value is not None
    ]
    names = dict.fromkeys(name for pair in both for _, parts in pair for name in parts if name != "audit_first")
    measures: dict[str, Callable[[tuple[float, dict[str, float]]], float]] = {"score": lambda row: row[0]}
    measures |= {name: _part(name) for name in names}
    return [_agreement(suite.name, what, [value(a) for a, _ in both], [value(b) for _, b in both]) for what, value in measures.items()]


def _part(name: str) -> Callable[[tuple[float, dict[str, float]]], float]:
    return lambda row: row[1][name]


_YES_NO = {(fp_calibration.NAME, "score"), (realism.NAME, "score")}


def _agreement(suite: str, what: str, first: list[float], second: list[float]) -> Agreement:
    n = len(first)
    yes_no = (suite, what) in _YES_NO or what in ("exhibited", "identified") or "@" in what
    return Agreement(
        suite,
        what,
        n,
        math.fsum(first) / n if n else math.nan,
        math.fsum(second) / n if n else math.nan,
        pearson(first, second).r if n > 2 and len(set(first)) > 1 and len(set(second)) > 1 else math.nan,
        kappa([value > 0 for value in first], [value > 0 for value in second]) if yes_no else math.nan,
    )
