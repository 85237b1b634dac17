"""Reading the rows of a plan: fetch each file, verify it, decode it, and add the metadata columns of its rows.

Planned control rows appear between the rows of files, with nulls in the topic's own columns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eoslog.errors import CorruptRecord
from eoslog.format.batch_columns import Numbers
from eoslog.format.checked_files import END_BYTES, read_end, read_file, read_ranges
from eoslog.format.data_file import OFFSET_DELTA_COLUMN, DataFile, RowGroup
from eoslog.format.record_times import shown_times
from eoslog.format.topic_schemas import RECORDS_SCHEMA
from eoslog.read.file_rows import BatchRows, FileRows
from eoslog.read.predicate import Predicate
from eoslog.read.predicate_rows import is_wanted
from eoslog.read.row_metadata import PositionedRows, metadata_column
from eoslog.state.entry_fields import FileReference
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRead:
    """A read of planned rows of one partition."""

    store: ObjectStore
    topic: str
    partition: int
    files: Iterable[FileRows]
    """The rows by file, in the order of their offsets."""
    stored: pa.Schema
    """The columns that the topic's files contain."""
    wanted: pa.Schema
    """The columns to yield."""
    predicate: Predicate | None = None
    """The rows to yield; None yields all rows."""
    threads: int | None = None
    """The number of files or row groups that are fetched and decoded at once; fewer if they are large. None: the number
    that the object store serves best. 1: the caller's thread does it."""
    rows_read: Callable[[int], object] = lambda rows: None
    """Called with the number of rows of each batch, before the predicate leaves out some of them."""
    file_done: Callable[[FileRows], object] = lambda rows: None
    """Called with the rows of a file after the caller got all of its rows."""


def read_rows(read: PartitionRead) -> Iterator[pa.RecordBatch]:
    """Yield the rows in the order of their offsets.

    A file that is small, or whose columns and rows are all needed, is fetched as a whole and compared with the checksum
    in its entry. Of other files only the ranges of the needed columns are fetched, and the checksums of their pages are
    verified instead.

    Raises:
        CorruptRecord: a file is missing or differs from its entry.
    """
    # The steps of a pool hold all their rows at once, so they decode them as one batch, which costs less.
    reader = _FileReader(read, _ROWS_A_BATCH if read.threads == 1 else _ROWS_A_STEP)
    if read.threads == 1:
        yield from _batches(read, ((step, step.run()) for rows in read.files for step in reader.steps(rows)))
        return
    threads = read.threads or read.store.reads_at_once
    pool = ThreadPoolExecutor(threads)
    try:
        yield from _batches(read, _decoded_ahead(pool, 2 * threads, read.files, reader))
    finally:
        # Do not wait for the threads. Python may collect an abandoned read in any thread and at any point, also where
        # that thread holds a lock that a wait needs: the lock of the interpreter's list of threads.
        pool.shutdown(wait=False, cancel_futures=True)


def _batches(
    read: PartitionRead, steps: Iterable[tuple[_Step, Iterable[tuple[int, pa.RecordBatch]]]]
) -> Iterator[pa.RecordBatch]:
    for step, found in steps:
        for rows, batch in found:
            read.rows_read(rows)
            for first in range(0, batch.num_rows, _ROWS_A_BATCH):
                yield batch.slice(first, _ROWS_A_BATCH)
        if step.completes is not None:
            read.file_done(step.completes)


_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


class _Ahead(Generic[_Task, _Result]):
    """Tasks that run in a pool. Their results are taken in the order of the tasks."""

    def __init__(self, pool: Executor, most: int, run: Callable[[_Task], _Result]) -> None:
        """
        Args:
            most: the largest number of tasks whose results were not taken yet. It is larger than the number of threads,
                so that no thread waits while the caller takes the first result.
        """
        self._pool = pool
        self._most = most
        self._run = run
        self._waiting = deque[tuple[_Task, int, Future[_Result]]]()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first(self) -> Future[_Result]:
        return self._waiting[0][2]

    @property
    def is_ready(self) -> bool:
        """True if the first result is there."""
        return bool(self._waiting) and self.first.done()

    def has_room(self, size: int) -> bool:
        """Return True if a task that needs ``size`` bytes may begin. Large tasks do not run together."""
        return not self._waiting or (len(self._waiting) < self._most and self._bytes + size <= _BYTES_AT_ONCE)

    def add(self, task: _Task, size: int, *, in_pool: bool = True) -> None:
        future = _submitted(self._pool, self._run, task) if in_pool else _done(self._run, task)
        self._waiting.append((task, size, future))
        self._bytes += size

    def take(self) -> tuple[_Task, _Result]:
        """Wait for the first result, and return it with its task."""
        task, size, future = self._waiting.popleft()
        self._bytes -= size
        return task, future.result()


