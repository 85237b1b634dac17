"""The stream reader that Spark calls: the start of a stream, the end of its next micro-batch, and its files.

Spark may plan a micro-batch again, for example after a restart. Each planning finds the same files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from eoslog import IsolationLevel, Store, TopicPartition
from eoslog.errors import EosLogError, InvalidOption, OffsetOutOfRange, StoreUnavailable, UnknownTopicOrPartition
from eoslog.format.segment_index import SegmentIndexes
from eoslog.read.consistent_ends import transaction_consistent_ends
from eoslog.read.read_request import ReadRequest
from eoslog.read.topics_snapshot import TopicsSnapshot
from pyspark_eoslog.options import Options
from pyspark_eoslog.options.offset_options import EARLIEST, LATEST, resolve_offsets
from pyspark_eoslog.pyspark_version import is_at_least, needs
from pyspark_eoslog.read.batch_reader import read_partitions, read_task
from pyspark_eoslog.read.packing import Piece, piece_of
from pyspark_eoslog.spark_schemas import choose_columns
from pyspark_eoslog.stream.data_loss import DataLoss, carried_over, check_removed, first_offset
from pyspark_eoslog.stream.group_progress import GroupProgress
from pyspark_eoslog.stream.log_follower import LogFollower
from pyspark_eoslog.stream.next_end import Limits, NextEnd, starts_of, visible_offsets
from pyspark_eoslog.stream.read_limits import ReadLimit, SupportsTriggerAvailableNow
from pyspark_eoslog.stream.stream_offsets import BEFORE_ALL_SLOTS, Began, StreamOffsets, check_joined, check_origin
from pyspark_eoslog.worker import patiently, plain_errors

_OF_BATCHES = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
_ADMISSION_CONTROL = (
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "maxFilesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "transactionConsistent",
)
"""Options that need the start of a micro-batch when its end is chosen."""
_FORGET_IT = "also delete the newest file in the directory 'offsets' of the checkpoint"
_BACKWARDS = (
    "The store has lost rows, or an earlier run read further with another isolation level. Restore the store or use "
    f"that level, and {_FORGET_IT}. Or give a new checkpointLocation"
)
_OF_OFFSETS = (
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "assign",
    "groupId",
)


class EosLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream of topics. Spark makes several readers, so a reader sends no request before the first call."""

    def __init__(self, options: Options, schema: StructType) -> None:
        with plain_errors():
            check_stream_options(options)
            self._follower = LogFollower(options)
        self._options = options
        self._schema = schema
        self._loss = DataLoss(fail=options.fail_on_data_loss)
        self._limits = Limits(
            options.max_offsets_per_trigger,
            options.max_bytes_per_trigger,
            options.max_files_per_trigger,
            options.min_offsets_per_trigger,
        )
        self._next_end = NextEnd(options, self._loss)
        self._progress = GroupProgress(options.group_id)
        self._initial: StreamOffsets | None = None
        self._newest: StreamOffsets | None = None
        self._began: Began | None = None
        """The starts of the stream's first micro-batch, for PySpark before 4.2."""
        self._start_error: EosLogError | None = None
        """The error that prevents starts. A stream with a checkpoint needs no starts."""
        self._is_frozen = False

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the start of a stream without a checkpoint. Spark asks twice, so the answer is kept."""
        with plain_errors():
            if self._start_error is not None:
                # The end of the first micro-batch was chosen without starts, so a later start may lie beyond it.
                raise self._start_error
            if self._initial is None:
                self._initial = patiently(lambda: self._first_offsets(self._follower.newest()))
            return self._initial.as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return self._limits.default_read_limit()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the stream at the current end. Later topics and partitions are not read."""
        with plain_errors():
            self._newest = patiently(lambda: visible_offsets(self._follower.newest(), self._options.isolation))
            self._is_frozen = True

    def latestOffset(self, start: Any = None, limit: ReadLimit | None = None) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next micro-batch; ``start`` itself if there is nothing new, or not enough yet.

        After such an answer Spark asks again at once. So an idle stream waits here, for at most a second.

        Args:
            start: the end of the last micro-batch. PySpark before 4.2 passes neither it nor the limit.
        """
        with plain_errors():
            if not self._is_frozen:
                patiently(self._follower.wait)
            if start is None or limit is None:
                return patiently(self._end_without_start).as_json()
            begin = StreamOffsets.of(start)
            # Spark asks for the next end only after it has recorded the end of the last micro-batch. It calls
            # ``commit`` later, with the next micro-batch.
            self._progress.show(lambda: self._follower.store, begin)
            end = patiently(lambda: self._end_after(begin, limit))
            self._follower.found(end != begin)
            answer: dict[str, Any] = start if end == begin else end.as_json()
            return answer

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the end of the stream without limits, as last found. This sends no request."""
        return None if self._newest is None else self._newest.as_json()

    def partitions(self, start: Any, end: Any) -> Sequence[InputPartition]:
        with plain_errors():
            return patiently(lambda: self._plan(StreamOffsets.of(start), StreamOffsets.of(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self._options.location, partition)

    def commit(self, end: Any) -> None:
        """Show the progress of the stream in its group. The position of the stream is only in its checkpoint."""
        with plain_errors():
            self._progress.show(lambda: self._follower.store, StreamOffsets.of(end))

    def stop(self) -> None:
        """Do nothing: the reader holds no resources."""

    def _first_offsets(self, snapshot: TopicsSnapshot) -> StreamOffsets:
        self._follower.check_named()
        return first_offsets(self._follower.store, snapshot, self._options)

    def _end_without_start(self) -> StreamOffsets:
        """Return the end of all visible rows, with the starts for the case that this is the first micro-batch.

        The planner ignores these starts if the stream has a checkpoint.
        """
        before = self._newest
        snapshot = self._follower.newest()
        newest = visible_offsets(snapshot, self._options.isolation)
        if before is not None and before.slot is not None:
            changed_slots = (partition.changed_slot for partition in snapshot.partitions().values())
            if max(changed_slots, default=before.slot) <= before.slot:
                # The stream's own commits to other topics are not a reason for another micro-batch.
                newest = replace(newest, slot=before.slot)
        self._follower.found(newest != before)
        if self._loss.fails:
            self._follower.check_named()
        checked = before or StreamOffsets(newest.store_id, {}, {})
        check_joined_columns(snapshot, checked, newest, schema=self._schema, options=self._options)
        end = replace(newest, began=self._starts(newest, snapshot))
        self._newest = newest
        return end

    def _starts(self, end: StreamOffsets, snapshot: TopicsSnapshot) -> Began:
        """Return the starts of the micro-batch that ends here, if it is the stream's first one."""
        if self._began is None and self._start_error is None:
            try:
                if self._initial is None:
                    self._initial = self._first_offsets(snapshot)
                self._began = starts_of(self._initial, snapshot)
            except StoreUnavailable:
                raise  # The caller tries again. An end without starts could skip rows.
            except EosLogError as error:
                # A stream with a checkpoint needs no starts. For a new stream Spark asks for them next, and fails.
                self._start_error = error
        if self._began is None or self._initial is None:
            return Began()
        if end.slot is not None:
            return self._began
        # Spark compares ends as text, so equal ends need equal text. So the end of each micro-batch has starts.
        same = {topic for topic, topic_id in end.topic_ids.items() if self._initial.topic_ids.get(topic) == topic_id}
        return Began({key: self._began.offsets.get(key, 0) if key.topic in same else 0 for key in end.offsets})

    def _end_after(self, begin: StreamOffsets, limit: ReadLimit) -> StreamOffsets:
        limits = self._limits.asked_for(limit)
        if self._is_frozen and self._newest is not None:
            snapshot, newest = self._follower.known(), self._newest
            limits = replace(limits, min_offsets=None)
        else:
            snapshot = self._follower.newest()
            newest = self._newest = visible_offsets(snapshot, self._options.isolation)
        end = self._next_end.after(
            begin,
            newest,
            snapshot=snapshot,
            indexes=self._follower.store.indexes,
            limits=limits,
            exists=self._follower.exists,
        )
        if self._loss.fails:
            self._follower.check_named()
        check_joined_columns(snapshot, begin, end, schema=self._schema, options=self._options)
        return end

    def _plan(self, begin: StreamOffsets, end: StreamOffsets) -> list[InputPartition]:
        snapshot = self._follower.known()
        if not covers(snapshot, end):
            snapshot = self._follower.newest()
        if not is_at_least(4, 2) and not begin.is_initial:
            try:
                carried_over(begin, end.topic_ids, end.offsets.keys(), exists=self._follower.exists, loss=self._loss)
            except InvalidOption as error:
                raise InvalidOption(f"{error}. Spark has already planned this micro-batch, so {_FORGET_IT}") from None
        return plan_micro_batch(
            self._follower.store.indexes,
            snapshot,
            begin,
            end=end,
            schema=self._schema,
            options=self._options,
            loss=self._loss,
        )


def check_stream_options(options: Options) -> None:
    """Raises: InvalidOption: an option is not for streams, or not for this isolation level."""
    options.refuse(_OF_BATCHES, "is for batch reads. End a stream with trigger(availableNow=True)")
    options.refuse(
        ("slot", "versionAsOf", "timestampAsOf"), "is for batch reads; a stream keeps its slot in the checkpoint"
    )
    options.refuse(
        ("latestByKey",), "is for batch reads: a later row may replace one that the stream has returned. Leave it out"
    )
    options.check_consistent_end()
    if not is_at_least(4, 2):
        options.refuse(_ADMISSION_CONTROL, f"in a stream {needs(4, 2)}. Leave it out, or upgrade PySpark")
    if options.isolation is IsolationLevel.SNAPSHOT:
        options.refuse(
            _OF_OFFSETS, "counts offsets, but isolation level 'snapshot' counts slots. Use 'read_committed' with it"
        )
        if options.starting_offsets not in (None, EARLIEST, LATEST):
            raise InvalidOption("with isolation level 'snapshot' option 'startingOffsets' is 'earliest' or 'latest'")


def first_offsets(store: Store, snapshot: TopicsSnapshot, options: Options) -> StreamOffsets:
    """Return the first offsets of a stream by its options, marked as initial.

    Raises:
        InvalidOption: the options name partitions that are not read, or the predicate does not fit a topic.
        OffsetOutOfRange: a first offset lies beyond the end of its partition; with PySpark before 4.2 beyond its
            visible rows.
    """
    for selected in snapshot.topics:
        _request(options).of_topic(store.indexes, selected.topic)  # Report an error before the first micro-batch.
    newest = visible_offsets(snapshot, options.isolation)
    option = options.starting_offsets or LATEST
    if options.isolation is IsolationLevel.SNAPSHOT:
        slot = newest.slot if option == LATEST else BEFORE_ALL_SLOTS
        return StreamOffsets(newest.store_id, newest.topic_ids, {}, slot, is_initial=True)
    partitions = snapshot.partitions()
    offsets = resolve_offsets(store, option, snapshot, isolation=options.isolation, option_name="startingOffsets")
    if options.transaction_consistent and option == LATEST:
        starts = {key: partition.log_start_offset for key, partition in partitions.items()}
        offsets = transaction_consistent_ends(store.indexes, partitions, starts, offsets)
    for key, partition in partitions.items():
        if offsets[key] > partition.high_watermark:
            raise OffsetOutOfRange(
                f"option 'startingOffsets' begins partition {key.topic}-{key.partition} at offset "
                f"{offsets[key]}, but it ends at {partition.high_watermark}"
            )
        if not is_at_least(4, 2) and offsets[key] > newest.offsets[key]:
            # Without the start of a micro-batch, the rows before the start would be read once they are visible.
            raise OffsetOutOfRange(
                f"option 'startingOffsets' begins partition {key.topic}-{key.partition} at offset {offsets[key]}, but "
                f"its visible rows end at {newest.offsets[key]}. A start beyond them {needs(4, 2)}. Begin at "
                f"{newest.offsets[key]} or before, or upgrade PySpark"
            )
    return StreamOffsets(newest.store_id, newest.topic_ids, offsets, is_initial=True)


def covers(snapshot: TopicsSnapshot, end: StreamOffsets) -> bool:
    """Return True if the snapshot includes the end of a micro-batch."""
    if snapshot.store_id != end.store_id or not end.topic_ids.items() <= snapshot.topic_ids().items():
        return False
    if end.slot is not None:
        return end.slot <= snapshot.slot
    partitions = snapshot.partitions()
    return all(key in partitions and offset <= partitions[key].high_watermark for key, offset in end.offsets.items())


def check_joined_columns(
    snapshot: TopicsSnapshot, begin: StreamOffsets, end: StreamOffsets, *, schema: StructType, options: Options
) -> None:
    """Check that a topic that joins has the columns of the stream, before Spark writes its offsets to the checkpoint.

    Raises:
        SchemaMismatch: it lacks a column, or the type differs.
    """
    for selected in snapshot.topics:
        topic_id = end.topic_ids.get(selected.topic.topic)
        if topic_id == selected.topic.topic_id != begin.topic_ids.get(selected.topic.topic):
            choose_columns(selected.topic, schema, control_rows=options.include_control_rows)


def plan_micro_batch(
    indexes: SegmentIndexes,
    snapshot: TopicsSnapshot,
    begin: StreamOffsets,
    *,
    end: StreamOffsets,
    schema: StructType,
    options: Options,
    loss: DataLoss,
) -> list[InputPartition]:
    """Return the input partitions of a micro-batch.

    Raises:
        UnknownTopicOrPartition, InvalidOption: the offsets do not belong to these topics.
        OffsetOutOfRange: the store has lost slots or rows, or rows were deleted and ``failOnDataLoss`` is set.
    """
    counts_slots = options.isolation is IsolationLevel.SNAPSHOT
    for offsets in (begin, end):
        check_origin(offsets, snapshot.store_id, counts_slots=counts_slots)
    if end.slot is not None and end.slot > snapshot.slot:
        raise OffsetOutOfRange(
            f"the log ends at slot {snapshot.slot}, before the checkpoint's slot {end.slot}: the store has lost "
            "slots. Restore it, or give a new checkpointLocation"
        )
    by_name = {selected.topic.topic: selected for selected in snapshot.topics}
    check_joined(begin, {topic: by_name[topic].topic.created_slot for topic in end.topic_ids.keys() & by_name.keys()})
    after_slot = begin.slot
    if after_slot is not None and begin.is_initial and end.began.slot is not None:
        after_slot = end.began.slot
    if begin.slot is not None and end.slot is not None and end.slot < begin.slot and not begin.is_initial:
        raise OffsetOutOfRange(
            f"the micro-batch ends at slot {end.slot}, before its start at slot {begin.slot}. {_BACKWARDS}"
        )
    pieces: list[Piece] = []
    for topic, topic_id in end.topic_ids.items():
        selected = by_name.get(topic)
        if selected is None or selected.topic.topic_id != topic_id:
            loss.report(
                UnknownTopicOrPartition(
                    f"the repeated micro-batch reads topic {topic} (id {topic_id}), which was deleted since or is no "
                    "longer among the topics to read. To continue all the same, set failOnDataLoss=false"
                )
            )
            continue
        read = _request(options).of_topic(indexes, selected.topic)
        for key, partition in selected.by_topic_partition().items():
            if after_slot is not None:
                check_removed(
                    key, partition.removed_end_slot, after_slot, known_slot=end.began.offsets.get(key), loss=loss
                )
                if partition.changed_slot <= after_slot:
                    continue
                plan = read.planner.plan_commits(partition, after_slot, end.slot)
            else:
                held = range(partition.log_start_offset, partition.high_watermark)
                wanted = _range(key, held, topic_id, begin=begin, end=end, loss=loss)
                if not wanted:
                    continue
                plan = read.planner.plan(partition, wanted.start, wanted.stop)
            if plan.rows:
                pieces.append(piece_of(selected.topic, plan, read))
    return read_partitions(snapshot.only({piece.topic for piece in pieces}), schema, pieces, options)


def _request(options: Options) -> ReadRequest:
    return ReadRequest(
        isolation=options.isolation, control_rows=options.include_control_rows, predicate=options.predicate
    )


def _range(
    key: TopicPartition, held: range, topic_id: str, *, begin: StreamOffsets, end: StreamOffsets, loss: DataLoss
) -> range:
    """Return the offsets of a partition to read. A new topic is read from its first offset.

    Args:
        held: the offsets that the partition holds.
    """
    if key not in end.offsets:
        return range(0)
    last = end.offsets[key]
    if last > held.stop:
        raise OffsetOutOfRange(
            f"partition {key.topic}-{key.partition} ends at offset {held.stop}, before the "
            f"checkpoint's offset {last}: the store has lost rows. Restore it, or give a new checkpointLocation"
        )
    start = begin.offsets.get(key) if begin.topic_ids.get(key.topic) == topic_id else None
    if begin.is_initial:
        # Use the recorded start only then: Spark also plans the empty range between an end and itself.
        start = end.began.offsets.get(key, start)
    elif start is not None and start > last:
        raise OffsetOutOfRange(
            f"the micro-batch ends at offset {last} of partition {key.topic}-{key.partition}, before its start at "
            f"offset {start}. {_BACKWARDS}"
        )
    return range(first_offset(key, held.start, start or 0, end=last, loss=loss), last)


class RefusedStream(EosLogStreamReader):
    """A stream with refused options. It raises the error at the first call of Spark.

    If the creation of a reader fails, Spark's runner tries to stop a reader that is not there. It then reports this
    failure instead of the error.
    """

    def __init__(self, error: EosLogError) -> None:
        self._error = error

    def _refuse(self, *arguments: Any, **named: Any) -> NoReturn:
        with plain_errors():
            raise self._error
        raise AssertionError("plain_errors() does not suppress errors")

    initialOffset = latestOffset = partitions = _refuse  # noqa: N815 - Spark's names
    getDefaultReadLimit = prepareForTriggerAvailableNow = _refuse  # noqa: N815
