"""Reading the slices of a plan: fetch each file, verify it, decode it, and add the metadata columns of its rows.

Neighboring slices of one file are read together, because a compacted file holds many batches. Planned control rows
appear between them, with nulls in the topic's own columns.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eoslog.errors import CorruptRecord
from eoslog.format.checked_files import END_BYTES, read_end, read_file, read_ranges
from eoslog.format.data_file import OFFSET_DELTA_COLUMN, DataFile, RowGroup
from eoslog.format.record_times import shown_times
from eoslog.format.topic_schemas import RECORDS_SCHEMA
from eoslog.read.planner import FileSlice, slices_by_file
from eoslog.read.predicate import Predicate
from eoslog.read.predicate_rows import is_wanted
from eoslog.read.row_metadata import SliceRows, metadata_column
from eoslog.state.partition_state import NO_SLOT
from eoslog.storage.object_store import ObjectStore
from eoslog.storage.tracing import carried

_ROWS_A_BATCH = 65_536
_ROWS_A_STEP = 1 << 20
_BYTES_AT_ONCE = 32 << 20
_BYTES_A_STEP = 8 << 20
"""About how many bytes of a file one thread decodes at once. Smaller parts spend more time on the change of threads."""
_USUAL_COMPRESSION = 8
"""Rows that are compressed more than this count by their decoded size, because memory holds them decoded."""
_LARGEST_WHOLE_BYTES = 1 << 20
"""Smaller files are always fetched as a whole: one request costs less than several ranges."""


def read_slices(
    store: ObjectStore,
    topic: str,
    partition: int,
    slices: Iterable[FileSlice],
    stored: pa.Schema,
    wanted: pa.Schema,
    *,
    predicate: Predicate | None = None,
    threads: int | None = None,
    rows_read: Callable[[int], object] = lambda rows: None,
    file_done: Callable[[Sequence[FileSlice]], object] = lambda pieces: None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition's slices, in the order of their offsets.

    A small file, and a file of which all columns and rows are needed, is fetched as a whole and compared with the
    checksum in its entry. Of other files only the ranges of the needed columns are fetched, and the checksums of their
    pages are verified instead.

    Args:
        slices: the slices, in the order of their offsets.
        stored: the columns that the topic's files contain.
        wanted: the columns to yield.
        predicate: which rows to yield; None yields all rows.
        threads: how many files or row groups are fetched and decoded at once; fewer if they are large. None: as many as
            the object store serves best. 1: the caller's thread does it.
        rows_read: called with the number of rows of each batch, before the predicate leaves out some of them.
        file_done: called with the slices of a file after the caller got all their rows.

    Raises:
        CorruptRecord: a file is missing or differs from its entry.
    """
    # The steps of a pool hold all their rows at once, so they decode them as one batch, which costs less.
    batch_rows = _ROWS_A_BATCH if threads == 1 else _ROWS_A_STEP
    read = _Read(store, topic, partition, stored, wanted, predicate, batch_rows)
    files = slices_by_file(slices)
    if threads == 1:
        steps = ((step, step.run()) for pieces in files for step in read.steps(pieces))
        yield from _batches(steps, predicate, rows_read, file_done)
        return
    threads = threads or store.reads_at_once
    pool = ThreadPoolExecutor(threads)
    try:
        opened = _ahead(pool, 2 * threads, files, read.steps_ahead, read.bytes_to_open)
        decoded = _ahead(
            pool,
            2 * threads,
            (step for _, of_file in opened for step in of_file),
            lambda step: list(step.run()) if step.bytes else step.run(),
            lambda step: step.bytes,
            lambda step: step.is_decoded,
        )
        yield from _batches(decoded, predicate, rows_read, file_done)
    finally:
        pool.shutdown(cancel_futures=True)


def _batches(
    steps: Iterable[tuple[_Step, Iterable[tuple[int, pa.RecordBatch]]]],
    predicate: Predicate | None,
    rows_read: Callable[[int], object],
    file_done: Callable[[Sequence[FileSlice]], object],
) -> Iterator[pa.RecordBatch]:
    for step, found in steps:
        for rows, batch in found:
            rows_read(rows)
            for first in range(0, batch.num_rows, _ROWS_A_BATCH):
                yield batch.slice(first, _ROWS_A_BATCH)
        if step.completes:
            file_done(step.completes)


