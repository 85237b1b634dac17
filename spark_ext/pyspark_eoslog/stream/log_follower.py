"""Following the log for a stream: what its topics hold now, asked for with as few requests as can be.

A poll of an idle stream is one small request, whatever the history and the number of topics. Once a minute another one
tells that the store is still the one that it was. Where requests cost money there is a second between two polls. Where
they do not, a stream polls more often, but spends no more than a fiftieth of its time on it.
"""

from __future__ import annotations

from eoslog.errors import StoreVanished
from eoslog.read.isolation import IsolationLevel
from eoslog.state.store_state import StoreState
from eoslog.store import Store
from pyspark_eoslog.options import Options
from pyspark_eoslog.read.read_plan import Look, abort_overdue, look, look_at_topics, those_there
from pyspark_eoslog.stores import is_verified, recently_verified_store, store_with_id, verified_store
from pyspark_eoslog.worker import this_worker

_FIRST_PAUSE_MS = 100
_LONGEST_PAUSE_MS = 1_000
_VERIFIED_MS = 60_000
_LEAST_PAUSES_A_POLL = 50
"""How many times as long as a poll the pause behind it is at least."""


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
        self._poll_cost_ns = 0
        """How long the last poll took."""

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
        try:
            found = self._look_at(store, refresh=True)
        except StoreVanished:
            # Open whatever store is there now. The stream then finds another id, or gets NotAStore.
            store = verified_store(self._location)
            found = self._look_at(store, refresh=True)
        if self._ends_timed_out and abort_overdue(store, found):
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

        The wait ends early if the topics change meanwhile. So a row arrives soon, though Spark asks seldom: its own
        part of a poll takes many times as long as that of this process. The request that verifies the store gets an
        interval of its own.
        """
        if self._pause_ms > 0:
            has_news = self._sleep()
            if not is_verified(self._location, _VERIFIED_MS):
                recently_verified_store(self._location, _VERIFIED_MS)
                if not has_news:
                    self._sleep()
        self._polled_ms = this_worker().environment.monotonic_ms()

    def found(self, anything: bool) -> None:
        """What a poll has found: the pauses grow while it is nothing."""
        self._pause_ms = 0 if anything else min(_LONGEST_PAUSE_MS, max(_FIRST_PAUSE_MS, 2 * self._pause_ms))

    def _sleep(self) -> bool:
        """Sleep until the pause is over or, where polls are cheap, the topics change. Returns True if they did."""
        environment = this_worker().environment
        end_ms = self._polled_ms + self._pause_ms
        has_news = False
        while not has_news and (left_ms := end_ms - environment.monotonic_ms()) > 0:
            least_ms = self.store.object_store.least_poll_pause_ms
            pause_ms = max(least_ms, _LEAST_PAUSES_A_POLL * self._poll_cost_ns / 1_000_000)
            environment.sleep_ms(min(left_ms, pause_ms))
            has_news = pause_ms < left_ms and self._has_changed()
        self._polled_ms = environment.monotonic_ms()
        return has_news

    def _has_changed(self) -> bool:
        """Whether the topics are not as they were looked at last."""
        environment = this_worker().environment
        began_ns = environment.monotonic_ns()
        before = self._look
        try:
            self._look = self._look_at(self.store, refresh=True)
        except StoreVanished:
            return True  # The poll that follows opens whatever store is there now.
        finally:
            self._poll_cost_ns = environment.monotonic_ns() - began_ns
        # A state shares with the one before it what did not change, so that this seldom compares more than addresses.
        return before is None or self._look.topics != before.topics

    def _look_at(self, store: Store, *, refresh: bool) -> Look:
        def find(state: StoreState, slot: int) -> Look:
            known = self._look
            if known is not None and (known.store_id, known.slot) == (state.store_id, slot):
                return known
            selection = those_there(self._selection, state)
            self._all_there = selection == self._selection
            return look(state, slot, selection)

        return store.read(find, refresh=refresh)
