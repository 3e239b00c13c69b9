"""The bank in numbers, as they stand in docs/behaviors.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from .checks import LONG_RUN, LONG_RUN_SEEDS, SHORT_RUN, SHORT_RUN_SEEDS
from .loader import Bank
from .similarity import cosines, pair_cosines, shared_runs


@dataclass(frozen=True, slots=True)
class BehaviorNumbers:
    """One behavior's row."""

    behavior: str
    family: str
    split: str
    train: int
    eval: int
    crux: int
    settings: int
    """Distinct settings."""
    tools: int
    """Seeds that give the target tools."""
    fewest_words: int
    mean_words: float
    most_words: int
    mean_cosine: float
    max_cosine: float
    """Over pairs of this behavior's seeds; 0 where there are fewer than two."""


@dataclass(frozen=True, slots=True)
class BankNumbers:
    """All rows, and what concerns the bank as a whole."""

    rows: tuple[BehaviorNumbers, ...]
    max_cosine_across: float
    """Largest cosine of two seeds of different behaviors, fitted on the whole bank."""
    max_cosine_held_out: float
    """Largest cosine of a training behavior's seed and a held-out behavior's seed."""
    long_runs: int
    """Runs of 8 words in more than 2 seeds of the bank."""
    short_runs: int
    """Runs of 6 words in more than 3 seeds of a behavior, summed over behaviors."""

    def totals(self) -> dict[str, object]:
        """Name -> number for the lines under the table."""
        rows = self.rows
        largest = max((row.mean_cosine for row in rows), default=0.0)
        return {
            "behaviors": f"{len(rows)} ({sum(r.split == 'train' for r in rows)} train, {sum(r.split == 'eval' for r in rows)} held out)",
            "seeds": sum(r.train + r.eval + r.crux for r in rows),
            "train / eval / crux seeds": f"{sum(r.train for r in rows)} / {sum(r.eval for r in rows)} / {sum(r.crux for r in rows)}",
            "words of a seed": f"{min((r.fewest_words for r in rows), default=0)}-{max((r.most_words for r in rows), default=0)}",
            "fewest distinct settings of a behavior": min((r.settings for r in rows), default=0),
            "seeds with tools": sum(r.tools for r in rows),
            "largest mean cosine of a behavior": f"{largest:.3f}",
            "largest cosine of a pair inside a behavior": f"{max((r.max_cosine for r in rows), default=0.0):.3f}",
            "largest cosine of a pair across behaviors": f"{self.max_cosine_across:.3f}",
            "largest cosine of a training and a held-out seed": f"{self.max_cosine_held_out:.3f}",
            f"runs of {LONG_RUN} words in more than {LONG_RUN_SEEDS} seeds": self.long_runs,
            f"runs of {SHORT_RUN} words in more than {SHORT_RUN_SEEDS} seeds of a behavior": self.short_runs,
        }

    def markdown(self) -> str:
        """The table of behaviors and the totals as Markdown."""
        lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
        lines += [f"| {' | '.join(cells(row))} |" for row in self.rows]
        lines += ["", "| the whole bank | |", "|---|---|", *(f"| {name} | {value} |" for name, value in self.totals().items())]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, object]:
        """For `--json`."""
        return {"behaviors": [asdict(row) for row in self.rows], "totals": self.totals()}


COLUMNS = ("behavior", "seeds", "settings", "tools", "words", "mean cos", "max cos")
"""Heads of the table; `cells` gives a row. Seeds are counted as train/eval/crux."""


def cells(row: BehaviorNumbers) -> tuple[str, ...]:
    """One row of the table as text, in the order of `COLUMNS`."""
    words = f"{row.fewest_words}-{row.most_words}"
    seeds = f"{row.train}/{row.eval}/{row.crux}"
    return (row.behavior, seeds, str(row.settings), str(row.tools), words, f"{row.mean_cosine:.3f}", f"{row.max_cosine:.3f}")


def bank_statistics(bank: Bank) -> BankNumbers:
    """Count and compare everything in the bank."""
    import numpy as np

    rows: list[BehaviorNumbers] = []
    short = 0
    for name, behavior in bank.behaviors.items():
        seeds = bank.seeds_for(name)
        texts = [seed.text for seed in seeds]
        counts = [len(text.split()) for text in texts] or [0]
        split: Mapping[str, int] = {kind: sum(seed.split == kind for seed in seeds) for kind in ("train", "eval", "crux")}
        pairs = pair_cosines(cosines(texts)) if len(texts) > 1 else np.zeros(1)
        short += len(shared_runs(texts, SHORT_RUN, SHORT_RUN_SEEDS))
        rows.append(
            BehaviorNumbers(
                behavior=name,
                family=behavior.family,
                split=behavior.split,
                train=split["train"],
                eval=split["eval"],
                crux=split["crux"],
                settings=len({" ".join(seed.setting.lower().split()) for seed in seeds}),
                tools=sum(bool(seed.tools) for seed in seeds),
                fewest_words=min(counts),
                mean_words=sum(counts) / len(counts),
                most_words=max(counts),
                mean_cosine=float(pairs.mean()),
                max_cosine=float(pairs.max()),
            )
        )
    texts = [seed.text for seed in bank.seeds]
    matrix = cosines(texts) if texts else np.zeros((0, 0))
    owner = np.array([seed.behavior or "" for seed in bank.seeds])
    held = np.array([seed.behavior is not None and bank.behaviors[seed.behavior].split == "eval" for seed in bank.seeds], dtype=bool)
    across = matrix[owner[:, None] != owner[None, :]] if len(texts) else np.zeros(0)
    return BankNumbers(
        rows=tuple(rows),
        max_cosine_across=float(across.max(initial=0.0)),
        max_cosine_held_out=float(matrix[np.ix_(held, ~held)].max(initial=0.0)) if len(texts) else 0.0,
        long_runs=len(shared_runs(texts, LONG_RUN, LONG_RUN_SEEDS)),
        short_runs=short,
    )
