"""Which audit the running code belongs to.

Policies, simulated models and counters need to know it without it passing through prompts or logs. Task groups copy context variables,
so everything that an audit starts sees its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inspect_ai.model import ModelUsage


def stable_hash(*parts: object) -> int:
    """63-bit hash of the parts' text: the same in every process, unlike `hash()`."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") >> 1


def usage_counts(usage: ModelUsage) -> dict[str, int]:
    """Tokens of one call: `input` is everything that was read, `cached` and `cache_write` are the parts of it that the provider served
    from its cache or wrote to it (left out where they are 0), `output` everything that was written."""
    cached, written = usage.input_tokens_cache_read or 0, usage.input_tokens_cache_write or 0
    # providers with a cache report the rest alone
    counts = {"input": usage.input_tokens + cached + written, "output": usage.output_tokens}
    return {**counts, **{key: value for key, value in (("cached", cached), ("cache_write", written)) if value}}


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
    target: str = ""
    """Key of the target model."""

    def next_turn(self) -> int:
        """Count one policy call; returns its index from 0."""
        self.turn += 1
        return self.turn - 1

    def add_usage(self, role: str, usage: ModelUsage) -> None:
        """Add one call to the role's count."""
        row = self.usage.setdefault(role, {"input": 0, "output": 0, "calls": 0})
        for key, value in {**usage_counts(usage), "calls": 1}.items():
            row[key] = row.get(key, 0) + value


_CURRENT: ContextVar[AuditContext | None] = ContextVar("auditrl_audit", default=None)


def current_audit() -> AuditContext | None:
    """The audit that the calling task belongs to, None outside of one."""
    return _CURRENT.get()


_ACCOUNT: ContextVar[Callable[[AuditContext], None] | None] = ContextVar("auditrl_account", default=None)


@contextmanager
def accounting(over: Callable[[AuditContext], None]) -> Generator[None]:
    """Call `over` with every audit that ends inside, however it ends: its usage is what was paid for."""
    token = _ACCOUNT.set(over)
    try:
        yield
    finally:
        _ACCOUNT.reset(token)


@contextmanager
def audit_context(audit_id: str, seed: int, *, target: str = "") -> Generator[AuditContext]:
    """Make an audit the current one for everything started inside."""
    context = AuditContext(id=audit_id, seed=seed, target=target)
    token = _CURRENT.set(context)
    try:
        yield context
    finally:
        _CURRENT.reset(token)
        account = _ACCOUNT.get()
        if account is not None:
            account(context)
