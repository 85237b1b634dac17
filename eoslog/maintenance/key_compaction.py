"""Compaction by key: of a compacted topic's sealed rows only the newest of each key stay (Kafka's ``LogCleaner``).

A pass reads the keys of the part that was never compacted, then cleans segment by segment from the log's start on, each
in one entry. Wherever it stops, what is done is right, and the next pass begins anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eoslog.errors import CorruptRecord
from eoslog.format.data_file import read_files
from eoslog.format.row_keys import RowKeys
from eoslog.format.topic_schema_json import stored_schema
from eoslog.log.log import Log
from eoslog.maintenance.offset_map import OFFSET_MAP_BYTES, OffsetMap, build_offset_map
from eoslog.maintenance.segment_rewriting import (
    TARGET_FILE_BYTES,
    RewrittenFile,
    SegmentRun,
    SourceFile,
    append_unless_lost,
    is_there,
    places_to_look_at,
    read_aborted,
    read_batches,
    read_rows,
    row_offsets,
    source_files,
    write_replacement,
)
from eoslog.state.entry_fields import FileReference
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import (
    NO_SLOT,
    NO_TIME,
    AbortedTransaction,
    Batch,
    Partition,
    ProducerState,
    SealedSegment,
)
from eoslog.state.segment_entries import LogCleaned
from eoslog.state.segment_replacement import (
    CleanedTransactions,
    cleaned_marker,
    dirty_ratio,
    is_aborted,
    is_last_of_its_producer,
    may_drop_tombstones,
    without_rows,
)
from eoslog.state.store_state import StoreState, Topic
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectStore

_TIMESTAMP = "timestamp"


@dataclass(slots=True)
class CleanedSegment:
    """What compaction leaves of a segment."""

    batches: list[Batch] = field(default_factory=list)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    """The aborted transactions of which something is left before their marker."""
    rows_removed: int = 0
    removed_end_slot: int = NO_SLOT
    """The last slot that ended a transaction of which committed rows were removed."""
    has_changed: bool = False


@dataclass(slots=True)
class _KeptRows:
    """Of one file: which rows stay, and what that makes of its batches."""

    retained: npt.NDArray[np.bool_]
    tombstones: npt.NDArray[np.bool_]
    timestamps: npt.NDArray[np.int64] | None
    """Of Kafka records (ms); None if the rows have the time of their batch."""


class Cleaner:
    """Cleans the segments of a partition, in their order from the first one on.

    Args:
        producers: what the partition knows of its producers.
        now_ms: the store's time.
    """

    def __init__(
        self,
        store: ObjectStore,
        environment: Environment,
        topic: Topic,
        producers: dict[int, ProducerState],
        offset_map: OffsetMap,
        now_ms: int,
        target_file_bytes: int,
    ) -> None:
        self._store = store
        self._environment = environment
        self._topic = topic
        self._stored = stored_schema(topic)
        self._keys = RowKeys(topic)
        self._producers = producers
        self._map = offset_map
        self._now_ms = now_ms
        self._target_file_bytes = target_file_bytes
        self._transactions = CleanedTransactions()

    def clean(self, run: SegmentRun) -> CleanedSegment:
        """Write the rows that stay, where some of their file go.

        Raises:
            CorruptRecord
        """
        batches = read_batches(self._store, run.segments)
        aborted = read_aborted(self._store, run.segments)
        with_rows = self._clean_files(run, source_files(batches))
        cleaned = CleanedSegment()
        pinned: set[int] = set()
        for batch in batches:
            left: Batch | None
            if batch.control is not None:
                is_empty = self._transactions.is_empty(batch)
                left = cleaned_marker(
                    batch, is_empty, self._producers, self._now_ms, self._topic.config.delete_retention_ms
                )
                if not is_empty:
                    pinned.add(batch.base_offset)
            else:
                self._transactions.on_batch(batch)
                left = with_rows.get(batch.base_offset)
                if left is None and is_last_of_its_producer(batch, self._producers):
                    left = without_rows(batch)
                self._count(cleaned, batch, left)
            if left is not None:
                cleaned.batches.append(left)
        cleaned.aborted = [each for each in aborted if each.last_offset in pinned]
        cleaned.has_changed = (cleaned.batches, cleaned.aborted) != (batches, aborted)
        return cleaned

    def _count(self, cleaned: CleanedSegment, before: Batch, left: Batch | None) -> None:
        removed = before.record_count - (left.record_count if left is not None else 0)
        cleaned.rows_removed += removed
        if removed and not is_aborted(before):
            cleaned.removed_end_slot = max(cleaned.removed_end_slot, before.end_slot)

    def _clean_files(self, run: SegmentRun, sources: Sequence[SourceFile]) -> dict[int, Batch]:
        """What is left of the batches that keep rows, by their base offset. Neighbouring rewritten files become one."""
        left: dict[int, Batch] = {}
        written: RewrittenFile | None = None
        pending: list[Batch] = []
        estimated_bytes = 0.0

        def close() -> None:
            nonlocal written
            if written is not None:
                file = written.upload()
                left.update((batch.base_offset, batch._replace(file=file)) for batch in pending)
                pending.clear()
                written = None

        # A file of aborted rows alone is not even read.
        kept = [each for each in sources if not all(is_aborted(batch) for batch in each.batches)]
        for source, body in zip(kept, read_files(self._store, [each.file for each in kept]), strict=True):
            rows = self._kept_rows(source, body)
            if rows.retained.all():
                close()
                left.update((batch.base_offset, batch) for batch in self._kept_batches(source, rows, None))
                continue
            if not rows.retained.any():
                continue
            part = source.file.length * float(rows.retained.mean())
            if written is not None and estimated_bytes + part > self._target_file_bytes:
                close()
            if written is None:
                written = RewrittenFile(self._store, f"{run.new_path(self._environment)}.parquet", self._stored)
                estimated_bytes = 0.0
            pending += self._kept_batches(source, rows, written.rows)
            written.add(source, body, rows.retained)
            estimated_bytes += part
        close()
        return left

    def _kept_rows(self, source: SourceFile, body: bytes) -> _KeptRows:
        counts = [batch.record_count for batch in source.batches]
        offsets = row_offsets(source, body, self._stored)
        is_dropped = np.repeat([is_aborted(batch) for batch in source.batches], counts)
        drops_tombstones = np.repeat([may_drop_tombstones(batch, self._now_ms) for batch in source.batches], counts)
        tombstones = np.zeros(source.rows, np.bool_)
        is_newest = np.ones(source.rows, np.bool_)
        records = self._topic.topic_schema.kind == "records"
        timestamps = np.zeros(source.rows, np.int64) if records else None
        columns = [*self._keys.key_columns, *self._keys.value_columns, *([_TIMESTAMP] if records else [])]
        newest, end_offset, row = self._map.newest, self._map.end_offset, 0
        for rows in read_rows(source, body, self._stored, columns):
            end = row + rows.num_rows
            keys = self._keys.keys(rows)
            # No row replaces one without a key, so it stays, unlike with Kafka's cleaner: its writer was told that it
            # is there, and may not have known yet that the topic is compacted.
            is_newest[row:end] = [
                key is None or offset >= newest.get(key, -1)
                for key, offset in zip(keys, offsets[row:end].tolist(), strict=True)
            ]
            tombstones[row:end] = self._keys.tombstones(rows) & [key is not None for key in keys]
            if timestamps is not None:
                timestamps[row:end] = rows.column(_TIMESTAMP).cast(pa.int64()).to_numpy()
            row = end
        is_kept = (offsets >= end_offset) | (is_newest & ~(tombstones & drops_tombstones))
        return _KeptRows(is_kept & ~is_dropped, tombstones, timestamps)

    def _kept_batches(self, source: SourceFile, rows: _KeptRows, first_row: int | None) -> list[Batch]:
        """The batches that keep rows; ``first_row`` is where they begin in another file, None if they stay."""
        found = []
        file: FileReference | None = source.file if first_row is None else None
        before = 0
        for batch in source.batches:
            here = slice(batch.first_row, batch.first_row + batch.record_count)
            retained = rows.retained[here]
            count = int(retained.sum())
            if not count:
                continue
            left = batch._replace(
                record_count=count, file=file, first_row=batch.first_row if first_row is None else first_row + before
            )
            if rows.timestamps is not None and count < batch.record_count:
                times = rows.timestamps[here][retained]
                left = left._replace(min_timestamp=max(-1, int(times.min())), max_timestamp=max(-1, int(times.max())))
            # What the map does not reach has not deleted its key yet.
            is_mapped = batch.end_offset <= self._map.end_offset
            if is_mapped and left.delete_horizon_ms == NO_TIME and (rows.tombstones[here] & retained).any():
                left = left._replace(delete_horizon_ms=self._now_ms + self._topic.config.delete_retention_ms)
            found.append(left)
            before += count
        return found


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
