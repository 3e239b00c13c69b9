"""Servers that misbehave: what is asked again, how long is waited, and what is counted.

Inspect repeats a call that failed for the server's sake. A provider's client often repeats it too, unseen, and some bad answers pass for
good ones. So every model that answers over a network is made `dependable`:

- one loop of retries (Inspect's, bounded by `max_retries` and `timeout`), with a wait that starts short, doubles, and is never shorter
  than what the server asked for in `Retry-After`;
- what can't be read, is far too long, holds no choice, or calls a tool where none was offered counts as a failed call and is repeated;
- an answer without any words or tool call, or one that ends without saying why (a stream that was cut between two words), is asked for
  twice more, then taken as it is: some models say nothing, and some servers never say why they stop;
- every fault is counted by role and kind, mended or not (`tally`).
"""

from __future__ import annotations

import asyncio
import copy
import random
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inspect_ai.model import GenerateConfig, Model, ModelAPI, ModelOutput
    from inspect_ai.tool import ToolInfo

FIRST_WAIT_S = 0.5
"""Wait before the first retry; it doubles with every further one."""
LONGEST_WAIT_S = 120.0
"""No wait of ours is longer. A server that asks for more gets what it asks for."""
ASKED_AGAIN = 2
"""How often an answer that is there but says nothing is asked for again."""
LONGEST_ANSWER = 400_000
"""Characters (about 100,000 tokens) beyond which an answer is taken for a server's fault."""
IN_PROCESS = ("sim", "policy", "mockllm", "none", "hf", "nnterp", "transformer_lens")
"""Providers without a network in between: their errors are bugs, to be seen at once."""

_TALLY: ContextVar[Counter[tuple[str, str]] | None] = ContextVar("auditrl_faults", default=None)
_CONNECTION = ("APIConnectionError", "TransportError", "ConnectionError", "ClientError")
_TIMEOUT = ("APITimeoutError", "TimeoutException", "TimeoutError", "AttemptTimeoutError", "StreamIdleTimeoutError")
# what the code that reads a provider's answer raises on a body that is not what it should be
_NOT_AN_ANSWER = (TypeError, AttributeError, KeyError, IndexError, ValueError)


