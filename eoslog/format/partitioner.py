"""The keys of rows, and the partition of a key: Kafka's default partitioner, for one key or for a column of keys.

Keys are serialized as by Kafka's serializers: text as UTF-8, numbers as big-endian. So a topic that is copied from or
to Kafka keeps the partitions of its rows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eoslog.errors import InvalidRequest, UnsupportedSchema
from eoslog.format.column_types import column_type
from eoslog.format.topic_schemas import stored_schema
from eoslog.state.store_state import Topic

NO_PARTITION = -1
"""The partition of a row without a key. The caller chooses one."""

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF
_FEW_ROWS = 16
"""For fewer rows than this, Python's arithmetic is faster than a numpy operation."""

_LARGEST_CHUNK_BYTES = 1 << 30
"""The chunks of larger tables are not joined: text within lists beyond 2 GiB does not fit into one chunk."""

Column: TypeAlias = "pa.Array[Any] | pa.ChunkedArray[Any]"

_KEY_TYPES = "a key is text, binary, boolean, a signed integer, a float, a date or a timestamp"


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition that Kafka's default partitioner chooses for a serialized key."""
    return (_murmur2(key) & _POSITIVE) % partitions


def partitions_for_key_columns(columns: Sequence[Column], partitions: int) -> npt.NDArray[np.int32]:
    """Return the partition of each row by a key of one or several columns; -1 where all of them are null.

    A key of several columns is the sequence of its parts. Each part is its length (4 bytes, big-endian; -1 for null)
    and its bytes.

    Args:
        columns: the key columns in the topic's own types. An int32 and an int64 of the same value hash differently.

    Raises:
        UnsupportedSchema: a column of this type cannot be part of a key.
    """
    if not columns:
        raise InvalidRequest("a key has at least one column")
    found = [_partitions(chunks, partitions) for chunks in _aligned_chunks(columns)]
    return np.concatenate(found) if found else np.empty(0, np.int32)


def _keys(parts: Sequence[pa.Array[Any]]) -> pa.LargeBinaryArray:
    """Return the key of each row; null where all its parts are null."""
    keys = _serialized_keys(parts)
    if not all(part.null_count for part in parts):
        return keys
    null: Any = pa.scalar(None, pa.large_binary())
    masked: Any = pc.if_else(pa.array(_has_any(parts)), keys, null)
    return masked  # type: ignore[no-any-return]


def _has_any(columns: Sequence[pa.Array[Any]]) -> npt.NDArray[np.bool_]:
    """For each row, return True if a column is not null."""
    valid: npt.NDArray[np.bool_] = np.logical_or.reduce([np.asarray(column.is_valid()) for column in columns])
    return valid


def check_key_type(name: str, data_type: pa.DataType) -> None:
    """Refuse a column that cannot be a key.

    Raises:
        UnsupportedSchema: the message contains the column and the types that a key may have.
    """
    try:
        _serialize(pa.array([], data_type))
    except UnsupportedSchema:
        raise UnsupportedSchema(f"column {name!r} of type {data_type} cannot be a key: {_KEY_TYPES}") from None


def split_by_partition(
    batch: pa.RecordBatch | pa.Table, partitions: npt.NDArray[np.int32], n: int
) -> list[tuple[int, pa.Table]]:
    """Split rows by partition. The rows of a partition keep their order. Partitions without rows are left out.

    Args:
        batch: the rows.
        partitions: the partition of each row.
        n: the number of partitions of the topic.
    """
    table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
    if len(partitions) != table.num_rows:
        raise InvalidRequest(f"{table.num_rows} rows have {len(partitions)} partitions")
    if table.num_rows == 0:
        return []
    lowest, highest = int(partitions.min()), int(partitions.max())
    if lowest < 0 or highest >= n:
        raise InvalidRequest(f"partition {lowest if lowest < 0 else highest} is not one of the topic's {n}")
    if lowest == highest:
        return [(lowest, table)]
    # Numpy uses a radix sort for small unsigned integers. It is stable and as fast for many partitions as for few.
    small = partitions.astype(np.uint8 if n <= 1 << 8 else np.uint16 if n <= 1 << 16 else np.uint32)
    pieces: dict[int, list[pa.Table]] = {}
    start = 0
    # Go batch by batch: `take` on a chunked column joins its chunks, and text beyond 2 GiB does not fit into one chunk.
    # Join small chunks, because each has a cost.
    joined = table.combine_chunks() if table.nbytes < _LARGEST_CHUNK_BYTES else table
    for chunk in joined.to_batches():
        keys = small[start : start + chunk.num_rows]
        start += chunk.num_rows
        ordered = pa.Table.from_batches([chunk.take(np.argsort(keys, kind="stable"))])
        ends = np.cumsum(np.bincount(keys, minlength=n))
        for partition in np.unique(keys).tolist():
            begin = int(ends[partition - 1]) if partition else 0
            pieces.setdefault(partition, []).append(ordered.slice(begin, int(ends[partition]) - begin))
    return [(partition, pa.concat_tables(pieces[partition])) for partition in sorted(pieces)]


