"""Compaction by key: of a compacted topic's sealed rows only the newest of each key stay (Kafka's ``LogCleaner``).

A pass reads the keys of the part that was never compacted, then cleans segment by segment from the log's start on, each
in one entry. Wherever it stops, what is done is right, and the next pass begins anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from eoslog.errors import CorruptRecord
from eoslog.log.log import Log
from eoslog.rules.cleaning import dirty_ratio
from eoslog.rules.names import PartitionId
from eoslog.rules.partition_state import NO_SLOT, Partition, SealedSegment
from eoslog.rules.segment_entries import LogCleaned
from eoslog.rules.state import StoreState, Topic
from eoslog.segment.cleaning import Cleaner
from eoslog.segment.offset_map import OFFSET_MAP_BYTES, build_offset_map
from eoslog.segment.replacing import (
    SegmentRun,
    append_unless_lost,
    is_there,
    places_to_look_at,
    read_batches,
    write_replacement,
)
from eoslog.segment.rewriting import TARGET_FILE_BYTES
from eoslog.store.environment import Environment
from eoslog.store.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class CompactedPartition:
    """One pass over a partition."""

    topic: str
    partition: int
    cleaned_offset: int
    """Up to where compaction is done now (exclusive)."""
    segments_replaced: int
    rows_removed: int
    """Committed and aborted ones."""
    bytes_before: int
    """Of the data files of the segments that were looked at."""
    bytes_after: int


@dataclass(slots=True)
class CompactionReport:
    """What compaction did."""

    partitions: list[CompactedPartition] = field(default_factory=list)
    """Those that a pass went over to its end."""
    lost_races: int = 0
    """Passes that were given up because a segment moved meanwhile. They are made again when they are due."""


def compact(
    log: Log[StoreState],
    store: ObjectStore,
    environment: Environment,
    *,
    topic: str | None = None,
    force: bool = False,
    offset_map_bytes: int = OFFSET_MAP_BYTES,
    target_file_bytes: int = TARGET_FILE_BYTES,
) -> CompactionReport:
    """Compact what is due, in one topic or in all that are compacted. Any number of processes may do so at once.

    Args:
        force: a pass over every partition, due or not.
        offset_map_bytes: how much memory the keys of a pass may take; what is beyond waits for the next pass.

    Raises:
        UnknownTopicOrPartition
        CorruptRecord: a file is missing or damaged. All other partitions were compacted before this is told.
    """
    report = CompactionReport()
    damage: CorruptRecord | None = None
    for place in log.read(lambda state, slot: places_to_look_at(state, topic)):
        found = log.read(lambda state, slot, place=place: _look(state, place), refresh=False)  # type: ignore[misc]
        if found is None:
            continue
        pass_ = _Pass(log, store, environment, *found, offset_map_bytes, target_file_bytes)
        try:
            if force or pass_.is_due():
                pass_.run(report)
        except CorruptRecord as error:
            if is_there(log, pass_.still_expected):
                damage = error
            else:
                report.lost_races += 1
    if damage is not None:
        raise damage
    return report


def _look(state: StoreState, place: PartitionId) -> tuple[Topic, Partition] | None:
    topic, partition = state.topics.get(place.topic_id), state.partitions.get(place)
    if topic is None or partition is None or not topic.config.is_compacted or not partition.sealed:
        return None
    return topic, partition


class _Pass:
    def __init__(
        self,
        log: Log[StoreState],
        store: ObjectStore,
        environment: Environment,
        topic: Topic,
        partition: Partition,
        offset_map_bytes: int,
        target_file_bytes: int,
    ) -> None:
        self._log = log
        self._store = store
        self._environment = environment
        self._topic = topic
        self._partition = partition
        self._offset_map_bytes = offset_map_bytes
        self._target_file_bytes = target_file_bytes
        self._now_ms = store.clock.now_ms()
        self.still_expected = SegmentRun(topic, partition.id.partition, partition.sealed)
        """The segments that only somebody else can have replaced or dropped."""

    def is_due(self) -> bool:
        """Whether enough was never compacted, or something for too long (``LogCleanerManager``)."""
        end = self._uncleanable_offset()
        dirty = self._dirty_segments(end)
        if not dirty:
            return False
        config = self._topic.config
        if dirty_ratio(self._partition, end) > config.min_cleanable_dirty_ratio:
            return True
        if config.max_compaction_lag_ms < 0:
            return False
        oldest_ms = min((batch.end_time_ms for batch in read_batches(self._store, dirty[:1])), default=self._now_ms)
        return self._now_ms - oldest_ms > config.max_compaction_lag_ms

    def _dirty_segments(self, end: int) -> Sequence[SealedSegment]:
        return [
            segment
            for segment in self._partition.sealed
            if segment.end_offset > self._partition.cleaned_offset and segment.base_offset < end
        ]

    def _uncleanable_offset(self) -> int:
        """Where rows begin that must not be compacted yet: those not sealed, or decided too short a time ago."""
        end = self._partition.segment_base_offset
        lag_ms = self._topic.config.min_compaction_lag_ms
        for segment in self._dirty_segments(end) if lag_ms else ():
            if any(batch.end_time_ms > self._now_ms - lag_ms for batch in read_batches(self._store, [segment])):
                return segment.base_offset
        return end

    def run(self, report: CompactionReport) -> None:
        """Clean the partition, and note how far that went."""
        partition = self._partition
        end = max(partition.cleaned_offset, self._uncleanable_offset())
        start = max(partition.cleaned_offset, partition.log_start_offset)
        offset_map = build_offset_map(
            self._store, self._topic, self._dirty_segments(end), start, end, self._offset_map_bytes
        )
        cleaner = Cleaner(
            self._store,
            self._environment,
            self._topic,
            partition.producers,
            offset_map,
            self._now_ms,
            self._target_file_bytes,
        )
        cleanable = [segment for segment in partition.sealed if segment.base_offset < offset_map.end_offset]
        replaced = rows_removed = bytes_after = 0
        for segment in cleanable:
            removed, size = self._clean(cleaner, segment)
            if removed is None:
                report.lost_races += 1
                return
            replaced += size is not None
            rows_removed += removed
            bytes_after += segment.bytes if size is None else size
        if offset_map.end_offset > partition.cleaned_offset:
            entry = LogCleaned(
                topic_id=self._topic.topic_id,
                partition=partition.id.partition,
                dirty_offset=partition.cleaned_offset,
                cleaned_offset=offset_map.end_offset,
                time_ms=self._now_ms,
            )
            if not append_unless_lost(self._log, entry):
                report.lost_races += 1
                return
            self._environment.reached("segment.compact.cleaned")
        report.partitions.append(
            CompactedPartition(
                self._topic.topic,
                partition.id.partition,
                offset_map.end_offset,
                replaced,
                rows_removed,
                sum(segment.bytes for segment in cleanable),
                bytes_after,
            )
        )

    def _clean(self, cleaner: Cleaner, segment: SealedSegment) -> tuple[int | None, int | None]:
        """Clean one segment: the rows removed, None if the segment moved; its size then, None if nothing changed."""
        upload_ms = self._store.clock.last_date_ms
        run = SegmentRun(self._topic, self._partition.id.partition, (segment,))
        cleaned = cleaner.clean(run)
        if not cleaned.has_changed:
            return 0, None
        self._environment.reached("segment.compact.files_written")
        entry = write_replacement(
            self._store,
            self._environment,
            run,
            cleaned.batches,
            cleaned.aborted,
            "compact",
            removed_end_slot=None if cleaned.removed_end_slot == NO_SLOT else cleaned.removed_end_slot,
            upload_ms=upload_ms,
        )
        self._environment.reached("segment.compact.index_written")
        if not append_unless_lost(self._log, entry):
            return None, None
        others = tuple(each for each in self.still_expected.segments if each is not segment)
        self.still_expected = replace(self.still_expected, segments=others)
        self._environment.reached("segment.compact.replaced")
        return cleaned.rows_removed, entry.bytes
