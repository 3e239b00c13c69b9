"""The chat template renderer, tool call syntax, and the policy as an Inspect model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    ContentReasoning,
    GenerateConfig,
    get_model,
)
from inspect_ai.tool import ToolCall, ToolCallError, ToolInfo, ToolParam, ToolParams
from tiny_policy import chat_tokenizer, tiny_llama

from auditrl.audit.context import audit_context, stable_hash
from auditrl.errors import ConfigError
from auditrl.policy.engine import PolicyRef
from auditrl.policy.ledger import TokenLedger
from auditrl.policy.local import LocalEngine
from auditrl.policy.model import SAMPLE_ID, policy_model
from auditrl.policy.renderers import ChatTemplateRenderer, RemembersSamples, open_renderer
from auditrl.policy.segments import merge_turns
from auditrl.policy.tool_syntax import UNREADABLE, parse_tool_calls
from auditrl.types import Sampled

TOOLS = [ToolInfo(name="send_message", description="Send.", parameters=ToolParams(properties={"message": ToolParam(type="string")}))]
START: list[ChatMessage] = [ChatMessageSystem(content="Audit it."), ChatMessageUser(content="Begin with the thirteenth.")]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return chat_tokenizer()


@pytest.fixture
def renderer(tokenizer: Any) -> ChatTemplateRenderer:
    return ChatTemplateRenderer(tokenizer)


def letters(tokenizer: Any, text: str) -> list[int]:
    """A text's tokens, one a byte: not what the tokenizer would make of it where it says "th"."""
    merged = tokenizer.convert_tokens_to_ids("th")
    tokens: list[int] = []
    for token in tokenizer.encode(text, add_special_tokens=False):
        tokens += tokenizer.convert_tokens_to_ids(["t", "h"]) if token == merged else [token]
    return tokens


# --- tool call syntax


@pytest.mark.parametrize(
    ("text", "rest", "calls"),
    [
        ("just words", "just words", []),
        ('Hm.\n<tool_call>\n{"name": "a", "arguments": {"x": 1}}\n</tool_call>', "Hm.", [("a", {"x": 1}, None)]),
        (
            '<tool_call>{"name":"a","arguments":{}}</tool_call><tool_call>{"name":"b","arguments":{"y":[2]}}</tool_call>',
            "",
            [("a", {}, None), ("b", {"y": [2]}, None)],
        ),
        ('<tool_call>{"name": "a", "arguments": "{\\"x\\": 1}"}</tool_call>', "", [("a", {"x": 1}, None)]),
        ('<tool_call>{"name": "a"}</tool_call>', "", [("a", {}, None)]),
        ('{"name": "a", "parameters": {"x": 1}}', "", [("a", {"x": 1}, None)]),
        ('```json\n{"name": "a", "arguments": {"x": 1}}\n```', "", [("a", {"x": 1}, None)]),
        # broken calls are calls with an error
        ('<tool_call>{"name": "a", "arguments": {"x": 1}', "", [("a", {}, "not valid JSON")]),
        ('{"name": "a", "arguments": {"x": ', "", [("a", {}, "not valid JSON")]),
        ("<tool_call>a(1)</tool_call>", "", [(UNREADABLE, {}, "not valid JSON")]),
        ("<tool_call>[1]</tool_call>", "", [(UNREADABLE, {}, "must be a JSON object")]),
        ('<tool_call>{"arguments": {}}</tool_call>', "", [(UNREADABLE, {}, 'no "name"')]),
        ('<tool_call>{"name": "a", "arguments": [1]}</tool_call>', "", [("a", {}, "must be a JSON object")]),
        ('<tool_call>{"name": "a", "arguments": "{"}</tool_call>', "", [("a", {}, "not valid JSON")]),
        # JSON that is no call (a report) stays text
        ('{"finding": false, "confidence": 0.1}', '{"finding": false, "confidence": 0.1}', []),
        ('{"name": "Ann", "age": 3}', '{"name": "Ann", "age": 3}', []),
        ("{broken", "{broken", []),
        ("[" * 100_000, "[" * 100_000, []),
        ('{"a":' * 100_000, '{"a":' * 100_000, []),
    ],
)
def test_tool_call_syntax(text: str, rest: str, calls: list[tuple[str, dict[str, Any], str | None]]) -> None:
    got_rest, got = parse_tool_calls(text, prefix="call-3")
    assert got_rest == rest
    assert [(c.function, c.arguments) for c in got] == [(name, arguments) for name, arguments, _ in calls]
    assert [c.id for c in got] == [f"call-3-{i}" for i in range(len(calls))]
    for call, (_, _, error) in zip(got, calls, strict=True):
        assert call.parse_error is None if error is None else error in (call.parse_error or "")


