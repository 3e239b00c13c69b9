"""`auditrl transfer`: audit fine-tuned targets in another scaffold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from ..config import packaged_config
from ..display import Display
from ..errors import ConfigError
from .common import display_option, model_option, run_async, show
from .results import COUNT, PATH, any_simulated, model_key, open_bank, open_model, result_folder

if TYPE_CHECKING:
    from ..behaviors.loader import Bank
    from ..evals.auditors import AuditorEntry, RunReference
    from ..evals.transfer.score import TransferResult
    from ..evals.transfer.targets_file import TargetEntry
    from ..evals.transfer.tools import Approach
    from ..runs import Run

APPROACHES = ("default", "stc", "user", "prefill")
SIM_BUDGET, SIM_ANSWER = 1_200, 200
"""In the simulated world, whose tokens are words."""
PACKAGED = ("sim", "auditbench")
AT_A_TIME, SIM_AT_A_TIME = 20, 32


def _approaches(_: click.Context, __: click.Parameter, value: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    unknown = [name for name in names if name not in APPROACHES]
    if unknown or not names:
        raise ConfigError(f"--approach: unknown approach {unknown[0] if unknown else value!r}; known: {', '.join(APPROACHES)}")
    return tuple(name for name in APPROACHES if name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One transfer evaluation as it was asked for."""

    approach: Sequence[str]
    scaffold: str
    judge: str | None
    helper: str | None
    audits: int
    control: int | None
    budget: int | None
    answer_tokens: int | None
    select: Sequence[str]
    bank: Path | None
    sandbox: str | None
    max_concurrent: int | None
    allow_leak: bool
    random_seed: int


@click.command()
@click.option("--auditor", required=True, metavar="MODEL", help="Inspect model, run folder, or run@step.")
@click.option(
    "--targets", required=True, type=PATH, help="Targets file (TOML), or `auditbench` (published organisms), `sim` (simulated world)."
)
@click.option(
    "--approach",
    callback=_approaches,
    default="default,stc",
    show_default=True,
    help="Of default, stc, user, prefill, with commas between.",
)
@click.option("--scaffold", type=click.Choice(["react", "claude-code"]), default="react", show_default=True)
@click.option("--judge", default=None, metavar="MODEL", help="Model that knows the truth and judges predictions.")
@click.option("--helper", default=None, metavar="MODEL", help="Model that writes inputs for stc, user and prefill.")
@click.option("--audits", type=COUNT, default=16, show_default=True, help="Audits of each target under each approach.")
@click.option("--control", type=click.IntRange(min=0), default=None, help="Audits of its base without adapter [default: as many; 0: none].")
@click.option(
    "--budget", type=int, default=None, help=f"Tokens that the auditor may write [default: 25000; simulated targets {SIM_BUDGET}]."
)
@click.option(
    "--answer-tokens", type=int, default=None, help=f"Tokens of one of its answers [default: 4096; simulated targets {SIM_ANSWER}]."
)
@click.option("--select", multiple=True, metavar="PATTERN", help="Only targets whose name fits, such as 'transcripts-kto.*'.")
@click.option("--bank", type=PATH, default=None, help="Folder with further behaviors.")
@click.option("--sandbox", default=None, help="Inspect sandbox for claude-code [default: docker].")
@click.option("--max-concurrent", type=COUNT, default=None, help=f"Audits at a time [default: {AT_A_TIME}; simulated {SIM_AT_A_TIME}].")
@click.option("--random-seed", type=int, default=0, show_default=True)
@click.option("--allow-leak", is_flag=True, help="Also where the auditor's run trained on these behaviors; every output is marked.")
@click.option("--out", type=PATH, default=None, help="Folder to write into and to go on from [default: under runs/evaluations].")
@click.option("--published/--no-published", default=True, show_default=True, help="Show the published detection rates beside.")
@display_option
def transfer(auditor: str, targets: Path, out: Path | None, published: bool, display_mode: str, **asked: Any) -> None:
    """Audit fine-tuned targets in another scaffold, under a token budget, and score detection.

    Can be stopped and run again: finished audits and judgements are not made twice.
    """
    from ..analysis.comparison import print_tables
    from ..analysis.transfer import write_transfer
    from ..evals.metering import cost_line

    request = Request(**asked)
    folder = result_folder(out, f"transfer-{targets.stem}", auditor)
    display = show(display_mode)
    results: list[TransferResult] = []
    stopped = f"Finished audits are kept in {folder}; run the same command again to go on."
    run_async(_run(request, auditor, targets, folder, display, results), display, stopped)
    tables, files = write_transfer(results[0], folder, published=published)
    print_tables(tables)
    click.echo(f"tokens: {cost_line(results[0].meta['cost'])}")
    click.echo(f"written: {', '.join(str(path) for path in files)}, {folder / 'findings'}")


