"""Reading the slices of a plan: fetch each file, verify it, decode it, and add the metadata columns of its rows.

Neighboring slices of one file are read together, because a compacted file holds many batches. Planned control rows
appear between them, with nulls in the topic's own columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eoslog.errors import CorruptRecord
from eoslog.format.data_file import OFFSET_COLUMN, check_file, read_data_file
from eoslog.format.kafka_records import RECORDS_SCHEMA
from eoslog.read.columns import CREATE_TIME
from eoslog.read.planner import FileSlice, slices_by_file
from eoslog.state.partition_state import NO_SEQUENCE, NO_SLOT, NO_TIME, Control
from eoslog.state.sequences import SEQUENCES
from eoslog.storage.object_store import ObjectStore

_ROWS_A_BATCH = 65_536
_FILES_AT_ONCE = 16
_BYTES_AT_ONCE = 32 << 20
_MICROSECONDS = pa.timestamp("us", tz="UTC")


class _Rows(NamedTuple):
    """The rows of one slice that go into a batch: rows ``begin`` to ``end`` (exclusive) of the decoded batch.

    A control row counts as one row. No decoded row belongs to it.
    """

    piece: FileSlice
    begin: int
    end: int
    offsets: npt.NDArray[np.int64]


def read_slices(
    store: ObjectStore,
    topic: str,
    partition: int,
    slices: Iterable[FileSlice],
    stored: pa.Schema,
    wanted: pa.Schema,
    *,
    files_at_once: int = _FILES_AT_ONCE,
    file_done: Callable[[Sequence[FileSlice]], object] = lambda pieces: None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition's slices with the columns ``wanted``, in the order of their offsets.

    Args:
        slices: the slices, in the order of their offsets.
        stored: the columns that the topic's files contain.
        wanted: the columns to yield.
        files_at_once: the largest number of files to fetch together; fewer if they are large. Each file is fetched
            once.
        file_done: called with the slices of a file after the caller got all their rows.

    Raises:
        CorruptRecord: a file is missing or differs from its entry.
    """
    needed = [name for name in wanted.names if name in stored.names]
    for window in _windows(slices_by_file(slices), files_at_once):
        files = [(pieces, _in_file(pieces)) for pieces in window]
        bodies = _fetch(store, [rows[0].path for _, rows in files if rows and (needed or _have_gaps(rows))])
        for pieces, rows in files:
            if rows and rows[0].path in bodies:
                body = _checked(store, rows[0], bodies.pop(rows[0].path))
                yield from _read_file(body, topic, partition, pieces, rows, stored, needed, wanted)
            else:
                yield from _rows_without_file(topic, partition, pieces, stored, wanted)
            file_done(pieces)


def _in_file(pieces: Sequence[FileSlice]) -> list[FileSlice]:
    return [piece for piece in pieces if piece.control is None]


def _have_gaps(pieces: Sequence[FileSlice]) -> bool:
    return any(piece.has_gaps for piece in pieces)


def _windows(files: Iterable[list[FileSlice]], files_at_once: int) -> Iterator[list[list[FileSlice]]]:
    """Group files for one fetch: several small files, or one large file alone."""
    window: list[list[FileSlice]] = []
    size = 0
    for pieces in files:
        length = max(piece.length for piece in pieces)
        if window and (len(window) == files_at_once or size + length > _BYTES_AT_ONCE):
            yield window
            window, size = [], 0
        window.append(pieces)
        size += length
    if window:
        yield window


def _fetch(store: ObjectStore, paths: Sequence[str]) -> dict[str, bytes | None]:
    if not paths:
        return {}
    found = store.get_many(paths)
    return {path: None if each is None else each.body for path, each in zip(paths, found, strict=True)}


def _checked(store: ObjectStore, piece: FileSlice, body: bytes | None) -> bytes:
    if body is None:
        raise CorruptRecord(
            f"data file {piece.path} is missing from {store.url}, but the log names it. Bring it back from a backup"
        )
    check_file(body, piece.length, piece.crc32c, piece.path)
    return body


