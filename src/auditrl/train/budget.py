"""What a run has spent, and the caps on it.

Auditor and target are counted in each audit, judges and the realism model at their provider; what is spent stands in the metrics row of its
step, so that a resumed run counts on from the rows. Dollars are counted with the price of the very target that was asked. The
tokens of a policy that samples in process are free, unless the prices name `policy`; simulated models are free in dollars, but their tokens
count. What a killed step had spent before the kill is the only spending that no row knows of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..audit.context import AuditContext, accounting
from ..config import ModelConfig, RunConfig
from ..costs import NOTHING, POLICY, Price, Prices, dollars, load_prices
from ..errors import BudgetStop, ConfigError, RunError
from ..evals.metering import Cost, Usage, add, cached_shares, meter
from ..evals.scores import SUITES, Scorecard
from ..faults import by_role, tally
from ..runs import Run
from ..types import Audit
from .batch import CLEAN_TARGET

TRAINING, REFERENCES, PROBE = "training", "references", "probe"
START = "spent"
"""Record of step 0: what the look before the first step took."""
REFERENCE_BATCH = "reference-"
"""How the ids of reference audits begin; they are counted from the cache, which outlives a killed step."""
_SUITE_TARGETS = {
    "audit_quality": "target",
    "fp_calibration": "clean_target",
    "production": "production_target",
    "realism": "production_target",
}


@dataclass(frozen=True)
class Tariff:
    """The prices of one run's models by role; None is a price that nobody knows."""

    config: RunConfig
    prices: Prices

    @classmethod
    def load(cls, config: RunConfig) -> Tariff:
        """With the prices that the config names. ConfigError if they can't be read."""
        return cls(config, load_prices(config.budget.prices))

    @cached_property
    def policy(self) -> Price | None:
        """Nothing, unless the prices name it: it is not paid for in process or at a server of one's own. At the hosted service it is."""
        return self.prices.of(POLICY) or (None if self.config.policy.hosted else NOTHING)

    @cached_property
    def targets(self) -> dict[str, Price | None]:
        """By the key that scenarios name."""
        clean = {} if self.config.targets.clean is None else {CLEAN_TARGET: self.config.targets.clean}
        return {key: self.prices.of(entry.model) for key, entry in {**self.config.targets.pool, **clean}.items()}

    def of(self, role: str, target: str = "") -> Price | None:
        """The price of a role in training; `target` tells the target models apart."""
        match role:
            case "auditor":
                return self.policy
            case "target":
                return self.targets.get(target) if target in self.targets else self._pool
            case _:
                entry = self.config.realism if role == "realism" else self.config.judge
                return None if entry is None else self.prices.of(entry.model)

    def of_suite(self, suite: str, role: str) -> Price | None:
        """The price of a role in a suite of the evaluation."""
        if role == "auditor":
            return self.policy
        entry = self.entry_of_suite(suite, role)
        return None if entry is None else self.prices.of(entry.model)

    def entry_of_suite(self, suite: str, role: str) -> ModelConfig | None:
        """The model of a role (`target` or `judge`) in a suite of the evaluation."""
        settings = self.config.evaluation
        found: ModelConfig | None = getattr(settings, _SUITE_TARGETS[suite]) if role == "target" else settings.judge or self.config.judge
        return found

    @cached_property
    def _pool(self) -> Price | None:
        return self.prices.of_all(self.config.targets.pool.values())

    def counts(self, role: str) -> bool:
        """Whether the tokens of a role count against `max_tokens`."""
        return role != "auditor" or self.policy is not NOTHING

    def unknown(self) -> list[str]:
        """Paid models without a price, each once."""
        settings = self.config.evaluation
        entries = [*self.config.targets.pool.values(), self.config.targets.clean, self.config.judge, self.config.realism]
        if settings.profile != "off":
            entries += [settings.target, settings.clean_target, settings.production_target, settings.judge]
        names = dict.fromkeys(entry.model for entry in entries if entry is not None)
        return [*([POLICY] if self.policy is None else []), *(name for name in names if self.prices.of(name) is None)]


