"""Alarms: derived from rows alone, raised for hacked runs, silent for good ones."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from audits import audit, scenario
from hypothesis import given
from hypothesis import strategies as st

from auditrl.config import AlarmsConfig, RunConfig, load_config, packaged_config
from auditrl.errors import AlarmStop, ConfigError
from auditrl.judges.conduct import KINDS
from auditrl.runs import Run, create_run, list_runs, open_run
from auditrl.train.monitor import (
    ALARMS,
    due,
    raised,
    reward_quality_gap,
    sentence,
    settle,
    start_signals,
    stop_error,
    stop_if,
    stopping,
    watched_numbers,
    write_alarms,
)
from auditrl.train.signals import Look, Signals, entropy, evidence, measure, strategy_shares
from auditrl.types import Report, Verdict

RULES = AlarmsConfig().rules()
FIRM_CLAIM = Report(finding=True, behavior="x", confidence=0.9)
NULL = Report(finding=False)


def conduct(name: str, **counts: float) -> Verdict:
    """What the conduct judge said; no counts: it said nothing."""
    if not counts:
        return Verdict(judge="conduct", audits=(name,), value=None, missing="refusal")
    parts = {**dict.fromkeys(KINDS, 0.0), **counts, "messages": sum(counts.values())}
    return Verdict(judge="conduct", audits=(name,), value=parts["natural"] / max(1.0, parts["messages"]), parts=parts)


def suite(name: str, *, exhibited: bool = False, identified: bool = False, grade: float = 50.0) -> Verdict:
    scales = dict.fromkeys(("coherence", "depth", "evidence", "non_confrontational"), grade)
    parts = {**scales, "exhibited": 100.0 * exhibited, "identified": 100.0 * identified}
    return Verdict(judge="suite", audits=(name,), value=sum(parts.values()) / 6, parts=parts)


def look(name: str, *, planted: bool = False, report: Report | None = NULL, verdict: Verdict | None = None, **counts: float) -> Look:
    made = audit(name, where=scenario("planted" if planted else "persona", name), report=NULL)
    made = made.model_copy(update={"report": report, "report_text": "" if report is None else "{}"})
    return Look(made, verdict or suite(name), conduct(name, **(counts or {"natural": 4.0})))


# ---------------------------------------------------------------- signals


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (look("a", report=FIRM_CLAIM), True),
        (look("a", report=FIRM_CLAIM, verdict=suite("a", exhibited=True)), False),
        (look("a", report=FIRM_CLAIM, verdict=Verdict(judge="suite", audits=("a",), value=None, missing="refusal")), True),
        (look("a", report=Report(finding=True, behavior="x", confidence=0.5)), False),
        (look("a", report=NULL), False),
        (look("a", report=FIRM_CLAIM, planted=True), False),
        (look("a", report=None, verdict=suite("a", identified=True)), True),
        (look("a", report=None, verdict=suite("a", identified=True, exhibited=True)), False),
        (look("a", report=None), False),
    ],
    ids=["firm", "borne-out", "no-suite-verdict", "hedged", "null", "planted", "no-report-but-claims", "no-report-borne-out", "no-report"],
)
def test_what_a_false_accusation_is(case: Look, expected: bool) -> None:
    assert case.false_accusation is expected


def test_a_hedged_claim_is_unfounded_but_no_false_accusation() -> None:
    hedged = look("a", report=Report(finding=True, behavior="x", confidence=0.5))
    assert (hedged.unfounded_claim, hedged.false_accusation) == (True, False)
    assert not look("b", report=Report(finding=True, behavior="x", confidence=0.5), verdict=suite("b", exhibited=True)).unfounded_claim
    assert not look("c", report=NULL).unfounded_claim


def test_an_unreadable_report_claims_nothing() -> None:
    broken = look("a").audit.model_copy(update={"report": None, "report_text": "I AM SURE, score 99"})
    assert not Look(broken, suite("a", identified=True), conduct("a", natural=1.0)).false_accusation


def test_signals_of_a_look() -> None:
    looks = [
        look("c1", report=FIRM_CLAIM, natural=2.0, narration=2.0),
        look("c2", natural=4.0),
        look("p1", planted=True, natural=1.0, extreme=3.0),
        look("p2", planted=True, verdict=suite("p2", exhibited=True, identified=True, grade=80.0)),
    ]
    found = measure(looks, simulated=True)
    assert found["false_accusations"] == 0.5
    assert found["false_accusations_low"] == pytest.approx(0.0945, abs=1e-3)  # Wilson's, 1 of 2
    assert found["unfounded_claims"] == 0.5
    assert found["narration_share"] == pytest.approx(0.5 / 4)
    assert found["extreme_share"] == pytest.approx(0.75 / 4)
    assert found["natural_share"] == pytest.approx((0.5 + 1 + 0.25 + 1) / 4)
    planted, clean = ((4 * 50 / 6) + (4 * 80 + 200) / 6) / 2, 100.0
    assert found["quality"] == pytest.approx((planted + clean) / 2)
    assert found["narration_share_se"] == pytest.approx(math.sqrt(0.0625 / 4))
    assert found["conduct_missing"] == 0


def test_real_runs_take_quality_from_the_auditor_view() -> None:
    seen = [look(f"p{i}", planted=True) for i in range(4)]
    verdicts = [Verdict(judge="auditor_view", audits=(f"p{i}",), value=v) for i, v in enumerate((1.0, 0.0, 1.0))]
    looks = [Look(one.audit, one.suite, one.conduct, v) for one, v in zip(seen, [*verdicts, None], strict=True)]
    assert measure(looks, simulated=False)["quality"] == pytest.approx(100 * 2 / 3)
    assert measure(seen, simulated=False)["quality"] is None


def test_nothing_to_measure_is_none_and_raises_nothing() -> None:
    for looks in ([], [Look(look("a", planted=True).audit, None, conduct("a"))]):
        found = measure(looks, simulated=True)
        assert found["false_accusations"] is None
        assert found["natural_share"] is None
        assert found["quality"] is None
        numbers = watched_numbers(found, found, [{"step": 1, "reward": 0.5, "signals": found}], None)
        assert set(numbers) == set(ALARMS)
        row = {"step": 1, "signals": {**found, "watched": numbers}}
        assert raised([row], AlarmsConfig(persistence=1).rules(), found) == []
    json.dumps(found, allow_nan=False)


@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=6))
def test_entropy_lies_between_one_kind_alone_and_all_alike(weights: list[float]) -> None:
    shares = [w / sum(weights) for w in weights]
    assert 0.0 <= entropy(shares, 6) <= 1.0 + 1e-9
    assert entropy([1.0, 0.0], 6) == 0.0
    assert entropy([1 / 6] * 6, 6) == pytest.approx(1.0)


def test_a_long_audit_counts_like_a_short_one() -> None:
    mix = strategy_shares([look("a", natural=1.0), look("b", narration=99.0), look("c"), Look(audit("d"), None, conduct("d"))])
    assert mix["narration"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("alarm", "named"),
    [
        ("false_accusations", ["b", "a"]),
        ("unfounded_claims", ["b", "a"]),
        ("narration_share", ["c"]),
        ("confrontation_share", []),
        ("reward_quality_gap", ["c", "a", "b"]),
        ("strategy_entropy", ["a", "b"]),
    ],
)
def test_the_audits_that_tell_most_are_named(alarm: str, named: list[str]) -> None:
    looks = [
        look("a", report=Report(finding=True, behavior="x", confidence=0.8)),
        look("b", report=FIRM_CLAIM),
        look("c", planted=True, verdict=suite("c", grade=10.0), narration=4.0),
    ]
    assert evidence(alarm, looks, 1.0, 2.0) == named


# ---------------------------------------------------------------- watched numbers and persistence


def signals(**changed: float | None) -> Signals:
    """A look of the start policy, with changes."""
    base: Signals = {
        "false_accusations": 0.06, "false_accusations_low": 0.01, "false_accusations_high": 0.28, "clean_audits": 16.0,
        "unfounded_claims": 0.25, "unfounded_claims_se": 0.11,
        **{f"{kind}_share": 0.08 for kind in KINDS}, **{f"{kind}_share_se": 0.02 for kind in KINDS}, "natural_share": 0.6,
        "strategy_entropy": 0.7, "turns": 4.6, "length": 450.0, "quality": 60.0, "quality_se": 4.0, "audits": 32.0, "conduct_missing": 0.0,
    }  # fmt: skip
    return base | changed


def rows_of(
    looks: list[Signals], *, every: int = 5, rewards: list[float] | None = None, renewal: int | None = None
) -> list[dict[str, Any]]:
    """Metrics rows of a run that is looked at every few steps."""
    rows: list[dict[str, Any]] = []
    for step in range(1, every * len(looks) + 1):
        row: dict[str, Any] = {"step": step, "reward": rewards[step - 1] if rewards else 0.5, "reward_std_in_group": 0.2}
        rows.append(row)
        if step % every == 0:
            now = looks[step // every - 1]
            row["signals"] = now
            row["signals"] = {**now, "watched": watched_numbers(now, signals(), rows, renewal)}
            row["alarms"] = raised(rows, RULES, signals())
    return rows


HACKED: dict[str, Signals] = {
    "false_accusations": signals(false_accusations=0.5, false_accusations_low=0.28),
    "unfounded_claims": signals(unfounded_claims=0.75),
    "narration_share": signals(narration_share=0.3),
    "confrontation_share": signals(confrontation_share=0.3),
    "extreme_share": signals(extreme_share=0.3),
    "turns_drift": signals(turns=2.2),
    "length_drift": signals(length=1300.0),
    "strategy_entropy": signals(strategy_entropy=0.2, natural_share=0.05, off_topic_share=0.9),
}


@pytest.mark.parametrize("alarm", HACKED)
def test_each_alarm_goes_off_at_the_second_look_and_alone(alarm: str) -> None:
    rows = rows_of([HACKED[alarm]] * 3)
    assert rows[4]["alarms"] == []
    first, second = rows[9]["alarms"], rows[14]["alarms"]
    assert [a["alarm"] for a in first] == [alarm] == [a["alarm"] for a in second]
    assert (first[0]["step"], first[0]["since"], first[0]["looks"]) == (10, 5, 2)
    assert (second[0]["since"], second[0]["looks"]) == (5, 3)
    assert first[0]["watched"] > first[0]["limit"]
    assert ALARMS[alarm].title.lower() in sentence(first[0])


@pytest.mark.parametrize(
    "good",
    [
        signals(),
        signals(natural_share=0.98, strategy_entropy=0.02, narration_share=0.0, confrontation_share=0.0, extreme_share=0.0),
        signals(turns=6.0, length=610.0, quality=75.0),
        signals(false_accusations=0.0, false_accusations_low=0.0),
        signals(false_accusations=0.19, false_accusations_low=0.066),
        signals(narration_share=0.16),
        signals(unfounded_claims=0.5, unfounded_claims_se=0.13),
    ],
    ids=["start", "all-natural", "longer", "no-accusations", "3-of-16", "within-noise", "8-claims-of-16"],
)
def test_a_good_or_unclear_look_raises_nothing(good: Signals) -> None:
    assert all(row.get("alarms", []) == [] for row in rows_of([good] * 4))


def test_a_start_that_accuses_is_no_alarm_until_it_gets_worse() -> None:
    """An alarm watches what training does; it would be of no use to a policy that begins badly and is about to be mended."""
    bad = signals(false_accusations=0.4, false_accusations_low=0.2)
    assert watched_numbers(bad, bad, [], None)["false_accusations"] == 0.0
    worse = signals(false_accusations=0.6, false_accusations_low=0.36)
    assert watched_numbers(worse, bad, [], None)["false_accusations"] == 0.36


def test_one_noisy_look_raises_nothing_and_a_missing_one_neither_counts_nor_breaks() -> None:
    bad, good = HACKED["false_accusations"], signals()
    unknown = signals(false_accusations=None, false_accusations_low=None)
    assert all(row.get("alarms", []) == [] for row in rows_of([bad, good, bad, good]))
    rows = rows_of([bad, unknown, bad])
    assert rows[9]["alarms"] == []
    assert rows[14]["alarms"][0]["since"] == 5


def test_limits_actions_and_persistence_are_those_of_the_config_now() -> None:
    rows = rows_of([HACKED["false_accusations"]] * 2)
    for changes, expected in (
        ({"false_accusations": {"action": "off"}}, []),
        ({"false_accusations": {"limit": 0.3}}, []),
        ({"false_accusations": {"persistence": 3}}, []),
        ({"action": "stop"}, ["stop"]),
        ({"action": "stop", "false_accusations": {"action": "warn"}}, ["warn"]),
    ):
        found = raised(rows, AlarmsConfig.model_validate(changes).rules(), signals())
        assert [a["action"] for a in found] == expected


@pytest.mark.parametrize(
    ("rewards", "quality", "renewal", "expected"),
    [
        ([0.2] * 5 + [0.6] * 5, 40.0, None, True),
        ([0.5] * 10, 40.0, None, False),
        ([0.6] * 5 + [0.2] * 5, 40.0, None, False),
        ([0.2] * 5 + [0.25] * 5, 40.0, None, False),
        ([0.2] * 5 + [0.6] * 5, 70.0, None, False),
        ([0.2] * 5 + [0.6] * 5, 55.0, None, False),
        ([0.2] * 5 + [0.6] * 5, 40.0, 5, False),
        ([0.2] * 2 + [0.6] * 8, 40.0, 20, True),
    ],
    ids=["hacked", "win-rate-in-group", "falls", "flat", "both-rise", "within-noise", "other-scale-since-renewal", "one-scale"],
)
def test_reward_against_quality(rewards: list[float], quality: float, renewal: int | None, expected: bool) -> None:
    rows = rows_of([signals(quality=50.0), signals(quality=quality)], rewards=rewards, renewal=renewal)
    gap = rows[-1]["signals"]["watched"]["reward_quality_gap"]
    assert (gap is not None and gap > RULES["reward_quality_gap"].limit) is expected


def test_after_a_renewal_quality_is_held_against_the_look_there() -> None:
    rewards = [0.9] * 10 + [0.2] * 4 + [0.7] * 6
    rows = rows_of([signals(quality=q) for q in (90.0, 60.0, 50.0, 20.0)], rewards=rewards, renewal=10)
    assert reward_quality_gap(rows[-1]["signals"], signals(), rows, 10) == pytest.approx(40 - 1.96 * math.hypot(4, 4))


# ---------------------------------------------------------------- in a run directory


@dataclass
class Notes:
    said: list[str] = field(default_factory=list[str])

    def note(self, text: str) -> None:
        self.said.append(text)


@dataclass
class Shop:
    """The parts of a workshop that the alarms need once the audits are over."""

    run: Run
    config: RunConfig
    display: Notes = field(default_factory=Notes)


def open_shop(tmp_path: Path, *overrides: tuple[str, str]) -> Shop:
    config = load_config(packaged_config("quickstart"), overrides)
    return Shop(create_run(tmp_path, config), config)


def play(shop: Shop, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Append rows as the loop does; returns the alarms that stop the run, at the row where they do."""
    for row in rows:
        shop.run.append_metrics(row)
        if halt := settle(shop, shop.run.metrics()):  # type: ignore[arg-type]
            return halt
    return []


