"""What is known of a batch's rows before its file is read: their place in the log, who wrote them, and statistics."""

from __future__ import annotations

from eoslog.format.statistics import ALL_NULL, UNKNOWN, ColumnBounds, decode_statistics
from eoslog.read.columns import CREATE_TIME
from eoslog.read.predicate import BoundsOf, Predicate
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import NO_SEQUENCE, NO_SLOT, NO_TIME, Batch, Partition, SealedSegment, Verdict

_MICROSECONDS = 1000
"""In a millisecond: readers are given times in microseconds."""


def may_hold_wanted(predicate: Predicate, topic: str, partition: Partition, segment: SealedSegment) -> bool:
    """Whether a sealed segment may have wanted rows, by what the state tells without its index."""
    known = _position(predicate, topic, partition.id, segment.base_offset, segment.end_offset)
    # A marker of -1 among the times says that nothing is known of the least.
    least, greatest = segment.min_timestamp, segment.max_timestamp
    known[_name(predicate, "timestamp")] = _times(least, greatest)
    return predicate.may_match(lambda column: known.get(column, UNKNOWN))


def may_be_wanted(
    predicate: Predicate, topic: str, partition_id: PartitionId, batch: Batch, start: int, end: int
) -> bool:
    """Whether a batch may have wanted rows among its offsets from ``start`` to ``end`` (exclusive)."""
    return predicate.may_match(_bounds_of(predicate, topic, partition_id, batch, start, end))


def _bounds_of(
    predicate: Predicate, topic: str, partition_id: PartitionId, batch: Batch, start: int, end: int
) -> BoundsOf:
    known = _position(predicate, topic, partition_id, max(start, batch.base_offset), min(end, batch.end_offset))
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
    return lambda column: known.get(column, UNKNOWN)


def _name(predicate: Predicate, name: str) -> str:
    """A column of a row's place, as the topic calls it."""
    return name if predicate.of_records else f"_{name}"


def _position(
    predicate: Predicate, topic: str, partition_id: PartitionId, start: int, end: int
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
    """Of rows with times of their own. Those before 1970 stand as -1 in the log, so they may be less."""
    return ColumnBounds(
        False, True, least_ms * _MICROSECONDS if least_ms >= 0 else None, max(-1, greatest_ms) * _MICROSECONDS
    )


def _origin(batch: Batch) -> dict[str, ColumnBounds]:
    committed = batch.verdict is Verdict.COMMITTED and batch.end_time_ms != NO_TIME
    return {
        "_transactional_id": ColumnBounds.constant(batch.transactional_id),
        "_producer_id": ColumnBounds.constant(batch.producer_id),
        "_producer_epoch": ColumnBounds.constant(batch.producer_epoch),
        "_sequence": ALL_NULL if batch.base_sequence == NO_SEQUENCE else UNKNOWN,
        "_control": ColumnBounds.constant(None if batch.control is None else batch.control.name),
        "_slot": ColumnBounds.constant(None if batch.end_slot == NO_SLOT else batch.end_slot),
        "_commit_timestamp": ColumnBounds.constant(batch.end_time_ms * _MICROSECONDS if committed else None),
    }
