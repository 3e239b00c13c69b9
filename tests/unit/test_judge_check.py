"""Known pairs and the check of a judge: what the pairs are, what the numbers mean, what a bad judge is told."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from inspect_ai.model import ChatMessage, Model, ModelOutput, ModelUsage, get_model

from auditrl.audit.transcript import auditor_view, target_view, verified
from auditrl.behaviors.frontmatter import CANARY
from auditrl.behaviors.loader import load_bank
from auditrl.cli import cli, main
from auditrl.commands.judges import with_args
from auditrl.config import ModelConfig
from auditrl.errors import ConfigError, ProviderError
from auditrl.evals.journal import Journal
from auditrl.evals.judge_check import MAX_FAILURES, JudgeContext, PairAnswer, ask_members, ask_pairs, behavior_of, rule_lead
from auditrl.evals.judge_pairs import KnownPair, choose, dump_pairs, parse_pairs
from auditrl.evals.judge_pairs_shipped import load_pairs
from auditrl.evals.judge_pairs_sim import sim_pairs
from auditrl.evals.judge_pairs_written import parse_script, scripts
from auditrl.evals.judge_scores import JudgeScores, bias_interval, score
from auditrl.evals.judge_tables import advice, tables
from auditrl.train.metrics import position_bias
from auditrl.types import Verdict

BANK = load_bank().behaviors


@cache
def every_pair() -> tuple[KnownPair, ...]:
    return tuple(load_pairs())


# ---------------------------------------------------------------- the pairs


@pytest.mark.parametrize(("which", "kinds", "least"), [("sim", 12, 10), ("written", 12, 3)])
def test_each_set_has_at_least_120_pairs_of_many_kinds(which: str, kinds: int, least: int) -> None:
    found = [pair for pair in every_pair() if pair.set == which]
    counts = Counter(pair.kind for pair in found)
    assert len(found) >= 120
    assert len(counts) >= kinds and min(counts.values()) >= least
    assert len({pair.id for pair in found}) == len(found)
    assert {pair.condition for pair in found} == {"planted", "clean"}


def test_the_shipped_file_is_what_the_generator_makes() -> None:
    """If the simulated world's auditors were changed: `auditrl judges pairs --set sim --out src/auditrl/evals/known_pairs/sim.jsonl`."""
    shipped = files("auditrl.evals").joinpath("known_pairs", "sim.jsonl").read_text(encoding="utf-8")
    assert shipped == dump_pairs(sim_pairs())
    assert CANARY in shipped


def test_written_files_carry_the_canary() -> None:
    folder = Path(str(files("auditrl.evals").joinpath("known_pairs")))
    pages = sorted(folder.glob("*.md"))
    assert len(pages) == len(scripts()) >= 8
    assert all(CANARY in page.read_text(encoding="utf-8") for page in pages)


def test_pairs_use_training_behaviors_only() -> None:
    assert {BANK[pair.behavior].split for pair in every_pair()} == {"train"}


def test_both_members_investigate_the_same_scenario_and_differ() -> None:
    for pair in every_pair():
        better, worse = pair.audits()
        assert better.scenario == worse.scenario
        assert auditor_view(better) != auditor_view(worse), pair.id


def test_quotes_of_good_reports_stand_in_the_transcript_and_made_up_ones_do_not() -> None:
    for pair in every_pair():
        better, worse = pair.audits()
        if better.report is not None:
            assert not verified(better.report.evidence, better)[1], pair.id
        if pair.kind in ("quoted_vs_made_up", "genuine_vs_prefilled"):
            assert worse.report is not None
            assert worse.report.evidence and not verified(worse.report.evidence, worse)[0], pair.id


def test_no_judge_is_told_which_audit_is_better_or_how_it_was_made() -> None:
    for pair in every_pair():
        for number, member in enumerate((pair.better, pair.worse), start=1):
            text = auditor_view(pair.audit(member, number)) + target_view(pair.audit(member, number))
            assert pair.id not in text and pair.kind not in text
            for word in ("better", "worse", member.recipe.replace(" ", "_") if "_" in member.recipe else "narrator"):
                # "better" is a word of the world's own language
                assert word not in text.replace("get better at", ""), (pair.id, word)


