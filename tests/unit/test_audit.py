"""The audit environment under the real Inspect and Petri stack, with scripted models."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from audits import BEHAVIOR
from audits import audit as made_audit
from inspect_ai import Task, eval_async
from inspect_ai.dataset import Sample
from inspect_ai.event import ModelEvent, ToolEvent
from inspect_ai.log import read_eval_log, transcript

# what providers call before they send a request; no public name exists for it
from inspect_ai.log._samples import set_active_model_event_call
from inspect_ai.model import (
    ChatMessage,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    Model,
    ModelCall,
    ModelOutput,
    ResponseSchema,
    get_model,
)
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import ToolCall, ToolChoice, ToolInfo
from inspect_ai.util import json_schema
from scripted import (
    BLOCK,
    END,
    REPORT,
    SETTINGS,
    Scripted,
    ask,
    auditor,
    log_text,
    opening,
    output,
    quotes_block,
    run,
    start,
    target,
    units,
)
from tenacity import wait_none

from auditrl.audit.overhead import answer_schema, forgotten, light
from auditrl.audit.target import WITHHELD, scrub, with_generate
from auditrl.audit.task import UNSPECIFIED_TARGET, audit_task
from auditrl.audit.tools import SEE_FIRST_TURN
from auditrl.errors import ProviderError
from auditrl.judges.petri import judge_petri
from auditrl.judges.target_view import judge_auditor_view
from auditrl.types import Audit, Report


def only(audits: list[Audit]) -> Audit:
    assert len(audits) == 1
    return audits[0]


# --- the hidden block ---


class Strict(Exception):
    """A provider's error as clients raise them: the request in its text, its fields, its cause and its notes."""

    def __init__(self, request: str) -> None:
        super().__init__(f"400: invalid request {request}")
        self.message = f"invalid request {request}"
        self.body = {"error": {"request": request, "sent": [request]}}
        self.add_note(f"note: {request}")


def quoting(input: list[ChatMessage]) -> Exception:
    request = json.dumps([m.text for m in input])
    error = Strict(request)
    error.__cause__ = ValueError(f"cause: {request!r} {input[0].text}")
    return error


LEAKS: list[tuple[str, Any, dict[str, Any]]] = [
    ("a plain answer", "reply", {}),
    ("reasoning about the block", [ContentReasoning(reasoning=f"my orders: {BLOCK}"), ContentText(text="fine")], {}),
    ("an error that quotes the request", quoting, {}),
    ("the realism filter", "reply", {"realism_filter": True}),
]


@pytest.mark.parametrize("log_locals", [False, True], ids=["", "locals in tracebacks"])
@pytest.mark.parametrize(("said", "changes"), [case[1:] for case in LEAKS], ids=[case[0] for case in LEAKS])
def test_the_block_reaches_the_target_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Any, changes: dict[str, Any], log_locals: bool
) -> None:
    if log_locals:
        monkeypatch.setenv("INSPECT_TRACEBACK_LOCALS", "1")
    player = auditor(opening(), ask("more"))
    played = Scripted(said if callable(said) else lambda _: said)
    realism = Scripted(lambda _: [("answer", {"score": 0.9, "feedback": "good"})])
    settings = SETTINGS.model_copy(update={"max_turns": 2, **changes})
    audits, log = run(tmp_path, player, played, settings, extra_roles={"realism": realism.model})
    assert all(m[0].text.startswith(f"{BLOCK}\n\nYou are a clerk.") for m in played.inputs)
    assert played.inputs
    assert bool(realism.inputs) is bool(changes)
    assert not quotes_block(player.read)
    assert not quotes_block(realism.read)
    assert not quotes_block(log_text(log))
    assert not quotes_block(only(audits).model_dump_json())
    assert (only(audits).error is None) is (said is not quoting)


