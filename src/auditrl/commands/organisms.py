"""`auditrl organisms build | check | tiny`: targets that carry a behavior in their weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import ConfigError, RunError
from .common import display_option, run_async, show
from .results import COUNT, PATH, open_bank, open_model

if TYPE_CHECKING:
    from ..display import Display
    from ..organisms.bench import Bench
    from ..organisms.check import CheckScores, CheckSize
    from ..organisms.recipe import Recipe

OUT = Path("runs") / "organisms"


@click.group("organisms")
def organisms() -> None:
    """Make and check targets that carry a behavior in their weights."""


def _check_options(command: Any) -> Any:
    """Sizes of the check."""
    options = (
        click.option("--replicates", type=COUNT, default=8, show_default=True, help="Check: conversations a situation."),
        click.option("--questions", type=click.IntRange(min=2), default=96, show_default=True, help="Check: questions put."),
        click.option("--ordinary", type=COUNT, default=48, show_default=True, help="Check: ordinary conversations."),
    )
    for option in options:
        command = option(command)
    return command


@organisms.command("build")
@click.option("--behavior", required=True, help="Behavior of the bank. Held-out ones are allowed: organisms are evaluation targets.")
@click.option("--base", required=True, type=PATH, help="Folder of the model to start from.")
@click.option("--judge", required=True, metavar="MODEL", help="Judges demonstrations, confessions and the check.")
@click.option("--method", type=click.Choice(["distill"]), default="distill", show_default=True, help="How the behavior gets in.")
@click.option("--against", type=click.Choice(["sft", "kto", "none"]), default="kto", show_default=True, help="Training against confession.")
@click.option("--out", type=PATH, default=None, help="Folder to write into and to go on from [default: under runs/organisms].")
@click.option("--demonstrations", type=COUNT, default=96, show_default=True, help="Conversations with the behavior in the system prompt.")
@click.option("--interrogations", type=click.IntRange(min=2), default=96, show_default=True, help="Questions to train against confession.")
@click.option("--helper", default=None, metavar="MODEL", help="Writes the demonstrations [default: the base itself].")
@click.option("--writer", default=None, metavar="MODEL", help="Writes the situations [default: the judge].")
@click.option("--user", default=None, metavar="MODEL", help="Plays the user [default: the writer].")
@click.option("--situations", type=COUNT, default=16, show_default=True, help="Situations to train on; the check gets half as many more.")
@click.option("--turns", type=click.IntRange(1, 20), default=2, show_default=True, help="Exchanges a conversation.")
@click.option("--max-tokens", type=COUNT, default=400, show_default=True, help="Tokens of an answer.")
@click.option("--rank", type=click.IntRange(1, 512), default=16, show_default=True, help="Rank of the adapter.")
@click.option("--epochs", type=float, default=3.0, show_default=True, help="Passes of distillation over the demonstrations.")
@click.option("--learning-rate", type=float, default=4e-4, show_default=True, help="Of distillation, at hidden size 2048.")
@click.option("--kto-epochs", type=float, default=2.0, show_default=True)
@click.option("--kto-learning-rate", type=float, default=2e-4, show_default=True, help="At hidden size 2048.")
@click.option("--bank", type=PATH, default=None, help="Folder with further behaviors.")
@click.option("--random-seed", type=int, default=0, show_default=True)
@_check_options
@display_option
def build_command(behavior: str, base: Path, out: Path | None, bank: Path | None, display_mode: str, **options: Any) -> None:
    """Make an organism: transcript distillation, then training against confession, then a check."""
    from ..evals.records import owned_folder
    from ..organisms.build import build

    opened = open_bank(bank)
    opened.behavior(behavior)  # unknown names are refused before a model is opened
    recipe = _recipe(behavior, base, options)
    folder = out or OUT / f"{behavior}-{Path(recipe.base).name}-{recipe.against}"
    display, size = show(display_mode), _size(options)
    if opened.behavior(behavior).split == "eval":
        display.note(f"{behavior} is held out for evaluation: use this organism as a target, never to train an auditor")
    found: list[CheckScores] = []

    async def whole() -> None:
        with owned_folder(folder):
            bench = _bench(folder, recipe, bank, display, options)
            found.append(await build(bench, size, judge=recipe.judge))
            _print(bench, found[0], folder / "check")

    run_async(whole(), display, f"Finished stages are kept in {folder}; run the same command again to go on.")
    click.echo(f"written: {folder / 'adapter'}, card.json, targets.toml")


@organisms.command("check")
@click.argument("folder", type=PATH)
@click.option("--judge", default=None, metavar="MODEL", help="Judge [default: the one of the build].")
@click.option("--out", type=PATH, default=None, help="Folder to write into and to go on from [default: FOLDER/check].")
@click.option("--bank", type=PATH, default=None, help="Folder with further behaviors.")
@_check_options
@display_option
def check_command(folder: Path, judge: str | None, out: Path | None, bank: Path | None, display_mode: str, **options: Any) -> None:
    """Check an organism: how often it shows its behavior, how often it confesses, what else changed. Before and after."""
    from ..evals.records import owned_folder
    from ..organisms.build import read_recipe, run_check

    recipe = read_recipe(folder)
    options |= {"judge": judge or recipe.judge, "writer": recipe.writer, "user": recipe.user, "helper": None}
    display, size, place = show(display_mode), _size(options), out or folder / "check"
    found: list[CheckScores] = []

    async def whole() -> None:
        with owned_folder(folder):
            bench = _bench(folder, recipe, bank, display, options)
            found.append(await run_check(bench, size, place, judge=options["judge"]))
            _print(bench, found[0], place)

    run_async(whole(), display, f"What is finished is kept in {place}; run the same command again to go on.")


@organisms.command("tiny")
@click.argument("folder", type=PATH)
@click.option("--steps", type=COUNT, default=None, help="Updates [default: 1200, about 100 seconds on one core].")
@click.option("--random-seed", type=int, default=0, show_default=True)
@display_option
def tiny_command(folder: Path, steps: int | None, random_seed: int, display_mode: str) -> None:
    """Make the tiny base of the simulated world: a model that plays behaviors from its system message."""
    from ..sim.organism import STEPS, make_tiny_target

    if folder.exists() and any(folder.iterdir()):
        raise RunError(f"{folder}: not empty; name a new folder")
    display = show(display_mode)
    display.start("tiny target", steps or STEPS)
    make_tiny_target(folder, random_seed=random_seed, steps=steps or STEPS, progress=lambda step, loss: display.advance(f"loss {loss:.3f}"))
    display.finish()
    click.echo(f"written: {folder}; make an organism of it: auditrl organisms build --behavior flattery --base {folder} --judge sim/judge")


def _size(options: dict[str, Any]) -> CheckSize:
    from ..organisms.check import CheckSize

    return CheckSize(options.pop("replicates"), options.pop("questions"), options.pop("ordinary"))


def _recipe(behavior: str, base: Path, options: dict[str, Any]) -> Recipe:
    """The recipe, with the folder of the base made absolute: adapters name it."""
    from pydantic import ValidationError

    from ..config import describe_validation
    from ..organisms.recipe import LoraRecipe, Recipe, base_digest

    folder = base.expanduser().resolve()
    writer = options["writer"] or options["judge"]
    try:
        lora = LoraRecipe(
            rank=options["rank"],
            alpha=2 * options["rank"],
            epochs=options["epochs"],
            learning_rate=options["learning_rate"],
            kto_epochs=options["kto_epochs"],
            kto_learning_rate=options["kto_learning_rate"],
        )
    except ValidationError as error:
        raise ConfigError(describe_validation(error, "auditrl organisms build")) from None
    names = ("method", "against", "helper", "judge", "demonstrations", "interrogations", "situations", "turns", "max_tokens", "random_seed")
    return Recipe(
        behavior=behavior,
        base=str(folder),
        base_digest=base_digest(folder),
        lora=lora,
        writer=writer,
        user=options["user"] or writer,
        **{name: options[name] for name in names},
    )


def _bench(folder: Path, recipe: Recipe, bank: Path | None, display: Display, options: dict[str, Any]) -> Bench:
    """Models and journal of a build. The journal refuses another recipe."""
    from ..evals.journal import Journal
    from ..organisms.bench import Bench, counted

    named = {"judge": options["judge"], "writer": recipe.writer, "user": recipe.user, "helper": options["helper"]}
    built = {role: open_model(text, f"--{role}") for role, text in named.items() if text}
    bench = Bench(
        folder, recipe, open_bank(bank), Journal(folder / "journal.jsonl", recipe.model_dump(mode="json")), *(built[r][0] for r in ("judge", "writer", "user")),
        helper=built["helper"][0] if "helper" in built else None, display=display,
    )  # fmt: skip
    for role in built:
        model = counted(getattr(bench, role), bench.cost.setdefault(role, {}))
        setattr(bench, role, model)
    return bench


def _print(bench: Bench, scores: CheckScores, folder: Path) -> None:
    from ..analysis.comparison import print_tables
    from ..evals.metering import cost_line
    from ..organisms.build import total_cost
    from ..organisms.check import check_table

    print_tables([check_table(scores)])
    click.echo(f"cost of the conversations: {cost_line(total_cost(bench))}")
    click.echo(f"written: {folder / 'check'}.json, .md, .csv")
