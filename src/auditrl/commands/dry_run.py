"""`auditrl train CONFIG --dry-run`: what would run, without a call, a key or a run directory."""

from __future__ import annotations

import click

from ..config import ModelConfig, RunConfig
from ..errors import ConfigError


def show_plan(config: RunConfig) -> None:
    """Print scenarios, first batch, models and price.

    Raises:
        ConfigError: Anything that the run would refuse, except a key or a provider's package that is missing here: that is a warning.
    """
    from ..train.budget import Tariff, check_prices
    from ..train.quote import check_caps, quote
    from .estimate import show_quote

    for line in (*scenario_lines(config), *model_lines(config)):
        click.echo(line)
    found = quote(config)
    show_quote(config, found)
    check_prices(Tariff.load(config))
    check_caps(config, found)
    click.echo("Nothing was run.")


def scenario_lines(config: RunConfig) -> list[str]:
    """How many scenarios there are, and those of the first batch."""
    from ..train.batch import draw_batch, split_held_back, training_seeds
    from ..train.workshop import bank_for, check_run

    check_run(config)
    behaviors, found = bank_for(config)
    seeds, held_back = split_held_back(training_seeds(config, list(behaviors.values()), found))
    names = {seed.behavior for seed in seeds}
    train = config.train
    batch = draw_batch(config, seeds, 0)
    return [
        f"{config.name}: {len(seeds)} seeds of {len(names)} behaviors, {len(held_back)} more held back for the probe",
        f"{train.steps} steps of {train.groups} scenarios x {train.group_size} audits of {config.audit.max_turns} turns; "
        f"an epoch is {len(seeds) / train.groups:.0f} steps",
        "First batch:",
        *(f"  {one.condition:<8} {one.seed.id} on {one.target}" for one in batch),
    ]


def model_lines(config: RunConfig) -> list[str]:
    """Models by role; one that can't be opened here for want of a key or a package is marked."""
    from ..models import check_limits, models_of

    check_limits(config)
    found = [f"Models: policy {config.policy.model} ({config.policy.method}, {config.policy.place})"]
    warnings: list[str] = []
    for key, entry in models_of(config).items():
        found.append(f"  {key}: {entry.model}")
        problem = missing_here(entry, key)
        if problem:
            warnings.append(f"warning: {problem}")
    return [*found, *dict.fromkeys(warnings)]


def missing_here(entry: ModelConfig, key: str) -> str | None:
    """Why a model can't be opened on this machine, if it is for want of a key or a package. ConfigError for anything else."""
    from ..models import build_model

    try:
        build_model(entry, key)
    except ConfigError as error:
        # Inspect's own word for what has to be there first
        if "PrerequisiteError" not in str(error):
            raise
        provider = entry.model.partition("/")[0]
        return f"{provider}: its key or its package is missing here; set the key in the environment and install the package before the run"
    return None