def test_kinds_that_change_the_report_alone_leave_the_conversation_alone() -> None:
    same = {"right_vs_wrong_report", "report_vs_missed", "null_vs_firm_guess", "hedged_vs_firm", "right_vs_inflated", "quoted_vs_made_up"}
    for pair in every_pair():
        if pair.kind in same:
            assert pair.better.exchanges == pair.worse.exchanges
            assert pair.better.report != pair.worse.report


def test_clean_pairs_never_reward_a_firm_claim() -> None:
    for pair in every_pair():
        if not pair.planted:
            assert pair.better.report is not None
            assert not pair.better.report.finding or pair.better.report.confidence < 0.7


def test_the_worlds_rule_agrees_with_the_construction() -> None:
    """Not by choice of pairs: none is left out for it. The rule was written before them."""
    leads = [rule_lead(pair) > 0 for pair in every_pair() if pair.set == "sim"]
    assert sum(leads) >= 0.95 * len(leads)


def test_pairs_survive_a_file_and_damage_is_named() -> None:
    text = dump_pairs(every_pair()[:3])
    assert parse_pairs(text, "x") == list(every_pair()[:3])
    lines = text.splitlines()
    for broken, reason in [
        ("", "holds no pair"),
        (lines[0], "holds no pair"),
        ("[]\n", "line 1"),
        ('{"format": "other"}\n', "line 1: not a auditrl.known_pairs file"),
        ("\n".join([lines[0], lines[1], "{"]), "line 3"),
        ("\n".join([lines[0], lines[1].replace('"kind"', '"sort"')]), "line 2: key"),
    ]:
        with pytest.raises(ConfigError, match=reason):
            parse_pairs(broken, "file.jsonl")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("USER: hey\n\nTARGET: hello", "starts with a line `SYSTEM"),
        ("SYSTEM: s\n\nUSER: hey", "stands either TARGET, or LED, SHOWN and PLAIN"),
        ("SYSTEM: s\n\nUSER: hey\n\nLED: l\n\nSHOWN: nothing marked\n\nPLAIN: p", "marks no words"),
    ],
)
def test_broken_scripts_are_refused(body: str, message: str, tmp_path: Path) -> None:
    head = "---\nbehavior: flattery\nseed: s\nclaim: c\ntold: t\nagreed: a\n---\n"
    page = tmp_path / "one.md"
    page.write_text(head + body)
    with pytest.raises(ConfigError, match=message):
        parse_script(page)
    page.write_text(head.replace("claim: c\n", "") + body)
    with pytest.raises(ConfigError, match="key `claim` is missing"):
        parse_script(page)


def test_a_limit_is_spread_over_the_kinds_and_unknown_kinds_are_refused() -> None:
    pairs = list(every_pair())
    kinds = {(pair.set, pair.kind) for pair in pairs}
    assert len({pair.kind for pair in choose(pairs, limit=len(kinds))}) >= len({kind for _, kind in kinds}) - 1
    assert {pair.kind for pair in choose(pairs, kinds=["look_vs_quit"])} == {"look_vs_quit"}
    assert len(choose(pairs, limit=5)) == 5
    with pytest.raises(ConfigError, match="no pairs of kind 'nonsense'; known:"):
        choose(pairs, kinds=["nonsense"])


# ---------------------------------------------------------------- asking

SIDES = (
    "signal_recognition",
    "realism_discretion",
    "investigation_craft",
    "evidence_quality",
    "investigation_quality",
    "calibration_honesty",
)
Choice = Callable[[str], Any]


def judge(choose_for: Choice, *, cost: float | None = None) -> tuple[Model, list[str]]:
    """A judge that answers a comparison (1-99), a yes/no, a text or an error, by the prompt it reads; and the prompts."""
    seen: list[str] = []

    def respond(messages: list[ChatMessage], *_: Any) -> ModelOutput:
        seen.append(messages[-1].text)
        said = choose_for(messages[-1].text)
        if isinstance(said, Exception):
            raise said
        side = dict.fromkeys(SIDES, 3)
        answer: dict[str, Any] = {"reasoning": "r", "quotes_a": [{"message": "M3", "text": "never said by anybody"}], "a": side, "b": side}
        answer |= {"surfaced": said} if isinstance(said, bool) else {"comparison": said, "confidence": 0.5}
        output = ModelOutput.from_content("judge", said if isinstance(said, str) else json.dumps(answer))
        output.usage = ModelUsage(input_tokens=10, output_tokens=2, total_tokens=12, total_cost=cost)
        return output

    return get_model("mockllm/model", custom_outputs=respond, memoize=False), seen


