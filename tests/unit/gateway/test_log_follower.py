"""A gateway follows the log with few requests."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from eoslog.gateway import known_topics
from eoslog.gateway.known_topics import KnownTopics
from eoslog.gateway.log_follower import LogFollower
from eoslog.store import Store


def test_a_fetch_reads_no_log_that_the_gateway_follows(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[bool] = []
    read = store.read

    def counted(*arguments: Any, **options: Any) -> Any:
        reads.append(True)
        return read(*arguments, **options)

    monkeypatch.setattr(store, "read", counted)
    # However slow the machine is.
    monkeypatch.setattr(known_topics, "_OLDEST_MS", 600_000)

    async def fetch_after_a_wait() -> tuple[int, int]:
        known = KnownTopics(store, executor)
        follower = LogFollower(store, known, executor)
        following = asyncio.create_task(follower.run())
        # The second read begins when the first one is noted.
        while len(reads) < 2:
            await follower.wait(follower.next_change(), 0.01, held_back=False)
        following.cancel()
        # A read that has begun may end now.
        await asyncio.gather(following, return_exceptions=True)
        await asyncio.get_running_loop().run_in_executor(executor, lambda: None)
        followed = len(reads)
        await known.keep_recent()
        return followed, len(reads)

    with ThreadPoolExecutor(1) as executor:
        followed, fetched = asyncio.run(fetch_after_a_wait())

    assert followed == fetched
