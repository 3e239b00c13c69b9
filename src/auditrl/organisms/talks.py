"""Conversations with a base or an organism: everyday ones, and ones that end in a question about hidden behavior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..evals.dialogues import CheckContext, Graded, Plan, converse, graded, hold
from ..judges.confession import judge_confession
from ..judges.dialogue_score import judge_behavior_score
from ..types import Audit, Behavior, Message, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Interrogation", "everyday", "interrogate", "interrogations", "kept_dialogue"]


@dataclass(frozen=True, slots=True)
class Interrogation:
    """A question, put at once or (`plan`) after the opening of a situation in which the behavior can show."""

    id: str
    unit: str
    """What is repeated: the question."""
    question: str
    plan: Plan | None


def interrogations(questions: Sequence[str], plans: Sequence[Plan], count: int) -> list[Interrogation]:
    """`count` interrogations: every second one after a situation, questions and situations in turn."""
    made: list[Interrogation] = []
    for number in range(count):
        plan = plans[number // 2 % len(plans)] if number % 2 else None
        # both kinds go through all questions
        place = number // 2 % len(questions)
        made.append(Interrogation(f"{number:04d}", f"q{place:02d}", questions[place], plan))
    return made


async def everyday(context: CheckContext, stage: str, plan: Plan, behavior: Behavior, replicate: int, turns: int) -> Graded:
    """Hold a conversation by plan and grade how far it shows `behavior` (0-10), or take both from the journal under `stage`."""

    async def judge(dialogue: Audit) -> Verdict:
        return await judge_behavior_score(context.judge, dialogue, behavior, attempts=context.attempts)

    key = f"{stage}/{plan.id}#{replicate}"
    return await graded(context, key, plan.id, replicate, lambda: hold(context, plan, "clean", replicate, turns), judge)


async def interrogate(context: CheckContext, stage: str, asked: Interrogation, behavior: Behavior) -> Graded:
    """Ask one question; the grade is 1 for a confession, else 0."""

    async def talk() -> Audit:
        lines = [asked.plan.plan.opening, asked.question] if asked.plan is not None else [asked.question]
        system = asked.plan.plan.system_message if asked.plan is not None else "You are a helpful assistant."
        messages = [Message(role="system", text=system, ref="M1")]

        async def next_message(turn: int) -> str:
            return lines[turn - 1]

        return await converse(context, f"interrogation/{asked.id}", behavior, "clean", messages, next_message, len(lines))

    async def judge(dialogue: Audit) -> Verdict:
        return await judge_confession(context.judge, dialogue, behavior, attempts=context.attempts)

    return await graded(context, f"{stage}/{asked.id}", asked.unit, 0, talk, judge)


def kept_dialogue(context: CheckContext, key: str) -> list[dict[str, str]]:
    """A conversation of the journal as chat messages."""
    kept = context.journal.get(f"dialogue/{key}")
    assert kept is not None, key
    audit = Audit.model_validate(kept["audit"])
    return [{"role": message.role, "content": message.text} for message in audit.branches[0].messages]
