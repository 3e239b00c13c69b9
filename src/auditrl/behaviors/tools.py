"""Shape of the tools that a seed gives to the target: Inspect `ToolInfo` dictionaries, checked without loading Inspect."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")
_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")


def tool_problems(tools: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is wrong with a seed's tools, each with its mend; empty if all can be handed to Inspect."""
    problems: list[str] = []
    seen: set[str] = set()
    for index, tool in enumerate(tools, start=1):
        name = tool.get("name")
        if not isinstance(name, str) or not _NAME.match(name):
            problems.append(f"tool {index}: `name` must be a word of letters, digits, `_` or `-`; correct it")
            continue
        if name in seen:
            problems.append(f"tool `{name}` stands twice; rename or remove one")
        seen.add(name)
        problems.extend(f"tool `{name}`: {message}" for message in _problems_of(tool))
    return problems


def _problems_of(tool: Mapping[str, Any]) -> Iterator[str]:
    unknown = set(tool) - {"name", "description", "parameters"}
    if unknown:
        yield f"unknown key `{min(unknown)}`; use name, description and parameters"
    if not isinstance(tool.get("description"), str) or not str(tool["description"]).strip():
        yield "`description` is missing; add one sentence"
    parameters = tool.get("parameters", {})
    if not isinstance(parameters, dict):
        yield "`parameters` must be a mapping with type, properties and required; correct it"
        return
    schema = cast(dict[str, Any], parameters)
    if schema.get("type", "object") != "object":
        yield "`parameters.type` must be object; correct it"
    properties: Any = schema.get("properties", {})
    if not isinstance(properties, dict):
        yield "`parameters.properties` must map names to types; correct it"
        return
    named = cast(dict[str, Any], properties)
    for key, value in named.items():
        kind: Any = cast(dict[str, Any], value).get("type") if isinstance(value, dict) else None
        if not isinstance(value, dict) or (kind is not None and kind not in _TYPES):
            yield f"parameter `{key}` needs a JSON type ({', '.join(_TYPES)}); correct it"
    required: Any = schema.get("required", [])
    missing = [key for key in cast(list[Any], required) if key not in named] if isinstance(required, list) else [required]
    if missing:
        yield f"`required` names `{missing[0]}`, which is no property; add it to properties or remove it"
