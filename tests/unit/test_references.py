"""The cache of reference audits."""

from __future__ import annotations

from pathlib import Path

import pytest
from audits import audit, scenario

from auditrl.errors import RunError
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


def test_what_follows_a_cut_line_is_not_glued_to_it(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    References(file, 10).add([audit("r1", where=scenario(name="one")), audit("r2", where=scenario(name="two"))], 0)
    file.write_bytes(file.read_bytes()[:-10])
    cut = References.load(file, 10)
    cut.add([audit("again", where=scenario(name="two")), audit("r3", where=scenario(name="three"))], 1)
    whole = References.load(file, 10)
    assert [whole.get(scenario(name=name), 1) for name in ("one", "two", "three")] == [
        audit("r1", where=scenario(name="one")),
        audit("again", where=scenario(name="two")),
        audit("r3", where=scenario(name="three")),
    ]
    assert [found.id for found in whole.made_at(1)] == ["again", "r3"]


def test_memory_holds_the_references_of_one_snapshot(tmp_path: Path) -> None:
    references = References(tmp_path / "r.jsonl", 10)
    for step in range(0, 100, 5):
        references.add([audit(f"r{step}", where=scenario(name=f"s{step}"))], step)
    assert len(references._held) == 2
    assert references.get(scenario(name="s0"), 0) == audit("r0", where=scenario(name="s0"))  # a run that was set back by hand finds them
    assert [found.id for found in references.made_at(95)] == ["r95"]
    assert len(references._held) == 1


@pytest.mark.parametrize(
    "line", ['{"snapshot": 0}', '{"scenario": "s"}', '{"snapshot": "x", "scenario": "s"}', '{"snapshot": null, "scenario": "s"}']
)
def test_a_line_of_something_else_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "references.jsonl"
    file.write_text(line + "\n")
    with pytest.raises(RunError, match="a line without its snapshot"):
        References.load(file, 10)
