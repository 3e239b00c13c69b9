"""From judged groups to training segments."""

from __future__ import annotations

from collections.abc import Sequence

from ..policy.segments import merge_turns
from ..rewards import GroupReward
from ..types import Segment
from .advantage import group_advantages
from .workshop import Workshop


def assign_credit(shop: Workshop, judged: Sequence[GroupReward]) -> list[Segment]:
    """Segments of all audits that have an advantage. Tokens are those recorded at sampling."""
    segments: list[Segment] = []
    for group in judged:
        advantages = group_advantages(group.rewards, shop.config.train.advantage_eps)
        for audit in group.group.audits:
            turns = shop.ledger.pop(audit.id)
            if audit.id in advantages:
                segments += merge_turns(turns, audit_id=audit.id, group=group.group.scenario.id, advantage=advantages[audit.id])
    return segments
