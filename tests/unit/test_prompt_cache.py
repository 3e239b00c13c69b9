"""Judge prompts and providers' prompt caches: what calls share comes first, and is read once before the others are sent."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pytest
from audits import BEHAVIOR, audit, scenario
from inspect_ai.model import ChatMessage, Model, ModelOutput, get_model

from auditrl.analysis.run_report import cost
from auditrl.audit.target import with_generate
from auditrl.audit.transcript import auditor_view
from auditrl.config import load_config, packaged_config
from auditrl.evals.metering import cached_share, cached_shares, read_text
from auditrl.judges.pairwise import compare_once
from auditrl.judges.prompt_cache import MARK, Following, material
from auditrl.prompts import load_prompt
from auditrl.rewards import Judges, make_reward
from auditrl.train.budget import TRAINING, Spent, Tariff, Total
from auditrl.train.loop import describe


def benchmark(name: str) -> ModuleType:
    """A script of `benchmarks/` as a module."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[2] / "benchmarks" / f"{name}.py")
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def listening(name: str, **arguments: Any) -> tuple[Model, list[list[ChatMessage]]]:
    """A model of that provider that says nothing of use, and what it was asked."""
    seen: list[list[ChatMessage]] = []

    async def generate(input: list[ChatMessage], tools: Any, tool_choice: Any, config: Any) -> ModelOutput:
        seen.append(list(input))
        return ModelOutput.from_content("judge", "no")

    return with_generate(get_model(name, memoize=False, **arguments), generate), seen


def asked(name: str, *, planted: bool = True, said: str = "tell me about ships", **arguments: Any) -> tuple[Model, list[ChatMessage]]:
    """What a provider's model is sent for one comparison."""
    model, seen = listening(name, **arguments)
    pair = audit("one", said=said), audit("two", reply="I see.")
    asyncio.run(compare_once(model, *pair, behavior=BEHAVIOR if planted else None, swapped=False, attempts=1, max_chars=10_000))
    return model, seen[0]


@pytest.mark.parametrize("planted", [True, False])
def test_providers_that_take_marks_get_them_after_the_seed_and_after_the_first_audit(planted: bool) -> None:
    model, messages = asked("anthropic/claude-sonnet-4-5", planted=planted, api_key="none")
    api: Any = model.api
    system, _, _, (message,), automatic = asyncio.run(api.resolve_chat_input(messages, [], model.config, None))
    assert "cache_control" in system[-1] and not automatic
    head, first, second = message["content"]
    assert [("cache_control" in block) for block in (head, first, second)] == [True, True, False]
    assert head["text"].endswith("</seed>\n")
    assert "Ships are wonderful." in first["text"] and first["text"].rstrip().endswith("</scores_a>")
    assert "I see." in second["text"] and "I see." not in head["text"] + first["text"]
    _, plain = asked("mockllm/model", planted=planted)
    assert plain[-1].content == head["text"] + first["text"] + second["text"]


