"""`auditrl warmstart`: make a start like the shipped one and say what it can do."""

from __future__ import annotations

from pathlib import Path

from ..display import Display
from ..errors import RunError
from .tiny import STEPS, make_tiny


def run_warmstart(folder: Path, *, random_seed: int, steps: int | None, display: Display) -> None:
    """Train the tiny policy on scripted audits into a new folder."""
    if folder.exists() and any(folder.iterdir()):
        raise RunError(f"{folder}: not empty; name a new folder")
    total = steps or STEPS
    display.start("warm start", total)
    make_tiny(folder, random_seed=random_seed, steps=total, progress=lambda step, loss: display.advance(f"loss {loss:.3f}"))
    display.finish()
    display.note(f"the policy lies in {folder}; train it with: auditrl quickstart --policy.model {folder}")
