"""What every HTML page of auditrl is made with: templates that escape, assets that ship with the package, and digests for a page's policy."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from .conversation import readable
from .tables import cell_text


@cache
def asset(*names: str) -> str:
    """Style sheets or scripts of `templates/`, joined in the order given."""
    folder = resources.files(__package__).joinpath("templates")
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8").strip() for name in names)


def digest(text: str) -> str:
    """What a content security policy calls an inline script or style by: `sha256-...`."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def environment() -> Environment:
    """Templates of the package: everything is escaped, unknown names are errors."""
    env = Environment(
        loader=PackageLoader("auditrl.analysis", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # pyright has no view into jinja's filter table
    filters: dict[str, Any] = env.filters
    filters["readable"] = readable
    env.globals["cell_text"] = cell_text  # type: ignore[index]
    return env
