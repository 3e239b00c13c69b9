"""The transcript reader's files: complete, safe against whatever models wrote, and honest about what is missing."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from audits import audit, scenario
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from auditrl.analysis import reader
from auditrl.analysis.conversation import conversation
from auditrl.analysis.page import asset, digest
from auditrl.analysis.reader import Collection, Entry, Hidden, ReaderData, data_script, outcome, report_kind, write_reader
from auditrl.analysis.reader_sources import LIMIT, hidden_blocks, spread, write_evaluation_reader, write_run_reader
from auditrl.analysis.run_report import write_report
from auditrl.behaviors.loader import load_bank
from auditrl.commands.runs import report
from auditrl.config import PersonaConfig, load_config, packaged_config
from auditrl.errors import ConfigError, RunError
from auditrl.evals.records import SuiteRecords
from auditrl.evals.scores import ScoreRow, scorecard, suite_result
from auditrl.files import locked, write_whole
from auditrl.runs import Run, create_run
from auditrl.types import Audit, Branch, Condition, Message, Report, Scenario, Seed, Verdict


def parse(path: Path) -> Any:
    """What a data file hands to the page."""
    found = re.fullmatch(r'auditrlReader\("([a-z0-9-]+)", (".*")\);\n', path.read_bytes().decode("ascii"), re.DOTALL)
    assert found is not None and found[1] == path.stem
    return json.loads(json.loads(found[2]))


def rows(page: Path) -> list[dict[str, Any]]:
    """All rows of the index, with the title of their set."""
    index = parse(page.parent / "data" / "index.js")
    return [{"set": s["title"], **dict(zip(index["fields"], row, strict=True))} for s in index["sets"] for row in s["rows"]]


def bodies(page: Path) -> list[dict[str, Any]]:
    """All conversations, texts put back in their places."""
    found: list[dict[str, Any]] = []
    for path in sorted((page.parent / "data").glob("part-*.js")):
        part = parse(path)

        def full(value: Any, texts: Sequence[str] = part["texts"]) -> str:
            return texts[value] if isinstance(value, int) else value

        for body in part["audits"]:
            for side in ("items", "target"):
                body[side] = [
                    [*item[:4], "".join(full(t) for t, _ in item[4]) if isinstance(item[4], list) else full(item[4])] for item in body[side]
                ]
            found.append({**body, "seed": full(body["seed"]), "reportText": full(body["reportText"])})
    return found


def notes(page: Path) -> dict[str, list[str]]:
    return {s["key"]: s["notes"] for s in parse(page.parent / "data" / "index.js")["sets"]}


def verdict(of: Audit, value: float | None, *others: str, judge: str = "pairwise") -> Verdict:
    return Verdict(judge=judge, audits=(of.id, *others), value=value, reason="because", missing=None if value is not None else "refusal")


def made(folder: Path, entries: Sequence[Entry], **changes: Any) -> Path:
    data = ReaderData(
        title="t",
        simulated=False,
        collections=[Collection("training", "Training", "Reward", entries)],
        hidden=lambda _: Hidden("secret", "from the bank"),
        **changes,
    )
    page = write_reader(folder, data)
    assert page is not None
    return page


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run of three steps, two groups of two audits each; the first has a planted target."""
    made = create_run(tmp_path / "runs", load_config(packaged_config("quickstart"), [("train.groups", "8"), ("train.group_size", "2")]))
    for step in (1, 2, 3):
        records: list[dict[str, Any]] = []
        for group, condition in enumerate[Condition](("planted", "persona")):
            where = Scenario(
                id=f"s{group}",
                seed=Seed(id="flattery/1", behavior="flattery", split="train", text="Ask."),
                condition=condition,
                behavior="flattery",
            )
            for index in (0, 1):
                one = audit(f"step-{step:04d}.{group}/s{group}#{index}", where=where, index=index)
                records.append(
                    {
                        "audit": one.model_dump(mode="json"),
                        "reward": 0.25 * index,
                        "verdicts": [verdict(one, 0.5, "r").model_dump(mode="json")],
                    }
                )
        made.write_step(step, "audits", records)
        made.append_metrics({"step": step, "reward": 0.1})
    return made


def evaluated(folder: Path, *, finished: bool = True) -> list[Audit]:
    """An evaluation folder with one suite of two audits."""
    audits = [audit(f"realism/x#{i}", index=i) for i in (0, 1)]
    records = SuiteRecords(folder, "realism")
    records.reopen()
    for i, one in enumerate(audits):
        records.add_audit(one)
        records.add_verdict(verdict(one, float(i), judge="realism_pair"))
    if finished:
        records.finish([one.id for one in audits])
        scores = [ScoreRow("realism", None, "x", i, 100.0 * i, {}, one.id) for i, one in enumerate(audits)]
        write_whole(folder / "realism.json", scorecard("me", [suite_result("realism", scores)], simulated=True).to_json())
    return audits


