"""The run directory: nothing half-written is read, nothing changed goes unnoticed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from auditrl.commands.runs import report
from auditrl.config import RunConfig, load_config, packaged_config
from auditrl.errors import RunError
from auditrl.evals.scores import ScoreRow, scorecard, suite_result
from auditrl.files import append_line, write_whole
from auditrl.runs import Run, create_run, list_runs, open_run, owned, prune_checkpoints, read_rows, truncate_rows


@pytest.fixture
def config() -> RunConfig:
    return load_config(packaged_config("quickstart"))


@pytest.fixture
def run(tmp_path: Path, config: RunConfig) -> Run:
    return create_run(tmp_path / "runs", config)


def test_created_run_opens_with_the_same_config(run: Run, config: RunConfig) -> None:
    opened = open_run(run.path)
    assert opened.config == config
    assert opened.info["digest"] == config.digest
    assert {"python", "inspect-ai", "inspect-petri"} <= opened.info["versions"].keys()


def test_existing_run_and_foreign_folder_are_refused(run: Run, config: RunConfig, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="auditrl resume"):
        create_run(run.path.parent, config)
    other = tmp_path / "other" / config.name
    other.mkdir(parents=True)
    (other / "thesis.tex").write_text("mine")
    with pytest.raises(RunError, match="not empty"):
        create_run(other.parent, config)
    assert (other / "thesis.tex").read_text() == "mine"


def test_unwritable_place_is_named(tmp_path: Path, config: RunConfig) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(RunError, match="--runs"):
        create_run(blocked, config)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"train": {"lr": 0.1}}, ["train.lr", "0.1"]),
        ({"reward": {"order": "both"}}, ["reward.order", "both"]),
        ({"random_seed": 9}, ["random_seed"]),
    ],
)
def test_changed_config_is_refused_with_its_keys(run: Run, change: dict[str, object], words: list[str]) -> None:
    with pytest.raises(RunError) as caught:
        open_run(run.path, change)
    for word in [*words, "--name"]:
        assert word in str(caught.value)


def test_edited_config_file_is_noticed(run: Run) -> None:
    data = json.loads((run.path / "config.json").read_text())
    data["train"]["steps"] = 41
    (run.path / "config.json").write_text(json.dumps(data))
    with pytest.raises(RunError, match=r"train\.steps"):
        open_run(run.path)


def test_no_run_and_other_format(tmp_path: Path, run: Run) -> None:
    with pytest.raises(RunError, match="runs list"):
        open_run(tmp_path)
    info = json.loads((run.path / "run.json").read_text())
    (run.path / "run.json").write_text(json.dumps({**info, "format": 99}))
    with pytest.raises(RunError, match="format 99"):
        open_run(run.path)


def test_cut_last_line_is_dropped_and_appending_goes_on(run: Run) -> None:
    run.append_metrics({"step": 1})
    run.append_metrics({"step": 2})
    whole = run.metrics_file.read_bytes()
    for cut in range(len(whole) // 2 + 1, len(whole)):
        run.metrics_file.write_bytes(whole[:cut])
        assert run.metrics() == [{"step": 1}]
    truncate_rows(run.metrics_file, 1)
    run.append_metrics({"step": 2})
    assert run.metrics() == [{"step": 1}, {"step": 2}]


def test_damage_inside_the_file_is_an_error_that_names_the_line(run: Run) -> None:
    run.metrics_file.write_text('{"step": 1}\n{"st\n{"step": 3}\n{"step": 4}\n')
    with pytest.raises(RunError, match="line 2"):
        run.metrics()


def test_a_row_that_is_not_an_object_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("[1]\n{}\n{}\n")
    with pytest.raises(RunError, match="line 1"):
        read_rows(path)


def test_write_whole_leaves_the_old_file_when_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f.json"
    write_whole(path, "old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, "new and longer")
    assert path.read_text() == "old"


def test_append_line_survives_unicode(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    append_line(path, json.dumps({"t": "\u202eسلام 🤖"}, ensure_ascii=False))
    assert read_rows(path)[0] == [{"t": "\u202eسلام 🤖"}]


def test_step_records_round_trip_and_damage_is_named(run: Run) -> None:
    run.write_step(3, "segments", [{"tokens": [1]}])
    assert run.read_step(3, "segments") == [{"tokens": [1]}]
    file = run.step_file(3, "segments.json.gz")
    file.write_bytes(file.read_bytes()[:-6])
    with pytest.raises(RunError, match=r"step-0003\.segments\.json\.gz"):
        run.read_step(3, "segments")
    with pytest.raises(RunError, match="missing"):
        run.read_step(4, "segments")


def test_only_one_process_owns_a_run(run: Run) -> None:
    with owned(run), pytest.raises(RunError, match="another process"), owned(run):
        pass


def test_prune_keeps_the_last_and_the_named(run: Run) -> None:
    for step in (0, 5, 10, 15, 20):
        run.checkpoint(step).mkdir(parents=True)
    prune_checkpoints(run, keep=2, also={5})
    assert run.checkpoints() == [5, 15, 20]


def test_list_says_what_is_unreadable(run: Run) -> None:
    run.append_metrics({"step": 1, "reward": 0.5})
    (run.path.parent / "broken").mkdir()
    (run.path.parent / "broken" / "run.json").write_text("{")
    found = {row["name"]: row for row in list_runs(run.path.parent)}
    assert found[run.config.name]["steps"] == 1
    assert found[run.config.name]["state"] == "unfinished"
    assert found["broken"]["state"] == "unreadable"


def test_report_compares_with_other_evaluations(run: Run, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    for name, base, file in (("trained", 60.0, run.path / "evaluation" / "after" / "scorecard.json"), ("elsewhere", 40.0, other)):
        rows = [ScoreRow("realism", None, f"s{i}", 0, base + i, {}, f"{name}{i}") for i in range(4)]
        write_whole(file, scorecard(name, [suite_result("realism", rows)], simulated=True).to_json())
    done = CliRunner().invoke(report, [str(run.path), "--compare", str(other)])
    assert done.exit_code == 0, done.output
    page = (run.path / "report.html").read_text()
    assert "elsewhere" in page
    assert "Comparison" in page
    missing = CliRunner().invoke(report, [str(run.path), "--compare", str(tmp_path / "none")])
    assert isinstance(missing.exception, RunError)
