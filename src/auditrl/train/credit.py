"""From groups to training segments: verdicts, rewards, advantages."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from ..errors import MissingVerdictsError
from ..policy.segments import merge_turns
from ..rewards import Group, GroupReward, reward_group
from ..types import Segment
from .advantage import group_advantages
from .workshop import Workshop


async def judge(shop: Workshop, groups: Sequence[Group], step: int) -> list[GroupReward]:
    """Reward every group.

    Raises:
        MissingVerdictsError: More verdicts are missing than `reward.max_missing_share` allows.
    """
    judged = list(await asyncio.gather(*(reward_group(shop.design, group, shop.judges) for group in groups)))
    shop.judges.forget()
    verdicts = [verdict for group in judged for verdict in group.verdicts]
    missing = [verdict for verdict in verdicts if verdict.value is None]
    if verdicts and len(missing) > shop.config.reward.max_missing_share * len(verdicts):
        causes = Counter((verdict.missing or "unknown").split(":")[0] for verdict in missing)
        raise MissingVerdictsError(
            f"step {step + 1}: {len(missing)} of {len(verdicts)} verdicts are missing ({dict(causes)}), more than reward.max_missing_share allows; "
            f"first: {missing[0].missing}. Mend the judge, then `auditrl resume {shop.run.path}`"
        )
    return judged


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
