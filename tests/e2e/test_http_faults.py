"""Runs whose target and judge stand behind an HTTP server that misbehaves."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

from auditrl.commands.training import work_on
from auditrl.config import RunConfig, load_config
from auditrl.display import NoDisplay
from auditrl.errors import ProviderError
from auditrl.runs import create_run, open_run

sys.path.insert(0, str(Path(__file__).parents[1]))
from fault_server import KEY, MIX, FaultServer, config_text, serving

MENDED = {kind: weight for kind, weight in MIX.items() if kind != "refusal"}
"""Faults that another attempt mends; a target that refuses has answered."""
APART = ("time", "faults", "usage", "cost", "cached_share")
"""What faults may change in a row: the clock, their count, and the tokens of answers that were thrown away."""


def config(folder: Path, server: FaultServer, *overrides: tuple[str, str]) -> RunConfig:
    file = folder / "http.toml"
    file.write_text(config_text(server.base_url, steps=2))
    return load_config(file, overrides)


def train(folder: Path, server: FaultServer, *overrides: tuple[str, str]) -> Path:
    run = create_run(folder, config(folder, server, *overrides))
    work_on(run, NoDisplay())
    return run.path


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def results(run: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k not in APART} for row in rows(run)]


def summed(faults: Iterable[dict[str, dict[str, int]]]) -> dict[str, dict[str, int]]:
    total: dict[str, Counter[str]] = {}
    for found in faults:
        for role, kinds in found.items():
            total.setdefault(role, Counter()).update(kinds)
    return {role: dict(sorted(kinds.items())) for role, kinds in sorted(total.items())}


@pytest.fixture(scope="module", autouse=True)
def _key() -> Generator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAULTY_API_KEY", KEY)
        yield


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with serving(FaultServer()) as server:
        run = train(tmp_path_factory.mktemp("healthy"), server)
    assert all(row["faults"] == {} for row in rows(run))
    return run


def test_faults_of_a_tenth_of_the_calls_change_no_result_and_are_all_counted(unbroken: Path, tmp_path: Path) -> None:
    with serving(FaultServer(share=0.1, seed=5, mix=MENDED)) as server:
        run = train(tmp_path, server)
    assert results(run) == results(unbroken)
    assert summed(row["faults"] for row in rows(run)) == summed([server.counted()])
    assert server.faults.total() > 10
    read, judged = 0, [json.loads(answer) for answer in server.answers if answer.startswith("{")]
    for step in (1, 2):
        for record in open_run(run).read_step(step, "audits"):
            (verdict,) = record["verdicts"]
            values = {a["comparison"] / 100 for a in judged if a.get("reasoning") == verdict["reason"]}
            assert any(record["reward"] in (pytest.approx(value), pytest.approx(1 - value)) for value in values)
            read += 1
    assert read == 32


def test_a_server_that_dies_stops_the_run_and_a_resume_ends_as_if_it_had_not(unbroken: Path, tmp_path: Path) -> None:
    class Dying(NoDisplay):
        def advance(self, text: str = "", units: int = 1) -> None:
            server.gone = True

    with serving(FaultServer()) as server:
        run = create_run(tmp_path, config(tmp_path, server, ("targets.pool.http.max_retries", "1"), ("judge.max_retries", "1")))
        with pytest.raises(ProviderError, match=r"audits failed.*APIConnectionError.*auditrl resume"):
            work_on(run, Dying())
        assert len(rows(run.path)) == 1
        server.gone = False
        work_on(open_run(run.path), NoDisplay())
    assert results(run.path) == results(unbroken)
