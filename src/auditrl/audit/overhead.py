"""Bookkeeping that a set of audits need not pay for.

A training step runs 64 audits, so the scaffold's own time counts. While `light` is entered, and only then:

- the cyclic garbage collector runs less often: Inspect keeps every event of a running audit, and walking over them again and again is a
  fifth of a step with instant models. Reference counting frees nearly everything, so memory does not grow;
- Inspect's trace records (two a model call and two a tool call, each written to disk) are off, unless the user asked for them;
- events are not translated for an attached agent client: nobody can attach, but Inspect prepares for it in every sample.

This is the only module that imports private parts of `inspect_ai`, because no public switch exists for the last two. Where an import
fails in another version, audits are slower and otherwise the same.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import AsyncGenerator, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext

_GC_THRESHOLDS = (50_000, 20, 20)
"""Allocations before a young collection, young before a middle one, middle before a full one (Python's own: 700, 10, 10)."""


@asynccontextmanager
async def light() -> AsyncGenerator[None]:
    """Run what is inside with less bookkeeping; everything is as before afterwards."""
    with _rare_collections(), _no_traces():
        async with _no_attached_client():
            yield


@contextmanager
def _rare_collections() -> Generator[None]:
    before = gc.get_threshold()
    # a caller who switched collection off, or made it rarer still, knows better
    if before[0] == 0 or before > _GC_THRESHOLDS:
        yield
        return
    gc.set_threshold(*_GC_THRESHOLDS)
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
