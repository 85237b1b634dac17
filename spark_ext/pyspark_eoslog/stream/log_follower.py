"""Polling of the log for a stream, with as few requests as possible.

A poll of an idle stream is one small request, for any length of history and any number of topics. Once a minute another
request checks that the store was not replaced. If requests cost money, the stream polls once a second. Otherwise it
polls more often, but spends at most a fiftieth of its time on polls.
"""

from __future__ import annotations

from eoslog import IsolationLevel, Store
from eoslog.errors import StoreVanished
from eoslog.read.topics_snapshot import TopicsSnapshot, topics_snapshot
from pyspark_eoslog.options import Options
from pyspark_eoslog.worker import is_verified, recently_verified_store, store_with_id, this_worker, verified_store

_FIRST_PAUSE_MS = 100
_LONGEST_PAUSE_MS = 1_000
_VERIFIED_MS = 60_000
_LEAST_PAUSES_A_POLL = 50
"""The shortest pause after a poll, as a multiple of the duration of that poll."""


class LogFollower:
    """The topics of one stream, from poll to poll. It keeps only the newest snapshot of them."""

    def __init__(self, options: Options) -> None:
        self._location = options.location
        self._selection = options.topics_to_read()
        self._ends_timed_out = options.isolation is IsolationLevel.READ_COMMITTED
        self._snapshot: TopicsSnapshot | None = None
        self._pause_ms = 0
        self._polled_ms = 0
        self._poll_cost_ns = 0
        """The duration of the last poll."""

    @property
    def store(self) -> Store:
        """The store of the last snapshot. No request verifies it."""
        if self._snapshot is None:
            return recently_verified_store(self._location, _VERIFIED_MS)[0]
        return store_with_id(self._location, self._snapshot.store_id)

    def known(self) -> TopicsSnapshot:
        """Return the last snapshot of the topics."""
        return self._snapshot or self.newest()

    def newest(self) -> TopicsSnapshot:
        """Return a new snapshot of the topics. Overdue transactions that hide their rows are aborted first.

        Topics and partitions that were named but do not exist are left out; see ``check_named``.
        """
        store, _ = recently_verified_store(self._location, _VERIFIED_MS)
        try:
            found = self._read_snapshot(store, refresh=True)
        except StoreVanished:
            # Open the store that exists here now. The stream then finds another store id, or gets NotAStore.
            store = verified_store(self._location)
            found = self._read_snapshot(store, refresh=True)
        if self._ends_timed_out and found.abort_overdue(store):
            found = self._read_snapshot(store, refresh=False)
        self._snapshot = found
        return found

    def check_named(self) -> None:
        """Raises: UnknownTopicOrPartition: a named topic or partition did not exist at the last snapshot."""
        if self._snapshot is not None and not self._snapshot.is_complete:
            topics_snapshot(self.store, self._selection, refresh=False)

    def exists(self, topic: str) -> bool:
        """Return True if a topic of this name existed at the last snapshot."""
        return self.store.read(lambda state, slot: topic in state.topic_ids, refresh=False)

    def wait(self) -> None:
        """Wait before a poll if the last one found nothing, because Spark asks again at once.

        The wait ends early if the topics change, so rows arrive soon. Spark polls rarely, because its work for a poll
        takes many times as long as the work of this process. The request that verifies the store has its own interval.
        """
        if self._pause_ms > 0:
            has_news = self._sleep()
            if not is_verified(self._location, _VERIFIED_MS):
                recently_verified_store(self._location, _VERIFIED_MS)
                if not has_news:
                    self._sleep()
        self._polled_ms = this_worker().environment.monotonic_ms()

    def found(self, anything: bool) -> None:
        """Note whether a poll has found anything. While polls find nothing, the pauses grow."""
        self._pause_ms = 0 if anything else min(_LONGEST_PAUSE_MS, max(_FIRST_PAUSE_MS, 2 * self._pause_ms))

    def _sleep(self) -> bool:
        """Sleep until the pause is over or, where polls are cheap, the topics change. Return True if they changed."""
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
        """Return True if the topics have changed since the last snapshot."""
        environment = this_worker().environment
        began_ns = environment.monotonic_ns()
        before = self._snapshot
        try:
            self._snapshot = self._read_snapshot(self.store, refresh=True)
        except StoreVanished:
            return True  # The next poll opens the store that exists here now.
        finally:
            self._poll_cost_ns = environment.monotonic_ns() - began_ns
        # A state shares unchanged parts with the state before it. So this comparison rarely goes beyond addresses.
        return before is None or self._snapshot.topics != before.topics

    def _read_snapshot(self, store: Store, *, refresh: bool) -> TopicsSnapshot:
        return topics_snapshot(store, self._selection, refresh=refresh, existing_only=True, known=self._snapshot)
