"""`auditrl cluster` and what it reads and writes, without a model."""

from __future__ import annotations

import csv
import gzip
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from clustering_cases import corpus

from auditrl.analysis.clustering.sources import Skipped, read_audits
from auditrl.analysis.reader_sources import saved_strategies
from auditrl.cli import main
from auditrl.config import load_config, packaged_config
from auditrl.errors import RunError
from auditrl.runs import create_run
from auditrl.types import Audit


def lines(path: Path, audits: Sequence[Audit]) -> Path:
    path.write_text("".join(json.dumps({"audit": a.model_dump(mode="json"), "verdicts": []}) + "\n" for a in audits))
    return path


def a_run(root: Path, steps: int = 3) -> Path:
    """A run directory with the corpus dealt out over its steps."""
    run = create_run(root, load_config(packaged_config("quickstart"), [("name", "mine")]))
    audits = corpus(3 * steps)
    for step in range(1, steps + 1):
        mine = [audit.model_copy(update={"id": f"step-{step:04d}/{audit.id}"}) for audit in audits[step - 1 :: steps]]
        run.write_step(step, "audits", [{"audit": a.model_dump(mode="json"), "reward": 0.5, "verdicts": []} for a in mine])
        run.append_metrics({"step": step, "reward": 0.5})
    return run.path


def call(*args: str | Path) -> int:
    with pytest.raises(SystemExit) as done:
        main(["cluster", *map(str, args), "--display", "none"])
    return int(done.value.code or 0)


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


# ---------------------------------------------------------------- reading


def test_a_run_gives_its_steps(tmp_path: Path) -> None:
    skipped = Skipped()
    found = list(read_audits([a_run(tmp_path)], skipped))
    assert len(found) == 72
    assert {(item.run, item.step, item.simulated) for item in found} == {("mine", step, True) for step in (1, 2, 3)}
    assert skipped.notes() == []


def test_a_missing_step_is_said_and_a_damaged_one_named(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    (run / "steps" / "step-0002.audits.json.gz").unlink()
    skipped = Skipped()
    assert {item.step for item in read_audits([run], skipped)} == {1, 3}
    assert "1 steps or samples without a readable audit" in skipped.notes()[0]
    (run / "steps" / "step-0003.audits.json.gz").write_bytes(gzip.compress(b"[{")[:-4])
    with pytest.raises(RunError, match=r"step-0003\.audits\.json\.gz: damaged"):
        list(read_audits([run], Skipped()))


def test_failed_and_repeated_audits_are_left_out(tmp_path: Path) -> None:
    audits = corpus(1)
    failed = audits[0].model_copy(update={"id": "broken", "error": "target: gone"})
    one, two = lines(tmp_path / "one.jsonl", [*audits, failed]), lines(tmp_path / "two.jsonl", audits[:3])
    skipped = Skipped()
    assert len(list(read_audits([one, two], skipped))) == 8
    assert (skipped.failed, skipped.repeated) == (1, 3)
    assert len(skipped.notes()) == 2


def test_folders_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for folder, part in (("a", corpus(1)[:4]), ("b", corpus(1)[4:])):
        (tmp_path / folder / "suite").mkdir(parents=True)
        lines(tmp_path / folder / "suite" / "quality.audits.jsonl", part)
    found = list(read_audits([tmp_path / "a" / "suite", tmp_path / "b" / "suite"], Skipped()))
    assert {item.run for item in found} == {"a/suite", "b/suite"}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: None, "no such file or folder"),
        (lambda p: p.mkdir(), "no audit in it"),
        (lambda p: p.write_text(""), "no audit in it"),
        (lambda p: p.write_text('{"audit": {"id": "x"}}\n'), "line 1: key scenario"),
        (lambda p: p.write_text('{"audit": 3}\n{"x": 1}\n'), "line 1: key audit"),
        (lambda p: p.with_suffix(".eval").write_text("no zip"), "no readable Inspect log"),
    ],
    ids=["missing", "empty folder", "empty file", "other version", "no audit", "no log"],
)
def test_a_source_without_audits_is_named(make: Any, words: str, tmp_path: Path) -> None:
    make(tmp_path / "source")
    path = tmp_path / "source.eval" if (tmp_path / "source.eval").exists() else tmp_path / "source"
    with pytest.raises(RunError, match=words):
        list(read_audits([path], Skipped()))


# ---------------------------------------------------------------- the command


