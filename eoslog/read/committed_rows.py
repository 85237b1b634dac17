"""Committed rows in the order of the slots that committed them, over several partitions.

A partition is read segment by segment, only as far as the requested commits need it. This works because slots assign
offsets in ascending order, and a transaction ends no earlier than it writes.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from eoslog.format.batch_columns import NO_CONTROL, BatchColumns
from eoslog.format.segment_index import SegmentIndexes
from eoslog.format.stored_columns import LARGEST_OFFSET
from eoslog.read.file_rows import FileRows, SegmentRows, active_rows
from eoslog.read.isolation import EndBounds, IsolationLevel, is_visible, visible_rows
from eoslog.state.partition_state import Batch, Partition

Key = TypeVar("Key", bound=Hashable)


def rows_by_commit(
    indexes: SegmentIndexes,
    partitions: Mapping[Key, Partition],
    after_slot: int,
    until_slot: int,
    *,
    control_rows: bool = False,
) -> Iterator[tuple[int, int, dict[Key, tuple[FileRows, ...]]]]:
    """Yield each slot in (after_slot, until_slot] that committed rows, with its log time (ms) and rows by partition.

    Args:
        partitions: the partitions by a key of the caller's choice.
        control_rows: include control rows.

    Raises:
        CorruptRecord, StoreUnavailable: an index cannot be read.
    """
    ended = EndBounds(after_slot, until_slot)
    feeds = {key: _Feed(indexes, partition, ended, control_rows) for key, partition in partitions.items()}
    while True:
        slot = min((feed.first_slot for feed in feeds.values() if feed.first_slot is not None), default=None)
        behind = [feed for feed in feeds.values() if not feed.is_known(slot)]
        if behind:
            for feed in behind:
                feed.read_on()
            continue
        if slot is None:
            return
        rows = {key: taken for key, feed in feeds.items() if (taken := feed.take(slot))}
        first = next(iter(rows.values()))[0]
        yield slot, int(first.batches.commit_time_ms[0]), rows


class _Feed:
    """The committed rows of one partition by the slot that ended them, as far as the partition was read."""

    def __init__(self, indexes: SegmentIndexes, partition: Partition, ended: EndBounds, control_rows: bool) -> None:
        self._control_rows = control_rows
        self._ended = ended
        self._log_start_offset = partition.log_start_offset
        self._pending: dict[int, list[FileRows]] = defaultdict(list)
        self._slots: list[int] = []
        """The slots of the pending rows, as a heap."""
        self._parts = self._read(indexes, partition)
        self._reached_slot: int | None = ended.after_slot
        """Rows that are not read yet ended at this slot or later. None if all rows are read."""

    @property
    def first_slot(self) -> int | None:
        return self._slots[0] if self._slots else None

    def is_known(self, slot: int | None) -> bool:
        """Return True if all rows that ended at or before ``slot`` were read; None asks for all rows."""
        return self._reached_slot is None or (slot is not None and slot < self._reached_slot)

    def read_on(self) -> None:
        self._reached_slot = next(self._parts, None)
        until_slot = self._ended.slot
        if self._reached_slot is not None and until_slot is not None and self._reached_slot > until_slot:
            self._reached_slot = None

    def take(self, slot: int) -> tuple[FileRows, ...]:
        """Remove and return the rows of a slot. The slot is at or before ``first_slot``."""
        if self.first_slot != slot:
            return ()
        return tuple(self._pending.pop(heapq.heappop(self._slots)))

    def _read(self, indexes: SegmentIndexes, partition: Partition) -> Iterator[int]:
        """Read one segment at a time. Each yields a slot: all later rows of the partition end at or after it."""
        for segment in partition.sealed:
            if segment.max_end_slot <= self._ended.after_slot:
                continue
            columns = indexes.columns(segment)
            self._add_sealed(columns)
            if len(columns):
                yield int(columns.slot[-1])
        self._add_active(partition.active)

    def _add_sealed(self, columns: BatchColumns) -> None:
        wanted = (
            visible_rows(columns, IsolationLevel.SNAPSHOT, self._ended)
            & (columns.record_count > 0)
            & (columns.end_offset > self._log_start_offset)
        )
        if not self._control_rows:
            wanted &= columns.control == NO_CONTROL
        self._put(SegmentRows(columns, np.flatnonzero(wanted), self._log_start_offset, LARGEST_OFFSET))

    def _add_active(self, batches: Sequence[Batch]) -> None:
        wanted = (
            batch
            for batch in batches
            if batch.record_count
            and (self._control_rows or batch.control is None)
            and is_visible(batch, IsolationLevel.SNAPSHOT, self._ended)
            and batch.end_offset > self._log_start_offset
        )
        self._put(active_rows(wanted, self._log_start_offset, LARGEST_OFFSET))

    def _put(self, files: Iterable[FileRows]) -> None:
        for file in files:
            for slot, rows in file.by_slot():
                if slot not in self._pending:
                    heapq.heappush(self._slots, slot)
                self._pending[slot].append(rows)
