"""`auditrl runs list | show` and `auditrl report`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ..runs import Run, list_runs, open_run
from .common import runs_option


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
def report(run: Path, others: tuple[Path, ...], published: bool) -> None:
    """Write the HTML report of a run (again), from what its folder holds."""
    from ..analysis.run_report import write_report

    opened = open_run(run)
    if not others and not published:
        click.echo(write_report(opened))
        return
    from ..analysis.comparison import comparison_section
    from ..analysis.published import frontier
    from .compare import distinct, read_card

    paths = (run, *others)
    cards = distinct([read_card(path) for path in paths], paths)
    click.echo(write_report(opened, [comparison_section(cards, frontier() if published else ())]))