def _murmur2(key: bytes) -> int:
    length = len(key)
    words = length // 4
    h = _SEED ^ length
    for k in struct.unpack_from(f"<{words}I", key):
        k = k * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if length % 4:
        h = (h ^ int.from_bytes(key[words * 4 :], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


def _murmur2_of_all(keys: pa.LargeBinaryArray) -> npt.NDArray[np.uint32]:
    """Return the hash of each key. The hash of a null is undefined."""
    _, offset_buffer, data_buffer = keys.buffers()
    offsets = _view(offset_buffer, np.dtype(np.int64))[keys.offset : keys.offset + len(keys) + 1]
    data = _view(data_buffer, np.dtype(np.uint8))
    starts, lengths = offsets[:-1], offsets[1:] - offsets[:-1]
    words = lengths >> 2
    h: npt.NDArray[np.uint32] = (_SEED ^ lengths).astype(np.uint32)
    long_rows = _mix_words(h, data, starts, words)
    tails, rests = starts + (words << 2), lengths & 3
    for position in (2, 1, 0):
        rows = np.flatnonzero(rests > position)
        h[rows] ^= data[tails[rows] + position].astype(np.uint32) << np.uint32(8 * position)
    # The last pass leaves in ``rows`` all keys with a rest.
    h[rows] *= np.uint32(_M)
    h ^= h >> np.uint32(13)
    h *= np.uint32(_M)
    h ^= h >> np.uint32(15)
    for row in long_rows.tolist():
        h[row] = _murmur2(data[starts[row] : starts[row] + lengths[row]].tobytes())
    return h


def _mix_words(
    h: npt.NDArray[np.uint32],
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    words: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Mix each key's whole words into its hash, word by word. Return the few long rows that are left unfinished."""
    none = np.empty(0, np.int64)
    most = int(words.max())
    if most == 0:
        return none
    # A view of the four bytes at every position, also unaligned ones.
    word_at = np.lib.stride_tricks.as_strided(data[:4].view("<u4"), (len(data) - 3,), (1,))
    fewest = int(words.min())
    for word in range(fewest):
        _mix(h, word_at[starts + 4 * word])
    rows = np.arange(len(words))
    for word in range(fewest, most):
        rows = rows[words[rows] > word]
        if len(rows) < _FEW_ROWS:
            return rows
        mixed = h[rows]
        _mix(mixed, word_at[starts[rows] + 4 * word])
        h[rows] = mixed
    return none


def _mix(h: npt.NDArray[np.uint32], k: npt.NDArray[np.uint32]) -> None:
    k *= np.uint32(_M)
    k ^= k >> np.uint32(24)
    k *= np.uint32(_M)
    h *= np.uint32(_M)
    h ^= k


def _partitions(parts: Sequence[pa.Array[Any]], partitions: int) -> npt.NDArray[np.int32]:
    keys = _serialized_keys(parts)
    if len(keys) == 0:
        return np.empty(0, np.int32)
    found = ((_murmur2_of_all(keys) & np.uint32(_POSITIVE)) % np.uint32(partitions)).astype(np.int32)
    if all(part.null_count for part in parts):
        found[~_has_any(parts)] = NO_PARTITION
    return found


def _serialize(column: pa.Array[Any]) -> pa.LargeBinaryArray:
    """Return the bytes of each value by Kafka's serializer of its type. The bytes of a null are undefined."""
    data_type: Any = column.type
    found = column_type(data_type)
    code = None if found is None else found.key
    if code == "bytes":
        serialized: Any = column.cast(pa.large_binary())
        keys: pa.LargeBinaryArray = serialized
        return keys
    if found is None or code is None or data_type.id != found.arrow[0].id:
        raise UnsupportedSchema(f"a column of type {data_type} cannot be a key: {_KEY_TYPES}")
    if found.kind == "boolean":
        column = column.cast(pa.int8())
    width = int(code[1])
    values = _view(column.buffers()[1], np.dtype("<" + code))[column.offset : column.offset + len(column)]
    if code[0] == "f":
        # Java programs write a single NaN, so map every bit pattern of a NaN to it.
        values = np.where(np.isnan(values), np.array(np.nan, values.dtype), values)
    return _large_binary(values.astype(">" + code), width)


def _view(buffer: pa.Buffer | None, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    return np.empty(0, dtype) if buffer is None else np.frombuffer(memoryview(buffer), dtype)


def _serialized_keys(parts: Sequence[pa.Array[Any]]) -> pa.LargeBinaryArray:
    """Return the key of each row as bytes. The bytes are undefined where all parts are null."""
    serialized = [_serialize(part) for part in parts]
    if len(parts) == 1:
        return serialized[0]
    pieces: list[Any] = []
    for part, keys in zip(parts, serialized, strict=True):
        valid = part.is_valid()
        lengths = np.where(np.asarray(valid), np.asarray(pc.binary_length(keys).fill_null(0)), -1)
        pieces += [_large_binary(lengths.astype(">i4"), 4), pc.if_else(valid, keys, pa.scalar(b"", pa.large_binary()))]
    joined: pa.LargeBinaryArray = pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.large_binary()))
    return joined


def _large_binary(values: npt.NDArray[Any], width: int) -> pa.LargeBinaryArray:
    offsets = np.arange(len(values) + 1, dtype=np.int64) * width
    buffers = [None, pa.py_buffer(offsets.data), pa.py_buffer(values.tobytes())]
    array: Any = pa.Array.from_buffers(pa.large_binary(), len(values), buffers)
    keys: pa.LargeBinaryArray = array
    return keys


def _aligned_chunks(columns: Sequence[Column]) -> Iterator[list[pa.Array[Any]]]:
    """Yield the columns in chunks of equal length. There is at least one, so that the types are always checked."""
    if len({len(column) for column in columns}) > 1:
        raise InvalidRequest("the columns of a key have different lengths")
    table = pa.table(list(columns), names=[str(index) for index in range(len(columns))])
    for batch in table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]:
        yield list(batch.columns)


class RowKeys:
    """The keys of a topic's rows: the key of a Kafka record, or the key columns of a row of columns.

    It consists of plain values, so Spark can send it to tasks.
    """

    def __init__(self, topic: Topic) -> None:
        records = topic.topic_schema.kind == "records"
        values = [field for field in stored_schema(topic) if field.name not in topic.topic_schema.key]
        self.key_columns: tuple[str, ...] = ("key",) if records else topic.topic_schema.key
        self.value_columns: tuple[str, ...] = ("value",) if records else tuple(field.name for field in values)
        """A row with a key is a tombstone if all of these columns are null. It is empty if a row cannot be a tombstone:
        all columns are key columns, or one of the others is never null."""
        if not records and not all(field.nullable for field in values):
            self.value_columns = ()

    def keys(self, rows: pa.RecordBatch) -> list[bytes | None]:
        """Return the key of each row; None for a row without a key."""
        return self.key_array(rows).to_pylist()

    def key_array(self, rows: pa.RecordBatch) -> pa.LargeBinaryArray:
        """Return the key of each row as bytes; null for a row without a key. The rows need the key columns."""
        return _keys([rows.column(name) for name in self.key_columns])

    def tombstones(self, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """For each row, return True if it is a tombstone. The rows need the key columns and the value columns."""
        if not self.value_columns:
            return np.zeros(rows.num_rows, np.bool_)
        has_key = _has_any([rows.column(name) for name in self.key_columns])
        return has_key & ~_has_any([rows.column(name) for name in self.value_columns])
