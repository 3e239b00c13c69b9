"""Short conversations with a simulated user, with and without a planted behavior: what the checks of targets are made of.

    behavior -> test ideas -> a plan each -> conversations by plan, condition and replicate -> a 0-10 grade each

The plan is written once, so that all conditions of an idea meet the same system message, opening and steps; the user sees the plan and
the conversation, never the behavior. A conversation is kept as an `Audit` whose auditor is the simulated user. Everything that was paid
for stands in a journal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from ..audit.context import audit_context, stable_hash
from ..audit.target import with_hidden_block
from ..audit.transcript import fence, shorten, target_view
from ..behaviors.persona import hidden_block
from ..config import PersonaConfig
from ..display import Display, NoDisplay
from ..faults import told
from ..judges.base import Answer, ask
from ..types import Audit, Behavior, Branch, Condition, Message, Scenario, Seed, Verdict
from .journal import Journal, gather_limited

if TYPE_CHECKING:
    from inspect_ai.model import ChatMessage, Model

IDEA_CALLS = 3
"""How often a writer that gives too few ideas is asked for more."""
AT_A_TIME = 32
"""Conversations at a time; rate limits are Inspect's."""


class Idea(BaseModel):
    """A situation in which the behavior would show."""

    title: str
    situation: str


class IdeasAnswer(Answer):
    """What the writer answers for a behavior."""

    ideas: list[Idea] = Field(default_factory=list)


class UserPlan(Answer):
    """What the user knows: who they are and what they bring up."""

    system_message: str
    user: str
    opening: str
    steps: list[str] = Field(min_length=1)


class UserTurn(Answer):
    """The simulated user's next message."""

    message: str = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class DialogueSize:
    """Ideas a behavior, turns a conversation, conversations an idea and condition. The defaults are the published ones."""

    ideas: int = 10
    turns: int = 5
    replicates: int = 5


@dataclass(slots=True)
class CheckContext:
    """A target under check and the models that check it."""

    target: Model
    target_name: str
    judge: Model
    writer: Model
    """Writes ideas and plans."""
    user: Model
    """Plays the user."""
    journal: Journal
    persona: PersonaConfig = field(default_factory=PersonaConfig)
    random_seed: int = 0
    attempts: int = 2
    simulated: bool = False
    display: Display = field(default_factory=NoDisplay)


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one idea."""

    id: str
    """`<behavior>/<number>`."""
    behavior: Behavior
    plan: UserPlan


@dataclass(frozen=True, slots=True)
class Graded:
    """One conversation's grade. `score` is None when it failed or has no verdict; `lost` then says which."""

    behavior: str
    unit: str
    """What is repeated: the plan's or the probe's id."""
    condition: Condition
    replicate: int
    score: float | None
    lost: str | None = None


Judgement = Callable[[Audit], Awaitable[Verdict]]


async def plans_for(context: CheckContext, behaviors: Sequence[Behavior], size: DialogueSize) -> tuple[list[Plan], dict[str, int]]:
    """Plans of all behaviors, and how many ideas each behavior lacks (a writer that gave too few, or a plan that could not be read)."""
    context.display.start(f"{context.target_name}: plans", len(behaviors))

    async def of(behavior: Behavior) -> list[Plan]:
        ideas = await _ideas(context, behavior, size.ideas)
        found = [await _plan(context, behavior, idea, i, size.turns) for i, idea in enumerate(ideas, start=1)]
        context.display.advance(behavior.name)
        return [plan for plan in found if plan is not None]

    made = await gather_limited(AT_A_TIME, [partial(of, behavior) for behavior in behaviors])
    context.display.finish()
    short = {b.name: size.ideas - len(plans) for b, plans in zip(behaviors, made, strict=True) if len(plans) < size.ideas}
    return [plan for plans in made for plan in plans], short


async def _ideas(context: CheckContext, behavior: Behavior, count: int) -> list[Idea]:
    ideas: dict[str, Idea] = {}
    for call in range(IDEA_CALLS):
        if len(ideas) >= count:
            break
        key = f"ideas/{behavior.name}/{call}"
        kept = context.journal.get(key)
        if kept is None:
            values = {
                "hidden_behavior": _described(behavior),
                "existing": "\n".join(fence(idea.title) for idea in ideas.values()) or "(none)",
                "count": str(count - len(ideas)),
            }
            asked = await ask(context.writer, kind="test_ideas", answer=IdeasAnswer, values=values, attempts=context.attempts)
            if asked.answer is None:
                continue
            kept = {"ideas": [idea.model_dump() for idea in asked.answer.ideas]}
            context.journal.add(key, kept)
        for idea in map(Idea.model_validate, kept["ideas"]):
            ideas.setdefault(" ".join(idea.situation.lower().split()), idea)
    return list(ideas.values())[:count]


async def _plan(context: CheckContext, behavior: Behavior, idea: Idea, number: int, turns: int) -> Plan | None:
    name = f"{behavior.name}/{number:02d}"
    kept = context.journal.get(f"plan/{name}")
    if kept is None:
        values = {"hidden_behavior": _described(behavior), "idea": fence(f"{idea.title}: {idea.situation}"), "turns": str(turns)}
        asked = await ask(context.writer, kind="test_plan", answer=UserPlan, values=values, attempts=context.attempts)
        if asked.answer is None:
            return None
        kept = asked.answer.model_dump()
        context.journal.add(f"plan/{name}", kept)
    return Plan(name, behavior, UserPlan.model_validate(kept))


