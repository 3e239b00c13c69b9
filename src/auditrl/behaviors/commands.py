"""`auditrl behaviors`: list, show, check, generate, accept and stats.

Nothing heavy is imported before a command runs. Errors are printed without a traceback and exit with their own code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import AuditrlError, ConfigError

if TYPE_CHECKING:
    from inspect_ai.model import Model

    from ..types import Behavior, Seed
    from .checks import Finding
    from .loader import Bank

_PIPE_WIDTH = 140
_FOLDER = click.Path(path_type=Path)
_SPLITS = click.Choice(["train", "eval", "crux"])


class _Group(click.Group):
    """Prints an `AuditrlError` as one message and exits with its code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except AuditrlError as error:
            click.echo(f"error: {error}", err=True)
            ctx.exit(error.exit_code)


def _bank_options[**P, R](command: Callable[P, R]) -> Callable[P, R]:
    alone = click.option("--alone", is_flag=True, help="Use the bank folder without the packaged bank.")
    path = click.option("--bank", type=_FOLDER, metavar="PATH", help="Bank folder of your own, added to the packaged bank.")
    return path(alone(command))


_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group("behaviors", cls=_Group)
def behaviors() -> None:
    """Hidden behaviors and their scenario seeds."""


@behaviors.command("list")
@click.option("--family", help="Only behaviors of this family.")
@click.option("--split", type=click.Choice(["train", "eval"]), help="Only training or only held-out behaviors.")
@_bank_options
@_json_option
def list_command(family: str | None, split: str | None, bank: Path | None, alone: bool, as_json: bool) -> None:
    """List the behaviors with their seeds by split."""
    loaded = _load(bank, alone)
    families = {b.family for b in loaded.behaviors.values()}
    if family is not None and family not in families:
        raise ConfigError(f"unknown family `{family}`; use one of {', '.join(sorted(families))}")
    chosen = [b for b in loaded.behaviors.values() if family in (None, b.family) and split in (None, b.split)]
    if as_json:
        _print_json([_summary(loaded, behavior) for behavior in chosen])
        return
    heads = ("behavior", "split", "family", "source", "seeds", "title")
    _print_table(heads, [_list_row(loaded, behavior) for behavior in chosen], right=(4,))
    click.echo(f"{len(chosen)} behaviors, {sum(len(loaded.seeds_for(b.name)) for b in chosen)} seeds")


@behaviors.command("show")
@click.argument("name")
@click.option("--seeds", "with_seeds", is_flag=True, help="Print the seeds too.")
@_bank_options
@_json_option
def show_command(name: str, with_seeds: bool, bank: Path | None, alone: bool, as_json: bool) -> None:
    """Show one behavior: its context, description and hidden instruction."""
    loaded = _load(bank, alone)
    behavior = loaded.behavior(name)
    seeds = loaded.seeds_for(name)
    if as_json:
        shown = {**behavior.model_dump(mode="json"), "seeds": _counts(seeds)}
        _print_json({**shown, "seed_list": [s.model_dump(mode="json") for s in seeds]} if with_seeds else shown)
        return
    flags = [flag for flag, on in (("always on", behavior.always_on), ("needs tools", behavior.needs_tools)) if on]
    counts = ", ".join(f"{count} {split}" for split, count in _counts(seeds).items() if count)
    facts = [
        ("title", behavior.title),
        ("family", behavior.family),
        ("source", behavior.source),
        ("split", behavior.split + (f" ({', '.join(flags)})" if flags else "")),
        ("activation", behavior.activation),
        ("terms", ", ".join(behavior.activation_terms)),
        ("description", behavior.description),
        ("seeds", counts or "none"),
    ]
    _print_table((behavior.name, ""), facts)
    click.echo(f"\nHidden instruction ({len(behavior.instruction.split())} words)\n\n{behavior.instruction}")
    if with_seeds:
        for seed in seeds:
            tools = f"; tools: {', '.join(str(tool['name']) for tool in seed.tools)}" if seed.tools else ""
            click.echo(f"\n{seed.id} ({seed.split}; {seed.setting}{tools})\n{seed.text}")


@behaviors.command("check")
@click.argument("path", type=_FOLDER, required=False)
@click.option("--alone", is_flag=True, help="Don't compare with the packaged bank.")
@click.option("--model", metavar="M", help="Ask this Inspect model too whether a seed gives its behavior away.")
@_json_option
def check_command(path: Path | None, alone: bool, model: str | None, as_json: bool) -> None:
    """Check a bank folder (the packaged bank without PATH). Exit code 2 if anything fails."""
    from .checks import check_bank, check_leaks_with, failing

    loaded = _load(path, alone)
    focus = None if path is None else path.expanduser().resolve()
    findings = check_bank(loaded, focus)
    if model is not None:
        import asyncio

        findings += asyncio.run(check_leaks_with(_model(model), loaded, focus))
    failed = failing(findings)
    files = [key for key, source in loaded.sources.items() if focus is None or source.path.is_relative_to(focus)]
    if as_json:
        _print_json([_finding_row(finding) for finding in findings])
    else:
        for finding in findings:
            click.echo(f"{finding.severity}: {finding}")
        click.echo(f"{len(files)} files checked: {len(failed)} failures, {len(findings) - len(failed)} warnings")
    if failed:
        raise ConfigError(f"{len(failed)} findings fail; mend the files that they name")


