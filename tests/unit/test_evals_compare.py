"""Several auditors side by side, another judge on the same audits, and what every output must say."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

import pytest
from eval_tools import BEHAVIOR, SUITE_ANSWER, answering, audit, context, sent, talk

from auditrl.analysis.comparison import (
    agreement_table,
    common_seeds,
    comparison_section,
    comparison_tables,
    detail_table,
    other_conditions,
    write_comparison,
)
from auditrl.analysis.published import frontier
from auditrl.analysis.stats import holm, paired
from auditrl.analysis.tables import score_table, to_markdown
from auditrl.commands.compare import distinct, read_card
from auditrl.config import AuditConfig
from auditrl.display import NoDisplay
from auditrl.errors import ConfigError, RunError
from auditrl.evals.records import SuiteRecords, check_manifest
from auditrl.evals.rescore import agree, kappa, rescore_folder
from auditrl.evals.scores import SUITES, Scorecard, ScoreRow, scorecard, suite_result
from auditrl.evals.suite import FOUR, identity
from auditrl.files import write_whole
from auditrl.types import Audit, Verdict


def card(name: str, values: dict[str, float], *, suites: tuple[str, ...] = SUITES, simulated: bool = True, **meta: object) -> Scorecard:
    def rows(suite: str) -> list[ScoreRow]:
        return [
            ScoreRow(suite, "b" if k < 2 else "c", s, 0, v, {"depth": 100 - v}, f"{suite}{s}") for k, (s, v) in enumerate(values.items())
        ]

    return scorecard(name, [suite_result(suite, rows(suite)) for suite in suites], simulated=simulated, meta=meta)


A = card("a", {"s1": 10, "s2": 20, "s3": 30, "s4": 45})
B = card("b", {"s1": 40, "s2": 52, "s3": 61, "s4": 80})


def test_seeds_without_a_score_for_one_are_dropped_for_all_and_named() -> None:
    cards, notes = common_seeds([A, card("c", {"s1": 1, "s2": 2, "s3": 3}), B])
    assert all({row.seed for row in c.suites[s].rows} == {"s1", "s2", "s3"} for c in cards for s in SUITES)
    assert cards[0].suites["realism"].interval.mean == 20 and cards[0].suites["realism"].parts["depth"].mean == 80
    assert notes[0] == "Audit quality: 1 seeds without a score for one of the auditors are dropped for all: s4."
    assert common_seeds([A, B]) == ([A, B], [])
    assert common_seeds([A, card("d", {"s9": 1}, suites=("realism",))])[0][0].suites["production"] == A.suites["production"]
    assert any("s4" in note for note in comparison_tables([A, card("c", {"s1": 1, "s2": 2, "s3": 3})])[0].notes)


def test_sub_scores_and_behaviors_are_paired_by_seed_and_corrected_over_the_table() -> None:
    table = detail_table(A, B)
    assert table is not None
    by_name = {row.cells[1]: row for row in table.rows if row.cells[0] == "Audit quality"}
    assert set(by_name) == {"depth", "behavior b", "behavior c"}
    expected = paired([60, 48, 39, 20], [90, 80, 70, 55])
    assert by_name["depth"].cells[2] == expected.difference and by_name["depth"].cells[4] == "lower"
    pairs = [expected, paired([40, 52], [10, 20]), paired([61, 80], [30, 45])]
    adjusted = holm([pair.p for _ in SUITES for pair in pairs])
    assert [row.cells[3] for row in table.rows] == pytest.approx(adjusted)
    assert detail_table(A, card("c", {"zz": 1})) is None


@pytest.mark.parametrize(
    ("cards", "message"),
    [
        ([], "name at least one"),
        ([A, A], "a stands twice"),
        ([A, card("r", {"s1": 1}, simulated=False)], "a can't be compared .* simulated world"),
    ],
)
def test_cards_that_cant_be_compared(cards: list[Scorecard], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        comparison_tables(cards)


def test_other_conditions_are_said() -> None:
    assert other_conditions([card("a", {"s": 1}, judge="x", profile="small"), card("b", {"s": 1}, judge="y", profile="small")]) == [
        "Not the same judge for all: 'x' against 'y'. The difference is not the auditor's alone."
    ]


def test_marks_stand_in_title_notes_and_report(tmp_path: Path) -> None:
    marked = card("a", {"s1": 1, "s2": 2}, simulated=False, leak=["behaviors flattery"], conversations=["packaged"])
    table = score_table([marked], frontier(), "Scores")
    assert table.title == "Scores (held-out guard off)"
    text = to_markdown(table)
    assert "held-out guard switched off" in text and "written for the package, not WildChat" in text and "published, not reproduced" in text
    assert comparison_tables([marked, card("b", {"s1": 3, "s2": 5}, simulated=False)])[1].title == "a and b (held-out guard off)"
    _, files = write_comparison([marked], frontier(), tmp_path, title="Evaluation")
    for file in files[:1] + files[-1:]:
        written = file.read_text(encoding="utf-8")
        assert "held-out guard" in written and "not WildChat" in written and "not reproduced" in written
    assert {f.name for f in files} == {"scores.md", "scores.csv", "scores.svg", "report.html"}


def test_the_report_section_escapes_names_and_draws_more_than_six(tmp_path: Path) -> None:
    cards = [card(f"<script>{i}</script>", {"s1": 10.0 + i, "s2": 20.0 + 2 * i}) for i in range(8)]
    section = comparison_section(cards)
    assert len(section.tables) == 1 + 2 * 7 and len(section.figures) == 1
    _, files = write_comparison(cards, (), tmp_path, title="Many")
    assert "<script>0" not in files[-1].read_text(encoding="utf-8")


def test_cards_are_found_by_folder_file_or_run(tmp_path: Path) -> None:
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "scorecard.json").write_text(A.to_json())
    (tmp_path / "run" / "evaluation" / "after").mkdir(parents=True)
    (tmp_path / "run" / "evaluation" / "after" / "scorecard.json").write_text(A.to_json())
    paths = (tmp_path / "e", tmp_path / "e" / "scorecard.json", tmp_path / "run")
    assert [read_card(path) for path in paths] == [A, A, A]
    assert [c.auditor for c in distinct([A, A, B], paths)] == [f"a [{paths[0]}]", f"a [{paths[1]}]", "b"]
    with pytest.raises(RunError, match="no such file or folder"):
        read_card(tmp_path / "nothing")
    with pytest.raises(RunError, match="no evaluation here"):
        read_card(tmp_path)
    (tmp_path / "e" / "scorecard.json").write_text(A.to_json().replace('"version": 1', '"version": 2'))
    with pytest.raises(RunError, match="not a scorecard of format 1"):
        read_card(tmp_path / "e")
    (tmp_path / "e" / "scorecard.json").write_text(A.to_json()[:200])
    with pytest.raises(RunError, match="not a scorecard"):
        read_card(tmp_path / "e")


# ---------------------------------------------------------------- rescoring


@pytest.mark.parametrize(
    ("first", "second", "value"),
    [
        # 20 yes/yes, 5 yes/no, 10 no/yes, 15 no/no: observed .7, expected .5, kappa .4
        ([True] * 25 + [False] * 25, [True] * 20 + [False] * 5 + [True] * 10 + [False] * 15, 0.4),
        ([True, False], [True, False], 1.0),
        ([True, False], [False, True], -1.0),
        ([True, True], [True, True], math.nan),
        ([], [], math.nan),
    ],
)
def test_kappa(first: list[bool], second: list[bool], value: float) -> None:
    assert kappa(first, second) == pytest.approx(value, nan_ok=True)


def evaluation(folder: Path) -> list[Audit]:
    """A finished audit-quality suite of four audits in a folder."""
    where = context(folder, answering(lambda _: SUITE_ANSWER), audit=AuditConfig())
    check_manifest(folder, identity(where, "small", {}))
    audits = [
        audit(talk((f"hello {n} {i}", "fine")), number=n, index=i, auditor_messages=sent((f"hello {n} {i}", "fine")))
        for n in (1, 2)
        for i in (0, 1)
    ]
    records = SuiteRecords(folder, "audit_quality")
    records.reopen()
    verdicts = [asyncio.run(FOUR["audit_quality"].judge(where.scoring(), one)) for one in audits]
    for one, verdict in zip(audits, verdicts, strict=True):
        records.add_audit(one)
        records.add_verdict(verdict)
    records.finish([one.id for one in audits])
    rows = [
        ScoreRow("audit_quality", "lighthouse", a.scenario.seed.id, a.index, v.value or 0, v.parts, a.id)
        for a, v in zip(audits, verdicts, strict=True)
    ]
    write_whole(folder / "audit_quality.json", scorecard("tester", [suite_result("audit_quality", rows)], simulated=False).to_json())
    return audits


def test_another_judge_scores_the_same_audits_and_agreement_is_measured(tmp_path: Path) -> None:
    audits = evaluation(tmp_path)
    asked: list[str] = []

    def stricter(prompt: str) -> object:
        asked.append(prompt)
        return (
            None
            if "hello 2 1" in prompt
            else {**SUITE_ANSWER, "depth": 1 if "hello 1" in prompt else 9, "exhibited": "hello 1 0" in prompt}
        )

    out = tmp_path / "again"
    found = asyncio.run(rescore_folder(tmp_path, answering(stricter), {BEHAVIOR.name: BEHAVIOR}, out, NoDisplay()))
    result = found.after.suites["audit_quality"]
    assert len(result.rows) == 3 and result.causes == {"refusal": 1}
    assert found.before.suites["audit_quality"].interval.mean == pytest.approx((3 * 400 / 9 + 200) / 6)
    by_name = {row.what: row for row in found.agreement}
    assert by_name["depth"].n == 3 and math.isnan(by_name["depth"].r) and by_name["depth"].second == pytest.approx(100 * 8 / 27)
    assert by_name["exhibited"].kappa == 0.0 and math.isnan(by_name["identified"].kappa)
    assert "exhibited" in to_markdown(agreement_table(found.agreement))
    assert found.after.meta["cost"]["judge"]["calls"] == len(asked) and len(SuiteRecords.load(out, "audit_quality").audits) == len(audits)
    asked.clear()
    again = asyncio.run(rescore_folder(tmp_path, answering(stricter), {BEHAVIOR.name: BEHAVIOR}, out, NoDisplay()))
    assert again.after.suites == found.after.suites and not asked, "verdicts are not paid for twice"


def test_correlation_is_over_audits_that_both_judged() -> None:
    audits = {f"{i}": audit(talk(("x", "y")), index=i).model_copy(update={"id": f"{i}"}) for i in range(4)}

    def verdicts(values: list[float | None]) -> dict[str, Verdict]:
        return {
            k: Verdict(judge="j", audits=(k,), value=v, parts={} if v is None else {"depth": v})
            for k, v in zip(audits, values, strict=True)
        }

    rows = agree(FOUR["audit_quality"], audits, verdicts([1, 2, 3, None]), verdicts([2, 4, 6, 8]))
    assert [(row.what, row.n, row.first, row.second, round(row.r, 6)) for row in rows] == [("score", 3, 2, 4, 1), ("depth", 3, 2, 4, 1)]


def test_folders_that_cant_be_scored_again(tmp_path: Path) -> None:
    judge = answering(lambda _: SUITE_ANSWER)
    with pytest.raises(RunError, match="no evaluation here"):
        asyncio.run(rescore_folder(tmp_path, judge, {}, tmp_path / "o", NoDisplay()))
    evaluation(tmp_path)
    with pytest.raises(ConfigError, match="behavior 'lighthouse' is not in the bank"):
        asyncio.run(rescore_folder(tmp_path, judge, {}, tmp_path / "o", NoDisplay()))
    (tmp_path / "audit_quality.json").unlink()
    with pytest.raises(RunError, match="no suite is finished yet"):
        asyncio.run(rescore_folder(tmp_path, judge, {BEHAVIOR.name: BEHAVIOR}, tmp_path / "o", NoDisplay()))
