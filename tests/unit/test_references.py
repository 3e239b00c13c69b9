"""The cache of reference audits."""

from __future__ import annotations

from pathlib import Path

import pytest
from audits import audit, scenario

from auditrl.train.references import References


@pytest.mark.parametrize(("renewal", "step", "snapshot"), [(25, 0, 0), (25, 24, 0), (25, 25, 25), (25, 74, 50), (None, 999, 0), (1, 7, 7)])
def test_snapshot_of_a_step(tmp_path: Path, renewal: int | None, step: int, snapshot: int) -> None:
    references = References(tmp_path / "r.jsonl", renewal)
    assert references.snapshot_step(step) == snapshot
    assert references.due(step) is (snapshot == step)


def test_each_scenario_is_missing_once_until_renewal(tmp_path: Path) -> None:
    references = References(tmp_path / "r.jsonl", 10)
    one, two = scenario(name="one"), scenario(name="two")
    assert references.missing([one, two, one], 0) == [one, two]
    references.add([audit("ref", where=one)], 3)
    assert references.missing([one, two], 9) == [two]
    assert references.get(one, 9) == audit("ref", where=one)
    assert references.missing([one, two], 10) == [one, two]


def test_failed_references_are_tried_again(tmp_path: Path) -> None:
    references = References(tmp_path / "r.jsonl", None)
    references.add([audit(error="target: down")], 0)
    assert references.missing([scenario()], 1) == [scenario()]


def test_the_file_brings_the_cache_back_also_after_a_cut(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    references = References(file, 10)
    references.add([audit("r1", where=scenario(name="one"))], 0)
    references.add([audit("r2", where=scenario(name="two"))], 10)
    again = References.load(file, 10)
    assert again.get(scenario(name="one"), 5) == audit("r1", where=scenario(name="one"))
    assert again.get(scenario(name="one"), 15) is None
    file.write_bytes(file.read_bytes()[:-10])
    cut = References.load(file, 10)
    assert cut.missing([scenario(name="one")], 0) == []
    assert cut.missing([scenario(name="two")], 10) == [scenario(name="two")]
