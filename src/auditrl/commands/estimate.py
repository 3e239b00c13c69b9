"""`auditrl estimate`: what a run takes, before anything runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..config import RunConfig, load_config
from ..costs import dollars
from .common import EXTRA, find_config, overrides

if TYPE_CHECKING:
    from ..train.quote import Quote, Row


@click.command(context_settings=EXTRA)
@click.argument("config", type=click.Path(path_type=Path))
@click.option(
    "--assume",
    "assumed",
    multiple=True,
    metavar="NAME=VALUE",
    help="Another value for an assumption (they are printed); may be given again.",
)
@click.option("--from-run", type=click.Path(path_type=Path), default=None, help="Measure the assumptions on the last steps of this run.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
@click.pass_context
def estimate(ctx: click.Context, config: Path, assumed: tuple[str, ...], from_run: Path | None, as_json: bool) -> None:
    """Calls, tokens and price of a run, by part and role. Asks no model and needs no key.

    CONFIG is a file, or the name of a packaged config (quickstart, paper/...). Further options override single keys, as for `train`.
    """
    from ..train.quote import check_caps, quote

    resolved = load_config(find_config(config), overrides(ctx.args))
    found = quote(resolved, assumed, from_run)
    if as_json:
        click.echo(json.dumps(found.as_json(), indent=1))
    else:
        show_quote(resolved, found)
    check_caps(resolved, found)


def show_quote(config: RunConfig, found: Quote) -> None:
    """Print the quote as a table, with what it rests on."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from ..train.quote import by_part, summed

    table = Table(title=f"Estimate: {escape(config.name)}, {found.steps} steps", title_justify="left")
    for name in ("part", "role", "model"):
        table.add_column(name, no_wrap=name != "model", overflow="fold")
    for name in ("calls", "calls/step", "read", "written", "tokens/step", "cacheable", "price"):
        table.add_column(name, justify="right")
    for part, rows in by_part(found.rows).items():
        steps = found.steps if part in ("training", "references") else None
        for row in summed(rows):
            table.add_row(part, row.role, escape(row.model), *cells(row, steps))
    console = Console()
    console.width = max(console.width, 150)
    console.print(table)
    for line in lines(config, found):
        click.echo(line)


def cells(row: Row, steps: int | None) -> list[str]:
    """Numbers of one row; a step's share where every step has one."""
    price = "unknown" if row.usd is None else "-" if row.role == "auditor" and not row.usd else dollars(row.usd)
    return [
        f"{row.calls:,.0f}",
        f"{row.calls / steps:,.0f}" if steps else "",
        f"{row.input:,.0f}",
        f"{row.output:,.0f}",
        f"{(row.input + row.output) / steps:,.0f}" if steps else "",
        f"{row.cached / row.input:.0%}" if row.input else "",
        price,
    ]


def lines(config: RunConfig, found: Quote) -> list[str]:
    """Totals, unknown prices, caps and assumptions in words."""
    from ..train.sizes import described

    known = "" if not found.unknown else " for the models with a known price"
    said = [f"In all {found.total.tokens:,} paid tokens (a step about {found.step.tokens:,})."]
    if len(found.unknown) < len({row.model for row in found.rows if row.role != "auditor"}):
        said[0] += f" Price{known}: {dollars(found.total.usd)}, {dollars(found.total_cached)} if all repeated input came from a cache."
    if found.unknown:
        said.append(f"No price is known for {', '.join(found.unknown)}: name a file of prices with --budget.prices FILE.")
    if config.simulated:
        said.append("Simulated world: a model of the method, no evidence about real models; its tokens are words and cost nothing.")
    said += found.notes
    said.append(f"Assumed (tokens, unless turns or shares; change with --assume, measure with --from-run): {described(found.sizes)}")
    return said
