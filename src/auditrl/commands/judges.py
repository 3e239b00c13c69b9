"""`auditrl judges check` and `auditrl judges pairs`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from ..display import Display
from ..errors import ConfigError, ProviderError
from .common import display_option, model_option, run_async, show
from .results import COUNT, PATH, any_simulated, model_key, write_result

if TYPE_CHECKING:
    from ..config import ModelConfig
    from ..evals.judge_pairs import KnownPair, PairSet
    from ..evals.judge_scores import JudgeScores


@click.group()
def judges() -> None:
    """Check a judge on audits of which the better one is known."""


@judges.command()
@click.option("--judge", required=True, metavar="MODEL", help="Inspect model, as provider/name.")
@click.option("--judge-args", multiple=True, metavar="KEY=VALUE", help="Argument of the judge's provider; can be repeated.")
@click.option(
    "--set", "which", type=click.Choice(["sim", "written", "both"]), default=None, help="[default: sim for sim/..., else written]"
)
@click.option("--order", type=click.Choice(["both", "random"]), default="both", show_default=True, help="Show each pair in both orders.")
@click.option("--repeats", type=COUNT, default=1, show_default=True, help="Calls a pair and order; 2 and more measure self-agreement.")
@click.option("--limit", type=COUNT, default=None, help="At most so many pairs, spread over the kinds.")
@click.option("--only", default=None, metavar="KINDS", help="Kinds of pairs, separated by commas.")
@click.option("--pointwise", is_flag=True, help="Also the two yes/no judges, on single audits.")
@click.option("--min-accuracy", type=click.FloatRange(0, 100), default=None, help="In %; below it the exit code is 4.")
@click.option("--attempts", type=COUNT, default=2, show_default=True, help="How often an unreadable answer is asked for.")
@click.option("--max-concurrent", type=COUNT, default=20, show_default=True, help="Calls at a time.")
@click.option("--random-seed", type=int, default=0, show_default=True)
@click.option("--out", type=PATH, default=None, help="Folder for the result, and to go on from after an interruption.")
@display_option
def check(
    judge: str,
    judge_args: tuple[str, ...],
    which: Literal["sim", "written", "both"] | None,
    only: str | None,
    limit: int | None,
    min_accuracy: float | None,
    out: Path | None,
    display_mode: str,
    **asked: Any,
) -> None:
    """Does a judge prefer audits that are known to be better? Accuracy, position bias, agreement with itself, and cost."""
    from ..analysis.comparison import print_tables
    from ..evals.judge_pairs import SETS, choose
    from ..evals.judge_pairs_shipped import load_pairs
    from ..evals.judge_tables import advice, tables

    entry = with_args(model_option(judge, "--judge"), judge_args)
    default = "sim" if any_simulated(entry) else "written"
    if default == "sim" and which not in (None, "sim"):
        raise ConfigError(
            f"--set {which}: the simulated judges read the simulated world's language only; leave --set out, or name another judge"
        )
    sets: tuple[PairSet, ...] = SETS if which == "both" else (which or default,)
    pairs = choose(load_pairs(sets), kinds=[k.strip().replace(" ", "_") for k in (only or "").split(",") if k.strip()], limit=limit)
    display = show(display_mode)
    found: list[JudgeScores] = []
    kept = f"What is answered is kept in {out}; run the same command again to go on." if out else "Nothing is kept without --out FOLDER."
    run_async(_check(entry, pairs, out, display, found, **asked), display, kept)
    scores = found[0]
    if out is not None:
        write_result(out, "judge", scores, tables(scores))
    else:
        print_tables(tables(scores))
    for line in advice(scores):
        click.echo(line)
    if min_accuracy is not None and 100 * scores.total.accuracy.mean < min_accuracy:
        raise ProviderError(
            f"accuracy {100 * scores.total.accuracy.mean:.1f}% is below --min-accuracy {min_accuracy:g}; use another judge, or look at the "
            "kinds of pairs that it gets wrong"
        )


def with_args(entry: ModelConfig, args: tuple[str, ...]) -> ModelConfig:
    """The entry with `key=value` arguments added; values are JSON where they can be read as such, else text."""
    added: dict[str, Any] = {}
    for text in args:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--judge-args {text!r}: write it as KEY=VALUE")
        try:
            added[key.strip()] = json.loads(value)
        except ValueError:
            added[key.strip()] = value
    return entry.model_copy(update={"args": {**entry.args, **added}})


async def _check(
    entry: ModelConfig,
    pairs: list[KnownPair],
    out: Path | None,
    display: Display,
    found: list[JudgeScores],
    *,
    order: Literal["both", "random"],
    repeats: int,
    pointwise: bool,
    attempts: int,
    max_concurrent: int,
    random_seed: int,
) -> None:
    from contextlib import nullcontext

    from ..audit.context import stable_hash
    from ..audit.run import quiet
    from ..behaviors.loader import load_bank
    from ..evals.journal import Journal
    from ..evals.judge_check import JudgeContext, ask_members, ask_pairs
    from ..evals.judge_pairs import dump_pairs
    from ..evals.judge_pairs_shipped import load_pairs
    from ..evals.judge_scores import score
    from ..evals.records import owned_folder
    from ..models import build_model

    quiet()
    shipped = f"{stable_hash(dump_pairs(load_pairs())):016x}"
    question = {"judge": model_key(entry), "attempts": attempts, "random_seed": random_seed, "pairs": shipped}
    model = build_model(entry, "--judge")
    with owned_folder(out) if out is not None else nullcontext():
        context = JudgeContext(
            judge=model,
            behaviors=load_bank().behaviors,
            journal=Journal(out / "judge.journal.jsonl" if out is not None else None, question),
            order=order,
            repeats=repeats,
            attempts=attempts,
            random_seed=random_seed,
            max_concurrent=max_concurrent,
            simulated=any_simulated(entry),
            display=display,
        )
        answers = await ask_pairs(context, pairs)
        members = await ask_members(context, pairs) if pointwise else []
    found.append(
        score(
            answers,
            members,
            judge=entry.model,
            simulated=context.simulated or any(pair.set == "sim" for pair in pairs),
            order=order,
            repeats=repeats,
            random_seed=random_seed,
        )
    )


@judges.command()
@click.option("--set", "which", type=click.Choice(["sim", "written"]), required=True, help="Which set.")
@click.option("--out", type=PATH, required=True, help="JSON-lines file to write.")
def pairs(which: str, out: Path) -> None:
    """Write the known pairs, one a line, made anew (`sim` is what the package ships as known_pairs/sim.jsonl)."""
    from ..evals.judge_pairs import dump_pairs
    from ..evals.judge_pairs_sim import sim_pairs
    from ..evals.judge_pairs_written import written_pairs
    from ..files import write_whole

    made = sim_pairs() if which == "sim" else written_pairs()
    try:
        write_whole(out, dump_pairs(made))
    except OSError as error:
        raise ConfigError(f"{out}: can't be written ({error.strerror}); give another --out FILE") from None
    click.echo(f"{out}: {len(made)} pairs of {len({pair.kind for pair in made})} kinds")