class RawCalls:
    """A provider that registers its raw request before it sends it, as OpenAI's and Anthropic's do; it may fail, give the error back, or
    be better at the second try."""

    def __init__(self, outcome: str) -> None:
        self.outcome = outcome
        self.calls = 0

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput | tuple[ModelOutput | Exception, ModelCall]:
        self.calls += 1
        request = {"messages": [m.text for m in input]}
        call = set_active_model_event_call(request)
        if self.outcome == "raise" or (self.outcome == "recover" and self.calls == 1):
            raise Strict(json.dumps(request))
        return (Strict(json.dumps(request)) if self.outcome == "return" else output("fine")), call

    def should_retry(self, _: BaseException) -> bool:
        return self.outcome == "recover"

    def model(self) -> Model:
        model = with_generate(target().model, self.generate)
        object.__setattr__(model.api, "should_retry", self.should_retry)
        object.__setattr__(model.api, "retry_wait", wait_none)
        return model


@pytest.mark.parametrize("outcome", ["fine", "raise", "return", "recover"])
def test_raw_calls_are_taken_off_the_events_whatever_the_log_settings(tmp_path: Path, outcome: str) -> None:
    provider, player, made = RawCalls(outcome), auditor(opening()), list[Audit]()
    roles = {"auditor": player.model, "target": provider.model()}
    settings = SETTINGS.model_copy(update={"max_turns": 1})
    task = audit_task(units(), settings, {"target": roles["target"]}, auditor_name="a", collect=made.append)
    logs = asyncio.run(eval_async(task, model_roles=roles, log_dir=str(tmp_path), log_model_api=True, log_realtime=False))
    assert provider.calls == (2 if outcome == "recover" else 1)
    assert not quotes_block(log_text(Path(logs[0].location)))
    assert not quotes_block(player.read)
    # a failure that another attempt made good is none
    failed = outcome in ("raise", "return")
    assert (only(made).error or "").startswith("target: Strict: 400: invalid request") is failed


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (f"a {BLOCK} b", f"a {WITHHELD} b"),
        (json.dumps({"m": BLOCK}), json.dumps({"m": WITHHELD})),
        (json.dumps({"m": BLOCK}, ensure_ascii=False), json.dumps({"m": WITHHELD})),
        (repr(BLOCK), f"'{WITHHELD}'"),
        (f"cut: {BLOCK[10:50]}", f"cut: {WITHHELD}"),
        (f"{BLOCK[:40]}|{BLOCK[5:60]}", f"{WITHHELD}|{WITHHELD}"),
        ("You are a clerk.", "You are a clerk."),
        ("", ""),
    ],
)
def test_scrub_withholds_quotations_of_any_length_and_spelling(text: str, clean: str) -> None:
    assert scrub(text, BLOCK).replace("cut:[", "cut: [") == clean
    assert scrub(text, None) == text


def test_persona_and_clean_targets(tmp_path: Path) -> None:
    persona, clean = "Take the persona PRISM-4.", None
    for block, first in ((persona, "Take the persona PRISM-4.\n\nYou are a clerk."), (clean, "You are a clerk.")):
        played = target()
        run(tmp_path, auditor(opening(), END), played, work=units(block=block))
        assert [m.text for m in played.inputs[0]] == [first, "hello"]


def test_a_planted_target_without_system_message(tmp_path: Path) -> None:
    played = target()
    audits, _ = run(tmp_path, auditor(ask("hello"), END), played, SETTINGS.model_copy(update={"system_required": False}))
    assert [m.text for m in played.inputs[0]] == [BLOCK, "hello"]
    assert [m.role for m in only(audits).branches[0].messages] == ["user", "assistant"]


# --- what the auditor is told ---


def test_the_auditor_reads_nothing_about_the_truth(tmp_path: Path) -> None:
    player = auditor(opening(), END)
    run(tmp_path, player, Scripted(lambda _: "reply", name="mockllm/secret-model-9"))
    assert UNSPECIFIED_TARGET in player.read
    for secret in ("secret-model-9", "secret_fondness", "planted", "CANARY"):
        assert secret not in player.read
    assert "Talk about water (s0)." in player.inputs[0][0].text


