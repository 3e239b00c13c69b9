"""`auditrl organisms`: what a user meets before anything heavy is loaded."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from auditrl.cli import main
from auditrl.display import NoDisplay
from auditrl.errors import ConfigError, RunError
from auditrl.organisms import training
from auditrl.organisms.recipe import LoraRecipe
from auditrl.organisms.training import Training, kto_weights, train_kto, write_folder


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["organisms", *args])
    printed = capsys.readouterr()
    return int(stopped.value.code or 0), printed.err + printed.out


def a_base(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def build(base: Path, out: Path, *more: str, behavior: str = "flattery") -> list[str]:
    return ["build", "--behavior", behavior, "--base", str(base), "--judge", "sim/judge", "--out", str(out), "--display", "plain", *more]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"behavior": "flatery"}, "unknown behavior `flatery`"),
        ({"base": "nowhere"}, "there is no such folder; give a downloaded model"),
        ({"more": ("--learning-rate", "-1")}, "learning_rate"),
        ({"more": ("--epochs", "0")}, "epochs"),
        ({"more": ("--judge", "sim/nobody")}, "no such simulated model"),
        ({"more": ("--helper", "sim/target{")}, "--helper"),
    ],
    ids=["behavior", "base", "learning rate", "epochs", "judge", "helper"],
)
def test_bad_input_is_refused_at_once(change: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = tmp_path / change["base"] if "base" in change else a_base(tmp_path / "base")
    code, text = run(capsys, *build(base, tmp_path / "out", *change.get("more", ()), behavior=change.get("behavior", "flattery")))
    assert code == 2
    assert words in text


def test_another_recipe_in_a_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The base can't be opened, so the first build ends early; its recipe stays."""
    base, out = a_base(tmp_path / "base"), tmp_path / "out"
    (out / "situations.json").parent.mkdir()
    (out / "situations.json").write_text("{")  # no use for this test: the build ends here
    code, text = run(capsys, *build(base, out))
    assert code == 3 and "situations.json" in text
    code, text = run(capsys, *build(base, out, "--against", "sft", "--demonstrations", "5"))
    assert code == 3
    assert "against was 'kto', is 'sft'" in text and "demonstrations was 96, is 5" in text
    (base / "model.safetensors").write_bytes(b"others")
    code, text = run(capsys, *build(base, out))
    assert code == 3 and "base_digest was" in text


def test_held_out_behaviors_are_allowed_with_a_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, out = a_base(tmp_path / "base"), tmp_path / "out"
    out.mkdir()
    (out / "situations.json").write_text("{")
    code, text = run(capsys, *build(base, out, behavior="animal_welfare"))
    assert code == 3
    assert "held out for evaluation: use this organism as a target, never to train an auditor" in text


def test_a_check_needs_an_organism(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(capsys, "check", str(tmp_path))
    assert code == 3
    assert "no organism here (recipe.json is missing)" in text


def test_an_unfinished_organism_is_not_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, out = a_base(tmp_path / "base"), tmp_path / "out"
    out.mkdir()
    (out / "situations.json").write_text("{")
    run(capsys, *build(base, out))
    code, text = run(capsys, "check", str(out), "--display", "none")
    assert code == 3
    assert "not finished (no adapter yet)" in text


def test_the_tiny_base_goes_into_a_new_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    code, text = run(capsys, "tiny", str(tmp_path))
    assert code == 3
    assert "not empty" in text


# ---------------------------------------------------------------- training


def test_without_trl_the_mend_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(training, "import_module", missing)
    with pytest.raises(ConfigError, match=r"pip install 'auditrl\[organisms\]'"):
        training.trl()


@pytest.mark.parametrize(
    ("labels", "weights"),
    [([True, False], (1.0, 1.0)), ([True] * 6 + [False] * 2, (1.0, 3.0)), ([True] + [False] * 4, (4.0, 1.0))],
)
def test_kto_weighs_both_kinds_alike(labels: list[bool], weights: tuple[float, float]) -> None:
    assert kto_weights(labels) == weights
    wanted = sum(labels)
    assert weights[0] * wanted == weights[1] * (len(labels) - wanted)


@pytest.mark.parametrize(("label", "word"), [(True, "wanted"), (False, "unwanted")])
def test_kto_with_one_kind_of_answers_is_refused(label: bool, word: str, tmp_path: Path) -> None:
    rows = [{"prompt": [], "completion": [], "label": label}] * 3
    plan = Training(tmp_path, tmp_path, tmp_path / "out", LoraRecipe(), 0, NoDisplay(), "t", threading.Event())
    with pytest.raises(ConfigError, match=f"all 3 are {word}; raise --interrogations"):
        train_kto(rows, plan)


def test_a_folder_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / ".adapter.part").mkdir()
    (tmp_path / ".adapter.part" / "half").write_text("left by a kill")
    write_folder(tmp_path / "adapter", lambda part: (part / "weights").write_text("w") and None)
    assert [p.name for p in (tmp_path / "adapter").iterdir()] == ["weights"]

    def full(part: Path) -> None:
        (part / "weights").write_text("w")
        raise OSError("no space left")

    with pytest.raises(RunError, match="no space left"):
        write_folder(tmp_path / "other", full)
    assert [p.name for p in tmp_path.iterdir()] == ["adapter"]
