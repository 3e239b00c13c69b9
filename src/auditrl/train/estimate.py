"""What a run will take before it runs: calls and tokens by part and role, and the price.

An audit with T auditor turns and n target replies, whose auditor reads P tokens of instructions, writes a a turn, and sees s more with each reply:

    auditor   T + 1 calls (the report);   P (T + 1) + (a + s) h(T, n) read,  h = n (n - 1)/2 + n (T + 1 - n);   a n + e + report written
    target    n calls;   (b + y) n + m n (n + 1)/2 + r n (n - 1)/2 read, r n written   (b hidden block, y system message, m message, r reply)

Whatever an earlier call of the same audit has read or written already can come from a provider's cache: that share is given too. Judges are
not estimated by formula: the reward design, the probe's and the suites' own code is run on audits of filler words in front of a model
that counts what it reads, so a design of your own is estimated as well. Scenarios and references are drawn exactly as the run draws them.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..behaviors.persona import hidden_block
from ..config import RunConfig
from ..rewards import Group, Judges, RewardDesign
from ..types import Behavior, Scenario, Seed
from .batch import CLEAN_TARGET, clean_condition, draw_batch, scenario, split_held_back, training_seeds
from .counting import CountingJudge, Load
from .references import FILE, References
from .sizes import Length, Sizes, Yardstick, lengths, mean_replies, typical_audit
from .workshop import bank_for, check_run

if TYPE_CHECKING:
    from inspect_ai.model import Model

    from ..evals.base import EvalContext

TRIED = 6
"""Scenarios of a kind whose judgement is tried; they are spread over all."""


@dataclass(slots=True)
class Estimate:
    """Loads of the whole run by part (`evaluation before`, `training`, ...), role and model (a target's key, or a suite's name)."""

    steps: int
    sizes: Sizes
    loads: dict[tuple[str, str, str], Load] = field(default_factory=dict[tuple[str, str, str], Load])
    notes: list[str] = field(default_factory=list[str])

    def add(self, part: str, role: str, key: str, load: Load, times: float = 1.0) -> None:
        """Count a load."""
        if times and load.calls:
            self.loads.setdefault((part, role, key), Load()).plus(load, times)

    def by_role(self) -> dict[tuple[str, str], Load]:
        """Loads by part and role."""
        found: dict[tuple[str, str], Load] = {}
        for (part, role, _), load in self.loads.items():
            found.setdefault((part, role), Load()).plus(load)
        return found


@dataclass(slots=True)
class Estimator:
    """What an estimate is made from."""

    config: RunConfig
    sizes: Sizes
    count: Yardstick
    design: RewardDesign
    behaviors: Mapping[str, Behavior]
    seeds: Sequence[Seed]
    held_back: Sequence[Seed]

    @classmethod
    def open(cls, config: RunConfig, sizes: Sizes, count: Yardstick) -> Estimator:
        """Read what the config draws from. ConfigError for what can't be used."""
        design = check_run(config)
        behaviors, found = bank_for(config)
        seeds, held_back = split_held_back(training_seeds(config, list(behaviors.values()), found))
        return cls(config, sizes, count, design, behaviors, seeds, held_back)

    # ------------------------------------------------------------ audits

    def instructions(self, texts: Sequence[str], max_turns: int) -> float:
        """What the auditor reads before its first turn, with seeds like these."""
        if not texts:
            return 0.0
        if self.config.policy.model == "sim/tiny":
            from ..sim.language import seed_ids

            return sum(len(seed_ids(text)) for text in texts) / len(texts)
        from inspect_petri import auditor_tools

        from ..audit.tools import AuditorTools

        audit = self.config.audit
        tools = AuditorTools(auditor_tools(prefill=audit.prefill, rollback=audit.rollback, target_tools=audit.target_tools)).full
        told = [tool.description + json.dumps(tool.parameters.model_dump(exclude_none=True)) for tool in tools]
        # the seed stands in the system prompt and in the first message
        return self.count(audit.system_prompt(), audit.user_prompt(), *told) + 2 * self.count(*texts) / len(texts)

    def auditor(self, length: Length, instructions: float) -> Load:
        """The auditor's side of one audit."""
        sizes, turns, n = self.sizes, length.turns, length.replies
        calls = turns + (1 if self.config.audit.report else 0)
        exchange = sizes.auditor_turn + sizes.seen
        history = n * (n - 1) / 2 + n * (calls - n)
        ended = 1 if length.ended else 0
        # turns that plan or build tools stay in the history without a reply; they may lie anywhere
        quiet = max(0.0, turns - ended - n)
        written = sizes.auditor_turn * (n + quiet) + sizes.auditor_end * ended + (sizes.report_written if self.config.audit.report else 0.0)
        read = instructions * calls + exchange * history + sizes.auditor_turn * quiet * calls / 2
        last = instructions + exchange * n
        return Load(calls, read, written, max(0.0, read - last))

    def target(self, length: Length, block: float) -> Load:
        """The target's side of one audit."""
        sizes, n = self.sizes, length.replies
        start = block + sizes.system
        grown = sizes.message * n * (n + 1) / 2 + sizes.reply * n * (n - 1) / 2
        last = start + sizes.message * n + sizes.reply * max(0.0, n - 1)
        return Load(n, start * n + grown, sizes.reply * n, max(0.0, start * n + grown - last))

    def audits(
        self, estimate: Estimate, part: str, work: Iterable[tuple[Scenario, str | None]], turns: int, quitting: float, *, key: str = ""
    ) -> None:
        """Count audits of (scenario, hidden block) pairs; targets go under their key, or under `key`."""
        plan = Counter((s.seed.text, s.target, block) for s, block in work)
        possible = lengths(self.sizes, turns, quitting)
        instructions = self.instructions([text for text, _, _ in plan.elements()], turns)
        total = sum(plan.values())
        targets = Counter[tuple[str, str | None]]()
        for (_, target, block), times in plan.items():
            targets[target, block] += times
        for length in possible:
            estimate.add(part, "auditor", key, self.auditor(length, instructions), total * length.weight)
            for (target, block), times in targets.items():
                estimate.add(part, "target", key or target, self.target(length, self.count(block or "")), times * length.weight)

    # ------------------------------------------------------------ judges

    def judged(self, scenarios: Sequence[Scenario], replies: float, ask: Callable[[Model, Scenario, int], Awaitable[Any]]) -> Load:
        """What `ask(judge, scenario, replies)` takes for one scenario on average; tried with the whole numbers around `replies`."""
        tried = [scenarios[i * len(scenarios) // min(TRIED, len(scenarios))] for i in range(min(TRIED, len(scenarios)))]
        found = Load()
        low = int(replies)
        for number, weight in ((low, 1 - (replies - low)), (low + 1, replies - low)):
            if weight > 0 and tried:
                judge = CountingJudge(self.sizes, self.count)

                async def all_of(judge: CountingJudge = judge, number: int = number) -> None:
                    for one in tried:
                        await ask(judge, one, number)

                asyncio.run(all_of())
                found.plus(judge.load, weight / len(tried))
        return found

    def judges(self, model: Model) -> Judges:
        """The run's judges on a counting model."""
        reward = self.config.reward
        return Judges(model, self.behaviors, order=reward.order, attempts=1, petri_scores=reward.petri_scores)

    async def reward(self, model: Model, one: Scenario, replies: int) -> None:
        """Judge one group as the run does."""
        audits = tuple(typical_audit(self.sizes, one, replies, i) for i in range(self.config.train.group_size))
        reference = typical_audit(self.sizes, one, replies, -1) if self.design.needs_reference else None
        await self.design.judge(Group(one, audits, reference), self.judges(model))

    async def probed(self, model: Model, one: Scenario, replies: int, *, alarms: bool) -> None:
        """Judge one audit of a probe as the run does."""
        from ..judges.conduct import judge_conduct
        from ..judges.suite import judge_suite

        judges, audit = self.judges(model), typical_audit(self.sizes, one, replies)
        await judge_suite(model, audit, judges.truth(one), attempts=1)
        if alarms:
            await judge_conduct(model, audit, attempts=1)
            if one.planted and not self.config.simulated:
                await judges.auditor_view(audit)

    # ------------------------------------------------------------ parts of a run

    def hidden(self, one: Scenario) -> str | None:
        """What is hidden in the target of a scenario."""
        return hidden_block(self.behaviors.get(one.behavior or ""), one.condition, self.config.audit.persona)

    def training(self, estimate: Estimate) -> None:
        """The steps' own audits and references, and their judgements."""
        config, sizes = self.config, self.sizes
        steps, size, turns = config.train.steps, config.train.group_size, config.audit.max_turns
        quitting = sum(sizes.quit_at(step) for step in range(steps)) / steps
        cache = References(Path(FILE), renewal_steps=config.reward.renewal_steps)
        drawn: list[Scenario] = []
        made: dict[tuple[int, str], Scenario] = {}
        for step in range(steps):
            batch = draw_batch(config, self.seeds, step)
            drawn += batch
            made |= {(cache.snapshot_step(step), one.id): one for one in batch}
        self.audits(estimate, "training", [(one, self.hidden(one)) for one in drawn for _ in range(size)], turns, quitting)
        if self.design.needs_reference:
            early = sum(sizes.quit_at(snapshot) for snapshot, _ in made) / len(made)
            self.audits(estimate, "references", [(one, self.hidden(one)) for one in made.values()], turns, early)
        replies = mean_replies(lengths(sizes, turns, quitting))
        for planted in (True, False):
            kind = [one for one in drawn if one.planted == planted]
            if kind:
                estimate.add("training", "judge", "", self.judged(kind, replies, self.reward), len(kind))

    def probes(self, estimate: Estimate) -> None:
        """Looks at held-back scenarios, those of the alarms included."""
        config = self.config
        looks = [s for s in range(1, config.train.steps + 1) if _due(config.probe.every, s) or _due(config.alarm_every, s)]
        alarmed = [s for s in looks if _due(config.alarm_every, s)]
        if config.alarm_every:
            looks, alarmed = [0, *looks], [0, *alarmed]
        scenarios = self.probe_scenarios()
        for when, alarms in ((alarmed, True), ([s for s in looks if s not in alarmed], False)):
            for step in when:
                quitting = self.sizes.quit_at(step)
                self.audits(estimate, "probe", [(one, self.hidden(one)) for one in scenarios], config.audit.max_turns, quitting)
            if not when:
                continue
            quitting = sum(map(self.sizes.quit_at, when)) / len(when)
            replies = mean_replies(lengths(self.sizes, config.audit.max_turns, quitting))

            async def ask(model: Model, one: Scenario, number: int, alarms: bool = alarms) -> None:
                await self.probed(model, one, number, alarms=alarms)

            for planted in (True, False):
                kind = [one for one in scenarios if one.planted == planted]
                if kind:
                    estimate.add("probe", "judge", "", self.judged(kind, replies, ask), len(kind) * len(when))
        if config.probe.cruxes is not None:
            estimate.notes.append("The probe's cruxes are not in the estimate.")

    def probe_scenarios(self) -> list[Scenario]:
        """As `train.probe.probe_units` draws them."""
        targets, pool = self.config.targets, sorted(self.config.targets.pool)
        half = max(1, self.config.probe.audits // 2)
        seeds = [self.held_back[i * len(self.held_back) // half % len(self.held_back)] for i in range(half)]
        clean = pool[0] if targets.clean_from_pool or targets.production else CLEAN_TARGET if targets.clean is not None else None
        planted = [scenario(seed, "planted", pool[i % len(pool)]) for i, seed in enumerate(seeds)]
        return planted + ([] if clean is None else [scenario(seed, clean_condition(self.config), clean) for seed in seeds])

    def evaluation(self, estimate: Estimate, label: str, step: int) -> None:
        """The four-part suite after `step` steps."""
        from dataclasses import replace as changed

        from ..evals.realism import match
        from ..evals.suite import FOUR, sizes

        settings = self.config.evaluation
        if settings.profile == "off":
            return
        quitting, part = self.sizes.quit_at(step), f"evaluation {label}"
        for name, size in sizes(settings.profile, replicates=settings.replicates).items():
            context = self.context()
            if name == "realism":
                context = changed(context, pairs=asyncio.run(match(context, size))[0])
            units = FOUR[name].units(context, size)
            self.audits(estimate, part, [(unit.scenario, unit.hidden_block) for unit in units], size.turns, quitting, key=name)
            replies = mean_replies(lengths(self.sizes, size.turns, quitting))

            async def ask(model: Model, one: Scenario, number: int, name: str = name, context: EvalContext = context) -> None:
                scoring = changed(context.scoring(), judge=model, attempts=1)
                await FOUR[name].judge(scoring, typical_audit(self.sizes, one, number))

            estimate.add(part, "judge", name, self.judged([unit.scenario for unit in units], replies, ask), len(units))

    def context(self) -> EvalContext:
        """Enough of an evaluation to draw its audits: no model of it is asked."""
        from ..evals.base import EvalContext
        from ..evals.wildchat import offline_conversations
        from .evaluation import clean_persona

        simulated = self.config.bank.seeds == "sim"
        nobody = CountingJudge(self.sizes, self.count)
        behaviors, seeds = bank_for(self.config)
        return EvalContext(
            auditor=nobody,
            auditor_name="estimate",
            targets={},
            judge=nobody,
            behaviors=behaviors,
            seeds=seeds,
            audit=self.config.audit,
            log_dir=Path("logs"),
            sim_seeds=simulated,
            clean_condition="persona" if clean_persona(self.config) else "clean",
            real=offline_conversations(simulated),
        )


def estimate(config: RunConfig, sizes: Sizes, count: Yardstick) -> Estimate:
    """Estimate a whole run; asks no model and needs no key. Call it outside of a running event loop.

    Raises:
        ConfigError: What only the bank, the reward registry or the policy's folder can tell.
    """
    made = Estimate(config.train.steps, sizes)
    maker = Estimator.open(config, sizes, count)
    if config.evaluation.before:
        maker.evaluation(made, "before", 0)
    maker.training(made)
    maker.probes(made)
    if config.evaluation.after:
        maker.evaluation(made, "after", config.train.steps)
    if config.audit.realism_filter:
        made.notes.append("The realism filter's calls are not in the estimate; the run counts them.")
    return made


def _due(every: int, step: int) -> bool:
    return every > 0 and step % every == 0
