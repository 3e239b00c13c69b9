"""`auditrl sweep`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import EXIT_INTERRUPTED, AuditrlError, ConfigError, RunError
from .common import EXTRA, display_option, overrides, show

if TYPE_CHECKING:
    from ..train.sweep import Outcome
    from ..train.sweep_file import Plan

DEFAULT_OUT = Path("runs") / "sweeps"


@click.command(context_settings=EXTRA)
@click.argument("file", metavar="FILE")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Folder of the sweep [default: runs/sweeps/<name>].")
@click.option("--jobs", type=click.IntRange(min=1), default=None, help="Runs at a time [default: the processor cores].")
@click.option("--only", multiple=True, metavar="LABEL", help="Run this label only; may be given several times.")
@click.option("--seeds", type=click.IntRange(min=1), default=None, metavar="N", help="Only the first N random seeds of the file.")
@click.option(
    "--reuse",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Folder of another sweep: copy runs of the same name and config that are done there.",
)
@click.option("--dry-run", is_flag=True, help="Resolve and check every run, say what there is to do, and stop.")
@click.option("--report", "report_only", is_flag=True, help="Run nothing: write the results of what is there.")
@display_option
@click.pass_context
def sweep(
    ctx: click.Context,
    file: str,
    out: Path | None,
    jobs: int | None,
    only: tuple[str, ...],
    seeds: int | None,
    reuse: tuple[Path, ...],
    dry_run: bool,
    report_only: bool,
    display_mode: str,
) -> None:
    """Train many configs side by side and compare them: one table, one figure, and which expectations came out.

    FILE is a sweep file, or a packaged one by name (rewards, dose, refresh, targets, concerningness). Can be stopped and run again: runs that
    are done are kept, unfinished ones go on. Further options override keys of every run (`--train.steps 10`).
    """
    from ..train.sweep import default_jobs, run_sweep
    from ..train.sweep_file import find_sweep, make_plan, read_sweep

    path = find_sweep(file)
    chosen = read_sweep(path).random_seeds
    if seeds is not None and seeds > len(chosen):
        raise ConfigError(f"--seeds {seeds}: {path} names {len(chosen)} random seeds; add some to random_seeds")
    plan = make_plan(path, overrides(ctx.args), only=only, random_seeds=chosen[:seeds])
    folder = out or DEFAULT_OUT / plan.file.name
    count = jobs or default_jobs()
    if dry_run:
        _say_plan(plan, folder, count)
        return
    if report_only:
        _write(plan, folder)
        return
    _check(plan)
    display = show(display_mode)
    try:
        outcomes = run_sweep(plan, folder, count, display, reuse)
    except KeyboardInterrupt:
        display.finish()
        _write_what_there_is(plan, folder)
        click.echo(
            "\nauditrl: interrupted. Every run is saved up to its last finished step; run the same command again to go on.", err=True
        )
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
    except BaseException:
        display.finish()
        raise
    _write(plan, folder)
    _fail_if(outcomes, folder)


def _check(plan: Plan) -> None:
    """What only the bank, the registries or a provider can tell, once a label, before anything is made."""
    from ..analysis.sweep_report import check_published
    from ..train.workshop import check_models, check_run

    check_published(plan)
    seen: set[str] = set()
    for cell in plan.cells:
        if cell.is_start or cell.label in seen:
            continue
        seen.add(cell.label)
        try:
            check_run(cell.config)
            check_models(cell.config)
        except AuditrlError as error:
            raise type(error)(f"{plan.source}: {cell.label!r}: {error}") from None


def _say_plan(plan: Plan, folder: Path, jobs: int) -> None:
    from ..train.sweep import check_cells, standing

    _check(plan)
    check_cells(plan, folder)
    click.echo(f"sweep {plan.file.name}: {len(plan.cells)} cells in {folder}, {jobs} at a time")
    for cell in plan.cells:
        found = standing(cell, folder)
        what = "evaluation of the start" if cell.is_start else f"step {found.step} of {cell.config.train.steps}"
        click.echo(f"  {cell.name}: {found.state}, {what} (config {cell.config.digest})")


def _write(plan: Plan, folder: Path) -> None:
    from ..analysis.sweep_report import print_results, write_results

    results, written = write_results(plan, folder)
    print_results(results)
    click.echo(f"written: {', '.join(str(path) for path in written)}")


def _write_what_there_is(plan: Plan, folder: Path) -> None:
    """After an interruption; that there is nothing to show yet is no second error."""
    try:
        _write(plan, folder)
    except AuditrlError as error:
        click.echo(f"auditrl: no results yet: {error}", err=True)


def _fail_if(outcomes: list[Outcome], folder: Path) -> None:
    """Failed cells stand at the end, and in the exit code."""
    failed = [outcome for outcome in outcomes if outcome.state != "finished" and outcome.state != "stopped"]
    if not failed:
        return
    for outcome in failed:
        click.echo(f"auditrl: {outcome.cell}: {outcome.state} (exit code {outcome.code}): {outcome.reason}", err=True)
    raise RunError(
        f"{len(failed)} of {len(outcomes)} cells are not done; what they said stands in {folder / 'output'}. Mend it and run the same command again"
    )
