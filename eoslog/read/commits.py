"""Commits in the order in which they were decided: of each slot all its rows, over all partitions that are read.

A partition is read segment by segment, and no further than the commits that are asked for: rows get their offsets in
the order of the slots, and end no earlier than that.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

from eoslog.read.planner import FileSlice, SegmentIndexes, slice_of
from eoslog.rules.partition_state import Batch, Partition, Verdict

Place = TypeVar("Place", bound=Hashable)


def slices_by_commit(
    indexes: SegmentIndexes,
    partitions: Mapping[Place, Partition],
    after_slot: int,
    until_slot: int,
    *,
    control_rows: bool = False,
) -> Iterator[tuple[int, int, dict[Place, tuple[FileSlice, ...]]]]:
    """Slot, log's time there (ms) and rows by partition, of each slot in (after_slot, until_slot] that committed rows.

    Args:
        control_rows: whether control rows are rows too.

    Raises:
        CorruptRecord, StoreUnavailable: an index cannot be read.
    """
    feeds = {
        place: _Feed(indexes, partition, after_slot, until_slot, control_rows)
        for place, partition in partitions.items()
    }
    while True:
        slot = min((feed.first_slot for feed in feeds.values() if feed.first_slot is not None), default=None)
        behind = [feed for feed in feeds.values() if not feed.is_known(slot)]
        if behind:
            for feed in behind:
                feed.read_on()
            continue
        if slot is None:
            return
        rows = {place: taken for place, feed in feeds.items() if (taken := feed.take(slot))}
        time_ms = next(piece.origin.commit_time_ms for slices in rows.values() for piece in slices)
        yield slot, time_ms, rows


class _Feed:
    """One partition's committed rows by the slot that ended them, as far as it was read."""

    def __init__(
        self, indexes: SegmentIndexes, partition: Partition, after_slot: int, until_slot: int, control_rows: bool
    ) -> None:
        self._control_rows = control_rows
        self._after_slot = after_slot
        self._until_slot = until_slot
        self._log_start_offset = partition.log_start_offset
        self._pending: dict[int, list[FileSlice]] = defaultdict(list)
        self._slots: list[int] = []
        """The slots of these rows, as a heap."""
        self._parts = self._read(indexes, partition)
        self._reached_slot: int | None = after_slot
        """Rows that are not read yet ended at this slot or later; None if all are read."""

    @property
    def first_slot(self) -> int | None:
        return self._slots[0] if self._slots else None

    def is_known(self, slot: int | None) -> bool:
        """Whether everything that ended at or before ``slot`` was read; all there is if None."""
        return self._reached_slot is None or (slot is not None and slot < self._reached_slot)

    def read_on(self) -> None:
        self._reached_slot = next(self._parts, None)
        if self._reached_slot is not None and self._reached_slot > self._until_slot:
            self._reached_slot = None

    def take(self, slot: int) -> tuple[FileSlice, ...]:
        """The rows of a slot, which is no later than the first one."""
        if self.first_slot != slot:
            return ()
        return tuple(self._pending.pop(heapq.heappop(self._slots)))

    def _read(self, indexes: SegmentIndexes, partition: Partition) -> Iterator[int]:
        """Read part by part; each gives the slot at or after which the rows behind it end."""
        for segment in partition.sealed:
            if segment.max_end_slot <= self._after_slot:
                continue
            batches = indexes.batches(segment)
            self._add(batches, indexes.file_rows(segment))
            if batches:
                yield batches[-1].slot
        self._add(partition.active, None)

    def _add(self, batches: Sequence[Batch], file_rows: Mapping[str, int] | None) -> None:
        for batch in batches:
            if (
                not batch.record_count
                or (batch.control is not None and not self._control_rows)
                or batch.verdict is not Verdict.COMMITTED
                or batch.end_offset <= self._log_start_offset
                or not self._after_slot < batch.end_slot <= self._until_slot
            ):
                continue
            rows = batch.record_count if file_rows is None or batch.file is None else file_rows[batch.file.path]
            start = max(batch.base_offset, self._log_start_offset)
            if batch.end_slot not in self._pending:
                heapq.heappush(self._slots, batch.end_slot)
            self._pending[batch.end_slot].append(slice_of(batch, rows, start, batch.end_offset))
