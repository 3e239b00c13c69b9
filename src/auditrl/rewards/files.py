"""A reward design of a user's own: one Python file, named in `reward.kind`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from ..errors import ConfigError
from .base import registered, restore


def load_reward_file(path: Path) -> str:
    """Run the file and return the name under which it registered its design.

    Raises:
        ConfigError: No such file, it does not run, or it registers no design or more than one.
    """
    if not path.is_file():
        raise ConfigError(
            f"reward.kind: no file {str(path)!r}; give the path of a Python file that registers a design with @reward('name')"
        )
    before = registered()
    try:
        found = _new_designs(path)
        if len(found) != 1:
            raise ConfigError(f"reward.kind: {path} registers {len(found)} designs; put exactly one @reward('name') into it")
        if found[0] in before and before[found[0]].__module__.startswith("auditrl."):
            raise ConfigError(f"reward.kind: {path} registers {found[0]!r}, which is a design of the package; choose another name")
    except ConfigError:
        restore(before)
        raise
    return found[0]


def _new_designs(path: Path) -> list[str]:
    """Names that running the file registers."""
    before = registered()
    spec = importlib.util.spec_from_file_location(f"auditrl_reward_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    try:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    except Exception as error:
        raise ConfigError(f"reward.kind: {path} does not run ({type(error).__name__}: {error}); mend the file") from error
    return [name for name, design in registered().items() if before.get(name) is not design]
