"""What a study is made of: its runs by profile, and the figures and tables (items) that are drawn from them.

A profile is a sweep file (`configs/study/<profile>.toml`) that names every distinct run once; items pick their runs by label, so what two of
them share is trained once. Names of items are ours.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from ..config import packaged_config
from ..errors import ConfigError, RunError
from ..files import write_whole
from ..runs import Run, list_runs, open_run
from ..train.sweep import differences, is_whole
from ..train.sweep_file import START, Cell, Plan, make_plan, read_sweep

MARK_FILE = "study.json"
REWARDS = ("concerningness", "binary", "intragroup 0/8", "intragroup 4/8", "reference 0/8", "reference 4/8")
DOSE = tuple(f"{kind} {eighths}/8" for kind in ("intragroup", "reference") for eighths in (0, 1, 2, 4))
REFRESH = ("never renewed", "reference 0/8", "renewed 75", "renewed 50")
"""In the order of the published intervals: never, 100, 75 and 50 steps; `reference 0/8` is renewed as every 100 of 163."""
TARGETS = (
    ("intragroup single", "intragroup 4/8", "intragroup multi"),
    ("reference single", "reference 4/8", "reference multi"),
)
CONCERNINGNESS = ("concerningness", "concerningness product", "concerningness square", "concerningness threshold")
CRUX, STRATEGIES, TRANSFER = "crux", "strategies", "transfer"
"""Work behind the training, which some items need."""


@dataclass(frozen=True, slots=True)
class Item:
    """A figure or table of the study. `labels`: runs that it shows, empty for all; `needs`: work behind the training."""

    name: str
    title: str
    labels: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    trains: bool = True
    """Whether it needs trained runs at all."""
    scored: bool = True
    """Whether it shows scores; else it is drawn from the runs' steps."""


ITEMS: tuple[Item, ...] = (
    Item("verdicts", "Published findings", needs=(CRUX, TRANSFER)),
    Item("curves", "Training curves", scored=False),
    Item("rewards", "Reward designs in four parts", REWARDS),
    Item("dose", "Calibration dose-response", DOSE),
    Item("refresh", "Renewal of the reference", REFRESH),
    Item("targets", "Single and multi target", tuple(label for group in TARGETS for label in group)),
    Item("strategies", "Strategies over training", needs=(STRATEGIES,), scored=False),
    Item("transfer", "Transfer to another scaffold", needs=(TRANSFER,), trains=False),
    Item("concerningness", "What makes an audit concerning", CONCERNINGNESS),
    Item("correlations", "Correlations between the scores"),
    Item("crux", "Cruxes predict the suite", needs=(CRUX,)),
)


@dataclass(frozen=True, slots=True)
class Study:
    """A study to run: its profile, chosen items, the plan of its runs, and its folder."""

    profile: str
    items: tuple[Item, ...]
    plan: Plan
    out: Path

    @property
    def cells(self) -> Path:
        """Folder of the runs: a sweep's folder."""
        return self.out / "cells"

    @property
    def figures(self) -> Path:
        """PNG, SVG and CSV of every item."""
        return self.out / "figures"

    @property
    def page(self) -> Path:
        """The report."""
        return self.out / "study.html"

    @property
    def needs(self) -> tuple[str, ...]:
        """Work behind the training that the chosen items need."""
        return tuple(dict.fromkeys(name for item in self.items for name in item.needs))

    @property
    def trains(self) -> bool:
        """Whether any chosen item needs trained runs (cruxes are played by them)."""
        return any(item.trains for item in self.items)


def profiles() -> list[str]:
    """Names of the profiles that ship with the package."""
    folder = files("auditrl").joinpath("configs", "study")
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def choose(only: Sequence[str]) -> tuple[Item, ...]:
    """Items by name, in their order; none named: all. ConfigError lists the known names."""
    known = {item.name: item for item in ITEMS}
    for name in only:
        if name not in known:
            raise ConfigError(f"--only: there is no figure or table {name!r}; known: {', '.join(known)}")
    return tuple(item for item in ITEMS if not only or item.name in only)


