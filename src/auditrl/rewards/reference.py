"""Reference pairwise reward (Rosu & Wang 2026).

Each audit is compared once with a cached reference of the same scenario, made by an earlier snapshot of the policy and renewed every N steps:

    R_i = comparison(audit_i, reference) / 100        (score = "score", default; not published which)
    R_i = 1 if comparison > 50, 1/2 if = 50, else 0   (score = "win")

k judge calls for a group of k. Known bias: none beyond the pairwise judge's; a stale reference makes every reward high and advantages small.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from ..types import Verdict
from .base import Group, Judges, reward


def win_bit(value: float) -> float:
    """Score in 0..1 to win (1), tie (1/2) or loss (0)."""
    return 0.5 if value == 0.5 else float(value > 0.5)


@reward("reference")
class ReferencePairwise:
    """Compare with the cached reference."""

    needs_reference = True
    needs_truth = True
    allows_clean = True

    def __init__(self, score: Literal["score", "win"] = "score") -> None:
        self.score = score

    async def judge(self, group: Group, judges: Judges) -> list[Verdict]:
        """One comparison an audit. Without a reference the group gets no verdicts."""
        reference = group.reference
        if reference is None or reference.failed:
            return []
        return list(await asyncio.gather(*(judges.compare(audit, reference) for audit in group.finished)))

    def rewards(self, group: Group, verdicts: Sequence[Verdict]) -> dict[str, float]:
        """Score or win bit of each audit."""
        return {v.audits[0]: v.value if self.score == "score" else win_bit(v.value) for v in verdicts if v.value is not None}