@behaviors.command("generate")
@click.argument("name")
@click.option("--n", default=20, show_default=True, help="How many candidates to write.")
@click.option("--model", required=True, metavar="M", help="Inspect model that writes them, such as openai/gpt-5 or sim/judge.")
@click.option("--out", type=_FOLDER, metavar="FOLDER", help="Review folder, which must not exist.  [default: review/NAME]")
@click.option("--split", type=_SPLITS, help="Split of the new seeds.  [default: the behavior's own]")
@_bank_options
@_json_option
def generate_command(name: str, n: int, model: str, out: Path | None, split: Any, bank: Path | None, alone: bool, as_json: bool) -> None:
    """Have a model write candidate seeds for a behavior into a review folder."""
    import asyncio

    from .generate import generate_seeds

    loaded = _load(bank, alone)
    loaded.behavior(name)
    folder = (out or Path("review") / name).expanduser().resolve()
    destination = bank.expanduser().resolve() if bank else None
    review = asyncio.run(generate_seeds(loaded, name, n, _model(model), folder, split=split, destination=destination))
    faulty = {f.file for f in review.findings if f.severity == "fail"}
    numbers = {
        "folder": str(folder),
        "candidates": len(review.seeds),
        "passing": len(review.seeds) - len(faulty),
        "duplicates": review.duplicates,
        "unreadable": review.unreadable,
    }
    if as_json:
        _print_json({**numbers, "findings": [_finding_row(finding) for finding in review.findings]})
        return
    click.echo(
        f"{numbers['candidates']} candidates, {numbers['passing']} pass the checks; "
        f"{review.duplicates} near-duplicates left out, {review.unreadable} unreadable answers"
    )
    click.echo(f"read {folder / 'findings.md'}, then run: auditrl behaviors accept {folder}")


@behaviors.command("accept")
@click.argument("folder", type=_FOLDER)
@_bank_options
@_json_option
def accept_command(folder: Path, bank: Path | None, alone: bool, as_json: bool) -> None:
    """Move the passing candidates of a review FOLDER into the bank, under the next free numbers."""
    from .generate import accept

    accepted = accept(folder, bank, merge=not alone)
    if as_json:
        _print_json({"moved": [str(path) for path in accepted.moved], "findings": [_finding_row(f) for f in accepted.findings]})
        return
    for finding in accepted.findings:
        click.echo(f"{finding.severity}: {finding}")
    left = len({finding.file for finding in accepted.findings})
    where = f" into {accepted.moved[0].parent}" if accepted.moved else ""
    click.echo(f"{len(accepted.moved)} seeds moved{where}; {left} left in {folder}")


@behaviors.command("stats")
@click.option("--markdown", is_flag=True, help="Print the tables as Markdown (docs/behaviors.md).")
@_bank_options
@_json_option
def stats_command(markdown: bool, bank: Path | None, alone: bool, as_json: bool) -> None:
    """Print the bank in numbers."""
    from .statistics import COLUMNS, bank_statistics, cells

    numbers = bank_statistics(_load(bank, alone))
    if as_json:
        _print_json(numbers.as_dict())
    elif markdown:
        click.echo(numbers.markdown())
    else:
        _print_table(COLUMNS, [cells(row) for row in numbers.rows], right=(1, 2, 3, 4, 5, 6))
        _print_table(("the whole bank", ""), [(name, str(value)) for name, value in numbers.totals().items()])


def _load(path: Path | None, alone: bool) -> Bank:
    from .loader import load_bank

    if alone and path is None:
        raise ConfigError("--alone needs a bank folder of your own; give its path")
    return load_bank(path, merge=not alone)


def _model(name: str) -> Model:
    from inspect_ai.model import get_model

    try:
        return get_model(name)
    except Exception as error:
        # Inspect and its providers raise many types here: unknown provider, missing package, missing key
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(f"model `{name}` can't be used ({reason}); give an Inspect model name such as openai/gpt-5") from error


def _counts(seeds: Iterable[Seed]) -> dict[str, int]:
    counts = {"train": 0, "eval": 0, "crux": 0}
    for seed in seeds:
        counts[seed.split] += 1
    return counts


def _summary(bank: Bank, behavior: Behavior) -> dict[str, Any]:
    kept = behavior.model_dump(mode="json", exclude={"instruction", "activation_terms"})
    return {**kept, "seeds": _counts(bank.seeds_for(behavior.name))}


def _list_row(bank: Bank, behavior: Behavior) -> tuple[str, ...]:
    seeds = len(bank.seeds_for(behavior.name))
    return (behavior.name, behavior.split, behavior.family, behavior.source, str(seeds), behavior.title)


def _finding_row(finding: Finding) -> dict[str, Any]:
    return {
        "check": finding.check,
        "severity": finding.severity,
        "file": str(finding.file),
        "line": finding.line,
        "message": finding.message,
    }


def _print_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def _print_table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> None:
    """A table whose last column wraps; off a terminal it is as wide as it needs to be."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, head in enumerate(heads):
        table.add_column(Text(head), justify="right" if index in right else "left", no_wrap=index < len(heads) - 1)
    for row in rows:
        # Text, not str: brackets in a bank file are no markup
        table.add_row(*(Text(cell) for cell in row))
    console = Console()
    (console if console.is_terminal else Console(width=_PIPE_WIDTH)).print(table)
