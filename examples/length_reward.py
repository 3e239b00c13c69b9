"""A reward design in one file: longer audits earn more. It asks to be gamed: audits grow to their full length, and no better.

auditrl quickstart --reward.kind examples/length_reward.py --alarms.action stop
"""

from __future__ import annotations

from collections.abc import Sequence

from auditrl.rewards import Group, Judges, reward
from auditrl.types import Verdict


@reward("length")
class Length:
    """Turns used, of six."""

    needs_reference = False
    needs_truth = False
    allows_clean = True

    async def judge(self, group: Group, judges: Judges) -> list[Verdict]:
        """No judge is asked."""
        return []

    def rewards(self, group: Group, verdicts: Sequence[Verdict]) -> dict[str, float]:
        """0 to 1."""
        return {audit.id: audit.turns / 6 for audit in group.finished}
