"""The offsets that senders of records wait for: a light future a record, in the order of the rows of each partition."""

from __future__ import annotations

import logging
import sys
import threading
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from heapq import heappop, heappush
from itertools import accumulate
from typing import Any, NoReturn, TypeAlias

from eoslog.errors import EosLogError, OpenedBeforeFork
from eoslog.session.positions import RecordMetadata
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import NO_OFFSET
from eoslog.state.store_state import Topic
from eoslog.state.transaction_requests import AppendedRows
from eoslog.storage.process import HomeProcess, cannot_be_pickled

_STATE_OF_A_FUTURE = frozenset(vars(Future()))
"""The attributes that ``Future.__init__`` sets."""
_Callback: TypeAlias = Callable[[Future[RecordMetadata]], object]
_logger = logging.getLogger(__name__)


class RecordFuture(Future[RecordMetadata]):
    """The future offset of a sent record. It completes only in the process that sent the record.

    The state of a ``Future``, with its condition, costs several times what the rest of a send does. Most futures never
    need one: a callback and an outcome need the number of the row only. So the state is made when somebody waits.
    """

    __slots__ = ("_row", "_rows")

    def __init__(self, rows: AwaitedRows, row: int) -> None:
        # super().__init__() would make the state. __getattr__ makes it when it is first needed.
        self._rows = rows
        self._row = row

    def __getattr__(self, name: str) -> Any:
        if name not in _STATE_OF_A_FUTURE:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._rows.give_state(self, self._row)
        return vars(self)[name]

    def __reduce__(self) -> NoReturn:
        raise cannot_be_pickled(self, "its result()")

    def done(self) -> bool:
        return self._rows.is_told(self._row) or self._rows.is_lost(self._row) or (has_state(self) and super().done())

    def result(self, timeout: float | None = None) -> RecordMetadata:
        if self._rows.is_told(self._row) and self._rows.error is None:
            return self._rows.metadata(self._row)
        if self._rows.is_lost(self._row):
            self._rows.home.check("result()")
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if self._rows.is_told(self._row):
            return self._rows.error
        return self._rows.lost() if self._rows.is_lost(self._row) else super().exception(timeout)

    def add_done_callback(self, fn: _Callback) -> None:
        if self._rows.is_lost(self._row) or not self._rows.add_callback(self, self._row, fn):
            _call(fn, self)


def has_state(future: RecordFuture) -> bool:
    """Whether somebody needed more of a future than its outcome."""
    return vars(future).keys() >= _STATE_OF_A_FUTURE


def _call(callback: _Callback, future: RecordFuture) -> None:
    try:
        callback(future)
    except Exception:  # as Future does: what a callback raises is not the error of the call that completes it
        _logger.exception("exception calling callback for %r", future)


