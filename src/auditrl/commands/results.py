"""What `auditrl eval crux` and the checks of targets share: opening models and banks, and writing results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..audit.context import stable_hash
from ..config import ModelConfig
from ..errors import ConfigError
from .common import model_option

if TYPE_CHECKING:
    from inspect_ai.model import Model
    from pydantic import BaseModel

    from ..analysis.tables import Table
    from ..behaviors.loader import Bank
    from ..types import Behavior

OUT = Path("runs") / "evaluations"
COUNT = click.IntRange(min=1)
PATH = click.Path(path_type=Path)


def open_model(text: str, option: str) -> tuple[Model, ModelConfig]:
    """The Inspect model that an option names, and its entry. ConfigError names the option."""
    from ..audit.run import quiet
    from ..models import build_model

    quiet()
    entry = model_option(text, option)
    return build_model(entry, option), entry


def model_key(entry: ModelConfig) -> str:
    """What a journal calls a model: its name, with a digest of its arguments where it has any (they may hold a key)."""
    digest = stable_hash(entry.identity) % 16**8
    return f"{entry.model}#{digest:08x}" if entry.args or entry.base_url else entry.model


def any_simulated(*entries: ModelConfig) -> bool:
    """Whether one of the models is the simulated world's: the output then says so."""
    return any(entry.model.startswith("sim/") for entry in entries)


def open_bank(path: Path | None) -> Bank:
    """The package's bank, merged with a folder where one is given."""
    from ..behaviors.loader import load_bank

    return load_bank(path)


def named_behaviors(bank: Bank, names: str | None) -> list[Behavior]:
    """The named behaviors, all of the bank by default. ConfigError for an unknown one."""
    if names is None:
        return [bank.behaviors[name] for name in sorted(bank.behaviors)]
    chosen = [bank.behavior(name.strip()) for name in names.split(",") if name.strip()]
    if not chosen:
        raise ConfigError("--behaviors: no name in it; write names separated by commas, or leave the option out for all")
    return list({behavior.name: behavior for behavior in chosen}.values())


def result_folder(out: Path | None, check: str, name: str) -> Path:
    """`--out`, or a folder named after check and model."""
    from ..evals.auditors import safe_name

    return out or OUT / f"{check}-{safe_name(name)}"


def write_result(folder: Path, name: str, result: BaseModel, tables: Sequence[Table]) -> None:
    """Write the result and its tables, print the tables."""
    from ..analysis.comparison import print_tables
    from ..analysis.tables import to_csv, to_markdown
    from ..files import write_whole

    write_whole(folder / f"{name}.json", result.model_dump_json(indent=1))
    write_whole(folder / f"{name}.md", "\n".join(to_markdown(table) for table in tables))
    write_whole(folder / f"{name}.csv", to_csv(tables[0]))
    print_tables(tables)
    click.echo(f"written: {folder / name}.json, .md, .csv")