# ---------------------------------------------------------------- data files


@given(
    st.recursive(
        st.text(max_size=20) | st.none() | st.integers(),
        lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=8), v, max_size=3),
    )
)
@settings(max_examples=80, deadline=None)
def test_data_scripts_hold_one_ascii_string_and_nothing_else(value: Any) -> None:
    text = data_script("part-0001", value)
    assert text.isascii() and "<" not in text and text.count("\n") == 1
    literal = text.removeprefix('auditrlReader("part-0001", ').removesuffix(");\n")
    # read as JSON it is the string itself: JSON strings of ASCII are JavaScript strings
    assert json.loads(json.loads(literal)) == value


def test_scripts_set_text_only_and_the_policy_names_the_shipped_ones(tmp_path: Path) -> None:
    page = made(tmp_path / "reader", [Entry(audit())]).read_text()
    script = re.search(r"<script>(.*)</script>", page, re.DOTALL)
    style = re.search(r"<style>(.*)</style>", page, re.DOTALL)
    assert script is not None and style is not None
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    for wanted in (
        "default-src 'none'",
        f"script-src '{digest(script[1])}' 'strict-dynamic'",
        f"style-src '{digest(style[1])}'",
        "require-trusted-types-for 'script'",
    ):
        assert wanted in policy[1]
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|Function\(|setTimeout\(\s*[\"'`]|DOMParser|srcdoc", script[1]
    )
    assert not re.search(r"https?:|//[a-z]|@import|url\(|\son[a-z]+=", page.replace(script[1], "")) and "://" not in script[1]


def test_a_title_with_markup_stays_text(tmp_path: Path) -> None:
    data = ReaderData(
        title="<b>x</b>\u202e",
        simulated=False,
        collections=[Collection("training", "T", "R", [Entry(audit())])],
        hidden=lambda _: Hidden(None, ""),
    )
    page = write_reader(tmp_path / "reader", data)
    assert (
        page is not None
        and "&lt;b&gt;x&lt;/b&gt;\u27e6U+202E\u27e7" in page.read_text()
        and "<b>" not in page.read_text().split("<script>")[0]
    )


def test_file_names_are_counted_never_taken_from_data(tmp_path: Path) -> None:
    names = ["../../evil", "a/b\\c", "con", "\x00", "<script>", "x" * 5_000]
    page = made(tmp_path / "reader", [Entry(audit(name or "x")) for name in names], categories={n: n for n in names})
    files = sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file() and not p.name.startswith("."))
    assert files == ["reader/data/index.js", "reader/data/part-0001.js", "reader/index.html"]
    assert [len(row["id"]) < 400 for row in rows(page)] == [True] * len(names)


def test_rows_say_where_the_conversation_is_and_bodies_hold_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "PART_AUDITS", 2)
    entries = [Entry(audit(f"g{i // 2}/s#{i % 2}", reply=f"reply {i}"), score=i / 3, step=7, suite="") for i in range(5)]
    page = made(tmp_path / "reader", entries, categories={"g1/s#0": "quiet_probing"})
    found, talks = rows(page), bodies(page)
    assert [(r["part"], r["place"]) for r in found] == [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0)]
    assert [r["group"] for r in found] == [0, 0, 1, 1, 2]
    assert [r["category"] for r in found] == ["", "", "quiet_probing", "", ""]
    assert [r["score"] for r in found] == [0.0, 0.3333, 0.6667, 1.0, 1.3333]
    assert [t["target"][-1][4] for t in talks] == [f"reply {i}" for i in range(5)]
    assert {t["hidden"] for t in talks} == {0} and parse(page.parent / "data" / "index.js")["blocks"] == ["secret"]


def test_repeated_texts_stand_once_in_a_file_and_big_files_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = "The same long answer of the target. " * 8_000
    page = made(tmp_path / "reader", [Entry(audit(f"a{i}", reply=long)) for i in range(3)])
    texts = parse(page.parent / "data" / "part-0001.js")["texts"]
    assert len([t for t in texts if t.startswith("The same long")]) == 1
    assert all(t["items"][-1][4].endswith(f"{len(long) - reader.TEXT_LIMIT:,} more characters left out") for t in bodies(page))
    assert (page.parent / "data" / "part-0001.js").stat().st_size < 250_000
    monkeypatch.setattr(reader, "PART_CHARS", 3_000)
    other = made(tmp_path / "other", [Entry(audit(f"a{i}", reply=f"{i} {long[:2_000]}")) for i in range(5)])
    assert [row["part"] for row in rows(other)] == [1, 1, 2, 2, 3]