class AwaitedRows:
    """Consecutive rows of one partition that have no offsets yet, and the futures of them that somebody watches.

    A row is told when its outcome is known and each earlier row is done. Without a state its future is done then.
    """

    def __init__(self, home: HomeProcess, topic: str, place: PartitionId) -> None:
        self.home = home
        self.count = 0
        """How many rows there are."""
        self.error: EosLogError | None = None
        """What the rows failed with."""
        self._topic = topic
        self._partition = place.partition
        self._appended: Sequence[AppendedRows] = ()
        self._first_rows: Sequence[int] = ()
        """Of each appended batch, and of the rows after them."""
        self._told = 0
        """Rows below it are told."""
        self._lock = threading.RLock()
        """Held for moments, and never while other code is called. Reentrant, as a signal handler may look too."""
        self._watched: list[tuple[int, RecordFuture]] = []
        """A heap by row of the futures that have a state or callbacks, and whose rows are not told."""
        self._callbacks: dict[int, list[_Callback]] = {}

    def is_told(self, row: int) -> bool:
        """Whether a row is told."""
        return row < self._told

    def is_lost(self, row: int) -> bool:
        """Whether this process never learns what became of a row: it was forked before the row was told."""
        return not self.home.is_this and not self.is_told(row)

    def lost(self) -> OpenedBeforeFork:
        """What the future of a lost row fails with. Whoever waits for it in a forked child would wait for ever."""
        try:
            self.home.check("the offset of a record")
        except OpenedBeforeFork as error:
            return error
        raise AssertionError("the process is the one that sent the record")

    def metadata(self, row: int) -> RecordMetadata:
        """Where a told row went, unless the rows failed."""
        batch = bisect_right(self._first_rows, row) - 1
        offset = NO_OFFSET
        if batch < len(self._appended) and self._appended[batch].base_offset != NO_OFFSET:
            offset = self._appended[batch].base_offset + row - self._first_rows[batch]
        return RecordMetadata(self._topic, self._partition, offset)

    def add_callback(self, future: RecordFuture, row: int, callback: _Callback) -> bool:
        """Call ``callback`` once the row is told. False if it is told already: then the caller must."""
        with self._lock:
            if self.is_told(row):
                return False
            callbacks = self._callbacks.get(row)
            if callbacks is None:
                callbacks = self._callbacks[row] = []
                heappush(self._watched, (row, future))
            callbacks.append(callback)
            return True

    def give_state(self, future: RecordFuture, row: int) -> None:
        """Make the state of a future: done if the row is told, else running. A running future cannot be cancelled."""
        if self.is_lost(row):
            # Without the lock: a thread of the parent may have held it during the fork.
            failed: Future[RecordMetadata] = Future()
            failed.set_exception(self.lost())
            vars(future).update(vars(failed))
            return
        with self._lock:
            if has_state(future):
                # Another thread was faster.
                return
            made: Future[RecordMetadata] = Future()
            made.set_running_or_notify_cancel()
            if self.is_told(row):
                self._complete(made, row)
            else:
                heappush(self._watched, (row, future))
            # All at once: another thread, which may look without the lock, sees no state or this one.
            vars(future).update(vars(made))

    def deliver(self, appended: Sequence[AppendedRows]) -> None:
        """Tell where the rows went; offset -1 where ``appended`` does not tell."""
        self._first_rows = [0, *accumulate(rows.record_count for rows in appended)]
        self._appended = appended
        self._tell()

    def fail(self, error: EosLogError) -> None:
        """Tell that the rows failed."""
        self.error = error
        self._tell()

    def _tell(self) -> None:
        """Complete the watched futures in the order of their rows, also those that somebody first watches meanwhile."""
        while True:
            with self._lock:
                if not self._watched:
                    self._told = sys.maxsize
                    return
                row, future = heappop(self._watched)
                self._told = max(self._told, row)
            # Without the lock: somebody may hold the condition of this future and ask for the state of another.
            if has_state(future) and not Future.done(future):
                self._complete(future, row)
            with self._lock:
                self._told = max(self._told, row + 1)
                callbacks = self._callbacks.pop(row, ())
            for callback in callbacks:
                _call(callback, future)

    def _complete(self, future: Future[RecordMetadata], row: int) -> None:
        if self.error is not None:
            future.set_exception(self.error)
        else:
            future.set_result(self.metadata(row))


class AwaitedOffsets:
    """The rows of all partitions that have no offsets yet."""

    def __init__(self, home: HomeProcess) -> None:
        self._home = home
        self._waiting: dict[PartitionId, AwaitedRows] = {}

    def of(self, topic: Topic, place: PartitionId) -> AwaitedRows:
        """The rows of a partition, to add to."""
        found = self._waiting.get(place)
        if found is None:
            found = self._waiting[place] = AwaitedRows(self._home, topic.topic, place)
        return found

    def take_all(self) -> AwaitedOffsets:
        """Hand all rows over to the object returned; this one is empty then."""
        taken = AwaitedOffsets(self._home)
        taken._waiting, self._waiting = self._waiting, {}
        return taken

    def deliver(self, appended: Iterable[AppendedRows] = ()) -> None:
        """Tell everybody where the rows went; offset -1 where ``appended`` does not tell. Nobody waits any more."""
        batches: dict[PartitionId, list[AppendedRows]] = defaultdict(list)
        for rows in appended:
            batches[rows.partition_id].append(rows)
        waiting, self._waiting = self._waiting, {}
        for place, partition in waiting.items():
            partition.deliver(batches[place])

    def fail(self, error: EosLogError) -> None:
        """End every wait with ``error``."""
        waiting, self._waiting = self._waiting, {}
        for partition in waiting.values():
            partition.fail(error)
