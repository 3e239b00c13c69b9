"""Inspect models from config entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .config import ModelConfig
from .errors import ConfigError

if TYPE_CHECKING:
    from inspect_ai.model import Model


def build_model(entry: ModelConfig, key: str) -> Model:
    """The Inspect model of a config entry. ConfigError names the key, what Inspect said, and the mend.

    `args` go to the provider as they are; every call of a role shares the provider's retries, rate limits and connection limit.
    """
    from inspect_ai.model import GenerateConfig, get_model

    settings = GenerateConfig(temperature=entry.temperature, max_tokens=entry.max_tokens, max_connections=entry.max_connections)
    try:
        return get_model(entry.model, config=settings, base_url=entry.base_url, memoize=False, **entry.args)
    except ConfigError:
        raise
    except Exception as error:  # providers raise what they like: missing package, key, model
        raise ConfigError(
            f"{key}.model = {entry.model!r}: {type(error).__name__}: {error}. "
            "Name a model as `provider/name` that Inspect knows, with its key in the environment and its package installed"
        ) from None
