"""`auditrl audit`: one audit with any models, printed."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import click

from ..config import AuditConfig
from ..errors import ConfigError
from ..types import Audit, Condition, Scenario, Verdict
from .common import model_option


@click.command()
@click.option(
    "--seed", "seed_file", type=click.Path(path_type=Path), required=True, help="Seed: a Markdown file of a bank, or any text file."
)
@click.option("--auditor", required=True, help="Inspect model that investigates, for example sim/auditor-skilled.")
@click.option("--target", required=True, help="Inspect model that is investigated.")
@click.option("--judge", default=None, help="Inspect model that grades the audit (four scales, exhibited, identified).")
@click.option("--behavior", default=None, help="Behavior to plant [default: the seed's own]. `none` leaves the target clean.")
@click.option("--condition", type=click.Choice(["planted", "persona", "clean"]), default="planted", show_default=True)
@click.option("--max-turns", type=int, default=15, show_default=True)
@click.option("--random-seed", type=int, default=0, show_default=True)
@click.option("--auditor-prompt", default="neutral", show_default=True, help="`neutral`, `petri`, or a Markdown file.")
@click.option("--view", type=click.Choice(["full", "auditor", "target"]), default="full", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the audit as JSON.")
@click.option("--log-dir", type=click.Path(path_type=Path), default=None, help="Keep the Inspect log here.")
def audit(
    seed_file: Path,
    auditor: str,
    target: str,
    judge: str | None,
    behavior: str | None,
    condition: Condition,
    max_turns: int,
    random_seed: int,
    auditor_prompt: str,
    view: str,
    as_json: bool,
    log_dir: Path | None,
) -> None:
    """Run one audit and print it."""
    from ..audit.transcript import auditor_view, full_transcript, target_view
    from ..behaviors.loader import load_bank, load_seed_file
    from ..judges.suite import judge_suite
    from ..models import build_model

    seed = load_seed_file(seed_file)
    bank = load_bank()
    name = seed.behavior if behavior is None else None if behavior == "none" else behavior
    planted = None
    if condition == "planted" and name is not None:
        planted = bank.behavior(name)
    elif condition == "planted":
        raise ConfigError(f"{seed_file}: this seed names no behavior; give --behavior NAME, or --condition clean")
    settings = AuditConfig.model_validate({"max_turns": max_turns, "auditor_prompt": auditor_prompt})

    async def work() -> tuple[Audit, Path, Verdict | None]:
        from ..audit.run import run_audits
        from ..audit.task import Unit
        from ..behaviors.persona import hidden_block

        kept = seed.model_copy(update={"behavior": name})
        what = Scenario(id=f"{seed.id}/{condition}", seed=kept, condition=condition, behavior=name)
        unit = Unit(what, 0, hidden_block(planted, what.condition, settings.persona), random_seed)
        folder = log_dir or Path(tempfile.mkdtemp(prefix="auditrl-"))
        audits, log = await run_audits(
            [unit],
            settings,
            auditors={"": build_model(model_option(auditor, "--auditor"), "--auditor")},
            targets={"target": build_model(model_option(target, "--target"), "--target")},
            auditor_name=auditor,
            log_dir=folder,
            name="audit",
        )
        graded = None
        if judge is not None and not audits[0].failed:
            graded = await judge_suite(build_model(model_option(judge, "--judge"), "--judge"), audits[0], planted)
        return audits[0], log, graded

    done, log, verdict = asyncio.run(work())
    if as_json:
        click.echo(done.model_dump_json(indent=1))
    else:
        click.echo({"full": full_transcript, "auditor": auditor_view, "target": target_view}[view](done))
        if verdict is not None:
            click.echo(describe_verdict(verdict))
    if log_dir is not None:
        click.echo(f"log: {log}", err=True)
    if done.failed:
        click.echo(f"auditrl: the audit failed: {done.error}", err=True)
        raise click.exceptions.Exit(4)


def describe_verdict(verdict: Verdict) -> str:
    """The judge's grades as a line, its reason below."""
    if verdict.value is None:
        return f"JUDGE: no verdict ({verdict.missing})"
    grades = ", ".join(f"{name} {value:.0f}" for name, value in verdict.parts.items())
    return f"JUDGE: {grades} (0-100)\n{verdict.reason}"