@dataclass(slots=True)
class Spent:
    """What one step took: tokens by part (`training`, `references`, `probe`), role and target."""

    tariff: Tariff
    counts: dict[tuple[str, str, str], Usage] = field(default_factory=dict[tuple[str, str, str], Usage])
    faults: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """Faults of the servers by role and kind, of all parts."""

    def add(self, part: str, role: str, usage: Mapping[str, int], target: str = "") -> None:
        """Count the tokens of a role; `target` tells the target models apart."""
        if usage:
            add(self.counts.setdefault((part, role, target if role == "target" else ""), {}), usage)

    def add_audits(self, part: str, audits: Iterable[Audit]) -> None:
        """Count saved audits."""
        for audit in audits:
            for role, usage in audit.usage.items():
                self.add(part, role, usage, audit.scenario.target)

    @contextmanager
    def part(self, name: str) -> Generator[None]:
        """Count every audit that ends inside, and every judgement that is asked for."""

        def over(audit: AuditContext) -> None:
            if not audit.id.startswith(REFERENCE_BATCH):
                for role, usage in audit.usage.items():
                    self.add(name, role, usage, audit.target)

        with accounting(over), meter() as judged, tally() as faults:
            yield
        self.add(name, "judge", judged)
        self.faults += faults

    @property
    def parts(self) -> dict[str, Cost]:
        """Tokens by part and role."""
        found: dict[str, Cost] = {}
        for (part, role, _), usage in sorted(self.counts.items()):
            add(found.setdefault(part, {}).setdefault(role, {}), usage)
        return found

    @property
    def usd(self) -> dict[str, float]:
        """Dollars by part, of everything that has a price. Counted from whole tokens, so that no order of arrival changes a digit."""
        found = dict.fromkeys(sorted({part for part, _, _ in self.counts}), 0.0)
        for (part, role, target), usage in sorted(self.counts.items()):
            price = self.tariff.of(role, target)
            found[part] += price.of(usage) if price is not None else 0.0
        return found

    def row(self, before: Total) -> dict[str, Any]:
        """For the metrics: `usage` of training, `spent` on the rest, `cost` of the step and of the run so far, `faults` of the servers.

        `cached_share` is the share of what a role read in training that a prompt cache served; roles without one are left out.
        `cost.unpriced` names the roles whose dollars are not in it, because nobody knows their price.
        """
        parts, usd = self.parts, self.usd
        total = before.plus(self.tariff, parts, sum(usd.values()))
        unpriced = sorted({role for _, role, target in self.counts if self.tariff.of(role, target) is None})
        cost = {"usd": {k: round(v, 8) for k, v in usd.items()}, "total_usd": round(total.usd, 8), "total_tokens": total.tokens}
        return {
            "usage": parts.get(TRAINING, {}),
            "cached_share": cached_shares(parts.get(TRAINING, {})),
            "spent": {part: usage for part, usage in parts.items() if part != TRAINING},
            "cost": {**cost, **({"unpriced": unpriced} if unpriced else {})},
            "faults": by_role(self.faults),
        }


@dataclass(frozen=True, slots=True)
class Total:
    """Dollars and paid tokens so far."""

    usd: float = 0.0
    tokens: int = 0

    def plus(self, tariff: Tariff, parts: Mapping[str, Mapping[str, Mapping[str, int]]], usd: float) -> Total:
        """With what a step took."""
        return Total(self.usd + usd, self.tokens + paid_tokens(tariff, parts))


def paid_tokens(tariff: Tariff, parts: Mapping[str, Mapping[str, Mapping[str, int]]]) -> int:
    """Tokens read and written by the roles that are paid for."""
    return sum(
        usage.get("input", 0) + usage.get("output", 0) for roles in parts.values() for role, usage in roles.items() if tariff.counts(role)
    )


def total_of(run: Run, tariff: Tariff, rows: Sequence[Mapping[str, Any]]) -> Total:
    """What the run has spent by now: its rows, and the evaluations that are there."""
    last = next((row["cost"] for row in reversed(rows) if "cost" in row), None)
    base = Total() if last is None else Total(last["total_usd"], last["total_tokens"])
    if last is None:
        base = evaluation_total(run, tariff, "before")
    after = evaluation_total(run, tariff, "after")
    return Total(base.usd + after.usd, base.tokens + after.tokens)