def make_study(profile: str, only: Sequence[str], out: Path, overrides: Sequence[tuple[str, str]] = ()) -> Study:
    """Resolve a study.

    Args:
        profile: A packaged profile, or the path of a sweep file with the same labels (fewer are fine).
        only: Names of items; empty for all.
        overrides: Dotted keys, laid over every run.

    Raises:
        ConfigError: An unknown profile or item, items without a run in this profile, or a config that is refused.
    """
    path = Path(profile)
    if not path.is_file():
        if profile not in profiles():
            raise ConfigError(f"--profile: {profile!r} is neither a profile ({', '.join(profiles())}) nor a sweep file")
        path = packaged_config(f"study/{profile}")
    items = choose(only)
    whole = make_plan(path, overrides)
    there = [label for label in whole.labels if not label.startswith(START)]
    # an item without labels shows every run; transfer alone needs none
    wanted: set[str] = set()
    for item in items:
        if item.trains:
            wanted |= {label for label in there if label in item.labels} if item.labels else set(there)
    if any(item.trains for item in items) and not wanted:
        raise ConfigError(
            f"--only: profile {profile} has no run for {', '.join(item.name for item in items)}; its runs: {', '.join(there)}"
        )
    plan = whole if wanted in (set(there), set()) else make_plan(path, overrides, only=[label for label in there if label in wanted])
    return Study(read_sweep(path).name, items, plan, out)


def open_folder(study: Study) -> None:
    """Make the study's folder, or check that it is one of the same profile. RunError says what is wrong."""
    mark = study.out / MARK_FILE
    try:
        if mark.exists():
            found = json.loads(mark.read_text(encoding="utf-8")).get("profile")
            if found != study.profile:
                raise RunError(
                    f"{study.out}: this folder belongs to the profile {found!r}, not to {study.profile!r}; choose another with --out"
                )
            return
        if study.out.exists() and any(study.out.iterdir()):
            raise RunError(f"{study.out}: the folder is not empty and holds no study; choose another with --out")
        write_whole(mark, json.dumps({"format": 1, "profile": study.profile}))
    except (ValueError, AttributeError) as error:
        raise RunError(f"{mark}: can't be read ({error}); restore it, or choose another folder with --out") from None
    except OSError as error:
        raise RunError(f"{study.out}: can't be used ({error.strerror}); choose another folder with --out") from None


# ---------------------------------------------------------------- what was trained before


def take_over(study: Study, folders: Sequence[Path]) -> list[str]:
    """Copy whole runs of the same config, whatever their name, from other folders of runs; returns the names of the cells.

    Raises:
        RunError: A folder that is not there.
    """
    found: list[str] = []
    for folder in folders:
        if not folder.is_dir():
            raise RunError(f"--reuse: {folder}: no such folder")
        runs = [open_run(Path(row["path"])) for row in list_runs(folder) if row.get("state") != "unreadable"]
        for cell in study.plan.cells:
            place = study.cells / cell.name
            source = None if place.exists() else next((run for run in runs if _is_same(cell, run)), None)
            if source is not None:
                _copy(source, cell, place)
                found.append(cell.name)
    return found


def _is_same(cell: Cell, run: Run) -> bool:
    named = Run(run.path, run.config.model_copy(update={"name": cell.name}), run.info)
    return not differences(cell, named) and is_whole(cell, named)


def _copy(run: Run, cell: Cell, place: Path) -> None:
    """A copy under the cell's name, and nothing half done under it. Inspect logs stay behind: no item reads them."""
    part = place.with_name(f".{place.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(run.path, part, ignore=shutil.ignore_patterns("logs", "reader", ".lock"))
    config = run.config.model_copy(update={"name": cell.name})
    values = config.model_dump(mode="json")
    info = {**run.info, "name": cell.name, "digest": config.digest, "config": values}
    write_whole(part / "config.json", json.dumps(values, indent=1))
    write_whole(part / "run.json", json.dumps(info, indent=1))
    part.rename(place)
