"""A sweep file: which runs to make side by side, and what is expected of them.

    name = "dose"
    base = "quickstart"                  # a packaged config, or a path beside this file
    random_seeds = [1, 2, 3]
    [set]                                # keys of every run
    "train.steps" = 40
    [[runs]]                             # one run a label ...
    label = "intragroup"
    set = { "reward.kind" = "intragroup" }
    [grid]                               # ... times every combination of these values
    "reward.calibration_eighths" = [0, 4]
    [labels]
    "reward.calibration_eighths" = "{}/8"

gives the labels `intragroup 0/8` and `intragroup 4/8`, each under three random seeds. The string "none" stands for no value (TOML has none).
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Self, cast

from pydantic import Field, ValidationError, model_validator

from ..config import RunConfig, Section, check_config, describe_validation, load_config, merged, packaged_config, parse_overrides, read_toml
from ..errors import ConfigError

START = "start"
"""Label of the policy before training."""
OWN = ("name", "random_seed")
"""Keys that the sweep itself sets in each run."""


class Expect(Section):
    """A statement about the results, tested over the random seeds. Exactly one form:

    `higher = A, than = B` or `lower = A, than = B` (labels, paired by random seed, by at least `by`); `of = A` with `at_least` or `at_most`
    (on every random seed); `best = [A, ...]` (the best of these against the best of the others). `A@begin` and `A@end` are the first and last
    fifth of the steps, for metrics of the steps.
    """

    metric: str
    """A suite, `composite`, `suite.part`, `alarm_step`, `alarm_share`, or a key of the metrics rows (`reward`, `probe.fp_calibration`)."""
    higher: str | None = None
    lower: str | None = None
    than: str | None = None
    by: float = Field(default=0.0, ge=0)
    of: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    best: tuple[str, ...] = ()
    says: str = ""
    """Who says so: the published direction, in words."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        compared = (self.higher is not None) + (self.lower is not None)
        bounded = (self.at_least is not None) + (self.at_most is not None)
        forms = (
            compared == 1 and self.than is not None and self.of is None and not bounded and not self.best,
            bounded == 1 and self.of is not None and not compared and self.than is None and not self.best,
            bool(self.best) and not compared and not bounded and self.than is None and self.of is None,
        )
        if sum(forms) != 1:
            raise ValueError("one form is needed: higher/lower with than, of with at_least/at_most, or best")
        return self

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels that it names, without `@begin` and `@end`."""
        named = (self.higher, self.lower, self.than, self.of, *self.best)
        return tuple(name.partition("@")[0] for name in named if name is not None)


class RunEntry(Section):
    """One run of the list."""

    label: str = Field(min_length=1, max_length=60, pattern=r"^[^\n\r@]+$")
    set: dict[str, Any] = Field(default_factory=dict)


class SweepFile(Section):
    """The file as it is written."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")
    about: str = ""
    """One line that stands over the results."""
    base: str
    random_seeds: tuple[int, ...] = Field(default=(1, 2, 3), min_length=1)
    start: bool = True
    """Evaluate the policy before training, once for each random seed and way of starting, not once a run."""
    set: dict[str, Any] = Field(default_factory=dict)
    runs: tuple[RunEntry, ...] = ()
    grid: dict[str, Any] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)
    """How a grid value is written in a label, by key: `"{}/8"`."""
    published: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """By label: columns of the published table of configurations that pick its row."""
    expect: tuple[Expect, ...] = ()
    notes: tuple[str, ...] = ()
    """Lines that stand under the results."""

    @model_validator(mode="after")
    def _something_to_run(self) -> Self:
        if not self.runs and not self.grid:
            raise ValueError("nothing to run: give [[runs]], [grid], or both")
        if len(set(self.random_seeds)) < len(self.random_seeds):
            raise ValueError(f"random_seeds: {list(self.random_seeds)} holds one twice; name each once")
        return self


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of a sweep: a label under one random seed, or the evaluation of a start (`label` begins with START)."""

    label: str
    random_seed: int
    config: RunConfig
    is_start: bool = False

    @property
    def name(self) -> str:
        """Name of its run directory."""
        return self.config.name


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a sweep runs: cells by random seed, the starts of each before its runs.

    `start_of[label]` is the label of the start that a label's runs began from; `places[label]` is (its entry in the list of runs, its value
    on the grid's axis) where the grid has one axis of numbers.
    """

    file: SweepFile
    source: str
    cells: tuple[Cell, ...]
    start_of: Mapping[str, str]
    places: Mapping[str, tuple[str, float]]

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels in the order of the file, starts first."""
        starts = dict.fromkeys(cell.label for cell in self.cells if cell.is_start)
        return (*starts, *dict.fromkeys(cell.label for cell in self.cells if not cell.is_start))


# ---------------------------------------------------------------- finding and reading


def packaged_sweeps() -> list[str]:
    """Names of the sweeps that ship with the package."""
    return sorted(
        entry.name.removesuffix(".toml")
        for entry in files("auditrl").joinpath("configs", "sweeps").iterdir()
        if entry.name.endswith(".toml")
    )


def find_sweep(name: str) -> Path:
    """Path of a sweep file: itself, or a packaged one by name (`rewards`, `sweeps/rewards`, `configs/sweeps/rewards.toml`).

    Raises:
        ConfigError: Neither a file nor a packaged name.
    """
    path = Path(name)
    if path.is_file():
        return path
    known = packaged_sweeps()
    short = re.sub(r"^(configs/)?(sweeps/)?", "", name).removesuffix(".toml")
    if short in known:
        return packaged_config(f"sweeps/{short}")
    raise ConfigError(f"{name}: no such sweep file; packaged sweeps: {', '.join(known)}")


def read_sweep(path: Path) -> SweepFile:
    """Read and check a sweep file. ConfigError names file, key and mend."""
    try:
        return SweepFile.model_validate(read_toml(path))
    except ValidationError as error:
        raise ConfigError(describe_validation(error, str(path), SweepFile)) from None


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """`{"reward.kind": "binary"}` -> `{"reward": {"kind": "binary"}}`; tables stay as they are, "none" becomes None."""
    result: dict[str, Any] = {}
    for key, value in values.items():
        inner: Any = nested(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else None if value == "none" else value
        for part in reversed(key.split(".")):
            inner = {part: inner}
        result = merged(result, cast("dict[str, Any]", inner))
    return result


def axes(grid: Mapping[str, Any], source: str, prefix: str = "") -> dict[str, list[Any]]:
    """Dotted key -> values, from quoted dotted keys or nested tables. ConfigError for anything that is not a list of values."""
    found: dict[str, list[Any]] = {}
    for key, value in grid.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= axes(cast("Mapping[str, Any]", value), source, f"{name}.")
        elif isinstance(value, list) and value:
            found[name] = cast("list[Any]", value)
        else:
            raise ConfigError(f"{source}: grid.{name}: a list of values is needed, given {value!r}; a single value belongs in [set]")
    return found


# ---------------------------------------------------------------- planning


def make_plan(
    path: Path, overrides: Sequence[tuple[str, str]] = (), *, only: Sequence[str] = (), random_seeds: Sequence[int] | None = None
) -> Plan:
    """Resolve every run of a sweep and check it.

    Args:
        overrides: Dotted keys of the command line, laid over every run.
        only: Labels to run; empty runs all.
        random_seeds: Instead of the file's.

    Raises:
        ConfigError: A file that can't be read, a config that is refused (its label is named), two runs of one label or of one config.
    """
    file, source = read_sweep(path), str(path)
    if random_seeds is not None:
        file = file.model_copy(update={"random_seeds": tuple(random_seeds)})
    base = _read_base(file, path)
    given = nested(parse_overrides(overrides))
    variants = list(_variants(file, source))
    _check_labels(file, [label for label, _ in variants], only, source)
    configs: dict[tuple[str, int], RunConfig] = {}
    for label, values in variants:
        data = merged(merged(merged(base, nested(file.set)), values), given)
        _check_own({**nested(file.set), **values, **given}, label, source)
        for seed in file.random_seeds:
            name = f"{slug(label)}-s{seed}"
            configs[label, seed] = check_config({**data, "name": name, "random_seed": seed}, f"{source}: {label!r}")
    _check_different(configs, file.random_seeds[0], source)
    return _with_starts(file, source, {key: c for key, c in configs.items() if not only or key[0] in only})


def slug(label: str) -> str:
    """A label as part of a folder name: `intragroup 0/8` -> `intragroup-0-8`."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", label).strip("-.") or "run"


