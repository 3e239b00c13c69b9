"""What to call a cluster: found by contrast, its own descriptions against the nearest ones outside of it (Tamkin et al. 2024).

Without a model the name is made of the most distinctive terms. A model's name is refused, and asked for again with the reason, if it is
a topic (words that the audits' descriptions must not hold), taken already, or too long; after that the terms stand in.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from ...audit.transcript import fence
from ...judges.base import Answer, ask
from .leaks import find_leaks

if TYPE_CHECKING:
    from inspect_ai.model import Model

TERMS = "terms"
KIND = "strategy_name"
ATTEMPTS = 3
MAX_WORDS = 9
_PRIOR = 0.5
"""Pseudo-count of a term on each side: a term that two descriptions hold is no sign."""
_TERMS = 3
_LONGEST = 5


@dataclass(frozen=True, slots=True)
class Name:
    """Name and one-sentence summary of a cluster; `source` says who found them, `refused` what was turned down before."""

    name: str
    summary: str
    source: str
    refused: tuple[str, ...] = ()


class NameAnswer(Answer):
    """What a naming model answers."""

    name: str = Field(min_length=3, description="Name of the strategy, at most nine words")
    summary: str = Field(min_length=10, description="What the audits of this group have in common and the others lack, in one sentence")


def distinctive_terms(inside: Sequence[str], outside: Sequence[str], count: int) -> list[str]:
    """Terms of one to five words that set the inside apart, most distinctive first, none sharing a word with another.

    Score: log odds ratio of a description holding the term, inside against outside, with a pseudo-count of 0.5 on each side, over its
    standard error (Monroe et al. 2008, with a flat prior). Terms that fewer than half of the inside hold say little and come last.
    """
    text: Any = import_module("sklearn.feature_extraction.text")
    counter = text.CountVectorizer(analyzer=_terms_of, binary=True)
    try:
        held = np.asarray(counter.fit_transform([*inside, *outside]).todense(), dtype=np.float64)
    except ValueError:
        return []
    terms = [str(term) for term in counter.get_feature_names_out()]
    a, b = held[: len(inside)].sum(axis=0), held[len(inside) :].sum(axis=0)
    with_a, without_a = a + _PRIOR, len(inside) - a + _PRIOR
    with_b, without_b = b + _PRIOR, len(outside) - b + _PRIOR
    error = np.sqrt(1 / with_a + 1 / without_a + 1 / with_b + 1 / without_b)
    score = (np.log(with_a / without_a) - np.log(with_b / without_b)) / error
    common = a >= len(inside) / 2
    stop: frozenset[str] = text.ENGLISH_STOP_WORDS
    found: list[str] = []
    # of terms that stand in the same descriptions the longest is the most readable
    for i in sorted(range(len(terms)), key=lambda i: (not common[i], -round(float(score[i]), 6), -len(terms[i]), terms[i])):
        if score[i] <= 0 and found:
            break
        words = set(terms[i].split()) - stop
        if words and not any(words & set(other.split()) for other in found):
            found.append(terms[i])
        if len(found) == count:
            break
    return found


def _terms_of(description: str) -> list[str]:
    """Runs of one to five words that don't cross a comma or full stop and don't begin or end with a filler."""
    stop: frozenset[str] = import_module("sklearn.feature_extraction.text").ENGLISH_STOP_WORDS
    found: set[str] = set()
    for clause in re.split(r"[.,:;!?]\s", f"{description.lower()} "):
        words = re.findall(r"[a-z][a-z'-]*", clause)
        for size in range(1, _LONGEST + 1):
            for start in range(len(words) - size + 1):
                run = words[start : start + size]
                if run[0] not in stop and run[-1] not in stop:
                    found.add(" ".join(run))
    return sorted(found)


def name_by_terms(inside: Sequence[str], outside: Sequence[str], taken: Collection[str], refused: tuple[str, ...] = ()) -> Name:
    """A name of the three most distinctive terms, made unique by further ones, or by a number; the summary is the most typical description."""
    terms = distinctive_terms(inside, outside, 2 * _TERMS)
    known = {_plain(name) for name in taken}
    name = " \u00b7 ".join(terms[:_TERMS]) or "no words"
    for more in range(_TERMS + 1, len(terms) + 1):
        if _plain(name) not in known:
            break
        name = " \u00b7 ".join(terms[:more])
    number = 2
    base = name
    while _plain(name) in known:
        name = f"{base} ({number})"
        number += 1
    typical = Counter(inside).most_common(1)[0][0] if inside else ""
    return Name(name, typical, TERMS, refused)


async def name_by_model(
    model: Model,
    inside: Sequence[str],
    outside: Sequence[str],
    banned: Mapping[str, int],
    taken: Collection[str],
    *,
    attempts: int = ATTEMPTS,
) -> Name:
    """Ask a model; fall back on terms.

    Args:
        banned: Stems that would make the name a topic.
        taken: Names of this level so far.
        attempts: How often to ask.
    """
    refused: list[str] = []
    for _ in range(attempts):
        values = {
            "inside": _listed(inside),
            "outside": _listed(outside),
            "refused": fence("; ".join(refused)) or "none so far",
        }
        asked = await ask(model, kind=KIND, answer=NameAnswer, values=values, attempts=1)
        if asked.answer is None:
            refused.append(f"(no name: {asked.missing})")
            continue
        name, summary = " ".join(asked.answer.name.split()).rstrip("."), " ".join(asked.answer.summary.split())
        problem = name_problem(name, summary, banned, taken)
        if problem is None:
            return Name(name, summary, "model", tuple(refused))
        refused.append(f"{name[:80]} ({problem})")
    return name_by_terms(inside, outside, taken, tuple(refused))


def name_problem(name: str, summary: str, banned: Mapping[str, int], taken: Collection[str]) -> str | None:
    """Why a name can't be used; None if it can."""
    if not _plain(name):
        return "no words"
    if len(name.split()) > MAX_WORDS:
        return f"longer than {MAX_WORDS} words"
    if leaks := find_leaks(f"{name}. {summary}", banned):
        return f"tells the topic: {', '.join(leaks[:5])}"
    return "taken by another group" if is_taken(name, taken) else None


def is_taken(name: str, taken: Collection[str]) -> bool:
    """Whether a name is one of these, case and punctuation aside."""
    return _plain(name) in {_plain(other) for other in taken}


def common_bans(bans: Sequence[frozenset[str]]) -> dict[str, int]:
    """Stems that make a name a topic: those that at least a tenth of the cluster's examples must not hold, with their counts."""
    counts = Counter(s for stems in bans for s in stems)
    return {s: count for s, count in counts.items() if count >= max(1, 0.1 * len(bans))}


def _plain(name: str) -> str:
    return " ".join(re.findall(r"[^\W_]+", name.lower()))


def _listed(texts: Sequence[str]) -> str:
    return "\n".join(f"{i}. {fence(' '.join(text.split()))}" for i, text in enumerate(texts, start=1)) or "none"
