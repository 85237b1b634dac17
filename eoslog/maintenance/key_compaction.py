"""Compaction by key: keep only the newest sealed row of each key in a compacted topic (Kafka's ``LogCleaner``).

A pass reads the keys of the dirty part, which no pass has compacted yet. Then it cleans one segment after the other,
beginning at the log start. Each segment is replaced by one entry. A pass may stop anywhere: finished segments are
correct, and the next pass starts again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eoslog.format.checked_files import read_files
from eoslog.format.partitioner import RowKeys
from eoslog.format.topic_schemas import stored_schema
from eoslog.maintenance.offset_map import OFFSET_MAP_BYTES, OffsetMap, build_offset_map
from eoslog.maintenance.segment_rewriting import (
    TARGET_FILE_BYTES,
    RewrittenFile,
    SegmentRun,
    SourceFile,
    append_rewrite,
    partitions_of,
    read_aborted,
    read_batches,
    read_rows,
    rewrite_all,
    row_offsets,
    source_files,
    write_replacement,
)
from eoslog.session.session import Session
from eoslog.state.entries import LogCleaned
from eoslog.state.entry_fields import FileReference
from eoslog.state.partition_state import (
    NO_SLOT,
    NO_TIME,
    AbortedTransaction,
    Batch,
    Partition,
    ProducerState,
    SealedSegment,
)
from eoslog.state.segment_replacement import (
    CleanedTransactions,
    cleaned_marker,
    dirty_ratio,
    is_aborted,
    is_last_of_its_producer,
    may_drop_tombstones,
    without_rows,
)
from eoslog.state.store_state import Topic

_TIMESTAMP = "timestamp"


@dataclass(slots=True)
class CleanedSegment:
    """The batches and rows that compaction leaves of a segment."""

    batches: list[Batch] = field(default_factory=list)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    """The aborted transactions that still have rows before their marker."""
    rows_removed: int = 0
    removed_end_slot: int = NO_SLOT
    """The latest slot that ended a transaction whose committed rows were removed; ``NO_SLOT`` if there is none."""
    has_changed: bool = False


@dataclass(slots=True)
class _KeptRows:
    """For each row of one file: whether it stays, and the values that its batch's metadata needs."""

    retained: npt.NDArray[np.bool_]
    tombstones: npt.NDArray[np.bool_]
    timestamps: npt.NDArray[np.int64] | None
    """The rows' own timestamps (ms), for Kafka records; None if the rows have the time of their batch."""


