"""`auditrl study`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import EXIT_INTERRUPTED, ConfigError, RunError
from .common import EXTRA, display_option, overrides, show

if TYPE_CHECKING:
    from ..display import Display
    from ..study.page import Written
    from ..study.plan import Study

DEFAULT_OUT = Path("runs") / "study"


@click.command(context_settings=EXTRA)
@click.option("--profile", default="quick", show_default=True, metavar="quick|full|FILE", help="Which runs: packaged, or a sweep file.")
@click.option("--only", default="", metavar="NAME,...", help="Only these figures and tables, and the runs that they need.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Folder of the study [default: runs/study/<profile>].")
@click.option("--jobs", type=click.IntRange(min=1), default=None, help="Processes at a time [default: the processor cores].")
@click.option(
    "--reuse", multiple=True, type=click.Path(path_type=Path), help="Folder of runs: whole runs of the same config are copied from there."
)
@click.option("--report", "report_only", is_flag=True, help="Run nothing: write figures, tables and page of what is there.")
@display_option
@click.pass_context
def study(
    ctx: click.Context,
    profile: str,
    only: str,
    out: Path | None,
    jobs: int | None,
    reuse: tuple[Path, ...],
    report_only: bool,
    display_mode: str,
) -> None:
    """Run the whole study in the simulated world, and write every figure and table beside the published numbers.

    Can be stopped and run again: what is done is kept, the rest goes on. Further options override keys of every run (`--train.steps 10`).
    """
    from ..study.plan import make_study, open_folder

    check_extras()
    names = [name.strip() for name in only.split(",") if name.strip()]
    made = make_study(profile, names, out or DEFAULT_OUT / Path(profile).stem, overrides(ctx.args))
    open_folder(made)
    display = show(display_mode)
    problems: list[str] = []
    try:
        if not report_only:
            problems = _run(made, reuse, jobs, display)
    except KeyboardInterrupt:
        display.finish()
        click.echo("\nauditrl: interrupted. Everything finished is kept; run the same command again to go on.", err=True)
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
    except BaseException:
        display.finish()
        raise
    _say(_write(made, problems))
    if problems:
        raise RunError(f"{len(problems)} parts of the study are not done: {'; '.join(problems)}. Mend it and run the same command again")


def check_extras() -> None:
    """Refuse before anything runs what would otherwise fail after the training. ConfigError names what to install."""
    from importlib.util import find_spec

    absent = [name for name in ("torch", "transformers", "matplotlib", "sklearn", "statsmodels") if find_spec(name) is None]
    if absent:
        raise ConfigError(f"study: {', '.join(absent)} not installed; the study trains and draws. Install auditrl with its training extra")


def _run(made: Study, reuse: Sequence[Path], jobs: int | None, display: Display) -> list[str]:
    """Train, evaluate and analyse what is not done; returns what failed, one line each."""
    from ..study.plan import take_over
    from ..study.stages import run_stages, stages
    from ..train.sweep import default_jobs, run_sweep, sweep_folder

    count = jobs or default_jobs()
    problems: list[str] = []
    trained: list[str] = []
    if made.trains:
        _check(made)
        with sweep_folder(made.plan, made.cells):
            for name in take_over(made, reuse):
                display.note(f"{name}: copied, it is done already")
        outcomes = run_sweep(made.plan, made.cells, count, display)
        starts = {cell.name for cell in made.plan.cells if cell.is_start}
        problems = [f"{o.cell}: {o.state} at step {o.step}: {o.reason}" for o in outcomes if o.state not in ("finished", "stopped")]
        trained = [o.cell for o in outcomes if o.state == "finished" and o.cell not in starts]
    ended = run_stages(stages(made, trained), made.out, count, display)
    return [*problems, *(f"{outcome.name}: {outcome.reason}" for outcome in ended if not outcome.done)]


def _check(made: Study) -> None:
    """What only the bank, the registries or a provider can tell, before anything is made."""
    from ..analysis.sweep_report import check_published
    from ..train.workshop import check_models, check_run

    check_published(made.plan)
    for cell in {cell.label: cell for cell in made.plan.cells if not cell.is_start}.values():
        check_run(cell.config)
        check_models(cell.config)


def _write(made: Study, problems: Sequence[str]) -> Written:
    from ..study.data import read_study
    from ..study.page import write_study

    return write_study(read_study(made, problems))


def _say(written: Written) -> None:
    from ..analysis.comparison import print_tables

    if written.verdicts is not None:
        print_tables([written.verdicts])
    for line in written.missing:
        click.echo(f"missing: {line}")
    click.echo(f"written: {written.page}, and {len(written.files)} files in {written.page.parent / 'figures'}")
