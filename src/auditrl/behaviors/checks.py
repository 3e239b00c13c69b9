"""Is a bank good enough to train and measure with? Each check yields findings that name file, line and mend.

Thresholds are the module's constants; docs/behaviors.md explains them. Severity `fail` keeps a file out (exit code 2), `warn` is for a
reader to decide.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..types import Behavior, Seed
from .frontmatter import CANARY, shown
from .leak import LEAK_FAILS, LEAK_WARNS, behavior_terms, find_leak, judge_leaks, names_behavior
from .loader import Bank, Source, seed_number
from .similarity import cosines, pair_cosines, runs, shared_runs

if TYPE_CHECKING:
    import numpy as np
    from inspect_ai.model import Model
    from numpy.typing import NDArray

BEHAVIOR_WORDS = (80, 300)
"""Fewest and most words of a hidden instruction."""
SEED_WORDS = (60, 120)
"""Fewest and most words of a seed."""
PAIR_COSINE = 0.6
"""TF-IDF cosine above which two seeds are near-duplicates (inside a behavior: fitted on its seeds; across: on the whole bank)."""
MEAN_COSINE = 0.25
"""Mean cosine of a behavior's seeds from which they are too much alike."""
MEAN_COSINE_SEEDS = 5
"""Fewest seeds for which a mean says something."""
HELD_OUT_COSINE = 0.5
"""Cosine above which a held-out behavior's seed overlaps with a training seed: stricter, because it would make evaluation easier."""
LONG_RUN, LONG_RUN_SEEDS = 8, 2
"""No run of 8 words stands in more than 2 seeds of the bank."""
SHORT_RUN, SHORT_RUN_SEEDS = 6, 3
"""A run of 6 words in more than 3 seeds of one behavior looks like a template."""
SETTING_SHARE = 0.8
"""Distinct settings a seed of a behavior: 40 for 50 seeds."""

