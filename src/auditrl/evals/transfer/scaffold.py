"""One investigation, whoever hosts it: what a scaffold is given, and what it must do.

A scaffold drives the auditor with the given tools until the budget is spent, and then puts one last request to the same auditor. There
are two: Inspect's `react` agent (`react`), and Claude Code (`claude_code`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ...errors import ConfigError
from ...prompts import fill, load_prompt
from .limits import Budget, Limits, Spending
from .record import Stopped
from .tools import SCAFFOLDED, TargetTools

if TYPE_CHECKING:
    from inspect_ai.agent import AgentState
    from inspect_ai.model import Model, ResponseSchema
    from inspect_ai.tool import ToolDef


@dataclass(slots=True)
class Session:
    """The auditor's side of one audit."""

    auditor: Model
    """As it was opened: not under the budget."""
    target: TargetTools
    limits: Limits
    spending: Spending = field(init=False)
    stopped: Stopped | None = None
    idle: int = 0
    turns: int = 0

    def __post_init__(self) -> None:
        self.spending = Spending(Budget(self.limits.budget))

    @property
    def budget(self) -> Budget:
        """Tokens of this audit."""
        return self.spending.budget

    @property
    def tools(self) -> list[ToolDef]:
        """The tools of the approach."""
        return self.target.definitions()

    def limited(self) -> Model:
        """The auditor under its budget."""
        return self.spending.model(self.auditor, self.limits.answer)

    def instructions(self) -> str:
        """The investigator's system prompt. It holds nothing about the target."""
        tool = SCAFFOLDED.get(self.target.approach)
        extra = f" `{tool}` brings many samples of another kind at once; use it often, with and without a hint." if tool else ""
        return fill(load_prompt("auditrl.evals.transfer", "investigator"), extra=extra, budget=f"{self.limits.budget:,}")

    def opening(self) -> str:
        """The first user message."""
        return fill(load_prompt("auditrl.evals.transfer", "start"), budget=f"{self.limits.budget:,}")

    def go_on(self, called_tools: bool) -> bool:
        """After an answer: whether to go on. If not, `stopped` says why."""
        self.turns = self.budget.answers
        self.idle = 0 if called_tools else self.idle + 1
        if self.budget.over:
            self.stopped = "budget"
        elif self.turns >= self.limits.turns:
            self.stopped = "turns"
        elif self.idle >= self.limits.idle:
            self.stopped = "idle"
        return self.stopped is None

    def continue_message(self) -> str:
        """What is said to an auditor that stopped too early, with the tokens left."""
        template = load_prompt("auditrl.evals.transfer", "continue")
        return fill(template, left=f"{self.budget.left:,}", budget=f"{self.limits.budget:,}")


class Scaffold(Protocol):
    """A host of investigations. One instance serves one audit."""

    async def investigate(self, session: Session) -> AgentState:
        """Run until the budget is spent or the auditor has nothing more to do; sets `session.stopped`."""
        ...

    async def ask(self, session: Session, state: AgentState, request: str, schema: ResponseSchema) -> str:
        """Put a last request to the same auditor, outside of the budget; returns its text."""
        ...


SCAFFOLDS = ("react", "claude-code")


def check_scaffold(name: str, sandbox: str | None) -> str | None:
    """The Inspect sandbox that a scaffold runs in, None for one that needs none.

    Raises:
        ConfigError: Something that the scaffold needs is missing; the message says what to install.
    """
    if name == "claude-code":
        from .claude_code import check_claude_code

        return check_claude_code(sandbox or "docker")
    if sandbox is not None:
        raise ConfigError(f"--sandbox: {name} needs none; leave it out, or use --scaffold claude-code")
    return None


def make_scaffold(name: str) -> Scaffold:
    """A fresh scaffold by its name (one of `SCAFFOLDS`)."""
    if name == "claude-code":
        from .claude_code import ClaudeCode

        return ClaudeCode()
    from .react import React

    return React()
