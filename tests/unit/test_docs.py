"""Docs describe today: tables are the printed ones, files and commands exist, nothing names this machine."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest

from auditrl.cli import cli
from auditrl.sim.assumptions import pairs_table, parameters_table

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])


def test_the_worlds_tables_are_the_printed_ones() -> None:
    page = (ROOT / "docs" / "simulated-world.md").read_text(encoding="utf-8")
    assert pairs_table() in page
    assert parameters_table() in page


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def commands(page: Path) -> list[str]:
    """Lines of indented or fenced blocks that call auditrl, continuations joined."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    return [m.strip() for m in re.findall(r"^(?: {4}|)((?:\S+/)?auditrl [a-z].*)$", text, re.M)]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_parse_as_they_stand(page: Path) -> None:
    """Every command that a page shows names a command and options that exist, and files that are there."""
    for line in commands(page):
        words = shlex.split(line, comments=True)[1:]
        group: click.Command = cli
        context = click.Context(cli)
        while isinstance(group, click.Group) and words:
            found = group.get_command(context, words[0])
            assert found is not None, f"{page.name}: {line}"
            group, words = found, words[1:]
        known = {option for parameter in group.params for option in parameter.opts} | {"--help"}
        for word in words:
            if word.startswith("--"):
                name = word.split("=")[0]
                assert name in known or "." in name or group.context_settings.get("ignore_unknown_options"), f"{page.name}: {line}: {name}"
            elif word.startswith(("src/", "docs/", "examples/", "configs/")):
                assert (ROOT / word).exists(), f"{page.name}: {word}"


def test_the_lock_holds_hashes_and_no_addresses() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert "://" not in lock
    pins = re.findall(r"^([a-z0-9][a-z0-9._-]*)==", lock, re.M)
    assert len(pins) > 100
    assert lock.count("--hash=sha256:") >= len(pins)
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {re.split(r"[<>=\[]", item)[0].lower() for item in wanted}
    assert names <= set(pins)
