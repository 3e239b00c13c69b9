"""`auditrl gc`: what a run needs stays to the byte, the rest goes, and a kill at any moment leaves a valid run."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from audits import audit, scenario
from click.testing import CliRunner, Result

from auditrl.analysis.reader_sources import write_run_reader
from auditrl.analysis.run_report import write_report
from auditrl.commands.gc import gc, size
from auditrl.config import load_config, packaged_config
from auditrl.errors import RunError
from auditrl.files import write_whole
from auditrl.runs import Run, create_run, open_run, owned, prune_checkpoints
from auditrl.train import gc as collector
from auditrl.train.gc import collect, damage
from auditrl.train.references import ARCHIVE, References, saved_references

STEPS = 12


def checkpoint(run: Run, step: int) -> None:
    """A checkpoint with the list of its files, as the local engine writes it."""
    folder = run.checkpoint(step)
    content = f"weights after {step}".encode() * 100
    write_whole(folder / "model.safetensors", content)
    write_whole(folder / "engine.json", json.dumps({"files": {"model.safetensors": hashlib.sha256(content).hexdigest()}}))


def made(folder: Path, *, steps: int = 20, done: int = STEPS, off_policy: int = 0) -> Run:
    """A run killed after 12 of its steps: references renewed and checkpoints written every 5 steps, and what kills left of others."""
    overrides = [
        ("train.steps", str(steps)), ("train.checkpoint_every", "5"), ("reward.renewal_steps", "5"), ("train.groups", "8"), ("train.group_size", "2"),
        ("train.off_policy_steps", str(off_policy)),
    ]  # fmt: skip
    run = create_run(folder, load_config(packaged_config("quickstart"), overrides))
    references = References(run.path / "references.jsonl", 5)
    for step in range(done):
        where = scenario(name=f"s{step % 5}")
        references.add([audit(f"reference-{references.snapshot_step(step):04d}/{where.id}#0", where=where)], step)
        one = audit(f"step-{step + 1:04d}.0/{where.id}#0", where=where)
        run.write_step(step + 1, "audits", [{"audit": one.model_dump(mode="json"), "reward": 0.5, "verdicts": []}])
        run.write_step(step + 1, "segments", [{"tokens": [step]}])
        run.write_step(step + 1, "probe", {"signals": {}, "audits": []})
        run.append_metrics({"step": step + 1, "reward": 0.5})
        write_whole(run.logs / f"2026_step-{step + 1:04d}.eval", b"log" * 50)
    for step in range(0, done + 1, 5):
        checkpoint(run, step)
    write_whole(run.path / "evaluation" / "before" / "logs" / "2026_quality.eval", b"log")
    for kind in ("part", "old"):
        write_whole(run.path / "checkpoints" / f".step-0010.{kind}-99" / "model.safetensors", b"half")
    return run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return made(tmp_path / "runs")


def tree(folder: Path) -> dict[str, bytes]:
    """Every file by its name, but those that hold the time."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name not in (".lock", "events.jsonl"))
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in files}


def call(*args: str | Path) -> Result:
    return CliRunner().invoke(gc, [str(arg) for arg in args])


def test_only_what_nobody_needs_goes(run: Run) -> None:
    before = tree(run.path)
    freed = collect(run)
    after = tree(run.path)
    gone = {f"steps/step-{step:04d}.segments.json.gz" for step in range(1, 11)}
    gone |= {f"checkpoints/{name}" for name in ("step-0005/model.safetensors", "step-0005/engine.json")}
    gone |= {f"checkpoints/.step-0010.{kind}-99/model.safetensors" for kind in ("part", "old")}
    assert before.keys() - after.keys() == gone
    assert after.keys() - before.keys() == {ARCHIVE}
    assert {name for name in after if name in before and after[name] != before[name]} == {"references.jsonl"}
    assert {kind: count for kind, (count, _) in freed.kinds().items()} == {
        "checkpoints": 1, "unfinished checkpoints": 2, "segments": 10, "references": 10,
    }  # fmt: skip
    assert freed.size == sum(map(len, before.values())) - sum(map(len, after.values()))
    assert run.checkpoints() == [0, 10]


def test_references_of_the_current_snapshot_stay_and_the_rest_can_be_read(run: Run) -> None:
    before = list(saved_references(run.path))
    collect(run)
    left = References.load(run.path / "references.jsonl", 5)
    assert [left.get(scenario(name=f"s{i}"), STEPS) is not None for i in range(5)] == [True, True, False, False, False]
    assert list(saved_references(run.path)) == before
    left.add([audit("new", where=scenario(name="s2"))], STEPS)
    collect(run)  # nothing is over since: the new one stays where it is
    assert References.load(run.path / "references.jsonl", 5).get(scenario(name="s2"), STEPS) == audit("new", where=scenario(name="s2"))
    assert len(list(saved_references(run.path))) == len(before) + 1


