"""Bookkeeping that a set of audits need not pay for.

A training step runs 64 audits, so the scaffold's own time counts. While `light` is entered, and only then:

- the cyclic garbage collector runs less often, and the less often the more audits run at a time: Inspect keeps every event of a running
  audit, and walking over them again and again is a fifth of a step with instant models. What a turn leaves behind is then gone before the
  collector comes, however many audits take turns. Reference counting frees nearly everything, so memory does not grow. What was loaded
  before the first audits (400,000 objects of torch, transformers and Inspect) is set aside for good, so that no collection walks over it;
- Inspect's trace records (two a model call and two a tool call, each written to disk) are off, unless the user asked for them;
- events are not translated for an attached agent client: nobody can attach, but Inspect prepares for it in every sample.

`forgotten` does the same for calls that belong to no audit: judges would be remembered word for word for as long as a run lasts.
`answer_schema` makes a schema that is not copied whenever the configuration around it is.

This is the only module that imports private parts of `inspect_ai`, because no public switch exists for these. Where an import fails in
another version, audits are slower, memory grows, and results are the same.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import AsyncGenerator, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from inspect_ai.model import ResponseSchema
    from pydantic import BaseModel

_GC_THRESHOLDS = (50_000, 20, 20)
"""Allocations before a young collection, young before a middle one, middle before a full one (Python's own: 700, 10, 10)."""
_ALLOCATIONS_OF_AN_AUDIT = 1_000


@asynccontextmanager
async def light(audits: int = 0) -> AsyncGenerator[None]:
    """Run what is inside, so many audits at a time, with less bookkeeping; thresholds and loggers are as before afterwards."""
    with _rare_collections(audits), _no_traces():
        async with _no_attached_client():
            yield


@cache
def answer_schema(name: str, answer: type[BaseModel]) -> ResponseSchema:
    """Schema of a structured answer, under the name that tells what is asked.

    Inspect merges configurations by deep copies, three a call, and nobody changes the schema that is in them: the copies are itself.
    """
    from inspect_ai.model import ResponseSchema
    from inspect_ai.util import json_schema

    class Shared(ResponseSchema):
        def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
            return self

    return Shared(name=name, json_schema=json_schema(answer))


@contextmanager
def forgotten() -> Generator[None]:
    """Calls of models inside leave nothing behind. Outside of an audit Inspect keeps their events, prompts and all, until the process ends;
    inside of one (a judge that is its scorer) they belong into its log and stay there."""
    try:
        from inspect_ai.log import Transcript, transcript
        from inspect_ai.log._samples import sample_active
        from inspect_ai.log._transcript import init_transcript
    except ImportError:
        yield
        return
    if sample_active() is not None:
        yield
        return
    before = transcript()
    init_transcript(Transcript())
    try:
        yield
    finally:
        init_transcript(before)


@contextmanager
def _rare_collections(audits: int) -> Generator[None]:
    before = gc.get_threshold()
    young, middle, full = _GC_THRESHOLDS
    wanted = (max(young, _ALLOCATIONS_OF_AN_AUDIT * audits), middle, full)
    # a caller who switched collection off, or made it rarer still, knows better
    if before[0] == 0 or before > wanted:
        yield
        return
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
    gc.set_threshold(*wanted)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def _no_traces() -> Generator[None]:
    wanted = {"INSPECT_TRACE_FILE", "INSPECT_TRACE_LEVEL"} & os.environ.keys()
    if wanted or os.environ.get("INSPECT_LOG_LEVEL", "").lower() in ("trace", "debug", "notset"):
        yield
        return
    try:
        from inspect_ai._util.constants import TRACE
    except ImportError:
        yield
        return
    # calls of models and tools; loggers below this one inherit its level
    logger = logging.getLogger("inspect_ai.model")
    before = logger.level
    logger.setLevel(max(before, TRACE + 1))
    try:
        yield
    finally:
        logger.setLevel(before)


def _no_attached_client() -> AbstractAsyncContextManager[object]:
    """Inspect gives a sample's agent client to the first session of a context and an inert one to every later: be the first."""
    try:
        from inspect_ai.agent._acp.transport import acp_session
    except ImportError:
        return nullcontext()
    return acp_session()
