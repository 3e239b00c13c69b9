"""Model entries: what reaches Inspect, what is refused, and which keys a resumed run may change."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from inspect_ai.model import ChatMessage, GenerateConfig, ModelOutput
from inspect_ai.util._concurrency import init_concurrency

from auditrl.audit.target import with_generate
from auditrl.config import ModelConfig, RunConfig, changes_results, check_config, load_config, packaged_config, parse_overrides
from auditrl.errors import ConfigError, RunError
from auditrl.models import build_model, generate_config, models_of
from auditrl.runs import create_run, open_run
from auditrl.train.workshop import check_models

DATA: dict[str, Any] = {
    "name": "r",
    "policy": {"model": "sim/tiny"},
    "judge": {"model": "mockllm/judge"},
    "targets": {"pool": {"a": {"model": "mockllm/a"}, "b": {"model": "mockllm/b"}}},
}


def config(**judge: Any) -> RunConfig:
    return check_config({**DATA, "judge": {**DATA["judge"], **judge}}, "here")


def test_every_setting_reaches_inspect() -> None:
    entry = ModelConfig(
        model="mockllm/model",
        temperature=0.5,
        max_tokens=100,
        adaptive_connections=40,
        max_retries=3,
        timeout=600,
        attempt_timeout=60,
        config={"reasoning_effort": "low", "cache_prompt": False, "extra_body": {"service_tier": "flex"}},
    )
    assert build_model(entry, "judge").config.model_dump(exclude_none=True) == {
        "temperature": 0.5,
        "max_tokens": 100,
        "adaptive_connections": 40,
        "max_retries": 3,
        "timeout": 600,
        "attempt_timeout": 60,
        "reasoning_effort": "low",
        "cache_prompt": False,
        "extra_body": {"service_tier": "flex"},
    }
    assert generate_config(ModelConfig(model="mockllm/model"), "judge").model_dump(exclude_none=True) == {"max_retries": 10}


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        ({"config": {"max_connections": 5}}, r"judge\.config\.max_connections: has a key of its own; set judge\.max_connections"),
        ({"config": {"cache": True}}, r"judge\.config\.cache: equal inputs would give equal audits.*remove it"),
        ({"config": {"response_schema": {}}}, r"judge\.config\.response_schema"),
        ({"config": {"reasoning_efort": "low"}}, r"judge\.config\.reasoning_efort: .*did you mean 'reasoning_effort'"),
        ({"config": {"region": "eu"}}, r"judge\.config\.region: .*`args` is for the provider"),
        ({"config": {"reasoning_effort": "huge"}}, r"judge\.config\.reasoning_effort: .*\(given: 'huge'\)"),
    ],
)
def test_settings_that_inspect_would_ignore_or_misread_are_refused(judge: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_models(config(**judge))


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        ({"max_connections": 0}, "judge.max_connections"),
        ({"adaptive_connections": 1}, "judge.adaptive_connections"),
        ({"max_retries": -1}, "judge.max_retries"),
        ({"timeout": 0}, "judge.timeout"),
        ({"timeout": 10, "attempt_timeout": 60}, "attempt_timeout = 60 is longer than timeout = 10"),
        ({"max_connections": 5, "adaptive_connections": 50}, "drop one"),
        ({"max_retry": 5}, "did you mean 'max_retries'"),
    ],
)
def test_limits_that_make_no_sense_are_refused_when_the_config_is_read(judge: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**judge)


@pytest.mark.parametrize(
    ("target", "judge", "refused"),
    [
        ({"max_connections": 50}, {"max_connections": 5}, True),
        ({"adaptive_connections": 50}, {"adaptive_connections": 5}, True),
        ({"max_connections": 50, "base_url": "http://a"}, {"max_connections": 5, "base_url": "http://b"}, True),
        ({"max_connections": 5}, {"max_connections": 5}, False),
        ({"max_connections": 5}, {}, False),
        ({"max_connections": 50}, {"max_connections": 5, "model": "mockllm/other"}, False),
    ],
)
def test_one_model_has_one_limit(target: dict[str, Any], judge: dict[str, Any], refused: bool) -> None:
    shared = {**DATA, "targets": {"pool": {"a": {"model": "mockllm/a", **target}}}, "judge": {"model": "mockllm/a", **judge}}
    read = check_config(shared, "here")
    if refused:
        with pytest.raises(ConfigError, match=r"judge\.\w+ = 5, but targets\.pool\.a\.\w+ = 50: both are mockllm/a.*same limit"):
            check_models(read)
    else:
        check_models(read)


def test_models_of_a_run() -> None:
    quickstart = load_config(packaged_config("quickstart"))
    named = models_of(quickstart)
    assert {"judge", "evaluation.target", "evaluation.clean_target", "evaluation.production_target"} <= named.keys()
    assert set(models_of(config())) == {"judge", "targets.pool.a", "targets.pool.b"}


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("judge.max_connections", False),
        ("targets.pool.a.attempt_timeout", False),
        ("budget.max_usd", False),
        ("judge.temperature", True),
        ("judge.config.reasoning_effort", True),
        ("audit.max_concurrent", True),
    ],
)
def test_keys_that_change_results(key: str, changes: bool) -> None:
    assert changes_results(key) is changes


def test_a_resumed_run_may_have_other_limits(tmp_path: Path) -> None:
    run = create_run(tmp_path, config(max_connections=50))
    slower = open_run(run.path, parse_overrides([("judge.max_connections", "5"), ("targets.pool.a.timeout", "30")]))
    assert (slower.config.judge.max_connections, slower.config.targets.pool["a"].timeout) == (5, 30)
    assert slower.config.digest == run.config.digest
    assert open_run(run.path).config == slower.config
    with pytest.raises(RunError, match=r"judge\.temperature \(was None, is 0\.5\)"):
        open_run(run.path, parse_overrides([("judge.max_connections", "5"), ("judge.temperature", "0.5")]))


def test_the_limit_holds_over_all_calls_of_a_model() -> None:
    """Targets are wrapped once an audit; the wrapped models share the server's connections all the same."""
    init_concurrency()  # limits are kept for the whole process
    base = build_model(ModelConfig(model="mockllm/limited", max_connections=3), "targets.pool.a")
    running, most = 0, 0

    async def generate(input: list[ChatMessage], tools: Any, tool_choice: Any, config: GenerateConfig) -> ModelOutput:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return ModelOutput.from_content("limited", "yes")

    async def work() -> None:
        await asyncio.gather(*(with_generate(base, generate).generate(f"{i}") for i in range(20)))

    asyncio.run(work())
    assert most == 3


def test_a_stalled_attempt_is_given_up_and_tried_again() -> None:
    entry = ModelConfig(model="mockllm/stalls", attempt_timeout=1, max_retries=2)
    calls = 0

    async def generate(input: list[ChatMessage], tools: Any, tool_choice: Any, config: GenerateConfig) -> ModelOutput:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0 if calls > 1 else 30)
        return ModelOutput.from_content("stalls", "late")

    output = asyncio.run(with_generate(build_model(entry, "judge"), generate).generate("hello"))
    assert (output.completion, calls) == ("late", 2)


def test_settings_are_named_by_their_key() -> None:
    with pytest.raises(ConfigError, match=r"targets\.pool\.x\.config\.top_p"):
        generate_config(ModelConfig(model="mockllm/m", config={"top_p": "high"}), "targets.pool.x")
