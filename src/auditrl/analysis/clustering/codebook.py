"""A frozen codebook: what the clusters are, and all that it takes to put a new transcript into one of them.

One JSON file. Arrays stand in it as base64 of little-endian float32, so that reading it back changes no bit and the same text is always
classified alike.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, ValidationError, model_validator

from ...errors import ConfigError
from ...files import write_whole
from ...types import Frozen
from .categories import OTHER
from .cluster import Labels, assign
from .embed import Embedder, Tfidf, Vectors, open_embedder

FORMAT = "auditrl.codebook"
VERSION = 1


class Array(Frozen):
    """A float32 array as text."""

    shape: tuple[int, ...]
    data: str

    @staticmethod
    def of(values: NDArray[np.float32]) -> Array:
        """Encode."""
        return Array(shape=values.shape, data=base64.b64encode(np.ascontiguousarray(values, dtype="<f4").tobytes()).decode())

    def values(self) -> NDArray[np.float32]:
        """Decode. ValueError if the data don't fit the shape."""
        return np.frombuffer(base64.b64decode(self.data, validate=True), dtype="<f4").reshape(self.shape).astype(np.float32)


class TfidfState(Frozen):
    """The fitted weights of TF-IDF."""

    terms: tuple[str, ...]
    idf: Array
    components: Array


class CodeCluster(Frozen):
    """One cluster of one level; its number is its place in the level."""

    name: str
    summary: str = ""
    size: int = Field(ge=0)
    """Transcripts that it held when the codebook was made."""
    parent: int | None = None
    """Number of its parent on the level above; None at the top."""
    category: str = OTHER
    examples: tuple[str, ...] = ()
    """A few descriptions from inside."""


class Codebook(Frozen):
    """The file of `auditrl cluster`."""

    format: Literal["auditrl.codebook"] = FORMAT
    version: Literal[1] = VERSION
    random_seed: int
    simulated: bool
    """From audits of the simulated world: a model of the method."""
    describer: str
    """`rule`, or the model that described. A codebook classifies descriptions of its own describer only."""
    namer: str
    embedding: str
    fitted_on: int
    """Transcripts that the clusters were found in."""
    radius: float
    """Distance to the nearest centroid that 99% of them kept; further away lies what the codebook has not seen."""
    categories: tuple[str, ...]
    levels: tuple[tuple[CodeCluster, ...], ...] = Field(min_length=1)
    """Bottom first."""
    centroids: Array
    """Of the bottom level, (K, D)."""
    tfidf: TfidfState | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        rows = self.centroids.values()
        if rows.ndim != 2 or len(rows) != len(self.levels[0]) or not np.isfinite(rows).all():
            raise ValueError(f"centroids: {self.centroids.shape} does not fit {len(self.levels[0])} clusters, or holds NaN")
        for below, above in zip(self.levels, self.levels[1:], strict=False):
            if any(c.parent is None or not 0 <= c.parent < len(above) for c in below):
                raise ValueError("levels: a cluster has no parent on the level above")
        if (self.tfidf is None) == (self.embedding == "tfidf"):
            raise ValueError(f"tfidf: must be there for the embedding tfidf and for no other (embedding {self.embedding!r})")
        return self

    @property
    def digest(self) -> str:
        """Identifies the codebook beside what it classified: 12 hexadecimal digits over everything but names."""
        parts = [self.embedding, self.describer, self.centroids.data, repr([[c.parent for c in level] for level in self.levels])]
        if self.tfidf is not None:
            parts += [*self.tfidf.terms, self.tfidf.idf.data, self.tfidf.components.data]
        return hashlib.sha256("\x00".join(parts).encode()).hexdigest()[:12]

    @property
    def top(self) -> tuple[CodeCluster, ...]:
        """The highest level."""
        return self.levels[-1]

    def embedder(self, cache: Path | None = None) -> Embedder:
        """The embedder that the vectors have to come from. ConfigError where it is not installed."""
        if self.tfidf is not None:
            return Tfidf(self.tfidf.terms, self.tfidf.idf.values(), self.tfidf.components.values())
        found = open_embedder(self.embedding, cache)
        assert found is not None
        return found

    def place(self, vectors: Vectors) -> Placement:
        """Put vectors (N, D) into the clusters of every level. ConfigError for vectors of another length or with NaN."""
        centroids = self.centroids.values()
        if vectors.ndim != 2 or vectors.shape[1] != centroids.shape[1]:
            raise ConfigError(f"codebook: vectors of length {vectors.shape[-1]}, its own have {centroids.shape[1]}; use {self.embedding}")
        if not np.isfinite(vectors).all():
            raise ConfigError("codebook: some vectors hold NaN or infinite values; check the embedding")
        labels, distances = assign(vectors, centroids)
        found = [labels]
        for level in self.levels[:-1]:
            found.append(np.asarray([c.parent for c in level], dtype=np.int64)[found[-1]])
        return Placement(found, [self.top[int(c)].category for c in found[-1]], distances, distances > self.radius + 1e-6)

    def classify(self, texts: Sequence[str], embedder: Embedder | None = None) -> Placement:
        """Put descriptions into the clusters of every level."""
        return self.place((embedder or self.embedder()).embed(texts))

    def save(self, path: Path) -> None:
        """Write whole. ConfigError if the file can't be written."""
        try:
            write_whole(path, self.model_dump_json(indent=1))
        except OSError as error:
            raise ConfigError(f"{path}: can't be written ({error.strerror}); choose another folder with --out") from None


@dataclass(frozen=True, slots=True)
class Placement:
    """Where N transcripts belong."""

    levels: list[Labels]
    """Labels of every level, bottom first."""
    categories: list[str]
    distances: NDArray[np.float32]
    """To the nearest centroid of the bottom level."""
    strange: NDArray[np.bool_]
    """Whether it lies further out than 99% of what the codebook was made of."""


class _Head(BaseModel):
    format: str
    version: int


def load_codebook(path: Path) -> Codebook:
    """Read a codebook. ConfigError names the file, the first bad key and the mend."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: can't be read ({error}); make it with `auditrl cluster RUN --out FOLDER`") from None
    try:
        # no file of ours leaves these out; the model's defaults are for making one
        head = _Head.model_validate_json(text)
        if (head.format, head.version) != (FORMAT, VERSION):
            raise ConfigError(
                f"{path}: format {head.format!r} version {head.version!r}, this auditrl reads {FORMAT} {VERSION}; "
                "make it again with `auditrl cluster`, or use the version of auditrl that wrote it"
            )
        return Codebook.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, first["loc"])) or "(whole file)"
        raise ConfigError(f"{path}: no codebook (key {key}: {first['msg']}); make it again with `auditrl cluster`") from None
