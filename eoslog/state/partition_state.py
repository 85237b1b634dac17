"""The state of a partition: its batches, its sealed segments, and its producers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from operator import attrgetter
from typing import Any, NamedTuple

from eoslog.state.entry_fields import FileReference
from eoslog.state.names import PartitionId


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """A transaction of one partition that an ABORT marker ended."""

    producer_id: int
    first_offset: int
    """Offset of the transaction's first row."""
    last_offset: int
    """Offset of its ABORT marker (inclusive)."""
    last_stable_offset: int
    """The partition's last stable offset right after the marker (exclusive)."""


def collect_aborted(
    entries: Iterable[AbortedTransaction], fetch_offset: int, upper_bound_offset: int
) -> tuple[list[AbortedTransaction], bool]:
    """Return the aborted transactions that have rows in [fetch_offset, upper_bound_offset).

    Args:
        entries: one segment's aborted transactions, in the order of their markers.
        fetch_offset: the first offset of the read.
        upper_bound_offset: the end of the read (exclusive).

    Returns:
        The transactions, and True if the list is complete. If it is not, a transaction with rows in the range may have
        its marker in a later segment. The caller must then look there, too.
    """
    found: list[AbortedTransaction] = []
    for entry in entries:
        if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound_offset:
            found.append(entry)
        if entry.last_stable_offset >= upper_bound_offset:
            return found, True
    return found, False


NO_OFFSET = -1
NO_SEQUENCE = -1
NO_SLOT = -1
NO_TIME = -1


class Outcome(Enum):
    """The outcome of a batch's transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Control(Enum):
    """The type of a control row (Kafka's ``ControlRecordType``)."""

    ABORT = 0
    COMMIT = 1


class Batch(NamedTuple):
    """Rows of one file, or one control row, with their offsets in a partition."""

    base_offset: int
    record_count: int
    """The number of remaining rows. Compaction removes rows; it may keep a batch without rows for its sequence."""
    last_offset_delta: int
    """The last offset minus the base offset. Compaction does not change it."""
    file: FileReference | None
    """None for a control row, and for a batch without rows."""
    first_row: int
    """The index of the batch's first row in its file, from 0. A compacted file holds several batches."""
    control: Control | None
    slot: int
    """The slot that gave the rows their offsets."""
    end_slot: int
    """The slot that ended the rows' transaction; ``NO_SLOT`` while it is open."""
    end_time_ms: int
    """The log's time at the end slot, which never runs backwards (ms); ``NO_TIME`` while the transaction is open."""
    outcome: Outcome
    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    base_sequence: int
    """``-1`` for control rows and staged batches."""
    min_timestamp: int
    max_timestamp: int
    transactional: bool
    delete_horizon_ms: int = NO_TIME
    """The time from which compaction may drop the control row or the tombstones (ms, KIP-534); ``NO_TIME`` if unset."""
    statistics: str | None = None
    """The statistics of the columns, as the entry states them.

    If compaction has removed rows since, the bounds still hold, and there may be fewer nulls.
    """

    @property
    def end_offset(self) -> int:
        """The offset after the batch's last offset."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def has_gaps(self) -> bool:
        """True if compaction has removed rows. Then the file itself holds the offsets of the remaining rows."""
        return self.record_count <= self.last_offset_delta


class SequenceRange(NamedTuple):
    """One of a producer's last five batches in a partition (Kafka's ``BatchMetadata``)."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class ProducerState(NamedTuple):
    """The state that a partition keeps of a producer id (Kafka's ``ProducerStateEntry``)."""

    producer_id: int
    producer_epoch: int
    batches: tuple[SequenceRange, ...]
    last_timestamp: int
    current_txn_first_offset: int


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """A closed range of a partition. Its index files list its batches."""

    base_offset: int
    end_offset: int
    batch_count: int
    bytes: int
    min_timestamp: int
    max_timestamp: int
    max_end_slot: int
    """The last slot that committed a transaction with rows in the segment, now or before compaction; 0 if none did."""
    index: FileReference
    txnindex: FileReference | None
    snapshot: FileReference
    slot: int
    file_count: int
    """The number of data files that the index names."""

    @property
    def files(self) -> tuple[FileReference, ...]:
        """Its index file and the files beside it, without its data files."""
        return tuple(file for file in (self.index, self.txnindex, self.snapshot) if file is not None)


class SkippedRows(NamedTuple):
    """Rows that readers skip, because their data file was missing or damaged."""

    base_offset: int
    """The first offset."""
    end_offset: int
    """The end of the offsets (exclusive)."""
    rows: int
    slot: int
    """The slot from which on they are skipped."""


@dataclass(slots=True)
class Partition:
    """One partition. A record changes a copy of it, so a reader that holds the old one sees no change."""

    id: PartitionId
    log_start_offset: int = 0
    next_offset: int = 0
    segment_base_offset: int = 0
    sealed: tuple[SealedSegment, ...] = ()
    active: list[Batch] = field(default_factory=list)
    active_bytes: int = 0
    open_transactions: dict[int, int] = field(default_factory=dict)
    """The first offset of each open transaction by producer id, in the order of the offsets."""
    aborted: list[AbortedTransaction] = field(default_factory=list)
    """Aborted transactions whose marker lies in the active segment."""
    producers: dict[int, ProducerState] = field(default_factory=dict)
    changed_slot: int = NO_SLOT
    snapshot_floor: int = NO_SLOT
    """The slot of the last entry that removed rows. Snapshots of earlier slots can no longer be read."""
    snapshot_floor_ms: int = NO_TIME
    """The log's time at ``snapshot_floor`` (ms)."""
    removed_end_slot: int = NO_SLOT
    """The last slot that ended a transaction whose committed rows were removed, at least in part.

    A stream that has not yet read beyond this slot has lost rows.
    """
    cleaned_offset: int = 0
    """The offset up to which compaction is done (exclusive). Sealed segments beyond it are dirty."""
    start_producers: Mapping[int, ProducerState] = field(default_factory=dict)
    """The state of producers at the start of the active segment, each with its last batch only."""
    created_slot: int = NO_SLOT
    """The slot that created the partition: with its topic, or later (``PartitionsCreated``)."""
    skipped: tuple[SkippedRows, ...] = ()
    """Rows above the log start that are skipped, in the order of their slots."""

    @property
    def high_watermark(self) -> int:
        """The log's end (exclusive). Every appended row is durable, since a put is durable when it returns."""
        return self.next_offset

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the earliest open transaction, else the high watermark (exclusive)."""
        return next(iter(self.open_transactions.values()), self.next_offset)

    @property
    def is_held_back(self) -> bool:
        """True if an open transaction hides rows from ``read_committed``."""
        return self.last_stable_offset < self.high_watermark

    def copy(self) -> Partition:
        """Return a copy that a draft may change."""
        values = [*_values_of(self)]
        for index in _CHANGED_IN_PLACE:
            values[index] = values[index].copy()
        return Partition(*values)


_values_of: Callable[[Partition], tuple[Any, ...]] = attrgetter(*(each.name for each in fields(Partition)))
_CHANGED_IN_PLACE = tuple(
    index for index, each in enumerate(fields(Partition)) if str(each.type).startswith(("list[", "dict[", "set["))
)
"""Fields that a copy must not share. All others, such as tuples and mappings, are only replaced as a whole."""
