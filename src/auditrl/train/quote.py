"""An estimate as a quote: rows by part, role and model with their price, what one step takes, and the caps that this would pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..config import RunConfig
from ..costs import dollars
from ..errors import ConfigError
from .budget import Tariff, Total, check_prices, tokens
from .counting import Load
from .estimate import Estimate, estimate
from .sizes import REAL, SIMULATED, Sizes, Yardstick, assume, measured

_EVALUATION = "evaluation "


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a quote: whole-run numbers. `usd` is None where the price is not known; `usd_cached` if every repeated token came from a
    cache."""

    part: str
    role: str
    model: str
    calls: float
    input: float
    output: float
    cached: float
    usd: float | None
    usd_cached: float | None


@dataclass(frozen=True, slots=True)
class Quote:
    """What a run is expected to take."""

    steps: int
    rows: Sequence[Row]
    sizes: Sizes
    notes: Sequence[str]
    unknown: Sequence[str]
    """Models whose price nobody knows."""
    step: Total
    """A step without probe, on average; in dollars only what has a price."""
    total: Total
    total_cached: float

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "steps": self.steps,
            "rows": [asdict(row) for row in self.rows],
            "step": asdict(self.step),
            "total": {**asdict(self.total), "usd_cached": self.total_cached},
            "unknown_prices": list(self.unknown),
            "assumptions": asdict(self.sizes),
            "notes": list(self.notes),
        }


def quote(config: RunConfig, assumed: Iterable[str] = (), from_run: Path | None = None) -> Quote:
    """Estimate and price a run.

    Args:
        config: The run.
        assumed: `name=value` changes of the assumptions.
        from_run: Measure the assumptions on this run's last steps.

    Raises:
        ConfigError: A config, assumption, price file or run that can't be used.
    """
    tariff = Tariff.load(config)
    count = Yardstick(words=config.bank.seeds == "sim")
    sizes = SIMULATED if count.words else REAL
    if from_run is not None:
        from ..runs import open_run

        sizes = measured(open_run(from_run), sizes, count)
    return priced(config, tariff, estimate(config, assume(sizes, assumed), count))


def priced(config: RunConfig, tariff: Tariff, found: Estimate) -> Quote:
    """Put prices to an estimate."""
    rows = [_row(config, tariff, key, load) for key, load in found.loads.items()]
    step_rows = [row for row in rows if row.part in ("training", "references")]
    total = _total(tariff, rows)
    one = _total(tariff, step_rows)
    cached = sum(row.usd_cached or 0.0 for row in rows)
    step = Total(one.usd / found.steps, round(one.tokens / found.steps))
    return Quote(found.steps, rows, found.sizes, found.notes, tariff.unknown(), step, total, cached)


def _row(config: RunConfig, tariff: Tariff, key: tuple[str, str, str], load: Load) -> Row:
    part, role, target = key
    suite = part.startswith(_EVALUATION)
    price = tariff.of_suite(target, role) if suite else tariff.of(role, target)
    counts = {"input": round(load.input), "output": round(load.output)}
    usd = None if price is None else price.of(counts)
    cached = None if price is None else price.of({**counts, "cached": round(load.cached)})
    return Row(part, role, _model(config, tariff, role, target, suite), load.calls, load.input, load.output, load.cached, usd, cached)


def _model(config: RunConfig, tariff: Tariff, role: str, target: str, suite: bool) -> str:
    if role == "auditor":
        return config.policy.model
    if suite:
        entry = tariff.entry_of_suite(target, role)
        return "" if entry is None else entry.model
    if role == "judge":
        return config.judge.model
    entry = config.targets.pool.get(target, config.targets.clean)
    return "" if entry is None else entry.model


def _total(tariff: Tariff, rows: Iterable[Row]) -> Total:
    usd, count = 0.0, 0.0
    for row in rows:
        usd += row.usd or 0.0
        count += row.input + row.output if tariff.counts(row.role) else 0.0
    return Total(usd, round(count))


def check_caps(config: RunConfig, found: Quote) -> None:
    """Refuse caps that one step alone passes.

    Raises:
        ConfigError: The message gives both figures.
    """
    caps = config.budget
    for key, cap, needed, show in (
        ("max_usd", caps.max_usd, found.step.usd, dollars),
        ("max_tokens", caps.max_tokens, found.step.tokens, tokens),
    ):
        if cap is not None and needed > cap:
            raise ConfigError(
                f"budget.{key} = {show(cap)}: one step alone takes about {show(needed)} (`auditrl estimate` shows of what); raise the cap, or make "
                "the step smaller (train.groups, train.group_size, audit.max_turns)"
            )


def check_budget(config: RunConfig) -> None:
    """Everything that can be said about a config's caps before a run is made. ConfigError if they can't be watched or kept."""
    if config.budget.max_usd is None and config.budget.max_tokens is None:
        Tariff.load(config)
        return
    check_prices(Tariff.load(config))
    check_caps(config, quote(config))


def summed(rows: Sequence[Row]) -> list[Row]:
    """Rows of one part, role and model together: the suites of an evaluation, targets of the same model."""
    found: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        key = (row.part, row.role, row.model)
        old = found.get(key)
        found[key] = row if old is None else Row(*key, *map(_plus, _numbers(old), _numbers(row)))
    return list(found.values())


def _numbers(row: Row) -> tuple[Any, ...]:
    return (row.calls, row.input, row.output, row.cached, row.usd, row.usd_cached)


def _plus(a: float | None, b: float | None) -> Any:
    return None if a is None or b is None else a + b


def by_part(rows: Sequence[Row]) -> Mapping[str, list[Row]]:
    """Rows by part, in the order of a run."""
    order = ("evaluation before", "training", "references", "probe", "evaluation after")
    return {part: [row for row in rows if row.part == part] for part in order if any(row.part == part for row in rows)}
