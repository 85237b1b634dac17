"""A cache bounded by bytes, of which a pass over more than it holds leaves a part in place."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from threading import Lock
from typing import Generic, NamedTuple, TypeVar

from eoslog.errors import CorruptRecord
from eoslog.format.batch_columns import BatchColumns
from eoslog.format.data_file import read_files
from eoslog.format.segment_index import columns_of_index
from eoslog.state.entry_fields import FileReference
from eoslog.state.partition_state import Batch, SealedSegment
from eoslog.storage.object_store import ObjectStore

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

_STAYS = 16


class _Kept(NamedTuple, Generic[Value]):
    value: Value
    bytes: int


class IndexCache(Generic[Key, Value]):
    """The values that were asked for last, up to a number of bytes. Threads may share it.

    In a full cache a new value takes the place of the newest one that nobody has asked for again, not that of the
    oldest. So of a pass over more values than there is room for, the next pass finds most that fit (the bimodal
    insertion policy, Qureshi et al., ISCA 2007). One of sixteen new values is treated as one that was asked for again:
    values that nobody needs any more give way in the end.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._lock = Lock()
        self._kept: OrderedDict[Key, _Kept[Value]] = OrderedDict()
        """In the order in which they give way."""
        self._bytes = 0
        self._evicting_puts = 0

    @property
    def bytes(self) -> int:
        """Of the values that are kept."""
        return self._bytes

    def get(self, key: Key) -> Value | None:
        """The value, if it is kept."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found.value

    def put(self, key: Key, value: Value, size: int) -> None:
        """Keep a value of so many bytes; one that alone is larger than the cache, until the next one."""
        with self._lock:
            before = self._kept.pop(key, None)
            if before is not None:
                self._bytes -= before.bytes
            is_full = self._bytes + size > self._most_bytes
            while self._kept and self._bytes + size > self._most_bytes:
                self._bytes -= self._kept.popitem(last=False)[1].bytes
            self._kept[key] = _Kept(value, size)
            self._bytes += size
            if is_full:
                self._evicting_puts += 1
                self._kept.move_to_end(key, last=self._evicting_puts % _STAYS == 0)


MOST_BYTES = 128 << 20
"""Of the indexes of segments that a process keeps: those of some hundred thousand files."""


class SegmentIndexes:
    """The batches of sealed segments, which never change: those read last are kept, up to a number of bytes."""

    def __init__(self, store: ObjectStore, most_bytes: int = MOST_BYTES) -> None:
        self._store = store
        self._kept = IndexCache[FileReference, BatchColumns](most_bytes)

    @property
    def bytes(self) -> int:
        """About how much memory the kept ones take."""
        return self._kept.bytes

    def columns(self, segment: SealedSegment) -> BatchColumns:
        """The batches and control rows of a segment, in the order of their offsets.

        Raises:
            CorruptRecord: the index file is missing, or not what its entry says.
        """
        return next(self.columns_of_each([segment]))

    def columns_of_each(self, segments: Sequence[SealedSegment]) -> Iterator[BatchColumns]:
        """As ``columns``, of one segment after the other. Index files are fetched together where that pays.

        Raises:
            CorruptRecord: as ``columns``.
        """
        kept = [self._kept.get(segment.index) for segment in segments]
        missing = [segment.index for segment, found in zip(segments, kept, strict=True) if found is None]
        bodies = read_files(self._store, missing)
        for segment, found in zip(segments, kept, strict=True):
            columns = found
            if columns is None:
                columns = columns_of_index(next(bodies), segment.index)
                self._kept.put(segment.index, columns, columns.bytes)
            _check_place(segment, columns)
            yield columns

    def batches(self, segment: SealedSegment) -> Iterator[Batch]:
        """As ``columns``, as objects: for callers that need few of them.

        Raises:
            CorruptRecord: as ``columns``.
        """
        return self.columns(segment).batches()


def _check_place(segment: SealedSegment, columns: BatchColumns) -> None:
    if not len(columns):
        return
    first, end = int(columns.base_offset[0]), int(columns.end_offset[-1])
    if not segment.base_offset <= first <= end <= segment.end_offset:
        raise CorruptRecord(
            f"segment index {segment.index.path} holds offsets {first} to {end} (exclusive), but its segment has "
            f"{segment.base_offset} to {segment.end_offset}"
        )
