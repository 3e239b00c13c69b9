"""How alike texts are: words, stems, shared runs and TF-IDF cosines. Pure functions over lists of texts."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_WORD = re.compile(r"[a-z0-9']+")
_SUFFIXES = (
    "ational", "ations", "ation", "ingly", "fully", "ments", "ement", "ness", "ment", "able", "ible", "edly", "ings", "ions", "ies",
    "ied", "ing", "ion", "ers", "ful", "est", "ity", "ive", "ous", "ed", "er", "es", "ly", "al", "s", "y", "e",
)  # fmt: skip
_MIN_STEM = {"s": 3, "ed": 3}  # other endings leave four letters


def words(text: str) -> list[str]:
    """Lower-case words (letters, digits, apostrophes) in order."""
    return _WORD.findall(text.lower())


def stem(word: str) -> str:
    """The word without common English endings; `flatters`, `flattery` and `flattering` agree."""
    word = word.removesuffix("'s").replace("'", "")
    changed = True
    while changed:
        changed = False
        for suffix in _SUFFIXES:
            if word.endswith(suffix) and len(word) - len(suffix) >= _MIN_STEM.get(suffix, 4):
                word, changed = word[: -len(suffix)], True
                break
    if len(word) > 4 and word[-1] == word[-2] and word[-1] not in "sl":
        word = word[:-1]
    return word


def runs(text: str, n: int) -> list[str]:
    """All runs of n consecutive words, in order."""
    found = words(text)
    return [" ".join(found[i : i + n]) for i in range(len(found) - n + 1)]


def shared_runs(texts: Sequence[str], n: int, limit: int) -> dict[tuple[int, ...], str]:
    """Runs of n words that stand in more than `limit` of the texts.

    A longer shared passage is many runs: only the first run of each set of texts is kept.

    Returns:
        Indices of the texts that share a run -> the run.
    """
    places: dict[str, list[int]] = defaultdict(list)
    for index, text in enumerate(texts):
        for run in dict.fromkeys(runs(text, n)):
            places[run].append(index)
    found: dict[tuple[int, ...], str] = {}
    for run, where in places.items():
        if len(where) > limit:
            found.setdefault(tuple(where), run)
    return found


def cosines(texts: Sequence[str]) -> NDArray[np.float64]:
    """TF-IDF cosines (sublinear term frequency, English stop words left out, fitted on these texts).

    Returns:
        Symmetric array of shape (len(texts), len(texts)).
    """
    import numpy as np
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer: Any = TfidfVectorizer(sublinear_tf=True, stop_words="english")
    try:
        rows: Any = vectorizer.fit_transform(texts)
    except ValueError:
        # no word but stop words in any text: nothing to compare
        return np.zeros((len(texts), len(texts)))
    return np.asarray((rows @ rows.T).toarray(), dtype=np.float64)


def pair_cosines(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """The cosines of all distinct pairs of a square array, shape (n (n - 1) / 2,)."""
    import numpy as np

    return matrix[np.triu_indices(len(matrix), 1)]
