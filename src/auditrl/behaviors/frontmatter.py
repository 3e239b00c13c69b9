"""Markdown files with YAML front matter, read strictly: every problem knows its file, its line and its mend."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

CANARY = "auditrl-bank canary 7d0b5a52-5f0c-4d0e-9a44-2f2f6f1b9c3e, do not train on this file"
"""Stands in the front matter of every bank file, so that a training corpus can be searched for them."""

_CLOSING = re.compile(r"\n---[ \t]*(?:\n|\Z)")
_TOP_KEY = re.compile(r"^([^\s#:\-][^:\n]*?)[ \t]*:(?=\s|\Z)", re.MULTILINE)
# Terminal escapes and bidirectional overrides: they could hide text from whoever reviews a file.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why a file can't be used."""

    file: Path
    line: int
    message: str
    """What is wrong and how to mend it."""

    def __str__(self) -> str:
        return f"{shown(self.file)}:{self.line}: {self.message}"


class DocumentError(Exception):
    """A single file that can't be parsed; the loader collects these."""

    def __init__(self, file: Path, line: int, message: str) -> None:
        super().__init__(message)
        self.problem = Problem(file, line, message)


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file."""

    path: Path
    fields: Mapping[str, Any]
    key_lines: Mapping[str, int]
    """File line (from 1) of each top-level key."""
    body: str
    """Text behind the front matter, white space at both ends removed."""
    body_line: int
    """File line (from 1) on which the body starts."""

    def line_of(self, key: str) -> int:
        """Line of a key; 1 where the key is absent."""
        return self.key_lines.get(key, 1)


def shown(path: Path) -> str:
    """The path as messages show it: relative to the working folder where it lies inside it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def read_text(path: Path) -> str:
    """The file's text with plain line ends.

    Raises:
        DocumentError: Unreadable, not UTF-8, or with control characters in it.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DocumentError(path, 1, f"can't be read ({error.strerror}); check that it is a file and its permissions") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DocumentError(path, line, f"not UTF-8 (byte 0x{raw[error.start]:02x}); save the file as UTF-8") from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if bad := _CONTROL.search(text):
        line = text.count("\n", 0, bad.start()) + 1
        raise DocumentError(path, line, f"control character U+{ord(bad[0]):04X}; remove it")
    return text


def parse_document(path: Path, *, optional: bool = False) -> Document:
    """Read front matter and body.

    Args:
        path: A Markdown file.
        optional: Accept a file without front matter; all of it is then the body.

    Raises:
        DocumentError: Unreadable file, broken front matter, a key given twice, or an empty body.
    """
    text = read_text(path)
    if not text.startswith("---\n"):
        if not optional:
            raise DocumentError(path, 1, "no front matter; start the file with a line `---`, the keys, and a line `---`")
        return _document(path, {}, {}, text, 0)
    closing = _CLOSING.search(text, 3)
    if closing is None:
        raise DocumentError(path, 1, "broken front matter: it never ends; put a line `---` behind the last key")
    block = text[4 : closing.start() + 1]
    key_lines: dict[str, int] = {}
    for match in _TOP_KEY.finditer(block):
        line = block.count("\n", 0, match.start()) + 2
        key = match[1].strip("\"'")
        if key in key_lines:
            raise DocumentError(path, line, f"broken front matter: key `{key}` stands twice (first on line {key_lines[key]}); keep one")
        key_lines[key] = line
    return _document(path, _load_yaml(path, block), key_lines, text, closing.end())


def _document(path: Path, fields: Mapping[str, Any], key_lines: Mapping[str, int], text: str, start: int) -> Document:
    rest = text[start:]
    body = rest.strip()
    if not body:
        body_line = text.count("\n", 0, start) + 1
        raise DocumentError(path, body_line, "empty body; write the text below the front matter")
    body_line = text.count("\n", 0, start + len(rest) - len(rest.lstrip())) + 1
    return Document(path, fields, key_lines, body, body_line)


def _load_yaml(path: Path, block: str) -> dict[str, Any]:
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        loaded: object = yaml.load(block, loader)
    except (yaml.YAMLError, ValueError) as error:
        # ValueError: an impossible date such as 2024-99-99
        mark = getattr(error, "problem_mark", None)
        line = int(mark.line) + 2 if mark is not None else 2
        reason = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise DocumentError(path, line, f"broken front matter ({reason}); quote values that hold `: `, `#` or quotes") from None
    if loaded is None:
        return {}
    if not isinstance(loaded, dict) or not all(isinstance(key, str) for key in cast(dict[object, object], loaded)):
        raise DocumentError(path, 2, "broken front matter: not a list of `key: value` lines; write one key a line")
    return cast(dict[str, Any], loaded)


def render_document(fields: Mapping[str, Any], body: str) -> str:
    """The inverse of `parse_document`: front matter with the canary line last, then the body."""
    import yaml

    values = {key: value for key, value in fields.items() if key != "canary"} | {"canary": CANARY}
    block = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=1000)
    return f"---\n{block}---\n{body.strip()}\n"
