"""The index of a sealed segment: its batches and control rows, in the form that they had in the state.

The Parquet metadata repeats the content of the ``.txnindex`` beside it. So that file can be restored at any time, even
after compaction removed batches. The index does not repeat the ``.snapshot``: readers need no producer state, and with
many producers the snapshot is far larger than the batches.

A process caches the indexes that it reads. A scan larger than the cache does not flush it.
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from eoslog.errors import CorruptRecord
from eoslog.format.batch_columns import BatchColumns, decode_batches
from eoslog.format.checked_files import read_file, read_files
from eoslog.format.partition_rows import BATCHES_SCHEMA, batch_row
from eoslog.state.entry_fields import FileReference
from eoslog.state.partition_state import Batch, SealedSegment
from eoslog.storage.object_store import ObjectStore
from eoslog.wording import without_code

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
MOST_BYTES = 128 << 20
"""The size limit of a process's cached indexes. It is enough for some hundred thousand files."""
_STAYS = 16
"""In a full cache, one of this many new values counts as used again."""
_TXNINDEX = "eoslog.txnindex"
_NUMBERS = [field.name for field in BATCHES_SCHEMA if pa.types.is_integer(field.type) and field.type.bit_width >= 32]
# Nearly all values are distinct, and readers never skip rows of an index. Dictionaries and statistics would only make
# it larger and slower to read. Offsets, slots and times grow in small steps, and a step takes a few bits.
_ENCODING: Any = {
    "compression": "zstd",
    "use_dictionary": False,
    "write_statistics": False,
    "store_schema": False,
    "column_encoding": dict.fromkeys(_NUMBERS, "DELTA_BINARY_PACKED"),
}


def encode_segment_index(batches: Sequence[Batch], txnindex: bytes) -> bytes:
    """Encode the index file of a segment as Parquet.

    Args:
        batches: the batches and control rows of the segment, in the order of their offsets.
        txnindex: the content of the segment's ``.txnindex``; empty if it has none.
    """
    table = pa.Table.from_pylist([batch_row(batch) for batch in batches], schema=BATCHES_SCHEMA)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, BATCHES_SCHEMA, **_ENCODING) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({_TXNINDEX: base64.b64encode(txnindex).decode()})
    return bytes(sink.getvalue())


def iterate_segment_index(body: bytes, name: str) -> Iterator[Batch]:
    """Yield the batches of a segment in the order of their offsets.

    Args:
        body: the content of the index file.
        name: the path of the file, for error messages.

    Raises:
        CorruptRecord: these are not the bytes of an index.
    """
    return decode_columns(body, name).batches()


def decode_columns(body: bytes, name: str) -> BatchColumns:
    """Return the batches of ``iterate_segment_index`` as columns."""
    try:
        return decode_batches(body)
    except CorruptRecord as error:
        raise CorruptRecord(f"segment index {name}: {without_code(error)}") from None
    except Exception as error:
        raise CorruptRecord(f"segment index {name} cannot be read: {type(error).__name__}: {error}") from None


def read_segment_index(store: ObjectStore, index: FileReference) -> list[Batch]:
    """Read the batches of a segment from the index file that the log names.

    Raises:
        CorruptRecord: the file is missing, differs from its entry, or names data files outside of its partition.
    """
    return batches_of_index(read_file(store, index), index)


def batches_of_index(body: bytes, index: FileReference) -> list[Batch]:
    """Return the batches of an index file that was already read and checked.

    Raises:
        CorruptRecord: the file names data files outside of its partition.
    """
    return list(columns_of_index(body, index).batches())


def columns_of_index(body: bytes, index: FileReference) -> BatchColumns:
    """Return the batches of ``batches_of_index`` as columns."""
    columns = decode_columns(body, index.path)
    partition = "/".join(index.path.split("/")[:3]) + "/"
    paths = columns.path.unique().drop_null()
    inside = pc.starts_with(paths, pattern=partition).to_numpy(zero_copy_only=False)
    if not inside.all():
        outside = paths[int(inside.argmin())].as_py()
        raise CorruptRecord(f"segment index {index.path} names a file outside of its partition: {outside}")
    return columns


def decode_txnindex_copy(body: bytes, name: str) -> bytes:
    """Return the content of the segment's ``.txnindex``, which the index repeats; empty if the segment has none.

    Raises:
        CorruptRecord: these are not the bytes of an index.
    """
    try:
        metadata = pq.read_metadata(pa.BufferReader(body)).metadata or {}
        return base64.b64decode(metadata[_TXNINDEX.encode()], validate=True)
    except Exception as error:
        raise CorruptRecord(f"segment index {name} cannot be read: {type(error).__name__}: {error}") from None


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
        self._is_changing = False
        """True while a thread changes the cache. The others do not wait for it: a signal handler may interrupt that
        thread, and its calls read indexes, too."""
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
        found = self._kept.get(key)
        if found is None:
            return None
        # If another thread changes the cache, the value may be evicted although it was used.
        self._change(lambda: self._kept.move_to_end(key) if key in self._kept else None)
        return found.value

    def put(self, key: Key, value: Value, size: int) -> None:
        """Cache a value of ``size`` bytes. A value that is larger than the cache stays until the next ``put``.

        If another thread changes the cache at the same time, the value may be left out.
        """
        self._change(lambda: self._put(key, value, size))

    def _change(self, change: Callable[[], None]) -> None:
        is_mine = False
        try:
            # No other thread runs between the check and the assignments (``storage/calls.py``).
            if not self._is_changing:
                is_mine = self._is_changing = True
                change()
        finally:
            if is_mine:
                self._is_changing = False

    def _put(self, key: Key, value: Value, size: int) -> None:
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
