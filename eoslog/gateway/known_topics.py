"""Topics and partitions as this process knows them, without a lock and without a request."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable
from concurrent.futures import Executor

from eoslog.errors import EosLogError, StoreUnavailable
from eoslog.session.session import Session
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import Partition
from eoslog.state.store_state import Topic

_logger = logging.getLogger(__name__)
_OLDEST_MS = 1_000
_LONGEST_PAUSE_S = 1.0
"""A read waits at most this long for the end of the one before it (s)."""


class KnownTopics:
    """The topics of a store. A read of single objects of the state needs no lock: records replace them as a whole."""

    def __init__(self, store: Session, executor: Executor) -> None:
        self._store = store
        self._executor = executor
        self._read_ms = -math.inf
        """A time since which the newest state was read, by the clock of the event loop (ms)."""
        self._running: asyncio.Task[EosLogError | None] | None = None
        """The newest read that has begun."""
        self._next: asyncio.Task[EosLogError | None] | None = None
        """The read that begins next, if callers wait for one."""

    def known(self, name: str) -> Topic | None:
        """Return the topic of this name, if this process knows one."""
        state = self._store.known_state
        return state.topics.get(state.topic_ids.get(name, ""))

    def with_id(self, topic_id: str) -> Topic | None:
        """Return the topic of this id, if this process knows one."""
        return self._store.known_state.topics.get(topic_id)

    async def find(self, name: str) -> Topic | None:
        """Return the topic of this name. Look for a new topic if this process knows none."""
        topic = self.known(name)
        if topic is None and await self.refresh() is None:
            topic = self.known(name)
        return topic

    async def look_for(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Look for new topics and partitions if this process does not know one of these."""
        if any(self.partition(*each) is None for each in partitions):
            await self.refresh()

    async def keep_recent(self) -> None:
        """Read the newest state if it was not read for ``_OLDEST_MS``. Do not wait longer than that for the store."""
        if self._loop_ms() - self._read_ms < _OLDEST_MS:
            return
        await self.refresh(_OLDEST_MS / 1000)

    def was_read(self, begin_ms: float) -> None:
        """Note that the newest state was read by a request that began at this time of the event loop (ms)."""
        self._read_ms = max(self._read_ms, begin_ms)

    @staticmethod
    def _loop_ms() -> float:
        return asyncio.get_running_loop().time() * 1000

    async def refresh(self, timeout_s: float | None = None) -> EosLogError | None:
        """Read the newest state. Return the error if the store does not give it: then the known state is older.

        Callers share a read that begins after their calls. So a storm of them costs few requests and no threads.

        Args:
            timeout_s: wait at most this long (s).
        """
        if self._next is None:
            self._next = asyncio.create_task(self._read_after(self._running))
        reading = self._next
        done, _ = await asyncio.wait([reading], timeout=timeout_s)
        return reading.result() if done else StoreUnavailable("the store has not answered in time")

    async def _read_after(self, before: asyncio.Task[EosLogError | None] | None) -> EosLogError | None:
        if before is not None:
            # One request without an answer does not hold up all others.
            await asyncio.wait([before], timeout=_LONGEST_PAUSE_S)
        # This read may miss records that are appended from here on. So later callers need another one.
        self._running, self._next = self._next, None
        begin_ms = self._loop_ms()
        try:
            await asyncio.get_running_loop().run_in_executor(
                self._executor, lambda: self._store.read(lambda state, slot: None)
            )
        except EosLogError as error:
            _logger.warning("%s: the newest state cannot be read: %s", self._store.url, error)
            return error
        self.was_read(begin_ms)
        return None

    def partition(self, topic: str, partition: int) -> Partition | None:
        """Return the newest known state of a partition."""
        found = self.known(topic)
        return None if found is None else self._store.known_state.partitions.get(PartitionId(found.topic_id, partition))

    def is_beyond_end(self, topic: str, partition: int, offset: int) -> bool:
        """Return whether an offset is beyond the known end of a partition."""
        found = self.partition(topic, partition)
        return found is not None and offset > found.high_watermark

    def all(self) -> list[Topic]:
        """Return all known topics."""
        return list(self._store.known_state.topics.values())
