"""The command line: quick, quiet about tracebacks, with documented exit codes."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from auditrl.cli import HELP, LAZY, cli, main
from auditrl.commands.common import model_option, overrides
from auditrl.errors import ConfigError


def test_help_answers_in_under_half_a_second_without_heavy_packages() -> None:
    code = (
        "import sys; from auditrl.cli import cli\n"
        "try: cli(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'inspect_ai', 'transformers', 'numpy', 'pydantic'} & set(sys.modules); assert not heavy, heavy"
    )
    best = 9.0
    for _ in range(5):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        best = min(best, time.perf_counter() - begin)
    assert best < 0.5


def test_importing_the_package_loads_neither_inspect_nor_torch() -> None:
    code = "import sys, auditrl; auditrl.load_config; auditrl.Audit; assert not {'torch', 'inspect_ai'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_suites_import_where_torch_is_not_installed() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import auditrl.evals.suite, auditrl.judges.petri, auditrl.rewards, auditrl.sim.providers, auditrl._registry, auditrl.audit.run"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_command_has_help_and_loads() -> None:
    assert LAZY.keys() == HELP.keys()
    for name in LAZY:
        result = CliRunner().invoke(cli, [name, "--help"])
        assert result.exit_code == 0, result.output
        assert "Usage" in result.output


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["train", "nowhere.toml"], 2, "no such file"),
        (["resume", "nowhere"], 3, "no run here"),
        (["runs", "show", "nowhere"], 3, "no run here"),
        (["train"], 2, "Missing argument"),
        (["nonsense"], 2, "No such command"),
        (["quickstart", "--reward.orderr", "both"], 2, "did you mean 'order'"),
        (["quickstart", "--reward.order"], 2, "a value is missing"),
        (["quickstart", "--policy.model", "./nowhere"], 2, "no model folder './nowhere'"),
        (["quickstart", "--bank.behaviors", '["animal_welfare"]'], 2, "held out"),
        (["quickstart", "--reward.kind", "best"], 2, "known: binary"),
        (["quickstart", "--judge.model", "nosuch/model"], 2, "judge.model = 'nosuch/model'"),
    ],
)
def test_errors_have_a_message_a_mend_and_an_exit_code(
    args: list[str], code: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main(args)
    message = capsys.readouterr().err
    assert caught.value.code == code
    assert words in message
    assert "Traceback" not in message
    assert not list(tmp_path.glob("runs/*/metrics.jsonl")), "nothing is begun with a bad config"


def test_overrides_in_both_spellings() -> None:
    assert overrides(["--a.b", "c", "--d.e=f=g"]) == [("a.b", "c"), ("d.e", "f=g")]
    with pytest.raises(ConfigError, match="unexpected argument"):
        overrides(["loose"])


def test_model_options_carry_arguments() -> None:
    entry = model_option('sim/target{"random_seed": 3}', "--target")
    assert (entry.model, entry.args) == ("sim/target", {"random_seed": 3})
    with pytest.raises(ConfigError, match="not JSON"):
        model_option("sim/target{oops", "--target")