def _decoded_ahead(
    pool: Executor, most: int, files: Iterable[FileRows], reader: _FileReader
) -> Iterator[tuple[_Step, Iterable[tuple[int, pa.RecordBatch]]]]:
    """Yield the steps of files with their batches, in order. Open later files and decode their rows meanwhile.

    Args:
        most: how many files are opened at once, and how many steps are decoded at once.
    """
    opening = _Ahead(pool, most, reader.steps_ahead)
    decoding = _Ahead[_Step, Iterable[tuple[int, pa.RecordBatch]]](
        pool, most, lambda step: list(step.run()) if step.bytes else step.run()
    )
    steps = deque[_Step]()
    rest = iter(files)
    file = next(rest, None)
    while file is not None or opening or steps or decoding:
        if has_begun := file is not None and opening.has_room(size := reader.bytes_to_open(file)):
            opening.add(file, size, in_pool=size > 0)
            file = next(rest, None)
        if not steps and opening.is_ready:
            steps.extend(opening.take()[1])
        while steps and decoding.has_room(steps[0].bytes):
            step = steps.popleft()
            decoding.add(step, step.bytes, in_pool=step.bytes > 0 and not step.is_decoded)
        if decoding.is_ready:
            # The caller gets the first rows now, however long the next file takes to open.
            yield decoding.take()
        elif has_begun:
            continue
        elif steps or not opening:
            yield decoding.take()
        else:
            first: list[Future[Any]] = [each.first for each in (opening, decoding) if each]
            wait(first, return_when=FIRST_COMPLETED)


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
    completes: FileRows | None = None
    """The rows of the file, if this is its last part."""
    is_decoded: bool = False
    """True if its rows are in memory."""