def test_scores_that_json_cannot_hold_are_no_scores(tmp_path: Path) -> None:
    page = made(tmp_path / "reader", [Entry(audit("a"), score=float("nan")), Entry(audit("b"), score=float("inf")), Entry(audit("c"))])
    assert [row["score"] for row in rows(page)] == [None, None, None]


def test_branches_are_paths_through_items_that_stand_once() -> None:
    def m(ref: str, text: str, role: Any = "user") -> Message:
        return Message(role=role, text=text, ref=ref)

    first = (m("M1", "a"), m("M2", "b", "assistant"), m("M3", "c"), m("M4", "d", "assistant"))
    second = (*first[:2], m("M5", "e"), m("M6", "f", "assistant"))
    third = (m("M7", "g"), m("M8", "h", "assistant"))
    branches = (Branch(messages=first), Branch(messages=second, branched_from="M2", shared=2), Branch(messages=third, branched_from=""))
    talk = conversation(audit().model_copy(update={"branches": branches}), [], "a")
    paths = [([talk.target_items[i].ref for i in b.items], b.shared, b.title) for b in talk.branches]
    assert paths == [
        (["M1", "M2", "M3", "M4"], 0, "first conversation"),
        (["M1", "M2", "M5", "M6"], 2, "new branch after M2"),
        (["M7", "M8"], 0, "new conversation"),
    ]
    assert [i.ref for i in talk.target_items] == ["M1", "M2", "M3", "M4", "", "M5", "M6", "", "M7", "M8"]


# ---------------------------------------------------------------- what an audit came to


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (None, "no report"),
        (Report(finding=False, confidence=0.9), "no finding"),
        (Report(finding=True, confidence=0.69), "tentative claim"),
        (Report(finding=True, confidence=0.7), "firm claim"),
    ],
)
def test_report_kind(made: Report | None, kind: str) -> None:
    assert report_kind(audit().model_copy(update={"report": made})) == kind


@pytest.mark.parametrize(
    ("verdicts", "error", "word"),
    [
        ([], None, "no verdict"),
        ([verdict(audit("a"), None)], None, "no verdict"),
        ([verdict(audit("a"), 0.9, "r")], "provider: gone", "failed"),
        ([verdict(audit("a"), 0.51, "r")], None, "won"),
        ([verdict(audit("r"), 0.51, "a")], None, "lost"),
        ([verdict(audit("a"), 0.9, "b"), verdict(audit("b"), 0.9, "a")], None, "tied"),
        ([verdict(audit("a"), 1.0)], None, "yes"),
        ([verdict(audit("a"), 0.0)], None, "no"),
        ([verdict(audit("a"), 4.5)], None, "scored"),
        ([verdict(audit("a"), 1.0), verdict(audit("a"), 0.0)], None, "scored"),
    ],
)
def test_outcome(verdicts: list[Verdict], error: str | None, word: str) -> None:
    assert outcome(Entry(audit("a", error=error), verdicts)) == word


# ---------------------------------------------------------------- what was hidden


def test_hidden_blocks_are_rebuilt_and_their_absence_is_said(tmp_path: Path) -> None:
    find = hidden_blocks(None, PersonaConfig(name="Vera"))
    planted, persona, clean = (scenario(c).model_copy(update={"behavior": "flattery"}) for c in ("planted", "persona", "clean"))
    block = find(planted).text
    assert block is not None and "Vera" in block and load_bank().behaviors["flattery"].instruction.strip() in block
    assert (text := find(persona).text) is not None and block.startswith(text)
    assert find(clean) == Hidden(None, "nothing was hidden in this target.")
    assert find(scenario("planted")) == Hidden(None, "can't be shown: the bank has no behavior b.")
    broken = hidden_blocks(tmp_path / "gone", PersonaConfig())(planted)
    assert broken.text is None and "the bank can't be read" in broken.note and "no such folder" in broken.note


# ---------------------------------------------------------------- runs


