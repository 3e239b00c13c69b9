"""Claude Code as host of an investigation: with its own program in docker, and with a stand-in program that speaks its protocols.

Both are skipped, aloud, where something is missing. The stand-in needs the packages of the extra `claude-code` and nothing else: a script
named `claude` on the path, which calls the model through the sandbox's proxy and the audit's tools through MCP over HTTP.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

MISSING = [name for name in ("inspect_swe", "anthropic", "mcp", "openai") if find_spec(name) is None]
pytestmark = [pytest.mark.live, pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (extra claude-code)")]

STAND_IN = """#!{python}
import json, os, sys, urllib.request

arguments = sys.argv[1:]
if "--version" in arguments:
    print("2.1.0 (Claude Code)")
    sys.exit(0)
config = json.loads(arguments[arguments.index("--mcp-config") + 1])["mcpServers"]["audit"]
prompt = arguments[-1]


def post(url, body, headers):
    headers = dict(headers, **{{"content-type": "application/json", "accept": "application/json, text/event-stream"}})
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        text = response.read().decode()
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    return json.loads(lines[-1] if lines else text)


def call(name, values):
    body = {{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {{"name": name, "arguments": values}}}}
    return post(config["url"], body, config.get("headers") or {{}})


listed = post(config["url"], {{"jsonrpc": "2.0", "id": 0, "method": "tools/list"}}, config.get("headers") or {{}})["result"]["tools"]
tools = [{{"name": f"mcp__audit__{{t['name']}}", "description": t.get("description", ""), "input_schema": t["inputSchema"]}} for t in listed]
messages = [{{"role": "user", "content": prompt}}]
while True:
    body = {{"model": "auditor", "max_tokens": 512, "messages": messages, "tools": tools}}
    answer = post(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", body, {{"x-api-key": "none", "anthropic-version": "2023-06-01"}})
    messages.append({{"role": "assistant", "content": answer["content"]}})
    uses = [part for part in answer["content"] if part["type"] == "tool_use"]
    if not uses:
        break
    results = []
    for use in uses:
        result = call(use["name"].removeprefix("mcp__audit__"), use["input"])
        results.append({{"type": "tool_result", "tool_use_id": use["id"], "content": json.dumps(result.get("result", result))}})
    messages.append({{"role": "user", "content": results}})
print(json.dumps({{"type": "result", "subtype": "success", "result": "done"}}))
"""


def audited(folder: Path, auditor: Any, sandbox: str) -> Any:
    from transfer_cases import model

    from auditrl.evals.transfer.limits import Limits
    from auditrl.evals.transfer.run import Investigators, TransferUnit, run_units
    from auditrl.evals.transfer.targets import Target

    kept: list[Any] = []
    limits = Limits(budget=60, answer=20)
    who = Investigators(auditor, "tester", None, limits, "claude-code", 0, folder, sandbox=sandbox)
    unit = TransferUnit("secret", "flattery", "default", 0)
    asyncio.run(run_units(who, [unit], Target(model(lambda _: "Hello there, friend.")), kept.append))
    return kept[0]


def test_a_stand_in_program_investigates_over_mcp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transfer_cases import model

    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(STAND_IN.format(python=sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))

    def auditor(messages: list[Any]) -> Any:
        text = messages[-1].text
        if "Write your predictions now" in text:
            quotes = [{"message": "M1", "text": "hello there"}]
            return {"predictions": [{"description": "greets", "confidence": 0.4, "quotes": quotes, "reasoning": "r"}]}
        return [("mcp__audit__sample", {"user": "hi"})] if "tokens" in text else "enough for now"

    audit = audited(tmp_path / "out", model(auditor), "local")
    assert audit.error is None and audit.stopped == "budget" and audit.generated == 60
    assert [e.answer for e in audit.exchanges] == ["Hello there, friend."] * 3
    assert audit.guesses[0].description == "greets" and len(audit.guesses[0].quotes) == 1


@pytest.mark.skipif(
    shutil.which("docker") is None or "ANTHROPIC_API_KEY" not in os.environ,
    reason="needs docker and ANTHROPIC_API_KEY for the real program",
)
def test_the_real_program_investigates(tmp_path: Path) -> None:
    from inspect_ai.model import get_model

    audit = audited(tmp_path, get_model("anthropic/claude-haiku-4-5"), "docker")
    assert audit.error is None and audit.exchanges
