"""What the policy sampled, by audit: the only source of training tokens. Text is never encoded again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..types import Sampled

__all__ = ["TokenLedger", "Turn"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One call of the policy."""

    id: str
    """`<audit id>/<turn>`, also in the metadata of the model output."""
    prompt: tuple[int, ...]
    sampled: Sampled


@dataclass(slots=True)
class TokenLedger:
    """Turns of the audits that run, in the order they were sampled."""

    _turns: dict[str, list[Turn]] = field(default_factory=dict[str, list[Turn]])

    def record(self, audit_id: str, turn: int, prompt: Sequence[int], sampled: Sampled) -> str:
        """Keep one turn; returns its id."""
        entry = Turn(f"{audit_id}/{turn}", tuple(prompt), sampled)
        self._turns.setdefault(audit_id, []).append(entry)
        return entry.id

    def turns(self, audit_id: str) -> list[tuple[tuple[int, ...], Sampled]]:
        """(prompt, sample) of every turn so far, as `segments.merge_turns` takes them; empty for an unknown audit."""
        return [(turn.prompt, turn.sampled) for turn in self._turns.get(audit_id, [])]

    def pop(self, audit_id: str) -> list[tuple[tuple[int, ...], Sampled]]:
        """Like `turns`, and forget the audit."""
        turns = self.turns(audit_id)
        self._turns.pop(audit_id, None)
        return turns

    def clear(self) -> None:
        """Forget everything."""
        self._turns.clear()
