"""Reading planned rows: a file is fetched, verified and decoded; its rows get their place in the log as columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from eoslog.errors import CorruptRecord
from eoslog.read.columns import CREATE_TIME
from eoslog.read.planner import FileSlice
from eoslog.segment.data_file import check_file, read_data_file
from eoslog.store.object_store import ObjectStore

_ROWS_A_BATCH = 65_536
_FILES_AT_ONCE = 16
_BYTES_AT_ONCE = 32 << 20


def read_slices(
    store: ObjectStore,
    topic: str,
    partition: int,
    slices: Iterable[FileSlice],
    stored: pa.Schema,
    wanted: pa.Schema,
    *,
    files_at_once: int = _FILES_AT_ONCE,
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition's slices with the columns ``wanted``, in the order of their offsets.

    At most ``files_at_once`` files are fetched together, and fewer if they are large.

    Raises:
        CorruptRecord: a file is missing, or not what its entry says.
    """
    needed = [name for name in wanted.names if name in stored.names]
    rows = (piece for piece in slices if piece.control is None)
    for window in _windows(rows, files_at_once):
        bodies = _fetch(store, window) if needed else {}
        for piece in window:
            if needed:
                body = _checked(store, piece, bodies[piece.path])
                yield from _read_slice(body, topic, partition, piece, stored, needed, wanted)
            else:
                yield from _place_only(topic, partition, piece, wanted)


def _windows(slices: Iterable[FileSlice], files_at_once: int) -> Iterator[list[FileSlice]]:
    """Slices whose files are fetched together: many small ones, or a large one alone."""
    window: list[FileSlice] = []
    size = 0
    for piece in slices:
        if window and (len(window) == files_at_once or size + piece.length > _BYTES_AT_ONCE):
            yield window
            window, size = [], 0
        window.append(piece)
        size += piece.length
    if window:
        yield window


def _fetch(store: ObjectStore, window: Sequence[FileSlice]) -> dict[str, bytes | None]:
    paths = list(dict.fromkeys(piece.path for piece in window))
    found = store.get_many(paths)
    return {path: None if each is None else each.body for path, each in zip(paths, found, strict=True)}


def _checked(store: ObjectStore, piece: FileSlice, body: bytes | None) -> bytes:
    if body is None:
        raise CorruptRecord(f"data file {piece.path} is missing from {store.url}, though the log names it")
    check_file(body, piece.length, piece.crc32c, piece.path)
    return body


def _read_slice(
    body: bytes,
    topic: str,
    partition: int,
    piece: FileSlice,
    stored: pa.Schema,
    needed: Sequence[str],
    wanted: pa.Schema,
) -> Iterator[pa.RecordBatch]:
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
