"""One small question to every server of a run before anything is made: is it there, does it know the key and the model?

A wrong key would otherwise show as a step of failed audits, after minutes of retries. Models of this process are not asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .config import ModelConfig
from .errors import AuditrlError, ConfigError, ProviderError
from .faults import IN_PROCESS, kind_of, role_of, root_cause, status_of, told
from .models import build_model

if TYPE_CHECKING:
    from inspect_ai.model import GenerateConfig, Model

QUESTION = "Answer with the single word: ready"
RETRIES = 3
"""Of a question: about four seconds for a server that is just starting or overloaded."""
STARTED = ("vllm", "sglang")
"""Providers that start a server of their own when they are opened, unless they are told of one."""
PATIENCE_S = 120
"""Seconds for one attempt: a local server may have to load its model first."""


def check_servers(entries: Mapping[str, ModelConfig]) -> None:
    """`ask_servers`, from outside of an event loop."""
    asyncio.run(ask_servers(entries))


async def ask_servers(entries: Mapping[str, ModelConfig]) -> None:
    """Ask every model that a network lies in front of, each once however many roles it has.

    Args:
        entries: Model entries by config key.

    Raises:
        ConfigError: A server refuses key, model or structured answers. Every problem is listed with its key and its mend.
        ProviderError: A server is not there or does not answer.
    """
    from .audit.run import quiet

    quiet()
    models: dict[tuple[str, bool], tuple[str, ModelConfig, Model]] = {}
    for key, entry in entries.items():
        provider = entry.model.partition("/")[0]
        which = entry.identity, role_of(key) == "judge"
        if which not in models and provider not in IN_PROCESS and not (provider in STARTED and entry.base_url is None):
            models[which] = key, entry, build_model(entry, key)
    found = await asyncio.gather(*(_ask(*one) for one in models.values()))
    _raise([problem for problem in found if problem is not None])


async def _ask(key: str, entry: ModelConfig, model: Model) -> AuditrlError | None:
    try:
        await model.generate(QUESTION, config=_config(judge=role_of(key) == "judge"))
    except Exception as error:  # providers raise what they like
        return _problem(key, entry, model, root_cause(error))
    return None


def _config(*, judge: bool) -> GenerateConfig:
    from inspect_ai.model import GenerateConfig, ResponseSchema
    from inspect_ai.util import JSONSchema

    word = JSONSchema(type="object", properties={"word": JSONSchema(type="string")}, required=["word"], additionalProperties=False)
    schema = ResponseSchema(name="ready", json_schema=word) if judge else None
    return GenerateConfig(max_retries=RETRIES, attempt_timeout=PATIENCE_S, timeout=PATIENCE_S, response_schema=schema)


def _problem(key: str, entry: ModelConfig, model: Model, error: BaseException) -> AuditrlError:
    """What is wrong, and the mend."""
    status, kind = status_of(error), kind_of(error)
    where = f" at {model.api.base_url}" if model.api.base_url else ""
    head = f"{key}.model = {entry.model!r}"
    said = f"({told(error)})"
    if kind in ("connection", "timeout"):
        return ProviderError(f"{head}: no server answers{where} {said}. Start it, or mend {key}.base_url")
    if kind == "unreadable":
        return ConfigError(f"{head}: what answers{where} is no model {said}. Mend {key}.base_url; most end in /v1")
    if status in (401, 403):
        names = " or ".join(model.api.api_key_vars) or "the provider's variable"
        return ConfigError(f"{head}: the server{where} refuses the key {said}. Put the right one into {names}")
    if status == 404:
        return ConfigError(
            f"{head}: nothing of that name{where} {said}. Mend the name behind the provider, or {key}.base_url; most end in /v1"
        )
    if status in (400, 422) and role_of(key) == "judge":
        return ConfigError(
            f"{head}: the server{where} refuses a structured answer {said}. Judges need one: use a server that takes a JSON schema"
        )
    if status is not None and 400 <= status < 500 and status not in (408, 429):
        return ConfigError(f"{head}: the server{where} refuses the request {said}. Mend {key}.args or {key}.config")
    return ProviderError(f"{head}: the server{where} does not answer {said}. Try again when it does")


def _raise(problems: list[AuditrlError]) -> None:
    if problems:
        # a mend of the config comes first: with a wrong key it does not matter that another server is down
        worst = next((type(p) for p in problems if isinstance(p, ConfigError)), type(problems[0]))
        raise worst("\n".join(str(problem) for problem in problems))