def test_a_run_is_read_with_its_evaluations_and_references(run: Run) -> None:
    evaluated(run.path / "evaluation" / "after")
    (run.path / "references.jsonl").write_text(
        json.dumps({"snapshot": 0, "scenario": "s", "audit": audit("r").model_dump(mode="json")}) + "\n"
    )
    page, reader_page = write_report(run)
    assert reader_page is not None
    found = rows(reader_page)
    assert [r["set"] for r in found] == ["Training"] * 12 + ["Evaluation after"] * 2 + ["References"]
    assert [r["step"] for r in found[:12]] == [1] * 4 + [2] * 4 + [3] * 4
    assert [(r["suite"], r["score"]) for r in found[12:14]] == [("realism", 0.0), ("realism", 100.0)]
    assert notes(reader_page) == {"training": [], "after": [], "references": []}
    assert 'href="reader/index.html"' in page.read_text()


def test_the_reports_audits_link_into_the_reader(run: Run) -> None:
    records = run.read_step(3, "audits")
    extra = [{**r, "audit": {**r["audit"], "id": r["audit"]["id"] + "b"}} for r in records]
    run.write_step(3, "audits", [*records, *extra])
    page, _ = write_report(run)
    links = re.findall(r'href="reader/index.html#training/([^"]+)"', page.read_text())
    assert len(links) == 6 and all(re.fullmatch(r"[A-Za-z0-9%._-]+", link) for link in links)
    run.write_step(3, "audits", records)
    assert "reader/index.html" not in write_report(create_run(run.path.parent / "x", run.config))[0].read_text()


def test_missing_and_damaged_parts_of_a_run_are_said(run: Run) -> None:
    run.step_file(1, "audits.json.gz").unlink()
    run.step_file(2, "audits.json.gz").write_bytes(b"damaged")
    (run.path / "references.jsonl").write_text('{"snapshot": 0}\n')
    evaluated(run.path / "evaluation" / "before", finished=False)
    after = run.path / "evaluation" / "after"
    evaluated(after)
    (after / "production.audits.jsonl").write_text('{"audit": {"id": 1}, "verdicts": []}\n')
    page = write_run_reader(run)
    assert page is not None
    found = notes(page)
    assert found["training"][0] == "Not there any more: the audits of 1 steps (1)."
    assert found["training"][1].startswith("Step 2 can't be read and is left out: ") and "damaged" in found["training"][1]
    assert found["before"] == ["realism is not finished: its audits have no scores yet."]
    assert found["after"][0].startswith("production can't be read and is left out: ") and "line 1" in found["after"][0]
    assert found["references"] == ["The references can't be read: no key 'audit'"]
    assert {row["step"] for row in rows(page) if row["set"] == "Training"} == {3}


def test_strategies_come_from_the_folder_of_cluster(run: Run, tmp_path: Path) -> None:
    def table(*lines: str) -> str:
        return "\n".join(["run,step,audit,category", *lines]) + "\n"

    own = [f"quickstart,{step},step-{step:04d}.0/s0#0,self-reports" for step in (1, 2)]
    write_whole(run.path / "strategies" / "audits.csv", table(*own))
    page = write_run_reader(run)
    assert page is not None
    assert [row["category"] for row in rows(page)] == [*["self-reports", "", "", ""] * 2, "", "", "", ""]
    # ids repeat between runs: of a table about several, only this run's lines count
    several = tmp_path / "several"
    write_whole(several / "audits.csv", table("quickstart,1,step-0001.0/s0#0,mine", "other,1,step-0001.0/s0#1,foreign"))
    done = CliRunner().invoke(report, [str(run.path), "--strategies", str(several)])
    assert done.exit_code == 0, done.output
    assert [row["category"] for row in rows(page)][:2] == ["mine", ""]
    # a damaged table that lies there is a note, one that was named is an error
    write_whole(run.path / "strategies" / "audits.csv", "run,step\nquickstart,1\n")
    assert write_run_reader(run) == page
    assert parse(page.parent / "data" / "index.js")["notes"][0].startswith("Strategies are left out: ")
    for folder, words in ((run.path / "strategies", "no key 'audit'"), (tmp_path / "none", "name the folder that `auditrl cluster` wrote")):
        refused = CliRunner().invoke(report, [str(run.path), "--strategies", str(folder)])
        assert isinstance(refused.exception, RunError) and words in str(refused.exception)


def test_a_run_without_audits_has_a_report_and_says_why_no_reader(tmp_path: Path) -> None:
    empty = create_run(tmp_path, load_config(packaged_config("quickstart")))
    page, found = write_report(empty)
    assert found is None and not (empty.path / "reader").exists()
    assert "no audits to read yet" in page.read_text()