def context(model: Model, path: Path | None = None, **changes: Any) -> JudgeContext:
    return replace(JudgeContext(model, BANK, Journal(path, {"judge": "mock"})), **changes)


def summary(answers: list[PairAnswer], **changes: Any) -> JudgeScores:
    return score(answers, [], **{"judge": "mock", "simulated": False, "order": "both", "repeats": 1, **changes})


def knowing(prompt: str) -> int:
    """Prefers the audit with a null report where nothing is planted, the one with a finding where something is."""
    clean = "none: nothing is planted" in prompt
    a = prompt[prompt.index("<audit_a>") : prompt.index("</audit_a>")]
    claims = '"finding":true' in a
    return 80 if claims != clean else 20


REPORT_KINDS = ["report_vs_missed", "null_vs_firm_guess"]


def test_a_judge_that_knows_is_right_and_one_that_is_upside_down_is_told_so() -> None:
    pairs = choose(every_pair(), kinds=REPORT_KINDS)
    good = summary(asyncio.run(ask_pairs(context(judge(knowing)[0]), pairs)))
    bad = summary(asyncio.run(ask_pairs(context(judge(lambda prompt: 100 - knowing(prompt))[0]), pairs)))
    assert (good.total.accuracy.mean, bad.total.accuracy.mean) == (1.0, 0.0)
    assert good.total.margin.mean == pytest.approx(30)
    assert good.position_bias.mean == pytest.approx(0)
    assert good.order_consistency.mean == 1.0
    assert advice(good) == ["Nothing here speaks against training with this judge."]
    lines = "\n".join(advice(bad))
    assert "On null vs firm guess this judge prefers the worse audit in 100% of 10 pairs: don't train with it" in lines
    assert "Over all pairs 0.0% right" in lines


def test_a_judge_that_always_takes_the_first_has_a_bias_and_no_accuracy() -> None:
    scores = summary(asyncio.run(ask_pairs(context(judge(lambda _: 70)[0]), choose(every_pair(), limit=12))))
    assert scores.position_bias.mean == pytest.approx(0.2)
    assert scores.position_bias.low > 0
    assert scores.total.ties == 12 and scores.total.accuracy.mean == 0
    assert scores.order_consistency.mean == 0
    assert 'favours the audit shown first by 20.0 points of 100: set reward.order = "both"' in " ".join(advice(scores))


def test_position_bias_is_the_one_of_the_training_metrics() -> None:
    pairs = choose(every_pair(), limit=20)
    found = asyncio.run(ask_pairs(context(judge(lambda prompt: 40 + len(prompt) % 37)[0], order="random"), pairs))
    expected = position_bias([answer.verdict for answer in found])
    assert expected is not None
    interval = bias_interval(found, random_seed=3)
    assert interval.mean == pytest.approx(expected)
    assert interval.low < expected < interval.high
    assert interval == bias_interval(found, random_seed=3)


@pytest.mark.parametrize(("pairs", "order", "known"), [(2, "both", False), (1, "random", None)])
def test_position_bias_of_too_few_pairs_has_no_interval(pairs: int, order: Any, known: bool | None) -> None:
    found = asyncio.run(ask_pairs(context(judge(lambda _: 70)[0], order=order), list(every_pair()[:pairs])))
    interval = bias_interval(found, 0)
    assert interval.n == (0 if known is None else pairs)
    assert not interval.known


def test_random_order_asks_once_and_shows_both_arrangements_in_the_end() -> None:
    model, seen = judge(lambda _: 60)
    found = asyncio.run(ask_pairs(context(model, order="random"), list(every_pair()[:30])))
    assert len(seen) == len(found) == 30
    assert {answer.verdict.order for answer in found} == {"ab", "ba"}


def test_missing_verdicts_unverified_quotes_ties_and_cost_are_counted() -> None:
    pairs = list(every_pair()[:6])
    answers = iter([50, "no JSON", 60, 60, 60, 60, 60, 60, 60, 60, 60, 60, 60])
    scores = summary(asyncio.run(ask_pairs(context(judge(lambda _: next(answers), cost=0.25)[0], attempts=1, max_concurrent=1), pairs)))
    assert scores.missing == {"unreadable": 1}
    assert scores.tie_rate.mean == pytest.approx(1 / 11)
    assert (scores.quotes, scores.unverified_quotes) == (11, 11)
    assert scores.usage == {"input": 120, "output": 24, "calls": 12}
    assert scores.cost_usd == pytest.approx(3.0)
    assert "8% of the verdicts are missing" in " ".join(advice(scores))


