"""The four-part suite under the real audit loop, against the simulated world: does it tell good auditors from bad ones?"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from inspect_ai import eval as inspect_eval
from inspect_ai.model import get_model

from auditrl.analysis.stats import Interval
from auditrl.commands.suite import Request, evaluate_auditor
from auditrl.display import NoDisplay
from auditrl.evals.auditors import AuditorEntry
from auditrl.evals.records import SuiteRecords
from auditrl.evals.scores import Scorecard


def evaluate(name: str, folder: Path, suites: tuple[str, ...], display: NoDisplay | None = None) -> Scorecard:
    asked = Request(profile="sim", suites=suites, limit_seeds=3 if "realism" not in suites else 14, limit_replicates=2, max_concurrent=18)
    return asyncio.run(evaluate_auditor(asked, AuditorEntry(model=f"sim/auditor-{name}"), folder, display or NoDisplay()))


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Scorecard]:
    root = tmp_path_factory.mktemp("archetypes")
    archetypes = ("skilled", "controlled_experimenter", "passive_scenario", "confessor", "false_accuser")
    return {name: evaluate(name, root / name, ("audit_quality", "fp_calibration")) for name in archetypes}


def quality(cards: dict[str, Scorecard], name: str, part: str | None = None) -> Interval:
    result = cards[name].suites["audit_quality"]
    return result.interval if part is None else result.parts[part]


def test_controlled_experiments_come_first_and_pressed_confessions_last(cards: dict[str, Scorecard]) -> None:
    for good in ("skilled", "controlled_experimenter"):
        for worse in ("passive_scenario", "confessor"):
            assert quality(cards, good).low > quality(cards, worse).high, (good, worse)
    assert quality(cards, "passive_scenario").low > quality(cards, "confessor").high


def test_false_accusers_fail_calibration(cards: dict[str, Scorecard]) -> None:
    calibration = {name: card.suites["fp_calibration"].interval for name, card in cards.items()}
    assert calibration["false_accuser"].high < 50
    assert all(calibration[name].low > calibration["false_accuser"].high for name in cards if name != "false_accuser")


def test_scenario_builders_score_on_realism_and_not_on_identification(cards: dict[str, Scorecard], tmp_path: Path) -> None:
    assert quality(cards, "passive_scenario", "identified").high < quality(cards, "skilled", "identified").low
    builder, confessor = (evaluate(n, tmp_path / n, ("realism",)).suites["realism"].interval for n in ("passive_scenario", "confessor"))
    assert builder.low > confessor.high


class StopsAfter(NoDisplay):
    """Cancels the running evaluation after so many audits, as Ctrl-C does."""

    def __init__(self, audits: int) -> None:
        self.left = audits

    def advance(self, text: str = "", units: int = 1) -> None:
        self.left -= 1
        if self.left == 0:
            asyncio.get_running_loop().call_soon(MAIN[0].cancel)


MAIN: list[asyncio.Task[Scorecard]] = []


def test_interrupted_and_continued_equals_uninterrupted(cards: dict[str, Scorecard], tmp_path: Path) -> None:
    # six at a time: some are over, some are under way, some have not begun
    asked = Request(profile="sim", suites=("audit_quality",), limit_seeds=3, limit_replicates=2, max_concurrent=6)

    async def stopped() -> None:
        MAIN[:] = [asyncio.create_task(evaluate_auditor(asked, AuditorEntry(model="sim/auditor-skilled"), tmp_path, StopsAfter(4)))]
        await MAIN[0]

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(stopped())
    kept = set(SuiteRecords.load(tmp_path, "audit_quality").audits)
    assert 4 <= len(kept) < 36
    card = asyncio.run(evaluate_auditor(asked, AuditorEntry(model="sim/auditor-skilled"), tmp_path, NoDisplay()))
    assert card.suites["audit_quality"] == cards["skilled"].suites["audit_quality"]


def test_the_same_suite_as_a_plain_inspect_task(cards: dict[str, Scorecard], tmp_path: Path) -> None:
    world = {"strong_natural": 0.55, "weak_natural": 0.25}
    roles = {
        "auditor": get_model("sim/auditor-skilled"),
        "target": get_model("sim/target", random_seed=7, world=world),
        "judge": get_model("sim/judge-suite"),
    }
    logs = inspect_eval(
        "auditrl/audit_quality",
        model=None,
        model_roles=roles,
        task_args={"profile": "sim", "seeds": 3, "replicates": 2},
        log_dir=str(tmp_path),
        display="none",
        log_samples=False,
    )
    assert logs[0].status == "success" and logs[0].results is not None
    scores = {score.name: score.metrics for score in logs[0].results.scores}
    expected = cards["skilled"].suites["audit_quality"]
    assert scores["score"]["mean"].value == pytest.approx(expected.interval.mean)
    assert {name: metrics["mean"].value for name, metrics in scores.items() if name != "score"} == pytest.approx(
        {name: interval.mean for name, interval in expected.parts.items()}
    )
    half = next(m.value for name, m in scores["score"].items() if name.endswith("half_width"))
    assert half == pytest.approx(expected.interval.half)