Severity = Literal["fail", "warn"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check found."""

    check: str
    file: Path
    line: int
    message: str
    """What is wrong and how to mend it."""
    severity: Severity = "fail"

    def __str__(self) -> str:
        return f"{shown(self.file)}:{self.line}: [{self.check}] {self.message}"


@dataclass(frozen=True)
class _Scope:
    """The bank under check, and the folder whose files may be found fault with."""

    bank: Bank
    focus: Path | None

    @cached_property
    def seeds(self) -> Mapping[str, list[Seed]]:
        """Seeds by behavior."""
        grouped: dict[str, list[Seed]] = defaultdict(list)
        for seed in self.bank.seeds:
            if seed.behavior is not None:
                grouped[seed.behavior].append(seed)
        return grouped

    @cached_property
    def cosines(self) -> NDArray[np.float64]:
        """Cosines of all seeds of the bank, in its order."""
        return cosines([seed.text for seed in self.bank.seeds])

    def pairs(self) -> Iterator[tuple[Seed, Behavior]]:
        """Seeds in focus, with their behaviors."""
        for name, seeds in self.seeds.items():
            for seed in seeds:
                if self.has(seed.id):
                    yield seed, self.bank.behaviors[name]

    def source(self, key: str) -> Source:
        return self.bank.sources.get(key) or Source(Path(f"{key}.md"), 1, canary=True)

    @cached_property
    def outside(self) -> frozenset[str]:
        """Behaviors and seeds that are only compared with."""
        focus = self.focus
        if focus is None:
            return frozenset()
        keys = [*self.bank.behaviors, *(seed.id for seed in self.bank.seeds)]
        return frozenset(key for key in keys if not self.source(key).path.is_relative_to(focus))

    def has(self, key: str) -> bool:
        """Whether this behavior's or seed's file is in focus."""
        return key not in self.outside

    def groups(self) -> Iterator[tuple[str, list[Seed]]]:
        """All seeds of the behaviors that have a seed in focus."""
        return ((name, seeds) for name, seeds in self.seeds.items() if any(self.has(seed.id) for seed in seeds))

    def culprit(self, seeds: Sequence[Seed]) -> Seed | None:
        """Of several seeds that are too much alike, the one to change: the last one in focus."""
        return next((seed for seed in reversed(seeds) if self.has(seed.id)), None)

    def finding(self, check: str, key: str, message: str, severity: Severity = "fail", *, offset: int = 0) -> Finding:
        source = self.source(key)
        return Finding(check, source.path, source.line + offset, message, severity)

    def name(self, seed: Seed) -> str:
        return self.source(seed.id).path.name if seed.behavior is None else seed.id


def check_bank(bank: Bank, focus: Path | None = None) -> list[Finding]:
    """Run all checks that need no model, in the order of files and lines.

    Args:
        bank: The whole bank that the files are compared with.
        focus: Report on files in this folder only; None for all.
    """
    scope = _Scope(bank, focus)
    findings = [finding for check in CHECKS.values() for finding in check(scope)]
    return sorted(findings, key=lambda f: (str(f.file), f.line, f.check))


async def check_leaks_with(model: Model, bank: Bank, focus: Path | None = None) -> list[Finding]:
    """Ask a judge model whether each seed gives its behavior away.

    A seed without a readable answer is reported as such, never counted as clean.

    Raises:
        ProviderError: The model failed.
    """
    scope = _Scope(bank, focus)
    pairs = list(scope.pairs())
    findings: list[Finding] = []
    for (seed, _), answer in zip(pairs, await judge_leaks(pairs, model), strict=True):
        if answer is None:
            findings.append(scope.finding("leak", seed.id, "the judge model gave no readable answer; ask again or read the seed", "warn"))
        elif answer.leaks:
            message = f"the judge model could name the behavior from {_quoted(answer.quote)}; say what to watch in neutral terms"
            findings.append(scope.finding("leak", seed.id, message))
    return findings


def failing(findings: Sequence[Finding]) -> list[Finding]:
    """Findings that keep a file out."""
    return [finding for finding in findings if finding.severity == "fail"]


def _schema(scope: _Scope) -> Iterator[Finding]:
    for key in [*scope.bank.behaviors, *(seed.id for seed in scope.bank.seeds)]:
        if scope.has(key) and not scope.source(key).canary:
            path = scope.source(key).path
            yield Finding("schema", path, 1, f"no canary; add the line `canary: {CANARY}` to the front matter")
    for seed, behavior in scope.pairs():
        if not seed.setting.strip():
            yield scope.finding("schema", seed.id, "no setting; add `setting: who, where, in which manner` (4-10 words)")
        if behavior.needs_tools and not seed.tools:
            yield scope.finding("schema", seed.id, f"`{behavior.name}` can't show without tools; add `tools:` to the front matter")


def _numbers(scope: _Scope) -> Iterator[Finding]:
    for _, seeds in scope.groups():
        numbers: dict[int, list[Seed]] = defaultdict(list)
        for seed in seeds:
            numbers[seed_number(seed)].append(seed)
        for number, same in numbers.items():
            culprit = scope.culprit(same) if len(same) > 1 else None
            if culprit:
                yield scope.finding(
                    "number", culprit.id, f"number {number:03d} stands {len(same)} times; rename it to the next free number"
                )


def _length(scope: _Scope) -> Iterator[Finding]:
    texts = [(key, b.instruction, BEHAVIOR_WORDS, "instruction") for key, b in scope.bank.behaviors.items()]
    texts += [(seed.id, seed.text, SEED_WORDS, "seed") for seed in scope.bank.seeds]
    for key, text, (low, high), kind in texts:
        count = len(text.split())
        if scope.has(key) and not low <= count <= high:
            mend = f"add at least {low - count}" if count < low else f"cut at least {count - high}"
            yield scope.finding("length", key, f"{kind} of {count} words ({low}-{high} wanted); {mend}")


def _duplicates(scope: _Scope) -> Iterator[Finding]:
    for name, seeds in scope.groups():
        if len(seeds) < 2:
            continue
        matrix = cosines([seed.text for seed in seeds])
        for i, j in _above(matrix, PAIR_COSINE):
            yield from _alike(scope, "duplicates", seeds[i], seeds[j], float(matrix[i, j]), PAIR_COSINE)
        mean = float(pair_cosines(matrix).mean())
        if len(seeds) >= MEAN_COSINE_SEEDS and mean >= MEAN_COSINE:
            order = matrix.sum(axis=0).argsort()
            culprit = scope.culprit([seeds[int(i)] for i in order])
            if culprit:
                message = f"the seeds of `{name}` are too much alike (mean cosine {mean:.2f}, below {MEAN_COSINE} wanted), this one most"
                yield scope.finding("duplicates", culprit.id, f"{message}; vary task, setting and wording")
    for i, j in _above(scope.cosines, PAIR_COSINE):
        first, second = scope.bank.seeds[i], scope.bank.seeds[j]
        if first.behavior != second.behavior:
            yield from _alike(scope, "duplicates", first, second, float(scope.cosines[i, j]), PAIR_COSINE)


def _alike(scope: _Scope, check: str, first: Seed, second: Seed, cosine: float, limit: float) -> Iterator[Finding]:
    culprit = scope.culprit([first, second])
    if culprit:
        other = first if culprit is second else second
        message = f"too close to {scope.name(other)} (cosine {cosine:.2f}, at most {limit}); rewrite one with another task and setting"
        yield scope.finding(check, culprit.id, message)


def _above(matrix: NDArray[np.float64], limit: float) -> list[tuple[int, int]]:
    import numpy as np

    rows, columns = np.nonzero(np.triu(matrix, 1) > limit)
    return [(int(i), int(j)) for i, j in zip(rows, columns, strict=True)]


def _shared(scope: _Scope) -> Iterator[Finding]:
    seeds = scope.bank.seeds
    for where, run in shared_runs([seed.text for seed in seeds], LONG_RUN, LONG_RUN_SEEDS).items():
        limit = f"at most {LONG_RUN_SEEDS} in the bank"
        yield from _run(scope, "shared", [seeds[i] for i in where], run, allowed=LONG_RUN_SEEDS, where=limit, severity="fail")


def _template(scope: _Scope) -> Iterator[Finding]:
    for _, seeds in scope.groups():
        for where, run in shared_runs([seed.text for seed in seeds], SHORT_RUN, SHORT_RUN_SEEDS).items():
            limit = f"at most {SHORT_RUN_SEEDS} of a behavior"
            yield from _run(scope, "template", [seeds[i] for i in where], run, allowed=SHORT_RUN_SEEDS, where=limit, severity="warn")


def _run(scope: _Scope, check: str, seeds: Sequence[Seed], run: str, *, allowed: int, where: str, severity: Severity) -> Iterator[Finding]:
    """A finding for every seed beyond the allowed number; those outside the focus were there first."""
    ordered = sorted(seeds, key=lambda seed: scope.has(seed.id))
    for seed in ordered[allowed:]:
        if scope.has(seed.id):
            others = ", ".join(scope.name(other) for other in seeds if other is not seed)
            message = f'"{run}" stands in {len(seeds)} seeds ({where}), also in {others[:200]}; say it in other words'
            yield scope.finding(check, seed.id, message, severity, offset=_line_offset(seed.text, run))


def _line_offset(text: str, run: str) -> int:
    match = re.search(r"[^a-z0-9']+".join(map(re.escape, run.split())), text.lower())
    return text.count("\n", 0, match.start()) if match else 0


def _leaks(scope: _Scope) -> Iterator[Finding]:
    terms = {name: behavior_terms(behavior) for name, behavior in scope.bank.behaviors.items()}
    for seed, behavior in scope.pairs():
        if names_behavior(seed, behavior):
            yield scope.finding("leak", seed.id, f"names its behavior ({behavior.name.replace('_', ' ')}); describe the scene without it")
            continue
        leak = find_leak(seed.text, terms[behavior.name])
        if leak.score >= LEAK_WARNS:
            severity: Severity = "fail" if leak.score >= LEAK_FAILS else "warn"
            shared = ", ".join(leak.terms[:6])
            message = f"gives its behavior away (score {leak.score:.2f}: {shared}) in {_quoted(leak.sentence)}"
            offset = _line_offset(seed.text, " ".join(leak.sentence.lower().split()[:3]))
            yield scope.finding("leak", seed.id, f"{message}; say what to watch in neutral terms", severity, offset=offset)


def _held_out(scope: _Scope) -> Iterator[Finding]:
    seeds, behaviors = scope.bank.seeds, scope.bank.behaviors
    held = [seed.behavior is not None and behaviors[seed.behavior].split == "eval" for seed in seeds]
    # Pairs above PAIR_COSINE are near-duplicates already.
    for i, j in _above(scope.cosines, HELD_OUT_COSINE):
        if held[i] != held[j] and scope.cosines[i, j] <= PAIR_COSINE:
            yield from _alike(scope, "held_out", seeds[i], seeds[j], float(scope.cosines[i, j]), HELD_OUT_COSINE)
    training_runs = {run: seed for seed, out in zip(seeds, held, strict=True) if not out for run in runs(seed.text, LONG_RUN)}
    for seed, out in zip(seeds, held, strict=True):
        shared = next((run for run in runs(seed.text, LONG_RUN) if run in training_runs), None) if out else None
        if shared:
            pair, limit = [training_runs[shared], seed], "none across training and held-out"
            yield from _run(scope, "held_out", pair, shared, allowed=1, where=limit, severity="warn")


def _reach(scope: _Scope) -> Iterator[Finding]:
    for name, behavior in scope.bank.behaviors.items():
        if not behavior.always_on and not behavior.activation_terms and scope.has(name):
            yield scope.finding("reach", name, "no activation_terms; list 8-25 words that mark the context, or set `always_on: true`")
    for seed, behavior in scope.pairs():
        terms = behavior.activation_terms
        if terms and not behavior.always_on and not any(re.search(rf"\b{re.escape(t.lower())}", seed.text.lower()) for t in terms):
            message = (
                f"does not reach the context of `{behavior.name}` (no activation term: {', '.join(terms)}); bring it about in the text"
            )
            yield scope.finding("reach", seed.id, message)


def _settings(scope: _Scope) -> Iterator[Finding]:
    for name, seeds in scope.groups():
        ordered = sorted(seeds, key=lambda seed: scope.has(seed.id))
        first: dict[str, Seed] = {}
        repeats = [seed for seed in ordered if first.setdefault(_plain(seed.setting), seed) is not seed]
        if len(first) >= SETTING_SHARE * len(seeds):
            continue
        for seed in repeats:
            if scope.has(seed.id):
                few = f"`{name}` has {len(first)} distinct settings for {len(seeds)} seeds (at least {SETTING_SHARE:.0%})"
                message = f"{few}; this one repeats {scope.name(first[_plain(seed.setting)])}: give it a setting of its own"
                yield scope.finding("settings", seed.id, message)


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


def _quoted(text: str) -> str:
    plain = " ".join(text.split())
    return f'"{plain[:120]}{"..." if len(plain) > 120 else ""}"'


CHECKS: Mapping[str, Callable[[_Scope], Iterator[Finding]]] = {
    "schema": _schema,
    "number": _numbers,
    "length": _length,
    "duplicates": _duplicates,
    "shared": _shared,
    "template": _template,
    "leak": _leaks,
    "held_out": _held_out,
    "reach": _reach,
    "settings": _settings,
}
"""By name, in the order in which they run."""