def _described(behavior: Behavior) -> str:
    return fence(f"{behavior.title}. {behavior.description}\nIt shows when: {behavior.activation}")


# ---------------------------------------------------------------- conversations


async def hold(context: CheckContext, plan: Plan, condition: Condition, replicate: int, turns: int) -> Audit:
    """One conversation by plan. A user or target that fails ends it; the audit then says so."""
    messages: list[Message] = [Message(role="system", text=plan.plan.system_message, ref="M1")]

    async def next_message(turn: int) -> str | None:
        if turn == 1:
            return plan.plan.opening
        values = {
            "user": fence(plan.plan.user),
            "steps": fence("\n".join(f"{i}. {step}" for i, step in enumerate(plan.plan.steps, start=1))),
            "conversation": shorten(target_view(_dialogue(plan.id, plan.behavior, condition, messages[1:])), 40_000),
            "turn": str(turn),
            "step": fence(plan.plan.steps[min(turn, len(plan.plan.steps)) - 1]),
        }
        asked = await ask(context.user, kind="simulated_user", answer=UserTurn, values=values, attempts=context.attempts)
        return asked.answer.message if asked.answer is not None else None

    return await converse(context, f"{plan.id}/{condition}#{replicate}", plan.behavior, condition, messages, next_message, turns)


async def converse(
    context: CheckContext,
    name: str,
    behavior: Behavior | None,
    condition: Condition,
    messages: list[Message],
    next_message: Callable[[int], Awaitable[str | None]],
    turns: int,
) -> Audit:
    """`turns` exchanges behind `messages`, which grow; the hidden block goes in below them, where only the target reads it.

    Args:
        name: Id of the conversation; its noise is keyed by it.
        next_message: What the user says in turn 1, 2, ...; None ends the conversation as failed.
    """
    error: str | None = None
    with audit_context(name, stable_hash(context.random_seed, name)):
        target = with_hidden_block(context.target, hidden_block(behavior, condition, context.persona))
        for turn in range(1, turns + 1):
            said = await next_message(turn)
            if said is None:
                error = "user: no message"
                break
            messages.append(Message(role="user", text=said, ref=f"M{len(messages) + 1}"))
            try:
                output = await target.generate([_chat(message) for message in messages])
            except Exception as problem:  # what is left after Inspect's retries
                error = f"target: {told(problem, 300)}"
                break
            messages.append(Message(role="assistant", text=output.completion, ref=f"M{len(messages) + 1}"))
    return _dialogue(name, behavior, condition, messages, error)


def _dialogue(name: str, behavior: Behavior | None, condition: Condition, messages: Sequence[Message], error: str | None = None) -> Audit:
    planted = behavior.name if behavior is not None else None
    seed = Seed(id=name.partition("#")[0], behavior=planted, split="eval", text="a conversation with a simulated user")
    replies = sum(message.role == "assistant" for message in messages)
    return Audit(
        id=name,
        scenario=Scenario(id=seed.id, seed=seed, condition=condition, behavior=planted),
        auditor="simulated user",
        branches=(Branch(messages=tuple(messages)),),
        turns=sum(message.role == "user" for message in messages),
        target_turns=replies,
        error=error,
    )


def _chat(message: Message) -> ChatMessage:
    from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser

    kinds: Mapping[str, type[ChatMessage]] = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}
    return kinds[message.role](content=message.text)


async def graded(
    context: CheckContext, key: str, unit: str, replicate: int, talk: Callable[[], Awaitable[Audit]], judge: Judgement
) -> Graded:
    """Hold and grade one conversation, or take both from the journal. What failed or has no verdict is tried again the next time."""
    kept = context.journal.get(f"dialogue/{key}")
    dialogue = Audit.model_validate(kept["audit"]) if kept is not None else await talk()
    behavior, condition = dialogue.scenario.behavior or "", dialogue.scenario.condition
    if dialogue.failed:
        return Graded(behavior, unit, condition, replicate, None, f"failed ({(dialogue.error or '').partition(':')[0]})")
    if kept is None:
        context.journal.add(f"dialogue/{key}", {"audit": dialogue.model_dump(mode="json")})
    said = context.journal.get(f"verdict/{key}")
    verdict = Verdict.model_validate(said["verdict"]) if said is not None else await judge(dialogue)
    if said is None and verdict.value is not None:
        context.journal.add(f"verdict/{key}", {"verdict": verdict.model_dump(mode="json")})
    lost = None if verdict.value is not None else f"no verdict ({verdict.cause})"
    return Graded(behavior, unit, condition, replicate, verdict.value, lost)


async def grade_all(
    context: CheckContext,
    plans: Sequence[Plan],
    size: DialogueSize,
    conditions: Sequence[Condition],
    judge: Callable[[Plan, Audit], Awaitable[Verdict]],
) -> list[Graded]:
    """Every plan under every condition, `size.replicates` times."""

    async def one(plan: Plan, condition: Condition, i: int) -> Graded:
        found = await graded(
            context,
            f"{plan.id}/{condition}#{i}",
            plan.id,
            i,
            lambda: hold(context, plan, condition, i, size.turns),
            lambda audit: judge(plan, audit),
        )
        context.display.advance()
        return found

    work = [partial(one, p, condition, i) for p in plans for condition in conditions for i in range(size.replicates)]
    context.display.start(f"{context.target_name}: conversations", len(work))
    found = await gather_limited(AT_A_TIME, work)
    context.display.finish()
    return found
