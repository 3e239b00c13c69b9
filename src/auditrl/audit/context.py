"""Which audit the running code belongs to.

Policies, simulated models and counters need to know it without it passing through prompts or logs. Task groups copy context variables,
so everything that an audit starts sees its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


def stable_hash(*parts: object) -> int:
    """63-bit hash of the parts' text: the same in every process, unlike `hash()`."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") >> 1


@dataclass(slots=True)
class AuditContext:
    """The audit that is running in this task.

    `seed` is the audit's own random seed; noise is keyed by (seed, turn), never drawn in arrival order, so that the same run gives
    the same audits under any concurrency.
    """

    id: str
    seed: int
    turn: int = 0
    target_errors: list[str] = field(default_factory=list)
    """Failures of the target's provider, as the auditor was told of them."""
    usage: dict[str, dict[str, int]] = field(default_factory=dict)

    def next_turn(self) -> int:
        """Count one policy call; returns its index from 0."""
        self.turn += 1
        return self.turn - 1

    def add_usage(self, role: str, input_tokens: int, output_tokens: int) -> None:
        """Add tokens to the role's count."""
        row = self.usage.setdefault(role, {"input": 0, "output": 0, "calls": 0})
        row["input"] += input_tokens
        row["output"] += output_tokens
        row["calls"] += 1


_CURRENT: ContextVar[AuditContext | None] = ContextVar("auditrl_audit", default=None)


def current_audit() -> AuditContext | None:
    """The audit that the calling task belongs to, None outside of one."""
    return _CURRENT.get()


@contextmanager
def audit_context(audit_id: str, seed: int) -> Generator[AuditContext]:
    """Make an audit the current one for everything started inside."""
    context = AuditContext(id=audit_id, seed=seed)
    token = _CURRENT.set(context)
    try:
        yield context
    finally:
        _CURRENT.reset(token)
