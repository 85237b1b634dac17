"""The columnar scan: a topic's visible rows as Arrow, from one consistent state; and the progress of a read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from eoslog.arguments import is_whole_number
from eoslog.errors import InvalidOption
from eoslog.format.partitioner import RowKeys
from eoslog.format.topic_schemas import stored_schema
from eoslog.read.columns import choose_columns, default_columns, with_control_rows
from eoslog.read.consistent_ends import transaction_consistent_ends
from eoslog.read.embedded_files import embedded_file_of, put_embedded_files
from eoslog.read.file_rows import FileRows
from eoslog.read.isolation import IsolationLevel
from eoslog.read.latest_rows import read_latest
from eoslog.read.planner import PartitionPlan, check_offset
from eoslog.read.predicate import Predicate
from eoslog.read.read_request import ReadRequest
from eoslog.read.row_reader import PartitionRead, read_rows
from eoslog.read.time_travel import AsOf, check_created, resolve, timestamp_ms
from eoslog.session.serializers import check_callable
from eoslog.session.session import Session, check_partition
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import Partition
from eoslog.state.partitions import partition_of
from eoslog.state.store_state import StoreState, Topic
from eoslog.state.topics import topic_named
from eoslog.storage.calls import ExclusiveIterator
from eoslog.storage.object_store import ObjectStore
from eoslog.wording import quoted, shortened

if TYPE_CHECKING:
    import pandas
    import polars


@dataclass(frozen=True, slots=True)
class RowRange:
    """Consecutive rows of a data file."""

    first_row: int
    """The number of the first row in the file, counted from 0."""
    row_count: int
    base_offset: int | None
    """The offset of the first row; the next rows have the next offsets. None if compaction left gaps: then the offsets
    are in the file's column ``_offset``, and the scan may want fewer of these rows."""


@dataclass(frozen=True, slots=True)
class ScanFile:
    """A data file with rows of a scan, for readers that open files themselves."""

    path: str
    """The path below the store's root."""
    url: str
    """The path for other programs: below the URL of the store."""
    length: int
    """The size in bytes."""
    rows: int
    """The number of rows in the file. Only the rows of ``ranges`` belong to the scan."""
    partition: int
    ranges: tuple[RowRange, ...]


