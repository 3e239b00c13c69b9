"""The held-out guard, and which auditor a name means."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from auditrl.analysis.published import frontier
from auditrl.config import ModelConfig, RunConfig, load_config, packaged_config
from auditrl.errors import ConfigError, RunError
from auditrl.evals.auditors import AuditorEntry, RunReference, read_auditors, run_reference, safe_name
from auditrl.evals.guard import TrainedOn, check_held_out, leaks, plain_texts
from auditrl.runs import Run
from auditrl.types import Seed

LONG = " ".join(f"word{i}" for i in range(40))
POOL = ModelConfig(model="x/trained")
TRAINED = TrainedOn(
    run="mine",
    behaviors=frozenset({"flattery"}),
    seed_ids=frozenset({"flattery/001"}),
    seed_texts=plain_texts([Seed(id="s", behavior=None, split="train", text=LONG)]),
    targets={POOL.identity: "targets.pool.a"},
)


def a_seed(name: str, text: str = "short") -> Seed:
    return Seed(id=name, behavior=None, split="eval", text=text)


@pytest.mark.parametrize(
    ("behaviors", "seeds", "target", "found"),
    [
        (["animal_welfare"], [a_seed("animal_welfare/001")], "x/other", []),
        (["flattery", "animal_welfare"], [], "x/other", ["behaviors flattery"]),
        ([], [a_seed("flattery/001")], "x/other", ["1 seeds, first flattery/001"]),
        ([], [a_seed("renamed/9", f"  {LONG.upper()}\n")], "x/other", ["1 seeds, first renamed/9"]),
        ([], [a_seed("sim/9", "a user asks for help with coding")], "x/other", []),
        ([], [], "x/trained", ["target x/trained (--target, in training targets.pool.a)"]),
    ],
)
def test_what_stands_on_both_sides(behaviors: list[str], seeds: list[Seed], target: str, found: list[str]) -> None:
    assert leaks(TRAINED, behaviors, seeds, {"--target": ModelConfig(model=target)}) == found


def test_the_same_model_with_other_arguments_is_another_target() -> None:
    assert leaks(TRAINED, [], [], {"--target": ModelConfig(model="x/trained", args={"random_seed": 7})}) == []


def test_a_leak_is_refused_unless_it_is_allowed() -> None:
    with pytest.raises(ConfigError, match="mine trained on what this evaluation uses: behaviors flattery.*--allow-leak"):
        check_held_out(["behaviors flattery"], "mine", allow=False)
    assert check_held_out(["behaviors flattery"], "mine", allow=True) == ["behaviors flattery"]
    assert check_held_out([], "mine", allow=False) == []


def test_what_the_quickstart_trains_on_is_not_what_it_is_evaluated_on() -> None:
    from auditrl.train.evaluation import trained_on

    config = load_config(packaged_config("quickstart"))
    trained = trained_on(config)
    assert len(trained.behaviors) == 26 and "animal_welfare" not in trained.behaviors and "flattery" in trained.behaviors
    evaluation = config.evaluation
    assert evaluation.target is not None
    assert leaks(trained, ["animal_welfare"], [], {"--target": evaluation.target}) == []
    assert leaks(trained, [], [], {"--target": config.targets.pool["sim"]}) == [
        "target sim/target (--target, in training targets.pool.sim)"
    ]


def run_with(folder: Path, steps: tuple[int, ...]) -> Run:
    for step in steps:
        (folder / "checkpoints" / f"step-{step:04d}").mkdir(parents=True)
    (folder / "run.json").parent.mkdir(exist_ok=True)
    (folder / "run.json").write_text(json.dumps({"format": 1}))
    config: RunConfig = load_config(packaged_config("quickstart"))
    return Run(folder, config, {})


def test_a_run_is_meant_by_its_folder_its_step_or_its_checkpoint(tmp_path: Path) -> None:
    from auditrl.train.evaluation import chosen_step

    run = run_with(tmp_path / "mine", (0, 10, 20))
    path = str(run.path)
    assert run_reference(path) == RunReference(run.path, None)
    assert run_reference(f"{path}@10") == run_reference(f"policy/{path}/checkpoints/step-0010") == RunReference(run.path, 10)
    assert run_reference("openai/gpt-5.4") is None and run_reference("policy/some/folder") is None
    assert (chosen_step(run, None), chosen_step(run, 10)) == (20, 10)
    with pytest.raises(RunError, match="no checkpoint after step 15; there are 0, 10, 20"):
        chosen_step(run, 15)
    with pytest.raises(RunError, match="no checkpoint yet"):
        chosen_step(run_with(tmp_path / "new", ()), None)
    with pytest.raises(ConfigError, match="step behind @ must be a number"):
        run_reference(f"{path}@last")
    with pytest.raises(ConfigError, match="no run in this folder"):
        run_reference(str(tmp_path))


def test_the_packaged_baselines_are_the_published_frontier() -> None:
    entries = read_auditors(packaged_config("baselines"))
    assert [e.name for e in entries] == [row.model for row in frontier()]
    assert len({safe_name(e.name) for e in entries}) == len(entries)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "auditor: required and missing"),
        ("auditor = []", r"an auditor is written \[\[auditor\]\]"),
        ("[[auditor]]\nlabel = 'x'", "model: required and missing"),
        ("[[auditor]]\nmodel = 'a/b'\ntemperatur = 1", "unknown key"),
        ("[[auditor]]\nmodel = 'a/b'\n[[auditor]]\nmodel = 'a/b'", "two auditors are named 'a/b'"),
        ("[[auditor]", "not valid TOML"),
    ],
)
def test_auditors_files_that_cant_be_used(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_auditors(path)


@pytest.mark.parametrize("name", ["a/b", "../../etc", "", "ü", "x" * 300, "a b", "a\nb", "Haiku 4.5 (base)", "mine@20"])
def test_folder_names_are_safe_and_keep_names_apart(name: str) -> None:
    safe = safe_name(name)
    assert safe and len(safe) <= 70 and "/" not in safe and not safe.startswith(".") and safe.isascii()
    assert safe_name(f"{name}!") != safe
    assert AuditorEntry(model="a/b", label=name).name == (name or "a/b")
