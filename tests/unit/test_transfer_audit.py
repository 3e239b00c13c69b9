"""One transfer audit: budget, both hosts' loops, predictions, outcomes of what goes wrong, and what the auditor may not learn."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inspect_ai.agent import AgentState
from inspect_ai.model import ChatMessageUser, GenerateConfig, ModelOutput
from transfer_cases import CANARY, model, session, tools

from auditrl.errors import ConfigError
from auditrl.evals.transfer.claude_code import ClaudeCode, check_claude_code
from auditrl.evals.transfer.limits import SPENT, Budget, Limits, Spending
from auditrl.evals.transfer.predictions import parse_predictions
from auditrl.evals.transfer.record import TargetLog, TransferAudit
from auditrl.evals.transfer.run import Investigators, TransferUnit, run_units
from auditrl.evals.transfer.scaffold import check_scaffold, make_scaffold
from auditrl.evals.transfer.targets import Target

TINY = Limits(budget=100, answer=20)
NOTHING = {"predictions": [{"description": "nothing", "confidence": 0.1, "quotes": [], "reasoning": ""}]}


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"budget": 100}, "--budget: 100 tokens are less than one answer of the auditor may take .4096.; raise --budget, or lower"),
        ({"budget": 0, "answer": 0}, "--budget: 0; at least 1"),
        ({"idle": 0}, "--idle: 0"),
    ],
)
def test_a_budget_below_one_answer_is_refused(limits: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Limits(**limits)


def test_the_budget_counts_limits_and_stops() -> None:
    spending = Spending(Budget(25))
    limited = spending.model(model(lambda _: "hi", tokens=10, config=GenerateConfig(max_tokens=500)), 20)
    assert limited.config.max_tokens == 20

    async def ask() -> list[str]:
        return [(await limited.generate("x")).completion for _ in range(5)]

    assert asyncio.run(ask()) == ["hi", "hi", "hi", SPENT, SPENT]
    assert (spending.budget.spent, spending.budget.left, spending.budget.answers) == (30, 0, 3) and spending.usage["calls"] == 3


def test_an_answer_without_a_usage_count_is_not_free() -> None:
    spending = Spending(Budget(25))
    spending.count(ModelOutput.from_content("m", "x" * 40))
    spending.count(ModelOutput.from_content("m", ""))
    assert spending.budget.spent == 11


Script = Callable[[list[Any]], Any]


def audited(auditor: Script, folder: Path, target: Target | None = None, limits: Limits = TINY, **changes: Any) -> TransferAudit:
    """Run one audit under the real stack."""
    kept: list[TransferAudit] = []
    who = Investigators(model(auditor), "tester", None, limits, "react", 0, folder, **changes)
    unit = TransferUnit(f"{CANARY}-target", f"{CANARY}_behavior", "default", 0)
    asyncio.run(run_units(who, [unit], target or Target(model(lambda _: "Hello there, friend.")), kept.append))
    return kept[0]


def last_request(messages: list[Any]) -> bool:
    return "Write your predictions now" in messages[-1].text


def test_an_audit_runs_to_its_budget_and_predicts_from_its_log(tmp_path: Path) -> None:
    said: list[list[Any]] = []

    def auditor(messages: list[Any]) -> Any:
        said.append(messages)
        if last_request(messages):
            quotes = [{"message": "M1", "text": "hello there"}, {"message": "M1", "text": "never said"}]
            return {"predictions": [{"description": f"cheer {i}", "confidence": 90, "quotes": quotes, "reasoning": "r"} for i in range(5)]}
        number = sum(m.role == "assistant" for m in messages)
        if number == 0:
            return [("sample", {"user": "hi"}), ("write_finding", {"title": "Cheer", "text": "M1 is cheerful"})]
        return "thinking aloud" if number % 2 else [("sample", {"user": f"again {number}"})]

    audit = audited(auditor, tmp_path)
    assert audit.error is None and audit.stopped == "budget" and (audit.generated, audit.turns) == (100, 10)
    assert [g.description for g in audit.guesses] == ["cheer 0", "cheer 1", "cheer 2"] and audit.dropped == 2
    assert audit.guesses[0].confidence == 0.9 and len(audit.guesses[0].quotes) == 1 and audit.guesses[0].unverified == 1
    assert [f.title for f in audit.findings] == ["Cheer"] and len(audit.exchanges) == 5
    assert audit.usage["auditor"]["calls"] == 11 and audit.usage["target"]["calls"] == 5
    continues = [m.text for m in said[-1] if m.role == "user" and "tokens are left. Look" in m.text]
    assert continues[0].startswith("Please go on") and "About 80 of 100 tokens" in continues[0]
    assert "M1 is cheerful" in said[-1][-1].text
    files = [path.name for path in (tmp_path / "findings").rglob("*.md")]
    assert files == ["001-cheer.md"] and CANARY not in str(next((tmp_path / "findings").iterdir()))


def test_nothing_about_the_target_reaches_the_auditor(tmp_path: Path) -> None:
    read: list[str] = []

    def auditor(messages: list[Any]) -> Any:
        read.extend(f"{m.text} {getattr(m, 'tool_calls', '')} {getattr(m, 'error', '')}" for m in messages)
        return NOTHING if last_request(messages) else [("sample", {"user": "hi"}), ("get_conversation_history", {"conversation_id": "c1"})]

    def target(messages: list[Any]) -> Any:
        failing = sum(m.role == "user" for m in messages) == 1 and len(read) > 20
        return RuntimeError(f"model {CANARY} not found") if failing else "fine"

    audit = audited(auditor, tmp_path, Target(model(target), system=f"You are {CANARY}."))
    assert audit.error is not None and CANARY in audit.error
    assert read and not any(CANARY in text for text in read)


@pytest.mark.parametrize(
    ("auditor", "target", "stopped", "error", "guesses"),
    [
        (lambda m: "no tools for me", lambda _: "x", "idle", None, 0),
        (lambda m: NOTHING if last_request(m) else "idle", lambda _: "x", "idle", None, 1),
        (lambda m: None, lambda _: "x", "refused", None, 0),
        (lambda m: RuntimeError("no key"), lambda _: "x", None, "scaffold: RuntimeError: no key", 0),
        (lambda m: [("sample", {"user": "hi"})], lambda _: RuntimeError("gone"), None, "target: RuntimeError: gone", 0),
        (lambda m: [("sample", {"user": "hi"})], lambda _: "", "budget", "target: it answered nothing, 10 times", 0),
        (lambda m: NOTHING if last_request(m) else [("no_such_tool", {})], lambda _: "x", "budget", None, 1),
    ],
    ids=["never predicts", "never writes a finding", "refuses", "provider fails", "target gone", "silent target", "unknown tool"],
)
def test_what_goes_wrong_is_a_recorded_outcome(
    auditor: Script, target: Script, stopped: str | None, error: str | None, guesses: int, tmp_path: Path
) -> None:
    audit = audited(auditor, tmp_path, Target(model(target)))
    assert (audit.stopped, audit.error, len(audit.guesses)) == (stopped, error, guesses)
    assert not audit.findings


def test_many_turns_without_many_tokens_end_too(tmp_path: Path) -> None:
    audit = audited(
        lambda m: NOTHING if last_request(m) else [("read_findings", {})], tmp_path, limits=Limits(budget=9_000, answer=20, turns=4)
    )
    assert (audit.stopped, audit.turns) == ("turns", 4)


# ---------------------------------------------------------------- predictions


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no json",
        "[1, 2]",
        '{"predictions": []}',
        '{"predictions": "x"}',
        '{"predictions": [{"confidence": 1}]}',
        '{"a": 1}',
        "{" * 5000,
    ],
)
def test_unreadable_predictions_are_none(text: str) -> None:
    assert parse_predictions(text, TargetLog()) is None


JSON = st.sampled_from([None, True, 7, 0.5, 1e400, float("nan"), "", "x", [], ["x", {}], [{"message": 3, "text": None}], {"a": 1}])


@settings(deadline=None, max_examples=40)
@given(st.lists(st.dictionaries(st.sampled_from(["description", "confidence", "quotes", "reasoning", "x"]), JSON), max_size=6))
def test_any_predictions_come_out_well_formed(rows: list[dict[str, Any]]) -> None:
    read = parse_predictions(json.dumps({"predictions": rows}), TargetLog())
    named = [row for row in rows if str(row.get("description") or "").strip()]
    assert (read is None) == (not named)
    if read is not None:
        assert len(read[0]) == min(3, len(named)) and read[1] == max(0, len(named) - 3)
        assert all(0 <= guess.confidence <= 1 and not guess.quotes for guess in read[0])


# ---------------------------------------------------------------- Claude Code


class StandIn:
    """An agent that works through its turns by itself, as Claude Code does: it calls the model and the tools it was given."""

    def __init__(self, dies_at: int | None = None) -> None:
        self.prompts: list[str] = []
        self.dies_at = dies_at

    def __call__(self, one: Any) -> Any:
        limited, by_name = one.limited(), {tool.name: tool.tool for tool in one.tools}

        async def run(state: AgentState) -> AgentState:
            assert isinstance(state.messages[-1], ChatMessageUser)
            self.prompts.append(state.messages[-1].text)
            if len(self.prompts) == self.dies_at:
                raise RuntimeError("Model proxy process exited unexpectedly")
            while True:
                output = await limited.generate(state.messages)
                state.messages.append(output.message)
                state.output = output
                if not output.message.tool_calls:
                    return state
                for call in output.message.tool_calls:
                    state.messages.append(ChatMessageUser(content=str(await by_name[call.function](**call.arguments))))

        return run


def test_the_other_host_is_told_to_go_on_until_its_budget_is_spent() -> None:
    def auditor(messages: list[Any]) -> Any:
        if last_request(messages):
            return {"predictions": [{"description": "d", "confidence": 0.5, "quotes": [], "reasoning": ""}]}
        told = isinstance(messages[-1], ChatMessageUser) and "tokens" in messages[-1].text
        return [("sample", {"user": "hi"})] if told else "done for now"

    one = session(model(auditor), limits=Limits(budget=50, answer=20))
    agent = StandIn()
    scaffold = ClaudeCode(agent)

    async def work() -> str:
        state = await scaffold.investigate(one)
        return await scaffold.ask(one, state, "Write your predictions now", None)  # type: ignore[arg-type]

    text = asyncio.run(work())
    assert one.stopped == "budget" and one.budget.spent == 50 and len(one.target.exchanges) == 3
    assert agent.prompts[0].startswith("Begin") and agent.prompts[1].startswith("Please go on") and "About 30 of 50" in agent.prompts[1]
    assert json.loads(text)["predictions"][0]["description"] == "d" and one.spending.usage["calls"] == 6


def test_an_mcp_server_that_dies_mid_audit_fails_the_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = StandIn(dies_at=2)
    monkeypatch.setattr("auditrl.evals.transfer.run.make_scaffold", lambda name: ClaudeCode(agent))
    calls = iter([[("sample", {"user": "hi"})], "enough"])
    audit = audited(lambda m: next(calls), tmp_path)
    assert audit.error == "scaffold: RuntimeError: Model proxy process exited unexpectedly"
    assert len(audit.exchanges) == 1 and audit.generated == 20


def test_a_host_that_is_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("auditrl.evals.transfer.claude_code.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"inspect_swe, anthropic, mcp, openai not installed; install auditrl\[claude-code\]"):
        check_scaffold("claude-code", None)
    monkeypatch.setattr("auditrl.evals.transfer.claude_code.find_spec", lambda name: True)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(ConfigError, match="no program 'claude' for --sandbox local"):
        check_claude_code("local")
    with pytest.raises(ConfigError, match="--sandbox: react needs none"):
        check_scaffold("react", "docker")
    assert check_scaffold("react", None) is None and isinstance(make_scaffold("claude-code"), ClaudeCode)


def test_the_instructions_are_the_same_for_target_and_control() -> None:
    one, other = session(model(lambda _: "x")), session(model(lambda _: "x"), tools(approach="stc"))
    assert "{" not in one.instructions() and "multisample" not in one.instructions()
    assert "`multisample_completions`" in other.instructions() and "200 tokens" in one.opening()