def test_a_run_becomes_a_codebook_and_a_composition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = a_run(tmp_path)
    assert call(run, "--top", "8", "--stability", "1") == 0
    printed = capsys.readouterr().out
    for words in ("Strategies", "controlled systematic", "First quarter", "stability", "no evidence about real models"):
        assert words in printed
    folder = run / "strategies"
    audits = table(folder / "audits.csv")
    assert len(audits) == 72
    assert saved_strategies(folder, run) == {row["audit"]: row["category"] for row in audits}
    shares = table(folder / "composition.csv")
    assert {row["step"] for row in shares} == {"1", "2", "3"}
    assert sum(int(row["count"]) for row in shares) == 72
    assert {row["step"] for row in table(folder / "mix.csv")} == {"1", "2", "3"}
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["simulated"] and summary["audits"] == 72 and summary["quality"]["agreements"]
    page = (folder / "report.html").read_text()
    assert "<svg" in page and "no evidence about real models" in page

    # the frozen codebook classifies the same audits alike, and others too
    assert call(run, "--codebook", folder / "codebook.json", "--out", tmp_path / "again") == 0
    assert table(tmp_path / "again" / "audits.csv") == audits
    assert json.loads((tmp_path / "again" / "summary.json").read_text())["codebook"] == summary["codebook"]

    # a cluster moved by hand takes its audits along
    text = (folder / "categories.toml").read_text()
    head, _, placed = text.partition("[clusters]\n")
    edited = tmp_path / "mine.toml"
    edited.write_text(head + "[clusters]\n" + placed.replace(placed.splitlines()[0], '0 = "other"'))
    assert call(run, "--codebook", folder / "codebook.json", "--categories", edited, "--out", tmp_path / "moved") == 0
    moved = table(tmp_path / "moved" / "audits.csv")
    top = max(name for name in audits[0] if name.startswith("level_"))
    assert {row["category"] for row in moved if row[top] == "0"} == {"other"}


def test_hostile_names_and_texts_are_shown_as_text(tmp_path: Path) -> None:
    bad = "<script>alert(1)</script>"
    audits = [a.model_copy(update={"auditor": bad, "id": f"{bad}{i}"}) for i, a in enumerate(corpus(2))]
    source = lines(tmp_path / "x.jsonl", audits)
    assert call(source, "--out", tmp_path / "out", "--stability", "0") == 0
    assert "<script>alert" not in (tmp_path / "out" / "report.html").read_text()
    assert table(tmp_path / "out" / "audits.csv")[0]["auditor"] == bad


def test_one_audit_is_enough_for_an_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(lines(tmp_path / "x.jsonl", corpus(1)[:1]), "--out", tmp_path / "out") == 0
    assert "1 clusters instead of 12" in " ".join(capsys.readouterr().out.split())
    assert (tmp_path / "out" / "composition.svg").exists()


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["nowhere"], 3, "no such file or folder"),
        (["x.jsonl", "--embedding", "word2vec"], 2, "use tfidf, minilm or openai:MODEL"),
        (["x.jsonl", "--categories", "none.toml"], 2, "can't be read"),
        (["x.jsonl", "--codebook", "x.jsonl"], 2, "no codebook"),
        (["x.jsonl", "--k", "0"], 2, "0 is not in the range"),
        (["x.jsonl", "--describer", "nobody/knows"], 2, "--describer.model"),
        (["failed.jsonl"], 2, "nothing to cluster"),
        ([], 2, "Missing argument"),
    ],
)
def test_bad_input_names_the_mend(
    args: list[str], code: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines(tmp_path / "x.jsonl", corpus(1))
    lines(tmp_path / "failed.jsonl", [a.model_copy(update={"error": "target: gone"}) for a in corpus(1)])
    assert call(*args) == code
    assert words in capsys.readouterr().err


def test_another_describers_codebook_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = lines(tmp_path / "x.jsonl", corpus(1))
    assert call(source, "--out", tmp_path / "out", "--stability", "0") == 0
    path = tmp_path / "out" / "codebook.json"
    path.write_text(path.read_text().replace('"describer": "rule"', '"describer": "mockllm/other"'))
    assert call(source, "--codebook", path, "--out", tmp_path / "again") == 2
    assert "give --describer mockllm/other" in capsys.readouterr().err


def test_a_folder_without_results_has_no_categories(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no audits\.csv"):
        saved_strategies(tmp_path, tmp_path)
    (tmp_path / "audits.csv").write_text("a,b\n1,2\n")
    with pytest.raises(RunError, match="run `auditrl cluster` again"):
        saved_strategies(tmp_path, tmp_path)


def test_composition_needs_no_torch() -> None:
    code = "import sys, auditrl.analysis.clustering.composition as c; assert c.composition; sys.exit('torch' in sys.modules or 'inspect_ai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