def test_long_runs_are_thinned_to_whole_steps_and_say_so(run: Run) -> None:
    page = write_run_reader(run, limit=33)  # 16 audits a step by the config: two steps
    assert page is not None
    assert {row["step"] for row in rows(page)} == {1, 3}
    assert notes(page)["training"] == ["2 of 3 steps, evenly spaced; `auditrl report RUN --audits N` holds more."]


@given(st.integers(0, 40), st.integers(1, 50))
@settings(max_examples=60, deadline=None)
def test_spread_keeps_the_ends_and_the_order(length: int, count: int) -> None:
    chosen = spread(list(range(length)), count)
    assert len(chosen) == min(length, count) == len(set(chosen)) and chosen == sorted(chosen)
    assert not chosen or (chosen[-1] == length - 1 and (count == 1 or chosen[0] == 0))


# ---------------------------------------------------------------- writing


def test_a_reader_is_replaced_as_a_whole(tmp_path: Path) -> None:
    folder = tmp_path / "reader"
    (tmp_path / ".reader.part" / "data").mkdir(parents=True)  # what a kill left
    made(folder, [Entry(audit(f"a{i}")) for i in range(reader.PART_AUDITS + 1)])
    assert (folder / "data" / "part-0002.js").exists()
    made(folder, [Entry(audit("b"))])
    assert sorted(p.name for p in (folder / "data").iterdir()) == ["index.js", "part-0001.js"]
    assert sorted(p.name for p in tmp_path.iterdir()) == [".reader.lock", "reader"]
    empty = ReaderData(title="t", simulated=False, collections=[], hidden=lambda _: Hidden(None, ""))
    assert write_reader(folder, empty) is None and (folder / "index.html").exists()


def test_folders_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    mine = tmp_path / "reader"
    mine.mkdir()
    (mine / "thesis.tex").write_text("mine")
    with pytest.raises(RunError, match="holds something that is no reader; move it away"):
        made(mine, [Entry(audit())])
    assert (mine / "thesis.tex").read_text() == "mine"
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="can't write the reader"):
        made(tmp_path / "file" / "reader", [Entry(audit())])
    with locked(tmp_path / ".busy.lock"), pytest.raises(RunError, match="another process is writing"):
        made(tmp_path / "busy", [Entry(audit())])


def test_a_reader_that_cannot_be_written_does_not_cost_the_report(run: Run) -> None:
    (run.path / "reader").write_text("in the way")
    page, found = write_report(run)
    assert found is None and "transcript reader could not be written" in page.read_text()


# ---------------------------------------------------------------- the command


def test_report_prints_both_pages_and_keeps_the_reader_when_told(run: Run) -> None:
    done = CliRunner().invoke(report, [str(run.path), "--audits", "20"])
    assert done.output.split() == [str(run.path / "report.html"), str(run.path / "reader" / "index.html")], done.output
    before = (run.path / "reader" / "data" / "index.js").read_bytes()
    again = CliRunner().invoke(report, [str(run.path), "--audits", "0"])
    assert again.output == done.output and (run.path / "reader" / "data" / "index.js").read_bytes() == before
    refused = CliRunner().invoke(report, [str(run.path), "--bank", "x"])
    assert isinstance(refused.exception, ConfigError)
    assert next(p for p in report.params if p.name == "audits").default == LIMIT


def test_report_reads_the_folder_of_an_evaluation(tmp_path: Path) -> None:
    folder = tmp_path / "evaluation"
    audits = evaluated(folder)
    write_whole(
        folder / "evaluation.json",
        json.dumps({"format": 1, "auditor": "me/<b>", "audit": {"persona": {"name": "Vera", "lab": "L"}}, "simulated": True}),
    )
    done = CliRunner().invoke(report, [str(folder)])
    assert done.output.strip() == str(folder / "reader" / "index.html"), done.output
    assert [row["id"] for row in rows(folder / "reader" / "index.html")] == [one.id for one in audits]
    for options, words in ((["--published"], "auditrl compare"), (["--bank", str(tmp_path / "gone")], "no such folder")):
        refused = CliRunner().invoke(report, [str(folder), *options])
        assert isinstance(refused.exception, ConfigError) and words in str(refused.exception)
    for text, words in ((json.dumps({"format": 1, "audit": {"persona": {"name": ""}}}), "audit.persona"), ("{", "can't be read")):
        (folder / "evaluation.json").write_text(text)
        with pytest.raises(RunError, match=words):
            write_evaluation_reader(folder)


def test_scripts_ship_with_the_package() -> None:
    assert "auditrlReader" in asset("reader/store.js") and asset("reader/reader.css", "theme.css").count("@media print") == 1
