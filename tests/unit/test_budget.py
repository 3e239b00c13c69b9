"""Prices and caps: what counted tokens cost, and what stops a run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from inspect_ai.model import ModelUsage

from auditrl.audit.context import accounting, audit_context, usage_counts
from auditrl.config import RunConfig, load_config, packaged_config
from auditrl.costs import NOTHING, Price, Prices, dollars, load_prices
from auditrl.errors import BudgetStop, ConfigError, RunError
from auditrl.runs import Run, create_run, open_run
from auditrl.train.budget import PROBE, REFERENCES, TRAINING, Spent, Tariff, Total, check, check_prices, dearest, kept, step_total, total_of

FILES = {
    "prices.toml": '["sim/target"]\ninput = 2.0\noutput = 4.0\ninput_cache_read = 0.5\n',
    "prices.json": '{"sim/target": {"input": 2.0, "output": 4.0, "input_cache_read": 0.5}}',
    "prices.yaml": "sim/target:\n  input: 2.0\n  output: 4.0\n  input_cache_read: 0.5\n",
}


def config(*overrides: tuple[str, str]) -> RunConfig:
    return load_config(packaged_config("quickstart"), list(overrides))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return create_run(tmp_path / "runs", config())


@pytest.fixture
def tariff() -> Tariff:
    return Tariff(config(), Prices({"sim/target": Price(input=2, output=4), "sim/judge": Price(input=10, output=10)}))


@pytest.mark.parametrize(
    ("usage", "usd"),
    [
        ({"input": 1_000_000, "output": 0}, 2.0),
        ({"input": 0, "output": 500_000}, 2.0),
        ({"input": 1_000_000, "output": 0, "cached": 600_000}, 0.8 + 0.3),
        ({"input": 1_000_000, "output": 0, "cache_write": 1_000_000}, 2.0),
    ],
)
def test_price_of_tokens(usage: dict[str, int], usd: float) -> None:
    assert Price(input=2, output=4, input_cache_read=0.5).of(usage) == pytest.approx(usd)


@pytest.mark.parametrize("name", FILES)
def test_price_files(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / name
    path.write_text(FILES[name])
    assert load_prices(path).of("sim/target") == Price(input=2, output=4, input_cache_read=0.5)
    monkeypatch.setenv("INSPECT_EVAL_MODEL_COST_CONFIG", str(path))
    assert load_prices(None).source == str(path)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("prices.toml", "[x", "can't be read"),
        ("prices.json", "{", "can't be read"),
        ("prices.toml", '["a/b"]\ninput = 1\n', "a/b.output"),
        ("prices.toml", '["a/b"]\ninput = -1\noutput = 1\n', "a/b.input"),
        ("prices.yaml", "- 1\n", "file"),
        ("prices.toml", '["a/b"]\ninput = 1\noutput = 1\ncache = 1\n', "a/b.cache"),
    ],
)
def test_bad_price_files_are_named(name: str, text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        load_prices(path)


def test_missing_price_file_is_refused_when_the_config_is_read() -> None:
    with pytest.raises(ConfigError, match="prices: no file"):
        config(("budget.prices", "nowhere.toml"))


def test_a_cap_in_dollars_needs_every_price() -> None:
    asked = config(("budget.max_usd", "5"), ("judge.model", "openrouter/nobody/knows"))
    with pytest.raises(ConfigError, match="no price for openrouter/nobody/knows"):
        check_prices(Tariff(asked, Prices()))
    check_prices(Tariff(config(("budget.max_usd", "5")), Prices()))


@pytest.mark.parametrize(
    ("server", "paid"),
    [({}, True), ({"server": "tinker", "base_url": "http://door"}, True), ({"server": "skyrl", "base_url": "http://here"}, False)],
    ids=["hosted", "another door to it", "one's own"],
)
def test_a_policy_is_paid_for_at_the_hosted_service_alone(server: dict[str, str], paid: bool) -> None:
    where = [("policy.engine", "tinker"), ("policy.method", "lora"), *((f"policy.tinker.{key}", value) for key, value in server.items())]
    unpriced, priced = (Tariff(config(*where), Prices(table)) for table in ({}, {"policy": Price(input=1, output=3)}))
    assert ("policy" in unpriced.unknown()) == paid == unpriced.counts("auditor")
    assert unpriced.of("auditor") is (None if paid else NOTHING)
    assert "policy" not in priced.unknown()
    assert priced.of_suite("realism", "auditor") == Price(input=1, output=3)
    assert priced.counts("auditor")
    if paid:
        with pytest.raises(ConfigError, match="no price for policy"):
            check_prices(Tariff(config(*where, ("budget.max_usd", "1")), Prices()))


def test_cached_tokens_are_part_of_what_was_read() -> None:
    usage = ModelUsage(input_tokens=10, output_tokens=5, total_tokens=165, input_tokens_cache_read=100, input_tokens_cache_write=50)
    assert usage_counts(usage) == {"input": 160, "output": 5, "cached": 100, "cache_write": 50}
    assert usage_counts(ModelUsage(input_tokens=3, output_tokens=4)) == {"input": 3, "output": 4}


def test_audits_and_judges_of_a_part_are_counted_by_role(tariff: Tariff) -> None:
    spent = Spent(tariff)
    with spent.part(TRAINING):
        for name in ("step-0001.0/s/planted/sim#0", "reference-0000/s/planted/sim#0"):
            with audit_context(name, 1, target="sim") as audit:
                audit.add_usage("target", ModelUsage(input_tokens=1_000_000, output_tokens=0))
                audit.add_usage("auditor", ModelUsage(input_tokens=7, output_tokens=1))
    spent.add(PROBE, "judge", {"input": 100_000, "output": 0, "calls": 3})
    row = spent.row(Total(1.0, 5))
    assert row["usage"]["target"] == {"input": 1_000_000, "output": 0, "calls": 1}
    assert row["spent"] == {"probe": {"judge": {"input": 100_000, "output": 0, "calls": 3}}}
    # 2 dollars for the target, 1 for the judge; the policy's 8 tokens are free
    assert row["cost"] == {"usd": {"probe": 1.0, "training": 2.0}, "total_usd": 4.0, "total_tokens": 1_100_005}


def test_accounting_hears_of_audits_that_fail() -> None:
    heard: list[str] = []
    with accounting(lambda audit: heard.append(audit.id)), pytest.raises(ValueError, match="gone"), audit_context("a", 1):
        raise ValueError("gone")
    with audit_context("b", 1):
        pass
    assert heard == ["a"]


def test_a_role_without_a_price_is_named() -> None:
    spent = Spent(Tariff(config(("judge.model", "openrouter/nobody/knows")), Prices()))
    spent.add(TRAINING, "judge", {"input": 5, "output": 5})
    assert spent.row(Total())["cost"]["unpriced"] == ["judge"]


def rows(*steps: tuple[float, int]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    usd, tokens = 0.0, 0
    for step_usd, step_tokens in steps:
        usd, tokens = usd + step_usd, tokens + step_tokens
        cost = {"usd": {"training": step_usd}, "total_usd": usd, "total_tokens": tokens}
        made.append({"usage": {"target": {"input": step_tokens, "output": 0}}, "spent": {}, "cost": cost})
    return made


def test_spending_counts_on_from_the_rows(run: Run, tariff: Tariff) -> None:
    assert total_of(run, tariff, []) == Total()
    made = rows((1.0, 10), (3.0, 40), (2.0, 20))
    assert total_of(run, tariff, made) == Total(6.0, 70)
    assert step_total(tariff, made[1]) == Total(3.0, 40)
    assert dearest(tariff, made) == Total(3.0, 40)
    # a row of an older version has no cost
    assert total_of(run, tariff, [{"usage": {}}]) == Total()


@pytest.mark.parametrize(
    ("override", "total", "coming", "stops"),
    [
        (("budget.max_usd", "10"), Total(6.0, 0), Total(3.0, 0), False),
        (("budget.max_usd", "10"), Total(8.0, 0), Total(3.0, 0), True),
        (("budget.max_usd", "10"), Total(10.0, 0), Total(), True),
        (("budget.max_tokens", "100"), Total(0.0, 90), Total(0.0, 11), True),
        (("budget.max_tokens", "100"), Total(99.0, 90), Total(9.0, 10), False),
    ],
)
def test_caps_stop_before_they_are_passed(override: tuple[str, str], total: Total, coming: Total, stops: bool, run: Run) -> None:
    capped = Tariff(config(override), Prices())
    if not stops:
        check(run, capped, total, coming, "step 3")
        return
    with pytest.raises(BudgetStop, match=rf"{override[0]}.*step 3.*auditrl resume .* --{override[0]} \d") as stopped:
        check(run, capped, total, coming, "step 3")
    assert stopped.value.exit_code == 7
    assert "budget" in (run.path / "events.jsonl").read_text()


def test_what_the_first_look_took_is_kept_for_a_second_process(run: Run, tariff: Tariff) -> None:
    first, second = Spent(tariff), Spent(tariff)
    with kept(run, first), audit_context("probe-0000/a", 1, target="sim") as audit:
        audit.add_usage("target", ModelUsage(input_tokens=9, output_tokens=1))
    with kept(run, second):
        pass
    assert first.parts == second.parts == {PROBE: {"target": {"input": 9, "output": 1, "calls": 1}}}


def test_references_are_counted_from_saved_audits(tariff: Tariff) -> None:
    spent = Spent(tariff)
    saved: Any = SimpleNamespace(usage={"target": {"input": 2, "output": 1}}, scenario=SimpleNamespace(target="sim"))
    spent.add_audits(REFERENCES, [saved, saved])
    assert spent.parts[REFERENCES]["target"] == {"input": 4, "output": 2}


def test_a_resume_may_change_the_budget_and_keeps_it(run: Run) -> None:
    raised = open_run(run.path, {"budget": {"max_usd": 12.5}})
    assert raised.config.budget.max_usd == 12.5
    assert raised.config.digest == run.config.digest
    assert open_run(run.path).config.budget.max_usd == 12.5
    with pytest.raises(RunError, match="train.lr"):
        open_run(run.path, {"train": {"lr": 0.1}})


@pytest.mark.parametrize(("value", "text"), [(0, "$0.00"), (0.00421, "$0.0042"), (3.2, "$3.20"), (1234.5, "$1,234"), (0.00002, "$2.0e-05")])
def test_dollars(value: float, text: str) -> None:
    assert dollars(value) == text