def test_archive_grows_and_holds_each_reference_once(run: Run) -> None:
    collect(run)
    references = References.load(run.path / "references.jsonl", 5)
    for step in range(STEPS, 16):
        references.add([audit(f"r{step}", where=scenario(name=f"s{step % 5}"))], step)
        run.append_metrics({"step": step + 1, "reward": 0.5})
    checkpoint(run, 15)
    collect(run)
    keys = [(row["snapshot"], row["scenario"]) for row in saved_references(run.path)]
    assert len(keys) == len(set(keys)) == 16
    assert [row["snapshot"] for row in saved_references(run.path)] == [0] * 5 + [5] * 5 + [10] * 5 + [15]
    assert run.checkpoints() == [0, 15]


def test_report_and_reader_are_the_same_to_the_byte(run: Run) -> None:
    def written() -> dict[str, bytes]:
        write_report(run)
        return {name: content for name, content in tree(run.path).items() if name.startswith(("report.html", "reader/"))}

    before = written()
    assert b"reference-0005" in b"".join(before.values())
    collect(run, logs=True)
    assert written() == before


def test_a_reader_of_few_audits_holds_few_references_and_says_so(run: Run) -> None:
    collect(run)
    page = write_run_reader(run, limit=4)
    assert page is not None
    assert f"4 of {STEPS} references, evenly spaced" in (page.parent / "data" / "index.js").read_text()


def test_logs_go_only_when_asked_for(run: Run) -> None:
    assert "logs" not in collect(run).kinds()
    assert len(list(run.logs.iterdir())) == STEPS
    assert collect(run, logs=True).kinds() == {"logs": (STEPS + 1, STEPS * 150 + 3)}
    assert not list(run.path.rglob("*.eval"))


def test_a_dry_run_touches_nothing_and_finds_the_same(run: Run) -> None:
    before = tree(run.path)
    found = collect(run, logs=True, dry_run=True)
    assert tree(run.path) == before
    assert not (run.path / "events.jsonl").exists()
    assert collect(run, logs=True) == found
    assert collect(run, logs=True).waste == ()


def test_a_finished_run_keeps_what_a_resume_loads(tmp_path: Path) -> None:
    run = made(tmp_path, steps=STEPS)
    checkpoint(run, STEPS)
    collect(run)
    assert run.checkpoints() == [0, 10, STEPS]  # the resume of a finished run loads the references' policy before the last one
    assert (run.path / "references.jsonl").read_bytes() == b""
    assert len(list(saved_references(run.path))) == STEPS
    assert not list((run.path / "steps").glob("*.segments.*"))


def test_a_run_whose_audits_run_ahead_keeps_the_checkpoint_before_its_last_update(tmp_path: Path) -> None:
    run = made(tmp_path, off_policy=1)
    checkpoint(run, STEPS)  # as an alarm or a budget leaves it: the resume replays the update of step 12, from checkpoint 10
    collect(run)
    assert run.checkpoints() == [0, 10, STEPS]
    assert sorted(p.name[5:9] for p in (run.path / "steps").glob("*.segments.*")) == ["0011", "0012"]


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda folder: (folder / "model.safetensors").write_bytes(b"cut"), "truncated"),
        (lambda folder: (folder / "model.safetensors").unlink(), "can't be checked"),
        (lambda folder: (folder / "engine.json").write_text("{"), "can't be checked"),
        (lambda folder: (folder / "engine.json").write_text("[]"), "can't be checked"),
        (lambda folder: (folder / "engine.json").unlink(), "can't be checked"),
    ],
    ids=["truncated", "missing", "no JSON", "no object", "no list"],
)
def test_a_damaged_newest_checkpoint_gives_up_no_other(run: Run, harm: Callable[[Path], object], words: str) -> None:
    harm(run.checkpoint(10))
    freed = collect(run)
    assert run.checkpoints() == [0, 5, 10]
    assert freed.kinds().keys() == {"unfinished checkpoints", "references"}
    assert len(list((run.path / "steps").glob("*.segments.*"))) == STEPS
    assert len(freed.notes) == 1 and words in freed.notes[0]