# --- the renderer


def test_stop_tokens_are_the_end_of_text_and_what_the_template_writes(renderer: ChatTemplateRenderer, tokenizer: Any) -> None:
    assert renderer.stop == sorted(tokenizer.convert_tokens_to_ids(["<|end|>", "<|im_end|>"]))


def test_the_first_prompt_is_the_template_s(renderer: ChatTemplateRenderer, tokenizer: Any) -> None:
    expected = (
        "<|im_start|>system\nAudit it.\ntools: send_message<|im_end|>\n"
        "<|im_start|>user\nBegin with the thirteenth.<|im_end|>\n<|im_start|>assistant\n"
    )
    assert tokenizer.decode(renderer.prompt(START, TOOLS)) == expected
    assert "tools" not in tokenizer.decode(renderer.prompt(START, []))


@pytest.mark.parametrize(
    ("written", "end"),
    [
        ("the  thing", "<|im_end|>"),
        ('<tool_call>\n{"name":"send_message",   "arguments":{"message":"this"}}</tool_call>', "<|im_end|>"),
        ("cut off in the", ""),
        ("", "<|im_end|>"),
        ("\u00e9\u4e2d", "<|end|>"),
    ],
)
def test_the_next_prompt_extends_what_was_sampled(renderer: ChatTemplateRenderer, tokenizer: Any, written: str, end: str) -> None:
    """Whatever the policy wrote and however its tokens cut it, also where the template would have written it otherwise."""
    with audit_context("a", seed=0):
        messages = list(START)
        before: list[int] = []
        for turn in range(3):
            prompt = renderer.prompt(messages, TOOLS)
            assert prompt[: len(before)] == before
            sampled = letters(tokenizer, written) + tokenizer.convert_tokens_to_ids([end] if end else [])
            text, calls = renderer.parse(sampled, messages)
            answer = ChatMessageAssistant(content=text, tool_calls=calls or None)
            assert answer.id is not None
            renderer.remember(prompt, sampled, answer.id)
            before = [*prompt, *sampled]
            messages += [answer, ChatMessageTool(content=f"thing {turn}", function="send_message", tool_call_id=f"call-{turn}-0")]
        assert tokenizer.decode(renderer.prompt(messages, TOOLS)).count("<|im_start|>tool\nthing") == 3


def test_without_an_audit_nothing_is_kept(renderer: ChatTemplateRenderer, tokenizer: Any) -> None:
    prompt = renderer.prompt(START, TOOLS)
    answer = ChatMessageAssistant(content="the")
    renderer.remember(prompt, letters(tokenizer, "the"), answer.id or "")
    text = tokenizer.decode(renderer.prompt([*START, answer, ChatMessageUser(content="on")], TOOLS))
    assert text.endswith("<|im_start|>assistant\nthe<|im_end|>\n<|im_start|>user\non<|im_end|>\n<|im_start|>assistant\n")


def test_rewritten_history_and_side_conversations(renderer: ChatTemplateRenderer, tokenizer: Any) -> None:
    with audit_context("a", seed=0):
        prompt = renderer.prompt(START, TOOLS)
        answer = ChatMessageAssistant(content="the")
        renderer.remember(prompt, letters(tokenizer, "the"), answer.id or "")
        aside: list[ChatMessage] = [ChatMessageUser(content="Is this realistic?")]
        renderer.remember(renderer.prompt(aside, []), letters(tokenizer, "oath"), "aside")
        grown = renderer.prompt([*START, answer, ChatMessageUser(content="on")], TOOLS)
        assert grown[: len(prompt) + 3] == [*prompt, *letters(tokenizer, "the")]
        changed = [START[0], ChatMessageUser(content="Begin anew."), answer]
        assert "anew" in tokenizer.decode(renderer.prompt(changed, TOOLS))
    renderer.forget("a")
    with audit_context("a", seed=0):
        assert renderer.prompt([*START, answer], TOOLS)[len(prompt) :][:2] == tokenizer.encode("the")


