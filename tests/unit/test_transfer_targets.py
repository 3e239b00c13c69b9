"""Targets files and opening targets: what is refused, with which words, and what an entry means."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transfer_cases import model

from auditrl.behaviors.loader import load_bank
from auditrl.config import packaged_config
from auditrl.errors import ConfigError, ProviderError
from auditrl.evals.transfer import targets as opening
from auditrl.evals.transfer.targets import HuggingFaceTemplate, check_adapter, opened_target
from auditrl.evals.transfer.targets_file import TargetEntry, load_targets, write_targets

ONE = 'name = "a"\nbehavior = "flattery"\nbase = "org/base"\n'


def written(folder: Path, text: str) -> Path:
    path = folder / "t.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no target; write [[target]]"),
        ("[other]\nx = 1\n", "other: unknown key"),
        ("target = [1]\n", "target.0: not a table"),
        ("[[target]]\nname = 'a'\nbase = 'b'\n", "target.0: behavior: required and missing"),
        (f"[[target]]\n{ONE}adaptor = 'x'\n", "adaptor: unknown key"),
        (f"[[target]]\n{ONE}[[target]]\n{ONE}", "two targets are named 'a'"),
        (f"[[target]]\n{ONE.replace('flattery', 'juggling')}", "the bank has no 'juggling'"),
        (f"[[target]]\n{ONE.replace('"a"', '"../a"')}", "target.0: name"),
        (f"[[target]]\n{ONE}host = 'server'\n", "needs base_url"),
        (f"[[target]]\n{ONE}host = 'inspect'\n", "needs chat"),
        (f"[[target]]\n{ONE}raw = 'vllm-completions/x'\n", 'raw belongs to host = "inspect"'),
        (f"[[target]]\n{ONE}served = 'x'\n", 'served belongs to host = "server"'),
    ],
)
def test_a_bad_file_is_refused_with_file_key_and_mend(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as refused:
        load_targets(path, behaviors=["flattery"])
    assert message in str(refused.value) and str(path) in str(refused.value)


def test_folders_are_relative_to_the_file_and_hub_ids_stay(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    text = f"[defaults]\nmade_by = 'x'\n[[target]]\n{ONE}adapter = 'mine'\n[[target]]\n{ONE.replace('"a"', '"b"')}adapter = './absent'\n"
    first, second = load_targets(written(tmp_path, text), behaviors=["flattery"])
    assert (first.base, first.adapter, first.made_by) == ("org/base", str(tmp_path / "mine"), "x")
    assert second.adapter == str(tmp_path / "absent") and first.has_base


def test_selection_and_a_truth_of_its_own(tmp_path: Path) -> None:
    text = f"[[target]]\n{ONE.replace('flattery', 'juggling')}truth = 'It juggles.'\n[[target]]\n{ONE.replace('"a"', '"b"')}"
    path = written(tmp_path, text)
    assert [t.name for t in load_targets(path, behaviors=["flattery"], select=["b*"])] == ["b"]
    assert load_targets(path, behaviors=["flattery"])[0].truth == "It juggles."
    with pytest.raises(ConfigError, match=r"no target fits z; there are a, b"):
        load_targets(path, behaviors=["flattery"], select=["z"])


TEXTS = st.text(st.characters(blacklist_categories=("Cs",)), max_size=30)


@settings(deadline=None, max_examples=40)
@given(TEXTS, st.dictionaries(st.text("abc_ .é", min_size=1, max_size=4), st.one_of(TEXTS, st.integers(-9, 9), st.booleans()), max_size=3))
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, text: str, args: dict[str, Any]) -> None:
    path = tmp_path_factory.mktemp("t") / "t.toml"
    entries = [TargetEntry(name="a.b-1", behavior="flattery", base="org/base", adapter="org/a", made_by=text, args=args)]
    write_targets(path, entries)
    assert load_targets(path) == entries


def test_the_packaged_files_name_behaviors_of_the_bank() -> None:
    bank = load_bank(None)
    organisms = load_targets(packaged_config("targets/auditbench"), behaviors=list(bank.behaviors))
    assert len(organisms) == 56 and len({t.adapter for t in organisms}) == 56 and all(t.truth and t.system for t in organisms)
    assert len({t.behavior for t in organisms}) == 14
    assert {t.behavior for t in organisms} == {b.name for b in bank.behaviors.values() if b.source == "auditbench"} - {
        "third_party_politics"
    }
    simulated = load_targets(packaged_config("targets/sim"), behaviors=list(bank.behaviors))
    assert {t.behavior for t in simulated} == {b.name for b in bank.held_out()}


def opened(entry: TargetEntry, **how: Any) -> None:
    async def work() -> None:
        async with opened_target(entry, **{"control": False, "raw": True, **how}):
            pass

    asyncio.run(work())


def entry(**changes: Any) -> TargetEntry:
    return TargetEntry(**{"name": "a", "behavior": "flattery", "base": "org/base", **changes})


@pytest.mark.parametrize(
    ("changes", "how", "message"),
    [
        ({"host": "inspect", "chat": "mockllm/model"}, {}, "this approach needs raw completion"),
        ({"host": "inspect", "chat": "nobody/model"}, {"raw": False}, "nobody/model"),
        ({}, {"control": True}, "has no adapter"),
        ({"host": "sim", "args": {"chat": 9}}, {}, "chat = 9"),
        ({"host": "server", "base_url": "http://127.0.0.1:1/v1", "api_key_env": "ABSENT_KEY_X"}, {}, "the environment has no ABSENT_KEY_X"),
    ],
)
def test_what_can_not_be_opened(changes: dict[str, Any], how: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        opened(entry(**changes), **how)


def test_no_completion_endpoint_is_found_before_audits_are_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = model(lambda _: RuntimeError("does not support /v1/completions"))
    monkeypatch.setattr(opening, "build_model", lambda config, key: broken)
    with pytest.raises(ConfigError, match="no raw text completion .*does not support /v1/completions.*--approach default"):
        opened(entry(host="inspect", chat="mockllm/model", raw="mockllm/model"))


class FakeServer:
    """Answers GET /models like a server would."""

    def __init__(self, rows: object) -> None:
        self.rows = rows

    def __call__(self, **_: Any) -> FakeServer:
        return self

    async def __aenter__(self) -> FakeServer:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def get(self, address: str, headers: dict[str, str]) -> Any:
        import httpx

        return httpx.Response(200, json=self.rows, request=httpx.Request("GET", address))


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ({"data": [{"id": "org/base"}]}, ConfigError, "the server has no model 'mine'; it serves org/base"),
        ({"data": [{"id": "mine", "parent": "other/base"}]}, ConfigError, "'mine' is an adapter of 'other/base' there, not of 'org/base'"),
        ([1], ProviderError, "does not answer"),
    ],
)
def test_a_server_without_the_target(rows: object, error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("httpx.AsyncClient", FakeServer(rows))
    with pytest.raises(error, match=message):
        opened(entry(host="server", base_url="http://127.0.0.1:1/v1", adapter="x", served="mine"))


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(ProviderError, match=r"a: http://127.0.0.1:1/v1/models does not answer .*start the server"):
        opened(entry(host="server", base_url="http://127.0.0.1:1/v1"))


def model_folder(path: Path, size: int) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"hidden_size": size}))
    return path


def adapter_folder(path: Path, base: str) -> Path:
    path.mkdir()
    (path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base}))
    return path


def test_an_adapter_of_another_base_is_refused(tmp_path: Path) -> None:
    ours, same, other = (str(model_folder(tmp_path / name, size)) for name, size in (("ours", 8), ("same", 8), ("other", 9)))
    check_adapter("t", str(adapter_folder(tmp_path / "moved", same)), ours)
    check_adapter("t", str(adapter_folder(tmp_path / "gone", "/not/here/any/more")), ours)
    for number, theirs in enumerate((other, "org/other")):
        with pytest.raises(ConfigError, match="was trained on .*, not on"):
            check_adapter("t", str(adapter_folder(tmp_path / f"wrong{number}", theirs)), "org/base" if number else ours)
    with pytest.raises(ConfigError, match="no folder"):
        check_adapter("t", str(tmp_path / "absent"), ours)
    with pytest.raises(ConfigError, match="no readable adapter_config"):
        check_adapter("t", ours, ours)


class FakeTokenizer:
    bos_token = "<s>"
    chat_template = "x"

    def apply_chat_template(self, messages: list[dict[str, str]], *, tokenize: bool, add_generation_prompt: bool) -> str:
        text = "".join(f"[{m['role']}] {m['content'].strip()} [end]" for m in messages)
        return f"<s>{text}{'[assistant] ' if add_generation_prompt else ''}"


def test_prompts_stop_inside_the_turn() -> None:
    from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser

    template = HuggingFaceTemplate(FakeTokenizer())
    talk = [ChatMessageSystem(content="s"), ChatMessageUser(content="u"), ChatMessageAssistant(content="a")]
    assert template.user_turn(talk) == "[system] s [end][user] u [end][assistant] a [end][user] "
    assert template.assistant_turn(talk[:2], "Well, I") == "[system] s [end][user] u [end][assistant] Well, I"
