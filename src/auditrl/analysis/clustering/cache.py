"""Vectors on disk, by a hash of the embedder's name and the text: one SQLite file, safe against a kill at any moment."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ...errors import RunError

FILE = "embeddings.sqlite"
_MANY = 500


class VectorCache:
    """Open for the length of a `with` block."""

    def __init__(self, folder: Path, embedder: str) -> None:
        """Open or make `folder/embeddings.sqlite`. RunError if that is not possible."""
        self._embedder = embedder
        self.path = folder / FILE
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._base = sqlite3.connect(self.path, timeout=60)
            self._base.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB NOT NULL) WITHOUT ROWID")
        except (OSError, sqlite3.Error) as error:
            raise RunError(f"{self.path}: no cache of embeddings ({error}); remove the file, or name another folder") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._base.close()

    def _key(self, text: str) -> bytes:
        return hashlib.sha256(f"{self._embedder}\x00{text}".encode("utf-8", "surrogatepass")).digest()

    def get(self, texts: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """Text -> vector, of those that are known."""
        keys = {self._key(text): text for text in texts}
        found: dict[str, NDArray[np.float32]] = {}
        wanted = list(keys)
        for start in range(0, len(wanted), _MANY):
            part = wanted[start : start + _MANY]
            marks = ",".join("?" * len(part))
            for key, vector in self._base.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", part):
                found[keys[key]] = np.frombuffer(vector, dtype=np.float32)
        return found

    def put(self, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """Keep vectors, all of them or none."""
        rows = [(self._key(text), vector.tobytes()) for text, vector in zip(texts, vectors, strict=True)]
        with self._base:
            self._base.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)
