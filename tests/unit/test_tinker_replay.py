"""The Tinker engine against a recorded exchange with SkyRL 0.4.0's server (see `tinker_exchange`)."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tinker_exchange import MODEL, RECORD, Exchange, assert_same, check, scenario

from auditrl.policy import tinker_remote, tinker_server
from auditrl.policy.tinker import TinkerEngine


def test_the_engine_asks_what_it_asked_and_reads_what_it_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    record: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    exchange, freed = Exchange(calls=record["calls"]), []
    monkeypatch.setitem(sys.modules, "tinker", exchange.module())
    monkeypatch.setattr(tinker_server, "check_answers", lambda *_: None)
    monkeypatch.setattr(tinker_remote, "post", lambda _address, page, body: freed.append((page, body["model_id"])))

    results = asyncio.run(scenario(lambda: TinkerEngine(MODEL, server="skyrl-jax", base_url="http://server", rank=4, seed=1), tmp_path))

    assert exchange.done == len(record["calls"])
    assert_same(results, record["results"], "results")
    check(results, close=1e-4)
    made = [call["answer"]["model_id"] for call in record["calls"] if call["request"] == "create_model"]
    assert sorted(freed) == sorted(("unload_model", model_id) for model_id in made), "every adapter is given back"


def test_another_request_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    exchange = Exchange(calls=json.loads(RECORD.read_text(encoding="utf-8"))["calls"])
    monkeypatch.setitem(sys.modules, "tinker", exchange.module())
    monkeypatch.setattr(tinker_server, "check_answers", lambda *_: None)
    monkeypatch.setattr(tinker_remote, "post", lambda *_: None)
    with pytest.raises(Exception, match="create_model"):
        asyncio.run(scenario(lambda: TinkerEngine(MODEL, server="skyrl-jax", base_url="http://server", rank=8, seed=1), tmp_path))
