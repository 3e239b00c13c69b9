"""How far the estimate of a run was from what the run then counted.

    python benchmarks/estimate_accuracy.py runs/quickstart

Prints calls and tokens by part and role: estimated, counted, difference. The run may be unfinished: as many steps are estimated as are done.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from auditrl.runs import Run, open_run
from auditrl.train.budget import evaluation_cost
from auditrl.train.quote import quote

KEYS = ("calls", "input", "output")
Key = tuple[str, str]
"""Part and role."""


def counted(run: Run) -> dict[Key, Counter[str]]:
    """What the run's rows and evaluations hold."""
    found: dict[Key, Counter[str]] = {}
    for row in run.metrics():
        for part, roles in ({"training": row["usage"]} | row.get("spent", {})).items():
            for role, usage in roles.items():
                found.setdefault((part, role), Counter()).update(usage)
    for label in ("before", "after"):
        for cost in evaluation_cost(run, label).values():
            for role, usage in cost.items():
                found.setdefault((f"evaluation {label}", role), Counter()).update(usage)
    return found


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    run = open_run(parser.parse_args().run)
    actual = counted(run)
    train = run.config.train.model_copy(update={"steps": len(run.metrics())})
    expected: dict[Key, Counter[str]] = {}
    for row in quote(run.config.model_copy(update={"train": train})).rows:
        expected.setdefault((row.part, row.role), Counter()).update({key: round(getattr(row, key)) for key in KEYS})
    groups: dict[str, Callable[[Key], Key]] = {"by part and role": lambda key: key, "by role": lambda key: ("all", key[1])}
    for title, group in groups.items():
        worst: dict[str, float] = dict.fromkeys(KEYS, 0.0)
        wanted, found = grouped(expected, group), grouped(actual, group)
        for key, usage in sorted(found.items()):
            guess = wanted.get(key, Counter())
            off = {name: guess[name] / usage[name] - 1 for name in KEYS if usage[name]}
            worst |= {name: max(worst[name], abs(value)) for name, value in off.items()}
            numbers = (f"{name} {guess[name]:>11,} {usage[name]:>11,} {value:+6.1%}" for name, value in off.items())
            print(f"{key[0]:<18} {key[1]:<8}", "  ".join(numbers))
        print(f"largest difference {title}:", ", ".join(f"{name} {value:.1%}" for name, value in worst.items()))


def grouped(counts: dict[Key, Counter[str]], group: Callable[[Key], Key]) -> dict[Key, Counter[str]]:
    """Sums of what falls into one group."""
    found: dict[Key, Counter[str]] = {}
    for key, usage in counts.items():
        found.setdefault(group(key), Counter()).update(usage)
    return found


if __name__ == "__main__":
    main()
