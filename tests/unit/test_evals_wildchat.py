"""Real conversations: the package's own and a user's WildChat export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from auditrl.behaviors.frontmatter import CANARY
from auditrl.errors import ConfigError
from auditrl.evals import wildchat
from auditrl.evals.wildchat import PACKAGED_NOTE, conversation_note, load_wildchat, packaged_conversations, read_choice


def row(name: str, exchanges: int = 3, **changes: Any) -> dict[str, Any]:
    turns = [
        {"role": role, "content": f"{role} {i} of {name}", "language": "English"}
        for i in range(exchanges)
        for role in ("user", "assistant")
    ]
    return {
        "conversation_hash": name,
        "conversation": turns,
        "language": "English",
        "toxic": False,
        "redacted": False,
        "model": "m",
        **changes,
    }


def export(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    return path


def test_the_package_holds_twenty_conversations_half_of_each_kind() -> None:
    found = packaged_conversations()
    assert [c.kind for c in found] == ["vulnerable", "harmful"] * 10
    assert len({c.id for c in found}) == len({c.text for c in found}) == 20
    for conversation in found:
        assert 3 <= sum(m.role == "user" for m in conversation.messages) <= 6
        assert conversation.messages[0].role == "user" and conversation.messages[-1].role == "assistant"
        assert conversation.source == "packaged" and "canary" not in conversation.text
    folder = Path(wildchat.__file__).parent / "conversations"
    assert all(CANARY in path.read_text(encoding="utf-8") for path in folder.glob("*.md"))


def test_only_stand_ins_are_marked() -> None:
    assert conversation_note(["packaged"]) == PACKAGED_NOTE
    assert conversation_note(["wildchat", "sim"]) is None


def test_filters_and_the_draw(tmp_path: Path) -> None:
    rows = [
        row("d"),
        row("b", toxic=True),
        row("a"),
        row("a"),
        row("long", exchanges=9),
        row("short", exchanges=2),
        row("german", language="German"),
        row("redacted", redacted=True),
        row("blank", conversation=[{"role": "user", "content": " "}] * 3),
    ]
    path = export(tmp_path / "w.jsonl", *rows)
    assert [c.id for c in load_wildchat(path, count=2)] == ["wildchat/b", "wildchat/a"]
    assert [c.id for c in load_wildchat(path, language=None, redacted=True, exchanges=(1, 20), count=20)][1:] == [
        f"wildchat/{n}" for n in ("a", "d", "german", "long", "redacted", "short")
    ]
    with pytest.raises(ConfigError, match=r"w\.jsonl: no conversation passes the filters"):
        load_wildchat(path, language="Klingon")


def test_a_choice_file_names_exactly_what_is_taken(tmp_path: Path) -> None:
    path = export(tmp_path / "w.jsonl", row("a"), row("long", exchanges=9), row("c"))
    choice = tmp_path / "choice.csv"
    choice.write_text("# ours\nlong, vulnerable\n\na,harmful # second\n", encoding="utf-8")
    found = load_wildchat(path, choice=choice)
    assert [(c.id, c.kind, c.source) for c in found] == [("wildchat/long", "vulnerable", "wildchat"), ("wildchat/a", "harmful", "wildchat")]
    choice.write_text("a\nz\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="1 of 2 chosen conversations are not in it, first z"):
        load_wildchat(path, choice=choice)


def test_parquet_and_folders(tmp_path: Path) -> None:
    pd.DataFrame([row("a"), row("b")]).to_parquet(tmp_path / "part-0.parquet")
    export(tmp_path / "part-1.jsonl", row("c"))
    assert [c.id for c in load_wildchat(tmp_path)] == ["wildchat/a", "wildchat/b", "wildchat/c"]
    assert load_wildchat(tmp_path / "part-0.parquet")[0].messages[0].text == "user 0 of a"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("w.jsonl", "", r"w\.jsonl: is empty"),
        ("w.jsonl", "{\n", "line 1 is not JSON"),
        ("w.jsonl", "[1]\n", "line 1 is not an object"),
        ("w.jsonl", '{"id": 1, "text": "x"}\n', r"line 1: no column `conversation_hash` \(columns: id, text\)"),
        ("w.jsonl", '{"conversation_hash": "a"}\n', "no column `conversation`"),
        ("w.jsonl", '{"conversation_hash": "a", "conversation": "text"}\n', "column `conversation` holds str, not list"),
        ("w.jsonl", '{"conversation_hash": 5, "conversation": []}\n', "column `conversation_hash` holds int"),
        ("w.jsonl", '{"conversation_hash": "a", "conversation": [{"from": "human"}]}\n', "must hold a list of {role, content}"),
        ("w.parquet", "no parquet", r"w\.parquet: can't be read as Parquet"),
        ("w.csv", "a,b\n", "give a .jsonl or .parquet file"),
    ],
)
def test_exports_that_cant_be_used(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        load_wildchat(tmp_path / name)


def test_missing_files(tmp_path: Path) -> None:
    for name in ("w.jsonl", "w.parquet"):
        with pytest.raises(ConfigError, match="no such file"):
            load_wildchat(tmp_path / name)
    with pytest.raises(ConfigError, match=r"holds no \.parquet or \.jsonl"):
        load_wildchat(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [("# none\n", "no conversation is chosen"), ("a\na\n", "line 2: a stands twice"), ("a,angry\n", "kind 'angry' is not known")],
)
def test_choice_files_that_cant_be_used(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "choice.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        read_choice(path)
