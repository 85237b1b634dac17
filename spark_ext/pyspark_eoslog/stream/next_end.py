"""The end of the next micro-batch: the visible end, a limit, or none yet.

A micro-batch is limited by offsets, bytes and files, alone or together, as in the Kafka connector and in Delta Lake. It
may also wait for enough rows (``minOffsetsPerTrigger`` and ``maxTriggerDelay``, as in the Kafka connector).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from eoslog import IsolationLevel, TopicPartition
from eoslog.errors import OffsetOutOfRange
from eoslog.format.segment_index import SegmentIndexes
from eoslog.read.admission import Admission, ReadLimits
from eoslog.read.consistent_ends import limited_consistent_ends, transaction_consistent_ends
from eoslog.read.isolation import visible_end
from eoslog.read.topics_snapshot import TopicsSnapshot
from pyspark_eoslog.options import Options
from pyspark_eoslog.stream.data_loss import DataLoss, carried_over
from pyspark_eoslog.stream.read_limits import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    ReadMinRows,
)
from pyspark_eoslog.stream.stream_offsets import BEFORE_ALL_SLOTS, Began, StreamOffsets, check_joined, check_origin
from pyspark_eoslog.worker import this_worker

_RESTORED = (
    "the store has lost rows, as if it was restored from a backup. Nothing is read. Give a new checkpointLocation, and "
    "startingOffsets for the rows that are to be read"
)
_KINDS = (
    ("max_offsets", ReadMaxRows, "max_rows"),
    ("max_bytes", ReadMaxBytes, "max_bytes"),
    ("max_files", ReadMaxFiles, "max_files"),
    ("min_offsets", ReadMinRows, "min_rows"),
)
"""The limits, with Spark's class of each and the attribute that has its value there."""


@dataclass(frozen=True, slots=True)
class Limits(ReadLimits):
    """The limits of a micro-batch, and the number of rows for which a stream waits."""

    min_offsets: int | None = None
    """Kafka's ``minOffsetsPerTrigger``: offsets to wait for; with ``snapshot``: rows."""

    def default_read_limit(self) -> ReadLimit:
        """Return one of the limits, because Spark accepts only one. It passes this limit to ``asked_for``."""
        given = (kind(limit) for name, kind, _ in _KINDS if (limit := getattr(self, name)) is not None)
        return next(given, ReadAllAvailable())

    def asked_for(self, limit: ReadLimit) -> Limits:
        """Return these limits with the one that Spark passes; no limits if its trigger reads everything (``Once``)."""
        given = (
            replace(self, **{name: getattr(limit, each)}) for name, kind, each in _KINDS if isinstance(limit, kind)
        )
        return next(given, Limits())


def visible_offsets(snapshot: TopicsSnapshot, isolation: IsolationLevel) -> StreamOffsets:
    """Return the end of all rows that are visible in a snapshot."""
    if isolation is IsolationLevel.SNAPSHOT:
        return StreamOffsets(snapshot.store_id, snapshot.topic_ids(), {}, snapshot.slot)
    ends = {key: visible_end(partition, isolation) for key, partition in snapshot.partitions().items()}
    return StreamOffsets(snapshot.store_id, snapshot.topic_ids(), ends)


def starts_of(initial: StreamOffsets, snapshot: TopicsSnapshot) -> Began:
    """Return the starts of a stream's first micro-batch."""
    if initial.slot is None:
        return Began(initial.offsets)
    if initial.slot != BEFORE_ALL_SLOTS:
        return Began({}, initial.slot)
    gone = {key: partition.removed_end_slot for key, partition in snapshot.partitions().items()}
    return Began(gone, BEFORE_ALL_SLOTS)


def check_not_ahead(begin: StreamOffsets, snapshot: TopicsSnapshot) -> None:
    """Refuse offsets beyond the end of the store. Otherwise rows up to them would be written, and never read.

    Args:
        snapshot: a snapshot that is newer than the checkpoint.

    Raises:
        OffsetOutOfRange
    """
    if begin.slot is not None and begin.slot > snapshot.slot:
        raise OffsetOutOfRange(
            f"the checkpoint is at slot {begin.slot}, but the log ends at slot {snapshot.slot}: {_RESTORED}"
        )
    partitions = snapshot.partitions()
    for key, offset in begin.offsets.items():
        end = partitions[key].high_watermark if key in partitions else offset
        if offset > end:
            raise OffsetOutOfRange(
                f"the checkpoint is at offset {offset} of {key.topic}-{key.partition}, but the partition ends at "
                f"{end}: {_RESTORED}"
            )


