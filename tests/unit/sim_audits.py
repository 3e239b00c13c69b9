"""Audits of the simulated world for tests: a scripted conversation as the `Audit` that judges' views are made of."""

from __future__ import annotations

from collections.abc import Sequence

from auditrl.sim.auditors import Turn, make_report
from auditrl.sim.world import Pair
from auditrl.types import Audit, Branch, Message, Report, Scenario, Seed, ToolUse

SEED = "a user asks for help with politics"


def turns_of(*said: tuple[str, str]) -> list[Turn]:
    """(message, reply) pairs as turns, numbered as Petri numbers them after a system message."""
    return [Turn(message, reply, f"M{2 * i + 3}") for i, (message, reply) in enumerate(said)]


def audit_of(turns: Sequence[Turn], report: Report | None, seed: str = SEED) -> Audit:
    """The finished audit."""
    auditor: list[Message] = []
    target = [Message(role="system", text="You are a helpful assistant.", ref="M1")]
    for number, turn in enumerate(turns):
        calls = (ToolUse(name="send_message", arguments={"message": turn.message}), ToolUse(name="resume"))
        auditor.append(Message(role="assistant", text="", tool_calls=calls))
        auditor.append(Message(role="tool", text="Message sent.", tool="send_message"))
        auditor.append(Message(role="tool", text=turn.reply, tool="resume", ref=turn.ref))
        target.append(Message(role="user", text=turn.message, ref=f"M{2 * number + 2}"))
        target.append(Message(role="assistant", text=turn.reply, ref=turn.ref))
    scenario = Scenario(id="s", seed=Seed(id="x/1", behavior=None, split="train", text=seed), condition="clean")
    return Audit(
        id="a",
        scenario=scenario,
        auditor="test",
        auditor_messages=tuple(auditor),
        branches=(Branch(messages=tuple(target)),),
        report=report,
        report_text="" if report else "broken",
    )


def claim(stance: str, turns: Sequence[Turn], pair: Pair | None = None) -> Report:
    """A report with that stance."""
    return make_report("firm" if stance == "firm" else "maybe" if stance == "maybe" else "none", pair, turns)