def test_messages_that_were_not_sampled_keep_their_calls_and_errors(renderer: ChatTemplateRenderer, tokenizer: Any) -> None:
    messages: list[ChatMessage] = [
        *START,
        ChatMessageAssistant(content="x", tool_calls=[ToolCall(id="1", function="send_message", arguments={"message": "hi"})]),
        ChatMessageTool(content="", function="send_message", tool_call_id="1", error=ToolCallError("parsing", "bad call")),
    ]
    text = tokenizer.decode(renderer.prompt(messages, TOOLS))
    assert '"name": "send_message"' in text
    assert '"hi"' in text
    assert "Error: bad call" in text


def test_a_template_that_is_missing_or_refuses_is_named(tokenizer: Any) -> None:
    with pytest.raises(ConfigError, match="no chat template"):
        ChatTemplateRenderer(chat_tokenizer(None))
    refusing = ChatTemplateRenderer(
        chat_tokenizer("{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}{{ messages[1].content }}")
    )
    with pytest.raises(ConfigError, match="no system"):
        refusing.prompt(START, [])


def test_a_template_that_wants_to_see_the_call_gets_the_parsed_message() -> None:
    strict = (
        "{% for m in messages %}{% if m.role == 'tool' and not messages[loop.index0 - 1].tool_calls %}"
        "{{ raise_exception('no call') }}{% endif %}{{ m.role + ': ' + m.content + '<|im_end|>' }}{% endfor %}"
    )
    tokenizer = chat_tokenizer(strict)
    renderer = ChatTemplateRenderer(tokenizer)
    with audit_context("a", seed=0):
        prompt = renderer.prompt(START, TOOLS)
        call = ToolCall(id="1", function="send_message", arguments={})
        answer = ChatMessageAssistant(content="the", tool_calls=[call])
        renderer.remember(prompt, letters(tokenizer, "the"), answer.id or "")
        following = [*START, answer, ChatMessageTool(content="done", function="send_message", tool_call_id="1")]
        assert tokenizer.decode(renderer.prompt(following, TOOLS)).endswith("tool: done<|im_end|>")


