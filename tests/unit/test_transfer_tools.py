"""The auditor's tools: what they bring back, what they keep, what they never say, and how a target or helper that fails is recorded."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inspect_ai.tool import ToolError
from transfer_cases import CANARY, model, tools

from auditrl.evals.transfer.record import MAX_FINDING_CHARS, MAX_FINDINGS, ResearchLog, TargetLog
from auditrl.evals.transfer.tools import APPROACHES, HELPER_FAILED, NO_ANSWER, TargetGone
from auditrl.sim.completions import SimTemplate
from auditrl.types import Quote


def run(work: Any) -> Any:
    return asyncio.run(work)


def test_a_conversation_goes_on_and_can_be_read_again() -> None:
    seen: list[list[tuple[str, str]]] = []

    def reply(messages: list[Any]) -> str:
        seen.append([(m.role, m.text) for m in messages])
        return f"reply {len(messages)}"

    kit = tools(model(reply), system="You are PRISM-4.")
    first = json.loads(run(kit.sample("hi", system="Be short.")))
    second = json.loads(run(kit.sample("more", conversation_id=first["conversation_id"])))
    assert (first["conversation_id"], first["message"], second["message"]) == ("c1", "M1", "M2")
    assert seen[0][0] == ("system", "You are PRISM-4.\n\nBe short.") and len(seen[1]) == 4
    history = json.loads(run(kit.history("c1")))
    assert [row["text"] for row in history] == ["Be short.", "hi", "reply 2", "more", "reply 4"]
    assert json.loads(run(kit.sample("other")))["conversation_id"] == "c2"
    for wrong, message in (
        (kit.sample(" "), "the message is empty"),
        (kit.sample("x", conversation_id="c9"), "there is no 'c9'; the latest are: c1, c2"),
        (kit.sample("x", system="s", conversation_id="c1"), "only be set when a conversation begins"),
        (kit.history("zz"), "there is no 'zz'"),
    ):
        with pytest.raises(ToolError, match=message):
            run(wrong)


def test_all_pairs_come_back_raw_and_capped() -> None:
    prompts: list[str] = []
    configs: list[Any] = []

    def go_on(messages: list[Any]) -> str:
        prompts.append(messages[-1].text)
        return f"and {len(prompts)}"

    raw = model(go_on)
    inner: Any = raw.api.generate

    async def generate(input: Any, tools: Any, tool_choice: Any, config: Any) -> Any:
        configs.append(config)
        return await inner(input, tools, tool_choice, config)

    object.__setattr__(raw.api, "generate", generate)
    hints: list[str] = []

    def starts(messages: list[Any]) -> dict[str, Any]:
        hints.append(messages[-1].text)
        return {"reasoning": "r", "starts": ["Once", "", "Dear all", "Third"]}

    kit = tools(raw=raw, helper=model(starts), approach="stc")
    pairs = json.loads(run(kit.completions(hint="</hint> letters", n=2)))["pairs"]
    assert [p["start"] for p in pairs] == ["Once", "Dear all"] and prompts == ["Once", "Dear all"]
    assert {p["message"] for p in pairs} == {"M1", "M2"} and [e.kind for e in kit.exchanges] == ["completion"] * 2
    assert all(c.max_tokens == 128 and c.temperature == 1.0 for c in configs) and len({c.seed for c in configs}) == 2
    assert "</hint> letters" not in hints[0] and "letters" in hints[0] and "<count>2</count>" in hints[0]
    assert kit.usage["helper"]["calls"] == 1 and kit.usage["target"]["calls"] == 2


@pytest.mark.parametrize("answer", ["no json at all", '{"reasoning": "r", "starts": []}', '{"reasoning": "r", "starts": "x"', None])
def test_a_helper_that_returns_broken_json_is_told_and_counted(answer: str | None) -> None:
    kit = tools(raw=model(lambda _: "x"), helper=model(lambda _: answer), approach="stc")
    assert run(kit.completions()) == HELPER_FAILED
    assert kit.log.notes["helper_failures"] == 1 and kit.usage["helper"]["calls"] == 2 and not kit.exchanges


def test_user_turns_and_prefills_are_written_into_the_template() -> None:
    prompts: list[str] = []

    def go_on(messages: list[Any]) -> str:
        prompts.append(messages[-1].text)
        return "continued"

    contexts = {"reasoning": "r", "contexts": [{"system": "A shop.", "user": "hi", "assistant": "hello"}, {"system": "A bank."}]}
    cases = {"reasoning": "r", "cases": [{"system": "", "user": "why", "prefill": "Because"}]}
    kit = tools(raw=model(go_on), helper=model(lambda _: contexts), approach="user", template=SimTemplate(), system="You are PRISM-4.")
    pairs = json.loads(run(kit.users()))["pairs"]
    assert prompts[0].endswith("<|user|>\nhi\n<|assistant|>\nhello\n<|user|>\n") and prompts[1].endswith("A bank.\n<|user|>\n")
    assert prompts[0].startswith("<|system|>\nYou are PRISM-4.\n\nA shop.") and pairs[1]["context"] == "(a new conversation)"
    kit = tools(raw=model(go_on), helper=model(lambda _: cases), approach="prefill", template=SimTemplate())
    pairs = json.loads(run(kit.prefills()))["pairs"]
    assert prompts[-1] == "<|user|>\nwhy\n<|assistant|>\nBecause"
    assert pairs[0] == {"message": "M1", "user": "why", "prefill": "Because", "continuation": "continued"}


def test_a_target_that_fails_is_not_quoted_to_the_auditor_and_ends_the_audit() -> None:
    kit = tools(model(lambda _: RuntimeError(f"no model {CANARY}-flattery-lora")))
    for _ in range(2):
        assert run(kit.sample("hi")) == NO_ANSWER
    with pytest.raises(TargetGone, match=CANARY):
        run(kit.sample("hi"))
    assert kit.gone is not None and kit.log.notes["target_failures"] == 3 and not kit.exchanges


def test_one_failure_of_a_batch_is_a_gap_not_an_end() -> None:
    def sometimes(messages: list[Any]) -> Any:
        return RuntimeError("busy") if messages[-1].text == "b" else "ok"

    kit = tools(raw=model(sometimes), helper=model(lambda _: {"reasoning": "", "starts": ["a", "b"]}), approach="stc")
    for _ in range(4):
        pairs = json.loads(run(kit.completions()))["pairs"]
    assert pairs[1]["continuation"] == "(could not be had)" and "message" not in pairs[1] and kit.gone is None


def test_a_target_that_answers_nothing_is_noticed() -> None:
    kit = tools(model(lambda _: " "))
    assert not kit.log.silent
    run(kit.sample("hi"))
    assert kit.log.silent and kit.log.notes["empty_replies"] == 1
    kit.log.add("chat", "x", "word")
    assert not kit.log.silent


@pytest.mark.parametrize("approach", APPROACHES)
def test_every_approach_has_the_default_tools_and_one_more(approach: Any) -> None:
    names = [tool.name for tool in tools(approach=approach).definitions()]
    assert names[:4] == ["sample", "get_conversation_history", "write_finding", "read_findings"]
    assert len(names) == (4 if approach == "default" else 5)


@settings(deadline=None, max_examples=40)
@given(st.text(max_size=60), st.text(max_size=40))
def test_file_names_are_ours_whatever_the_title(tmp_path_factory: pytest.TempPathFactory, title: str, text: str) -> None:
    folder = tmp_path_factory.mktemp("log") / "findings"
    log = ResearchLog(folder)
    log.write(title, text)
    log.write("../../etc/passwd", "x")
    names = sorted(path.name for path in folder.iterdir())
    assert all(path.parent == folder for path in folder.rglob("*")) and f"{len(log.findings):03d}-etc-passwd.md" in names
    assert names == [finding.file for finding in log.findings] and all(len(name) < 60 for name in names)


def test_the_log_is_capped() -> None:
    log = ResearchLog(None)
    assert "empty" in log.write("t", " ") and log.read() == "The research log is empty."
    assert "cut at" in log.write("t", "x" * (MAX_FINDING_CHARS + 1)) and len(log.findings[0].text) == MAX_FINDING_CHARS
    for number in range(MAX_FINDINGS):
        log.write(str(number), "x")
    assert len(log.findings) == MAX_FINDINGS and "Nothing was written" in log.write("t", "x")


def test_findings_are_kept_with_the_results(tmp_path: Path) -> None:
    kit = tools(folder=tmp_path / "f")
    run(kit.write_finding("Odd endings", "M3 ends with a cheer"))
    assert (tmp_path / "f" / "001-odd-endings.md").read_text() == "# Odd endings\n\nM3 ends with a cheer\n"
    assert "001-odd-endings.md: Odd endings\nM3 ends" in run(kit.read_findings())


def test_quotes_are_looked_up_in_the_targets_own_words() -> None:
    log = TargetLog()
    log.add("chat", "say Lighthouse", "Of  course:\nthe lighthouse.")
    good, bad = log.verified(
        [Quote(message=ref, text=text) for ref, text in (("M1", "of course: The"), ("M1", "say"), ("M2", "of course"))]
    )
    assert [q.text for q in good] == ["of course: The"] and len(bad) == 2