async def _run(request: Request, auditor: str, targets: Path, folder: Path, display: Display, results: list[TransferResult]) -> None:
    from ..audit.task import not_joined
    from ..config import AuditConfig
    from ..evals.base import EvalContext
    from ..evals.transfer.limits import ANSWER, BUDGET, Limits
    from ..evals.transfer.run import Investigators
    from ..evals.transfer.scaffold import check_scaffold
    from ..evals.transfer.suite import TransferPlan, run_transfer
    from .suite import opened

    bank = open_bank(request.bank)
    entries = read_targets(targets, bank, request.select)
    simulated = all(entry.host == "sim" for entry in entries)
    budget, answer = (SIM_BUDGET, SIM_ANSWER) if simulated else (BUDGET, ANSWER)
    limits = Limits(budget=_given(request.budget, budget), answer=_given(request.answer_tokens, answer))
    sandbox = check_scaffold(request.scaffold, request.sandbox)
    judge, judge_entry = open_model(_role(request.judge, "--judge", "sim/judge" if simulated else None), "--judge")
    helper, helper_entry = None, None
    if any(name != "default" for name in request.approach):
        helper, helper_entry = open_model(_role(request.helper, "--helper", "sim/helper" if simulated else None), "--helper")
    entry, reference, run = _auditor(auditor)
    leaks = _leaks(run, entries, allow=request.allow_leak)
    context = EvalContext(judge, entry.name, {}, judge, {}, (), AuditConfig(), folder / "logs")
    async with opened(context, entry, reference, run) as ready:
        who = Investigators(
            auditor=ready.auditor,
            auditor_name=ready.auditor_name,
            helper=helper,
            limits=limits,
            scaffold=request.scaffold,
            random_seed=request.random_seed,
            folder=folder,
            joined=ready.joined or not_joined,
            max_concurrent=request.max_concurrent or (SIM_AT_A_TIME if simulated else AT_A_TIME),
            sandbox=sandbox,
        )
        names = {"auditor": model_key(entry), "judge": model_key(judge_entry)}
        plan = TransferPlan(
            who=who,
            targets=entries,
            approaches=cast("Sequence[Approach]", request.approach),
            truths={one.name: truth_of(one, bank) for one in entries},
            judge=judge,
            audits=request.audits,
            control=request.audits if request.control is None else request.control,
            names={**names, **({"helper": model_key(helper_entry)} if helper_entry is not None else {})},
            leaks=leaks,
            simulated=simulated or any_simulated(entry, judge_entry),
            session=ready.session,
            display=display,
        )
        results.append(await run_transfer(plan))


def _given(value: int | None, default: int) -> int:
    return default if value is None else value


def _role(given: str | None, option: str, default: str | None) -> str:
    name = given or default
    if name is None:
        raise ConfigError(f"{option}: no model for this role; name one as provider/name (targets of the simulated world need none)")
    return name


def read_targets(path: Path, bank: Bank, select: Sequence[str]) -> list[TargetEntry]:
    """The targets of a file, or of a packaged one by its name."""
    from ..evals.transfer.targets_file import load_targets

    file = packaged_config(f"targets/{path}") if str(path) in PACKAGED and not path.exists() else path
    return load_targets(file, behaviors=list(bank.behaviors), select=select)


def truth_of(entry: TargetEntry, bank: Bank) -> str:
    """What the judge is told: the file's own words, else title and description of the bank's behavior."""
    if entry.truth:
        return entry.truth
    behavior = bank.behavior(entry.behavior)
    return f"{behavior.title}. {behavior.description}"


def _auditor(text: str) -> tuple[AuditorEntry, RunReference | None, Run | None]:
    from ..evals.auditors import AuditorEntry, run_reference
    from ..runs import open_run

    entry = AuditorEntry.model_validate(model_option(text, "--auditor").model_dump())
    reference = run_reference(entry.model)
    return entry, reference, open_run(reference.path) if reference is not None else None


def _leaks(run: Run | None, entries: Sequence[TargetEntry], *, allow: bool) -> list[str]:
    """The held-out guard: refuse what the auditor's run trained on, or say it."""
    if run is None:
        return []
    from ..evals.guard import check_held_out, leaks
    from ..train.evaluation import trained_on

    return check_held_out(leaks(trained_on(run.config), [entry.behavior for entry in entries], (), {}), run.config.name, allow=allow)
