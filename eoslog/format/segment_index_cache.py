"""The cache of segment indexes. It is bounded by bytes, and a scan larger than the cache does not flush it."""

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
    """A cache of recently used values, up to a number of bytes. Threads may share it.

    In a full cache a new value replaces the newest value that was not used again, not the oldest value. So if a pass
    reads more values than fit, the next pass still finds most of the cache useful. This is the bimodal insertion policy
    (Qureshi et al., ISCA 2007). One of sixteen new values counts as used again, so that unused values are evicted in
    the end.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._lock = Lock()
        self._kept: OrderedDict[Key, _Kept[Value]] = OrderedDict()
        """The values in the order of their eviction."""
        self._bytes = 0
        self._evicting_puts = 0

    @property
    def bytes(self) -> int:
        """The size of the cached values in bytes."""
        return self._bytes

    def get(self, key: Key) -> Value | None:
        """Return the value if it is cached, else None."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found.value

    def put(self, key: Key, value: Value, size: int) -> None:
        """Cache a value of ``size`` bytes. A value that is larger than the cache stays until the next ``put``."""
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
"""The size limit of a process's cached indexes. It is enough for some hundred thousand files."""


class SegmentIndexes:
    """The batches of sealed segments, which never change. Recently read indexes are cached, up to a number of bytes."""

    def __init__(self, store: ObjectStore, most_bytes: int = MOST_BYTES) -> None:
        self._store = store
        self._kept = IndexCache[FileReference, BatchColumns](most_bytes)

    @property
    def bytes(self) -> int:
        """The approximate memory of the cached indexes in bytes."""
        return self._kept.bytes

    def columns(self, segment: SealedSegment) -> BatchColumns:
        """Return the batches and control rows of a segment, in the order of their offsets.

        Raises:
            CorruptRecord: the index file is missing or differs from its entry.
        """
        return next(self.columns_of_each([segment]))

    def columns_of_each(self, segments: Sequence[SealedSegment]) -> Iterator[BatchColumns]:
        """Yield ``columns`` of one segment after the other. Small index files are fetched together.

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
            _check_offsets(segment, columns)
            yield columns

    def batches(self, segment: SealedSegment) -> Iterator[Batch]:
        """Yield the batches of a segment as objects, for callers that need only a few.

        Raises:
            CorruptRecord: as ``columns``.
        """
        return self.columns(segment).batches()


def _check_offsets(segment: SealedSegment, columns: BatchColumns) -> None:
    if not len(columns):
        return
    first, end = int(columns.base_offset[0]), int(columns.end_offset[-1])
    if not segment.base_offset <= first <= end <= segment.end_offset:
        raise CorruptRecord(
            f"segment index {segment.index.path} holds offsets {first} to {end} (exclusive), but its segment has "
            f"{segment.base_offset} to {segment.end_offset}"
        )
