"""Tool calls in the text that a chat model writes.

Two forms: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, any number of them (Hermes, Qwen and others), and a whole message
that is one such JSON object, bare or in a code fence (Llama 3 says `parameters` for `arguments`). A call that can't be read becomes a
`ToolCall` with `parse_error`, so that the auditor is told and can mend it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from inspect_ai.tool import ToolCall

__all__ = ["UNREADABLE", "parse_tool_calls"]

UNREADABLE = "unreadable_tool_call"
"""Function name of a call whose name can't be told."""

# a call that was cut off by the token limit has no closing tag
_TAGGED = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
_FENCED = re.compile(r"\A```(?:json)?\s*\n(.*?)\n\s*```\Z", re.DOTALL)
_NAME = re.compile(r'"name"\s*:\s*"([A-Za-z0-9_.-]{1,64})"')


def parse_tool_calls(text: str, *, prefix: str) -> tuple[str, list[ToolCall]]:
    """Split a message into its text and its tool calls.

    Args:
        text: What the model wrote, without the end-of-turn token.
        prefix: The calls' ids are `<prefix>-0`, `<prefix>-1`, ...; give one that no earlier turn used.
    """
    tagged = _TAGGED.findall(text)
    if tagged:
        return _TAGGED.sub("", text).strip(), [_call(body, f"{prefix}-{i}") for i, body in enumerate(tagged)]
    stripped = text.strip()
    fenced = _FENCED.match(stripped)
    body = fenced[1].strip() if fenced else stripped
    if body.startswith("{") and _looks_like_call(body):
        return "", [_call(body, f"{prefix}-0")]
    return stripped, []


def _looks_like_call(body: str) -> bool:
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        return _NAME.match(body[1:].lstrip()) is not None
    keys = cast(dict[str, Any], value).keys() if isinstance(value, dict) else set[str]()
    return "name" in keys and bool({"arguments", "parameters"} & set(keys))


def _call(body: str, call_id: str) -> ToolCall:
    from inspect_ai.tool import ToolCall

    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        name = _NAME.search(body)
        return _broken(call_id, name[1] if name else UNREADABLE, f"the tool call is not valid JSON: {error}")
    if not isinstance(value, dict):
        return _broken(call_id, UNREADABLE, 'a tool call must be a JSON object with "name" and "arguments"')
    call = cast(dict[str, Any], value)
    name = call.get("name")
    if not isinstance(name, str) or not name:
        return _broken(call_id, UNREADABLE, 'the tool call has no "name"')
    arguments: Any = call.get("arguments", call.get("parameters", {}))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError) as error:
            return _broken(call_id, name, f'"arguments" is not valid JSON: {error}')
    if not isinstance(arguments, dict):
        return _broken(call_id, name, '"arguments" must be a JSON object')
    return ToolCall(id=call_id, function=name, arguments=cast(dict[str, Any], arguments))


def _broken(call_id: str, name: str, error: str) -> ToolCall:
    from inspect_ai.tool import ToolCall

    return ToolCall(id=call_id, function=name, arguments={}, parse_error=error)
