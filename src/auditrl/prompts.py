"""Prompts are Markdown files with front matter beside the code that uses them."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files


@cache
def load_prompt(package: str, name: str) -> str:
    """The body of `<package>/prompts/<name>.md`, front matter (and its canary line) left out."""
    text = files(package).joinpath("prompts", f"{name}.md").read_text(encoding="utf-8")
    return re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL).strip()


def fill(template: str, **values: str) -> str:
    """Replace `{name}` for the given names only: braces in JSON examples and in models' text stay as they are."""
    pattern = re.compile("|".join(re.escape(f"{{{name}}}") for name in values))
    return pattern.sub(lambda match: values[match[0][1:-1]], template)
