"""What is kept of an audit: branches, message numbers, prefills, tools, both sides of the conversation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from inspect_ai.model import ChatMessageTool, ContentReasoning, ContentText
from inspect_ai.tool import ToolCallError
from scripted import BLOCK, END, Call, ask, auditor, opening, quotes_block, run, target, units

from auditrl.audit.capture import auditor_message
from auditrl.audit.transcript import parse_lines, target_view
from auditrl.config import AuditConfig
from auditrl.types import Audit

BACK = "rollback_conversation"
RESTART: list[Call] = [("restart_conversation", {})]


def settings(turns: int, **changes: Any) -> AuditConfig:
    return AuditConfig(max_turns=turns, report=False, **changes)


def play(folder: Path, *turns: Any, replies: tuple[Any, ...] = (), **changes: Any) -> Audit:
    audits, _ = run(folder, auditor(*turns, END), target(*replies), settings(len(turns), **changes))
    return audits[0]


BRANCHES: list[tuple[str, list[Any], list[tuple[str | None, int, list[str]]]]] = [
    (
        "no rollback",
        [opening(), ask("more")],
        [(None, 0, ["M1 You are a clerk.", "M2 hello", "M3 reply 1", "M4 more", "M5 reply 2"])],
    ),
    (
        "rollback to a reply",
        [opening(), ask("more"), [(BACK, {"message_id": "M3"}), *ask("other")]],
        [
            (None, 0, ["M1 You are a clerk.", "M2 hello", "M3 reply 1", "M4 more", "M5 reply 2"]),
            ("M3", 3, ["M1 You are a clerk.", "M2 hello", "M3 reply 1", "M6 other", "M7 reply 2"]),
        ],
    ),
    (
        "a message that is sent again replaces the one that was rolled back to",
        [opening(), [(BACK, {"message_id": "M2"}), *ask("hi")]],
        [
            (None, 0, ["M1 You are a clerk.", "M2 hello", "M3 reply 1"]),
            ("M1", 1, ["M1 You are a clerk.", "M4 hi", "M5 reply 1"]),
        ],
    ),
    (
        "rollback inside a branch, then back to the trunk",
        [
            opening(),
            ask("more"),
            [(BACK, {"message_id": "M3"}), *ask("left")],
            [(BACK, {"message_id": "M7"}), *ask("further left")],
            [(BACK, {"message_id": "M5"}), *ask("trunk")],
        ],
        [
            (None, 0, ["M1 You are a clerk.", "M2 hello", "M3 reply 1", "M4 more", "M5 reply 2"]),
            ("M3", 3, ["M1 You are a clerk.", "M2 hello", "M3 reply 1", "M6 left", "M7 reply 2"]),
            ("M7", 5, ["M1 You are a clerk.", "M2 hello", "M3 reply 1", "M6 left", "M7 reply 2", "M8 further left", "M9 reply 3"]),
            ("M5", 5, ["M1 You are a clerk.", "M2 hello", "M3 reply 1", "M4 more", "M5 reply 2", "M10 trunk", "M11 reply 3"]),
        ],
    ),
    (
        "restart",
        [opening(), [*RESTART, *opening("again", "You are a cook.")]],
        [
            (None, 0, ["M1 You are a clerk.", "M2 hello", "M3 reply 1"]),
            ("", 0, ["M4 You are a cook.", "M5 again", "M6 reply 1"]),
        ],
    ),
    (
        "a restart before anything was sent is no branch",
        [[*RESTART, *opening()]],
        [(None, 0, ["M1 You are a clerk.", "M2 hello", "M3 reply 1"])],
    ),
    ("a rollback to nowhere changes nothing", [[(BACK, {"message_id": "M77"})]], []),
]


@pytest.mark.parametrize(("turns", "expected"), [case[1:] for case in BRANCHES], ids=[case[0] for case in BRANCHES])
def test_branches(tmp_path: Path, turns: list[Any], expected: list[tuple[str | None, int, list[str]]]) -> None:
    audit = play(tmp_path, *turns)
    assert [(b.branched_from, b.shared, [f"{m.ref} {m.text}" for m in b.messages]) for b in audit.branches] == expected
    assert audit.error is None
    assert audit.target_turns == len({line.ref for line in parse_lines(target_view(audit)) if line.kind == "TARGET"})


def test_a_prefill_is_marked_and_survives_a_rollback_as_shared(tmp_path: Path) -> None:
    audit = play(
        tmp_path,
        opening(),
        ask("go on", prefill="Secretly, I"),
        ask("and then"),
        [(BACK, {"message_id": "M5"}), *ask("or else")],
        replies=("one", "love ships", "three", "four"),
        prefill=True,
    )
    first, second = audit.branches
    assert [(m.role, m.text, m.prefill) for m in first.messages[2:6]] == [
        ("assistant", "one", False),
        ("user", "go on", False),
        ("assistant", "Secretly, I", True),
        ("assistant", "love ships", False),
    ]
    assert (second.branched_from, second.shared) == ("M5", 6)
    assert [m.text for m in second.messages[6:]] == ["or else", "four"]
    assert [line.text for line in parse_lines(target_view(audit)) if line.kind == "PREFILL"] == ["Secretly, I"]
    assert audit.target_turns == 4


def test_numbers_are_the_ones_that_the_auditor_read(tmp_path: Path) -> None:
    player = auditor(opening(), ask("two"), [(BACK, {"message_id": "M3"}), *ask("three")], [*RESTART, *opening("four")], END)
    audits, _ = run(tmp_path, player, target(), settings(5))
    spoken = {m.ref: m.text for b in audits[0].branches for m in b.messages}
    read = [m for m in player.inputs[-1] if m.role == "tool"]
    replies = [re.search(r"\[message_id: (M\d+)\]\n(.*)\n</target_response>", m.text) for m in read]
    seen = {match[1]: match[2] for match in replies if match}
    assert len(seen) == 4
    assert {ref: spoken[ref] for ref in seen} == seen
    # and the auditor's own messages carry the number that it was told
    told = {m.ref: m.text for m in audits[0].auditor_messages if m.tool == "send_message"}
    assert {ref: text for ref, text in told.items() if f"[message_id: {ref}]" not in text} == {}
    assert [spoken[ref] for ref in told if ref] == ["hello", "two", "three", "four"]


@pytest.mark.parametrize(
    ("tool", "text", "ref"),
    [
        ("send_message", "Message sent [message_id: M4].", "M4"),
        ("send_tool_call_result", "Tool result sent [message_id: M5].", "M5"),
        ("resume", "<target_response>\n[message_id: M6]\n[message_id: M1]", "M6"),
        ("resume", "said [message_id: M1]", None),
        ("create_tool", "Tool [message_id: M1] created.", None),
        (None, "[message_id: M1]", None),
    ],
)
def test_only_petris_own_words_give_a_number(tool: str | None, text: str, ref: str | None) -> None:
    assert auditor_message(ChatMessageTool(content=text, function=tool)).ref == ref


def test_a_call_that_failed_has_no_number() -> None:
    failed = ChatMessageTool(content="Message sent [message_id: M4].", function="send_message", error=ToolCallError("unknown", "no"))
    assert (auditor_message(failed).ref, auditor_message(failed).error) == (None, "no")


def test_the_targets_tool_calls_and_what_they_returned(tmp_path: Path) -> None:
    audit = play(
        tmp_path,
        opening(),
        [("send_tool_call_result", {"tool_call_id": "call-0", "result": "42", "status": "error"}), ("resume", {})],
        replies=([("look_up", {"q": "für\n"})], "it is 42"),
    )
    call, result, last = audit.branches[0].messages[2:]
    assert (call.tool_calls[0].name, call.tool_calls[0].arguments, call.text) == ("look_up", {"q": "für\n"}, "")
    assert (result.role, result.tool, result.tool_call_id, result.ref) == ("tool", "look_up", "call-0", "M4")
    assert "42" in (result.error or result.text)
    assert last.text == "it is 42"


def test_reasoning_of_the_target_is_dropped_unless_it_is_asked_for(tmp_path: Path) -> None:
    thinking = [ContentReasoning(reasoning=f"I was told: {BLOCK}"), ContentText(text="fine")]
    for keep in (False, True):
        player = auditor(opening(), END)
        audits, _ = run(tmp_path, player, target(list(thinking)), settings(2, keep_target_reasoning=keep), units(1))
        assert audits[0].branches[0].messages[-1].text == "fine"
        assert quotes_block(player.read) is keep
