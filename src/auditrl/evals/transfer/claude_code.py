"""The other host: Claude Code in a sandbox, through `inspect_swe`, with the audit's tools bridged to it by MCP.

Its program runs in the sandbox and sees no file of ours; every model call goes through Inspect, where the budget is kept. When Claude
Code ends its turn the continue message is put to the same session. Needs the extra `claude-code` and a sandbox: docker, or `local` with
a `claude` on the path (then the program runs on this machine, with this user's rights).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

from inspect_ai.agent import AgentState, BridgedToolsSpec
from inspect_ai.model import ChatMessageUser, ResponseSchema
from inspect_ai.util import sandbox

from ...errors import ConfigError
from .scaffold import Session

if TYPE_CHECKING:
    from collections.abc import Awaitable

SERVER = "audit"
"""Name of the MCP server with the tools."""
MODEL = "auditor"
"""What Claude Code calls the model; the real name stays outside."""
DISALLOWED = ["WebSearch", "WebFetch", "Task"]
_NEEDED = ("inspect_swe", "anthropic", "mcp", "openai")


class AgentFactory(Protocol):
    """Makes an agent of a session's tools; the default is `inspect_swe`'s Claude Code."""

    def __call__(self, session: Session) -> Callable[[AgentState], Awaitable[AgentState]]:
        """A fresh agent that keeps its session over several calls."""
        ...


def check_claude_code(where: str) -> str:
    """The sandbox to run in.

    Raises:
        ConfigError: A package, the sandbox's program or `claude` itself is missing.
    """
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise ConfigError(f"--scaffold claude-code: {', '.join(missing)} not installed; install auditrl[claude-code], or use react")
    program = {"docker": "docker", "local": "claude"}.get(where)
    if program is not None and shutil.which(program) is None:
        raise ConfigError(f"--scaffold claude-code: no program {program!r} for --sandbox {where}; install it, or use --scaffold react")
    return where


class ClaudeCode:
    """An auditor inside Claude Code."""

    def __init__(self, factory: AgentFactory | None = None) -> None:
        self._factory = factory or _claude_code
        self._agent: Callable[[AgentState], Awaitable[AgentState]] | None = None

    async def investigate(self, session: Session) -> AgentState:
        """See `Scaffold`."""
        self._agent = self._factory(session)
        state = AgentState(messages=[ChatMessageUser(content=session.opening())])
        while True:
            before = _activity(session)
            state = await self._agent(state)
            if session.target.gone is not None or not session.go_on(_activity(session) > before):
                return state
            state.messages.append(ChatMessageUser(content=session.continue_message()))

    async def ask(self, session: Session, state: AgentState, request: str, schema: ResponseSchema) -> str:
        """See `Scaffold`. Claude Code has no structured answers; the request says what to write."""
        assert self._agent is not None, "ask comes after investigate"
        session.budget.lifted = True
        state.messages.append(ChatMessageUser(content=request))
        after = await self._agent(state)
        state.messages[:] = after.messages
        return after.output.completion


def _activity(session: Session) -> int:
    """Uses of our tools, however the host counts its turns."""
    return len(session.target.exchanges) + len(session.target.research.findings)


def _claude_code(session: Session) -> Callable[[AgentState], Awaitable[AgentState]]:
    agent: Any = import_module("inspect_swe").claude_code
    in_place = type(sandbox()).__name__ == "LocalSandboxEnvironment"
    made: Callable[[AgentState], Awaitable[AgentState]] = agent(
        system_prompt=session.instructions(),
        bridged_tools=[BridgedToolsSpec(name=SERVER, tools=[tool.as_tool() for tool in session.tools])],
        disallowed_tools=DISALLOWED,
        model_config=MODEL,
        model_aliases={MODEL: session.limited()},
        # nothing is downloaded onto the user's own machine
        version="sandbox" if in_place else "auto",
    )
    return made
