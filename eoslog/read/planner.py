"""The plan of a read: the rows of data files that are a partition's visible rows.

The planner decides by the metadata of batches and never looks at single rows. All readers use this planner. A plan
contains everything that a reader task needs, so the task never reads the log.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from eoslog.errors import OffsetOutOfRange
from eoslog.format.batch_columns import NO_CONTROL, BatchColumns
from eoslog.format.record_times import shown_ms
from eoslog.format.segment_index import SegmentIndexes
from eoslog.format.statistics import ALL_NULL, UNKNOWN, ColumnBounds, decode_statistics
from eoslog.read.columns import CREATE_TIME
from eoslog.read.file_rows import ListedRows, PlannedRows, SegmentRows, active_rows
from eoslog.read.isolation import ANY_END, EndBounds, IsolationLevel, is_visible, visible_end, visible_rows
from eoslog.read.predicate import Predicate
from eoslog.read.time_travel import AsOf, check_as_of
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import NO_SEQUENCE, NO_SLOT, NO_TIME, Batch, Outcome, Partition, SealedSegment

_MICROSECONDS = 1000
"""Microseconds in a millisecond. Readers get times in microseconds."""


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """The visible rows of one partition in [``start_offset``, ``end_offset``)."""

    topic: str
    topic_id: str
    partition: int
    start_offset: int
    end_offset: int
    rows: PlannedRows

    @property
    def record_count(self) -> int:
        """The number of rows that the plan yields. It is an upper bound if the plan has a predicate, or if it begins or
        ends within a compacted batch: only the file shows which rows of such a batch are left."""
        return self.rows.record_count

    @property
    def bytes(self) -> int:
        """The total size in bytes of the files that the plan reads."""
        return self.rows.bytes


@dataclass(frozen=True, slots=True)
class ReadPlanner:
    """Plans the reads of one topic's partitions, all at the same snapshot."""

    indexes: SegmentIndexes
    topic: str
    isolation: IsolationLevel
    as_of: AsOf | None = None
    """The end of a ``snapshot``; None for the newest state."""
    control_rows: bool = False
    """True if plans include control rows. A control row is visible if the rows of its transaction are visible."""
    predicate: Predicate | None = None
    """Plans leave out batches that cannot match, by their statistics, offsets and producer. They may still include rows
    that do not match."""

    def plan(self, partition: Partition, start: int | None = None, end: int | None = None) -> PartitionPlan:
        """Plan the visible rows of a partition.

        Args:
            start: the first offset (inclusive); None starts at the log start.
            end: the end (exclusive); None ends where the isolation level ends now. A later end has no effect.

        Raises:
            OffsetOutOfRange: the start is outside of [log start, high watermark], or rows of the snapshot have been
                removed since.
        """
        if self.as_of is not None:
            check_as_of(self.topic, partition, self.as_of)
        start = partition.log_start_offset if start is None else start
        check_offset(self.topic, partition, start)
        last = visible_end(partition, self.isolation)
        end = max(start, last if end is None else min(end, last))
        slot, time_ms = self.as_of or (None, None)
        return self._plan(partition, start, end, EndBounds(NO_SLOT, slot, time_ms))

    def plan_commits(self, partition: Partition, after_slot: int, slot: int | None = None) -> PartitionPlan:
        """Plan the rows of the transactions that ended in the slots (after_slot, slot]; None sets no end.

        Rows that have been removed since are left out. The isolation level must be ``snapshot``.
        """
        ended = EndBounds(after_slot, slot)
        return self._plan(partition, partition.log_start_offset, partition.high_watermark, ended)

    def _plan(self, partition: Partition, start: int, end: int, ended: EndBounds) -> PartitionPlan:
        topic, predicate, parts = self.topic, self.predicate, list[SegmentRows | ListedRows]()

        def may_hold(segment: SealedSegment) -> bool:
            return predicate is None or may_hold_wanted(predicate, topic, partition, segment)

        def may_match(batch: Batch) -> bool:
            return predicate is None or may_be_wanted(predicate, topic, partition.id, batch=batch, start=start, end=end)

        for columns, between in sealed_between(self.indexes, partition, start, end, ended=ended, may_hold=may_hold):
            rows = np.arange(between.start, between.stop)
            visible = visible_rows(columns, self.isolation, ended)[rows]
            wanted = visible & (columns.record_count[rows] > 0)
            if not self.control_rows:
                wanted &= columns.control[rows] == NO_CONTROL
            rows = rows[wanted]
            if predicate is not None:
                rows = rows[np.array([may_match(batch) for batch in columns.taken(rows)], np.bool_)]
            parts.append(SegmentRows(columns, rows, start, end))
        active = (
            batch
            for batch in active_between(partition, start, end)
            if batch.record_count
            and (self.control_rows or batch.control is None)
            and is_visible(batch, self.isolation, ended)
            and may_match(batch)
        )
        parts.append(active_rows(active, start, end))
        return PartitionPlan(
            topic=topic,
            topic_id=partition.id.topic_id,
            partition=partition.id.partition,
            start_offset=start,
            end_offset=end,
            rows=PlannedRows(parts),
        )


