"""`auditrl runs list | show` and `auditrl report`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import ConfigError
from ..runs import Run, list_runs, open_run
from .common import runs_option

if TYPE_CHECKING:
    from ..analysis.report import Section


@click.group()
def runs() -> None:
    """List and show runs."""


@runs.command("list")
@runs_option
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def list_command(root: Path, as_json: bool) -> None:
    """Runs under a folder, oldest first."""
    found = list_runs(root)
    if as_json:
        click.echo(json.dumps(found, indent=1))
        return
    if not found:
        click.echo(f"no runs under {root}; make one with: auditrl quickstart")
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("run", "steps", "last reward", "state", "made")
    for row in found:
        reward = row.get("reward")
        steps = f"{row['steps']}/{row['of']}" if "steps" in row else "-"
        shown = f"{reward:.3f}" if isinstance(reward, float) else "-"
        table.add_row(escape(row["name"]), steps, shown, escape(row.get("problem", row["state"])), row.get("created", "-"))
    Console().print(table)


@runs.command("show")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def show_command(run: Path, as_json: bool) -> None:
    """What a run is, how far it is, what it scored and where its files are."""
    opened = open_run(run)
    facts = describe(opened)
    if as_json:
        click.echo(json.dumps(facts, indent=1))
        return
    for key, value in facts.items():
        click.echo(f"{key:>14}: {value}")


def describe(run: Run) -> dict[str, Any]:
    """The facts that `runs show` prints."""
    from ..analysis.run_report import cost, failures, read_card

    rows = run.metrics()
    facts: dict[str, Any] = {
        "run": str(run.path),
        "made": run.info["created"],
        "digest": run.info["digest"],
        "random seed": run.config.random_seed,
        "reward": f"{run.config.reward.kind}, calibration {run.config.reward.calibration_eighths}/8",
        "steps": f"{len(rows)} of {run.config.train.steps}",
        "checkpoints": ", ".join(map(str, run.checkpoints())) or "none",
    }
    if rows:
        facts["last reward"] = rows[-1]["reward"]
    for label in ("before", "after"):
        card = read_card(run, label)
        if card is not None and card.composite is not None:
            facts[f"composite {label}"] = f"{card.composite.mean:.1f} ± {card.composite.half:.1f}"
    report = run.path / "report.html"
    return {**facts, **cost(rows), **failures(rows), **({"report": str(report)} if report.exists() else {})}


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--compare",
    "others",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Compare the trained auditor with this evaluation or run, in a section of the report; may be given again.",
)
@click.option("--published", is_flag=True, help="Show the published models in that section, marked.")
@click.option(
    "--audits", type=click.IntRange(min=0), default=4_000, show_default=True, help="Training audits in the reader; 0 leaves it as it is."
)
@click.option("--bank", type=click.Path(path_type=Path), default=None, help="Folder with further behaviors, if the evaluation used one.")
@click.option(
    "--strategies",
    type=click.Path(path_type=Path),
    default=None,
    help="Folder that `auditrl cluster` wrote, to filter by [default: RUN/strategies, if it is there].",
)
def report(run: Path, others: tuple[Path, ...], published: bool, audits: int, bank: Path | None, strategies: Path | None) -> None:
    """Write the HTML report of a run (again) and the transcript reader beside it, from what its folder holds.

    For the folder of an evaluation the reader alone is written.
    """
    if (run / "evaluation.json").is_file() and not (run / "run.json").exists():
        _read_evaluation(run, bank, strategies, compared=bool(others or published))
        return
    if bank is not None:
        raise ConfigError("--bank: is for the folder of an evaluation; a run knows its bank")
    from ..analysis.run_report import write_report

    opened = open_run(run)
    sections: list[Section] = []
    if others or published:
        from ..analysis.comparison import comparison_section
        from ..analysis.published import frontier
        from .compare import distinct, read_card

        paths = (run, *others)
        cards = distinct([read_card(path) for path in paths], paths)
        sections.append(comparison_section(cards, frontier() if published else ()))
    if strategies is not None:
        from ..analysis.reader_sources import saved_strategies

        saved_strategies(strategies, run)  # named by the user: an error here, not a note in the report
    page, reader = write_report(opened, sections, audits=audits, strategies=strategies)
    click.echo(page)
    if reader is not None:
        click.echo(reader)


def _read_evaluation(folder: Path, bank: Path | None, strategies: Path | None, *, compared: bool) -> None:
    from ..analysis.reader_sources import write_evaluation_reader

    if compared:
        raise ConfigError("--compare, --published: are for runs; compare evaluations with `auditrl compare`")
    page = write_evaluation_reader(folder, bank, strategies)
    click.echo(page or f"{folder}: no audits to read yet")