def _read_base(file: SweepFile, path: Path) -> dict[str, Any]:
    beside = path.parent / file.base
    place = next((p for p in (beside, Path(file.base), packaged_config(file.base)) if p.is_file()), None)
    if place is None:
        raise ConfigError(f"{path}: base: no config {file.base!r} beside this file, and none of that name ships with the package")
    return load_config(place).model_dump(mode="json", exclude_unset=True)


def _variants(file: SweepFile, source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(label, nested values) of every run: entries times grid points."""
    table = axes(file.grid, source)
    points = [dict(zip(table, values, strict=True)) for values in itertools.product(*table.values())]
    shorts = [key.rpartition(".")[2] for key in table]
    for entry in file.runs or (None,):
        for point in points:
            parts = [entry.label] if entry else []
            for key, value in point.items():
                short = key.rpartition(".")[2]
                plain = f"{short if shorts.count(short) == 1 else key}={{}}"
                parts.append(_written(file.labels.get(key, plain), value, f"{source}: labels.{key}"))
            yield " ".join(parts), merged(nested(entry.set if entry else {}), nested(point))


def _written(form: str, value: Any, where: str) -> str:
    try:
        return form.format(value)
    except (IndexError, KeyError, ValueError):
        raise ConfigError(f"{where}: {form!r} is no form for one value; write it with one {{}}, as in '{{}}/8'") from None


def _check_labels(file: SweepFile, labels: Sequence[str], only: Sequence[str], source: str) -> None:
    seen: dict[str, str] = {}
    for label in labels:
        if slug(label) in seen:
            raise ConfigError(f"{source}: two runs are called {label!r} (as a folder: {slug(label)}); give each its own label")
        if label.startswith(START):
            raise ConfigError(
                f"{source}: label {label!r}: names that begin with {START!r} belong to the policy before training; choose another"
            )
        seen[slug(label)] = label
    starts = (START, *(f"{START} of {label}" for label in labels))
    for where, names in (
        ("--only", only),
        ("published", tuple(file.published)),
        *((f"expect.{i}", e.labels) for i, e in enumerate(file.expect)),
    ):
        for name in names:
            if name not in labels and (where == "--only" or name not in starts):
                raise ConfigError(f"{source}: {where}: no run is called {name!r}; labels: {', '.join(labels)}")
    unknown = next((key for key in file.labels if key not in axes(file.grid, source)), None)
    if unknown is not None:
        raise ConfigError(f"{source}: labels.{unknown}: not a key of [grid]; remove it, or write it as [grid] does")


def _check_own(values: Mapping[str, Any], label: str, source: str) -> None:
    for key in OWN:
        if key in values:
            raise ConfigError(f"{source}: {label!r}: {key} is set by the sweep; remove it (random seeds stand in random_seeds)")


def _check_different(configs: Mapping[tuple[str, int], RunConfig], seed: int, source: str) -> None:
    seen: dict[str, str] = {}
    for (label, one), config in configs.items():
        if one != seed:
            continue
        same = seen.setdefault(config.model_copy(update={"name": "x"}).digest, label)
        if same != label:
            raise ConfigError(f"{source}: {same!r} and {label!r} are the same run; does an override replace what the sweep varies?")


# ---------------------------------------------------------------- the policy before training


def start_key(config: RunConfig) -> str:
    """What the evaluation of the policy before training depends on: runs that agree in it share one evaluation."""
    settings = config.evaluation
    return json.dumps(
        [
            config.random_seed,
            config.policy.model_dump(mode="json"),
            config.audit.model_dump(mode="json"),
            config.bank.model_dump(mode="json"),
            settings.model_dump(mode="json", exclude={"before", "after"}),
            None if settings.judge is not None else config.judge.model_dump(mode="json"),
            config.targets.clean_from_pool if settings.clean_persona is None else None,
        ],
        sort_keys=True,
    )


def _with_starts(file: SweepFile, source: str, configs: Mapping[tuple[str, int], RunConfig]) -> Plan:
    """Cells by random seed; where starts are evaluated, runs do not evaluate theirs again."""
    cells: list[Cell] = []
    start_of: dict[str, str] = {}
    kinds = {start_key(c) for (_, seed), c in configs.items() if seed == file.random_seeds[0]}
    for seed in file.random_seeds:
        starts: dict[str, Cell] = {}
        runs: list[Cell] = []
        for (label, one), config in configs.items():
            if one != seed:
                continue
            if not file.start or config.evaluation.profile == "off":
                runs.append(Cell(label, seed, config))
                continue
            name = START if len(kinds) == 1 else f"{START} of {label}"
            start = starts.setdefault(start_key(config), Cell(name, seed, _evaluated(config, f"{slug(name)}-s{seed}", True), is_start=True))
            start_of[label] = start.label
            runs.append(Cell(label, seed, _evaluated(config, config.name, False)))
        cells += [*starts.values(), *runs]
    return Plan(file, source, tuple(cells), start_of, _places(file, source))


def _places(file: SweepFile, source: str) -> dict[str, tuple[str, float]]:
    values = list(axes(file.grid, source).values())
    if len(values) != 1 or not all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values[0]):
        return {}
    labels = [label for label, _ in _variants(file, source)]
    entries = [entry.label for entry in file.runs] or [file.name]
    return dict(zip(labels, itertools.product(entries, map(float, values[0])), strict=True))


def _evaluated(config: RunConfig, name: str, before: bool) -> RunConfig:
    """The same config that evaluates its start alone (`before`), or leaves that to another run."""
    settings = config.evaluation.model_copy(update={"before": before, "after": not before and config.evaluation.after})
    return config.model_copy(update={"name": name, "evaluation": settings})
