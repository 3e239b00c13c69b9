"""The paper's configurations: every published row has a file that resolves and can be priced without a call; `extends` works."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest
from click.testing import CliRunner

from auditrl.analysis.published import Configuration, configurations
from auditrl.cli import cli
from auditrl.commands.common import find_config
from auditrl.commands.dry_run import missing_here, model_lines, scenario_lines
from auditrl.config import ModelConfig, load_config, packaged_config
from auditrl.errors import ConfigError
from auditrl.train.workshop import check_run

FOLDER = Path(str(files("auditrl").joinpath("configs", "paper")))
EPOCH = 163


def name_of(row: Configuration) -> str:
    parts = [row.reward, str(row.calibration_eighths), row.targets, "" if row.refresh_steps is None else str(row.refresh_steps)]
    return "-".join(part for part in parts if part)


ROWS = {name_of(row): row for row in sorted(configurations(), key=lambda r: r.epochs)}
"""The longest run of each configuration: rows that differ only in epochs are the same run."""


def test_every_row_has_its_file_and_no_file_is_left_over() -> None:
    assert {path.stem for path in FOLDER.glob("*.toml")} == set(ROWS)
    assert len(ROWS) == 16


@pytest.mark.parametrize("name", ROWS)
def test_a_config_says_what_was_published(name: str) -> None:
    row, config = ROWS[name], load_config(FOLDER / f"{name}.toml")
    assert config.name == f"paper-{name}"
    assert (config.reward.kind, config.reward.calibration_eighths) == (row.reward, row.calibration_eighths)
    assert config.train.steps == EPOCH * row.epochs
    assert (config.train.groups, config.train.group_size, config.audit.max_turns, config.audit.report) == (8, 8, 15, False)
    if row.reward == "reference":
        assert config.reward.renewal_steps == (None if row.refresh_steps == "never" else int(str(row.refresh_steps)))
    targets = config.targets
    assert (len(targets.pool) == 1, targets.clean is not None) == ((row.targets == "single",) * 2)
    assert targets.clean_from_pool == (row.targets == "multi")
    assert targets.production == (row.targets == "production8") == (len(targets.pool) == 8)


@pytest.mark.parametrize("name", ROWS)
def test_a_config_dry_runs_without_a_key(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    config = load_config(find_config(Path(f"configs/paper/{name}.toml")))
    check_run(config)
    assert len([line for line in scenario_lines(config) if line.startswith("  ")]) == 8
    models = model_lines(config)
    assert any(line.startswith("warning: openrouter") for line in models)


def test_the_command_prices_a_config_without_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    short = ["--train.steps", "2", "--evaluation.profile", "off", "--probe.every", "0"]
    done = CliRunner().invoke(cli, ["train", "paper/concerningness-0-production8", "--dry-run", *short])
    assert done.exit_code == 0, done.output
    for words in ("First batch:", "warning: openrouter", "No price is known for", "Nothing was run."):
        assert words in done.output


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ([], "(full, trained in process)"),
        ([("policy.engine", "tinker"), ("policy.method", "lora")], "(lora, trained at the hosted Tinker service)"),
        (
            [
                ("policy.engine", "tinker"),
                ("policy.method", "lora"),
                ("policy.tinker.server", "skyrl"),
                ("policy.tinker.base_url", "http://h"),
            ],
            "(lora, trained at http://h)",
        ),
    ],
)
def test_a_dry_run_says_where_the_policy_is_trained(server: list[tuple[str, str]], words: str) -> None:
    assert model_lines(load_config(packaged_config("quickstart"), server))[0].endswith(words)


def test_a_misspelt_provider_is_an_error_and_not_a_warning() -> None:
    with pytest.raises(ConfigError, match=r"judge.model"):
        missing_here(ModelConfig(model="opnrouter/x/y"), "judge")


def write(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / f"{name}.toml").write_text(text)
    return folder


def test_extends_puts_a_file_over_another(tmp_path: Path) -> None:
    quickstart = files("auditrl").joinpath("configs", "quickstart.toml").read_text()
    (tmp_path / "base").mkdir()
    write(tmp_path / "base", common=quickstart)
    write(tmp_path, mine='extends = "base/common.toml"\n[train]\nsteps = 3\n', twice='extends = "mine.toml"\nname = "twice"\n')
    config = load_config(tmp_path / "twice.toml", [("train.groups", "16")])
    assert (config.name, config.train.steps, config.train.groups, config.judge.model) == ("twice", 3, 16, "sim/judge")


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({"a": 'extends = "b.toml"', "b": 'extends = "a.toml"'}, r"circle \(a.toml -> b.toml -> a.toml\)"),
        ({"a": 'extends = "a.toml"'}, "circle"),
        ({"a": 'extends = "gone.toml"'}, "gone.toml: no such file"),
        ({"a": "extends = 3"}, "name of a TOML file"),
    ],
)
def test_bad_extends_is_named(texts: dict[str, str], words: str, tmp_path: Path) -> None:
    write(tmp_path, **texts)
    with pytest.raises(ConfigError, match=words):
        load_config(tmp_path / "a.toml")
