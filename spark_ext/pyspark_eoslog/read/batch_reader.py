"""The batch reader. It is planned once on one consistent state; its tasks fetch files and never read the log."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from eoslog import IsolationLevel, Store, TopicPartition
from eoslog.errors import InvalidOption, OffsetOutOfRange
from eoslog.format.topic_schemas import RECORDS_SCHEMA, decode_schema, stored_schema
from eoslog.read.consistent_ends import transaction_consistent_ends
from eoslog.read.latest_rows import read_latest
from eoslog.read.read_request import ReadRequest
from eoslog.read.row_reader import PartitionRead, read_rows
from eoslog.read.time_travel import check_created, resolve
from eoslog.read.topics_snapshot import TopicsSnapshot, topics_snapshot
from pyspark_eoslog.options import Options, StoreLocation
from pyspark_eoslog.options.offset_options import EARLIEST, EARLIEST_OFFSET, LATEST, LATEST_OFFSET, resolve_offsets
from pyspark_eoslog.read.packing import Piece, pack, piece_of
from pyspark_eoslog.spark_schemas import ReadColumns, check_agreement, choose_columns
from pyspark_eoslog.worker import object_store, plain_errors, verified_store

_logger = logging.getLogger(__name__)
STREAM_OPTIONS = (
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "maxFilesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "groupId",
)
"""Options of streams alone."""

_LARGE_BYTES = 64 << 20
"""A read of fewer bytes takes about a second, so it is not worth a warning."""
_FEW_FILES = 4
"""A read of this number of files or fewer is not worth a hint."""
_hinted = threading.Event()
"""Set when this process has logged the hint."""


@dataclass(frozen=True, slots=True)
class ReadPartition(InputPartition):
    """The input of one task."""

    pieces: tuple[tuple[Piece, ReadColumns], ...]


def read_partitions(
    snapshot: TopicsSnapshot, schema: StructType, pieces: Sequence[Piece], options: Options
) -> list[InputPartition]:
    """Return the packed pieces, each with the columns to read.

    Raises:
        InvalidOption: option ``columns`` and a user's schema do not agree.
        SchemaMismatch: a topic has no such column, or not as this type.
    """
    check_agreement(options.columns, schema)
    columns = {
        selected.topic.topic: choose_columns(selected.topic, schema, control_rows=options.include_control_rows)
        for selected in snapshot.topics
    }
    if options.latest_by_key:
        # Only a task that reads all keys of a partition knows which rows are the newest.
        parts: list[tuple[Piece, ...]] = [(piece,) for piece in pieces if piece.files]
    else:
        parts = pack(pieces, options.min_partitions, options.max_records_per_partition)
    return [ReadPartition(tuple((piece, columns[piece.topic]) for piece in part)) for part in parts]


def read_task(location: StoreLocation, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task. Spark passes an empty ``InputPartition`` if nothing was planned."""
    if not isinstance(partition, ReadPartition):
        return
    with plain_errors():
        store = object_store(location)
        for piece, columns in partition.pieces:
            stored = RECORDS_SCHEMA if piece.stored is None else decode_schema(piece.stored)
            read = PartitionRead(
                store=store,
                topic=piece.topic,
                partition=piece.partition,
                files=piece.files,
                stored=stored,
                wanted=columns.source,
                predicate=piece.predicate,
            )
            for batch in read_rows(read) if piece.latest is None else read_latest(read, piece.latest):
                yield columns.convert(batch)