def test_links_are_left_alone(run: Run, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    run.checkpoint(5).rename(elsewhere)
    run.checkpoint(5).symlink_to(elsewhere)
    collect(run)
    assert run.checkpoint(5).is_symlink()
    assert not damage(elsewhere)


def test_a_run_without_steps_or_references_has_nothing_to_give(tmp_path: Path) -> None:
    run = create_run(tmp_path, load_config(packaged_config("quickstart")))
    assert collect(run).waste == ()


# ---------------------------------------------------------------- kills


class _KilledError(BaseException):
    pass


@contextmanager
def killed_at(monkeypatch: pytest.MonkeyPatch, moment: int) -> Iterator[list[str]]:
    """Dies before the file operation of that number; the removal of a folder dies half done."""
    operations: list[str] = []

    def dying(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(path: Any, *args: Any, **kwargs: Any) -> Any:
            operations.append(name)
            if len(operations) > moment:
                if name == "rmtree" and os.path.isdir(path):
                    next(p for p in Path(path).rglob("*") if p.is_file()).unlink()
                raise _KilledError
            return real(path, *args, **kwargs)

        return operation

    with monkeypatch.context() as patch:
        for owner, name in ((Path, "rename"), (Path, "replace"), (Path, "unlink"), (os, "fsync"), (shutil, "rmtree")):
            patch.setattr(owner, name, dying(name, getattr(owner, name)))
        try:
            yield operations
        except _KilledError:
            pass


def test_a_kill_at_any_moment_leaves_a_valid_run_that_the_next_call_finishes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    references = list(saved_references(run.path))
    copy = run.path.with_name("whole")
    shutil.copytree(run.path, copy)
    with killed_at(monkeypatch, 10**6) as operations:
        collect(open_run(copy))
    count = len(operations)
    assert count > 20
    whole = tree(copy)
    for moment in range(count):
        victim = run.path.with_name(f"killed-{moment}")
        shutil.copytree(run.path, victim)
        with killed_at(monkeypatch, moment):
            collect(open_run(victim))
        opened = open_run(victim)
        assert len(opened.metrics()) == STEPS
        assert all(not damage(opened.checkpoint(step)) for step in opened.checkpoints())
        assert {0, 10} <= set(opened.checkpoints())
        assert [opened.read_step(step, "segments") for step in (11, 12)] == [[{"tokens": [10]}], [{"tokens": [11]}]]
        assert References.load(victim / "references.jsonl", 5).get(scenario(name="s1"), STEPS) is not None
        assert list(saved_references(victim)) == references
        collect(opened)
        assert tree(victim) == whole, f"killed before operation {moment}"
        shutil.rmtree(victim)


def test_training_removes_what_kills_left_of_checkpoints(run: Run) -> None:
    prune_checkpoints(run, keep=1, also={0})
    assert sorted(p.name for p in (run.path / "checkpoints").iterdir()) == ["step-0000", "step-0010"]


# ---------------------------------------------------------------- the command


def test_the_command_says_what_it_freed_by_kind(run: Run) -> None:
    told = call(run.path, "--dry-run", "--display", "none")
    assert told.exit_code == 0 and "would free" in told.output
    done = call(run.path, run.path, "--display", "none")
    assert done.exit_code == 0, done.output
    assert done.output == told.output.replace("would free", "freed")
    assert done.output.count("freed") == 1  # a run that is named twice is done once
    for words in ("checkpoints 1, ", "segments 10, ", "references 10, ", "unfinished checkpoints 2, 8 bytes"):
        assert words in done.output
    event = json.loads((run.path / "events.jsonl").read_text().splitlines()[-1])
    assert event["event"] == "gc" and event["freed"]["segments"]["count"] == 10


def test_a_running_run_is_left_alone_and_the_others_are_done(run: Run, tmp_path: Path) -> None:
    other = made(tmp_path / "others")
    before = tree(run.path)
    with owned(run):
        done = call(run.path, other.path, "--display", "none")
    assert isinstance(done.exception, RunError) and "another process is working" in str(done.exception)
    assert tree(run.path) == before
    assert other.checkpoints() == [0, 10]


@pytest.mark.parametrize(
    ("name", "words"),
    [("nothing", "no such folder"), ("empty", "no run here"), ("file", "no such folder")],
    ids=["missing", "no run", "a file"],
)
def test_bad_names_are_told_before_anything_goes(run: Run, tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    before = tree(run.path)
    done = call(run.path, tmp_path / name)
    assert isinstance(done.exception, RunError) and words in str(done.exception) and name in str(done.exception)
    assert tree(run.path) == before


def test_damage_is_named(run: Run) -> None:
    collect(run)
    archive = run.path / ARCHIVE
    archive.write_bytes(archive.read_bytes()[:-5])
    checkpoint(run, 15)
    for step in range(STEPS, 15):
        run.append_metrics({"step": step + 1, "reward": 0.5})
    with pytest.raises(RunError, match=r"references\.old\.jsonl\.gz: damaged"):
        collect(run)
    run.metrics_file.write_text('{"step": 1}\nbroken\n{"step": 3}\n{"step": 4}\n')
    with pytest.raises(RunError, match="line 2"):
        collect(run)


def test_what_cannot_be_removed_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(collector, "discard", refused)
    with pytest.raises(RunError, match=r"step-0005: can't be removed \(Permission denied\)"):
        collect(run)


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 bytes"), (999, "999 bytes"), (1_000, "1.0 kB"), (2_149_000, "2.1 MB"), (3 * 10**9, "3.0 GB")]
)
def test_size(count: int, text: str) -> None:
    assert size(count) == text
