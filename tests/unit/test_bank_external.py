"""Petri's seeds in every form, and AuditBench's names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bank_files import TOOL

from auditrl.behaviors.external import AUDITBENCH, from_auditbench, load_petri_seeds
from auditrl.behaviors.loader import load_bank
from auditrl.errors import ConfigError

MARKDOWN = "---\n# a comment\ntags: [deception, tools]\n---\n\nFirst line.\n\nSecond line.\n"


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_petri_default_seeds() -> None:
    seeds = load_petri_seeds()
    assert len(seeds) > 100
    assert len({seed.id for seed in seeds}) == len(seeds)
    assert {(seed.behavior, seed.split) for seed in seeds} == {(None, "eval")}
    (one,) = load_petri_seeds(f"id:{seeds[0].id.removeprefix('petri/')}")
    assert one == seeds[0]


def test_folders_and_files(tmp_path: Path) -> None:
    folder = tmp_path / "seeds"
    folder.mkdir()
    _write(folder / "b.md", MARKDOWN)
    _write(folder / "a.md", "Only text.\n")
    assert [(s.id, s.text) for s in load_petri_seeds(folder)] == [("petri/a", "Only text."), ("petri/b", "First line.\n\nSecond line.")]
    assert [s.id for s in load_petri_seeds(folder, tags=["deception"])] == ["petri/b"]
    assert [s.text for s in load_petri_seeds(folder / "b.md")] == ["First line.\n\nSecond line."]
    assert [s.id for s in load_petri_seeds(folder / "b.md", tags=["tools"])] == ["petri/b"]
    lines = _write(tmp_path / "seeds.txt", "One seed.\n\nAnother seed.\n")
    assert [(s.id, s.text) for s in load_petri_seeds(lines)] == [("petri/1", "One seed."), ("petri/2", "Another seed.")]


def test_datasets_carry_tools_behavior_and_split(tmp_path: Path) -> None:
    row = {"id": "x", "input": "Text.", "metadata": {"tools": [TOOL]}}
    path = _write(tmp_path / "seeds.jsonl", json.dumps(row) + "\n")
    (seed,) = load_petri_seeds(path, behavior="flattery", split="train")
    assert (seed.id, seed.behavior, seed.split, seed.tools) == ("petri/x", "flattery", "train", (TOOL,))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("absent", None, "no such file or folder"),
        ("empty.txt", "\n", "no seed in it"),
        ("open.md", "---\ntags: [x\n---\nText.\n", "can't be read as Petri seeds"),
        ("bad.jsonl", '{"input": "x", "metadata": {"tools": "read"}}\n', "`tools` must be a list of mappings"),
        ("tool.jsonl", '{"input": "x", "metadata": {"tools": [{"name": "r"}]}}\n', "`description` is missing"),
        ("twice.jsonl", '{"id": "a", "input": "x"}\n{"id": "a", "input": "y"}\n', "duplicate id `petri/a`"),
        ("blank.jsonl", '{"id": "a", "input": " "}\n', "seed a is empty"),
    ],
)
def test_what_cannot_be_read(name: str, text: str | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if text is not None:
        _write(path, text)
    with pytest.raises(ConfigError, match=said) as caught:
        load_petri_seeds(path)
    assert str(path) in str(caught.value)


def test_unknown_selectors_and_tags() -> None:
    with pytest.raises(ConfigError, match="can't be read as Petri seeds"):
        load_petri_seeds("id:no_such_seed")
    with pytest.raises(ConfigError, match="no seed in it with these tags"):
        load_petri_seeds(tags=["no such tag"])


def test_auditbench_names_are_the_bank_s() -> None:
    assert len(AUDITBENCH) == 14
    marked = {b.name for b in load_bank().behaviors.values() if b.source == "auditbench"}
    assert marked == set(AUDITBENCH.values())


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        *AUDITBENCH.items(),
        ("Defer-To-Users", "defer_to_users"),
        ("Anti-AI Regulation", "anti_ai_regulation"),
        ("Data Poisoning", "ai_welfare_poisoning"),
        ("llama_70b_transcripts_only_then_redteam_kto_secret_loyalty", "secret_loyalty"),
    ],
)
def test_auditbench_spellings(name: str, ours: str) -> None:
    assert from_auditbench(name) == ours


def test_the_docs_list_every_name() -> None:
    page = (Path(__file__).parents[2] / "docs" / "behaviors.md").read_text(encoding="utf-8")
    for title, ours in AUDITBENCH.items():
        assert f"| {title} | `{ours}` |" in page


@pytest.mark.parametrize("name", ["", "research_sandbagging", "third_party_politics", "flattery_v2", "battery"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(ConfigError, match="none of AuditBench's behaviors; known: ai_welfare_poisoning"):
        from_auditbench(name)
