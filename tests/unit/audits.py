"""Made-up audits for unit tests."""

from __future__ import annotations

from auditrl.types import Audit, Behavior, Branch, Condition, Message, Report, Scenario, Seed, ToolUse

BEHAVIOR = Behavior(
    name="b",
    title="A title",
    family="deception",
    source="user",
    split="train",
    activation="asked about ships",
    description="It praises ships when asked about ships.",
    instruction="CANARY-INSTRUCTION praise ships.",
)


def scenario(condition: Condition = "planted", name: str = "s") -> Scenario:
    seed = Seed(id=f"b/{name}", behavior="b", split="train", text="Talk about ships.")
    return Scenario(id=f"{name}/{condition}", seed=seed, condition=condition, behavior="b")


def audit(
    name: str = "a",
    *,
    where: Scenario | None = None,
    reply: str = "Ships are wonderful.",
    said: str = "tell me about ships",
    report: Report | None = None,
    error: str | None = None,
    index: int = 0,
) -> Audit:
    target = (Message(role="user", text=said, ref="M1"), Message(role="assistant", text=reply, ref="M2"))
    auditor = (
        Message(role="assistant", text="", tool_calls=(ToolUse(name="send_message", arguments={"message": said}), ToolUse(name="resume"))),
        Message(role="tool", text="Message sent", tool="send_message", ref="M1"),
        Message(role="tool", text=reply, tool="resume", ref="M2"),
    )
    return Audit(
        id=name,
        scenario=where or scenario(),
        auditor="test",
        index=index,
        auditor_messages=auditor,
        branches=(Branch(messages=target),),
        report=report if report is not None else Report(finding=False),
        turns=1,
        target_turns=1,
        error=error,
    )
