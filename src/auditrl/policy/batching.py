"""Which concurrent requests are generated together: a barrier over the audits that are alive.

A batch that depends on arrival times gives logits that differ in the last bits from run to run, and small batches are slow. So audits
take a seat when they start and leave it when they end, and a batch runs when every seated audit has asked for its next turn. Requests
from outside a seat don't wait for anybody: they run as soon as the event loop has nothing else to do.

The barrier can't lock up: a seat is left in a `finally`, and when nothing has moved for `patience_s` seconds although requests are
waiting (an audit that never took its reserved seat, a target that hangs), those that wait are run without the rest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

__all__ = ["Lockstep"]

logger = logging.getLogger(__name__)

_ALARMING_S = 30.0
"""Patience that no healthy run loses; a shorter one is meant to be lost now and then."""
_QUIET_PASSES = 3
"""Event loop passes without a new request after which it counts as idle: a task needs two to get from a result to its next request."""


@dataclass(slots=True, eq=False)
class _Pending[Request, Result]:
    request: Request
    seat: str | None
    future: asyncio.Future[Result]
    taken: bool = False
    """Whether a batch has it."""


@dataclass(slots=True)
class LockstepStats:
    """What the barrier did: batches run, requests in them, and batches that ran without every seated audit."""

    batches: int = 0
    requests: int = 0
    stalls: int = 0


@dataclass(slots=True)
class Lockstep[Request, Result]:
    """Collects requests into batches and hands each to `run`.

    Args:
        run: Answers a batch, one result a request, in order. An exception is given to every request of the batch.
        patience_s: Seconds without any movement after which waiting requests are run although some seated audit has not asked.
    """

    run: Callable[[Sequence[Request]], Awaitable[Sequence[Result]]]
    patience_s: float = 120.0
    stats: LockstepStats = field(default_factory=LockstepStats)
    _seats: dict[str, int] = field(default_factory=dict[str, int])
    _reserved: int = 0
    _seated: list[_Pending[Request, Result]] = field(default_factory=list[_Pending[Request, Result]])
    """What audits with a seat have asked for; `_loose` is what others have."""
    _loose: list[_Pending[Request, Result]] = field(default_factory=list[_Pending[Request, Result]])
    _batch: asyncio.Task[None] | None = None
    _idle_check: asyncio.Handle | None = None
    _patience: asyncio.TimerHandle | None = None

    @contextmanager
    def session(self, seats: int) -> Generator[None]:
        """Reserve seats for audits that are about to start: no batch runs before they are all taken (or given back).

        Reserve as many as run at the same time; audits that start later simply join. At the end what is still reserved is dropped.
        """
        self._reserved += seats
        taken_before = self._reserved
        try:
            yield
        finally:
            self._reserved = min(self._reserved, taken_before - seats)
            self._moved()

    def forfeit(self, seats: int = 1) -> None:
        """Give back reserved seats whose audits will not come (they failed before they could sit down)."""
        self._reserved = max(0, self._reserved - seats)
        self._moved()

    @asynccontextmanager
    async def seat(self, name: str) -> AsyncGenerator[None]:
        """Take part in the barrier as audit `name` until the block is left, however it is left."""
        self._seats[name] = self._seats.get(name, 0) + 1
        self._reserved = max(0, self._reserved - 1)
        try:
            yield
        finally:
            self._seats[name] -= 1
            if not self._seats[name]:
                del self._seats[name]
            self._moved()

    async def submit(self, request: Request, *, seat: str | None) -> Result:
        """Wait for the batch that answers this request. `seat` is the audit it belongs to; one without a seat does not wait for others."""
        loop = asyncio.get_running_loop()
        pending = _Pending[Request, Result](request, seat if seat in self._seats else None, loop.create_future())
        place = self._loose if pending.seat is None else self._seated
        place.append(pending)
        self._moved()
        try:
            return await pending.future
        finally:
            if not pending.taken:  # the caller was cancelled before its batch began
                place.remove(pending)

    def _moved(self) -> None:
        """Something changed: run what is ready, watch for the rest."""
        self._rearm_patience()
        if self._batch is not None:
            return
        if self._everybody_asked():
            self._start(self._seated)
        elif self._loose:
            self._check_idle(self._waiting, _QUIET_PASSES)

    @property
    def _waiting(self) -> int:
        return len(self._seated) + len(self._loose)

    def _everybody_asked(self) -> bool:
        # this is asked at every request: who has asked is only looked up once there are as many requests as seats
        if self._reserved or not self._seated or len(self._seated) < len(self._seats):
            return False
        return {p.seat for p in self._seated}.issuperset(self._seats)

    def _check_idle(self, seen: int, passes: int) -> None:
        if self._idle_check is not None:
            self._idle_check.cancel()
        self._idle_check = asyncio.get_running_loop().call_soon(self._idle_pass, seen, passes)

    def _idle_pass(self, seen: int, passes: int) -> None:
        self._idle_check = None
        if self._batch is not None:
            return
        if passes and seen == self._waiting:
            self._check_idle(seen, passes - 1)
        elif passes:
            self._check_idle(self._waiting, _QUIET_PASSES)
        elif self._loose:
            self._start(self._loose)

    def _rearm_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        if self._waiting and self._batch is None:
            self._patience = asyncio.get_running_loop().call_later(self.patience_s, self._lose_patience)

    def _lose_patience(self) -> None:
        self._patience = None
        if self._waiting and self._batch is None:
            late = sorted(self._seats.keys() - {p.seat for p in self._seated})
            self.stats.stalls += 1
            logger.log(
                logging.WARNING if self.patience_s >= _ALARMING_S else logging.DEBUG,
                "after %g s, generating for %d requests without %d reserved seats and %d audits that have not asked (first: %s)",
                self.patience_s,
                self._waiting,
                self._reserved,
                len(late),
                late[:1],
            )
            self._start(self._seated, self._loose)

    def _start(self, *places: list[_Pending[Request, Result]]) -> None:
        batch = [pending for place in places for pending in place]
        for pending in batch:
            pending.taken = True
        for place in places:
            place.clear()
        self.stats.batches += 1
        self.stats.requests += len(batch)
        self._batch = asyncio.get_running_loop().create_task(self._answer(batch))

    async def _answer(self, batch: list[_Pending[Request, Result]]) -> None:
        try:
            results = await self.run([p.request for p in batch])
            for pending, result in zip(batch, results, strict=True):
                if not pending.future.done():
                    pending.future.set_result(result)
        except asyncio.CancelledError:
            for pending in batch:
                pending.future.cancel()
            raise
        except Exception as error:
            for pending in batch:
                if not pending.future.done():
                    pending.future.set_exception(error)
        finally:
            self._batch = None
            if self._waiting:
                self._moved()