def evaluation_total(run: Run, tariff: Tariff, label: str) -> Total:
    """What an evaluation of the run has taken, suite by suite."""
    usd, parts = 0.0, dict[str, Cost]()
    for suite, cost in evaluation_cost(run, label).items():
        parts[suite] = cost
        usd += sum(price.of(usage) for role, usage in cost.items() if (price := tariff.of_suite(suite, role)) is not None)
    return Total(usd, paid_tokens(tariff, parts))


def evaluation_cost(run: Run, label: str) -> dict[str, Cost]:
    """Tokens by suite and role of the suites that are finished."""
    found: dict[str, Cost] = {}
    for suite in SUITES:
        path = run.path / "evaluation" / label / f"{suite}.json"
        if path.exists():
            found[suite] = Scorecard.from_json(path.read_text(encoding="utf-8"), str(path)).meta.get("cost", {})
    return found


def check(run: Run, tariff: Tariff, total: Total, coming: Total, what: str) -> None:
    """Stop before something that would pass a cap.

    Args:
        run: Whose caps.
        tariff: Its prices.
        total: Spent by now.
        coming: What comes next is expected to take.
        what: Its name, for the message.

    Raises:
        BudgetStop: The message says what is spent, and how to go on.
    """
    caps = tariff.config.budget
    for key, cap, spent, more, show in (
        ("max_usd", caps.max_usd, total.usd, coming.usd, dollars),
        ("max_tokens", caps.max_tokens, total.tokens, coming.tokens, tokens),
    ):
        if cap is not None and (spent >= cap or spent + more > cap):
            run.event("budget", key=key, cap=cap, spent=spent)
            raise BudgetStop(
                f"budget.{key} = {show(cap)}: {show(spent)} spent, and {what} takes up to {show(more)}. Everything so far is saved; go on with: "
                f"auditrl resume {run.path} --budget.{key} {_suggestion(spent + more, cap)}"
            )


def check_evaluation(run: Run, tariff: Tariff) -> None:
    """Stop before an evaluation after training that would pass a cap; it is expected to take what the one before training took."""
    done = evaluation_total(run, tariff, "after")
    first = evaluation_total(run, tariff, "before")
    coming = Total(max(0.0, first.usd - done.usd), max(0, first.tokens - done.tokens))
    if coming != Total():
        check(run, tariff, total_of(run, tariff, run.metrics()), coming, "the evaluation after training")


@contextmanager
def kept(run: Run, spent: Spent) -> Generator[None]:
    """Count what the look before the first step takes, also where an earlier process has already paid for it."""
    mine = Spent(spent.tariff)
    with mine.part(PROBE):
        yield
    spent.faults += mine.faults
    if mine.counts:
        run.write_step(0, START, [[*key, usage] for key, usage in sorted(mine.counts.items())])
    try:
        record = run.read_step(0, START)
    except RunError:
        return
    for part, role, target, usage in record:
        spent.add(part, role, usage, target)


def check_prices(tariff: Tariff) -> None:
    """Refuse a cap in dollars while a paid model has no price.

    Raises:
        ConfigError: The message names the models.
    """
    unknown = tariff.unknown() if tariff.config.budget.max_usd is not None else []
    if unknown:
        raise ConfigError(
            f"budget.max_usd can't be watched: no price for {', '.join(unknown)}. Put them into the file that budget.prices names "
            "(docs/costs.md shows its form), or use budget.max_tokens"
        )


def step_total(tariff: Tariff, row: Mapping[str, Any]) -> Total:
    """What one row's step took."""
    parts = {TRAINING: row.get("usage") or {}, **(row.get("spent") or {})}
    return Total(sum((row.get("cost") or {}).get("usd", {}).values()), paid_tokens(tariff, parts))


def dearest(tariff: Tariff, rows: Sequence[Mapping[str, Any]]) -> Total:
    """The most that a step has taken: what the next one is expected to take at most."""
    found = [step_total(tariff, row) for row in rows]
    return Total(max((t.usd for t in found), default=0.0), max((t.tokens for t in found), default=0))


def tokens(value: float) -> str:
    """`1,200 tokens`."""
    return f"{value:,.0f} tokens"


def _suggestion(needed: float, cap: float) -> str:
    value = max(2 * cap, 1.5 * needed)
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"
