"""The bounds of a batch's column values that are known without its file: offsets, producer, times and statistics."""

from __future__ import annotations

from eoslog.format.record_times import shown_ms
from eoslog.format.statistics import ALL_NULL, UNKNOWN, ColumnBounds, decode_statistics
from eoslog.read.columns import CREATE_TIME
from eoslog.read.predicate import Predicate
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import NO_SEQUENCE, NO_SLOT, NO_TIME, Batch, Outcome, Partition, SealedSegment

_MICROSECONDS = 1000
"""Microseconds in a millisecond. Readers get times in microseconds."""


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
