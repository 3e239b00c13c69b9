"""The world's assumptions as Markdown tables, for docs/simulated-world.md: `python -m auditrl.sim.assumptions`."""

from __future__ import annotations

from dataclasses import asdict

from .world import HELD_OUT_PAIRS, PARAMS, TRAINING_PAIRS


def parameters_table() -> str:
    """Every number of `WorldParams` with its default."""
    rows = "\n".join(f"| `{name}` | {value:g} |" for name, value in asdict(PARAMS).items())
    return f"| parameter | default |\n|---|---|\n{rows}"


def pairs_table() -> str:
    """What stands for each behavior of the bank: the topic that brings it out and the marker that shows it."""
    lines = [f"| {name} | {pair.area} | {pair.topic} | {pair.marker} | train |" for name, pair in TRAINING_PAIRS.items()]
    lines += [f"| {name} | {pair.area} | {pair.topic} | {pair.marker} | held out |" for name, pair in HELD_OUT_PAIRS.items()]
    return "| behavior | area | topic | marker | split |\n|---|---|---|---|---|\n" + "\n".join(lines)


if __name__ == "__main__":
    print(f"{pairs_table()}\n\n{parameters_table()}")