_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


def _ahead(
    pool: Executor,
    most: int,
    tasks: Iterable[_Task],
    run: Callable[[_Task], _Result],
    size: Callable[[_Task], int],
    is_done: Callable[[_Task], bool] = lambda task: False,
) -> Iterator[tuple[_Task, _Result]]:
    """Run tasks in a pool, and yield each with its result in their order.

    Args:
        most: how many tasks may run, or have results that were not yielded. More than the pool has threads, so that no
            thread waits while the caller takes the first result.
        size: how many bytes a task needs. Large tasks do not run together. The caller's thread runs tasks of 0 bytes.
        is_done: returns True for a task that holds its bytes already. The caller's thread runs it, too.
    """
    waiting = deque[tuple[_Task, Future[_Result]]]()
    taken = 0
    for task in tasks:
        needed = size(task)
        taken += needed
        while waiting and (len(waiting) == most or taken > _BYTES_AT_ONCE or waiting[0][1].done()):
            first, future = waiting.popleft()
            yield first, future.result()
            taken -= size(first)
        waiting.append((task, _submitted(pool, run, task) if needed and not is_done(task) else _done(run, task)))
    while waiting:
        first, future = waiting.popleft()
        yield first, future.result()


def _submitted(pool: Executor, run: Callable[[_Task], _Result], task: _Task) -> Future[_Result]:
    try:
        return pool.submit(carried(run), task)
    except RuntimeError:
        # The interpreter is exiting, or the system has no more threads. So the caller's thread does the work.
        return _done(run, task)


def _done(run: Callable[[_Task], _Result], task: _Task) -> Future[_Result]:
    future = Future[_Result]()
    try:
        future.set_result(run(task))
    except Exception as error:
        future.set_exception(error)
    return future


@dataclass(frozen=True)
class _Step:
    """A part of a read. One thread does it."""

    run: Callable[[], Iterator[tuple[int, pa.RecordBatch]]]
    """Yields batches. Each comes with its number of rows before the predicate left out some of them."""
    bytes: int
    """About how many bytes of a file it decodes; 0 if there is no file."""
    completes: Sequence[FileSlice] = ()
    """The slices of the file, if this is its last part."""
    is_decoded: bool = False
    """True if its rows are in memory."""


