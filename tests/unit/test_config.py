"""Bad configs are refused when they are read, with file, key and mend."""

from __future__ import annotations

from pathlib import Path

import pytest

from auditrl.config import RunConfig, check_config, load_config, packaged_config, parse_overrides
from auditrl.errors import ConfigError

MINIMAL = """
name = "r"
[policy]
model = "sim/tiny"
[targets.pool.a]
model = "sim/target"
[judge]
model = "sim/judge"
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (MINIMAL + "[reward]\norderr = 'both'", ["run.toml", "reward.orderr", "did you mean 'order'"]),
        (MINIMAL + "[train]\nsteps = 'many'", ["run.toml", "train.steps", "integer", "many"]),
        (MINIMAL + "[train]\nsteps = 0", ["train.steps", "greater than or equal to 1"]),
        (MINIMAL + "[reward]\ncalibration_eighths = 4", ["calibration_eighths = 4", "targets.clean", "clean_from_pool"]),
        (
            MINIMAL + "[targets]\nclean_from_pool = true\n[reward]\ncalibration_eighths = 1\n[train]\ngroups = 4",
            ["train.groups = 4", "multiple of 8"],
        ),
        (MINIMAL + "[targets.clean]\nmodel = 'sim/target'", ["targets.clean is also in targets.pool", "clean_from_pool"]),
        (MINIMAL + "[audit]\nrealism_filter = true", ["audit.realism_filter", "[realism]"]),
        (MINIMAL + "[audit]\ncompaction = true", ["audit.compaction must be false"]),
        (MINIMAL + "[audit]\nauditor_prompt = 'nowhere.md'", ["auditor_prompt", "nowhere.md", "'neutral'"]),
        (MINIMAL + "[evaluation]\nprofile = 'sim'", ["evaluation.target", "profile = 'off'"]),
        (
            MINIMAL
            + "[evaluation]\nprofile='sim'\n[evaluation.target]\nmodel='sim/target'\n[evaluation.clean_target]\nmodel='x/y'\n"
            + "[evaluation.production_target]\nmodel='x/z'",
            ["evaluation.target is also a training target"],
        ),
        (MINIMAL + "[train]\noff_policy_steps = 2", ["train.off_policy_steps", "0 or 1"]),
        (MINIMAL + "[train]\noff_policy_steps = 1\nkeep_checkpoints = 1", ["off_policy_steps = 1 needs keep_checkpoints", "at least 2"]),
        (MINIMAL + "[train]\noff_policy_steps = 1\n[budget]\nmax_tokens = 1000", ["train.off_policy_steps = 1", "drop budget.max_usd"]),
        (MINIMAL.replace('"r"', '"../r"'), ["name", "pattern"]),
        ("name = ", ["run.toml", "not valid TOML"]),
        ("[policy]\nmodel='x'", ["name", "required and missing", "targets", "judge"]),
    ],
)
def test_bad_config_names_key_and_mend(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, text))
    for word in words:
        assert word in str(caught.value)


def test_missing_file_folder_and_encoding(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_config(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="is a folder"):
        load_config(tmp_path)
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b"name = '\xe9'")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config(latin)


def test_all_problems_are_listed_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        check_config({"name": "r", "extra": 1}, "here")
    assert str(caught.value).count("here: ") >= 4


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("both", "both"),
        ("4", 4),
        ("0.5", 0.5),
        ("true", True),
        ("[1, 2]", [1, 2]),
        ('"4"', "4"),
        ("none", None),
        ("sim/target", "sim/target"),
    ],
)
def test_override_values_are_toml_or_text(raw: str, value: object) -> None:
    assert parse_overrides([("a.b.c", raw)]) == {"a": {"b": {"c": value}}}


def test_overrides_win_and_change_the_digest(tmp_path: Path) -> None:
    path = write(tmp_path, MINIMAL)
    plain, changed = load_config(path), load_config(path, [("reward.order", "both"), ("train.steps", "3")])
    assert (changed.reward.order, changed.train.steps) == ("both", 3)
    assert plain.digest != changed.digest
    assert load_config(path).digest == plain.digest


def test_an_unbounded_ratio_is_refused_off_policy(tmp_path: Path) -> None:
    wanted = [("train.off_policy_steps", "1"), ("train.loss.kind", "importance_sampling"), ("train.loss.ratio_mask", "none")]
    with pytest.raises(
        ConfigError, match=r"train: off_policy_steps = 1 needs a bound on the ratio; set loss.ratio_mask, or use loss.kind = 'ppo'"
    ):
        load_config(write(tmp_path, MINIMAL), wanted)
    for enough in range(3):
        load_config(write(tmp_path, MINIMAL), [pair for i, pair in enumerate(wanted) if i != enough])


def test_an_override_below_a_value_is_refused() -> None:
    with pytest.raises(ConfigError, match="single keys"):
        parse_overrides([("a", "1"), ("a.b", "2")])


def test_packaged_quickstart_is_valid_and_survives_json() -> None:
    config = load_config(packaged_config("quickstart"))
    assert config.simulated
    assert RunConfig.model_validate(config.model_dump(mode="json")) == config
