"""The barrier: who is generated with whom, whatever the timing, and that nothing can lock it up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random

import pytest

from auditrl.policy.batching import Lockstep

Batches = list[list[str]]


def lockstep(patience_s: float = 30.0, fails: str | None = None) -> tuple[Lockstep[str, str], Batches]:
    """A barrier that answers in capitals, and the batches that it made (sorted)."""
    batches: Batches = []

    async def run(requests: Sequence[str]) -> list[str]:
        await asyncio.sleep(0.001)
        batches.append(sorted(requests))
        if fails in requests:
            raise ValueError("broken batch")
        return [request.upper() for request in requests]

    return Lockstep[str, str](run, patience_s), batches


def within(seconds: float, work: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(work(), seconds)

    asyncio.run(limited())


@pytest.mark.parametrize("timing", [0, 1, 2, 3])
def test_batches_do_not_depend_on_timing(timing: int) -> None:
    steps, batches = lockstep()
    rng = Random(timing)

    async def audit(name: str, turns: int) -> None:
        await asyncio.sleep(rng.random() / 100)
        async with steps.seat(name):
            for turn in range(turns):
                await asyncio.sleep(rng.random() / 200)
                assert await steps.submit(f"{name}{turn}", seat=name) == f"{name}{turn}".upper()

    async def work() -> None:
        with steps.session(3):
            await asyncio.gather(audit("a", 3), audit("b", 1), audit("c", 2))

    within(5, work)
    assert batches == [["a0", "b0", "c0"], ["a1", "c1"], ["a2"]]
    assert (steps.stats.batches, steps.stats.requests, steps.stats.stalls) == (3, 6, 0)


@pytest.mark.parametrize("how", ["raises", "cancelled while thinking", "cancelled while waiting", "never comes"])
def test_an_audit_that_breaks_off_does_not_hold_up_the_rest(how: str) -> None:
    steps, batches = lockstep()

    async def good(name: str) -> None:
        async with steps.seat(name):
            for turn in range(2):
                await steps.submit(f"{name}{turn}", seat=name)

    async def bad() -> None:
        if how == "never comes":
            steps.forfeit()
            return
        async with steps.seat("bad"):
            if how == "cancelled while waiting":
                await steps.submit("bad0", seat="bad")
            await asyncio.sleep(0.02)
            if how == "raises":
                raise ValueError("the target broke")
            await asyncio.sleep(60)

    async def work() -> None:
        with steps.session(3):
            # while the second good audit has not come, the bad one's request stays pending
            broken = asyncio.create_task(bad())
            first = asyncio.create_task(good("a"))
            await asyncio.sleep(0.05)
            broken.cancel()
            await asyncio.gather(broken, return_exceptions=True)
            await asyncio.gather(first, good("b"))

    within(5, work)
    assert batches == [["a0", "b0"], ["a1", "b1"]]


def test_a_failed_batch_is_told_to_everybody_in_it_and_the_next_one_runs() -> None:
    steps, batches = lockstep(fails="a0")

    async def audit(name: str) -> str:
        async with steps.seat(name):
            try:
                return await steps.submit(f"{name}0", seat=name)
            except ValueError:
                return await steps.submit(f"{name}1", seat=name)

    async def work() -> None:
        with steps.session(2):
            assert await asyncio.gather(audit("a"), audit("b")) == ["A1", "B1"]

    within(5, work)
    assert batches == [["a0", "b0"], ["a1", "b1"]]


def test_requests_without_a_seat_are_batched_and_wait_for_nobody() -> None:
    steps, batches = lockstep()

    async def work() -> None:
        async with steps.seat("slow"):
            await asyncio.gather(*(steps.submit(f"x{i}", seat=None) for i in range(4)), steps.submit("y", seat="unknown"))

    within(5, work)
    assert batches == [["x0", "x1", "x2", "x3", "y"]]


def test_patience_ends_a_wait_for_a_seat_that_nobody_takes() -> None:
    steps, batches = lockstep(patience_s=0.05)

    async def audit() -> None:
        async with steps.seat("a"):
            await steps.submit("a0", seat="a")

    async def work() -> None:
        with steps.session(2):
            await audit()

    within(5, work)
    assert batches == [["a0"]]
    assert steps.stats.stalls == 1


def test_the_end_of_a_session_frees_its_seats() -> None:
    steps, batches = lockstep()

    async def work() -> None:
        with steps.session(5):
            pass
        async with steps.seat("a"):
            await steps.submit("a0", seat="a")

    within(5, work)
    assert batches == [["a0"]]


def test_it_can_be_used_from_one_event_loop_after_another() -> None:
    steps, batches = lockstep()
    for round_ in range(2):

        async def work(name: str = f"r{round_}") -> None:
            async with steps.seat(name):
                await steps.submit(name, seat=name)

        within(5, work)
    assert batches == [["r0"], ["r1"]]


class _Name(str):
    """Counts how often it is looked up."""

    looked_up = 0

    def __hash__(self) -> int:
        _Name.looked_up += 1
        return super().__hash__()


def test_the_barriers_work_grows_with_the_number_of_audits_and_not_with_its_square() -> None:
    def lookups(audits: int) -> int:
        steps, batches = lockstep()

        async def audit(name: _Name) -> None:
            async with steps.seat(name):
                for turn in range(3):
                    await steps.submit(f"{name}{turn}", seat=name)

        async def work() -> None:
            with steps.session(audits):
                await asyncio.gather(*(audit(_Name(i)) for i in range(audits)))

        _Name.looked_up = 0
        within(10, work)
        assert [len(batch) for batch in batches] == [audits] * 3
        return _Name.looked_up

    assert lookups(400) < 12 * lookups(40)
