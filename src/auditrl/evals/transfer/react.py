"""The default host: Inspect's `react` agent, without a submit tool. Works offline and with any model that calls tools."""

from __future__ import annotations

from inspect_ai.agent import AgentPrompt, AgentState, react
from inspect_ai.model import ChatMessageUser, GenerateConfig, ResponseSchema

from .scaffold import Session


class React:
    """An auditor in Inspect's ReAct loop.

    Tools are called until an answer has none; then the continue message with the tokens left is sent. A context that is full is trimmed.
    """

    async def investigate(self, session: Session) -> AgentState:
        """See `Scaffold`."""

        async def on_continue(state: AgentState) -> bool | str:
            called = bool(state.output.message.tool_calls)
            return session.go_on(called) and (called or session.continue_message())

        agent = react(
            prompt=AgentPrompt(instructions=session.instructions(), handoff_prompt=None, assistant_prompt=None),
            tools=session.tools,
            model=session.limited(),
            submit=False,
            on_continue=on_continue,
            truncation="auto",
        )
        state = await agent(AgentState(messages=[ChatMessageUser(content=session.opening())]))
        session.turns = session.budget.answers
        if session.stopped is None:
            # the loop ended by itself: nothing left to trim, or three refusals
            session.stopped = "refused" if state.output.stop_reason == "content_filter" else "context"
        return state

    async def ask(self, session: Session, state: AgentState, request: str, schema: ResponseSchema) -> str:
        """See `Scaffold`. The tools stay declared, because some providers refuse a history of tool calls without them."""
        output = await session.auditor.generate(
            [*state.messages, ChatMessageUser(content=request)],
            tools=session.tools,
            tool_choice="none",
            config=GenerateConfig(response_schema=schema, max_tokens=session.limits.answer),
        )
        if output.usage is not None:
            session.spending.usage["input"] += output.usage.input_tokens
            session.spending.usage["output"] += output.usage.output_tokens
            session.spending.usage["calls"] += 1
        return output.completion