class _Read:
    """A read of one partition: the parts that are the same for all its files."""

    def __init__(
        self,
        store: ObjectStore,
        topic: str,
        partition: int,
        stored: pa.Schema,
        wanted: pa.Schema,
        predicate: Predicate | None,
        batch_rows: int,
    ) -> None:
        self._store = store
        self._topic = topic
        self._partition = partition
        self._stored = stored
        self._wanted = wanted
        self._predicate = predicate
        self._batch_rows = batch_rows
        """How many rows are decoded at once, at most."""
        extra = [] if predicate is None else [each for each in predicate.columns if each.name not in wanted.names]
        self._read = pa.schema([*wanted, *extra])
        """The columns to read. Some of them only the predicate uses."""
        self._needed = [name for name in self._read.names if name in stored.names]
        # The timestamps that readers of Kafka records get may differ from those in the file.
        self._may_match = None if predicate is None or predicate.of_records else predicate.may_match

    def bytes_to_open(self, pieces: Sequence[FileSlice]) -> int:
        """Return how many bytes ``steps_ahead`` fetches, at most."""
        rows = _in_file(pieces)
        if not self._needs_file(rows):
            return 0
        is_opened_only = self._is_read_in_ranges(rows) and rows[0].length > self._most_bytes
        return END_BYTES if is_opened_only else rows[0].length

    def steps(self, pieces: Sequence[FileSlice]) -> list[_Step]:
        """Open the file of these neighboring slices. Return a step for each row group."""
        rows = _in_file(pieces)
        if not self._needs_file(rows):
            return [_Step(lambda: self._filtered(self._without_file(pieces)), 0, pieces)]
        file = self._opened(rows)
        begins, ends = [each.first_row for each in rows], _ends(pieces)
        steps = []
        groups = file.row_groups(self._may_match if len(rows) == len(pieces) else None)
        for group, size in _together(groups, rows[0], self._most_bytes):
            last = bisect_left(begins, group.stop) - 1
            if last < 0 or rows[last].first_row + rows[last].record_count <= group.start:
                continue
            first_row, end = max(group.start, begins[0]), min(group.stop, ends[-1])
            # The first row group has the control rows before it, too.
            first = 0 if first_row == begins[0] else bisect_right(ends, group.start)
            run = partial(self._decoded, file, pieces[first:], first_row, end)
            steps.append(_Step(run, size))
        if not steps:
            return [_Step(lambda: iter(()), 0, pieces)]
        return [*steps[:-1], replace(steps[-1], completes=pieces)]

    def steps_ahead(self, pieces: Sequence[FileSlice]) -> list[_Step]:
        """Do the same, and decode a file of one step at once: another change of threads would cost more.

        An error comes from the only step, so the caller gets the rows of earlier files first.
        """
        try:
            steps = self.steps(pieces)
            if len(steps) == 1 and 0 < steps[0].bytes <= self.bytes_to_open(pieces):
                rows = list(steps[0].run())
                return [replace(steps[0], run=partial(iter, rows), is_decoded=True)]
            return steps
        except Exception as error:
            return [_Step(partial(_failed, error), 0)]

    @property
    def _most_bytes(self) -> int:
        """About how many bytes of a file one step should span, if all columns have the same size."""
        return _BYTES_A_STEP * len(self._stored.names) // max(1, len(self._needed))

    def _needs_file(self, rows: Sequence[FileSlice]) -> bool:
        return bool(rows) and (bool(self._needed) or _have_gaps(rows))

    def _is_read_in_ranges(self, rows: Sequence[FileSlice]) -> bool:
        file = rows[0]
        is_part = self._may_match is not None or len(self._needed) < len(self._stored.names)
        is_whole = file.length <= _LARGEST_WHOLE_BYTES or file.record_slot is not None
        return is_part and not is_whole and file.footer_crc32c is not None

    def _opened(self, rows: Sequence[FileSlice]) -> DataFile:
        store, first = self._store, rows[0]
        stored = self._stored.append(OFFSET_DELTA_COLUMN) if _have_gaps(rows) else self._stored
        file, slot = first.file, NO_SLOT if first.record_slot is None else first.record_slot
        if self._is_read_in_ranges(rows):
            end, fetch = read_end(store, file), partial(read_ranges, store, file)
            return DataFile(end, stored, first.file_rows, file.path, fetch)
        return DataFile(read_file(store, file, slot), stored, first.file_rows, file.path)

    def _decoded(
        self, file: DataFile, pieces: Sequence[FileSlice], row: int, last_row: int
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        columns = [*self._needed, OFFSET_DELTA_COLUMN.name] if _have_gaps(_in_file(pieces)) else self._needed
        decoded = file.batches(columns, row, last_row - row, batch_rows=self._batch_rows)
        return self._filtered(self._with_metadata(decoded, pieces, row))

    def _filtered(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
        for batch in batches:
            if self._predicate is None:
                yield batch.num_rows, batch
            else:
                matching = batch.filter(is_wanted(self._predicate, batch))
                yield batch.num_rows, matching.select(self._wanted.names)

    def _with_metadata(
        self, decoded: Iterator[pa.RecordBatch], pieces: Sequence[FileSlice], row: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the slices that lie in decoded rows, and the control rows between them.

        Rows of a file are in the order of their offsets, so one pass over the file is enough.

        Args:
            row: the number of the first decoded row in the file.
        """
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
                selected = _selected(batch, parts)
                yield _with_metadata(selected, self._topic, self._partition, parts, self._stored, self._read)

    def _without_file(self, pieces: Sequence[FileSlice]) -> Iterator[pa.RecordBatch]:
        return _rows_without_file(self._topic, self._partition, pieces, self._stored, self._read)


def _failed(error: Exception) -> Iterator[tuple[int, pa.RecordBatch]]:
    raise error


def _together(groups: Iterable[RowGroup], piece: FileSlice, most_bytes: int) -> list[tuple[range, int]]:
    """Join neighboring row groups as long as they do not have too many bytes. Return their rows and bytes.

    The bytes are about those in the file, and more if the rows are much larger when decoded.
    """
    joined: list[tuple[range, int]] = []
    for rows, decoded_bytes in groups:
        size = max(1, piece.length * len(rows) // max(1, piece.file_rows), decoded_bytes // _USUAL_COMPRESSION)
        if joined and joined[-1][0].stop == rows.start and joined[-1][1] + size <= most_bytes:
            before, bytes_before = joined[-1]
            joined[-1] = range(before.start, rows.stop), bytes_before + size
        else:
            joined.append((rows, size))
    return joined


def _in_file(pieces: Sequence[FileSlice]) -> list[FileSlice]:
    return [piece for piece in pieces if piece.control is None]


def _ends(pieces: Sequence[FileSlice]) -> list[int]:
    """Return the row of the file before which each slice ends. A control row ends where the slice before it does."""
    ends: list[int] = []
    for piece in pieces:
        if piece.control is None:
            ends.append(piece.first_row + piece.record_count)
        else:
            ends.append(ends[-1] if ends else 0)
    return ends


def _have_gaps(pieces: Sequence[FileSlice]) -> bool:
    return any(piece.has_gaps for piece in pieces)


def _rows_of(piece: FileSlice, batch: pa.RecordBatch, row: int) -> SliceRows:
    """Return the rows of a slice that a decoded batch holds. The batch begins at ``row`` of its file."""
    first = max(piece.first_row, row)
    begin = first - row
    end = min(piece.first_row + piece.record_count - row, batch.num_rows)
    if piece.gaps_end_offset is None:
        return SliceRows(piece, begin, end, piece.base_offset + first - piece.first_row)
    offsets = batch.column(OFFSET_DELTA_COLUMN.name).slice(begin, end - begin).to_numpy() + piece.file_base_offset
    if np.any(offsets[1:] <= offsets[:-1]):
        raise CorruptRecord(f"{piece.path}: the offsets of its rows do not increase")
    skipped, taken = np.searchsorted(offsets, [piece.base_offset, piece.gaps_end_offset]).tolist()
    return SliceRows(piece, begin + skipped, begin + taken, piece.base_offset, offsets[skipped:taken])


def _selected(batch: pa.RecordBatch, parts: Sequence[SliceRows]) -> pa.RecordBatch:
    """Return the rows of these parts. Nothing is copied if the parts are adjacent."""
    controls = [part.piece.control is not None for part in parts]
    begin, end = parts[0].begin, parts[-1].end
    if not any(controls) and sum(part.end - part.begin for part in parts) == end - begin:
        return batch.slice(begin, end - begin)
    rows = np.concatenate([np.arange(part.begin, part.end) for part in parts])
    return batch.take(pa.array(rows, mask=np.repeat(controls, [part.row_count for part in parts])))


def _with_metadata(
    batch: pa.RecordBatch, topic: str, partition: int, parts: Sequence[SliceRows], stored: pa.Schema, wanted: pa.Schema
) -> pa.RecordBatch:
    columns = []
    for field in wanted:
        if field.name not in batch.schema.names or field.name == OFFSET_DELTA_COLUMN.name:
            column = metadata_column(field, topic, partition, parts)
        else:
            column = _stored_column(field, batch, stored)
            if stored is RECORDS_SCHEMA and field.name == "timestamp" and column.null_count:
                column = pc.coalesce(column, metadata_column(field, topic, partition, parts))
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
                pa.nulls(rows, field.type) if field.name in null else metadata_column(field, topic, partition, parts)
                for field in wanted
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=wanted)


def _without_file(piece: FileSlice, first: int, rows: int) -> SliceRows:
    return SliceRows(piece, 0, rows, piece.base_offset + first)


def _stored_column(field: Any, batch: pa.RecordBatch, stored: pa.Schema) -> Any:
    column = batch.column(field.name)
    if column.type == field.type:
        return column
    if stored is RECORDS_SCHEMA and field.name == "timestamp":
        return shown_times(column, field.type)
    return column.cast(field.type)
