"""The audits of a step, and optionally those of the next step beside this step's update (`train.off_policy_steps = 1`).

Off-policy by one step: such audits are made by the policy before the last update, and the ratio of the two policies stands in the loss, where
it is clipped. A step after a checkpoint (or a renewal of the references) is always on-policy: a run that is resumed there knows no older policy.
Whether a step is off-policy depends on its number alone, so that a resumed run repeats it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from ..rewards import GroupReward
from .batch import draw_batch
from .budget import REFERENCES, TRAINING, Spent, kept
from .clock import Clock
from .monitor import look_at_start, probe_due
from .rollout import roll_out
from .saving import checkpoint_due
from .workshop import BEHIND, CURRENT, Workshop


@dataclass(frozen=True, slots=True)
class Audited:
    """One step before its update: judged groups, and what they took."""

    judged: list[GroupReward]
    spent: Spent


async def audit_step(shop: Workshop, step: int, clock: Clock) -> Audited:
    """Draw the scenarios of a step (0-based), audit them, judge the audits."""
    spent = Spent(shop.tariff)
    if step == 0 and shop.config.alarm_every:
        with kept(shop.run, spent):
            await look_at_start(shop)
        clock.lap("look_at_start")
    scenarios = draw_batch(shop.config, shop.seeds, step)
    with spent.part(TRAINING):
        judged = await roll_out(shop, scenarios, step, clock, policy=BEHIND if behind(shop, step) else CURRENT)
    spent.add_audits(REFERENCES, shop.references.made_at(step))
    return Audited(judged, spent)


def behind(shop: Workshop, step: int) -> bool:
    """Whether the audits of a step (0-based) are made by the policy before the last update."""
    return shop.config.train.off_policy_steps == 1 and step > 0 and not checkpoint_due(shop, step)


async def keep_behind(shop: Workshop, step: int) -> None:
    """Before the update that precedes `step`: keep the policy that will audit it, if that is the one of now."""
    if behind(shop, step):
        shop.engine.release(BEHIND.name)
        await shop.engine.publish(BEHIND.name)


class NextStep:
    """Whatever runs ahead. Leaving it cancels that: an interrupted or stopped run leaves nothing running."""

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop
        self._ahead: asyncio.Task[Audited] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._ahead is not None:
            self._ahead.cancel()
            await asyncio.gather(self._ahead, return_exceptions=True)

    async def prepare(self, step: int) -> None:
        """Called before the update that precedes `step`. Audits run one step at a time, and a probe is made of audits: they then wait for it."""
        await keep_behind(self._shop, step)
        if behind(self._shop, step) and not probe_due(self._shop.config, step):
            self._ahead = asyncio.create_task(audit_step(self._shop, step, Clock()))

    async def take(self, step: int, clock: Clock) -> Audited:
        """The audits of a step. Where they ran ahead, the clock counts what was left to wait for."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return await audit_step(self._shop, step, clock)
        audited = await ahead
        clock.lap("audits")
        return audited
