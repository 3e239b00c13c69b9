"""`auditrl eval suite`, `compare` and `rescore`: what is refused, with which words and exit code, and which models a request means."""

from __future__ import annotations

from pathlib import Path

import pytest

from auditrl.cli import main
from auditrl.commands.suite import Request, make_context, resolve_roles
from auditrl.config import ModelConfig
from auditrl.display import NoDisplay
from auditrl.errors import ConfigError, ProviderError
from auditrl.evals.auditors import AuditorEntry
from auditrl.evals.scores import SUITES, Scorecard, ScoreRow, scorecard, suite_result

SIM = AuditorEntry(model="sim/auditor-skilled")


def request(**changes: object) -> Request:
    return Request(**{"profile": "small", "suites": SUITES, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["eval", "suite"], 2, "name one auditor with --auditor"),
        (["eval", "suite", "--auditor", "sim/auditor-skilled", "--auditors", "x.toml"], 2, "name one auditor"),
        (["eval", "suite", "--auditors", "absent.toml"], 2, "absent.toml: no such file"),
        (["eval", "suite", "--auditor", "sim/auditor-nobody", "--profile", "sim"], 2, "no such simulated model"),
        (["eval", "suite", "--auditor", "nobody/model", "--profile", "sim"], 2, "--auditor.model = 'nobody/model'"),
        (["eval", "suite", "--auditor", 'sim/auditor-skilled{"x":', "--profile", "sim"], 2, "are not JSON"),
        (["eval", "suite", "--auditor", "mockllm/model"], 2, "--target: no model for this role"),
        (
            ["eval", "suite", "--auditor", "mockllm/model", "--target", "sim/target", "--judge", "sim/judge"],
            2,
            "--clean-target: no model for this role",
        ),
        (["eval", "suite", "--auditor", "sim/auditor-skilled", "--profile", "sim", "--judge", "mockllm/model"], 2, "must be all simulated"),
        (["eval", "suite", "--auditor", "sim/auditor-skilled", "--suites", "honesty"], 2, "unknown suite 'honesty'"),
        (["eval", "suite", "--auditor", "sim/auditor-skilled", "--suites", ","], 2, "unknown suite"),
        (["eval", "suite", "--auditor", "sim/auditor-skilled", "--profile", "sim", "--wildchat", "no.jsonl"], 2, "no.jsonl: no such file"),
        (["eval", "suite", "--auditor", "sim/auditor-skilled", "--profile", "sim", "--wildchat-choice", "c.csv"], 2, "needs --wildchat"),
        (["eval", "suite", "--auditor", "./nothing", "--profile", "sim"], 2, "no run in this folder"),
        (["eval", "suite", "--auditor", "sim/auditor-skilled", "--limit-seeds", "0"], 2, "--limit-seeds"),
        (["compare", "absent"], 3, "absent: no such file or folder"),
        (["rescore", "absent", "--judge", "sim/judge"], 3, "no evaluation here"),
        (["rescore", "absent", "--judge", "nobody/model"], 2, "--judge.model"),
    ],
)
def test_bad_input(
    arguments: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main([*arguments, "--display", "none"] if "compare" not in arguments else arguments)
    assert stop.value.code == code and message in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.jsonl"))


def test_the_simulated_world_needs_no_models() -> None:
    for profile in ("sim", "small"):
        roles = resolve_roles(request(profile=profile), SIM, None)
        assert [entry.model for entry in roles.values()] == ["sim/target", "sim/target", "sim/target-production", "sim/judge-suite"]
        assert roles["target"].args["random_seed"] == 7
    entry = ModelConfig(model="mockllm/model")
    with pytest.raises(ConfigError, match="--profile sim: is for the models of the simulated world"):
        resolve_roles(request(profile="sim", target=entry, clean_target=entry, production_target=entry, judge=entry), SIM, None)


@pytest.mark.parametrize(("clean", "condition"), [("sim/target", "persona"), ("sim/target-production", "clean")])
def test_a_clean_target_of_the_same_model_wears_the_persona(tmp_path: Path, clean: str, condition: str) -> None:
    entry = ModelConfig(model="sim/target")
    asked = request(profile="sim", target=entry, clean_target=ModelConfig(model=clean))
    where = make_context(asked, SIM, resolve_roles(asked, SIM, None), None, tmp_path, NoDisplay())
    assert where.clean_condition == condition and where.simulated and where.sim_seeds and where.audit.max_concurrent == 64


def test_real_seeds_and_stand_in_conversations_outside_the_simulated_profile(tmp_path: Path) -> None:
    where = make_context(request(), SIM, resolve_roles(request(), SIM, None), None, tmp_path, NoDisplay())
    assert where.simulated and not where.sim_seeds and where.audit.max_concurrent == 20
    assert {c.source for c in where.real} == {"packaged"} and max(len(s.text.split()) for s in where.seeds) > 50


def test_limits_only_make_smaller() -> None:
    sizes = request(profile="full", limit_seeds=2, limit_turns=400).overrides()
    assert [sizes["audit_quality"].seeds, sizes["audit_quality"].replicates, sizes["audit_quality"].turns] == [2, 3, 30]


def test_of_several_auditors_one_that_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def evaluated(asked: Request, auditor: AuditorEntry, folder: Path, display: object) -> Scorecard:
        if auditor.name == "bad":
            raise ProviderError("no key")
        rows = [ScoreRow("realism", None, f"s{i}", 0, 40.0 + i, {}, f"{i}") for i in range(3)]
        return scorecard(auditor.name, [suite_result("realism", rows)], simulated=True, meta={"cost": {}})

    monkeypatch.setattr("auditrl.commands.evaluation.evaluate_auditor", evaluated)
    monkeypatch.chdir(tmp_path)
    names = ("bad", "good", "better")
    (tmp_path / "a.toml").write_text("".join(f"[[auditor]]\nlabel = '{n}'\nmodel = 'sim/auditor-skilled'\n" for n in names))
    with pytest.raises(SystemExit) as stop:
        main(["eval", "suite", "--auditors", "a.toml", "--out", "o", "--display", "none"])
    shown = capsys.readouterr()
    assert stop.value.code == 4 and "bad: no key" in shown.err and "good" in shown.out and "better" in shown.out
    assert (tmp_path / "o" / "report.html").exists()


def test_the_packaged_baselines_are_named_without_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(["eval", "suite", "--auditors", "baselines", "--display", "none"])
    shown = capsys.readouterr().err
    assert stop.value.code == 2 and "Opus 4.7: --target" in shown and "Haiku 4.5 (base): --target" in shown
