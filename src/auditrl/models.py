"""Inspect models from config entries."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from .config import LIMITS, ModelConfig, RunConfig
from .errors import ConfigError
from .faults import dependable, role_of

if TYPE_CHECKING:
    from inspect_ai.model import GenerateConfig, Model

OWN_KEYS = (*LIMITS, "temperature", "max_tokens")
"""Fields of Inspect's `GenerateConfig` that a model entry has as keys of its own."""
REFUSED = {
    "cache": "equal inputs would give equal audits and verdicts, and a group would hold one audit many times",
    "response_schema": "every judge sets its own",
    "num_choices": "one answer a call is read",
}
"""Fields that no role can be given, and why."""


def build_model(entry: ModelConfig, key: str) -> Model:
    """The Inspect model of a config entry. ConfigError names the key, what Inspect said, and the mend.

    `args` go to the provider as they are. Calls share Inspect's retries and rate limiting; the limit on calls at a time belongs to the
    model and its key, so roles that name the same model share it, and the first one that is called sets it.
    """
    from inspect_ai.model import get_model

    settings = generate_config(entry, key)
    try:
        model = get_model(entry.model, config=settings, base_url=entry.base_url, memoize=False, **entry.args)
        return dependable(model, role_of(key), keep_client="max_retries" in entry.args)
    except ConfigError:
        raise
    except Exception as error:  # providers raise what they like: missing package, key, model
        raise ConfigError(
            f"{key}.model = {entry.model!r}: {type(error).__name__}: {error}. "
            "Name a model as `provider/name` that Inspect knows, with its key in the environment and its package installed"
        ) from None


def generate_config(entry: ModelConfig, key: str) -> GenerateConfig:
    """Settings of a model entry as Inspect takes them.

    Raises:
        ConfigError: `config` holds a field that Inspect does not know, a value that it does not take, a field with a key of its own, or
            one that would spoil the run.
    """
    from inspect_ai.model import GenerateConfig
    from pydantic import ValidationError

    for name in entry.config:
        where = f"{key}.config.{name}"
        if name in OWN_KEYS:
            raise ConfigError(f"{where}: has a key of its own; set {key}.{name}")
        if name in REFUSED:
            raise ConfigError(f"{where}: {REFUSED[name]}; remove it")
        if name not in GenerateConfig.model_fields:
            close = difflib.get_close_matches(name, GenerateConfig.model_fields, n=1)
            hint = f"did you mean {close[0]!r}?" if close else "`args` is for the provider's own arguments"
            raise ConfigError(f"{where}: Inspect's GenerateConfig has no such field; {hint}")
    own = {name: value for name in OWN_KEYS if (value := getattr(entry, name)) is not None}
    try:
        return GenerateConfig(**entry.config, **own)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ConfigError(f"{key}.config.{'.'.join(map(str, first['loc']))}: {first['msg']} (given: {first['input']!r})") from None


def models_of(config: RunConfig) -> dict[str, ModelConfig]:
    """Every model entry that a run would open, by its key."""
    settings, targets = config.evaluation, config.targets
    named = {f"targets.pool.{key}": entry for key, entry in sorted(targets.pool.items())}
    named |= {key: entry for key, entry in (("targets.clean", targets.clean), ("realism", config.realism)) if entry is not None}
    named["judge"] = config.judge
    if settings.profile != "off":
        for role in ("target", "clean_target", "production_target", "judge"):
            entry = getattr(settings, role)
            if entry is not None:
                named[f"evaluation.{role}"] = entry
    return named


def check_limits(config: RunConfig) -> None:
    """Refuse two limits on the calls at a time for one model: only the first would count, also where their servers differ.

    Raises:
        ConfigError: Two keys name the same model with different limits.
    """
    seen: dict[str, tuple[str, ModelConfig]] = {}
    for key, entry in models_of(config).items():
        other, first = seen.setdefault(entry.model, (key, entry))
        for limit in ("max_connections", "adaptive_connections"):
            here, there = getattr(entry, limit), getattr(first, limit)
            if here is not None and there is not None and here != there:
                raise ConfigError(
                    f"{key}.{limit} = {here}, but {other}.{limit} = {there}: both are {entry.model} and share its connections; "
                    "give them the same limit"
                )