def check_offset(topic: str, partition: Partition, offset: int) -> None:
    """Check that an offset of the partition exists.

    Raises:
        OffsetOutOfRange: the offset is outside of [log start, high watermark].
    """
    if not partition.log_start_offset <= offset <= partition.high_watermark:
        raise OffsetOutOfRange(
            f"partition {topic}-{partition.id.partition} holds offsets {partition.log_start_offset} to "
            f"{partition.high_watermark} (exclusive), not {offset}"
        )


def sealed_between(
    indexes: SegmentIndexes,
    partition: Partition,
    start: int,
    end: int,
    *,
    ended: EndBounds = ANY_END,
    may_hold: Callable[[SealedSegment], bool] = lambda segment: True,
) -> Iterator[tuple[BatchColumns, range]]:
    """Yield the batches of sealed segments within a range of offsets: per segment its columns and row numbers.

    Args:
        ended: skip segments whose transactions all ended too early. If there is a last slot, stop at the first batch
            that got its offsets after it. The function then reads segments one by one, only as far as the caller
            iterates.
        may_hold: skip segments for which this function returns False.
    """
    if start >= end:
        return
    first = bisect_right(partition.sealed, start, key=lambda segment: segment.end_offset)
    last = bisect_left(partition.sealed, end, lo=first, key=lambda segment: segment.base_offset)
    segments = [
        each for each in partition.sealed[first:last] if each.max_end_slot > ended.after_slot and may_hold(each)
    ]
    if ended.slot is None:
        for columns in indexes.columns_of_each(segments):
            yield columns, columns.between(start, end)
        return
    for columns in map(indexes.columns, segments):
        rows = columns.between(start, end)
        # Slots assign offsets in ascending order, and a transaction ends no earlier than it writes. So no later batch
        # can have ended at or before the last slot.
        later = columns.slot[rows.start : rows.stop] > ended.slot
        if later.any():
            yield columns, rows[: int(later.argmax())]
            return
        yield columns, rows


def active_between(partition: Partition, start: int, end: int) -> Iterator[Batch]:
    """Yield the batches of the active segment within a range of offsets."""
    if start >= end:
        return
    batches = partition.active
    first = max(0, bisect_right(batches, start, key=lambda batch: batch.base_offset) - 1)
    for index in range(first, len(batches)):
        batch = batches[index]
        if batch.base_offset >= end:
            return
        if batch.end_offset > start:
            yield batch


