"""Reading planned rows: a file is fetched, verified and decoded; its rows get their place in the log as columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from eoslog.errors import CorruptRecord
from eoslog.read.columns import CREATE_TIME
from eoslog.read.planner import FileSlice
from eoslog.segment.data_file import check_file, read_data_file
from eoslog.store.object_store import ObjectNotFound, ObjectStore

_ROWS_A_BATCH = 65_536


def read_slices(
    store: ObjectStore,
    topic: str,
    partition: int,
    slices: Iterable[FileSlice],
    stored: pa.Schema,
    wanted: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition's slices with the columns ``wanted``, in the order of their offsets.

    Raises:
        CorruptRecord: a file is missing, or not what its entry says.
    """
    for piece in slices:
        if piece.control is None:
            yield from _read_slice(store, topic, partition, piece, stored, wanted)


def _read_slice(
    store: ObjectStore, topic: str, partition: int, piece: FileSlice, stored: pa.Schema, wanted: pa.Schema
) -> Iterator[pa.RecordBatch]:
    needed = [name for name in wanted.names if name in stored.names]
    if not needed:
        yield from _place_only(topic, partition, piece, wanted)
        return
    try:
        body = store.get(piece.path).body
    except ObjectNotFound:
        raise CorruptRecord(f"data file {piece.path} is missing from {store.url}, though the log names it") from None
    check_file(body, piece.length, piece.crc32c, piece.path)
    offset = piece.base_offset
    for batch in read_data_file(
        body,
        stored,
        needed,
        first_row=piece.first_row,
        row_count=piece.record_count,
        expected_rows=piece.file_rows,
        name=piece.path,
    ):
        columns = [
            _stored_column(field, batch)
            if field.name in batch.schema.names
            else _place_column(field, batch.num_rows, topic, partition, offset, piece.timestamp)
            for field in wanted
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=wanted)
        offset += batch.num_rows


def _place_only(topic: str, partition: int, piece: FileSlice, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    for first in range(0, piece.record_count, _ROWS_A_BATCH):
        rows = min(_ROWS_A_BATCH, piece.record_count - first)
        columns = [
            _place_column(field, rows, topic, partition, piece.base_offset + first, piece.timestamp) for field in wanted
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=wanted)


def _stored_column(field: Any, batch: pa.RecordBatch) -> Any:
    column = batch.column(field.name)
    return column if column.type == field.type else column.cast(field.type)


def _place_column(field: Any, rows: int, topic: str, partition: int, offset: int, timestamp_ms: int) -> Any:
    if field.name in ("_topic", "topic"):
        return pa.repeat(pa.scalar(topic, field.type), rows)
    if field.name in ("_partition", "partition"):
        return pa.repeat(pa.scalar(partition, field.type), rows)
    if field.name in ("_offset", "offset"):
        return pa.array(np.arange(offset, offset + rows, dtype=np.int64))
    if field.name == "timestampType":
        return pa.repeat(pa.scalar(CREATE_TIME, field.type), rows)
    return pa.repeat(pa.scalar(timestamp_ms * 1000, pa.int64()), rows).cast(field.type)
