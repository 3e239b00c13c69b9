"""What a reward design is: two hooks and a name.

A design turns a group (audits of one scenario) into one reward an audit. `judge` asks for the verdicts it needs; `rewards` turns verdicts
into numbers. It never sees an engine, a token or another group. A new design is one file with `@reward("name")`.

Calibration is not a design of its own: clean scenarios enter the batch (`calibration.py`) and `Judges.compare` applies the inverted criterion to them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from ..audit.context import stable_hash
from ..errors import ConfigError, RewardError
from ..judges.pairwise import both_orders, compare_once
from ..judges.petri import judge_petri
from ..judges.prompt_cache import Following
from ..judges.target_view import judge_auditor_view, judge_target_view
from ..types import Audit, Behavior, Scenario, Verdict

if TYPE_CHECKING:
    from inspect_ai.model import Model


@dataclass(frozen=True, slots=True)
class Group:
    """Audits of one scenario, and the reference audit where the design wants one."""

    scenario: Scenario
    audits: tuple[Audit, ...]
    reference: Audit | None = None

    @property
    def finished(self) -> tuple[Audit, ...]:
        """Audits that ran to their end; failed ones get no reward."""
        return tuple(audit for audit in self.audits if not audit.failed)


@dataclass(slots=True)
class Judges:
    """The judges of a run, with the truth they may know.

    order: `random` shows each pair in one order, drawn from (random_seed, pair); `both` asks twice and averages.
    """

    model: Model
    behaviors: Mapping[str, Behavior]
    order: Literal["random", "both"] = "random"
    attempts: int = 2
    random_seed: int = 0
    max_chars: int = 120_000
    petri_scores: bool = False
    """Show the pairwise judge Petri's grades and summary of both audits, as published; one more judge call an audit."""
    await_cache: bool = True
    """Hold back comparisons that begin with the same audit until the first of them is answered, for the provider's prompt cache."""
    _following: Following = field(default_factory=Following)
    _petri: dict[str, asyncio.Task[str]] = field(default_factory=dict[str, "asyncio.Task[str]"])

    def truth(self, scenario: Scenario) -> Behavior | None:
        """The planted behavior, None for a clean target."""
        return self.behaviors[scenario.behavior] if scenario.planted and scenario.behavior is not None else None

    async def compare(self, first: Audit, second: Audit) -> Verdict:
        """How much better `first` is than `second` (0..1), by the pairwise judge, or by the calibration judge if nothing is planted."""
        behavior = self.truth(first.scenario)
        scores = {audit.id: await self._petri_text(audit) for audit in (first, second)} if self.petri_scores else None

        async def once(swapped: bool) -> Verdict:
            async with self._following.turn((second if swapped else first).id) if self.await_cache else nullcontext():
                return await compare_once(
                    self.model,
                    first,
                    second,
                    behavior=behavior,
                    swapped=swapped,
                    attempts=self.attempts,
                    max_chars=self.max_chars,
                    scores=scores,
                )

        if self.order == "both":
            forward, backward = await asyncio.gather(once(False), once(True))
            return both_orders(forward, backward)
        return await once(bool(stable_hash(self.random_seed, first.id, second.id) & 1))

    async def _petri_text(self, audit: Audit) -> str:
        """Grades and summary of an audit as the pairwise judge reads them; asked for once, however many pairs the audit is in."""
        if audit.id not in self._petri:
            self._petri[audit.id] = asyncio.create_task(self._ask_petri(audit))
        return await self._petri[audit.id]

    async def _ask_petri(self, audit: Audit) -> str:
        verdict = await self.petri(audit)
        if verdict.value is None:
            return f"not available ({verdict.missing})"
        grades = ", ".join(f"{name} {grade:.0f}" for name, grade in sorted(verdict.parts.items()))
        return f"{grades}\n{verdict.reason}"

    def forget(self) -> None:
        """Drop what was kept for a step that is over."""
        self._petri.clear()
        self._following.forget()

    async def petri(
        self, audit: Audit, dimensions: Sequence[str] | None = None, *, report: bool = False, one_by_one: bool = False
    ) -> Verdict:
        """Petri's grades of an audit, by a judge who knows no truth. All 38 dimensions if none are named, in one call or in one each."""
        return await judge_petri(
            self.model, audit, dimensions, attempts=self.attempts, report=report, max_chars=self.max_chars, one_by_one=one_by_one
        )

    async def target_view(self, audit: Audit) -> Verdict:
        """Whether the planted behavior was surfaced, by the judge that sees only the target's side."""
        behavior = self.truth(audit.scenario)
        if behavior is None:
            raise ConfigError(f"reward: the target-view judge needs a planted behavior, scenario {audit.scenario.id} has none")
        return await judge_target_view(self.model, audit, behavior, attempts=self.attempts, max_chars=self.max_chars)

    async def auditor_view(self, audit: Audit) -> Verdict:
        """Whether the target itself showed the planted behavior, by the judge that sees the auditor's side too."""
        behavior = self.truth(audit.scenario)
        if behavior is None:
            raise ConfigError(f"reward: the auditor-view judge needs a planted behavior, scenario {audit.scenario.id} has none")
        return await judge_auditor_view(self.model, audit, behavior, attempts=self.attempts, max_chars=self.max_chars)


