"""`auditrl crux build` and `auditrl eval crux`."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..display import Display
from .common import display_option, model_option, run_async, show
from .results import COUNT, PATH, any_simulated, model_key, open_bank, open_model, result_folder, write_result

if TYPE_CHECKING:
    from ..behaviors.loader import Bank
    from ..config import AuditConfig, ModelConfig
    from ..evals.auditors import AuditorEntry, RunReference
    from ..evals.crux_bank import CruxBank, Sources
    from ..runs import Run


@click.group()
def crux() -> None:
    """Find the moments of recorded audits at which one decision counted."""


@crux.command()
@click.option("--from", "source", type=PATH, required=True, help="Folder of an evaluation or of a run, or one *audits.jsonl file.")
@click.option("--out", type=PATH, required=True, help="File to write.")
@click.option("--judge", required=True, metavar="MODEL", help="Strong model that accepts audits and names their decisive turn.")
@click.option("--count", type=COUNT, default=75, show_default=True, help="Cruxes to choose.")
@click.option("--per-behavior", type=click.IntRange(min=0), default=2, show_default=True, help="Cruxes of each behavior at least.")
@click.option("--limit", type=COUNT, default=None, help="Look at the first so many audits only.")
@click.option("--bank", type=PATH, default=None, help="Folder with further behaviors.")
@click.option("--random-seed", type=int, default=0, show_default=True)
@display_option
def build(source: Path, out: Path, judge: str, display_mode: str, bank: Path | None, **numbers: Any) -> None:
    """Choose cruxes for `auditrl eval crux`. Can be stopped and run again: no judgement is asked for twice."""
    from ..evals.crux_bank import read_sources, short_of

    display = show(display_mode)
    sources = read_sources(source)
    made: list[CruxBank] = []
    run_async(_build(sources, out, judge, open_bank(bank), display, made, **numbers), display, "Run the same command again to go on.")
    made[0].save(out)
    for name, number in made[0].counts.items():
        click.echo(f"{name.replace('_', ' '):16} {number:5d}")
    behaviors = {crux.behavior for crux in made[0].cruxes}
    click.echo(f"{out}: {len(made[0].cruxes)} cruxes of {len(behaviors)} behaviors")
    short = short_of(made[0], numbers["per_behavior"])
    if short:
        click.echo(f"fewer than {numbers['per_behavior']} cruxes: {', '.join(short)}; more source audits would help")


async def _build(
    sources: Sources,
    out: Path,
    judge: str,
    bank: Bank,
    display: Display,
    made: list[CruxBank],
    *,
    count: int,
    per_behavior: int,
    limit: int | None,
    random_seed: int,
) -> None:
    from ..evals.base import EvalContext
    from ..evals.crux import restorable_bank
    from ..evals.crux_bank import find_cruxes, make_bank
    from ..evals.journal import Journal

    model, entry = open_model(judge, "--judge")
    kept = replace(sources, audits=sources.audits[:limit])
    journal = Journal(out.with_name(f".{out.name}.journal.jsonl"), {"judge": model_key(entry)})
    display.start("cruxes: judging", len(kept.audits))
    candidates, drops = await find_cruxes(kept, model, bank.behaviors, journal, on_audit=display.advance)
    display.finish()
    make = partial(make_bank, sources=kept, count=count, per_behavior=per_behavior, random_seed=random_seed, judge=entry.model)
    with tempfile.TemporaryDirectory() as logs:
        # the replays ask no model, so any will do
        context = EvalContext(model, "replay", {"planted": model}, model, bank.behaviors, (), kept.settings, Path(logs), display=display)
        made.append(await restorable_bank(context, candidates, drops, make))


@click.command("crux")
@click.option("--auditor", required=True, metavar="MODEL", help="Inspect model, run folder, or run@step.")
@click.option("--cruxes", type=PATH, required=True, help="File of `auditrl crux build`.")
@click.option("--target", required=True, metavar="MODEL", help="Model that carries the behaviors.")
@click.option("--judge", required=True, metavar="MODEL", help="Model that judges the continuations.")
@click.option("--base", default=None, metavar="MODEL", help="Auditor to compare with, say run@0; without it no pairwise features.")
@click.option("--turns", type=COUNT, default=5, show_default=True, help="Live turns behind each restored state.")
@click.option("--replicates", type=COUNT, default=10, show_default=True, help="Continuations of each crux.")
@click.option("--max-concurrent", type=COUNT, default=None, help="Audits at a time [default: 20; 64 for runs and simulated auditors].")
@click.option("--bank", type=PATH, default=None, help="Folder with further behaviors.")
@click.option("--random-seed", type=int, default=0, show_default=True)
@click.option("--allow-leak", is_flag=True, help="Also where the auditor's run trained on behaviors or targets of the cruxes; marked.")
@click.option("--out", type=PATH, default=None, help="Folder to write into and to go on from [default: under runs/evaluations].")
@display_option
def eval_crux(auditor: str, cruxes: Path, out: Path | None, display_mode: str, **asked: Any) -> None:
    """Restore saved moments of audits, let the auditor play on, and judge (a fast proxy for the suite).

    Can be stopped and run again: finished audits and judgements are not made twice.
    """
    from ..evals.crux import CruxResult, crux_table
    from ..evals.crux_bank import load_cruxes

    display = show(display_mode)
    bank = load_cruxes(cruxes)
    folder = result_folder(out, "crux", auditor)
    results: list[CruxResult] = []
    run_async(_play(auditor, bank, folder, display, results, **asked), display, f"What is finished is kept in {folder}.")
    write_result(folder, "crux", results[0], [crux_table(results[0])])


async def _play(
    auditor: str,
    cruxes: CruxBank,
    folder: Path,
    display: Display,
    results: list[Any],
    *,
    target: str,
    judge: str,
    base: str | None,
    turns: int,
    replicates: int,
    max_concurrent: int | None,
    bank: Path | None,
    random_seed: int,
    allow_leak: bool,
) -> None:
    from ..evals.base import EvalContext
    from ..evals.crux import base_continuations, check_replays, crux_features, refuse_differences
    from ..evals.journal import Journal
    from ..evals.records import owned_folder
    from .suite import opened

    player = _player(auditor, "--auditor")
    other = _player(base, "--base") if base is not None else None
    (target_model, target_entry), (judge_model, judge_entry) = open_model(target, "--target"), open_model(judge, "--judge")
    context = EvalContext(
        auditor=judge_model,
        auditor_name=player.entry.name,
        targets={"planted": target_model},
        judge=judge_model,
        behaviors=open_bank(bank).behaviors,
        seeds=(),
        audit=player.settings(cruxes, max_concurrent),
        log_dir=folder / "logs",
        random_seed=random_seed,
        simulated=any_simulated(target_entry, judge_entry),
        leaks=_leaks(player, cruxes, target_entry, allow_leak),
        display=display,
    )
    question = {
        "auditor": model_key(player.entry),
        "target": model_key(target_entry),
        "judge": model_key(judge_entry),
        "base": model_key(other.entry) if other is not None else None,
        "cruxes": [f"{crux.id}@{crux.turn}" for crux in cruxes.cruxes],
        "turns": turns,
        "replicates": replicates,
        "random_seed": random_seed,
    }
    with owned_folder(folder):
        journal = Journal(folder / "crux.journal.jsonl", question)
        refuse_differences(await check_replays(context, cruxes))
        continuations = None
        if other is not None:
            theirs = replace(context, audit=other.settings(cruxes, max_concurrent), auditor_name=other.entry.name)
            async with opened(theirs, other.entry, other.reference, other.run) as ready:
                continuations = await base_continuations(ready, cruxes, live_turns=turns, journal=journal)
        async with opened(context, player.entry, player.reference, player.run) as ready:
            result = await crux_features(
                ready,
                cruxes,
                base=continuations,
                base_name=other.entry.name if other is not None else None,
                live_turns=turns,
                replicates=replicates,
                journal=journal,
            )
    results.append(result)


@dataclass(frozen=True, slots=True)
class _Player:
    """An auditor as it was named: a model, or a checkpoint of a run."""

    entry: AuditorEntry
    reference: RunReference | None
    run: Run | None

    def settings(self, cruxes: CruxBank, max_concurrent: int | None) -> AuditConfig:
        """Its run's audit settings, else those of the source audits."""
        from .suite import API_CONCURRENCY, LOCAL_CONCURRENCY

        settings = self.run.config.audit if self.run is not None else cruxes.audit
        local = self.run is not None or any_simulated(self.entry)
        return settings.model_copy(update={"max_concurrent": max_concurrent or (LOCAL_CONCURRENCY if local else API_CONCURRENCY)})


def _player(text: str, option: str) -> _Player:
    from ..evals.auditors import AuditorEntry, run_reference
    from ..runs import open_run

    entry = AuditorEntry.model_validate(model_option(text, option).model_dump())
    reference = run_reference(entry.model)
    return _Player(entry, reference, open_run(reference.path) if reference is not None else None)


def _leaks(player: _Player, cruxes: CruxBank, target: ModelConfig, allow: bool) -> list[str]:
    """The held-out guard: refuse what the auditor's run trained on, or say it."""
    if player.run is None:
        return []
    from ..evals.guard import check_held_out, leaks
    from ..train.evaluation import trained_on

    seeds = [crux.audit.scenario.seed for crux in cruxes.cruxes]
    found = leaks(trained_on(player.run.config), [crux.behavior for crux in cruxes.cruxes], seeds, {"--target": target})
    return check_held_out(found, player.run.config.name, allow=allow)
