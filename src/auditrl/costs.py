"""Prices of models, and what counted tokens cost.

A price comes from the file that `budget.prices` names, else from the file of Inspect's `INSPECT_EVAL_MODEL_COST_CONFIG`, else from what was
registered with Inspect's `set_model_cost`. Inspect's own model table ships without prices, so without a file most prices are unknown:
they are said to be unknown, never taken for zero. Simulated and mock models run in process and cost nothing.

A file holds dollars a million tokens by model name, in TOML, JSON or YAML, in the form of Inspect's `--model-cost-config`:

    ["openai/gpt-5.4-mini"]
    input = 0.25
    output = 2.0
    input_cache_read = 0.025     # both optional: without them cached input costs as much as other input
    input_cache_write = 0.25

The entry `policy` prices the tokens of an auditor that samples in process (a share of a rented machine, say); without it they are not counted.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field, TypeAdapter, ValidationError

from .config import ModelConfig, Section
from .errors import ConfigError

Usage = Mapping[str, int]
"""`{"input": tokens read, "output": tokens written, "calls": n}`, with `cached` and `cache_write` (parts of `input`) where a provider has a cache."""

POLICY = "policy"
"""Key of the policy's own tokens in a file of prices."""
FREE = ("sim/", "mockllm/")
"""Providers whose models run in process and cost nothing."""
INSPECT_FILE = "INSPECT_EVAL_MODEL_COST_CONFIG"
MILLION = 1_000_000


class Price(Section):
    """Dollars a million tokens."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    input_cache_read: float | None = Field(default=None, ge=0)
    input_cache_write: float | None = Field(default=None, ge=0)

    def of(self, usage: Usage) -> float:
        """Dollars for counted tokens."""
        cached, written = usage.get("cached", 0), usage.get("cache_write", 0)
        plain = usage.get("input", 0) - cached - written
        read = self.input if self.input_cache_read is None else self.input_cache_read
        write = self.input if self.input_cache_write is None else self.input_cache_write
        return (plain * self.input + cached * read + written * write + usage.get("output", 0) * self.output) / MILLION


NOTHING = Price(input=0, output=0)


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices by model name. `source` is the file they were read from, for messages."""

    table: Mapping[str, Price] = field(default_factory=dict[str, Price])
    source: str = ""

    def of(self, model: str) -> Price | None:
        """The price of `provider/name`, None if nobody knows it."""
        if model in self.table:
            return self.table[model]
        if model.startswith(FREE):
            return NOTHING
        return None if model == POLICY else _registered(model)

    def of_all(self, models: Iterable[ModelConfig]) -> Price | None:
        """One price for models that share a role evenly: the mean of theirs, None if one of them is unknown."""
        found = [self.of(entry.model) for entry in models]
        known = [price for price in found if price is not None]
        if not known or len(known) < len(found):
            return None

        def mean(values: Iterable[float]) -> float:
            return sum(values) / len(known)

        return Price(
            input=mean(p.input for p in known),
            output=mean(p.output for p in known),
            input_cache_read=mean(p.input if p.input_cache_read is None else p.input_cache_read for p in known),
            input_cache_write=mean(p.input if p.input_cache_write is None else p.input_cache_write for p in known),
        )


def _registered(model: str) -> Price | None:
    """What Inspect's model table says, if it says anything."""
    from inspect_ai.model import get_model_info

    info = get_model_info(model)
    return None if info is None or info.cost is None else Price(**info.cost.model_dump())


def load_prices(path: Path | None) -> Prices:
    """Prices of a file; None takes the file of Inspect's environment variable, or no file.

    Raises:
        ConfigError: A file that can't be read, or an entry that is no price; the message names file and key.
    """
    chosen = path or (Path(value) if (value := os.environ.get(INSPECT_FILE)) else None)
    if chosen is None:
        return Prices()
    try:
        return Prices(TypeAdapter(dict[str, Price]).validate_python(_read(chosen)), str(chosen))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"]) or "file"
        raise ConfigError(
            f'{chosen}: {key}: {first["msg"]}. An entry is a model\'s name with dollars a million tokens: ["openai/gpt-5.4-mini"] input = 0.25, '
            "output = 2.0, and if wanted input_cache_read, input_cache_write"
        ) from None


def _read(path: Path) -> Any:
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        match path.suffix:
            case ".toml":
                return tomllib.loads(text)
            case ".json":
                return json.loads(text)
            case _:
                return yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(
            f"prices: {path}: can't be read ({error}); write it as TOML, JSON or YAML (docs/costs.md shows its form)"
        ) from None


def register(prices: Prices) -> None:
    """Tell Inspect the prices, so that its logs and viewer show costs too."""
    from inspect_ai.model import ModelCost, ModelInfo, get_model_info, set_model_info

    for model, price in prices.table.items():
        if "/" not in model or model.startswith(FREE):
            continue
        cost = ModelCost(
            input=price.input,
            output=price.output,
            input_cache_read=price.input if price.input_cache_read is None else price.input_cache_read,
            input_cache_write=price.input if price.input_cache_write is None else price.input_cache_write,
        )
        # `set_model_cost` refuses models that Inspect's table does not list
        set_model_info(model, (get_model_info(model) or ModelInfo()).model_copy(update={"cost": cost}))


def dollars(value: float) -> str:
    """`$0.0042`, `$3.20`, `$1,234`."""
    if value >= 100:
        return f"${value:,.0f}"
    return f"${value:.2f}" if value >= 1 or value == 0 else f"${value:.2g}" if value >= 0.0001 else f"${value:.1e}"
