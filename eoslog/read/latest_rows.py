"""The newest row of each key: the rows that compaction by key would leave of a partition, without the tombstones.

A first pass reads only the keys and offsets. A second pass reads the files that hold a newest row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eoslog.errors import InvalidOption
from eoslog.format.partitioner import RowKeys
from eoslog.format.topic_schemas import RECORDS_SCHEMA
from eoslog.read.file_rows import FileRows
from eoslog.read.predicate_rows import is_wanted
from eoslog.read.row_reader import PartitionRead, read_rows
from eoslog.state.store_state import Topic

_ROWS_TOGETHER = 1 << 20
"""The least number of rows that are grouped by key at once. With many keys it is twice their number."""
_SHORT_KEYS_BYTES = 1 << 30


def latest_keys(topic: Topic) -> RowKeys:
    """Return the keys by which the newest rows of a topic are chosen.

    Raises:
        InvalidOption: the topic has no key.
    """
    keys = RowKeys(topic)
    if not keys.key_columns:
        raise InvalidOption(
            f"topic {topic.topic} has no key, so no row of it is the newest of its key. Read all its rows, or create a "
            "topic with key="
        )
    return keys


def read_latest(read: PartitionRead, keys: RowKeys) -> Iterator[pa.RecordBatch]:
    """Yield the newest row of each key, in the order of their offsets. Tombstones and older rows are left out.

    All rows without a key are yielded, as compaction keeps them. Memory holds the distinct keys of the partition, up to
    three times, with 8 bytes for the offset of each.

    Args:
        read: a read of the partition's visible rows, without control rows. Its predicate does not decide which row is
            the newest. Its ``rows_read`` and ``file_done`` count the first pass, which reads every file.

    Raises:
        CorruptRecord: a file is missing or differs from its entry.
    """
    files, stored, wanted, predicate = list(read.files), read.stored, read.wanted, read.predicate
    offset = pa.field("offset" if stored is RECORDS_SCHEMA else "_offset", pa.int64())
    first = pa.schema([*(stored.field(name) for name in keys.key_columns), offset])
    newest = _Newest()
    for batch in read_rows(replace(read, files=files, wanted=first, predicate=None)):
        newest.add(keys.key_array(batch), batch.column(offset.name))
    offsets = newest.offsets()
    with_newest = [each for each in (_batches_that_may_hold(each, offsets) for each in files) if len(each.batches)]
    second = {field.name: field for field in (*wanted, offset)}
    for name in (*keys.key_columns, *keys.value_columns) if keys.value_columns else ():
        second.setdefault(name, stored.field(name))
    for field in () if predicate is None else predicate.columns:
        second.setdefault(field.name, field)
    second_read = replace(
        read,
        files=with_newest,
        wanted=pa.schema(second.values()),
        predicate=None,
        rows_read=lambda rows: None,
        file_done=lambda rows: None,
    )
    for batch in read_rows(second_read):
        kept = _are_in(offsets, batch.column(offset.name).to_numpy())
        if keys.value_columns:
            kept &= ~keys.tombstones(batch)
        rows = batch.filter(pa.array(kept))
        if predicate is not None:
            rows = rows.filter(is_wanted(predicate, rows))
        if rows.num_rows:
            yield rows.select(wanted.names)


class _Newest:
    """The largest offset of each key, and the offset of each row without a key."""

    def __init__(self) -> None:
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._keys = 0
        self._without_key: list[npt.NDArray[np.int64]] = []

    def add(self, keys: pa.LargeBinaryArray, offsets: pa.Array[Any]) -> None:
        rows = pa.table({"key": keys, "offset": offsets})
        if keys.null_count:
            has_key = keys.is_valid()
            self._without_key.append(np.asarray(offsets)[~np.asarray(has_key)])
            rows = rows.filter(has_key)
        self._pending.append(rows)
        self._pending_rows += rows.num_rows
        # If the number of new rows is about that of the keys, the time is linear and the memory bounded.
        if self._pending_rows > max(_ROWS_TOGETHER, 2 * self._keys):
            self._group()

    def offsets(self) -> npt.NDArray[np.int64]:
        """Return the offsets in ascending order."""
        if self._pending:
            self._group()
        newest = [table["offset"].to_numpy() for table in self._pending]
        return np.sort(np.concatenate([np.empty(0, np.int64), *newest, *self._without_key]))

    def _group(self) -> None:
        rows = pa.concat_tables(self._pending)
        # Arrow groups keys with 32-bit offsets ten times as fast. They must not exceed 2 GiB together.
        if rows["key"].nbytes < _SHORT_KEYS_BYTES:
            rows = rows.set_column(0, "key", rows["key"].cast(pa.binary()))
        grouped = rows.group_by("key", use_threads=False).aggregate([("offset", "max")])
        self._pending = [pa.table({"key": grouped["key"].cast(pa.large_binary()), "offset": grouped["offset_max"]})]
        self._keys = self._pending_rows = grouped.num_rows


def _batches_that_may_hold(rows: FileRows, offsets: npt.NDArray[np.int64]) -> FileRows:
    first, last = np.searchsorted(offsets, rows.batches.base_offset), np.searchsorted(offsets, rows.batches.end_offset)
    return rows.only(rows.batches.taken(first < last))


def _are_in(offsets: npt.NDArray[np.int64], found: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    indices = np.minimum(np.searchsorted(offsets, found), len(offsets) - 1)
    is_in: npt.NDArray[np.bool_] = offsets[indices] == found
    return is_in
