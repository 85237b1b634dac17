"""Following the log for a stream: what its topics hold now, asked for with as few requests as can be.

A poll of an idle stream is one small request, whatever the history and the number of topics. Once a minute another one
tells that the store is still the one that it was.
"""

from __future__ import annotations

from eoslog.client.store import Store
from eoslog.read.isolation import IsolationLevel
from eoslog.rules.state import StoreState
from pyspark_eoslog.options import Options
from pyspark_eoslog.read.plan import Look, end_timed_out, look, look_at_topics, those_there
from pyspark_eoslog.stores import is_verified, recently_verified_store, store_with_id
from pyspark_eoslog.worker import this_worker

_FIRST_PAUSE_MS = 100
_LONGEST_PAUSE_MS = 1_000
_VERIFIED_MS = 60_000
_DENIED_PAUSE_MS = 300_000
"""How long a process that could not end a transaction leaves that to others."""


class LogFollower:
    """The topics of one stream, from poll to poll. It keeps one look at them, however long it runs."""

    def __init__(self, options: Options) -> None:
        self._location = options.location
        self._selection = options.topics_to_read()
        self._ends_timed_out = options.isolation is IsolationLevel.READ_COMMITTED
        self._look: Look | None = None
        self._all_there = True
        self._pause_ms = 0
        self._polled_ms = 0
        self._ends_again_ms = 0

    @property
    def store(self) -> Store:
        """The store that was looked at, without a request that verifies it."""
        if self._look is None:
            return recently_verified_store(self._location, _VERIFIED_MS)[0]
        return store_with_id(self._location, self._look.store_id)

    def known(self) -> Look:
        """The topics as they were looked at last."""
        return self._look or self.newest()

    def newest(self) -> Look:
        """The topics as they are now. What was left open past its time-out, and holds them back, is aborted.

        Topics and partitions that were named and are not there are left out: see ``check_named``.
        """
        store, _ = recently_verified_store(self._location, _VERIFIED_MS)
        found = self._look_at(store, refresh=True)
        if self._ends_timed_out and self._end_timed_out(store, found):
            found = self._look_at(store, refresh=False)
        self._look = found
        return found

    def check_named(self) -> None:
        """Raises: UnknownTopicOrPartition: a topic or partition that was named was not there at the last look."""
        if self._all_there:
            return
        look_at_topics(self.store, self._selection, refresh=False)

    def exists(self, topic: str) -> bool:
        """Whether there is a topic of this name, as of the last look."""
        return self.store.read(lambda state, slot: topic in state.topic_ids, refresh=False)

    def wait(self) -> None:
        """Wait before a poll, if the one before found nothing: Spark asks again at once.

        The request that verifies the store gets an interval of its own.
        """
        if self._pause_ms > 0:
            self._sleep()
            if not is_verified(self._location, _VERIFIED_MS):
                recently_verified_store(self._location, _VERIFIED_MS)
                self._sleep()
        self._polled_ms = this_worker().environment.monotonic_ms()

    def found(self, anything: bool) -> None:
        """What a poll has found: the pauses grow while it is nothing."""
        self._pause_ms = 0 if anything else min(_LONGEST_PAUSE_MS, max(_FIRST_PAUSE_MS, 2 * self._pause_ms))

    def _sleep(self) -> None:
        this_worker().environment.sleep_ms(
            max(0, self._polled_ms + self._pause_ms - this_worker().environment.monotonic_ms())
        )
        self._polled_ms = this_worker().environment.monotonic_ms()

    def _look_at(self, store: Store, *, refresh: bool) -> Look:
        def find(state: StoreState, slot: int) -> Look:
            known = self._look
            if known is not None and (known.store_id, known.slot) == (state.store_id, slot):
                return known
            selection = those_there(self._selection, state)
            self._all_there = selection == self._selection
            return look(state, slot, selection)

        return store.read(find, refresh=refresh)

    def _end_timed_out(self, store: Store, found: Look) -> bool:
        """Whether any transaction was aborted. Where this process may not, it does not ask with every poll."""
        if this_worker().environment.monotonic_ms() < self._ends_again_ms:
            return False
        ended = end_timed_out(store, found)
        if ended is None:
            self._ends_again_ms = this_worker().environment.monotonic_ms() + _DENIED_PAUSE_MS
        return bool(ended)
