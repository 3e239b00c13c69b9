"""Judging beside auditing: a group is judged as soon as its last audit is over, while other groups are still being audited.

What comes out does not depend on when a group was complete: a judgement reads its own group only.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextvars import copy_context

from ..errors import MissingVerdictsError
from ..rewards import Group, GroupReward, reward_group
from ..types import Audit, Scenario, Verdict
from .workshop import Workshop


class Judging:
    """The judgements of one step.

    Made before the audits start, outside of any of them: judgements run in the context of that moment, so that no token of a judge
    counts to the audit that completed a group, and no word of one enters its log.

    Args:
        groups: Ids of each scenario's audits, in the order of the batch.
        references: Id of the reference audit that is being made for a scenario, by scenario id.
    """

    def __init__(self, shop: Workshop, step: int, groups: Sequence[tuple[Scenario, Sequence[str]]], references: Mapping[str, str]) -> None:
        self._shop = shop
        self._step = step
        self._groups = groups
        self._references = references
        self._context = copy_context()
        self._audits: dict[str, Audit] = {}
        self._tasks: dict[int, asyncio.Task[GroupReward]] = {}
        self._waiting: list[set[str]] = []
        """Audits that each group still waits for."""
        self._places: dict[str, list[int]] = {}
        """Groups that an audit belongs to: one, or for a reference all of its scenario."""
        for index, (scenario, ids) in enumerate(groups):
            wanted = {*ids, references[scenario.id]} if scenario.id in references else {*ids}
            self._waiting.append(wanted)
            for audit_id in wanted:
                self._places.setdefault(audit_id, []).append(index)

    def over(self, audit: Audit) -> None:
        """An audit has ended, failed ones included; whatever group it completes is judged now."""
        self._audits[audit.id] = audit
        for index in self._places.get(audit.id, ()):
            self._waiting[index].discard(audit.id)
            if index not in self._tasks and not self._waiting[index]:
                scenario, ids = self._groups[index]
                group = Group(scenario, tuple(self._audits[id] for id in ids), self._reference(scenario))
                judgement = reward_group(self._shop.design, group, self._shop.judges)
                self._tasks[index] = asyncio.get_running_loop().create_task(judgement, context=self._context.copy())

    async def finished(self) -> list[GroupReward]:
        """Every group with its rewards, in the order of the batch, once all audits are over.

        Raises:
            MissingVerdictsError: More verdicts are missing than `reward.max_missing_share` allows.
        """
        judged = list(await asyncio.gather(*(self._tasks[index] for index in range(len(self._groups)))))
        self._shop.judges.forget()
        _check_missing(self._shop, self._step, [verdict for group in judged for verdict in group.verdicts])
        return judged

    async def close(self) -> None:
        """Give up what is still being judged, after a failure or an interruption."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _reference(self, scenario: Scenario) -> Audit | None:
        if not self._shop.design.needs_reference:
            return None
        made = self._audits.get(self._references.get(scenario.id, ""))
        if made is not None:
            return None if made.failed else made
        return self._shop.references.get(scenario, self._step)


def _check_missing(shop: Workshop, step: int, verdicts: Sequence[Verdict]) -> None:
    missing = [verdict for verdict in verdicts if verdict.value is None]
    if verdicts and len(missing) > shop.config.reward.max_missing_share * len(verdicts):
        causes = Counter((verdict.missing or "unknown").split(":")[0] for verdict in missing)
        raise MissingVerdictsError(
            f"step {step + 1}: {len(missing)} of {len(verdicts)} verdicts are missing ({dict(causes)}), more than reward.max_missing_share allows; "
            f"first: {missing[0].missing}. Mend the judge, then `auditrl resume {shop.run.path}`"
        )
