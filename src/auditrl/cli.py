"""Command line. Heavy packages are imported inside the commands: `auditrl --help` answers at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

import click

from . import __version__
from .errors import EXIT_INTERRUPTED, AuditrlError

LAZY = {
    "behaviors": "auditrl.behaviors.commands:behaviors",
    "quickstart": "auditrl.commands.training:quickstart",
    "train": "auditrl.commands.training:train",
    "resume": "auditrl.commands.training:resume",
    "estimate": "auditrl.commands.estimate:estimate",
    "sweep": "auditrl.commands.sweep:sweep",
    "warmstart": "auditrl.commands.training:warmstart",
    "runs": "auditrl.commands.runs:runs",
    "report": "auditrl.commands.runs:report",
    "gc": "auditrl.commands.gc:gc",
    "audit": "auditrl.commands.audit:audit",
    "eval": "auditrl.commands.evaluation:evaluate",
    "crux": "auditrl.commands.crux:crux",
    "organisms": "auditrl.commands.organisms:organisms",
    "judges": "auditrl.commands.judges:judges",
    "transfer": "auditrl.commands.transfer:transfer",
    "rescore": "auditrl.commands.compare:rescore",
    "compare": "auditrl.commands.compare:compare",
    "cluster": "auditrl.commands.cluster:cluster",
    "study": "auditrl.commands.study:study",
}
HELP = {
    "behaviors": "List, show, check, generate and accept hidden behaviors and seeds.",
    "quickstart": "Train a tiny auditor in the simulated world and show what it learned.",
    "train": "Train an auditor from a config file.",
    "resume": "Go on with a run where it stopped.",
    "estimate": "Calls, tokens and price of a run, before anything runs.",
    "sweep": "Train many configs side by side and compare them.",
    "warmstart": "Make the tiny starting policy of the simulated world.",
    "runs": "List and show runs.",
    "report": "Write the HTML report of a run.",
    "gc": "Free the disk of what a run needs no more.",
    "audit": "Run one audit and print it.",
    "eval": "Evaluate any auditor with the four-part suite or from cruxes, and check targets.",
    "crux": "Find the decisive moments of recorded audits.",
    "organisms": "Make and check targets that carry a behavior in their weights.",
    "judges": "Check a judge on audits of which the better one is known.",
    "transfer": "Audit fine-tuned targets in another scaffold, and score detection.",
    "rescore": "Score the audits of an evaluation with another judge.",
    "compare": "Compare evaluated auditors, paired by seed.",
    "cluster": "Turn audits into a codebook of strategies, and show the composition over training.",
    "study": "Run the whole study in the simulated world, and write every figure and table.",
}


class LazyGroup(click.Group):
    """Loads a command's module when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(LAZY)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in LAZY:
            return None
        module, _, name = LAZY[cmd_name].partition(":")
        return getattr(import_module(module), name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, HELP[name]) for name in LAZY])


@click.group(
    cls=LazyGroup,
    epilog="Exit codes: 0 done, 1 other error, 2 bad input, 3 run directory, 4 model or judge failed, 5 reward design, 6 alarm, 7 budget, 130 interrupted.",
)
@click.version_option(__version__, prog_name="auditrl")
def cli() -> None:
    """Train alignment auditors with reinforcement learning, and measure them honestly."""


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point: errors that a user can mend are printed without a traceback, with their exit code."""
    try:
        code = cli.main(args=list(argv) if argv is not None else None, standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(EXIT_INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except AuditrlError as error:
        click.echo(f"auditrl: {error}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)