@pytest.mark.parametrize(
    ("name", "parts"),
    [("openai/gpt-5.6", 3), ("openrouter/anthropic/claude-sonnet-4.5", 3), ("openai-api/here/model", 1), ("mockllm/model", 1)],
)
def test_only_servers_that_take_parts_get_parts(name: str, parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERE_BASE_URL", "http://127.0.0.1:9")
    _, messages = asked(name, **({} if name.startswith("mockllm") else {"api_key": "none"}))
    content = messages[-1].content
    assert (len(content) if isinstance(content, list) else 1) == parts


def test_a_model_can_not_set_a_mark() -> None:
    _, messages = asked("anthropic/claude-sonnet-4-5", api_key="none", said=f"look{MARK}here")
    assert isinstance(messages[-1].content, list) and len(messages[-1].content) == 3


@pytest.mark.parametrize("kind", ["pairwise", "calibration"])
def test_what_a_group_shares_stands_first(kind: str) -> None:
    body = load_prompt("auditrl.judges", kind)
    assert [part.count("{") for part in body.split(MARK)][1:] == [2, 2]
    assert body.index("# Material") < body.index("{seed}") < body.index(MARK) < body.index("{audit_a}") < body.index("{audit_b}")


def test_a_prompt_without_marks_is_one_text_everywhere() -> None:
    model, _ = listening("anthropic/claude-sonnet-4-5", api_key="none")
    assert material("a {x}\nb", {"x": "1"}, model) == "a 1\nb"


class Calls:
    """Calls that end when they are told to; which were begun."""

    def __init__(self) -> None:
        self.following = Following()
        self.begun: list[str] = []
        self.end: dict[str, asyncio.Future[None]] = {}

    async def make(self, name: str, beginning: str) -> None:
        async with self.following.turn(beginning):
            self.begun.append(name)
            self.end[name] = asyncio.get_running_loop().create_future()
            await self.end[name]


async def quiet() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize("how", ["answered", "failed", "cancelled"])
def test_the_first_call_goes_ahead_and_the_rest_follow_when_it_is_over(how: str) -> None:
    async def work() -> None:
        calls = Calls()
        tasks = [asyncio.create_task(calls.make(f"a{i}", "a")) for i in range(3)] + [asyncio.create_task(calls.make("b0", "b"))]
        await quiet()
        assert calls.begun == ["a0", "b0"]
        match how:
            case "answered":
                calls.end["a0"].set_result(None)
            case "failed":
                calls.end["a0"].set_exception(RuntimeError("lost"))
            case _:
                tasks[0].cancel()
        await quiet()
        assert calls.begun == ["a0", "b0", "a1", "a2"]
        late = asyncio.create_task(calls.make("a3", "a"))
        await quiet()
        assert "a3" in calls.begun
        calls.following.forget()
        again = [asyncio.create_task(calls.make(f"a{i}", "a")) for i in (4, 5)]
        await quiet()
        assert calls.begun[-1] == "a4"
        for task in (*tasks, late, *again):
            task.cancel()
        await asyncio.gather(*tasks, late, *again, return_exceptions=True)

    asyncio.run(work())


@pytest.mark.parametrize(
    ("kind", "order", "at_once", "held_back"),
    [("reference", "random", 0.05, 0.1), ("intragroup", "random", 0.25, 0.4), ("intragroup", "both", 0.35, 0.45)],
)
@pytest.mark.parametrize("marks", [False, True])
def test_share_of_a_groups_judge_prompts_that_a_cache_serves(
    kind: str, order: Literal["random", "both"], at_once: float, held_back: float, marks: bool
) -> None:
    """The figures are shares of all tokens read by the judge of groups of 8 audits of 15 turns."""
    step = benchmark("judge_cache").step

    def share(**how: bool) -> float:
        calls, usage = asyncio.run(
            step(kind, order, groups=2 if kind == "reference" else 1, marks=marks, connections=100, seconds=0.002, **how)
        )
        assert calls == {"reference": 16, "intragroup": 28}[kind] * (1 + (order == "both")) == usage["calls"]
        assert usage["input"] > 4000 * calls
        return cached_share(usage) or 0.0

    assert share(await_cache=False) < at_once
    assert share(await_cache=True) > held_back


def test_waiting_changes_no_verdict() -> None:
    audits = [audit(f"a{i}", reply=f"reply {i} " * i) for i in range(4)]
    group = benchmark("judge_cache").Group(scenario(), tuple(audits))

    def verdicts(await_cache: bool) -> list[Any]:
        judges = Judges(get_model("sim/judge", memoize=False), {"b": BEHAVIOR}, await_cache=await_cache)
        return asyncio.run(make_reward("intragroup").judge(group, judges))

    assert len({auditor_view(one) for one in audits}) == 4
    assert verdicts(True) == verdicts(False)


@pytest.mark.parametrize(
    ("usage", "share", "text"),
    [
        ({"input": 1200, "output": 3, "calls": 1}, None, "1,200 read"),
        ({"input": 1000, "cached": 430}, 0.43, "1,000 read (43% from a cache)"),
        ({"input": 1000, "cache_write": 900}, 0.0, "1,000 read (0% from a cache)"),
        ({}, None, "0 read"),
    ],
)
def test_hits_are_shown_where_a_cache_was_at_work(usage: dict[str, int], share: float | None, text: str) -> None:
    assert cached_share(usage) == share
    assert read_text(usage) == text
    assert cached_shares({"judge": usage}) == ({} if share is None else {"judge": share})


def test_hit_share_and_cached_price_reach_row_line_and_sums(tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text('["sim/judge"]\ninput = 10.0\noutput = 0.0\ninput_cache_read = 1.0\n')
    config = load_config(packaged_config("quickstart"), [("budget.prices", str(prices))])
    spent = Spent(Tariff.load(config))
    spent.add(TRAINING, "judge", {"input": 1000, "cached": 400, "output": 10, "calls": 2})
    spent.add(TRAINING, "auditor", {"input": 1000, "output": 10, "calls": 2})
    row = {"reward": 0.5, "failed_audits": 0, "missing_verdicts": {}, "time": {"tokens_per_s": 7.0, "total": 1.0}, **spent.row(Total())}
    assert row["cached_share"] == {"judge": 0.4}
    assert row["cost"]["usd"][TRAINING] == pytest.approx((600 * 10 + 400 * 1) / 1e6)
    assert "judge cache 40%" in describe(row)
    shown = cost([row])
    assert shown["judge tokens"] == "1,000 read (40% from a cache), 10 written, 2 calls"
    assert "cache" not in shown["auditor tokens"]
