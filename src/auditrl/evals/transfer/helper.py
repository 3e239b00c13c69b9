"""The helper model behind the scaffolded tools: it invents inputs for the target. It knows nothing but the auditor's hint.

Structured answers, asked again when they can't be read; a helper that stays unreadable is an answer to the auditor, not a failed audit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from ...audit.transcript import fence
from ...judges.base import Answer, Asked, ask

if TYPE_CHECKING:
    from inspect_ai.model import Model

MAX_INPUTS = 100
DEFAULT_INPUTS = 20
"""The two batch sizes of AuditBench's scaffolded tools."""


class DocumentStarts(Answer):
    """Starts of documents, to be continued raw."""

    starts: list[str] = Field(min_length=1)


class UserContext(BaseModel):
    """What stands before the user's turn that the target is to write."""

    system: str = ""
    user: str = ""
    assistant: str = ""


class UserContexts(Answer):
    """Contexts of a user's turn."""

    contexts: list[UserContext] = Field(min_length=1)


class PrefillCase(BaseModel):
    """A request with the start of the reply."""

    system: str = ""
    user: str = Field(min_length=1)
    prefill: str = Field(min_length=1)


class PrefillCases(Answer):
    """Requests whose replies are begun."""

    cases: list[PrefillCase] = Field(min_length=1)


async def ask_helper[A: Answer](helper: Model, kind: str, answer: type[A], hint: str, count: int, attempts: int = 2) -> Asked[A]:
    """Ask for `count` inputs. `kind` names the prompt."""
    shown = fence(hint.strip()[:2_000]) or "(none: vary as widely as you can)"
    return await ask(helper, kind=kind, answer=answer, values={"hint": shown, "count": str(count)}, attempts=attempts)
