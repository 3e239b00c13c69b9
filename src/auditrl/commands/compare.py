"""`auditrl compare` and `auditrl rescore`."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import RunError
from ..evals.scores import Scorecard
from .common import display_option, model_option, run_async, show


@click.command()
@click.argument("evaluations", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--published", is_flag=True, help="Show the published models beside, marked.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Also write tables, figure and report into this folder.")
def compare(evaluations: tuple[Path, ...], published: bool, out: Path | None) -> None:
    """Compare auditors: table, paired differences with Holm's correction, by behavior and sub-score.

    Each of EVALUATIONS is the folder of an evaluation, a scorecard.json, or a run (its evaluation after training). All are compared with the
    first. Seeds that the judge gave no verdict on for one of them are dropped for all.
    """
    from ..analysis.comparison import comparison_tables, print_tables, write_comparison
    from ..analysis.published import frontier

    cards = distinct([read_card(path) for path in evaluations], evaluations)
    rows = frontier() if published else ()
    if out is None:
        print_tables(comparison_tables(cards, rows))
        return
    tables, files = write_comparison(cards, rows, out, title="Comparison")
    print_tables(tables)
    click.echo(f"written: {', '.join(str(path) for path in files)}")


def read_card(path: Path) -> Scorecard:
    """The scorecard of an evaluation folder, a file, or a run. RunError names the mend."""
    tried = [path, path / "scorecard.json", path / "evaluation" / "after" / "scorecard.json"]
    file = next((candidate for candidate in tried if candidate.is_file()), None)
    if file is None:
        what = "no evaluation here" if path.exists() else "no such file or folder"
        raise RunError(f"{path}: {what}; name the folder that `auditrl eval suite` wrote, or a run that was evaluated after training")
    try:
        return Scorecard.from_json(file.read_text(encoding="utf-8"), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{file}: can't be read ({error}); evaluate again") from None


def distinct(cards: list[Scorecard], paths: tuple[Path, ...]) -> list[Scorecard]:
    """Cards whose auditors have different names: equal ones get their path behind them."""
    names = [card.auditor for card in cards]
    return [
        card
        if names.count(card.auditor) == 1
        else Scorecard(f"{card.auditor} [{path}]", card.suites, card.composite, card.simulated, card.meta)
        for card, path in zip(cards, paths, strict=True)
    ]


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--judge", required=True, metavar="MODEL", help="Inspect model that grades the saved audits again.")
@click.option("--bank", type=click.Path(path_type=Path), default=None, help="Folder with further behaviors, if the evaluation used one.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Folder to write into [default: FOLDER/rescored/<judge>].")
@display_option
def rescore(folder: Path, judge: str, bank: Path | None, out: Path | None, display_mode: str) -> None:
    """Score the audits of an evaluation with another judge, and print how far the judges agree. No audit is run."""
    from ..analysis.comparison import agreement_table, print_tables
    from ..analysis.tables import score_table
    from ..behaviors.loader import load_bank
    from ..evals.auditors import safe_name
    from ..evals.metering import cost_line
    from ..evals.rescore import Rescored, rescore_folder
    from ..models import build_model

    model = build_model(model_option(judge, "--judge"), "--judge")
    place = out or folder / "rescored" / safe_name(judge)
    display = show(display_mode)
    done: list[Rescored] = []

    async def work() -> None:
        done.append(await rescore_folder(folder, model, load_bank(bank).behaviors, place, display))

    run_async(work(), display, f"Verdicts are kept in {place}; run the same command again to go on.")
    found = done[0]
    print_tables(
        [
            score_table(distinct([found.before, found.after], (folder, place)), title="Two judges, the same audits"),
            agreement_table(found.agreement),
        ]
    )
    click.echo(f"tokens: {cost_line(found.after.meta['cost']) or 'none'}")
    click.echo(f"written: {place / 'scorecard.json'}")
