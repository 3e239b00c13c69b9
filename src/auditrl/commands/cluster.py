"""`auditrl cluster`: what strategies do these audits follow, and how does that change over training?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import ConfigError
from .common import display_option, run_async, show
from .results import COUNT, PATH, model_key, open_bank, open_model

if TYPE_CHECKING:
    from inspect_ai.model import Model

    from ..analysis.clustering.codebook import Codebook
    from ..analysis.clustering.results import Results
    from ..display import Display
    from ..evals.journal import Journal

STRATEGIES = "strategies"


@click.command()
@click.argument("sources", nargs=-1, required=True, type=PATH)
@click.option("--out", type=PATH, default=None, help="Folder to write into [default: RUN/strategies of one run, else runs/strategies].")
@click.option("--k", type=COUNT, default=None, help="Clusters at the bottom [default: about a hundredth of the audits, at least 12].")
@click.option("--levels", type=COUNT, default=3, show_default=True, help="Levels of clusters, sizes in equal ratios.")
@click.option("--top", type=COUNT, default=None, help="Clusters at the top [default: 14, fewer for few audits].")
@click.option("--sample", type=COUNT, default=None, help="Find the clusters in so many audits; all are classified.")
@click.option("--describer", default="rule", show_default=True, metavar="rule|MODEL", help="Who describes an audit's strategy.")
@click.option("--embedding", default="tfidf", show_default=True, metavar="tfidf|minilm|openai:MODEL", help="What makes vectors of texts.")
@click.option("--namer", default="terms", show_default=True, metavar="terms|MODEL", help="Who names clusters and places them.")
@click.option("--categories", type=PATH, default=None, help="Edited categories.toml.")
@click.option("--codebook", type=PATH, default=None, help="Classify with this codebook instead of making one.")
@click.option("--stability", type=click.IntRange(min=0), default=3, show_default=True, help="Refits with other random seeds.")
@click.option("--max-concurrent", type=COUNT, default=20, show_default=True, help="Model calls at a time.")
@click.option("--bank", type=PATH, default=None, help="Folder with further behaviors.")
@click.option("--random-seed", type=int, default=0, show_default=True)
@display_option
def cluster(sources: tuple[Path, ...], out: Path | None, display_mode: str, **asked: Any) -> None:
    """Turn audits into a codebook of strategies and show the composition over training.

    SOURCES are runs, folders of evaluations, .jsonl files with one audit a line, or .eval logs. What a describing model writes is kept: run
    the same command again to go on.
    """
    from ..analysis.clustering.results import write_results
    from ..analysis.comparison import print_tables

    display = show(display_mode)
    folder = out or _default_folder(sources)
    done: list[Results] = []
    run_async(_work(sources, folder, display, done, _Asked(**asked)), display, f"Descriptions that a model wrote are kept in {folder}.")
    files = write_results(done[0], folder)
    print_tables(done[0].tables())
    click.echo(f"written: {folder}: {', '.join(path.name for path in files)}")


@dataclass(frozen=True, slots=True)
class _Asked:
    """Options as they were given."""

    k: int | None
    levels: int
    top: int | None
    sample: int | None
    describer: str
    embedding: str
    namer: str
    categories: Path | None
    codebook: Path | None
    stability: int
    max_concurrent: int
    bank: Path | None
    random_seed: int


def _default_folder(sources: tuple[Path, ...]) -> Path:
    single = sources[0] if len(sources) == 1 else None
    return single / STRATEGIES if single is not None and (single / "run.json").exists() else Path("runs") / STRATEGIES


async def _work(sources: tuple[Path, ...], folder: Path, display: Display, done: list[Results], asked: _Asked) -> None:
    from ..analysis.clustering.categories import load_categories
    from ..analysis.clustering.codebook import load_codebook
    from ..analysis.clustering.composition import place
    from ..analysis.clustering.embed import open_embedder
    from ..analysis.clustering.pipeline import Plan, describe_sources, make_codebook, recategorised
    from ..analysis.clustering.quality import measure
    from ..analysis.clustering.results import Results
    from ..analysis.clustering.sources import Skipped, read_audits

    categories = load_categories(asked.categories)
    book = load_codebook(asked.codebook) if asked.codebook else None
    if book is not None and asked.categories is not None:
        book = recategorised(book, categories)
    describing, describer = _describer(asked, book)
    # opened before anything is paid for: a missing package must not be found out afterwards
    embedder = book.embedder(folder / "cache") if book is not None else open_embedder(asked.embedding, folder / "cache")
    namer = None if asked.namer == "terms" or book is not None else open_model(asked.namer, "--namer")[0]
    skipped = Skipped()
    material = await describe_sources(
        read_audits(sources, skipped),
        # only a model needs to be told what it must not say
        open_bank(asked.bank).behaviors if describing is not None or namer is not None else {},
        describing,
        display,
        journal=_journal(folder, describing, describer),
        max_concurrent=asked.max_concurrent,
        skipped=skipped,
        keep_bans=namer is not None,
    )
    if not material.items:
        raise ConfigError("cluster: no finished audit with a description in the sources; nothing to cluster")
    if book is not None:
        placed = place(material.items, book, embedder)
        done.append(Results(book, categories, placed, material.notes()))
        return
    plan = Plan(asked.k, asked.levels, asked.top, asked.sample, asked.random_seed, describer, asked.namer)
    made = await make_codebook(material, embedder, categories, plan, display, namer=namer, max_concurrent=asked.max_concurrent)
    placed = place(material.items, made.codebook, embedder)
    done.append(
        Results(made.codebook, categories, placed, [*material.notes(), *made.notes], measure(made, placed, repeats=asked.stability))
    )


def _describer(asked: _Asked, book: Codebook | None) -> tuple[Model | None, str]:
    """The describing model (None: by rule) and the name under which a codebook remembers it."""
    from ..analysis.clustering.describe import RULE

    if asked.describer == RULE:
        model, name = None, RULE
    else:
        opened, entry = open_model(asked.describer, "--describer")
        model, name = opened, model_key(entry)
    if book is not None and book.describer != name:
        raise ConfigError(
            f"--codebook {asked.codebook}: its transcripts were described by {book.describer}, these would be by {name}; "
            f"give --describer {book.describer.partition('#')[0]}"
        )
    return model, name


def _journal(folder: Path, model: Model | None, describer: str) -> Journal | None:
    """Where a model's descriptions are kept; none are for the rule, which is quicker than reading them."""
    from ..analysis.clustering.pipeline import prompt_digest
    from ..evals.journal import Journal

    question = {"describer": describer, "prompt": prompt_digest()}
    return Journal(folder / "descriptions.jsonl", question) if model is not None else None
