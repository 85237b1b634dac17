"""Following the log: fetches that wait for rows wake up when the log has a new slot."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Executor

from eoslog.errors import EosLogError, RetriableError
from eoslog.gateway.known_topics import KnownTopics
from eoslog.session.session import Session
from eoslog.storage.environment import Backoff

_POLLS = Backoff(first_ms=10, longest_ms=500)
"""The pauses between two reads of the newest slot. They grow while other processes append nothing."""
_logger = logging.getLogger(__name__)


class LogFollower:
    """Knows the newest slot. While somebody waits, it looks for records of other processes at intervals."""

    def __init__(self, store: Session, topics: KnownTopics, executor: Executor) -> None:
        self._store = store
        self._topics = topics
        self._executor = executor
        self._slot = -1
        self._changed = asyncio.Event()
        self._waiters = 0
        self._held_back = 0
        """The number of waiters from which an open transaction hides rows."""
        self._has_waiters = asyncio.Event()
        self.is_closed = False
        """True if fetches no longer wait for rows, because the gateway ends."""

    def next_change(self) -> asyncio.Event:
        """Return the event of the next change. Take it before you look for rows, so that no change is missed."""
        return self._changed

    def appended(self) -> None:
        """Wake the fetches that wait: this process has appended."""
        self._slot = self._store.known_slot
        self._wake()

    def close(self) -> None:
        """Let the fetches that wait end, and later ones not wait."""
        self.is_closed = True
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def wait(self, change: asyncio.Event, timeout_s: float, *, held_back: bool) -> None:
        """Wait for a change, at most for this time.

        Args:
            held_back: an open transaction hides rows from the caller. So it is aborted if its time is over.
        """
        self._waiters += 1
        self._held_back += held_back
        self._has_waiters.set()
        try:
            async with asyncio.timeout(timeout_s):
                await change.wait()
        except TimeoutError:
            pass
        finally:
            self._waiters -= 1
            self._held_back -= held_back
            if not self._waiters:
                self._has_waiters.clear()

    async def run(self) -> None:
        """Follow the log until the task is canceled."""
        loop = asyncio.get_running_loop()
        unchanged = 1
        while True:
            await self._has_waiters.wait()
            unchanged += 1
            begin_ms = loop.time() * 1000
            try:
                slot = await loop.run_in_executor(self._executor, self._newest_slot, self._held_back > 0)
            except RetriableError as error:
                _logger.info("%s: the log cannot be followed: %s", self._store.url, error)
            except EosLogError as error:
                _logger.warning("%s: the log cannot be followed: %s", self._store.url, error)
            else:
                # Fetches need no read of their own while this task reads.
                self._topics.was_read(begin_ms)
                if slot != self._slot:
                    self._slot = slot
                    unchanged = 1
                    self._wake()
            await asyncio.sleep(_POLLS.pause_ms(unchanged) / 1000)

    def _newest_slot(self, held_back: bool) -> int:
        slot = self._store.read(lambda state, slot: slot)
        if held_back and self._store.overdue_transactions.abort_for_reader():
            slot = self._store.read(lambda state, slot: slot, refresh=False)
        return slot
