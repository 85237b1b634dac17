"""Ends of a ``read_committed`` read that split no committed transaction: the largest consistent cut.

Each partition has its own last stable offset (LSO). So a read up to the LSOs may show only a part of a transaction. A
cut is consistent if it shows all rows or no row of each committed transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import NamedTuple, TypeVar

import numpy as np

from eoslog.format.batch_columns import NO_CONTROL
from eoslog.format.segment_index import SegmentIndexes
from eoslog.read.isolation import EndBounds
from eoslog.read.planner import active_between, sealed_between
from eoslog.state.partition_state import NO_SLOT, Outcome, Partition

Key = TypeVar("Key", bound=Hashable)


def transaction_consistent_ends(
    indexes: SegmentIndexes,
    partitions: Mapping[Key, Partition],
    starts: Mapping[Key, int],
    ends: Mapping[Key, int],
) -> dict[Key, int]:
    """Return the largest ends at or below ``ends`` that split no transaction committed so far.

    All transactions that ended in one slot count as one. If a later call has the same or larger ``ends``, its result
    is the same or larger too.

    Args:
        partitions: the partitions by a key of the caller's choice.
        starts: the first offset to read (inclusive). The result is never below, because earlier rows were read.
        ends: the latest ends (exclusive), at or below the last stable offsets.

    Raises:
        CorruptRecord, StoreUnavailable: an index cannot be read.
    """
    caps = {key: max(starts[key], ends[key]) for key in partitions}
    while lowered := _lowered(indexes, partitions, starts, caps):
        for key, first in lowered.items():
            caps[key] = max(starts[key], first)
    return caps


def limited_consistent_ends(
    indexes: SegmentIndexes,
    partitions: Mapping[Key, Partition],
    starts: Mapping[Key, int],
    *,
    ends: Mapping[Key, int],
    limit: Callable[[int], Mapping[Key, int]],
    max_offsets: int,
) -> dict[Key, int]:
    """Return consistent ends that cover about ``max_offsets`` offsets, or more if a transaction is larger.

    Args:
        partitions, starts, ends: as in ``transaction_consistent_ends``.
        limit: returns the ends of a read of about this many offsets, at or below ``ends``.
        max_offsets: the wanted number of offsets. It doubles until an end moves or ``ends`` is reached.
    """
    while True:
        wanted = limit(max_offsets)
        found = transaction_consistent_ends(indexes, partitions, starts, wanted)
        moved = any(found[key] > starts[key] for key in found)
        if moved or all(wanted[key] >= ends[key] for key in found):
            return found
        max_offsets *= 2


def _lowered(
    indexes: SegmentIndexes, partitions: Mapping[Key, Partition], starts: Mapping[Key, int], caps: dict[Key, int]
) -> dict[Key, int]:
    """Return, by partition, the first offset of the transactions that the caps split, if it is below the cap."""
    above: set[int] | None = None
    if all(caps[key] >= partition.segment_base_offset for key, partition in partitions.items()):
        # The usual case: all rows above the caps are in active segments, so the state has them and they are few.
        above = {
            batch.end_slot
            for key, partition in partitions.items()
            for batch in _committed(indexes, partition, caps[key], end=partition.high_watermark)
        }
        if not above:
            return {}
    firsts: dict[Key, dict[int, int]] = {}
    for key, partition in partitions.items():
        firsts[key] = {}
        after_slot = NO_SLOT if above is None else min(above) - 1
        for batch in _committed(indexes, partition, starts[key], end=caps[key], after_slot=after_slot):
            if above is None or batch.end_slot in above:
                firsts[key].setdefault(batch.end_slot, batch.base_offset)
    below = {slot for slots in firsts.values() for slot in slots}
    split = below & (_slots_above(indexes, partitions, caps, below) if above is None else above)
    return {
        key: min(first for slot, first in slots.items() if slot in split)
        for key, slots in firsts.items()
        if not split.isdisjoint(slots)
    }


def _slots_above(
    indexes: SegmentIndexes, partitions: Mapping[Key, Partition], caps: dict[Key, int], below: set[int]
) -> set[int]:
    """Return the end slots of the rows above the caps. Slots that cannot be in ``below`` may be missing."""
    found: set[int] = set()
    if not below:
        return found
    oldest, newest = min(below), max(below)
    for key, partition in partitions.items():
        for batch in _committed(indexes, partition, caps[key], end=partition.high_watermark, after_slot=oldest - 1):
            if batch.slot > newest:
                # Slots assign offsets in ascending order. So all transactions in ``below`` had ended before later rows.
                break
            found.add(batch.end_slot)
    return found


class _Rows(NamedTuple):
    """Rows of a committed transaction."""

    base_offset: int
    slot: int
    """The slot that gave the rows their offsets."""
    end_slot: int


def _committed(
    indexes: SegmentIndexes, partition: Partition, start: int, *, end: int, after_slot: int = NO_SLOT
) -> Iterator[_Rows]:
    """Yield the rows of committed transactions in a range of offsets, without control rows."""
    for columns, between in sealed_between(indexes, partition, start, end, ended=EndBounds(after_slot)):
        wanted = (
            columns.transactional & (columns.control == NO_CONTROL) & (columns.record_count > 0) & columns.is_committed
        )
        rows = np.arange(between.start, between.stop)[wanted[between.start : between.stop]]
        yield from map(
            _Rows, columns.base_offset[rows].tolist(), columns.slot[rows].tolist(), columns.end_slot[rows].tolist()
        )
    for batch in active_between(partition, start, end):
        if batch.transactional and batch.control is None and batch.record_count and batch.outcome is Outcome.COMMITTED:
            yield _Rows(batch.base_offset, batch.slot, batch.end_slot)