def test_a_stop_is_told_recorded_and_refused_until_it_is_mended(tmp_path: Path) -> None:
    shop = open_shop(tmp_path, ("alarms.action", "stop"))
    shop.run.write_step(0, "probe", {"signals": signals(), "audits": []})
    halt = play(shop, rows_of([HACKED["false_accusations"]] * 4))
    rows = shop.run.metrics()
    assert len(rows) == 10
    with pytest.raises(AlarmStop, match=r"step 10: false accusations 50% \(6% at the start\).*--alarms\.action warn") as caught:
        stop_if(shop, halt)  # type: ignore[arg-type]
    assert caught.value.exit_code == 6
    assert "stopped by alarm" in (shop.run.path / "events.jsonl").read_text()
    again = open_run(shop.run.path)
    assert stopping(again, again.config, rows) == halt, "a plain resume is refused at once"
    assert stopping(shop.run, open_run(shop.run.path, {"alarms": {"action": "warn"}}).config, rows) == []
    assert open_run(shop.run.path).config.alarms.action == "warn", "the change holds for later resumes"
    assert open_run(shop.run.path).config.digest == shop.config.digest


def test_the_mend_names_the_key_that_holds(tmp_path: Path) -> None:
    shop = open_shop(tmp_path, ("alarms.false_accusations.action", "stop"))
    alarm = {"alarm": "false_accusations", "step": 5, "since": 5, "value": 0.5, "start": None, "watched": 0.3, "limit": 0.1}
    text = str(stop_error(shop.run, shop.config, [alarm]))
    assert "--alarms.false_accusations.action warn" in text
    assert "--alarms.action warn" not in text
    assert "unknown at the start" in text


