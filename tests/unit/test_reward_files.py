"""A reward design of a user's own, in one file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from auditrl.config import load_config, packaged_config
from auditrl.errors import ConfigError
from auditrl.rewards.base import registered, restore
from auditrl.rewards.files import load_reward_file
from auditrl.train.workshop import check_run

GOOD = """
from auditrl.rewards import reward

@reward("{name}")
class Mine:
    needs_reference = False
    needs_truth = False
    allows_clean = True

    async def judge(self, group, judges):
        return []

    def rewards(self, group, verdicts):
        return {{audit.id: float(audit.turns) for audit in group.finished}}
"""


@pytest.fixture(autouse=True)
def _known_designs() -> Iterator[None]:
    before = registered()
    yield
    restore(before)


def test_a_file_registers_its_design(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(GOOD.format(name="mine-1"))
    assert load_reward_file(path) == "mine-1"
    assert load_reward_file(path) == "mine-1"  # a second run in one process
    config = load_config(packaged_config("quickstart"), [("reward.kind", str(path))])
    assert type(check_run(config)).__name__ == "Mine"


def test_the_digest_follows_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(GOOD.format(name="mine-2"))
    config = load_config(packaged_config("quickstart"), [("reward.kind", str(path))])
    before = config.digest
    path.write_text(GOOD.format(name="mine-2") + "\n# another formula\n")
    assert config.digest != before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "no file"),
        ("import nothing_of_that_name", "ModuleNotFoundError"),
        ("x = 1", "registers 0 designs"),
        (GOOD.format(name="a-1") + GOOD.format(name="a-2"), "registers 2 designs"),
        (GOOD.format(name="reference"), "design of the package"),
    ],
)
def test_what_a_file_can_get_wrong(tmp_path: Path, text: str | None, words: str) -> None:
    before = registered()
    path = tmp_path / "mine.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        load_reward_file(path)
    assert registered() == before  # a refused file leaves nothing behind
