"""An OpenAI-compatible server that misbehaves on a seeded schedule, for tests and `benchmarks/faults.py`.

Healthy answers come from the models of the simulated world, so that audits and judgements through it are real ones. Which call fails, and
how, is drawn from (seed, question, how often it was asked): the same calls meet the same faults in whatever order they arrive, and a call
that is repeated draws anew.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import struct
import threading
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from aiohttp import web
from inspect_ai.model import ChatMessage, GenerateConfig, ModelOutput, ResponseSchema, messages_from_openai
from inspect_ai.tool import ToolInfo, ToolParams
from inspect_ai.util import JSONSchema

from auditrl.reach import QUESTION
from auditrl.sim.providers import MODEL_NAMES, SimAPI

COUNTED_AS = {
    "rate_limit": "rate_limit",
    "server_error": "server_error",
    "reset": "connection",
    "stall": "timeout",
    "cut": "connection",
    "broken_json": "unreadable",
    "no_choices": "unreadable",
    "empty": "empty",
    "refusal": "refusal",
    "wrong_tool": "unasked_tool",
    "huge": "oversized",
    "ended": "unfinished",
}
"""Kinds of fault, and the name under which a run counts each."""

MIX: Mapping[str, float] = {
    **{kind: 1.0 for kind in COUNTED_AS if kind != "ended"},
    "rate_limit": 3.0,
    "server_error": 2.0,
    "reset": 2.0,
    "stall": 0.5,
}
"""Weights of the kinds: overload is commoner than nonsense, and stalls are rare. An end without a reason is a fault of streams."""

KEY = "a-key-of-the-test"
_REFUSAL = "I can't help with that."


@dataclass
class FaultServer:
    """What it does, and what it did.

    Args:
        share: Of the calls that are faulty.
        seed: Of the schedule.
        mix: Weights of the kinds of fault.
        most: Faults after which every call is healthy.
        takes_schema: Whether it knows structured answers; else it refuses a request for one.
        latency_s: Mean time of a healthy answer; each takes between half and one and a half of it.
        retry_after_s: What `Retry-After` says.
        stall_s: Seconds after which a stalled connection is dropped.
        world: Values of the simulated world to change.
    """

    share: float = 0.0
    seed: int = 0
    mix: Mapping[str, float] = field(default_factory=lambda: MIX)
    most: int | None = None
    takes_schema: bool = True
    latency_s: float = 0.0
    retry_after_s: float = 0.3
    stall_s: float = 30.0
    world: Mapping[str, float] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    """Calls by model."""
    faults: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Faults by (model, kind)."""
    answers: set[str] = field(default_factory=set)
    """Texts of the healthy answers."""
    base_url: str = ""
    gone: bool = False
    """While true, every connection is reset."""
    _asked: Counter[str] = field(default_factory=Counter)
    _models: dict[str, SimAPI] = field(default_factory=dict)

    def counted(self) -> dict[str, dict[str, int]]:
        """The faults as a run should have counted them, by role."""
        found: dict[str, dict[str, int]] = {}
        for (model, kind), count in sorted(self.faults.items()):
            role = model.partition("-")[0]
            row = found.setdefault(role, {})
            row[COUNTED_AS[kind]] = row.get(COUNTED_AS[kind], 0) + count
        return found

    async def warm(self) -> None:
        """Load what the first answer would have to wait for."""
        for name in ("target", "judge", "auditor-skilled"):
            await self._answer(name, {"messages": [{"role": "user", "content": "Hello"}]})

    def app(self) -> web.Application:
        """The routes."""
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/site/chat/completions", self._page)
        return app

    async def _page(self, _: web.Request) -> web.Response:
        """What is found at an address that is no API."""
        return web.Response(text="<html><body>Welcome</body></html>", content_type="text/html")

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return _error(401, "Incorrect API key provided.", "invalid_api_key")
        if self.gone:
            _reset(request)
            return web.Response()
        body = await request.json()
        name = str(body["model"])
        if name not in MODEL_NAMES:
            return _error(404, f"The model `{name}` does not exist.", "model_not_found")
        if "response_format" in body and not self.takes_schema:
            return _error(400, "Unrecognized request argument: response_format", "invalid_request_error")
        # the question before a run is no part of what the run counts
        asked = body["messages"][-1]["content"] == QUESTION and self.most is None
        kind, rng = self._draw(name, body["messages"], 0.0 if asked else self.share)
        if kind is None:
            await asyncio.sleep(self.latency_s * rng.uniform(0.5, 1.5))
            answer = await self._answer(name, body)
            self.answers.add(answer.completion)
            row = _completion(name, answer)
            return await self._stream(request, row) if body.get("stream") else web.json_response(row)
        self.faults[name, kind] += 1
        if kind == "cut" and body.get("stream"):
            return await self._stream(request, _completion(name, ModelOutput.from_content(name, "Once upon a time")), cut=True)
        return await self._fail(kind, name, request)

    def _draw(self, name: str, messages: list[Any], share: float) -> tuple[str | None, Random]:
        # by the last message: the first one of an auditor holds today's date
        digest = hashlib.sha256(json.dumps([name, len(messages), messages[-1]]).encode()).hexdigest()
        self._asked[digest] += 1
        self.calls[name] += 1
        rng = Random(f"{self.seed}/{digest}/{self._asked[digest]}")
        if rng.random() >= share or self.faults.total() == self.most:
            return None, rng
        return rng.choices(list(self.mix), list(self.mix.values()))[0], rng

    async def _fail(self, kind: str, name: str, request: web.Request) -> web.StreamResponse:
        if kind == "rate_limit":
            return _error(429, "Rate limit reached.", "rate_limit_exceeded", {"Retry-After": str(self.retry_after_s)})
        if kind == "server_error":
            return _error(500, "The server had an error.", "server_error")
        if kind == "reset":
            _reset(request)
            return web.Response()
        if kind == "stall":
            await asyncio.sleep(self.stall_s)
            _reset(request)
            return web.Response()
        await asyncio.sleep(self.latency_s)
        if kind == "cut":
            return await self._cut(request)
        if kind == "broken_json":
            return web.Response(text='{"id": "cut", "choices": [{"message": {"content": "and the', content_type="application/json")
        answer = ModelOutput.from_content(name, "word " * 200_000 if kind == "huge" else _REFUSAL if kind == "refusal" else "")
        row = _completion(name, answer)
        choice = row["choices"][0]
        if kind == "no_choices":
            row["choices"] = []
        elif kind == "ended":
            choice["finish_reason"] = None
            choice["message"]["content"] = "Once upon"
        elif kind == "refusal":
            choice["finish_reason"] = "content_filter"
        elif kind == "wrong_tool":
            call = {"id": "call-0", "type": "function", "function": {"name": "no_such_tool", "arguments": "{}"}}
            choice["message"] |= {"content": None, "tool_calls": [call]}
            choice["finish_reason"] = "tool_calls"
        return web.json_response(row)

    async def _stream(self, request: web.Request, row: dict[str, Any], *, cut: bool = False) -> web.StreamResponse:
        """The answer as server-sent events, a word each; cut off behind the second."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        words = row["choices"][0]["message"]["content"].split(" ")
        for number, word in enumerate(words):
            if cut and number == 2:
                _reset(request)
                return response
            await response.write(_chunk(row, {"content": word if not number else f" {word}"}, None))
        await response.write(_chunk(row, {}, "stop", usage=row["usage"]) + b"data: [DONE]\n\n")
        return response

    async def _cut(self, request: web.Request) -> web.StreamResponse:
        """The head of an answer, then nothing."""
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "4096"})
        await response.prepare(request)
        await response.write(b'{"id": "cut", "object": "chat.completion", "choices": [')
        if request.transport is not None:
            request.transport.close()
        return response

    async def _answer(self, name: str, body: Mapping[str, Any]) -> ModelOutput:
        messages: list[ChatMessage] = await messages_from_openai(body["messages"])
        tools = [
            ToolInfo(name=f["name"], description=f.get("description", ""), parameters=ToolParams.model_validate(f["parameters"]))
            for f in (tool["function"] for tool in body.get("tools") or [])
        ]
        form = (body.get("response_format") or {}).get("json_schema")
        schema = ResponseSchema(name=form["name"], json_schema=JSONSchema.model_validate(form["schema"])) if form else None
        world = {"world": self.world} if self.world else {}
        api = self._models.setdefault(name, SimAPI(name, **world))  # type: ignore[arg-type]
        return await api.generate(messages, tools, "auto", GenerateConfig(response_schema=schema))


def _completion(name: str, answer: ModelOutput) -> dict[str, Any]:
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.function, "arguments": json.dumps(call.arguments)}}
        for call in answer.message.tool_calls or []
    ]
    message: dict[str, Any] = {"role": "assistant", "content": answer.completion, **({"tool_calls": calls} if calls else {})}
    usage = answer.usage
    read, written = (usage.input_tokens, usage.output_tokens) if usage is not None else (0, 0)
    return {
        "id": "chatcmpl-0",
        "object": "chat.completion",
        "created": 0,
        "model": name,
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}],
        "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
    }


def _chunk(row: Mapping[str, Any], delta: Mapping[str, str], finish: str | None, **more: Any) -> bytes:
    chunk = {
        **{key: row[key] for key in ("id", "created", "model")},
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": finish}],
        **more,
    }
    return f"data: {json.dumps(chunk)}\n\n".encode()


def _error(status: int, message: str, code: str, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.json_response({"error": {"message": message, "type": code, "code": code}}, status=status, headers=headers)


def _reset(request: web.Request) -> None:
    """Close the connection so that the other side reads a reset, not an end."""
    if request.transport is None:
        return
    raw = request.transport.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    request.transport.abort()


@contextmanager
def serving(server: FaultServer) -> Generator[FaultServer]:
    """Serve on a free port of this machine, in a thread with a loop of its own; `base_url` then says where."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="fault-server", daemon=True)
    thread.start()

    async def start() -> web.AppRunner:
        runner = web.AppRunner(server.app(), access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        await server.warm()
        server.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        return runner

    runner = asyncio.run_coroutine_threadsafe(start(), loop).result(20)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()


CONFIG = """
name = "{name}"
random_seed = 1
simulated = true

[policy]
model = "sim/tiny"
max_tokens = 16

[policy.local]
threads = 1
dtype = "float32"

[targets]
clean_from_pool = true

[targets.pool.http]
model = "openai-api/faulty/target"
base_url = "{url}"
attempt_timeout = {attempt_timeout}

[judge]
model = "openai-api/faulty/judge"
base_url = "{url}"
attempt_timeout = {attempt_timeout}

[bank]
seeds = "sim"

[audit]
max_turns = 6
rollback = false
target_tools = "none"

[reward]
kind = "reference"
calibration_eighths = 4

[train]
steps = {steps}
groups = {groups}
group_size = {group_size}

[probe]
every = 0
"""
"""A run of the simulated world whose target and judge stand behind a server."""


def config_text(url: str, *, name: str = "http", steps: int = 3, groups: int = 8, group_size: int = 2, attempt_timeout: int = 8) -> str:
    """`CONFIG` for a server."""
    return CONFIG.format(name=name, url=url, steps=steps, groups=groups, group_size=group_size, attempt_timeout=attempt_timeout)