class UnreadableAnswer(Exception):
    """A server answered, but not with an answer of a model. The call is repeated."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@contextmanager
def tally() -> Generator[Counter[tuple[str, str]]]:
    """Count the faults of calls that are made inside, also in tasks that are started there, by (role, kind)."""
    counts: Counter[tuple[str, str]] = Counter()
    token = _TALLY.set(counts)
    try:
        yield counts
    finally:
        _TALLY.reset(token)


def by_role(counts: Counter[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """`{"judge": {"rate_limit": 3}}`, in the order of names."""
    found: dict[str, dict[str, int]] = {}
    for (role, kind), count in sorted(counts.items()):
        found.setdefault(role, {})[kind] = count
    return found


def note(role: str, kind: str) -> None:
    """Count one fault in the tally that is open, if one is."""
    counts = _TALLY.get()
    if counts is not None:
        counts[role, kind] += 1


def role_of(key: str) -> str:
    """The role that a config key or an option speaks of: `targets.pool.small`, `evaluation.clean_target` and `--target` are targets."""
    last = key.rpartition(".")[2].lstrip("-")
    return "target" if key.startswith("targets.") or last.endswith("target") else last


def dependable(model: Model, role: str, *, keep_client: bool = False) -> Model:
    """The same model, mended and counted as the module says; a model in this process is returned as it is.

    Args:
        model: As Inspect opened it.
        role: Under which its faults are counted.
        keep_client: Leave the retries of the provider's own client as they are; those are then neither counted nor spaced by us.
    """
    from inspect_ai.model import ModelName

    if ModelName(model).api in IN_PROCESS:
        return model
    api = copy.copy(model.api)
    client = getattr(api, "client", None)
    if not keep_client and isinstance(getattr(client, "max_retries", None), int):
        # its retries would multiply with Inspect's, and nobody would know of them
        client.max_retries = 0  # type: ignore[union-attr]
    _replace(api, "generate", _watched(model.api, role))
    _replace(api, "should_retry", _retrying(model.api))
    if model.api.retry_wait() is None:
        _replace(api, "retry_wait", lambda: _waiting(model.api))
    mended = copy.copy(model)
    mended.api = api
    return mended


def _replace(api: ModelAPI, name: str, value: Any) -> None:
    object.__setattr__(api, name, value)


def _watched(api: ModelAPI, role: str) -> Any:
    provider: Any = api.generate
    says_why = True

    async def once(began: float, input: list[Any], tools: list[ToolInfo], tool_choice: Any, config: GenerateConfig) -> Any:
        try:
            result = await provider(input, tools, tool_choice, config)
            output: Any = _output(result)
            if isinstance(output, Exception):
                raise output
            _check(output, tools=bool(tools))
        except asyncio.CancelledError:
            # Inspect ends an attempt that takes too long by cancelling it; its clock started a little before ours
            if config.attempt_timeout is not None and time.monotonic() - began > 0.95 * config.attempt_timeout:
                note(role, "timeout")
            raise
        except _NOT_AN_ANSWER as error:
            note(role, "unreadable")
            raise UnreadableAnswer("unreadable", f"{type(error).__name__}: {error}") from error
        except Exception as error:
            note(role, kind_of(error))
            raise
        kind = _odd(output, tools)
        if kind is not None and (kind != "unfinished" or says_why):
            note(role, kind)
        return result

    async def generate(input: list[Any], tools: list[ToolInfo], tool_choice: Any, config: GenerateConfig) -> Any:
        nonlocal says_why
        asked = time.monotonic(), input, tools, tool_choice, config
        result = await once(*asked)
        for _ in range(ASKED_AGAIN):
            earlier = _output(result)
            if not (_is_empty(earlier) or (says_why and _is_unfinished(earlier))):
                return result
            result = await once(*asked)
            later = _output(result)
            # what was thrown away was paid for too
            later.usage = earlier.usage + later.usage if earlier.usage and later.usage else later.usage or earlier.usage
        if _is_unfinished(_output(result)):
            says_why = False
        return result

    return generate


def _output(result: Any) -> ModelOutput:
    return result[0] if isinstance(result, tuple) else result


def _check(output: ModelOutput, *, tools: bool) -> None:
    """Refuse what is no answer to what was asked.

    Raises:
        UnreadableAnswer: No choice at all, megabytes of text, or a tool call although no tool was offered.
    """
    if output.empty:
        raise UnreadableAnswer("unreadable", "the answer holds no choice")
    calls = output.message.tool_calls or []
    if calls and not tools:
        raise UnreadableAnswer("unasked_tool", f"the answer calls {calls[0].function[:80]!r}, and no tool was offered")
    written = len(output.completion) + sum(len(str(call.arguments)) for call in calls)
    if written > LONGEST_ANSWER:
        raise UnreadableAnswer("oversized", f"the answer has {written:,} characters")


def _odd(output: ModelOutput, tools: Sequence[ToolInfo]) -> str | None:
    """What is strange about an answer that can be read, None if nothing is."""
    calls = output.message.tool_calls or []
    if output.stop_reason == "content_filter":
        return "refusal"
    if any(call.function not in {tool.name for tool in tools} for call in calls):
        # a model's own mistake, which it is told of
        return "unknown_tool"
    return "empty" if _is_empty(output) else "unfinished" if _is_unfinished(output) else None


def _is_unfinished(output: ModelOutput) -> bool:
    """Whether an answer ends without a reason."""
    return output.stop_reason == "unknown"


def _is_empty(output: ModelOutput) -> bool:
    """Whether an answer that was not cut off holds no word and no tool call."""
    return output.stop_reason == "stop" and not output.message.tool_calls and not output.message.text.strip()


def _retrying(api: ModelAPI) -> Any:
    def should_retry(error: Exception) -> Any:
        return isinstance(error, UnreadableAnswer) or api.should_retry(error)

    return should_retry


def _waiting(api: ModelAPI) -> Any:
    def wait(state: Any) -> float:
        pause = min(FIRST_WAIT_S * 2.0 ** (state.attempt_number - 1), LONGEST_WAIT_S) * random.uniform(0.75, 1.0)
        error = state.outcome.exception() if state.outcome is not None else None
        decision = api.should_retry(error) if isinstance(error, Exception) else None
        return max(pause, getattr(decision, "retry_after", None) or 0.0)

    return wait


def status_of(error: BaseException) -> int | None:
    """HTTP status that an error of a provider's client carries."""
    for name in ("status_code", "code"):
        value = getattr(error, name, None)
        if isinstance(value, int):
            return value
    return None


def kind_of(error: BaseException) -> str:
    """Kind of a failed call: `rate_limit`, `server_error`, `timeout`, `connection`, `unreadable`, `oversized`, `unasked_tool`, or `refused`
    with the status for whatever the server says no to for good."""
    if isinstance(error, UnreadableAnswer):
        return error.kind
    status = status_of(error)
    if status is not None:
        return "rate_limit" if status == 429 else "server_error" if status >= 500 or status == 408 else f"refused {status}"
    names = {parent.__name__ for parent in type(error).__mro__}
    if names & set(_TIMEOUT):
        return "timeout"
    if names & set(_CONNECTION):
        return "connection"
    # Inspect's word for a body that its client could not read
    return "unreadable" if "non-ChatCompletion" in str(error) else "other"


def root_cause(error: BaseException) -> BaseException:
    """The error itself, out of the groups and the retry errors that it comes wrapped in."""
    while True:
        if isinstance(error, BaseExceptionGroup) and error.exceptions:
            error = error.exceptions[0]
            continue
        last = getattr(error, "last_attempt", None)
        inner = last.exception() if last is not None else None
        if inner is None:
            return error
        error = inner


def told(error: BaseException, most: int = 200) -> str:
    """`ReadTimeout: no answer`: kind and words (so many characters at most) of what lies behind an error, for records and messages."""
    cause = root_cause(error)
    return f"{type(cause).__name__}: {str(cause)[:most]}"
