"""The store for all pages of the console: its newest slot, its latest operations, and totals of its state."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import eoslog
from eoslog.errors import EosLogError
from eoslog.read.history import Operation
from eoslog.state.store_state import StoreState
from eoslog.ui.verification_run import VerificationRun

T = TypeVar("T")
RECENT_SLOTS = 1_000
"""The number of newest slots whose operations the console keeps."""
_PUBLICATIONS_EVERY_MS = 60_000
MOST_FOLLOWED = 16
"""The number of partitions whose newest rows the console keeps, for the pages that follow them."""
MOST_PUBLISHED = 20
"""With more published topics, lags are not shown, because each topic costs about three requests."""


class Recent(NamedTuple):
    """The latest operations of a store."""

    operations: Sequence[Operation]
    """The newest first, with aborts."""
    oldest_slot: int
    """The oldest slot that was read."""
    is_whole: bool
    """True if no older operations exist."""


class Publications(NamedTuple):
    """How far the tables of published topics lag behind."""

    lag_ms: Mapping[str, int]
    """By topic (ms)."""
    problem: str | None = None
    """The reason why the lags are unknown; None if they are known."""


class ConsoleStore:
    """A store, with caches for several pages. Threads share it."""

    def __init__(self, store: eoslog.Store, *, allow_admin: bool) -> None:
        self.store = store
        self.allow_admin = allow_admin
        self.verification = VerificationRun(store)
        self._slot_lock, self._recent_lock, self._lag_lock = threading.Lock(), threading.Lock(), threading.Lock()
        self._operations: deque[Operation] = deque()
        self._first_slot, self._last_slot = 0, -1
        self._seen_slot = -1
        self._seen_ms: int | None = None
        self._totals: dict[Any, tuple[int, Any]] = {}
        self._publications: tuple[int, Publications] | None = None
        self._rows_lock = threading.Lock()
        self._newest_rows: OrderedDict[Hashable, Any] = OrderedDict()

    def now_ms(self) -> int:
        """Return the time of the store's clock (ms since the epoch)."""
        return self.store.now_ms()

    @property
    def poll_ms(self) -> int:
        """How often the console looks for new slots while a page is open (ms)."""
        return max(1_000, self.store.object_store.least_poll_pause_ms)

    def newest_slot(self) -> int:
        """Return the newest slot. All open pages together send one request in ``poll_ms``."""
        with self._slot_lock:
            elapsed_ms = self.store.environment.monotonic_ms()
            if self._seen_ms is None or elapsed_ms - self._seen_ms >= self.poll_ms:
                self._seen_slot = self.store.read(lambda state, slot: slot)
                self._seen_ms = elapsed_ms
            return self._seen_slot

    def total(self, function: Callable[[StoreState], T]) -> T:
        """Return a result of a function for the newest state. It is called again only after the state changed."""

        def snapshot(state: StoreState, slot: int) -> T:
            known = self._totals.get(function)
            if known is not None and known[0] == slot:
                found: T = known[1]
                return found
            found = function(state)
            self._totals[function] = slot, found
            return found

        return self.store.read(snapshot)

    def newest_rows(self, key: Hashable, read: Callable[[], T]) -> T:
        """Return the newest rows of a partition. They are read once for all pages that follow it.

        Args:
            key: the partition, and everything on which its newest rows depend.
            read: reads them.
        """
        with self._rows_lock:
            if key in self._newest_rows:
                self._newest_rows.move_to_end(key)
                known: T = self._newest_rows[key]
                return known
        # Without the lock, because pages of other partitions should not wait for this read.
        found = read()
        with self._rows_lock:
            self._newest_rows[key] = found
            while len(self._newest_rows) > MOST_FOLLOWED:
                self._newest_rows.popitem(last=False)
        return found

    def recent(self) -> Recent:
        """Return the operations of the newest slots. Only slots that are new since the last call are read."""
        with self._recent_lock:
            newest = self.store.read(lambda state, slot: slot)
            if newest > self._last_slot:
                self._read_operations(newest)
            return Recent(tuple(self._operations), self._first_slot, self._first_slot == 0)

    def _read_operations(self, newest: int) -> None:
        after = max(self._last_slot, newest - RECENT_SLOTS)
        history = self.store.history(include_aborts=True, after_slot=after, until_slot=newest)
        found = list(history)
        oldest = newest if history.oldest_slot is None else history.oldest_slot
        if oldest > self._last_slot + 1:
            # There is a gap: the first call, or many slots since the last one.
            self._operations.clear()
            self._first_slot = oldest
        self._operations.extendleft(reversed(found))
        self._last_slot = newest
        self._first_slot = max(self._first_slot, newest - RECENT_SLOTS + 1)
        while self._operations and self._operations[-1].slot < self._first_slot:
            self._operations.pop()

    def publications(self) -> Publications:
        """Return how far published tables lag behind their topics. The answer is up to a minute old."""
        with self._lag_lock:
            elapsed_ms = self.store.environment.monotonic_ms()
            if self._publications is None or elapsed_ms - self._publications[0] >= _PUBLICATIONS_EVERY_MS:
                self._publications = elapsed_ms, self._find_publications()
            return self._publications[1]

    def _find_publications(self) -> Publications:
        published = self.store.read(
            lambda state, slot: sum(topic.config.is_published for topic in state.topics.values())
        )
        if published > MOST_PUBLISHED:
            return Publications(
                {}, f"More than {MOST_PUBLISHED} topics are published. eoslog metrics shows their lags."
            )
        if published == 0:
            return Publications({})
        try:
            return Publications(dict(self.store.metrics().publication_lag_ms))
        except EosLogError as error:
            # Some readers may read topics, but not list the versions of their tables.
            return Publications({}, str(error))