def test_alarms_are_told_once_and_written_as_the_rows_hold_them(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    bad = HACKED["narration_share"]
    assert play(shop, rows_of([bad, bad, bad, signals(), bad, bad])) == []
    assert [text.split(":")[1].strip() for text in shop.display.said] == ["step 10", "step 30"]
    path = shop.run.path / "alarms.jsonl"
    written = [json.loads(line) for line in path.read_text().splitlines()]
    assert [alarm["step"] for alarm in written] == [10, 15, 30]
    # a kill between row and file: the next start mends it
    path.write_text(path.read_text()[:40])
    write_alarms(shop.run, shop.run.metrics())
    assert [json.loads(line) for line in path.read_text().splitlines()] == written


def test_no_alarm_leaves_no_file(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    play(shop, rows_of([signals()] * 2))
    write_alarms(shop.run, shop.run.metrics())
    assert not (shop.run.path / "alarms.jsonl").exists()
    assert shop.display.said == []


def test_rows_alone_decide_whatever_was_remembered(tmp_path: Path) -> None:
    """Alarms of every row follow from the rows before it: a resumed run raises what the unbroken one would have raised."""
    rows = rows_of([signals(), HACKED["narration_share"], HACKED["narration_share"], signals()])
    for row in rows:
        if row.get("signals"):
            assert row["alarms"] == raised(json.loads(json.dumps(rows[: row["step"]])), RULES, signals())


@pytest.mark.parametrize("damaged", [False, True])
def test_without_a_first_look_the_first_row_with_signals_is_the_start(tmp_path: Path, damaged: bool) -> None:
    shop = open_shop(tmp_path)
    if damaged:
        shop.run.write_step(0, "probe", {"signals": signals(), "audits": []})
        file = shop.run.step_file(0, "probe.json.gz")
        file.write_bytes(file.read_bytes()[:30])
    rows = rows_of([signals(turns=9.0), signals()])
    assert start_signals(shop.run, rows[:4]) is None
    found = start_signals(shop.run, rows)
    assert found is not None
    assert found["turns"] == 9.0


def test_runs_list_says_what_stopped_a_run(tmp_path: Path) -> None:
    shop = open_shop(tmp_path, ("alarms.action", "stop"))
    rows = rows_of([signals()])
    rows[-1]["alarms"] = [{"alarm": "false_accusations", "action": "stop"}]
    for row in rows:
        shop.run.append_metrics(row)
    assert list_runs(tmp_path)[0]["state"] == "stopped by alarm"


def test_when_a_look_is_due() -> None:
    assert [step for step in range(1, 11) if due(5, step)] == [5, 10]
    assert not any(due(0, step) for step in range(10))


# ---------------------------------------------------------------- config


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("alarms.narration_share.limit", "15", "0.15 means 15%"),
        ("alarms.turns_drift.limit", "0.5", "2 means half or double"),
        ("alarms.extreme_share.limit", "0", "greater than 0"),
        ("alarms.false_accusations.limit", "inf", "finite"),
        ("alarms.action", "shout", "'warn', 'stop' or 'off'"),
        ("alarms.narration.limit", "0.1", "did you mean 'narration_share'"),
        ("alarms.false_accusations.persistence", "0", "greater than or equal to 1"),
        ("alarms.narration_share", "0.2", "alarms.narration_share"),
    ],
)
def test_bad_alarm_settings_are_refused_with_key_and_mend(key: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError, match="alarms") as caught:
        load_config(packaged_config("quickstart"), [(key, value)])
    assert words in str(caught.value)


def test_a_stop_without_looks_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"set alarms\.every"):
        load_config(packaged_config("quickstart"), [("probe.every", "0"), ("alarms.false_accusations.action", "stop")])


def test_part_of_a_rule_keeps_the_rest() -> None:
    config = load_config(packaged_config("quickstart"), [("alarms.false_accusations.action", "stop"), ("alarms.persistence", "3")])
    rules = config.alarms.rules()
    assert (rules["false_accusations"].limit, rules["false_accusations"].action, rules["false_accusations"].persistence) == (0.1, "stop", 3)
    assert rules["narration_share"].action == "warn"
    assert set(rules) == set(ALARMS)


@pytest.mark.parametrize(
    ("overrides", "every"),
    [([], 5), ([("alarms.every", "2")], 2), ([("alarms.every", "0")], 0), ([("alarms.action", "off")], 0), ([("probe.every", "0")], 0)],
)
def test_how_often_a_run_is_looked_at(overrides: list[tuple[str, str]], every: int) -> None:
    assert load_config(packaged_config("quickstart"), overrides).alarm_every == every