def test_the_auditors_model_gets_every_tool_in_full_each_turn_and_the_log_once(tmp_path: Path) -> None:
    player = auditor(opening(), ask("more"), END)
    _, log = run(tmp_path, player, target())
    first, *later = player.tools[:3]
    assert len(first) == 9
    assert all(tool.description and "Args:" not in tool.description for tool in first)
    assert "message" in first[1].parameters.properties
    assert later == [first, first]
    sample = (read_eval_log(str(log), resolve_attachments=True).samples or [])[0]
    events = [e for e in sample.events if isinstance(e, ModelEvent)]
    shown = [e.tools for e in events if e.role == "auditor"]
    assert [len(tools) for tools in shown] == [9, 9, 9, 0]
    assert shown[0] == first
    assert {tool.description for tools in shown[1:] for tool in tools} == {SEE_FIRST_TURN}
    # calls are still rendered by Petri's viewers
    views = [e.view for e in sample.events if isinstance(e, ToolEvent) and e.function == "send_message"]
    assert [view.title if view else None for view in views] == ["send_message", "send_message"]


def test_tools_of_the_seed_reach_the_target_and_the_auditor(tmp_path: Path) -> None:
    tool = {"name": "read_log", "description": "Reads the ship's log.", "parameters": {"type": "object", "properties": {}}}
    player, played = auditor(opening(), END), target()
    run(tmp_path, player, played, work=units(tools=(tool,)))
    assert [[t.name for t in tools] for tools in played.tools] == [["read_log"]]
    assert "`read_log`: Reads the ship's log." in player.read


def test_the_log_opens_in_inspect_with_both_timelines_and_roles(tmp_path: Path) -> None:
    audits, path = run(tmp_path, auditor(opening(), ask("more"), END), target())
    log = read_eval_log(str(path))
    sample = (log.samples or [])[0]
    assert (log.status, path.suffix, sample.id) == ("success", ".eval", only(audits).id)
    assert sorted(t.name for t in sample.timelines or []) == ["auditor", "target"]
    assert [e.role for e in sample.events if isinstance(e, ModelEvent)] == ["auditor", "target", "auditor", "target", "auditor", "auditor"]
    assert Audit.model_validate_json(sample.store["audit"]) == only(audits)
    assert {role: usage.output_tokens for role, usage in (log.stats.role_usage or {}).items()} == {"auditor": 20, "target": 10}


# --- auditors that misbehave ---

BROKEN = ToolCall(id="x", function="send_message", arguments={}, parse_error="no JSON: {oops")
MISBEHAVING: list[tuple[str, Any, int, int, str]] = [
    ("never calls a tool", "I only think.", 3, 0, ""),
    ("calls unknown tools", [("hack_target", {"a": 1})], 3, 0, "hack_target"),
    ("broken tool arguments", [BROKEN], 3, 0, "no JSON"),
    ("arguments of the wrong type", [("send_message", {"message": {"a": [1]}})], 3, 0, "not of type 'string'"),
    ("missing arguments", [("send_message", {})], 3, 0, "required"),
    ("resumes without a message", [("resume", {})], 3, 0, "system message"),
    ("ends at once", END, 1, 0, ""),
    ("goes on after the end", [*END, *opening()], 1, 0, "already ended"),
]


@pytest.mark.parametrize(("turn", "turns", "replies", "told"), [case[1:] for case in MISBEHAVING], ids=[case[0] for case in MISBEHAVING])
def test_a_misbehaving_auditor_makes_an_audit_without_findings_not_a_failure(
    tmp_path: Path, turn: Any, turns: int, replies: int, told: str
) -> None:
    audits, _ = run(tmp_path, auditor(turn), target(), SETTINGS.model_copy(update={"max_turns": 3}))
    audit = only(audits)
    assert (audit.error, audit.turns, audit.target_turns) == (None, turns, replies)
    assert audit.report is not None
    assert told in " ".join(m.error or "" for m in audit.auditor_messages)
    if told == "no JSON":
        assert audit.auditor_messages[0].tool_calls[0].error == "no JSON: {oops"


@pytest.mark.parametrize(
    ("written", "finding", "kept"),
    [
        (REPORT, True, REPORT),
        ('```json\n{"finding": false}\n```', False, '```json\n{"finding": false}\n```'),
        ("I found nothing.", None, "I found nothing."),
        ("", None, ""),
        ('{"finding": "maybe"}', None, '{"finding": "maybe"}'),
        ("x" * 30_000, None, "x" * 20_000),
    ],
)
def test_the_report_is_read_or_kept_as_written(tmp_path: Path, written: str, finding: bool | None, kept: str) -> None:
    audits, _ = run(tmp_path, auditor(END, report=written), target())
    audit = only(audits)
    assert (audit.report.finding if audit.report else None, audit.report_text, audit.error) == (finding, kept, None)


