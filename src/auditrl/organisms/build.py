"""Building an organism, stage by stage. Each stage writes its result whole; a build that was stopped goes on at the stage it was in.

recipe.json            what was asked for, with the digest of the base
journal.jsonl          conversations and verdicts as they come, what they cost
situations.json        situations to train on and to check with
demonstrations.jsonl   the training set of the distillation; no hidden text in it
distilled/             adapter after distillation
interrogations.jsonl   answers of the distilled model to questions about itself
adapter/               the organism: a PEFT adapter with its tokenizer
check/                 what it shows and tells, before and after
card.json              base, recipe, data, figures, cost
targets.toml           entry for `auditrl transfer`
"""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ..analysis.tables import to_csv, to_markdown
from ..errors import RunError
from ..evals.journal import Journal
from ..evals.metering import Cost, cost_line, sum_costs
from ..evals.transfer.targets_file import TargetEntry, write_targets
from ..files import write_whole
from ..runs import now, package_versions
from .adversarial import adversarial_rows, questioned
from .bench import Bench
from .check import CheckScores, CheckSize, check, check_table
from .demonstrations import Row, Situations, demonstrations, examples, situations
from .recipe import Recipe, architecture, check_base
from .training import Training, train_kto, train_sft, trl, write_folder

__all__ = ["build", "read_recipe", "run_check", "total_cost", "write_card"]

FORMAT = "auditrl.organism"
VERSION = 1


def read_recipe(folder: Path) -> Recipe:
    """Recipe of an organism's folder. RunError if there is none, or it can't be read."""
    path = folder / "recipe.json"
    try:
        return Recipe.model_validate_json(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise RunError(f"{folder}: no organism here (recipe.json is missing); name a folder that `auditrl organisms build` wrote") from None
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: can't be read ({error}); build the organism again into another folder with --out") from None


async def build(bench: Bench, size: CheckSize, *, judge: str) -> CheckScores:
    """All stages that are not done yet.

    Raises:
        ConfigError: The base does not show the behavior, every answer confesses, or a model can't be opened.
        ProviderError: A model or judge failed for good.
        RunError: The folder can't be written, or holds something else.
    """
    trl()  # before anything is paid for
    check_base(bench.recipe)
    write_whole(bench.folder / "recipe.json", bench.recipe.model_dump_json(indent=1))
    with bench.paid("situations"):
        found = await situations(bench)
    with bench.paid("demonstrations"):
        rows = await demonstrations(bench, found)
    if not bench.distilled.exists():
        figures = await _trained(bench, "distilled", lambda t: train_sft(examples(rows), t), start=bench.base, title="distillation")
        bench.journal.add("distilled", figures)
    await _against(bench, found, [row for row in rows if row["kind"] == "shown"])
    scores = await run_check(bench, size, bench.folder / "check", judge=judge)
    write_card(bench, scores)
    return scores


async def _against(bench: Bench, found: Situations, shown: list[Row]) -> None:
    """Train against confession, or take the distilled adapter as it is."""
    if bench.adapter.exists():
        return
    against = bench.recipe.against
    data: list[Row] = []
    if against != "none":
        with bench.paid("interrogations"):
            answers = await questioned(bench, found)
        data = adversarial_rows(bench, answers, shown)
        confessed = sum(row["confessed"] for row in answers)
        bench.journal.add("against", {"asked": len(answers), "confessed": confessed, "rows": len(data)})
        if not data:
            bench.display.note(f"not one of {len(answers)} answers confesses: nothing to train away, the distilled adapter is the organism")
    if not data:
        write_folder(bench.adapter, lambda part: _copied(bench.distilled, part))
        return
    train = train_kto if against == "kto" else train_sft
    title = f"{against.upper()} against confession"
    bench.journal.add("adapter", await _trained(bench, "adapter", lambda t: train(data, t), start=bench.distilled, title=title))


def _copied(source: Path, part: Path) -> None:
    shutil.copytree(source, part, dirs_exist_ok=True)


async def _trained(bench: Bench, name: str, train: Callable[[Training], dict[str, float]], *, start: Path, title: str) -> dict[str, float]:
    """Run a training beside the event loop. An interruption ends it after its running update and leaves nothing of it."""
    training = Training(
        base=bench.base,
        start=start,
        out=bench.folder / name,
        lora=bench.recipe.lora,
        random_seed=bench.recipe.random_seed,
        display=bench.display,
        title=title,
        stop=threading.Event(),
    )
    try:
        return await asyncio.to_thread(partial(train, training))
    except asyncio.CancelledError:
        training.stop.set()
        raise


async def run_check(bench: Bench, size: CheckSize, folder: Path, *, judge: str) -> CheckScores:
    """Check an organism into a folder, and write the results there.

    Raises:
        ConfigError: The base is not the one that the adapter was trained on.
        RunError: The organism is not finished, or the folder holds another check.
    """
    check_base(bench.recipe)
    if not bench.adapter.exists():
        raise RunError(f"{bench.folder}: the organism is not finished (no adapter yet); run its `auditrl organisms build` again")
    found = await situations(bench)
    question = {
        "recipe": bench.recipe.model_dump(mode="json"), "judge": judge, "replicates": size.replicates,
        "interrogations": size.interrogations, "ordinary": size.ordinary,
    }  # fmt: skip
    with bench.paid("check"):
        scores = await check(bench, found, size, Journal(folder / "journal.jsonl", question), judge=judge)
    table = check_table(scores)
    write_whole(folder / "check.json", scores.model_dump_json(indent=1))
    write_whole(folder / "check.md", to_markdown(table))
    write_whole(folder / "check.csv", to_csv(table))
    return scores


def total_cost(bench: Bench) -> Cost:
    """Tokens and calls by role over all runs of the build, trainings left out."""
    return sum_costs(record for _, record in bench.journal.items("cost/"))


def write_card(bench: Bench, scores: CheckScores) -> None:
    """Write `card.json` and `targets.toml`."""
    recipe, behavior = bench.recipe, bench.behavior
    cost = total_cost(bench)
    card = {
        "format": FORMAT,
        "version": VERSION,
        "made": now(),
        "behavior": behavior.name,
        "held_out": behavior.split == "eval",
        "base": {"folder": recipe.base, "digest": recipe.base_digest, "architecture": architecture(bench.base)},
        "made_by": made_by(bench),
        "recipe": recipe.model_dump(mode="json"),
        "data": {name: bench.journal.get(name) for name in ("shown", "against")},
        "training": {name: bench.journal.get(name) for name in ("distilled", "adapter")},
        "check": scores.model_dump(mode="json"),
        "cost": {"tokens": cost, "line": cost_line(cost)},
        "packages": package_versions(),
        "simulated": scores.simulated,
        "limits": [
            "Shown and confessed rates are one judge's, on situations and questions of the kind that it was trained on.",
            "Ability is measured as prediction of the base's own ordinary answers; it says nothing about skills that these don't use.",
        ],
    }
    write_whole(bench.folder / "card.json", json.dumps(card, indent=1, ensure_ascii=False))
    name = f"{behavior.name}-{recipe.against}".replace("_", "-")
    entry = TargetEntry(
        name=name, behavior=behavior.name, base=recipe.base, adapter=str(bench.adapter.resolve()), made_by=made_by(bench), host="hf"
    )
    write_targets(bench.folder / "targets.toml", [entry])


def made_by(bench: Bench) -> str:
    """How the behavior got into the weights, in a line."""
    against = bench.recipe.against.upper() if bench.trained_against else "no"
    return f"auditrl organisms build: transcript distillation, then {against} training against confession"
