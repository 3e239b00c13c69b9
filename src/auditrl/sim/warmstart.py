"""`auditrl warmstart`: make a start like the shipped one and say what it can do."""

from __future__ import annotations

from pathlib import Path

from ..display import Display
from ..errors import RunError
from .start import start_figures
from .tiny import RANDOM_SEED, STEPS, make_tiny


def describe_start(folder: Path) -> str:
    """The figures of `start_figures` in a line."""
    found = start_figures(folder)
    return (
        f"turns well-formed {found['well_formed']:.1f}%, reports right where the marker is visible {found['right_reports']:.1f}%, "
        f"firm claims about clean targets {found['unfounded_firm']:.1f}% ({found['audits']:.0f} scripted audits each)"
    )


def run_warmstart(folder: Path, *, random_seed: int | None, steps: int | None, display: Display) -> None:
    """Train the tiny policy on scripted audits into a new folder."""
    if folder.exists() and any(folder.iterdir()):
        raise RunError(f"{folder}: not empty; name a new folder")
    total = steps or STEPS
    display.start("warm start", total)
    make_tiny(
        folder,
        random_seed=RANDOM_SEED if random_seed is None else random_seed,
        steps=total,
        progress=lambda step, loss: display.advance(f"loss {loss:.3f}"),
    )
    display.finish()
    display.note(f"what it can do: {describe_start(folder)}")
    display.note(f"the policy lies in {folder}; train it with: auditrl quickstart --policy.model {folder}")