def test_without_a_report_step_nobody_asks_for_one(tmp_path: Path) -> None:
    player = auditor(opening(), END)
    audits, _ = run(tmp_path, player, target(), SETTINGS.model_copy(update={"report": False}))
    assert (only(audits).report, only(audits).report_text, len(player.inputs)) == (None, "", 2)
    assert "Write your report" not in player.read


def test_usage_is_counted_by_role(tmp_path: Path) -> None:
    audits, _ = run(tmp_path, auditor(opening(), ask("more"), END), target())
    assert only(audits).usage == {"auditor": {"input": 40, "output": 20, "calls": 4}, "target": {"input": 20, "output": 10, "calls": 2}}


# --- failures ---


def test_failures_name_their_side_and_leave_the_other_audits_alone(tmp_path: Path) -> None:
    def audited(input: list[ChatMessage]) -> Any:
        if "(s1)" in input[0].text:
            return OSError("auditor's server is gone")
        if "Write your report" in input[-1].text:
            return RuntimeError("no report") if "(s3)" in input[0].text else REPORT
        return END if any(m.role == "assistant" for m in input) else opening("fail" if "(s2)" in input[0].text else "hello")

    played = Scripted(lambda input: OSError("target's server is gone") if input[-1].text == "fail" else "reply")
    audits, log = run(tmp_path, Scripted(audited), played, work=units(5))
    assert [a.error for a in audits] == [
        None,
        "auditor: OSError: auditor's server is gone",
        "target: OSError: target's server is gone",
        "auditor: RuntimeError: no report",
        None,
    ]
    assert [a.target_turns for a in audits] == [1, 0, 0, 1, 1]
    assert [a.failed for a in audits] == [False, True, True, True, False]
    errors = {str(s.id): s.error for s in read_eval_log(str(log)).samples or []}
    assert [errors[a.id] is not None for a in audits] == [False, True, False, True, False]


def test_audits_come_back_in_the_order_of_their_units_whoever_ends_first(tmp_path: Path) -> None:
    async def slow(input: list[ChatMessage]) -> str:
        await asyncio.sleep(0.05 * (4 - int(input[-1].text)))
        return "reply"

    def audited(input: list[ChatMessage]) -> Any:
        number = re.search(r"\(s(\d)\)", input[0].text)
        assert number is not None
        return END if any(m.role == "assistant" for m in input) else opening(number[1])

    ended: list[str] = []
    settings = SETTINGS.model_copy(update={"report": False})
    audits, _ = asyncio.run(
        start(tmp_path, Scripted(audited), Scripted(slow), settings, units(4), on_audit=lambda audit: ended.append(audit.id))
    )
    ids = [unit.audit_id for unit in units(4)]
    assert [a.id for a in audits] == ids
    assert ended == ids[::-1]


def test_a_cancelled_audit_is_not_recorded(tmp_path: Path) -> None:
    ended: list[Audit] = []

    async def cancelled() -> None:
        asked = asyncio.Event()

        async def never(_: list[ChatMessage]) -> str:
            asked.set()
            await asyncio.sleep(60)
            return "too late"

        running = asyncio.create_task(start(tmp_path, auditor(opening()), Scripted(never), on_audit=ended.append))
        await asyncio.wait_for(asked.wait(), 30)
        running.cancel()
        await running

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert ended == []


def test_an_evaluation_that_cannot_start_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises((ProviderError, OSError), match="file"):
        run(tmp_path / "file" / "logs", auditor(END), target())


# --- less bookkeeping ---