def batches_between(indexes: SegmentIndexes, partition: Partition, start: int, end: int) -> Iterator[tuple[Batch, int]]:
    """Yield the batches of a range of offsets, each with the number of rows of its whole file.

    The function reads segments one by one, only as far as the caller iterates.
    """
    if start >= end:
        return
    first = bisect_right(partition.sealed, start, key=lambda segment: segment.end_offset)
    for segment in partition.sealed[first:]:
        if segment.base_offset >= end:
            return
        columns = indexes.columns(segment)
        rows = columns.between(start, end)
        yield from zip(columns.batches(rows), columns.file_rows[rows.start : rows.stop].tolist(), strict=True)
    for batch in active_between(partition, start, end):
        yield batch, batch.record_count


def may_hold_wanted(predicate: Predicate, topic: str, partition: Partition, segment: SealedSegment) -> bool:
    """Return False if the state alone shows that no row of a sealed segment matches, without reading its index."""
    known = _position(predicate, topic, partition.id, start=segment.base_offset, end=segment.end_offset)
    # A minimum of -1 means that the smallest timestamp is unknown.
    least, greatest = segment.min_timestamp, segment.max_timestamp
    known[_name(predicate, "timestamp")] = _times(least, greatest)
    return predicate.may_match(lambda column: known.get(column, UNKNOWN))


def may_be_wanted(
    predicate: Predicate, topic: str, partition_id: PartitionId, *, batch: Batch, start: int, end: int
) -> bool:
    """Return False if no row of a batch from ``start`` to ``end`` (exclusive) can match the predicate."""
    known = _position(
        predicate, topic, partition_id, start=max(start, batch.base_offset), end=min(end, batch.end_offset)
    )
    known |= _origin(batch)
    if predicate.of_records:
        known["timestamp"] = _times(batch.min_timestamp, batch.max_timestamp)
    else:
        known["_timestamp"] = ColumnBounds.constant(batch.max_timestamp * _MICROSECONDS)
    of_file = [field for field in predicate.columns if field.name not in known]
    if batch.control is not None:
        known |= {field.name: ALL_NULL for field in of_file}
    elif of_file:
        known |= decode_statistics(batch.statistics, {field.name: field.type for field in of_file})
    return predicate.may_match(lambda column: known.get(column, UNKNOWN))


def _name(predicate: Predicate, name: str) -> str:
    """Return the name of a metadata column: topics of Kafka records name it without an underscore."""
    return name if predicate.of_records else f"_{name}"


def _position(
    predicate: Predicate, topic: str, partition_id: PartitionId, *, start: int, end: int
) -> dict[str, ColumnBounds]:
    known = {
        _name(predicate, "topic"): ColumnBounds.constant(topic),
        _name(predicate, "partition"): ColumnBounds.constant(partition_id.partition),
        _name(predicate, "offset"): ColumnBounds(False, True, start, end - 1),
    }
    if predicate.of_records:
        known["timestampType"] = ColumnBounds.constant(CREATE_TIME)
    return known


def _times(least_ms: int, greatest_ms: int) -> ColumnBounds:
    """Return the bounds of rows with timestamps of their own.

    The log stores a timestamp before 1970 as -1. So a minimum of -1 is not a lower bound.
    """
    least = shown_ms(least_ms) * _MICROSECONDS if least_ms >= 0 else None
    return ColumnBounds(False, True, least, max(-1, shown_ms(greatest_ms)) * _MICROSECONDS)


def _origin(batch: Batch) -> dict[str, ColumnBounds]:
    committed = batch.outcome is Outcome.COMMITTED and batch.end_time_ms != NO_TIME
    return {
        "_transactional_id": ColumnBounds.constant(batch.transactional_id),
        "_producer_id": ColumnBounds.constant(batch.producer_id),
        "_producer_epoch": ColumnBounds.constant(batch.producer_epoch),
        "_sequence": ALL_NULL if batch.base_sequence == NO_SEQUENCE else UNKNOWN,
        "_control": ColumnBounds.constant(None if batch.control is None else batch.control.name),
        "_slot": ColumnBounds.constant(None if batch.end_slot == NO_SLOT else batch.end_slot),
        "_commit_timestamp": ColumnBounds.constant(batch.end_time_ms * _MICROSECONDS if committed else None),
    }