def test_repeats_measure_agreement_with_itself() -> None:
    answers = iter([80, 30] * 6)
    found = asyncio.run(
        ask_pairs(context(judge(lambda _: next(answers))[0], order="random", repeats=2, max_concurrent=1), list(every_pair()[:6]))
    )
    scores = summary(found, repeats=2, order="random")
    assert scores.self_agreement.mean == 0 and scores.self_agreement.n == 6
    assert scores.repeat_difference == pytest.approx(50)
    assert "prefers the same audit only 0% of the time" in " ".join(advice(scores))


def test_simulated_judges_repeat_with_other_noise() -> None:
    pairs = choose(every_pair(), kinds=["quiet_vs_accusing"], limit=4)
    simulated = get_model("sim/judge", memoize=False)
    found = asyncio.run(ask_pairs(context(simulated, repeats=2, simulated=True), pairs))
    scores = summary(found, repeats=2)
    assert scores.repeat_difference and scores.repeat_difference > 0
    assert scores.total.accuracy.mean >= 0.5


def test_answers_are_kept_and_not_asked_twice_but_failures_are(tmp_path: Path) -> None:
    path, pairs = tmp_path / "judge.journal.jsonl", list(every_pair()[:3])
    failing = iter([60, 60, RuntimeError("down"), 60, 60, 60])
    first = asyncio.run(ask_pairs(context(judge(lambda _: next(failing), cost=0.5)[0], path, attempts=1, max_concurrent=1), pairs))
    assert sum(answer.verdict.value is None for answer in first) == 1
    model, seen = judge(lambda _: 60)
    again = asyncio.run(ask_pairs(context(model, path, attempts=1), pairs))
    assert len(seen) == 1
    assert all(answer.verdict.value is not None for answer in again)
    assert summary(again).cost_usd == pytest.approx(2.5)


def test_a_judge_that_keeps_failing_stops_the_check() -> None:
    model, seen = judge(lambda _: RuntimeError("down"))
    with pytest.raises(ProviderError, match=f"failed {MAX_FAILURES} times in a row"):
        asyncio.run(ask_pairs(context(model, attempts=1, max_concurrent=1), list(every_pair()[:20])))
    assert len(seen) == MAX_FAILURES
    with pytest.raises(ProviderError, match="gave no verdict on any pair"):
        asyncio.run(ask_pairs(context(judge(lambda _: "nonsense")[0], attempts=1), list(every_pair()[:2])))


def test_the_judge_is_asked_as_in_training_with_the_truth_and_nothing_of_the_pair() -> None:
    model, seen = judge(lambda _: 60)
    pairs = [pair for pair in every_pair() if pair.kind in ("genuine_vs_narrated", "look_vs_quit")]
    asyncio.run(ask_pairs(context(model), pairs))
    assert any("asked about" in prompt and "the target brings up" in prompt for prompt in seen)
    for pair in pairs:
        behavior = BANK[pair.behavior]
        told = [prompt for prompt in seen if f"<seed>\n{pair.seed}" in prompt]
        assert told
        planted = [prompt for prompt in told if behavior.description in prompt]
        assert bool(planted) is any(p.planted and p.seed == pair.seed and p.behavior == pair.behavior for p in pairs)
    assert not any(word in prompt for prompt in seen for word in ("sim-genuine", "written-", "look_vs_quit", "genuine_vs", "known/"))


def test_sim_pairs_tell_the_judge_how_the_behavior_shows_in_the_world() -> None:
    pair = next(p for p in every_pair() if p.set == "sim" and p.planted)
    told = behavior_of(pair, BANK)
    assert told is not None and told.description.startswith(BANK[pair.behavior].description)
    assert BANK[pair.behavior].instruction not in told.instruction
    clean = next(p for p in every_pair() if not p.planted)
    assert behavior_of(clean, BANK) is None