class NextEnd:
    """Decides where the micro-batches of one stream end."""

    def __init__(self, options: Options, loss: DataLoss) -> None:
        self._transaction_consistent = options.transaction_consistent
        self._loss = loss
        self._admission = Admission(options.isolation, control_rows=options.include_control_rows)
        self._max_delay_ms = options.max_trigger_delay_ms
        self._last_ms: int | None = None
        """The begin of the last micro-batch of this run. So the first one never waits."""

    def after(
        self,
        begin: StreamOffsets,
        newest: StreamOffsets,
        *,
        snapshot: TopicsSnapshot,
        indexes: SegmentIndexes,
        limits: Limits,
        exists: Callable[[str], bool],
    ) -> StreamOffsets:
        """Return the end of the micro-batch after ``begin``; ``begin`` itself if there is none.

        Args:
            newest: the latest possible end.
            snapshot: the topics, at ``newest`` or later.
            exists: returns True if the store has a topic of this name.

        Raises:
            UnknownTopicOrPartition, InvalidOption: the offsets do not belong to these topics.
            OffsetOutOfRange: the store ends before ``begin``.
        """
        check_origin(begin, newest.store_id, counts_slots=newest.slot is not None)
        topic_ids = dict(newest.topic_ids.items() & snapshot.topic_ids().items())
        carried = carried_over(begin, topic_ids, newest.offsets.keys(), exists=exists, loss=self._loss)
        read = snapshot.only(topic_ids)
        check_not_ahead(carried, read)
        if carried.slot is not None and newest.slot is not None:
            check_joined(carried, {selected.topic.topic: selected.topic.created_slot for selected in read.topics})
            end = self._next_slot(carried, newest.slot, read, indexes=indexes, limits=limits)
        else:
            end = self._next_offsets(carried, newest.offsets, read, indexes=indexes, limits=limits)
        if end is None or end == begin:
            return begin
        self._last_ms = this_worker().environment.monotonic_ms()
        return end

    def _next_slot(
        self,
        begin: StreamOffsets,
        newest_slot: int,
        snapshot: TopicsSnapshot,
        *,
        indexes: SegmentIndexes,
        limits: Limits,
    ) -> StreamOffsets | None:
        assert begin.slot is not None
        after = begin.slot
        partitions = snapshot.partitions()
        read = list(partitions.values())
        if self._holds_back(
            limits, lambda enough: self._admission.committed_rows(indexes, read, after, newest_slot, enough)
        ):
            return None
        slot = self._admission.last_slot(indexes, read, after, newest_slot=newest_slot, limits=limits)
        began = starts_of(begin, snapshot) if begin.is_initial else Began()
        # Topics that were created later join only when there is something to read.
        topic_ids = snapshot.topic_ids() if slot > after else begin.topic_ids
        return StreamOffsets(begin.store_id, topic_ids, {}, slot, began=began)

    def _next_offsets(
        self,
        begin: StreamOffsets,
        newest: Mapping[TopicPartition, int],
        snapshot: TopicsSnapshot,
        *,
        indexes: SegmentIndexes,
        limits: Limits,
    ) -> StreamOffsets | None:
        read = {key: each for key, each in snapshot.partitions().items() if key in newest}
        log_starts = {key: partition.log_start_offset for key, partition in read.items()}
        starts = {key: self._start(begin, key, first) for key, first in log_starts.items()}
        latest = {key: max(newest[key], starts[key]) for key in read}
        if self._holds_back(limits, lambda enough: sum(latest[key] - starts[key] for key in latest)):
            return None
        if not self._transaction_consistent:
            ends = self._admission.ends(indexes, read, starts, latest, limits)
        else:
            firsts = {key: max(starts[key], first) for key, first in log_starts.items()}
            if limits.are_none:
                found = transaction_consistent_ends(indexes, read, firsts, latest)
            else:
                # The ends include at least one transaction, if there is one.
                def limited(times: int) -> dict[TopicPartition, int]:
                    return self._admission.ends(indexes, read, firsts, latest, limits.times(times))

                found = limited_consistent_ends(indexes, read, firsts, ends=latest, limit=limited, max_offsets=1)
            # If nothing moves, keep the offset as it was: Spark compares the text of the offsets.
            ends = {key: end if end > firsts[key] else starts[key] for key, end in found.items()}
        began = {key: starts[key] for key in ends if begin.is_initial or key not in begin.offsets}
        return StreamOffsets(begin.store_id, snapshot.topic_ids(), ends, began=Began(began))

    def _start(self, begin: StreamOffsets, key: TopicPartition, log_start: int) -> int:
        """Return the start of a partition. A new one starts at offset 0, as in the Kafka connector.

        With ``failOnDataLoss=false``, deleted rows are skipped here, so that they do not use up a limit.
        """
        start = begin.offsets.get(key, 0)
        return start if self._loss.fails else max(start, log_start)

    def _holds_back(self, limits: Limits, available: Callable[[int], int]) -> bool:
        """Return True if the stream should wait for more offsets.

        Args:
            available: counts the new offsets. It may stop at the number in its argument.
        """
        if limits.min_offsets is None or self._last_ms is None:
            return False
        if this_worker().environment.monotonic_ms() - self._last_ms >= self._max_delay_ms:
            return False
        return available(limits.min_offsets) < limits.min_offsets