class EosLogReader(DataSourceReader):
    """Reads the rows that were visible when Spark planned the first action on the DataFrame."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        with plain_errors():
            _check_options(self._options)
            return self._plan()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self._options.location, partition)

    def _plan(self) -> list[InputPartition]:
        options = self._options
        store = verified_store(options.location)
        snapshot = topics_snapshot(store, options.topics_to_read())
        if options.isolation is IsolationLevel.READ_COMMITTED and snapshot.abort_overdue(store):
            snapshot = topics_snapshot(store, options.topics_to_read(), refresh=False)
        as_of = resolve(
            options.slot,
            options.timestamp_ms,
            newest_slot=snapshot.slot,
            log_time_ms=snapshot.time_ms,
            now_ms=store.now_ms(),
        )
        # A pattern names no topic, so topics that match it and were created later have no rows instead.
        if options.topics.pattern is None:
            for selected in snapshot.topics:
                check_created(selected.topic, as_of)
        starts, ends = _ranges(store, snapshot, options)
        request = ReadRequest(
            isolation=options.isolation,
            as_of=as_of,
            control_rows=options.include_control_rows,
            predicate=options.predicate,
            latest_by_key=options.latest_by_key,
        )
        pieces = []
        for selected in snapshot.topics:
            read = request.of_topic(store.indexes, selected.topic)
            for key, partition in selected.by_topic_partition().items():
                plan = read.planner.plan(partition, starts[key], ends[key])
                pieces.append(piece_of(selected.topic, plan, read))
        self._tell_of_faster_reads(snapshot, pieces)
        return read_partitions(snapshot, self._schema, pieces, options)

    def _tell_of_faster_reads(self, snapshot: TopicsSnapshot, pieces: Sequence[Piece]) -> None:
        """Name the ways to a faster read. Spark does not tell a Python data source what the query needs."""
        options = self._options
        lengths = {
            each.file.path: each.file.length for piece in pieces for each in piece.files if each.file is not None
        }
        size, topics = sum(lengths.values()), ", ".join(sorted({piece.topic for piece in pieces}))
        all_columns = self._reads_all_columns(snapshot)
        if options.predicate is None and all_columns and size >= _LARGE_BYTES:
            _logger.warning(
                'format("eoslog") reads all columns of all rows of %s (%d MiB), also for count(), select and where. '
                "Spark passes neither columns nor filters to a Python data source. "
                "EosLogTable.forPath(spark, root, topic).toDF() reads only what the query needs. "
                "Or give the options columns= and predicate=.",
                topics,
                size >> 20,
            )
        elif len(lengths) > _FEW_FILES and not _hinted.is_set():
            ways = [
                *(["option columns= reads only the columns that it names"] if all_columns else []),
                *(["option predicate= skips files and rows"] if options.predicate is None else []),
                *(["EosLogTable.forPath(spark, root, topic).toDF() does both by itself"] if self._is_native() else []),
            ]
            if ways:
                _hinted.set()
                _logger.info(
                    'format("eoslog") reads %d files of %s. Spark passes neither columns nor filters to a Python data '
                    "source. What makes the read faster: %s.",
                    len(lengths),
                    topics,
                    "; ".join(ways),
                )

    def _is_native(self) -> bool:
        """Return True if ``EosLogTable.toDF`` can read the same rows: of one topic, without columns of the log."""
        options = self._options
        is_one = options.topics.pattern is None and len(options.topics.names) == 1
        return is_one and not (options.include_control_rows or options.include_transaction_columns)

    def _reads_all_columns(self, snapshot: TopicsSnapshot) -> bool:
        names = {name.lower() for name in self._schema.names}
        return any(
            names.issuperset(map(str.lower, stored_schema(selected.topic).names)) for selected in snapshot.topics
        )


def _ranges(
    store: Store, snapshot: TopicsSnapshot, options: Options
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return the first offset and the end (exclusive) of each partition.

    Raises:
        OffsetOutOfRange: a partition does not have what is asked for; the message says what it has.
    """
    starting, ending = options.starting_offsets or EARLIEST, options.ending_offsets or LATEST
    starts = resolve_offsets(store, starting, snapshot, isolation=options.isolation, option_name="startingOffsets")
    ends = resolve_offsets(store, ending, snapshot, isolation=options.isolation, option_name="endingOffsets")
    partitions = snapshot.partitions()
    for key, partition in partitions.items():
        held = range(partition.log_start_offset, partition.high_watermark)
        starts[key] = _start(key, held, starts[key], options)
        ends[key] = _end(key, held, starts[key], end=ends[key], options=options)
    if options.transaction_consistent:
        last = {
            key: max(starts[key], min(ends[key], partition.last_stable_offset)) for key, partition in partitions.items()
        }
        ends = transaction_consistent_ends(store.indexes, partitions, starts, last)
    return starts, ends


def _start(key: TopicPartition, held: range, start: int, options: Options) -> int:
    first, name = held.start, f"{key.topic}-{key.partition}"
    if start > held.stop:
        raise OffsetOutOfRange(
            f"option 'startingOffsets' begins partition {name} at offset {start}, but it ends at "
            f"{held.stop}. Begin at {first} (or -2, the earliest) to {held.stop}"
        )
    if start < first and options.fail_on_data_loss:
        raise OffsetOutOfRange(
            f"partition {name} begins at offset {first}: {first - start} offsets from {start} on were deleted before "
            f"they were read. Begin at {first} (or -2, the earliest), or go on without them with option "
            "failOnDataLoss=false"
        )
    return max(start, first)


def _end(key: TopicPartition, held: range, start: int, *, end: int, options: Options) -> int:
    name = f"{key.topic}-{key.partition}"
    if end > held.stop and options.fail_on_data_loss:
        raise OffsetOutOfRange(
            f"option 'endingOffsets' ends partition {name} at offset {end}, but it ends at {held.stop}. "
            "End there (or at -1, the latest), or read what there is with option failOnDataLoss=false"
        )
    # A default end may lie before the start: at an open transaction, or where rows were deleted.
    given = options.ending_offsets
    if isinstance(given, dict):
        given = given[key.topic][key.partition]
    chosen = given not in (None, LATEST, LATEST_OFFSET)
    if end < start and chosen and (options.fail_on_data_loss or end >= held.start):
        raise OffsetOutOfRange(f"partition {name} is to end at offset {end}, before its start {start}")
    return max(start, min(end, held.stop))


def _check_options(options: Options) -> None:
    options.check_consistent_end()
    if options.latest_by_key:
        options.refuse(
            ("includeControlRows", "minPartitions", "maxRecordsPerPartition"),
            "does not go with option 'latestByKey': control rows have no key, and one task reads each topic partition. "
            "Leave one out",
        )
    for name, offsets, nothing, offset, instead in (
        ("startingOffsets", options.starting_offsets, LATEST, LATEST_OFFSET, EARLIEST),
        ("endingOffsets", options.ending_offsets, EARLIEST, EARLIEST_OFFSET, LATEST),
    ):
        each = [number for parts in offsets.values() for number in parts.values()] if isinstance(offsets, dict) else []
        if offsets == nothing or offset in each:
            raise InvalidOption(
                f"option {name!r} is {nothing!r}, with which a batch would read nothing. Use {instead!r}"
            )
    ignored = [name for name in STREAM_OPTIONS if name in options.given]
    if ignored:
        _logger.warning("a batch is read as a whole; ignored, as they are for readStream: %s", ", ".join(ignored))
    travels = options.slot is not None or options.timestamp_ms is not None
    if travels and options.isolation is not IsolationLevel.SNAPSHOT:
        raise InvalidOption(
            "options 'slot', 'versionAsOf' and 'timestampAsOf' need option 'isolationLevel' to be 'snapshot'"
        )
