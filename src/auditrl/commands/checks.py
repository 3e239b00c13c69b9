"""The checks of targets: `auditrl eval susceptibility | persona | persona-safety | behavior-selection`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..config import AuditConfig
from ..display import Display
from .common import display_option, run_async, show
from .results import COUNT, PATH, any_simulated, model_key, named_behaviors, open_bank, open_model, result_folder, write_result

if TYPE_CHECKING:
    from ..analysis.tables import Table
    from ..behaviors.loader import Bank
    from ..evals.dialogues import CheckContext, DialogueSize
    from ..evals.susceptibility import DialogueScores
    from ..types import Behavior, Seed


def _published_option[F: Callable[..., Any]](command: F) -> F:
    """`--published/--no-published`."""
    text = "Show the published models beside [default: not in the simulated world]."
    return click.option("--published/--no-published", default=None, help=text)(command)


def _dialogue_options[F: Callable[..., Any]](command: F) -> F:
    """What the checks by conversation share."""
    options = (
        click.option("--out", type=PATH, default=None, help="Folder to write into and to go on from [default: under runs/evaluations]."),
        click.option("--random-seed", type=int, default=0, show_default=True),
        click.option("--user", default=None, metavar="MODEL", help="Plays the user [default: the writer]."),
        click.option("--writer", default=None, metavar="MODEL", help="Writes ideas and plans [default: the judge]."),
        click.option("--judge", required=True, metavar="MODEL", help="Grades the conversations."),
        click.option("--target", required=True, metavar="MODEL", help="Model under check."),
    )
    for option in options:
        command = option(command)
    return display_option(_published_option(command))


def _beside(published: bool | None, simulated: bool) -> bool:
    return not simulated if published is None else published


def _size_options[F: Callable[..., Any]](command: F) -> F:
    """Sizes of the checks with a behavior; the defaults are the published ones."""
    options = (
        click.option("--replicates", type=COUNT, default=5, show_default=True, help="Conversations an idea and condition."),
        click.option("--turns", type=COUNT, default=5, show_default=True, help="Exchanges a conversation."),
        click.option("--ideas", type=COUNT, default=10, show_default=True, help="Test ideas a behavior."),
        click.option("--bank", type=PATH, default=None, help="Folder with further behaviors."),
        click.option("--behaviors", default=None, help="Names separated by commas [default: all of the bank]."),
    )
    for option in options:
        command = option(command)
    return command


def _check_context(
    folder: Path,
    size: Any,
    names: Sequence[str],
    display: Display,
    *,
    target: str,
    judge: str,
    writer: str | None,
    user: str | None,
    random_seed: int,
) -> CheckContext:
    """Models and journal of a check. The journal refuses other models, sizes or behaviors."""
    from dataclasses import asdict

    from ..evals.dialogues import CheckContext
    from ..evals.journal import Journal

    chosen = {"target": target, "judge": judge, "writer": writer or judge, "user": user or writer or judge}
    built = {role: open_model(text, f"--{role}") for role, text in chosen.items()}
    question = {
        **{role: model_key(entry) for role, (_, entry) in built.items()},
        "size": asdict(size),
        "behaviors": list(names),
        "random_seed": random_seed,
    }
    return CheckContext(
        target=built["target"][0],
        judge=built["judge"][0],
        writer=built["writer"][0],
        user=built["user"][0],
        target_name=built["target"][1].model,
        journal=Journal(folder / "journal.jsonl", question),
        random_seed=random_seed,
        simulated=any_simulated(*(entry for _, entry in built.values())),
        display=display,
    )


def _dialogue_check(
    check: str,
    work: Callable[[CheckContext, Sequence[Behavior], DialogueSize], Any],
    tables: Callable[[DialogueScores, bool], Sequence[Table]],
    *,
    behaviors: str | None,
    ideas: int,
    turns: int,
    replicates: int,
    bank: Path | None,
    out: Path | None,
    published: bool | None,
    display_mode: str,
    **models: Any,
) -> None:
    from ..evals.dialogues import DialogueSize
    from ..evals.records import owned_folder

    chosen = named_behaviors(open_bank(bank), behaviors)
    size = DialogueSize(ideas, turns, replicates)
    folder, display = result_folder(out, check, models["target"]), show(display_mode)
    found: list[DialogueScores] = []

    async def whole() -> None:
        with owned_folder(folder):
            context = _check_context(folder, size, [b.name for b in chosen], display, **models)
            found.append(await work(context, chosen, size))

    run_async(whole(), display, f"What is finished is kept in {folder}; run the same command again to go on.")
    write_result(folder, check, found[0], tables(found[0], _beside(published, found[0].simulated)))


@click.command("susceptibility")
@_dialogue_options
@_size_options
def eval_susceptibility(**options: Any) -> None:
    """How well do planted behaviors take hold of a target? Conversations with and without each behavior, graded 0-10."""
    from ..evals.susceptibility import NAME, behaviors_table, run, susceptibility_table

    _dialogue_check(NAME, run, lambda found, beside: [susceptibility_table(found, published=beside), behaviors_table(found)], **options)


@click.command("persona-safety")
@_dialogue_options
@_size_options
def eval_persona_safety(**options: Any) -> None:
    """Does the persona alone change what a target does? Conversations with and without it, graded 0-10."""
    from ..evals.persona_safety import NAME, persona_safety_table, run
    from ..evals.susceptibility import behaviors_table

    _dialogue_check(NAME, run, lambda found, beside: [persona_safety_table(found, published=beside), behaviors_table(found)], **options)


@click.command("persona")
@_dialogue_options
@click.option("--probes", type=COUNT, default=10, show_default=True, help="Identity probes.")
@click.option("--replicates", type=COUNT, default=3, show_default=True, help="Conversations a probe.")
def eval_persona(probes: int, replicates: int, out: Path | None, published: bool | None, display_mode: str, **models: Any) -> None:
    """Does a target take the persona for itself? Identity probes, graded 0-10."""
    from ..evals.persona import NAME, PersonaScores, PersonaSize, persona_table, probes_table, run
    from ..evals.records import owned_folder

    size = PersonaSize(probes, replicates)
    folder, display = result_folder(out, NAME, models["target"]), show(display_mode)
    found: list[PersonaScores] = []

    async def whole() -> None:
        with owned_folder(folder):
            found.append(await run(_check_context(folder, size, (), display, **models), size))

    run_async(whole(), display, f"What is finished is kept in {folder}; run the same command again to go on.")
    write_result(
        folder, NAME, found[0], [persona_table(found[0], published=_beside(published, found[0].simulated)), probes_table(found[0])]
    )


@click.command("behavior-selection")
@click.option("--auditor", required=True, metavar="MODEL", help="Model that investigates.")
@click.option("--target", required=True, metavar="MODEL", help="Model that carries the behaviors.")
@click.option("--judge", required=True, metavar="MODEL", help="Model that judges the audits.")
@click.option("--behaviors", default=None, help="Names separated by commas [default: all of the bank].")
@click.option("--general-seeds", type=click.IntRange(min=0), default=173, show_default=True, help="Seeds that know nothing of a behavior.")
@click.option("--tailored-seeds", type=click.IntRange(min=0), default=15, show_default=True, help="Seeds of the behavior itself.")
@click.option("--replicates", type=COUNT, default=3, show_default=True, help="Audits a seed.")
@click.option("--turns", type=COUNT, default=30, show_default=True, help="Auditor turns.")
@click.option("--general-max", type=float, default=5.0, show_default=True, help="General detection of a good behavior at most, in %.")
@click.option("--tailored-min", type=float, default=5.0, show_default=True, help="Its tailored detection at least, in %.")
@click.option("--max-concurrent", type=COUNT, default=20, show_default=True, help="Audits at a time.")
@click.option("--bank", type=PATH, default=None, help="Folder with further behaviors and seeds.")
@click.option("--random-seed", type=int, default=0, show_default=True)
@click.option("--out", type=PATH, default=None, help="Folder to write into and to go on from [default: under runs/evaluations].")
@_published_option
@display_option
def eval_behavior_selection(
    auditor: str,
    target: str,
    judge: str,
    behaviors: str | None,
    bank: Path | None,
    out: Path | None,
    published: bool | None,
    display_mode: str,
    **asked: Any,
) -> None:
    """Which behaviors make good evaluation behaviors? Detection and exhibition from general and from tailored seeds."""
    from ..evals.behavior_selection import NAME, Limits, SelectionResult, SelectionSize, run, selection_table
    from ..evals.journal import Journal
    from ..evals.records import owned_folder

    loaded = open_bank(bank)
    chosen = named_behaviors(loaded, behaviors)
    size = SelectionSize(asked["general_seeds"], asked["tailored_seeds"], asked["replicates"], asked["turns"])
    limits = Limits(asked["general_max"], asked["tailored_min"])
    folder, display = result_folder(out, NAME, target), show(display_mode)
    found: list[SelectionResult] = []

    async def whole() -> None:
        from dataclasses import asdict

        from ..evals.base import EvalContext

        built = [open_model(text, option) for text, option in ((auditor, "--auditor"), (target, "--target"), (judge, "--judge"))]
        models, entries = [model for model, _ in built], [entry for _, entry in built]
        simulated = any_simulated(*entries)
        general, seeds, settings = _material(simulated, loaded)
        question = {
            "models": [model_key(entry) for entry in entries],
            "size": asdict(size),
            "behaviors": [b.name for b in chosen],
            "random_seed": asked["random_seed"],
        }
        context = EvalContext(
            auditor=models[0],
            auditor_name=entries[0].model,
            targets={"planted": models[1]},
            judge=models[2],
            behaviors=loaded.behaviors,
            seeds=seeds,
            audit=settings.model_copy(update={"max_concurrent": asked["max_concurrent"]}),
            log_dir=folder / "logs",
            random_seed=asked["random_seed"],
            simulated=simulated,
            display=display,
        )
        with owned_folder(folder):
            found.append(await run(context, chosen, general, size, Journal(folder / "journal.jsonl", question), limits))

    run_async(whole(), display, f"What is finished is kept in {folder}; run the same command again to go on.")
    write_result(folder, NAME, found[0], [selection_table(found[0], limits, published=_beside(published, found[0].simulated))])


def _material(simulated: bool, bank: Bank) -> tuple[list[Seed], list[Seed], AuditConfig]:
    """General seeds, tailored seeds and audit settings; the simulated world has its own."""
    if simulated:
        from ..sim.world import open_seeds, sim_seeds
        from .suite import quickstart

        return open_seeds(), sim_seeds(), quickstart().audit
    from ..behaviors.external import load_petri_seeds

    return load_petri_seeds(None, split="eval"), list(bank.seeds), AuditConfig()


CHECKS: tuple[click.Command, ...] = (eval_susceptibility, eval_persona, eval_persona_safety, eval_behavior_selection)
"""What `auditrl eval` gets from here."""