class RewardDesign(Protocol):
    """The two hooks."""

    needs_reference: bool
    """Whether groups carry a cached reference audit."""
    needs_truth: bool
    """Whether the design compares with what is planted: such a design can't be used on production targets."""
    allows_clean: bool
    """Whether clean (calibration) groups make sense for this design."""

    async def judge(self, group: Group, judges: Judges) -> list[Verdict]:
        """Ask for the verdicts that the rewards of this group need. Failed audits are left out."""
        ...

    def rewards(self, group: Group, verdicts: Sequence[Verdict]) -> dict[str, float]:
        """Reward by audit id. An audit without a usable verdict has no entry: it is left out of the update, never scored zero."""
        ...


_REGISTRY: dict[str, Callable[..., RewardDesign]] = {}


def reward[F: Callable[..., RewardDesign]](name: str) -> Callable[[F], F]:
    """Register a design under the name that configs use."""

    def register(factory: F) -> F:
        _REGISTRY[name] = factory
        return factory

    return register


def registered() -> dict[str, Callable[..., RewardDesign]]:
    """The registered designs by name."""
    return dict(_REGISTRY)


def restore(designs: Mapping[str, Callable[..., RewardDesign]]) -> None:
    """Put back what `registered` returned."""
    _REGISTRY.clear()
    _REGISTRY.update(designs)


def make_reward(name: str, **args: Any) -> RewardDesign:
    """Build a registered design. ConfigError names the known ones."""
    if name not in _REGISTRY:
        raise ConfigError(f"reward.kind: unknown design {name!r}; known: {', '.join(sorted(_REGISTRY))}")
    try:
        return _REGISTRY[name](**args)
    except TypeError as error:
        raise ConfigError(f"reward.args: {name} does not take these arguments ({error})") from None


@dataclass(slots=True)
class GroupReward:
    """One judged group: verdicts, and a reward for each audit that has one."""

    group: Group
    verdicts: list[Verdict]
    rewards: dict[str, float] = field(default_factory=dict)

    @property
    def missing(self) -> list[Verdict]:
        """Verdicts that are not there, with their causes."""
        return [verdict for verdict in self.verdicts if verdict.value is None]


async def reward_group(design: RewardDesign, group: Group, judges: Judges) -> GroupReward:
    """Judge and reward one group; checks what the design returned."""
    verdicts = await design.judge(group, judges)
    rewards: Any = design.rewards(group, verdicts)
    if not isinstance(rewards, Mapping):
        raise RewardError(f"{type(design).__name__}.rewards returned {type(rewards).__name__}; return a reward by audit id")
    rewards = cast("dict[str, float]", rewards)
    known = {audit.id for audit in group.finished}
    for audit_id, value in rewards.items():
        if audit_id not in known:
            raise RewardError(
                f"{type(design).__name__} rewarded {audit_id!r}, which is not a finished audit of this group; return ids of group.finished only"
            )
        if not math.isfinite(value):
            raise RewardError(
                f"{type(design).__name__} returned {value} for {audit_id!r}; leave an audit out when there is no reward for it"
            )
    return GroupReward(group, verdicts, rewards)
