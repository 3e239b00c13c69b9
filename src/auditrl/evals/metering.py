"""What an evaluation costs: tokens and calls by role.

Auditor and target are counted in each audit. Judges are counted here, at the model's provider, because not every judge (Petri's) tells.
"""

from __future__ import annotations

import copy
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ..audit.context import current_audit, usage_counts
from ..audit.target import with_generate
from ..types import Audit, Verdict

if TYPE_CHECKING:
    from inspect_ai.model import Model

Usage = dict[str, int]
"""`{"input": tokens, "output": tokens, "calls": n}`."""
Cost = dict[str, Usage]
"""Usage by role."""

_METER: ContextVar[Usage | None] = ContextVar("auditrl_meter", default=None)


@contextmanager
def meter() -> Generator[Usage]:
    """Count what metered models use inside, also in tasks that are started there."""
    usage: Usage = {}
    token = _METER.set(usage)
    try:
        yield usage
    finally:
        _METER.reset(token)


def metered(model: Model) -> Model:
    """The same model, whose calls count once to the `meter` they are made in. The given model is left as it is."""
    from inspect_ai.model import Model

    if getattr(model.api.generate, "metered", False):
        return model
    api = copy.copy(model.api)
    inner: Any = model.api.generate

    async def generate(*args: Any, **kwargs: Any) -> Any:
        result = await inner(*args, **kwargs)
        output = result[0] if isinstance(result, tuple) else result
        usage = _METER.get()
        if usage is not None and getattr(output, "usage", None) is not None:
            add(usage, {**usage_counts(output.usage), "calls": 1})
        return result

    generate.metered = True  # type: ignore[attr-defined]
    object.__setattr__(api, "generate", generate)
    return Model(api, model.config, model.model_args)


def counted(model: Model, role: str) -> Model:
    """The same model, whose calls count to the audit that they are made in, under `role`. The given model is left as it is."""
    inner: Any = model.api.generate

    async def generate(*args: Any, **kwargs: Any) -> Any:
        result = await inner(*args, **kwargs)
        output = result[0] if isinstance(result, tuple) else result
        audit = current_audit()
        if audit is not None and getattr(output, "usage", None) is not None:
            audit.add_usage(role, output.usage)
        return result

    return with_generate(model, generate)


def add(total: Usage, more: Mapping[str, int]) -> None:
    """Add in place."""
    for key, value in more.items():
        total[key] = total.get(key, 0) + value


def cost_of(audits: Iterable[Audit], verdicts: Iterable[Verdict]) -> Cost:
    """Tokens of audits and of their verdicts by role."""
    total: Cost = {}
    for audit in audits:
        for role, usage in audit.usage.items():
            add(total.setdefault(role, {}), usage)
    for verdict in verdicts:
        add(total.setdefault("judge", {}), verdict.usage)
    return total


def sum_costs(costs: Iterable[Mapping[str, Mapping[str, int]]]) -> Cost:
    """Sum by role."""
    total: Cost = {}
    for cost in costs:
        for role, usage in cost.items():
            add(total.setdefault(role, {}), usage)
    return total


def cached_share(usage: Mapping[str, int]) -> float | None:
    """Share of the tokens read that providers' prompt caches served; None where no cache was at work."""
    if not (usage.get("cached") or usage.get("cache_write")):
        return None
    return usage.get("cached", 0) / usage["input"]


def cached_shares(roles: Mapping[str, Mapping[str, int]]) -> dict[str, float]:
    """Share of each role's input that prompt caches served, without the roles that no cache was at work for."""
    shares = {role: cached_share(counts) for role, counts in roles.items()}
    return {role: round(share, 4) for role, share in shares.items() if share is not None}


def read_text(usage: Mapping[str, int]) -> str:
    """`1,200 read`, or `1,200 read (43% from a cache)`."""
    share = cached_share(usage)
    return f"{usage.get('input', 0):,} read" + (f" ({share:.0%} from a cache)" if share is not None else "")


def cost_line(cost: Mapping[str, Mapping[str, int]]) -> str:
    """`auditor 1,200 read, 300 written, 14 calls; judge ...`."""
    return "; ".join(
        f"{role} {read_text(usage)}, {usage.get('output', 0):,} written, {usage.get('calls', 0):,} calls"
        for role, usage in sorted(cost.items())
        if usage
    )
