"""The five plain categories: an editable file, and which cluster belongs to which.

A cluster of the top level gets a category by a model, or without one by the signs that its descriptions hold; a person can overrule both
in the file. Everything below a top cluster has its category.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from ...audit.transcript import fence
from ...errors import ConfigError
from ...judges.base import Answer, ask

if TYPE_CHECKING:
    from inspect_ai.model import Model

KIND = "strategy_category"
OTHER = "other"
"""Where no sign is found, or a model names no category."""


class Category(BaseModel):
    """One category of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1)
    meaning: str = ""
    signs: tuple[str, ...] = ()

    @field_validator("signs")
    @classmethod
    def _lower(cls, signs: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sign.lower() for sign in signs)


class Categories(BaseModel):
    """The file: categories in the order in which figures show them, and clusters placed by hand (top cluster's number -> category)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    category: tuple[Category, ...] = Field(min_length=1)
    clusters: dict[int, str] = Field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Category names, `other` last."""
        return [*(c.name for c in self.category), OTHER]


def load_categories(path: Path | None = None) -> Categories:
    """Read a categories file; the packaged one by default.

    Raises:
        ConfigError: The file can't be read, has an unknown key, names a category twice, or places a cluster in none of them.
    """
    try:
        text = path.read_text(encoding="utf-8") if path else (files(__package__) / "categories.toml").read_text(encoding="utf-8")
        found = Categories.model_validate(tomllib.loads(text))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: can't be read ({error}); `auditrl cluster` writes a categories.toml to start from") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ConfigError(f"{path}: key {'.'.join(map(str, first['loc']))}: {first['msg']}; correct it") from None
    names = found.names
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"{path}: category {twice!r} stands twice (`other` is always there); rename one")
    if wrong := next(((c, name) for c, name in found.clusters.items() if name not in names), None):
        raise ConfigError(f"{path}: [clusters] {wrong[0]} = {wrong[1]!r}: no such category; use one of {', '.join(names)}")
    return found


def written(categories: Categories, placed: dict[int, tuple[str, str]]) -> str:
    """The file with every top cluster's category under [clusters]; `placed` is number -> (category, name of the cluster)."""
    lines = ["# Move a cluster by giving it another category, then: auditrl cluster ... --codebook codebook.json --categories FILE"]
    for category in categories.category:
        lines += ["", "[[category]]", f"name = {_quoted(category.name)}", f"meaning = {_quoted(category.meaning)}"]
        lines.append(f"signs = [{', '.join(map(_quoted, category.signs))}]")
    lines += ["", "[clusters]"]
    lines += [f"{number} = {_quoted(category)}  # {_comment(name)}" for number, (category, name) in sorted(placed.items())]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    kept = re.sub(r"[\x00-\x1f\x7f]+", " ", text)
    return '"' + kept.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _comment(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f\x85\u2028\u2029]+", " ", text)


def category_by_signs(categories: Categories, descriptions: Sequence[str]) -> str:
    """The category with the most different signs a description, on average; `other` if none is found. Equals go to the earlier one."""
    scores = {category.name: 0.0 for category in categories.category}
    for text in (f" {' '.join(t.lower().split())}" for t in descriptions):
        for category in categories.category:
            # a sign stands at the beginning of a word: "vari" finds "varies", not "invariant"
            scores[category.name] += sum(bool(re.search(rf"(?<![\w]){re.escape(sign)}", text)) for sign in category.signs)
    best = max(scores, key=scores.__getitem__)
    return best if scores[best] > 0 else OTHER


class CategoryAnswer(Answer):
    """What a model answers about one cluster."""

    category: str = Field(description="Exactly one of the category names, or other")


async def category_by_model(model: Model, categories: Categories, name: str, summary: str, descriptions: Sequence[str]) -> str:
    """Ask a model; the signs decide where it gives no category of the list twice."""
    known: dict[str, str] = {n.lower(): n for n in categories.names}
    values: dict[str, Any] = {
        "categories": "\n".join(f"- {fence(c.name)}: {fence(c.meaning)}" for c in categories.category) + f"\n- {OTHER}: none of these",
        "cluster": fence(f"{name}. {summary}"),
        "examples": "\n".join(f"- {fence(' '.join(text.split()))}" for text in descriptions[:10]),
    }
    for _ in range(2):
        asked = await ask(model, kind=KIND, answer=CategoryAnswer, values=values, attempts=1)
        if asked.answer is not None and (found := known.get(asked.answer.category.strip().lower())):
            return found
    return category_by_signs(categories, descriptions)