class Cleaner:
    """Cleans the segments of a partition. The caller passes them in order, because a transaction may span several.

    Args:
        producers: the partition's producer state, by producer id.
        offset_map: the offset of the newest row of each key.
        now_ms: the time of the store's clock.
    """

    def __init__(
        self,
        session: Session,
        topic: Topic,
        producers: dict[int, ProducerState],
        *,
        offset_map: OffsetMap,
        now_ms: int,
    ) -> None:
        self._store = session.object_store
        self._environment = session.environment
        self._topic = topic
        self._stored = stored_schema(topic)
        self._keys = RowKeys(topic)
        self._producers = producers
        self._map = offset_map
        self._now_ms = now_ms
        self._transactions = CleanedTransactions()

    def clean(self, run: SegmentRun) -> CleanedSegment:
        """Write new files for the rows that stay, and return what is left. Files that keep all rows are not rewritten.

        Raises:
            CorruptRecord: a file or an index is missing or damaged.
        """
        batches = read_batches(self._store, run.segments)
        aborted = read_aborted(self._store, run.segments)
        with_rows = self._clean_files(run, source_files(batches))
        cleaned = CleanedSegment()
        needed_markers: set[int] = set()
        for batch in batches:
            left: Batch | None
            if batch.control is not None:
                is_empty = self._transactions.is_empty(batch)
                left = cleaned_marker(
                    batch,
                    is_empty,
                    self._producers,
                    now_ms=self._now_ms,
                    retention_ms=self._topic.config.delete_retention_ms,
                )
                if not is_empty:
                    needed_markers.add(batch.base_offset)
            else:
                self._transactions.on_batch(batch)
                left = with_rows.get(batch.base_offset)
                if left is None and is_last_of_its_producer(batch, self._producers):
                    # The producer's last sequence must survive, so the batch stays without rows, as in Kafka.
                    left = without_rows(batch)
                self._count(cleaned, batch, left)
            if left is not None:
                cleaned.batches.append(left)
        cleaned.aborted = [each for each in aborted if each.last_offset in needed_markers]
        cleaned.has_changed = (cleaned.batches, cleaned.aborted) != (batches, aborted)
        return cleaned

    def _count(self, cleaned: CleanedSegment, before: Batch, left: Batch | None) -> None:
        removed = before.record_count - (left.record_count if left is not None else 0)
        cleaned.rows_removed += removed
        if removed and not is_aborted(before):
            cleaned.removed_end_slot = max(cleaned.removed_end_slot, before.end_slot)

    def _clean_files(self, run: SegmentRun, sources: Sequence[SourceFile]) -> dict[int, Batch]:
        """Write the rows that stay. Return the batches that keep rows, by their base offset.

        Neighboring files that lose rows are rewritten into one file.
        """
        left: dict[int, Batch] = {}
        written: RewrittenFile | None = None
        pending: list[Batch] = []
        estimated_bytes = 0.0

        def close() -> None:
            nonlocal written
            if written is not None:
                file = written.upload(self._store)
                left.update((batch.base_offset, batch._replace(file=file)) for batch in pending)
                pending.clear()
                written = None

        # A file with only aborted rows keeps none, so do not read it.
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
            if written is not None and estimated_bytes + part > TARGET_FILE_BYTES:
                close()
            if written is None:
                written = RewrittenFile(f"{run.new_path(self._environment)}.parquet", run.topic)
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
            # A row without a key stays, unlike in Kafka's cleaner. Its writer got an answer that the row is stored, and
            # may have written it before the topic became compacted.
            is_newest[row:end] = [
                key is None or offset >= newest.get(key, -1)
                for key, offset in zip(keys, offsets[row:end].tolist(), strict=True)
            ]
            tombstones[row:end] = self._keys.tombstones(rows)
            if timestamps is not None:
                timestamps[row:end] = rows.column(_TIMESTAMP).cast(pa.int64()).to_numpy()
            row = end
        is_kept = (offsets >= end_offset) | (is_newest & ~(tombstones & drops_tombstones))
        return _KeptRows(is_kept & ~is_dropped, tombstones, timestamps)

    def _kept_batches(self, source: SourceFile, rows: _KeptRows, first_row: int | None) -> list[Batch]:
        """Return the batches of a file that keep rows.

        Args:
            first_row: the number of the row at which they begin in the new file; None if the file is not rewritten.
        """
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
            # A tombstone beyond the map has not removed older rows of its key yet, so its retention must not start.
            is_mapped = batch.end_offset <= self._map.end_offset
            if is_mapped and left.delete_horizon_ms == NO_TIME and (rows.tombstones[here] & retained).any():
                left = left._replace(delete_horizon_ms=self._now_ms + self._topic.config.delete_retention_ms)
            found.append(left)
            before += count
        return found


@dataclass(frozen=True, slots=True)
class CompactedPartition:
    """The results of one pass over a partition."""

    topic: str
    partition: int
    cleaned_offset: int
    """The offset up to which the partition is compacted now (exclusive)."""
    segments_replaced: int
    rows_removed: int
    """Number of removed rows, committed and aborted."""
    bytes_before: int
    """Bytes of the data files of the segments in the pass."""
    bytes_after: int


@dataclass(slots=True)
class KeyCompactionReport:
    """The results of one call of ``compact_keys``."""

    partitions: list[CompactedPartition] = field(default_factory=list)
    """The partitions whose pass reached its end."""
    lost_races: int = 0
    """Passes that were given up because another process changed a segment meanwhile. They run again when due."""


def compact_keys(
    session: Session,
    *,
    topic: str | None = None,
    force: bool = False,
    offset_map_bytes: int = OFFSET_MAP_BYTES,
) -> KeyCompactionReport:
    """Compact by key the partitions that are due. Several processes may do so at once.

    Args:
        topic: the topic to compact; None compacts all topics whose ``cleanup_policy`` includes ``compact``.
        force: compact every partition, even if it is not due.
        offset_map_bytes: the largest memory for the keys of a pass. Further rows wait for the next pass.

    Raises:
        UnknownTopicOrPartition
        CorruptRecord: a file is missing or damaged. The function compacts all other partitions before it raises.
    """

    def plan(topic: Topic, partition: Partition) -> Iterator[_Pass]:
        if topic.config.is_compacted and partition.sealed:
            yield _Pass(session, topic, partition, force=force, offset_map_bytes=offset_map_bytes)

    return KeyCompactionReport(*rewrite_all(session, partitions_of(session, topic), plan))