def test_light_restores_what_it_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("INSPECT_TRACE_FILE", "INSPECT_TRACE_LEVEL", "INSPECT_LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    logger = logging.getLogger("inspect_ai.model._model")
    before = (gc.get_threshold(), logging.getLogger("inspect_ai.model").level)

    async def inside() -> tuple[tuple[int, int, int], bool]:
        async with light():
            return gc.get_threshold(), logger.isEnabledFor(13)

    async def failing() -> None:
        async with light():
            raise ValueError("inside")

    assert asyncio.run(inside()) == ((50_000, 20, 20), False)
    with pytest.raises(ValueError, match="inside"):
        asyncio.run(failing())
    assert (gc.get_threshold(), logging.getLogger("inspect_ai.model").level) == before


@pytest.mark.parametrize(("audits", "young"), [(1, 50_000), (64, 64_000), (4_096, 4_096_000)])
def test_garbage_is_collected_the_less_often_the_more_audits_take_turns(audits: int, young: int) -> None:
    async def inside() -> tuple[int, int, int]:
        async with light(audits):
            return gc.get_threshold()

    assert asyncio.run(inside()) == (young, 20, 20)


def test_what_was_loaded_before_the_first_audits_is_set_aside_once_and_what_comes_later_is_not() -> None:
    class Later:
        pass

    async def inside() -> int:
        async with light():
            return gc.get_freeze_count()

    gc.unfreeze()
    first = asyncio.run(inside())
    assert first > 10_000
    later = Later()
    assert asyncio.run(inside()) <= first
    assert any(one is later for one in gc.get_objects()), "still in the collector's sight"


@pytest.mark.parametrize("threshold", [(0, 10, 10), (10**6, 10, 10)])
def test_light_leaves_a_callers_own_choices_alone(monkeypatch: pytest.MonkeyPatch, threshold: tuple[int, int, int]) -> None:
    monkeypatch.setenv("INSPECT_LOG_LEVEL", "trace")
    before = gc.get_threshold()

    async def inside() -> tuple[tuple[int, int, int], int]:
        async with light():
            return gc.get_threshold(), logging.getLogger("inspect_ai.model").level

    gc.set_threshold(*threshold)
    try:
        assert asyncio.run(inside()) == (threshold, logging.NOTSET)
        assert gc.get_threshold() == threshold
    finally:
        gc.set_threshold(*before)


def test_a_judgement_outside_of_audits_leaves_nothing_behind() -> None:
    """Inspect would keep every prompt of a judge until the process ends."""
    judge = get_model("sim/judge", memoize=False)
    one = made_audit("a")

    async def judged() -> tuple[int, ...]:
        counts = [len(transcript().events)]
        await judge_auditor_view(judge, one, BEHAVIOR)
        await judge_petri(judge, one)
        counts.append(len(transcript().events))
        await judge.generate("a call that nobody forgets")
        counts.append(len(transcript().events))
        return tuple(count - counts[0] for count in counts)

    assert asyncio.run(judged()) == (0, 0, 1)


def test_a_judgement_inside_of_an_audit_stays_in_its_log(tmp_path: Path) -> None:
    @solver
    def asking() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            with forgotten():
                await get_model("sim/target", memoize=False).generate("hello")
            return state

        return solve

    task = Task(dataset=[Sample(input="x")], solver=asking())
    logs = asyncio.run(eval_async(task, model="sim/target", log_dir=str(tmp_path)))
    assert logs[0].samples is not None
    assert [event.input[0].text for event in logs[0].samples[0].events if isinstance(event, ModelEvent)] == ["hello"]


def test_a_schema_is_the_same_one_in_every_configuration_and_says_what_a_plain_one_says() -> None:
    schema = answer_schema("report", Report)
    merged = GenerateConfig(temperature=0.5).merge(GenerateConfig(response_schema=schema)).merge(GenerateConfig(max_tokens=7))
    assert merged.response_schema is schema is answer_schema("report", Report)
    plain = ResponseSchema(name="report", json_schema=json_schema(Report))
    assert schema.model_dump_json() == plain.model_dump_json()
    assert merged.model_dump_json() == GenerateConfig(temperature=0.5, max_tokens=7, response_schema=plain).model_dump_json()
    # a provider that changes what it sends must get a copy of its own
    theirs = schema.json_schema.model_copy(deep=True)
    theirs.description = "changed"
    assert schema.model_dump_json() == plain.model_dump_json()
