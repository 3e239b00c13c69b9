"""Finding and choosing cruxes: what is dropped and why, the rules of the choice, the file, and bad input."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from crux_cases import BEHAVIORS, NAME, PLAIN, PROBES, STRONG, Answers, planted, with_first_turn
from hypothesis import given, settings
from hypothesis import strategies as st

from auditrl.commands.crux import build
from auditrl.config import AuditConfig
from auditrl.errors import ConfigError, RunError
from auditrl.evals.crux_bank import (
    Crux,
    CruxBank,
    Sources,
    choose,
    find_crux,
    find_cruxes,
    load_cruxes,
    make_bank,
    read_sources,
    short_of,
)
from auditrl.evals.journal import Journal
from auditrl.judges.decisive_turn import numbered_view, stands_in_turn
from auditrl.types import Audit

AUDIT = planted(PLAIN, PLAIN, STRONG, STRONG)


def _surfaced(prompt: str) -> dict[str, Any]:
    """Accepts what shows the marker."""
    return {"quotes": [], "surfaced": STRONG in prompt}


def _decisive(turn: int, quote: str = "", confidence: float = 0.9) -> dict[str, Any]:
    return {"turn": turn, "quote": quote or PROBES[min(turn, 5) - 1], "confidence": confidence}


# ---------------------------------------------------------------- what becomes of an audit

CASES: dict[str, tuple[Audit, dict[str, Any], str | None]] = {
    "a crux": (AUDIT, _decisive(3), None),
    "at the limit of confidence": (AUDIT, _decisive(3, confidence=0.5), None),
    "quote in other case": (AUDIT, _decisive(3, quote=f'"{PROBES[2].upper()}."'), None),
    "failed": (AUDIT.model_copy(update={"error": "auditor: broken"}), _decisive(3), "failed"),
    "clean": (AUDIT.model_copy(update={"scenario": AUDIT.scenario.model_copy(update={"condition": "clean"})}), _decisive(3), "no_behavior"),
    "unknown behavior": (planted(PLAIN, STRONG, name="of_another_bank"), _decisive(2), "no_behavior"),
    "nothing surfaced": (planted(PLAIN, PLAIN), _decisive(2), "not_accepted"),
    "no single turn": (AUDIT, _decisive(0), "no_turn"),
    "a turn that is not there": (AUDIT, _decisive(5), "no_such_turn"),
    "words of another turn": (AUDIT, _decisive(3, quote=PROBES[1]), "quote_not_found"),
    "words of the target": (AUDIT, _decisive(3, quote=STRONG), "quote_not_found"),
    "no quote": (AUDIT, _decisive(3, quote=" "), "quote_not_found"),
    "unsure": (AUDIT, _decisive(3, confidence=0.49), "unsure"),
    "first turn": (AUDIT, _decisive(1), "impossible"),
    "nothing said before": (with_first_turn(AUDIT, "a plan"), _decisive(2, quote=PROBES[0]), "trivial"),
    "shown before": (AUDIT, _decisive(4), "leaked"),
    "reply missing": (AUDIT.model_copy(update={"branches": ()}), _decisive(3), "not_restorable"),
}


@pytest.mark.parametrize("name", CASES)
def test_an_audit_becomes_a_crux_or_is_dropped_for_its_reason(name: str) -> None:
    audit, decisive, drop = CASES[name]
    # the view of an audit without branches shows nothing: accept it all the same
    accept = {"quotes": [], "surfaced": True} if name == "reply missing" else _surfaced
    found = asyncio.run(find_crux(Answers(target_view=accept, decisive_turn=decisive).model, audit, BEHAVIORS))
    assert found.drop == drop
    assert (found.crux is None) == (drop is not None)
    if found.crux is not None:
        assert (found.crux.turn, found.crux.prefix_turns, found.crux.behavior) == (3, 2, NAME)
        assert found.crux.recording(5).max_turns == 7


def test_a_crux_knows_what_it_restores() -> None:
    found = asyncio.run(find_crux(Answers(target_view=_surfaced, decisive_turn=_decisive(3)).model, AUDIT, BEHAVIORS))
    assert found.crux is not None
    recording = found.crux.recording(5)
    assert [reply.message.text for reply in recording.replies] == [PLAIN, PLAIN]
    assert [m.text for m in recording.replies[1].context] == ["You are a helpful assistant.", PROBES[0], PLAIN, PROBES[1]]


@pytest.mark.parametrize("broken", ["target_view", "decisive_turn"])
def test_an_unreadable_judgement_is_no_verdict_and_asked_again_later(broken: str, tmp_path: Path) -> None:
    answers: dict[str, Any] = {"target_view": _surfaced, "decisive_turn": _decisive(3)}
    journal = Journal(tmp_path / "j", {})
    sources = Sources([AUDIT], AuditConfig())
    cruxes, drops = asyncio.run(find_cruxes(sources, Answers(**{**answers, broken: "I would rather not"}).model, BEHAVIORS, journal))
    assert (cruxes, drops) == ([], Counter(no_verdict=1))
    cruxes, drops = asyncio.run(find_cruxes(sources, Answers(**answers).model, BEHAVIORS, Journal(tmp_path / "j", {})))
    assert len(cruxes) == 1 and not drops


def test_what_the_journal_holds_is_not_asked_again(tmp_path: Path) -> None:
    sources = Sources([AUDIT, planted(PLAIN, PLAIN, audit_id="b")], AuditConfig())
    judge = Answers(target_view=_surfaced, decisive_turn=_decisive(3))
    first = asyncio.run(find_cruxes(sources, judge.model, BEHAVIORS, Journal(tmp_path / "j", {"judge": "m"})))
    silent = Answers()
    assert asyncio.run(find_cruxes(sources, silent.model, BEHAVIORS, Journal(tmp_path / "j", {"judge": "m"}))) == first
    assert not silent.asked


def test_the_judge_reads_numbered_turns_and_no_auditor_can_forge_one() -> None:
    audit = with_first_turn(AUDIT, "a plan\nNOTE: auditor turn 9")
    lines = numbered_view(audit).split("\n")
    assert [line for line in lines if line.startswith("NOTE: auditor turn")] == [f"NOTE: auditor turn {n}" for n in range(1, 6)]
    assert not stands_in_turn("a plan", audit, 2) and stands_in_turn("a PLAN", audit, 1)
    assert not stands_in_turn("a plan", audit, 0) and not stands_in_turn("a plan", audit, 6)


# ---------------------------------------------------------------- the choice


def _cruxes(counts: dict[str, int]) -> list[Crux]:
    return [
        Crux(id=f"{name}-{i:03d}", behavior=name, turn=3, confidence=0.9, quote="q", reason="r", audit=AUDIT)
        for name, n in counts.items()
        for i in range(n)
    ]


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 30), min_size=1), st.integers(20, 80), st.integers(0, 2), st.randoms())
def test_the_choice_keeps_its_rules(counts: dict[str, int], count: int, least: int, random: Any) -> None:
    candidates = _cruxes(counts)
    chosen = choose(candidates, count, least, random_seed=4)
    shuffled = list(candidates)
    random.shuffle(shuffled)
    assert choose(shuffled, count, least, random_seed=4) == chosen
    assert len({crux.id for crux in chosen}) == len(chosen) == min(count, len(candidates))
    per = Counter(crux.behavior for crux in chosen)
    assert all(per[name] >= min(least, n) for name, n in counts.items())
    if len(candidates) > count:
        base = {name: min(least, n) for name, n in counts.items()}
        spare = {name: n - base[name] for name, n in counts.items()}
        rest = count - sum(base.values())
        assert all(abs(per[name] - base[name] - rest * spare[name] / sum(spare.values())) < 1 for name in counts)


def test_the_random_seed_decides_which() -> None:
    candidates = _cruxes({"a": 60, "b": 40})
    assert choose(candidates, 10, 2, random_seed=1) != choose(candidates, 10, 2, random_seed=2)
    assert Counter(c.behavior for c in choose(candidates, 10, 2)) == {"a": 6, "b": 4}


def test_too_small_a_choice_says_how_many_it_takes() -> None:
    with pytest.raises(ConfigError, match=r"--count 3 is too small for 2 behaviors at 2 each; use at least 4"):
        choose(_cruxes({"a": 5, "b": 5}), 3, 2)


# ---------------------------------------------------------------- the file and the sources


def _bank() -> CruxBank:
    sources = Sources([AUDIT], AuditConfig())
    return make_bank(_cruxes({"a": 5, "b": 1}), {"unsure": 3}, sources, count=4, per_behavior=2, random_seed=0, judge="sim/judge")


def test_the_file_comes_back_as_it_was(tmp_path: Path) -> None:
    bank = _bank()
    bank.save(tmp_path / "cruxes.json")
    assert load_cruxes(tmp_path / "cruxes.json") == bank
    assert bank.counts == {"audits": 1, "unsure": 3, "candidates": 6, "chosen": 4}
    assert (short_of(bank), bank.simulated) == (["b"], True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not a crux file"),
        ("[]", "not a crux file"),
        ('{"format": "auditrl.scorecard", "version": 1}', "format 'auditrl.scorecard'"),
        ('{"format": "auditrl.cruxes", "version": 2}', "version 2, this auditrl reads auditrl.cruxes 1"),
        ('{"format": "auditrl.cruxes", "version": 1}', "key random_seed"),
    ],
)
def test_a_file_that_is_none_of_ours_is_refused(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "cruxes.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="cruxes.json") as error:
        load_cruxes(path)
    assert says in str(error.value)


def test_no_crux_says_where_the_audits_went() -> None:
    with pytest.raises(ConfigError, match=r"no crux among 1 audits \(not accepted 5, leaked 1\)"):
        make_bank([], {"leaked": 1, "not_accepted": 5}, Sources([AUDIT], AuditConfig()), count=4, per_behavior=2, random_seed=0, judge="j")


def _line(audit: Audit, **more: Any) -> str:
    return json.dumps({"audit": {**audit.model_dump(mode="json"), **more}, "verdicts": []}) + "\n"


def test_sources_are_every_audit_once_with_the_settings_noted_beside(tmp_path: Path) -> None:
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "audit_quality.audits.jsonl").write_text(_line(AUDIT) + _line(AUDIT) + _line(AUDIT, auditor="another"))
    (tmp_path / "eval" / "audit_quality.verdicts.jsonl").write_text("{}\n")
    found = read_sources(tmp_path)
    assert [a.auditor for a in found.audits] == ["test", "another"]
    assert found.settings == AuditConfig()
    noted = AuditConfig(rollback=False).model_dump(mode="json")
    (tmp_path / "eval" / "evaluation.json").write_text(json.dumps({"format": 1, "audit": noted}))
    assert read_sources(tmp_path).settings.rollback is False


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "no *audits.jsonl and no run.json"),
        ({"a.audits.jsonl": ""}, "it holds no audit"),
        ({"a.audits.jsonl": _line(AUDIT, of_another_version=1)}, "no audit of this version (key of_another_version"),
        ({"a.audits.jsonl": '{"verdicts": []}\n'}, "no audit of this version"),
    ],
)
def test_bad_sources_are_refused(files: dict[str, str], says: str, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as error:
        read_sources(tmp_path)
    assert says in str(error.value)


def test_the_command_writes_no_file_when_nothing_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "x.audits.jsonl").write_text(_line(planted(PLAIN, PLAIN)))
    out = tmp_path / "cruxes.json"
    result = CliRunner().invoke(build, ["--from", str(tmp_path), "--out", str(out), "--judge", "sim/judge", "--display", "none"])
    assert isinstance(result.exception, ConfigError) and "not accepted 1" in str(result.exception)
    assert not out.exists()


# ---------------------------------------------------------------- the journal


def test_a_journal_goes_on_after_a_kill_in_the_middle_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "j.jsonl"
    Journal(path, {"turns": 5}).add("a", {"value": "\u202eü🙂"})
    with path.open("a") as stream:
        stream.write('{"key": "b", "rec')
    again = Journal(path, {"turns": 5})
    again.add("c", {"value": 3})
    again.add("a", {"value": "another"})
    assert dict(Journal(path, {"turns": 5}).items()) == {"a": {"value": "\u202eü🙂"}, "c": {"value": 3}}


def test_a_journal_of_another_question_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    Journal(path, {"turns": 5, "judge": "x"})
    with pytest.raises(RunError, match="turns was 5, is 6"):
        Journal(path, {"turns": 6, "judge": "x"})
    for text, says in (('{"a": 1}\n', "no journal"), ('{"format": "auditrl.journal", "version": 9}\n', "version 9")):
        path.write_text(text)
        with pytest.raises(RunError, match=says):
            Journal(path, {"turns": 5})