class _Pass:
    """One pass of compaction over a partition."""

    def __init__(
        self,
        session: Session,
        topic: Topic,
        partition: Partition,
        *,
        force: bool,
        offset_map_bytes: int,
    ) -> None:
        self._session = session
        self._store = session.object_store
        self._environment = session.environment
        self._topic = topic
        self._partition = partition
        self._force = force
        self._offset_map_bytes = offset_map_bytes
        self._now_ms = self._store.clock.now_ms()
        self.expected = SegmentRun(topic, partition.id.partition, partition.sealed)

    def _is_due(self) -> bool:
        """Return True if a large enough part is dirty, or if rows were dirty for too long (``LogCleanerManager``)."""
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
        """Return the first offset that must not be compacted yet: its rows are not sealed, or ended too recently."""
        end = self._partition.segment_base_offset
        lag_ms = self._topic.config.min_compaction_lag_ms
        for segment in self._dirty_segments(end) if lag_ms else ():
            if any(batch.end_time_ms > self._now_ms - lag_ms for batch in read_batches(self._store, [segment])):
                return segment.base_offset
        return end

    def run(self) -> CompactedPartition | None:
        """Clean the partition if it is due, and record the offset up to which it is compacted.

        Returns:
            None if the partition is not due.

        Raises:
            SegmentsChanged
            CorruptRecord: a file is missing or damaged.
        """
        if not self._force and not self._is_due():
            return None
        partition = self._partition
        end = max(partition.cleaned_offset, self._uncleanable_offset())
        start = max(partition.cleaned_offset, partition.log_start_offset)
        offset_map = build_offset_map(
            self._store,
            self._topic,
            self._dirty_segments(end),
            start_offset=start,
            end_offset=end,
            most_bytes=self._offset_map_bytes,
        )
        cleaner = Cleaner(self._session, self._topic, partition.producers, offset_map=offset_map, now_ms=self._now_ms)
        cleanable = [segment for segment in partition.sealed if segment.base_offset < offset_map.end_offset]
        replaced = rows_removed = bytes_after = 0
        for segment in cleanable:
            removed, size = self._clean(cleaner, segment)
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
            append_rewrite(self._session, entry)
            self._environment.reached("segment.compact_keys.cleaned")
        return CompactedPartition(
            topic=self._topic.topic,
            partition=partition.id.partition,
            cleaned_offset=offset_map.end_offset,
            segments_replaced=replaced,
            rows_removed=rows_removed,
            bytes_before=sum(segment.bytes for segment in cleanable),
            bytes_after=bytes_after,
        )

    def _clean(self, cleaner: Cleaner, segment: SealedSegment) -> tuple[int, int | None]:
        """Clean one segment and append the entry that replaces it.

        Returns:
            The number of removed rows. Then the new size in bytes, or None if nothing changed.

        Raises:
            SegmentsChanged
        """
        # Read the date before the first put: the log compares this lower bound with the horizon of vacuum.
        upload_ms = self._store.clock.last_date_ms
        run = SegmentRun(self._topic, self._partition.id.partition, (segment,))
        cleaned = cleaner.clean(run)
        if not cleaned.has_changed:
            return 0, None
        self._environment.reached("segment.compact_keys.files_written")
        entry = write_replacement(
            self._session,
            run,
            cleaned.batches,
            aborted=cleaned.aborted,
            reason="compact_keys",
            removed_end_slot=None if cleaned.removed_end_slot == NO_SLOT else cleaned.removed_end_slot,
            upload_ms=upload_ms,
        )
        self._environment.reached("segment.compact_keys.index_written")
        append_rewrite(self._session, entry)
        others = tuple(each for each in self.expected.segments if each is not segment)
        self.expected = replace(self.expected, segments=others)
        self._environment.reached("segment.compact_keys.replaced")
        return cleaned.rows_removed, entry.bytes
