"""Futures of the offsets of sent records. They are light, and complete in the order of the rows of each partition."""

from __future__ import annotations

import logging
import sys
import threading
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from heapq import heappop, heappush
from itertools import accumulate
from typing import Any, NoReturn, TypeAlias

from eoslog.errors import EosLogError, OpenedBeforeFork
from eoslog.session.positions import RecordMetadata
from eoslog.state.append_requests import AppendedRows
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import NO_OFFSET
from eoslog.state.store_state import Topic
from eoslog.storage.calls import Call
from eoslog.storage.process import HomeProcess, cannot_be_pickled

_STATE_OF_A_FUTURE = frozenset(vars(Future()))
"""The attributes that ``Future.__init__`` sets."""
_Callback: TypeAlias = Callable[[Future[RecordMetadata]], object]
DeliveryCallback: TypeAlias = Callable[[BaseException | None, RecordMetadata], object]
"""A function of the error, or None, and of the record's partition and offset. The offset is -1 after an error."""
RowsOutcome: TypeAlias = Sequence[AppendedRows] | EosLogError
"""The offsets of appended rows, or the error of the rows. A row that has no offset in the sequence gets offset -1."""
_logger = logging.getLogger(__name__)


class RecordFuture(Future[RecordMetadata]):
    """The future offset of a sent record. It completes only in the process that sent the record.

    The state of a ``Future``, with its condition, costs several times as much as the rest of a send. Most futures never
    need it: a callback and an outcome need only the number of the row. So the state is made when a thread first waits.
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

    def __repr__(self) -> str:
        return f"RecordFuture({self._rows.shown(self._row)})"

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

    def call_on_delivery(self, on_delivery: DeliveryCallback) -> None:
        """Call ``on_delivery`` when the future is done."""

        def done(future: Future[RecordMetadata]) -> None:
            error = future.exception()
            on_delivery(error, future.result() if error is None else self._rows.without_offset())

        self.add_done_callback(done)


def has_state(future: RecordFuture) -> bool:
    """Return True if the state of the future was made."""
    return vars(future).keys() >= _STATE_OF_A_FUTURE


def _call(callback: _Callback, future: RecordFuture) -> None:
    try:
        callback(future)
    except Exception:  # as Future does: an error of a callback must not fail the call that completes the future
        _logger.exception("exception calling callback for %r", future)


class AwaitedRows:
    """Consecutive rows of one partition that have no offsets yet, and their watched futures.

    A future is watched if it has a state or a callback. A row is *told* when its outcome is known and each earlier row
    is done. A future without a state is done as soon as its row is told.
    """

    def __init__(self, home: HomeProcess, topic: str, partition_id: PartitionId) -> None:
        self.home = home
        self.count = 0
        """The number of rows."""
        self.error: EosLogError | None = None
        """The error of the rows; None unless they failed."""
        self._topic = topic
        self._partition = partition_id.partition
        self._appended: Sequence[AppendedRows] = ()
        self._first_rows: Sequence[int] = ()
        """The first row of each appended batch, and the first row after the last batch."""
        self._told = 0
        """All rows below this number are told."""
        self._lock = threading.RLock()
        """Never held while other code is called. It is reentrant, because a signal handler may use a future too."""
        self._watched: list[tuple[int, RecordFuture]] = []
        """The watched futures whose rows are not told: a heap by row."""
        self._callbacks: dict[int, list[_Callback]] = {}
        self._called: dict[int, Iterator[_Callback]] = {}
        """By row, the callbacks that were not called yet, while some are being called."""

    @property
    def is_watched(self) -> bool:
        """True if a row that is not told has a watched future."""
        return bool(self._watched)

    def is_told(self, row: int) -> bool:
        """Return True if the row is told."""
        return row < self._told

    def is_lost(self, row: int) -> bool:
        """Return True if this process never learns the outcome of a row, because it was forked before."""
        return not self.home.is_this and not self.is_told(row)

    def lost(self) -> OpenedBeforeFork:
        """Return the error of a lost row's future. Without it, a thread of the forked child would wait forever."""
        try:
            self.home.check("the offset of a record")
        except OpenedBeforeFork as error:
            return error
        raise AssertionError("the process is the one that sent the record")

    def metadata(self, row: int) -> RecordMetadata:
        """Return the partition and offset of a told row that has not failed."""
        batch = bisect_right(self._first_rows, row) - 1
        offset = NO_OFFSET
        if batch < len(self._appended) and self._appended[batch].base_offset != NO_OFFSET:
            offset = self._appended[batch].base_offset + row - self._first_rows[batch]
        return RecordMetadata(self._topic, self._partition, offset)

    def without_offset(self) -> RecordMetadata:
        """Return the partition, with offset -1, for a row without an offset."""
        return RecordMetadata(self._topic, self._partition, NO_OFFSET)

    def shown(self, row: int) -> str:
        """Return the partition and the result of a row as text: offset, error or pending. It takes no lock."""
        partition = f"topic={self._topic!r}, partition={self._partition}"
        if not self.is_told(row):
            return f"{partition}, {'lost: the process was forked' if self.is_lost(row) else 'pending'}"
        if self.error is not None:
            return f"{partition}, error={self.error.code}"
        return f"{partition}, offset={self.metadata(row).offset}"

    def add_callback(self, future: RecordFuture, row: int, callback: _Callback) -> bool:
        """Call ``callback`` when the row is told. Return False if it is already told: then the caller must call it."""
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
        """Make the state of a future: done if the row is told, otherwise running. So it cannot be cancelled."""
        if self.is_lost(row):
            # Do not take the lock: a thread of the parent may have held it during the fork.
            failed: Future[RecordMetadata] = Future()
            failed.set_exception(self.lost())
            vars(future).update(vars(failed))
            return
        with self._lock:
            if has_state(future):
                # Another thread has made the state first.
                return
            made: Future[RecordMetadata] = Future()
            made.set_running_or_notify_cancel()
            if self.is_told(row):
                self._complete(made, row)
            else:
                heappush(self._watched, (row, future))
            # Set all attributes at once: another thread reads them without the lock.
            vars(future).update(vars(made))

    def tell(self, outcome: RowsOutcome, call: Call) -> None:
        """Complete the futures of the rows with their outcome. After an interrupt, the caller repeats this.

        Args:
            call: the running call. Callbacks may make calls within it.
        """
        if isinstance(outcome, EosLogError):
            self.error = outcome
        else:
            self._first_rows = [0, *accumulate(rows.record_count for rows in outcome)]
            self._appended = outcome
        # Tell the futures in the order of their rows, also the futures that are first watched during this call.
        while True:
            with self._lock:
                if not self._watched:
                    self._told = sys.maxsize
                    return
                row, future = self._watched[0]
                self._told = max(self._told, row)
            # Complete it without the lock: another thread may hold this future's condition and wait for the lock.
            if has_state(future) and not Future.done(future):
                self._complete(future, row)
            with self._lock:
                self._told = max(self._told, row + 1)
            self._call_back(row, future, call)
            with self._lock:
                # A callback may have told the rest.
                if self._watched and self._watched[0][0] == row:
                    heappop(self._watched)

    def _call_back(self, row: int, future: RecordFuture, call: Call) -> None:
        """Call the callbacks of a told row, each at most once."""
        callbacks = self._callbacks.get(row)
        if callbacks is None:
            return
        # The iterator is kept: after an interrupt in a callback, the next call continues with the one after it.
        left = self._called.setdefault(row, iter(callbacks))
        for callback in left:
            try:
                call.admits_nested = True
                callback(future)
            except Exception:  # as Future does: an error of a callback must not fail the call that completes the future
                _logger.exception("exception calling callback for %r", future)
            finally:
                call.admits_nested = False
        self._callbacks.pop(row, None)
        self._called.pop(row, None)

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

    @property
    def is_watched(self) -> bool:
        """True if a future has a callback, or a thread waits for it."""
        return any(partition.is_watched for partition in self._waiting.values())

    def of(self, topic: Topic, partition_id: PartitionId) -> AwaitedRows:
        """Return the rows of a partition, to add to."""
        found = self._waiting.get(partition_id)
        if found is None:
            found = self._waiting[partition_id] = AwaitedRows(self._home, topic.topic, partition_id)
        return found

    def take_all(self) -> AwaitedOffsets:
        """Move all rows to a new object and return it. This one is empty then."""
        taken = AwaitedOffsets(self._home)
        taken._waiting, self._waiting = self._waiting, {}
        return taken

    def tell(self, outcome: RowsOutcome, call: Call) -> None:
        """Complete all futures with the outcome of their rows. After an interrupt, the caller repeats this.

        Args:
            call: the running call. Callbacks may make calls within it.
        """
        batches: dict[PartitionId, list[AppendedRows]] = defaultdict(list)
        if not isinstance(outcome, EosLogError):
            for rows in outcome:
                batches[rows.partition_id].append(rows)
        while self._waiting:
            partition_id, partition = next(iter(self._waiting.items()))
            partition.tell(outcome if isinstance(outcome, EosLogError) else batches[partition_id], call)
            self._waiting.pop(partition_id, None)