class _FileReader:
    """Reads the files of one read. It holds the parts that are the same for all of them."""

    def __init__(self, read: PartitionRead, batch_rows: int) -> None:
        self._read = read
        self._batch_rows = batch_rows
        """How many rows are decoded at once, at most."""
        predicate, wanted = read.predicate, read.wanted
        extra = [] if predicate is None else [each for each in predicate.columns if each.name not in wanted.names]
        self._columns = pa.schema([*wanted, *extra])
        """The columns to read. Some of them only the predicate uses."""
        self._stored = read.stored
        self._needed = [name for name in self._columns.names if name in read.stored.names]
        # The timestamps that readers of Kafka records get may differ from the timestamps in the file.
        self._may_match = None if predicate is None or predicate.of_records else predicate.may_match

    def bytes_to_open(self, rows: FileRows) -> int:
        """Return how many bytes ``steps_ahead`` fetches, at most."""
        file = self._needed_file(rows)
        if file is None:
            return 0
        is_opened_only = self._is_read_in_ranges(rows, file) and file.length > self._most_bytes
        return END_BYTES if is_opened_only else file.length

    def steps(self, rows: FileRows) -> list[_Step]:
        """Open the file of these rows. Return a step for each row group."""
        file = self._needed_file(rows)
        if file is None:
            return [_Step(lambda: self._filtered(self._without_file(rows)), 0, rows)]
        data_file = self._opened(rows, file)
        in_file, ends = rows.in_file, _ends(rows.batches)
        begins, last_row = in_file.first_row, int(ends[-1])
        in_file_ends = begins + in_file.record_count
        steps = []
        groups = data_file.row_groups(self._may_match if len(in_file) == len(rows.batches) else None)
        for group, size in _together(groups, file.length, rows.file_rows, self._most_bytes):
            last = int(np.searchsorted(begins, group.stop)) - 1
            if last < 0 or in_file_ends[last] <= group.start:
                continue
            first_row, end = max(group.start, int(begins[0])), min(group.stop, last_row)
            # The first row group has the control rows before it, too.
            first = 0 if first_row == begins[0] else int(np.searchsorted(ends, group.start, side="right"))
            run = partial(self._decoded, data_file, rows.only(rows.batches.taken(slice(first, None))), first_row, end)
            steps.append(_Step(run, size))
        if not steps:
            return [_Step(lambda: iter(()), 0, rows)]
        return [*steps[:-1], replace(steps[-1], completes=rows)]

    def steps_ahead(self, rows: FileRows) -> list[_Step]:
        """Return the steps as ``steps`` does. If there is only one, decode it now: it needs no change of threads then.

        An error is raised by the returned step, so the caller gets the rows of earlier files first.
        """
        try:
            steps = self.steps(rows)
            if len(steps) == 1 and 0 < steps[0].bytes <= self.bytes_to_open(rows):
                decoded = list(steps[0].run())
                return [replace(steps[0], run=partial(iter, decoded), is_decoded=True)]
            return steps
        except Exception as error:
            return [_Step(partial(_failed, error), 0)]

    @property
    def _most_bytes(self) -> int:
        """About how many bytes of a file one step should span, if all columns have the same size."""
        return _BYTES_A_STEP * len(self._stored.names) // max(1, len(self._needed))

    def _needed_file(self, rows: FileRows) -> FileReference | None:
        """Return the file of these rows; None if they are known without it."""
        needs_file = len(rows.in_file) and (self._needed or rows.has_gaps)
        return rows.file if needs_file else None

    def _is_read_in_ranges(self, rows: FileRows, file: FileReference) -> bool:
        is_part = self._may_match is not None or len(self._needed) < len(self._stored.names)
        is_whole = file.length <= _LARGEST_WHOLE_BYTES or rows.record_slot is not None
        return is_part and not is_whole and file.footer_crc32c is not None

    def _opened(self, rows: FileRows, file: FileReference) -> DataFile:
        store, slot = self._read.store, NO_SLOT if rows.record_slot is None else rows.record_slot
        stored = self._stored.append(OFFSET_DELTA_COLUMN) if rows.has_gaps else self._stored
        if self._is_read_in_ranges(rows, file):
            end, fetch = read_end(store, file), partial(read_ranges, store, file)
            return DataFile(end, stored, rows.file_rows, name=file.path, fetch=fetch)
        return DataFile(read_file(store, file, slot), stored, rows.file_rows, name=file.path)

    def _decoded(
        self, data_file: DataFile, rows: FileRows, row: int, last_row: int
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        columns = [*self._needed, OFFSET_DELTA_COLUMN.name] if rows.has_gaps else self._needed
        decoded = data_file.batches(columns, row, last_row - row, batch_rows=self._batch_rows)
        return self._filtered(self._with_metadata(decoded, rows, row))

    def _filtered(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
        for batch in batches:
            if self._read.predicate is None:
                yield batch.num_rows, batch
            else:
                matching = batch.filter(is_wanted(self._read.predicate, batch))
                yield batch.num_rows, matching.select(self._read.wanted.names)

    def _with_metadata(self, decoded: Iterator[pa.RecordBatch], rows: FileRows, row: int) -> Iterator[pa.RecordBatch]:
        """Yield the planned rows that lie in decoded rows, and the control rows between them.

        Rows of a file are in the order of their offsets, so one pass over the file is enough.

        Args:
            row: the number of the first decoded row in the file.
        """
        batches, ends = rows.batches, _ends(rows.batches)
        # A control row comes with the row before it.
        begins = np.where(batches.is_in_file, batches.first_row, ends - 1)
        first = 0
        for batch in decoded:
            end = row + batch.num_rows
            last = int(np.searchsorted(begins, end))
            if first < last:
                found = _decoded_rows(rows, batches.taken(slice(first, last)), batch, row)
                if found.positioned.row_count:
                    yield self._with_columns(found.rows, found.positioned)
                # The next decoded rows may have more rows of the last batch.
                first = last - 1 if ends[last - 1] > end else last
            row = end

    def _with_columns(self, batch: pa.RecordBatch, positioned: PositionedRows) -> pa.RecordBatch:
        columns = []
        for field in self._columns:
            if field.name not in batch.schema.names or field.name == OFFSET_DELTA_COLUMN.name:
                column = self._metadata(field, positioned)
            else:
                column = _stored_column(field, batch, self._stored)
                if self._stored is RECORDS_SCHEMA and field.name == "timestamp" and column.null_count:
                    column = pc.coalesce(column, self._metadata(field, positioned))
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self._columns)

    def _metadata(self, field: Any, positioned: PositionedRows) -> Any:
        return metadata_column(field, self._read.topic, self._read.partition, positioned)

    def _without_file(self, rows: FileRows) -> Iterator[pa.RecordBatch]:
        """Yield rows that need no file: control rows, and rows of which only metadata columns are wanted.

        A control row of a topic of Kafka records has a timestamp. All its other stored columns are null.
        """
        null = set(self._stored.names) - ({"timestamp"} if self._stored is RECORDS_SCHEMA else set())
        rest = rows
        while rest.record_count:
            some, rest = rest.cut(min(_ROWS_A_BATCH, rest.record_count))
            positioned = PositionedRows(some.batches, some.batches.record_count, some.batches.base_offset)
            columns = [
                pa.nulls(positioned.row_count, field.type) if field.name in null else self._metadata(field, positioned)
                for field in self._columns
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=self._columns)


def _failed(error: Exception) -> Iterator[tuple[int, pa.RecordBatch]]:
    raise error


def _together(groups: Iterable[RowGroup], length: int, file_rows: int, most_bytes: int) -> list[tuple[range, int]]:
    """Join neighboring row groups as long as they do not have too many bytes. Return their rows and bytes.

    The number of bytes is about the size in the file. It is larger if the rows are compressed very well.

    Args:
        length: the size of the file (bytes).
        file_rows: the number of rows of the file.
    """
    joined: list[tuple[range, int]] = []
    for rows, decoded_bytes in groups:
        size = max(1, length * len(rows) // max(1, file_rows), decoded_bytes // _USUAL_COMPRESSION)
        if joined and joined[-1][0].stop == rows.start and joined[-1][1] + size <= most_bytes:
            before, bytes_before = joined[-1]
            joined[-1] = range(before.start, rows.stop), bytes_before + size
        else:
            joined.append((rows, size))
    return joined


def _ends(batches: BatchRows) -> Numbers:
    """For each batch, return the end of its rows in the file (exclusive). A control row ends with the batch before."""
    return np.maximum.accumulate(np.where(batches.is_in_file, batches.first_row + batches.record_count, 0))


class _DecodedRows(NamedTuple):
    """The planned rows of a decoded batch, and the control rows between them."""

    rows: pa.RecordBatch
    """The stored columns. They are null for a control row."""
    positioned: PositionedRows


def _decoded_rows(rows: FileRows, batches: BatchRows, decoded: pa.RecordBatch, row: int) -> _DecodedRows:
    """Return the planned rows that a decoded batch holds.

    Args:
        batches: the batches of ``rows`` that overlap the decoded batch.
        row: the number of the first decoded row in the file.

    Raises:
        CorruptRecord: the offsets in the file do not increase.
    """
    in_file = batches.is_in_file
    first = np.where(in_file, np.maximum(batches.first_row, row), row)
    end = np.where(in_file, np.minimum(batches.first_row + batches.record_count, row + decoded.num_rows), row + 1)
    counts = np.maximum(end - first, 0)
    skipped = np.where(in_file, first - batches.first_row, 0)
    positioned = PositionedRows(batches, counts, batches.base_offset + skipped)
    if batches.has_gaps.any():
        return _rows_with_gaps(rows, decoded, positioned, positioned.counted_from(first - row))
    if in_file.all() and (first[1:] == end[:-1]).all():
        # Most files are read here. An array with a number for each row would cost more than their decoding.
        return _DecodedRows(decoded.slice(int(first[0]) - row, positioned.row_count), positioned)
    return _DecodedRows(_taken(decoded, positioned.counted_from(first - row), positioned), positioned)


def _rows_with_gaps(
    rows: FileRows, decoded: pa.RecordBatch, positioned: PositionedRows, numbers: Numbers
) -> _DecodedRows:
    """Return planned rows that have their offsets in the file, without rows outside of the wanted offsets.

    Args:
        numbers: the number of each row in the decoded batch.
    """
    batches, batch_of_row = positioned.batches, positioned.batch_of_row
    has_gaps = batches.has_gaps[batch_of_row]
    in_file_offsets = decoded.column(OFFSET_DELTA_COLUMN.name).to_numpy()[numbers] + rows.file_base_offset
    offsets = np.where(has_gaps, in_file_offsets, positioned.offsets)
    is_same_batch = batch_of_row[1:] == batch_of_row[:-1]
    if (is_same_batch & (offsets[1:] <= offsets[:-1])).any():
        path = "" if rows.file is None else rows.file.path
        raise CorruptRecord(f"{path}: the offsets of its rows do not increase")
    begins, ends = batches.base_offset[batch_of_row], batches.end_offset[batch_of_row]
    kept = ~has_gaps | ((begins <= offsets) & (offsets < ends))
    batch_of_row, numbers, offsets = batch_of_row[kept], numbers[kept], offsets[kept]
    counts = np.bincount(batch_of_row, minlength=len(batches))
    found = PositionedRows(batches, counts, batches.base_offset, batch_of_row=batch_of_row, offsets=offsets)
    return _DecodedRows(_taken(decoded, numbers, found), found)


def _taken(decoded: pa.RecordBatch, numbers: Numbers, positioned: PositionedRows) -> pa.RecordBatch:
    """Return rows of a decoded batch, with nulls for control rows. Nothing is copied if the rows are adjacent."""
    is_control = ~positioned.batches.is_in_file[positioned.batch_of_row]
    if len(numbers) and not is_control.any() and numbers[-1] - numbers[0] + 1 == len(numbers):
        return decoded.slice(int(numbers[0]), len(numbers))
    indices: Any = pa.array(numbers, mask=is_control)
    return decoded.take(indices)


def _stored_column(field: Any, batch: pa.RecordBatch, stored: pa.Schema) -> Any:
    column = batch.column(field.name)
    if column.type == field.type:
        return column
    if stored is RECORDS_SCHEMA and field.name == "timestamp":
        return shown_times(column, field.type)
    return column.cast(field.type)