def _read_file(
    body: bytes,
    topic: str,
    partition: int,
    pieces: Sequence[FileSlice],
    rows: Sequence[FileSlice],
    stored: pa.Schema,
    needed: Sequence[str],
    wanted: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one file's slices and the control rows between them.

    Rows of a file are in the order of their offsets, so one pass over the file is enough.
    """
    row = rows[0].first_row
    with_offsets = _have_gaps(rows)
    decoded = read_data_file(
        body,
        stored.append(OFFSET_COLUMN) if with_offsets else stored,
        [*needed, OFFSET_COLUMN.name] if with_offsets else needed,
        first_row=row,
        row_count=rows[-1].first_row + rows[-1].record_count - row,
        expected_rows=rows[0].file_rows,
        name=rows[0].path,
    )
    next_piece = 0
    for batch in decoded:
        end = row + batch.num_rows
        parts = []
        while next_piece < len(pieces):
            piece = pieces[next_piece]
            if piece.control is not None:
                parts.append(_without_file(piece, 0, 1))
            elif piece.first_row >= end:
                break
            else:
                part = _rows_of(piece, batch, row)
                if part.begin < part.end:
                    parts.append(part)
                if piece.first_row + piece.record_count > end:
                    break
            next_piece += 1
        row = end
        if parts:
            yield _with_metadata(_selected(batch, parts), topic, partition, parts, stored, wanted)


def _rows_of(piece: FileSlice, batch: pa.RecordBatch, row: int) -> _Rows:
    """Return the rows of a slice that a decoded batch holds. The batch begins at ``row`` of its file."""
    first = max(piece.first_row, row)
    begin = first - row
    end = min(piece.first_row + piece.record_count - row, batch.num_rows)
    if piece.gaps_end_offset is None:
        start = piece.base_offset + first - piece.first_row
        return _Rows(piece, begin, end, np.arange(start, start + end - begin, dtype=np.int64))
    offsets = batch.column(OFFSET_COLUMN.name).slice(begin, end - begin).to_numpy()
    if np.any(offsets[1:] <= offsets[:-1]):
        raise CorruptRecord(f"{piece.path}: the offsets of its rows do not increase")
    skipped, taken = np.searchsorted(offsets, [piece.base_offset, piece.gaps_end_offset]).tolist()
    return _Rows(piece, begin + skipped, begin + taken, offsets[skipped:taken])


def _selected(batch: pa.RecordBatch, parts: Sequence[_Rows]) -> pa.RecordBatch:
    """Return the rows of these parts. Nothing is copied if the parts are adjacent."""
    controls = [part.piece.control is not None for part in parts]
    begin, end = parts[0].begin, parts[-1].end
    if not any(controls) and sum(part.end - part.begin for part in parts) == end - begin:
        return batch.slice(begin, end - begin)
    rows = np.concatenate([np.arange(part.begin, part.end) for part in parts])
    return batch.take(pa.array(rows, mask=np.repeat(controls, _counts(parts))))


def _with_metadata(
    batch: pa.RecordBatch, topic: str, partition: int, parts: Sequence[_Rows], stored: pa.Schema, wanted: pa.Schema
) -> pa.RecordBatch:
    columns = []
    for field in wanted:
        if field.name not in batch.schema.names or field.name == OFFSET_COLUMN.name:
            column = _metadata_column(field, topic, partition, parts)
        else:
            column = _stored_column(field, batch)
            if stored is RECORDS_SCHEMA and field.name == "timestamp" and column.null_count:
                column = pc.coalesce(column, _metadata_column(field, topic, partition, parts))
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _rows_without_file(
    topic: str, partition: int, pieces: Sequence[FileSlice], stored: pa.Schema, wanted: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield rows that need no file: control rows, and rows of which only metadata columns are wanted.

    A control row of a topic of Kafka records has a timestamp. All its other stored columns are null.
    """
    null = set(stored.names) - ({"timestamp"} if stored is RECORDS_SCHEMA else set())
    for piece in pieces:
        for first in range(0, piece.record_count, _ROWS_A_BATCH):
            rows = min(_ROWS_A_BATCH, piece.record_count - first)
            parts = [_without_file(piece, first, rows)]
            columns = [
                pa.nulls(rows, field.type) if field.name in null else _metadata_column(field, topic, partition, parts)
                for field in wanted
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=wanted)


def _without_file(piece: FileSlice, first: int, rows: int) -> _Rows:
    start = piece.base_offset + first
    return _Rows(piece, 0, rows, np.arange(start, start + rows, dtype=np.int64))


def _counts(parts: Sequence[_Rows]) -> list[int]:
    return [len(part.offsets) for part in parts]


def _stored_column(field: Any, batch: pa.RecordBatch) -> Any:
    column = batch.column(field.name)
    return column if column.type == field.type else column.cast(field.type)


def _metadata_column(field: Any, topic: str, partition: int, parts: Sequence[_Rows]) -> Any:
    """Return a column that no file contains: the rows' position in the log, or their producer and transaction."""
    if field.name in ("_offset", "offset"):
        return pa.array(np.concatenate([part.offsets for part in parts]))
    if field.name == "_sequence":
        return _sequences(parts).cast(field.type)
    values: list[Any]
    value_type = field.type
    pieces = [part.piece for part in parts]
    if field.name in ("_topic", "topic"):
        values = [topic] * len(parts)
    elif field.name in ("_partition", "partition"):
        values = [partition] * len(parts)
    elif field.name == "timestampType":
        values = [CREATE_TIME] * len(parts)
    elif field.name == "_transactional_id":
        values = [piece.origin.transactional_id for piece in pieces]
    elif field.name == "_producer_id":
        values = [piece.origin.producer_id for piece in pieces]
    elif field.name == "_producer_epoch":
        values = [piece.origin.producer_epoch for piece in pieces]
    elif field.name == "_control":
        values = [None if piece.control is None else Control(piece.control).name for piece in pieces]
    elif field.name == "_slot":
        values = [None if piece.origin.slot == NO_SLOT else piece.origin.slot for piece in pieces]
    else:
        value_type = _MICROSECONDS
        times = [piece.origin.commit_time_ms for piece in pieces]
        if field.name != "_commit_timestamp":
            times = [piece.timestamp for piece in pieces]
        values = [None if field.name == "_commit_timestamp" and each == NO_TIME else each * 1000 for each in times]
    counts = _counts(parts)
    if all(value == values[0] for value in values):
        return _constant(values[0], value_type, field.type, sum(counts))
    each_part = pa.array(values, value_type).cast(field.type)
    return each_part.take(pa.array(np.repeat(np.arange(len(parts)), counts)))


def _constant(value: Any, value_type: pa.DataType, wanted: pa.DataType, rows: int) -> Any:
    if _ROWS_A_BATCH // 2 <= rows <= _ROWS_A_BATCH:
        return _large_constant(value, value_type, wanted).slice(0, rows)
    return _repeated(value, value_type, wanted, rows)


@lru_cache(maxsize=8)
def _large_constant(value: Any, value_type: pa.DataType, wanted: pa.DataType) -> Any:
    """Return a constant column of the largest batch. It is cached, because building it costs as much as reading one."""
    return _repeated(value, value_type, wanted, _ROWS_A_BATCH)


def _repeated(value: Any, value_type: pa.DataType, wanted: pa.DataType, rows: int) -> Any:
    scalar: Any = pa.scalar(value, value_type).cast(wanted)
    return pa.repeat(scalar, rows)


def _sequences(parts: Sequence[_Rows]) -> Any:
    """Return each row's sequence. It grows with the offset, so removed rows count too."""
    sequences = [
        (part.piece.origin.base_sequence + part.offsets - part.piece.base_offset) % SEQUENCES for part in parts
    ]
    unknown = [part.piece.origin.base_sequence == NO_SEQUENCE for part in parts]
    return pa.array(np.concatenate(sequences), mask=np.repeat(unknown, _counts(parts)))