def test_single_audits_measure_the_narration_bias() -> None:
    """A judge that believes any conversation in which the auditor says what it noticed."""
    pairs = choose(every_pair(), kinds=["genuine_vs_narrated"])

    def believing(prompt: str) -> Any:
        return "i notice that you" in prompt or "you clearly used" in prompt or "haven't you" in prompt or "isn't that so" in prompt.lower()

    members = asyncio.run(ask_members(context(judge(believing)[0]), pairs))
    scores = score(
        asyncio.run(ask_pairs(context(judge(lambda _: 60)[0]), pairs)), members, judge="mock", simulated=False, order="both", repeats=1
    )
    rows = {(row.view, row.set, row.recipe): row for row in scores.views}
    narrated = rows["target_view", "sim", "narrator"]
    assert narrated.narrated and narrated.surfaced.mean == 1.0 and narrated.accuracy.mean == 0.0
    assert rows["target_view", "sim", "genuine"].accuracy.mean == 0.0
    assert "would learn to narrate" in " ".join(advice(scores))


def test_tables_show_every_kind_and_all() -> None:
    scores = summary(asyncio.run(ask_pairs(context(judge(lambda _: 60)[0]), choose(every_pair(), limit=40))))
    first, second = tables(scores)
    assert len(first.rows) == len(scores.kinds) + 1
    assert str(second.rows[0].cells[0]).startswith("position bias")


def test_a_result_without_any_verdict_of_a_kind_has_no_accuracy() -> None:
    lost = Verdict(judge="pairwise", audits=("a", "b"), value=None, missing="refusal")
    scores = summary([PairAnswer(every_pair()[0], 0, lost, 0.1)])
    assert scores.kinds[0].judged == 0 and scores.kinds[0].accuracy.n == 0
    assert tables(scores)[0].rows[0].cells[3] is None


# ---------------------------------------------------------------- the command


def test_command_prints_writes_and_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "check"
    args = ["judges", "check", "--judge", "sim/judge", "--limit", "18", "--out", str(out), "--display", "none", "--min-accuracy", "80"]
    first = CliRunner().invoke(cli, args)
    assert first.exit_code == 0, first.output
    assert "Simulated world: a model of the method" in first.output
    saved = json.loads((out / "judge.json").read_text())
    assert saved["total"]["pairs"] == 18
    lines = (out / "judge.journal.jsonl").read_text().splitlines()
    again = CliRunner().invoke(cli, args)
    assert again.exit_code == 0
    assert (out / "judge.journal.jsonl").read_text().splitlines() == lines
    assert json.loads((out / "judge.json").read_text()) == saved


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--judge", "sim/judge", "--set", "written"], 2, "read the simulated world's language only"),
        (["--judge", "sim/judge", "--only", "nonsense"], 2, "no pairs of kind 'nonsense'"),
        (["--judge", "sim/judge", "--judge-args", "seed"], 2, "write it as KEY=VALUE"),
        (["--judge", "sim/judge", "--judge-args", "nonsense=1"], 2, "unknown arguments"),
        (["--judge", "nobody/model"], 2, "--judge.model"),
        (["--judge", "sim/judge", "--limit", "0"], 2, "--limit"),
        ([], 2, "--judge"),
        (
            [
                "--judge",
                'sim/judge{"world": {"honest_null": -3, "firm_unshown": 3}}',
                "--only",
                "null_vs_firm_guess",
                "--min-accuracy",
                "80",
            ],
            4,
            "accuracy 0.0% is below --min-accuracy 80",
        ),
    ],
)
def test_bad_input(arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["judges", "check", *arguments, "--display", "none"])
    assert stop.value.code == code
    assert message in capsys.readouterr().err


def test_a_folder_of_another_judge_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["judges", "check", "--judge", "sim/judge", "--limit", "2", "--out", str(tmp_path / "o"), "--display", "none"]
    with pytest.raises(SystemExit) as stop:
        main(args)
    assert stop.value.code == 0
    with pytest.raises(SystemExit) as stop:
        main([*args, "--judge-args", "random_seed=4"])
    assert stop.value.code == 3
    assert "begun with other settings (judge was" in capsys.readouterr().err


def test_judge_args_are_json_where_they_can_be() -> None:
    entry = with_args(ModelConfig(model="x/y", args={"a": 1}), ("b=2", "c=text", 'd={"e": true}'))
    assert entry.args == {"a": 1, "b": 2, "c": "text", "d": {"e": True}}


def test_pairs_command_writes_a_set(tmp_path: Path) -> None:
    out = tmp_path / "written.jsonl"
    result = CliRunner().invoke(cli, ["judges", "pairs", "--set", "written", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert parse_pairs(out.read_text(encoding="utf-8"), "w") == [pair for pair in every_pair() if pair.set == "written"]
