"""`auditrl gc`."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import RunError
from ..runs import Run, open_run
from .common import display_option, show


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Say what would go, and touch nothing.")
@click.option("--logs", is_flag=True, help="Remove the Inspect logs too.")
@display_option
def gc(runs: tuple[Path, ...], dry_run: bool, logs: bool, display_mode: str) -> None:
    """Free what report, transcript reader and resume don't need: old checkpoints, segments of old updates, references that are over.

    A run that a process is working on is left alone (exit code 3); the others are done all the same.
    """
    from ..train.gc import collect

    opened = list({run.path.resolve(): run for run in map(_open, runs)}.values())  # a bad name is told before anything is removed
    display = show(display_mode)
    display.start("gc", len(opened))
    total, problems = 0, list[str]()
    for run in opened:
        try:
            freed = collect(run, logs=logs, dry_run=dry_run)
        except RunError as error:
            problems.append(str(error))
            display.advance(run.path.name)
            continue
        total += freed.size
        display.advance(run.path.name)
        parts = "; ".join(f"{kind} {count}, {size(found)}" for kind, (count, found) in freed.kinds().items())
        click.echo(f"{run.path}: {_verb(dry_run)} {size(freed.size)}, {size(freed.left)} left{f' ({parts})' if parts else ''}")
        for note in freed.notes:
            click.echo(f"  {note}")
    display.finish()
    if len(opened) > 1:
        click.echo(f"{len(opened) - len(problems)} runs: {_verb(dry_run)} {size(total)}")
    if problems:
        raise RunError("; ".join(problems))


def _open(path: Path) -> Run:
    if not path.is_dir():
        raise RunError(f"{path}: no such folder; `auditrl runs list` shows what there is")
    return open_run(path)


def _verb(dry_run: bool) -> str:
    return "would free" if dry_run else "freed"


def size(count: int) -> str:
    """`1.9 MB`."""
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} bytes"
