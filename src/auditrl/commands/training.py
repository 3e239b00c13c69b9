"""`auditrl quickstart | train | resume | warmstart`."""

from __future__ import annotations

from pathlib import Path

import click

from ..config import RunConfig, load_config, packaged_config, parse_overrides
from ..display import Display
from ..runs import Run, create_run, open_run, owned, writable
from .common import EXTRA, display_option, find_config, overrides, run_async, runs_option, show


def work_on(run: Run, display: Display) -> None:
    """Evaluate, train, evaluate, report; everything that is already there is not done again."""
    from ..train.session import whole_run

    with owned(run), writable(run):
        run_async(
            whole_run(run, display), display, f"Everything up to the last finished step is saved; go on with: auditrl resume {run.path}"
        )


def start(config: RunConfig, root: Path, display: Display) -> None:
    """Check what only the bank, the models and their servers can tell, then make the run and work on it."""
    from ..models import models_of
    from ..reach import check_servers
    from ..train.quote import check_budget
    from ..train.workshop import check_engine, check_models, check_run

    check_run(config)
    check_budget(config)
    check_models(config)
    check_engine(config)
    check_servers(models_of(config))
    work_on(create_run(root, config), display)


@click.command(context_settings=EXTRA)
@runs_option
@display_option
@click.option("--name", default=None, help="Name of the run [default: quickstart, quickstart-2, ...].")
@click.pass_context
def quickstart(ctx: click.Context, root: Path, display_mode: str, name: str | None) -> None:
    """Train a tiny auditor in the simulated world and show what it learned.

    A real language model of 0.4M parameters, trained with GRPO and the reference pairwise reward through the real Inspect and Petri audit
    loop, against simulated targets and judges: a model of the method, no evidence about real models. Further options override the config
    (`--train.steps 10`).
    """
    chosen = name or _free_name(root, "quickstart")
    start(load_config(packaged_config("quickstart"), [*overrides(ctx.args), ("name", f'"{chosen}"')]), root, show(display_mode))


def _free_name(root: Path, base: str) -> str:
    number = 1
    while (root / (base if number == 1 else f"{base}-{number}")).exists():
        number += 1
    return base if number == 1 else f"{base}-{number}"


@click.command(context_settings=EXTRA)
@click.argument("config", type=click.Path(path_type=Path))
@runs_option
@display_option
@click.option(
    "--dry-run", is_flag=True, help="Check everything that needs no call, show the first batch, the models and the price, and stop."
)
@click.pass_context
def train(ctx: click.Context, config: Path, root: Path, display_mode: str, dry_run: bool) -> None:
    """Train an auditor from a config: a file, or the name of a packaged one (quickstart, paper/...).

    Further options override single keys of the config: `--reward.order both --train.steps 10`.
    """
    resolved = load_config(find_config(config), overrides(ctx.args))
    if dry_run:
        from .dry_run import show_plan

        show_plan(resolved)
    else:
        start(resolved, root, show(display_mode))


@click.command(context_settings=EXTRA)
@click.argument("run", type=click.Path(path_type=Path))
@display_option
@click.pass_context
def resume(ctx: click.Context, run: Path, display_mode: str) -> None:
    """Go on with a run where it stopped. The config must be the one the run was made with."""
    from ..models import models_of
    from ..reach import check_servers
    from ..train.workshop import check_engine

    opened = open_run(run, parse_overrides(overrides(ctx.args)))
    check_engine(opened.config)
    check_servers(models_of(opened.config))
    work_on(opened, show(display_mode))


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--random-seed", type=int, default=None, help="[default: the shipped start's]")
@click.option("--steps", type=int, default=None, help="Training steps [default: the recipe's].")
@display_option
def warmstart(folder: Path, random_seed: int | None, steps: int | None, display_mode: str) -> None:
    """Make the tiny starting policy of the simulated world: supervised training on audits of scripted auditors."""
    from ..sim.warmstart import run_warmstart

    run_warmstart(folder, random_seed=random_seed, steps=steps, display=show(display_mode))
