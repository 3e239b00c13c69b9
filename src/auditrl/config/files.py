"""Configs read from TOML files, with dotted overrides (`--reward.order both`)."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from ..errors import ConfigError
from .run import RunConfig


def parse_overrides(pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """`[("reward.order", "both")]` -> nested dict. Values are TOML; anything that is not is taken as a string."""
    result: dict[str, Any] = {}
    for key, raw in pairs:
        try:
            value: Any = tomllib.loads(f"value = {raw}")["value"]
        except tomllib.TOMLDecodeError:
            value = None if raw in ("none", "null") else raw
        node = result
        *parents, leaf = key.split(".")
        for part in parents:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                raise ConfigError(f"--{key}: {part!r} was already given a value; override single keys only")
        node[leaf] = value
    return result


def merged(base: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the keys of `extra` over it, section by section."""
    result = dict(base)
    for key, value in extra.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def packaged_config(name: str) -> Path:
    """Path of a config that ships with the package (`quickstart`)."""
    return Path(str(files("auditrl").joinpath("configs", f"{name}.toml")))


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file. ConfigError names the file, the line and the mend."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; `auditrl quickstart` shows a config that works") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a folder; name a TOML file (to go on with a run use `auditrl resume {path}`)") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


def load_config(path: Path, overrides: Sequence[tuple[str, str]] = ()) -> RunConfig:
    """Read and check a run config. `extends = "base.toml"` at its top puts it over another file, named from its own folder."""
    return check_config(merged(read_extended(path), parse_overrides(overrides)), str(path))


def read_extended(path: Path, below: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A TOML file merged over the file that it extends, if it names one.

    Raises:
        ConfigError: A file that can't be read, `extends` that is no text, or files that extend each other in a circle.
    """
    here = path.resolve()
    if here in below:
        raise ConfigError(f"{path}: extends: the files extend each other in a circle ({' -> '.join(p.name for p in (*below, here))})")
    data = read_toml(path)
    base = data.pop("extends", None)
    if base is None:
        return data
    if not isinstance(base, str):
        raise ConfigError(f"{path}: extends: must be the name of a TOML file in quotes")
    return merged(read_extended(path.parent / base, (*below, here)), data)


def check_config(data: Mapping[str, Any], source: str) -> RunConfig:
    """Validate a config dictionary; ConfigError lists every problem with its key."""
    try:
        return RunConfig.model_validate(dict(data))
    except ValidationError as error:
        raise ConfigError(describe_validation(error, source)) from None


def describe_validation(error: ValidationError, source: str, model: type[BaseModel] | None = None) -> str:
    """One line a problem: file, key, what is wrong, what to do. `model` (default: a run config) is what the file should be."""
    lines: list[str] = []
    for item in error.errors():
        key = ".".join(str(part) for part in item["loc"]) or "config"
        if item["type"] == "extra_forbidden":
            message = f"unknown key {_suggestion(item['loc'], model or RunConfig)}"
        elif item["type"] == "missing":
            message = "required and missing; add it"
        else:
            given = item.get("input")
            shown = f" (given: {given!r})" if isinstance(given, (str, int, float, bool)) else ""
            message = item["msg"].removeprefix("Value error, ") + shown
        lines.append(f"{source}: {key}: {message}")
    return "\n".join(lines)


def _suggestion(loc: tuple[Any, ...], model: Any) -> str:
    for part in loc[:-1]:
        info = getattr(model, "model_fields", {}).get(part)
        model = info.annotation if info is not None else None
    names = list(getattr(model, "model_fields", {}))
    close = difflib.get_close_matches(str(loc[-1]), names, n=1)
    if close:
        return f"(did you mean {close[0]!r}?)"
    return f"(known here: {', '.join(names)})" if names else "(remove it)"
