"""`auditrl eval suite`; further evaluations register themselves on the same group."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ..config import ModelConfig, packaged_config
from ..display import Display
from ..errors import AuditrlError, ConfigError
from ..evals.auditors import AuditorEntry, read_auditors, safe_name
from ..evals.scores import SUITES, Scorecard
from .checks import CHECKS
from .common import display_option, model_option, run_async, show
from .crux import eval_crux
from .suite import Request, evaluate_auditor

DEFAULT_OUT = Path("runs") / "evaluations"


@click.group()
def evaluate() -> None:
    """Evaluate any auditor with the four-part suite, from cruxes, and check targets."""


for command in (eval_crux, *CHECKS):
    evaluate.add_command(command)


def _model(_: click.Context, parameter: click.Parameter, value: str | None) -> ModelConfig | None:
    return None if value is None else model_option(value, f"--{str(parameter.name).replace('_', '-')}")


def _suites(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...]:
    names = SUITES if value is None else tuple(name.strip() for name in value.split(",") if name.strip())
    unknown = [name for name in names if name not in SUITES]
    if unknown or not names:
        raise ConfigError(f"--suites: unknown suite {unknown[0] if unknown else value!r}; known: {', '.join(SUITES)}")
    return tuple(name for name in SUITES if name in names)


def _roles[F: Any](command: F) -> F:
    """The models of an evaluation."""
    texts = {
        "--judge": "Model that grades; not the one that trained the auditor.",
        "--production-target": "Unmodified model, for production discovery and realism.",
        "--clean-target": "Model with nothing planted; naming the target again gives it the persona alone.",
        "--target": "Model that carries the hidden behaviors; one that training never used.",
    }
    for name, text in texts.items():
        command = click.option(name, callback=_model, default=None, metavar="MODEL", help=text)(command)
    return command


def _limits[F: Any](command: F) -> F:
    """Sizes."""
    count = click.IntRange(min=1)
    texts = {
        "--limit-turns": "At most so many auditor turns an audit.",
        "--limit-replicates": "At most so many audits a seed.",
        "--limit-seeds": "At most so many seeds (a behavior).",
    }
    for name, text in texts.items():
        command = click.option(name, type=count, default=None, help=text)(command)
    return command


@evaluate.command()
@click.option(
    "--auditor", default=None, metavar="MODEL", help="Inspect model, run folder, or run@step. Arguments: 'provider/name{\"key\": 1}'."
)
@click.option("--auditors", type=click.Path(path_type=Path), default=None, help="TOML file with [[auditor]] entries, or `baselines`.")
@_roles
@click.option(
    "--profile", type=click.Choice(["full", "small", "sim"]), default="small", show_default=True, help="Sizes; sim: the simulated world."
)
@click.option("--suites", callback=_suites, default=None, help="Some of the four, separated by commas.")
@_limits
@click.option("--bank", type=click.Path(path_type=Path), default=None, help="Folder with further behaviors and seeds.")
@click.option(
    "--wildchat", type=click.Path(path_type=Path), default=None, help="Your WildChat export (.jsonl, .parquet, folder) for realism."
)
@click.option(
    "--wildchat-choice", "choice", type=click.Path(path_type=Path), default=None, help="File with the hashes of the conversations to use."
)
@click.option(
    "--similarity", type=click.Choice(["text", "judge"]), default="text", show_default=True, help="How real conversations get their seeds."
)
@click.option(
    "--max-concurrent", type=click.IntRange(min=1), default=None, help="Audits at a time [default: 20; 64 for runs and --profile sim]."
)
@click.option("--random-seed", type=int, default=0, show_default=True)
@click.option("--allow-leak", is_flag=True, help="Evaluate also on what the auditor trained on; every output is marked.")
@click.option(
    "--out", type=click.Path(path_type=Path), default=None, help="Folder to write into and to go on from [default: under runs/evaluations]."
)
@click.option("--published/--no-published", default=None, help="Show the published models beside [default: not in the simulated world].")
@display_option
def suite(auditor: str | None, auditors: Path | None, out: Path | None, published: bool | None, display_mode: str, **request: Any) -> None:
    """Score an auditor: audit quality, false-positive calibration, production discovery, realism.

    Can be stopped and run again: finished audits and judgements are not made twice.
    """
    asked = Request(**request)
    entries = _entries(auditor, auditors)
    folder = out or DEFAULT_OUT / f"{safe_name(auditor or (auditors or Path('auditors')).stem)}-{asked.profile}"
    display = show(display_mode)
    stopped = f"Finished audits are kept in {folder}; run the same command again to go on."
    failures: list[AuditrlError] = []
    cards: list[Scorecard] = []
    run_async(_all(asked, entries, folder, display, cards, failures), display, stopped)
    if cards:
        _finish(cards, folder, published)
    for error in failures:
        click.echo(f"auditrl: {error}", err=True)
    if failures:
        raise click.exceptions.Exit(failures[-1].exit_code)


def _entries(auditor: str | None, auditors: Path | None) -> list[AuditorEntry]:
    if (auditor is None) == (auditors is None):
        raise ConfigError("name one auditor with --auditor, or a file of them with --auditors")
    if auditors is not None:
        return read_auditors(packaged_config("baselines") if str(auditors) == "baselines" and not auditors.exists() else auditors)
    return [AuditorEntry.model_validate(model_option(auditor or "", "--auditor").model_dump())]


async def _all(
    request: Request, entries: Sequence[AuditorEntry], folder: Path, display: Display, cards: list[Scorecard], failures: list[AuditrlError]
) -> None:
    """One after the other. Of several, one that fails doesn't stop the others."""
    for entry in entries:
        place = folder / safe_name(entry.name) if len(entries) > 1 else folder
        try:
            cards.append(await evaluate_auditor(request, entry, place, display))
        except AuditrlError as error:
            if len(entries) == 1:
                raise
            display.finish()
            failures.append(type(error)(f"{entry.name}: {error}"))
            display.note(f"{entry.name}: {error}")
        await asyncio.sleep(0)


def _finish(cards: Sequence[Scorecard], folder: Path, published: bool | None) -> None:
    """Print the table, the cost and where everything is."""
    from ..analysis.comparison import print_tables, write_comparison
    from ..analysis.published import frontier
    from ..evals.metering import cost_line, sum_costs

    rows = frontier() if (published if published is not None else not cards[0].simulated) else ()
    tables, files = write_comparison(cards, rows, folder, title="Evaluation")
    print_tables(tables[:1])
    click.echo(f"tokens: {cost_line(sum_costs(card.meta['cost'] for card in cards))}")
    click.echo(f"written: {', '.join(str(path) for path in files)}")