class Scan:
    """A planned read. Each run yields the same rows. Several threads may run it at once.

    It has Arrow's stream interface, so it can be given to pandas, Polars, DuckDB and DataFusion as it is.
    """

    def __init__(
        self,
        store: Session,
        plans: Sequence[PartitionPlan],
        stored: pa.Schema,
        *,
        columns: pa.Schema,
        slot: int,
        as_of: AsOf | None = None,
        predicate: Predicate | None = None,
        latest: RowKeys | None = None,
    ) -> None:
        self._store = store.object_store
        self._call_counts = store.call_counts
        self._stored = stored
        self._predicate = predicate
        self._most_rows: int | None = None
        self._latest = latest
        self.plans = tuple(plans)
        self.schema = columns
        self.slot = slot
        """The slot of the log whose state the plan used."""
        self.as_of = as_of
        """The end of the snapshot if a slot or a timestamp was chosen. Later scans at this end find the same rows."""

    def __repr__(self) -> str:
        columns = shortened(", ".join(self.schema.names))
        return f"Scan({self._store.url!r}, slot={self.slot}, record_count={self.record_count}, columns=[{columns}])"

    @property
    def record_count(self) -> int:
        """The number of rows. It is known without reading files. It is an upper bound if the scan has a predicate or
        ``latest_by_key``, or if its range cuts a compacted batch."""
        rows = sum(plan.record_count for plan in self.plans)
        return rows if self._most_rows is None else min(rows, self._most_rows)

    def limit(self, rows: int) -> Scan:
        """Return a scan of the first rows of this one, in the order of ``to_batches``.

        Args:
            rows: how many rows at most.

        Raises:
            InvalidOption: it is not a whole number of 0 or more.
        """
        if not is_whole_number(rows) or rows < 0:
            raise InvalidOption(f"limit is {quoted(rows)}; it must be a whole number, 0 or more")
        most = rows if self._most_rows is None else min(rows, self._most_rows)
        limited = copy(self)
        limited._most_rows = most
        return limited

    def to_batches(self, *, progress: Callable[[Progress], object] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows by partition, and by offset within a partition. Only one thread at a time may iterate.

        Args:
            progress: called with the progress of the read before each batch and after each file. With
                ``latest_by_key`` it counts the first pass, which reads the keys of all rows.

        Raises:
            CorruptRecord: a file is missing or differs from its entry.
            StoreUnavailable
            ConcurrentAccess: another thread advances the iterator.
        """
        check_callable("progress", progress)
        return ExclusiveIterator(self._batches(progress))

    def _batches(self, progress: Callable[[Progress], object] | None) -> Iterator[pa.RecordBatch]:
        told = _ProgressReport(progress, self.plans)
        left = self._most_rows
        for plan in self.plans:
            if left == 0:
                return
            read = PartitionRead(
                store=self._store,
                topic=plan.topic,
                partition=plan.partition,
                files=self._files(plan, left),
                stored=self._stored,
                wanted=self.schema,
                predicate=self._predicate,
                rows_read=told.rows_read,
                file_done=told.file_done,
            )
            batches = read_rows(read) if self._latest is None else read_latest(read, self._latest)
            for batch in self._call_counts.read(plan.topic, batches):
                if left is None:
                    yield batch
                    continue
                yield batch.slice(0, left)
                left -= min(left, batch.num_rows)
                if left == 0:
                    return

    def _files(self, plan: PartitionPlan, most_rows: int | None) -> Iterable[FileRows]:
        if most_rows is None or self._predicate is not None or self._latest is not None:
            return plan.rows
        return _first(plan.rows, most_rows)

    def to_table(self, *, progress: Callable[[Progress], object] | None = None) -> pa.Table:
        """Return all rows in the order of ``to_batches``. ``progress`` is called as there."""
        return pa.Table.from_batches(self.to_batches(progress=progress), schema=self.schema)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the rows in the order of ``to_batches``. It reads files while the caller takes batches."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as Arrow's C stream, a capsule. Each call begins a new read."""
        reader: Any = self.to_reader()
        return reader.__arrow_c_stream__(requested_schema)

    def to_pandas(self, **options: Any) -> pandas.DataFrame:
        """Return all rows. The options are those of ``pyarrow.Table.to_pandas``. It needs pandas."""
        return self.to_table().to_pandas(**options)

    def to_polars(self) -> polars.DataFrame:
        """Return all rows. It needs Polars. ``eoslog.polars.scan_topic`` returns a lazy frame."""
        import polars

        return polars.DataFrame(self.to_table())

    def files(self) -> list[ScanFile]:
        """Return the data files that hold the scan's rows, in the order of ``to_batches``.

        Other programs can read them: files in records and shared objects are put as objects first. No other file is
        fetched.

        If the scan has a predicate, its files may hold rows that do not match.

        Raises:
            InvalidOption: the scan has ``latest_by_key``. Only the rows themselves show which ones are the newest.
            StoreAccessDenied: rows are in records or shared objects, and this process may not put them as files.
            CorruptRecord: a record or a shared object lacks its rows.
        """
        found = self._rows_by_file()
        put_embedded_files(self._store, filter(None, (embedded_file_of(rows) for _, rows in found)))
        return [_scan_file(self._store, partition, rows) for partition, rows in found]

    def planned_files(self) -> list[ScanFile]:
        """Return the files as ``files`` does, and put none. A file may not exist as an object."""
        return [_scan_file(self._store, partition, rows) for partition, rows in self._rows_by_file()]

    def _rows_by_file(self) -> list[tuple[int, FileRows]]:
        """Return the rows of each data file, with the partition."""
        if self._latest is not None:
            raise InvalidOption(
                "the files of a scan with latest_by_key hold older rows too. Read its rows, for example with to_table()"
            )
        found = []
        left = self._most_rows
        for plan in self.plans:
            for rows in self._files(plan, left):
                if left is not None and self._predicate is None:
                    _, left = rows.first(left)
                if len(rows.in_file):
                    found.append((plan.partition, rows))
        return found


def _scan_file(store: ObjectStore, partition: int, rows: FileRows) -> ScanFile:
    assert rows.file is not None
    batches = rows.in_file
    columns = (batches.first_row, batches.record_count, batches.base_offset, batches.has_gaps)
    return ScanFile(
        path=rows.file.path,
        url=f"{store.url}/{rows.file.path}",
        length=rows.file.length,
        rows=rows.file_rows,
        partition=partition,
        ranges=tuple(
            RowRange(first_row, row_count, None if has_gaps else base_offset)
            for first_row, row_count, base_offset, has_gaps in zip(*(each.tolist() for each in columns), strict=True)
        ),
    )


def _first(files: Iterable[FileRows], rows: int) -> Iterator[FileRows]:
    """Yield the first rows; see ``FileRows.first``."""
    for each in files:
        if rows == 0:
            return
        first, rows = each.first(rows)
        yield first


def plan_scan(
    store: Session,
    topic: str,
    isolation_level: str | IsolationLevel | None,
    *,
    columns: Sequence[str] | None,
    partitions: Sequence[int] | None,
    starting_offsets: Mapping[int, int],
    ending_offsets: Mapping[int, int],
    slot: int | None,
    timestamp: datetime | int | str | None,
    transaction_consistent: bool,
    include_control_rows: bool,
    predicate: str | None,
    latest_by_key: bool,
) -> Scan:
    """Plan a scan; see ``Store.scan``."""
    if latest_by_key and include_control_rows:
        raise InvalidOption("control rows have no key: give either latest_by_key or include_control_rows, not both")
    travels = slot is not None or timestamp is not None
    if isolation_level is None:
        isolation_level = IsolationLevel.SNAPSHOT if travels else IsolationLevel.READ_COMMITTED
    isolation = IsolationLevel.of(isolation_level)
    if travels and isolation is not IsolationLevel.SNAPSHOT:
        raise InvalidOption("a slot or a timestamp can be chosen with isolation level 'snapshot' only")
    if transaction_consistent and isolation is not IsolationLevel.READ_COMMITTED:
        raise InvalidOption(
            "transaction_consistent needs isolation level 'read_committed'. A snapshot never splits a transaction"
        )
    time_ms = None if timestamp is None else timestamp_ms(timestamp)

    def snapshot(state: StoreState, newest: int) -> tuple[Topic, list[Partition], int, int]:
        topic_state = topic_named(state, topic)
        chosen = range(topic_state.partitions) if partitions is None else partitions
        if not isinstance(chosen, Iterable) or isinstance(chosen, str):
            raise InvalidOption(f"partitions are a list of numbers, as [0, 2], not {quoted(chosen)}")
        numbers = dict.fromkeys(check_partition(topic_state, each) for each in chosen)
        found = [partition_of(state, PartitionId(topic_state.topic_id, each)) for each in numbers]
        _check_offsets(topic_state, "starting_offsets", starting_offsets)
        _check_offsets(topic_state, "ending_offsets", ending_offsets)
        return topic_state, found, newest, state.time_ms

    def is_held_back(found_state: tuple[Topic, list[Partition], int, int]) -> bool:
        return isolation is IsolationLevel.READ_COMMITTED and any(
            partition.is_held_back for partition in found_state[1]
        )

    topic_state, found, newest, log_time_ms = store.overdue_transactions.read_unblocked(snapshot, is_held_back)
    as_of = resolve(slot, time_ms, newest_slot=newest, log_time_ms=log_time_ms, now_ms=store.now_ms())
    check_created(topic_state, as_of)
    wanted = _columns(topic_state, columns, include_control_rows)
    request = ReadRequest(
        isolation=isolation,
        as_of=as_of,
        control_rows=include_control_rows,
        predicate=predicate,
        latest_by_key=latest_by_key,
    )
    read = request.of_topic(store.indexes, topic_state)
    if transaction_consistent:
        ending_offsets = _consistent_ends(store, topic, found, starts=starting_offsets, ends=ending_offsets)
    plans = [
        read.planner.plan(each, starting_offsets.get(each.id.partition), ending_offsets.get(each.id.partition))
        for each in found
    ]
    stored = stored_schema(topic_state)
    return Scan(
        store, plans, stored, columns=wanted, slot=newest, as_of=as_of, predicate=read.predicate, latest=read.latest
    )


def _check_offsets(topic: Topic, option: str, offsets: object) -> None:
    if not isinstance(offsets, Mapping):
        raise InvalidOption(f"{option} are offsets by partition, such as {{0: 100}}, not {quoted(offsets)}")
    for partition, offset in offsets.items():
        check_partition(topic, partition)
        if not is_whole_number(offset):
            raise InvalidOption(f"{option} of partition {topic.topic}-{partition} is an offset, not {quoted(offset)}")


def _consistent_ends(
    store: Session, topic: str, partitions: Sequence[Partition], *, starts: Mapping[int, int], ends: Mapping[int, int]
) -> dict[int, int]:
    by_number = {partition.id.partition: partition for partition in partitions}
    for number, partition in by_number.items():
        check_offset(topic, partition, starts.get(number, partition.log_start_offset))
    return transaction_consistent_ends(
        store.indexes,
        by_number,
        {number: starts.get(number, partition.log_start_offset) for number, partition in by_number.items()},
        {
            number: min(partition.last_stable_offset, ends.get(number, partition.last_stable_offset))
            for number, partition in by_number.items()
        },
    )


def _columns(topic: Topic, names: Sequence[str] | None, include_control_rows: bool) -> pa.Schema:
    if names is not None:
        chosen = choose_columns(topic, names)
    else:
        chosen = default_columns(topic, transaction=include_control_rows)
    return with_control_rows(chosen) if include_control_rows else chosen


@dataclass(frozen=True, slots=True)
class Progress:
    """The finished work and its total. A total is None if it is unknown."""

    rows: int
    """The number of rows, including rows that a predicate filters out."""
    total_rows: int | None
    """For a read it is an upper bound: a range may cut a compacted batch, whose rows are counted only when read."""
    bytes: int
    """The total size of the finished files."""
    total_bytes: int | None
    files: int
    total_files: int | None


class _ProgressReport:
    """Reports progress to a caller's function, if there is one."""

    def __init__(self, progress: Callable[[Progress], object] | None, plans: Sequence[PartitionPlan]) -> None:
        self._tell = progress
        self._so_far = Progress(rows=0, total_rows=None, bytes=0, total_bytes=None, files=0, total_files=None)
        if progress is not None:
            lengths = [rows.file.length for plan in plans for rows in plan.rows if rows.file is not None]
            self._so_far = Progress(
                rows=0,
                total_rows=sum(plan.record_count for plan in plans),
                bytes=0,
                total_bytes=sum(lengths),
                files=0,
                total_files=len(lengths),
            )

    def rows_read(self, rows: int) -> None:
        self._report(rows=self._so_far.rows + rows)

    def file_done(self, rows: FileRows) -> None:
        # Control rows without a file do not count as a file.
        length, count = (0, 0) if rows.file is None else (rows.file.length, 1)
        self._report(bytes=self._so_far.bytes + length, files=self._so_far.files + count)

    def _report(self, **counts: int) -> None:
        if self._tell is not None:
            self._so_far = replace(self._so_far, **counts)
            self._tell(self._so_far)
