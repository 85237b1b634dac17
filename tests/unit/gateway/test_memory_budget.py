"""The memory that connections share."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from eoslog.gateway.memory_budget import MemoryBudget


def test_requests_wait_for_memory_in_their_order() -> None:
    async def scenario() -> None:
        budget = MemoryBudget(10)
        first = await budget.take(8)
        large = asyncio.create_task(budget.take(6))
        small = asyncio.create_task(budget.take(1))
        await asyncio.sleep(0)
        # The small one would fit, but then a large one might wait for ever.
        assert not large.done()
        assert not small.done()

        first.release()
        first.release()
        await asyncio.gather(large, small)
        assert budget.free == 3

    asyncio.run(scenario())


def test_more_than_all_memory_counts_as_all() -> None:
    async def scenario() -> None:
        budget = MemoryBudget(10)
        lease = await budget.take(1_000)
        assert (lease.size, budget.free) == (10, 0)
        lease.shrink(4)
        assert (lease.size, budget.free) == (4, 6)
        await lease.resize(9)
        assert (lease.size, budget.free) == (9, 1)
        lease.release()
        assert budget.free == 10

    asyncio.run(scenario())


def test_an_answer_gets_some_memory_at_once() -> None:
    budget = MemoryBudget(800)

    assert [budget.take_some(wanted, 50).size for wanted in (30, 1_000, 1_000)] == [30, 96, 84]
    leases = [budget.take_some(1_000, 50) for _ in range(20)]
    assert leases[-1].size == 50
    for lease in leases:
        lease.release()
    assert budget.free == 800 - 30 - 96 - 84


def test_a_request_may_end_just_before_its_memory_is_free() -> None:
    async def scenario() -> None:
        budget = MemoryBudget(10)
        first = await budget.take(10)
        waiting = asyncio.create_task(budget.take(5))
        await asyncio.sleep(0)
        waiting.cancel()
        first.release()
        (outcome,) = await asyncio.gather(waiting, return_exceptions=True)
        assert isinstance(outcome, asyncio.CancelledError)
        assert budget.free == 10

    asyncio.run(scenario())


@given(st.lists(st.tuples(st.integers(1, 12), st.sampled_from(["keep", "cancel", "shrink", "resize"])), max_size=20))
def test_no_memory_is_lost_whatever_happens(takes: list[tuple[int, str]]) -> None:
    async def scenario() -> None:
        budget = MemoryBudget(10)

        async def use(size: int, what: str) -> None:
            lease = await budget.take(size)
            try:
                await asyncio.sleep(0)
                if what == "shrink":
                    lease.shrink(size // 2)
                elif what == "resize":
                    await lease.resize(size + 3)
                await asyncio.sleep(0)
            finally:
                lease.release()

        tasks = [asyncio.create_task(use(size, what)) for size, what in takes]
        for number, (_, what) in enumerate(takes):
            if what == "cancel":
                await asyncio.sleep(0)
                tasks[number].cancel()
        async with asyncio.timeout(10):
            await asyncio.gather(*tasks, return_exceptions=True)
        assert budget.free == 10

    asyncio.run(scenario())
