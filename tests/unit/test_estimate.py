"""Estimates: the formulas by hand, calls counted by the reward designs themselves, prices said and never invented."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from audits import scenario
from click.testing import CliRunner

from auditrl.cli import cli
from auditrl.config import RunConfig, load_config, packaged_config
from auditrl.errors import ConfigError
from auditrl.runs import create_run
from auditrl.train.estimate import Estimate, Estimator
from auditrl.train.quote import check_caps, quote
from auditrl.train.sizes import REAL, SIMULATED, Length, Sizes, Yardstick, assume, filler, lengths, mean_replies, typical_audit

SMALL = [("train.steps", "2"), ("evaluation.profile", "off"), ("probe.every", "0")]


def config(*overrides: tuple[str, str]) -> RunConfig:
    return load_config(packaged_config("quickstart"), [*SMALL, *overrides])


def estimator(*overrides: tuple[str, str], sizes: Sizes = SIMULATED) -> Estimator:
    return Estimator.open(config(*overrides), sizes, Yardstick(words=True))


def judge_calls(*overrides: tuple[str, str]) -> float:
    maker = estimator(*overrides)
    found = Estimate(2, SIMULATED)
    maker.training(found)
    return found.by_role()["training", "judge"].calls


def test_an_audit_by_hand() -> None:
    """2 turns with a reply each and a report: the auditor reads P, P + x, P + 2x (x: its turn and what it sees of the reply)."""
    maker = estimator(("audit.max_turns", "2"), sizes=assume(SIMULATED, ["auditor_turn=10", "seen=5", "report_written=3"]))
    load = maker.auditor(Length(1, 2, 2), 100)
    assert (load.calls, load.input, load.output, load.cached) == (3, 100 + 115 + 130, 23, 100 + 115)
    sizes = assume(SIMULATED, ["message=7", "reply=8", "system=5"])
    target = estimator(sizes=sizes).target(Length(1, 2, 2), 50)
    assert (target.calls, target.input, target.output, target.cached) == (2, (55 + 7) + (55 + 7 + 8 + 7), 16, 62)


@pytest.mark.parametrize("quitting", [0.0, 0.3, 1.0])
def test_lengths_are_a_distribution(quitting: float) -> None:
    found = lengths(SIMULATED, 6, quitting)
    assert sum(one.weight for one in found) == pytest.approx(1)
    assert 1 <= min(one.turns for one in found) <= max(one.turns for one in found) == 6
    assert mean_replies(lengths(SIMULATED, 6, 0)) == 6
    assert all(one.turns >= 1 and one.replies >= 0 for one in lengths(REAL, 1, quitting))


@pytest.mark.parametrize(
    ("overrides", "calls"),
    [
        ([], 128),
        ([("reward.order", "both")], 256),
        ([("reward.kind", "intragroup")], 16 * 28),
        ([("reward.kind", "intragroup"), ("reward.args", "{ pairs = 'sample:2' }")], 16 * 8),
        ([("reward.kind", "binary"), ("reward.calibration_eighths", "0")], 128),
        ([("reward.petri_scores", "true")], 128 + 16 * 9),
    ],
    ids=["reference", "both orders", "all pairs", "sampled pairs", "binary", "petri scores of 8 audits and their reference"],
)
def test_judge_calls_are_those_of_the_design(overrides: list[tuple[str, str]], calls: int) -> None:
    assert judge_calls(*overrides) == pytest.approx(calls)


def test_an_evaluation_is_counted_at_the_size_that_it_will_have() -> None:
    def calls(*overrides: tuple[str, str]) -> float:
        found = Estimate(2, SIMULATED)
        estimator(("evaluation.profile", "sim"), *overrides).evaluation(found, "after", 2)
        return found.by_role()["evaluation after", "judge"].calls

    whole, one, more = calls(), calls(("evaluation.replicates", "1")), calls(("evaluation.replicates", "99"))
    assert whole == more
    assert one < whole / 2


def test_a_clean_target_in_an_evaluation_reads_the_persona_where_the_config_gives_it_one() -> None:
    def read(persona: str) -> float:
        found = Estimate(2, SIMULATED)
        estimator(("evaluation.profile", "sim"), ("evaluation.replicates", "1"), ("evaluation.clean_persona", persona)).evaluation(
            found, "after", 2
        )
        return found.by_role()["evaluation after", "target"].input

    assert read("true") == read("none") > read("false"), "the quickstart's clean targets wear it in training"


def test_references_are_counted_once_a_scenario_and_renewal() -> None:
    def audits(renewal: str) -> float:
        found = Estimate(60, SIMULATED)
        maker = estimator(("train.steps", "60"), ("reward.renewal_steps", renewal), ("audit.max_turns", "1"))
        maker.training(found)
        return found.by_role()["references", "auditor"].calls

    assert audits("none") <= audits("50") <= audits("1") <= 60 * 8 * 2


def test_a_view_has_the_assumed_length() -> None:
    audit = typical_audit(SIMULATED, scenario(), 4)
    said = [m for m in audit.branches[0].messages if m.role == "user"]
    assert sum(len(m.text.split()) for m in said) == round(4 * SIMULATED.message)
    assert Yardstick(words=True)(filler(7.5)) == 8 and Yardstick(words=False)("a" * 40) == 10


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        ("reply", "name=number"),
        ("reply=much", "name=number"),
        ("speed=3", "known: again"),
        ("reply=-1", "from 0 up"),
        ("reply=nan", "from 0 up"),
    ],
)
def test_bad_assumptions_are_named(pair: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        assume(SIMULATED, [pair])


def test_unknown_prices_are_said_and_never_zero(tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text('["sim/target"]\ninput = 1.0\noutput = 2.0\n')
    overrides = [("judge.model", "openrouter/nobody/knows"), ("budget.prices", str(prices))]
    found = quote(config(*overrides))
    by_role = {row.role: row for row in found.rows if row.part == "training"}
    assert by_role["judge"].usd is None
    assert found.unknown == ["openrouter/nobody/knows"]
    target = by_role["target"]
    assert target.usd == pytest.approx((round(target.input) + 2 * round(target.output)) / 1e6)
    with pytest.raises(ConfigError, match=r"budget.max_usd.*one step alone"):
        check_caps(config(*overrides, ("budget.max_usd", "0.001")), found)


def test_the_command_prints_numbers_and_refuses_caps_that_a_step_passes() -> None:
    arguments = ["estimate", "quickstart", *(word for key, value in SMALL for word in (f"--{key}", value))]
    done = CliRunner().invoke(cli, [*arguments, "--json", "--assume", "reply=20"])
    assert done.exit_code == 0, done.output
    printed = json.loads(done.output)
    assert printed["assumptions"]["reply"] == 20
    assert {row["role"] for row in printed["rows"]} == {"auditor", "target", "judge"}
    text = CliRunner().invoke(cli, arguments).output
    assert "Assumed" in text and "no evidence about real models" in text
    refused = CliRunner().invoke(cli, [*arguments, "--budget.max_tokens", "100"])
    assert isinstance(refused.exception, ConfigError) and "one step alone" in str(refused.exception)


def test_free_policy_tokens_count_only_with_a_price(tmp_path: Path) -> None:
    prices = tmp_path / "prices.json"
    prices.write_text(json.dumps({"policy": {"input": 1, "output": 1}}))
    free, paid = quote(config()), quote(config(("budget.prices", str(prices))))
    auditor = sum(row.input + row.output for row in free.rows if row.role == "auditor")
    assert paid.total.tokens - free.total.tokens == pytest.approx(auditor, abs=2)
    assert free.total.usd == 0 < paid.total.usd


def test_a_run_without_steps_can_not_be_measured(tmp_path: Path) -> None:
    run = create_run(tmp_path, config())
    with pytest.raises(ConfigError, match="no finished audit"):
        quote(config(), from_run=run.path)