def test_choosing_a_renderer(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't load a tokenizer"):
        open_renderer(tmp_path)
    chat_tokenizer().save_pretrained(tmp_path)
    assert isinstance(open_renderer(tmp_path), ChatTemplateRenderer)
    (tmp_path / "auditrl_renderer.json").write_text('{"renderer": "other"}')
    with pytest.raises(ConfigError, match=r"auditrl_renderer\.json.*'other'.*Known: messages, sim"):
        open_renderer(tmp_path)
    (tmp_path / "auditrl_renderer.json").write_text("{")
    with pytest.raises(ConfigError, match=r"auditrl_renderer\.json: can't be read"):
        open_renderer(tmp_path)
    from auditrl.sim.language import SimRenderer, write_renderer_file

    write_renderer_file(tmp_path)
    assert isinstance(open_renderer(tmp_path), SimRenderer)


# --- the policy as an Inspect model


class Scripted:
    """A sampler that always writes the same, and notes what it was asked."""

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens
        self.asked: list[dict[str, Any]] = []

    async def sample(self, prompt: Sequence[int], **options: Any) -> Sampled:
        self.asked.append({"prompt": list(prompt), **options})
        return Sampled(list(self.tokens), [-0.5] * len(self.tokens), "stop")


def test_a_call_is_recorded_and_keyed_by_audit_and_turn(renderer: ChatTemplateRenderer, tokenizer: Any) -> None:
    text = '<think>hm</think>Go.<tool_call>{"name": "send_message", "arguments": {"message": "hi"}}</tool_call><|im_end|>'
    sampler, ledger = Scripted(tokenizer.encode(text)), TokenLedger()
    model = policy_model(sampler, renderer, ledger=ledger, max_tokens=50, temperature=0.5, name="step-3")
    assert str(model) == "policy/step-3"
    assert isinstance(renderer, RemembersSamples)

    async def audit() -> list[Any]:
        with audit_context("a", seed=7):
            first = await model.generate(list(START), tools=TOOLS)
            second = await model.generate([*START, first.message, ChatMessageUser(content="on")], tools=TOOLS)
            return [first, second]

    first, second = asyncio.run(audit())
    assert [a["seed"] for a in sampler.asked] == [stable_hash(7, 0), stable_hash(7, 1)]
    assert [(a["max_tokens"], a["temperature"], a["stop"]) for a in sampler.asked] == [(50, 0.5, renderer.stop)] * 2
    assert [o.metadata for o in (first, second)] == [{SAMPLE_ID: "a/0"}, {SAMPLE_ID: "a/1"}]
    assert first.stop_reason == "tool_calls"
    assert first.message.text == "Go."
    assert isinstance(first.message.content[0], ContentReasoning)
    assert first.message.tool_calls[0].arguments == {"message": "hi"}
    assert first.usage.output_tokens == len(sampler.tokens)
    assert first.usage.input_tokens == len(sampler.asked[0]["prompt"])
    (segment,) = merge_turns(ledger.pop("a"))
    assert sum(segment.mask) == 2 * len(sampler.tokens)


def test_what_is_not_sampled_from(renderer: ChatTemplateRenderer, tokenizer: Any) -> None:
    sampler = Scripted(tokenizer.encode("x"))
    full = policy_model(sampler, renderer, context_tokens=5)
    output = asyncio.run(full.generate(list(START), tools=TOOLS))
    assert (output.stop_reason, output.completion, sampler.asked) == ("model_length", "", [])
    roomy = policy_model(sampler, renderer, max_tokens=100, context_tokens=len(renderer.prompt(START, [])) + 3)
    asyncio.run(roomy.generate(list(START), tools=TOOLS, tool_choice="none", config=GenerateConfig(seed=11, temperature=0.1)))
    assert {k: v for k, v in sampler.asked[0].items() if k in ("max_tokens", "seed", "temperature")} == {
        "max_tokens": 3,
        "seed": 11,
        "temperature": 0.1,
    }
    assert asyncio.run(roomy.api.count_text_tokens("four" * 4)) == 5


def test_forty_audits_share_each_batch_through_inspect(tmp_path: Path) -> None:
    """Inspect limits and adapts the number of connections to a model; the barrier needs them all."""
    folder = tiny_llama(tmp_path, vocab_size=300, max_position_embeddings=512)
    chat_tokenizer().save_pretrained(folder)

    async def work() -> tuple[int, int]:
        engine = LocalEngine(folder, threads=1, patience_s=20)
        await engine.start()
        model = policy_model(
            engine.sampler(PolicyRef("current")), open_renderer(folder), max_tokens=3, context_tokens=engine.context_tokens
        )

        async def audit(name: str) -> None:
            with audit_context(name, seed=len(name)):
                async with engine.joined(name):
                    for _ in range(2):
                        await model.generate(list(START))

        with engine.session(40):
            await asyncio.gather(*(audit(f"audit-{i}") for i in range(40)))
        await engine.close()
        return engine.batching.batches, engine.batching.stalls

    assert asyncio.run(work()) == (2, 0)


def test_a_saved_checkpoint_opens_by_name(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path / "start", vocab_size=300)
    chat_tokenizer().save_pretrained(folder)

    async def save() -> None:
        engine = LocalEngine(folder, method="lora", threads=1)
        await engine.start()
        await engine.save(str(tmp_path / "adapter"))
        await engine.close()

    asyncio.run(save())
    assert json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())["base_model_name_or_path"] == str(folder)

    async def generate(path: Path) -> Any:
        async with get_model(f"policy/{path}", config=GenerateConfig(max_tokens=4, seed=3), threads=1) as model:
            return await model.generate([ChatMessageUser(content="th")])

    whole, adapter = asyncio.run(generate(folder)), asyncio.run(generate(tmp_path / "adapter"))
    assert whole.usage.output_tokens == adapter.usage.output_tokens > 0
    assert whole.completion == adapter.completion
    with pytest.raises(ConfigError, match="unknown model argument 'surprise'"):
        get_model(f"policy/{folder}", surprise=1)
