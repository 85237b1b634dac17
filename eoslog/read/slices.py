"""Reading planned rows: a file is fetched, verified and decoded; its rows get their place in the log as columns.

Neighbouring slices of one file are read together: a merged file holds many batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eoslog.errors import CorruptRecord
from eoslog.read.columns import CREATE_TIME
from eoslog.read.planner import FileSlice
from eoslog.segment.data_file import OFFSET_COLUMN, check_file, read_data_file
from eoslog.store.object_store import ObjectStore

_ROWS_A_BATCH = 65_536
_FILES_AT_ONCE = 16
_BYTES_AT_ONCE = 32 << 20


class _Rows(NamedTuple):
    """Rows of one slice, as they go into a batch: ``begin`` to ``end`` (exclusive) of what was decoded together."""

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
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition's slices with the columns ``wanted``, in the order of their offsets.

    At most ``files_at_once`` files are fetched together, and fewer if they are large. Each is fetched once.

    Raises:
        CorruptRecord: a file is missing, or not what its entry says.
    """
    needed = [name for name in wanted.names if name in stored.names]
    rows = (piece for piece in slices if piece.control is None)
    files = (list(pieces) for _, pieces in groupby(rows, key=lambda piece: piece.path))
    for window in _windows(files, files_at_once):
        bodies = _fetch(store, [pieces[0].path for pieces in window if needed or _have_gaps(pieces)])
        for pieces in window:
            if pieces[0].path in bodies:
                body = _checked(store, pieces[0], bodies.pop(pieces[0].path))
                yield from _read_file(body, topic, partition, pieces, stored, needed, wanted)
            else:
                yield from _place_only(topic, partition, pieces, wanted)


def _have_gaps(pieces: Sequence[FileSlice]) -> bool:
    return any(piece.has_gaps for piece in pieces)


def _windows(files: Iterable[list[FileSlice]], files_at_once: int) -> Iterator[list[list[FileSlice]]]:
    """Slices by file, for the files that are fetched together: many small ones, or a large one alone."""
    window: list[list[FileSlice]] = []
    size = 0
    for pieces in files:
        length = pieces[0].length
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
        raise CorruptRecord(f"data file {piece.path} is missing from {store.url}, though the log names it")
    check_file(body, piece.length, piece.crc32c, piece.path)
    return body


def _read_file(
    body: bytes,
    topic: str,
    partition: int,
    pieces: Sequence[FileSlice],
    stored: pa.Schema,
    needed: Sequence[str],
    wanted: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """The rows of slices of one file, which lie in it in the order of their offsets."""
    row = pieces[0].first_row
    with_offsets = _have_gaps(pieces)
    decoded = read_data_file(
        body,
        stored.append(OFFSET_COLUMN) if with_offsets else stored,
        [*needed, OFFSET_COLUMN.name] if with_offsets else needed,
        first_row=row,
        row_count=pieces[-1].first_row + pieces[-1].record_count - row,
        expected_rows=pieces[0].file_rows,
        name=pieces[0].path,
    )
    next_piece = 0
    for batch in decoded:
        end = row + batch.num_rows
        parts = []
        while next_piece < len(pieces) and pieces[next_piece].first_row < end:
            piece = pieces[next_piece]
            part = _rows_of(piece, batch, row)
            if part.begin < part.end:
                parts.append(part)
            if piece.first_row + piece.record_count > end:
                break
            next_piece += 1
        row = end
        if parts:
            yield _placed(_selected(batch, parts), topic, partition, parts, wanted)


def _rows_of(piece: FileSlice, batch: pa.RecordBatch, row: int) -> _Rows:
    """What a decoded batch, which begins at ``row`` of its file, holds of a slice."""
    first = max(piece.first_row, row)
    begin = first - row
    end = min(piece.first_row + piece.record_count - row, batch.num_rows)
    if piece.gaps_end_offset is None:
        start = piece.base_offset + first - piece.first_row
        return _Rows(piece, begin, end, np.arange(start, start + end - begin, dtype=np.int64))
    offsets = batch.column(OFFSET_COLUMN.name).slice(begin, end - begin).to_numpy()
    if np.any(offsets[1:] <= offsets[:-1]):
        raise CorruptRecord(f"{piece.path}: the offsets of its rows do not rise")
    skipped, taken = np.searchsorted(offsets, [piece.base_offset, piece.gaps_end_offset]).tolist()
    return _Rows(piece, begin + skipped, begin + taken, offsets[skipped:taken])


def _selected(batch: pa.RecordBatch, parts: Sequence[_Rows]) -> pa.RecordBatch:
    """The rows of these parts; nothing is copied if they follow each other."""
    begin, end = parts[0].begin, parts[-1].end
    if sum(part.end - part.begin for part in parts) == end - begin:
        return batch.slice(begin, end - begin)
    return batch.take(np.concatenate([np.arange(part.begin, part.end) for part in parts]))


def _placed(
    batch: pa.RecordBatch, topic: str, partition: int, parts: Sequence[_Rows], wanted: pa.Schema
) -> pa.RecordBatch:
    columns = [
        _stored_column(field, batch)
        if field.name in batch.schema.names and field.name != OFFSET_COLUMN.name
        else _place_column(field, topic, partition, parts)
        for field in wanted
    ]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _place_only(topic: str, partition: int, pieces: Sequence[FileSlice], wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    for piece in pieces:
        for first in range(0, piece.record_count, _ROWS_A_BATCH):
            rows = min(_ROWS_A_BATCH, piece.record_count - first)
            start = piece.base_offset + first
            parts = [_Rows(piece, 0, rows, np.arange(start, start + rows, dtype=np.int64))]
            columns = [_place_column(field, topic, partition, parts) for field in wanted]
            yield pa.RecordBatch.from_arrays(columns, schema=wanted)


def _stored_column(field: Any, batch: pa.RecordBatch) -> Any:
    column = batch.column(field.name)
    return column if column.type == field.type else column.cast(field.type)


def _place_column(field: Any, topic: str, partition: int, parts: Sequence[_Rows]) -> Any:
    counts = [part.end - part.begin for part in parts]
    if field.name in ("_topic", "topic"):
        return pa.repeat(pa.scalar(topic, field.type), sum(counts))
    if field.name in ("_partition", "partition"):
        return pa.repeat(pa.scalar(partition, field.type), sum(counts))
    if field.name in ("_offset", "offset"):
        return pa.array(np.concatenate([part.offsets for part in parts]))
    if field.name == "timestampType":
        return pa.repeat(pa.scalar(CREATE_TIME, field.type), sum(counts))
    timestamps = np.repeat(np.array([part.piece.timestamp * 1000 for part in parts], np.int64), counts)
    return pa.array(timestamps).cast(field.type)
