"""Compaction of files: rewrite small data files into large ones, and join small segments into one.

Offsets, sequences, slots and outcomes do not change. Every reader sees the same rows as before, with one exception: the
new files of a published topic hold no aborted rows and no rows below the log start, because other engines read all rows
of a file. So ``read_uncommitted`` of such a topic shows aborted rows only until then. A rewrite of more than 8 MiB at
least doubles the size of its largest input, and segments are joined only if the number of their batches at least
doubles. So each row is rewritten only a few times, however often compaction runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from eoslog.format.checked_files import read_files
from eoslog.format.limited_groups import Limit, limited_groups
from eoslog.format.topic_schemas import stored_schema
from eoslog.maintenance.segment_rewriting import (
    TARGET_FILE_BYTES,
    RewrittenFile,
    SegmentRun,
    SourceFile,
    append_rewrite,
    partitions_of,
    read_aborted,
    read_batches,
    rewrite_all,
    row_offsets,
    source_files,
    write_replacement,
)
from eoslog.session.session import Session
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import Batch, Partition, SealedSegment
from eoslog.state.segment_replacement import is_aborted, without_rows
from eoslog.state.store_state import Topic

T = TypeVar("T")
_SEALED_AT_ONCE = 16
"""A compacted segment has at most this many times ``segment_batches``, because readers load its whole index."""
_FEWEST_JOINED = 4
"""A sealer joins at least this many segments at once, so that most seals cost no rewrite."""
_SMALL_BYTES = 8 << 20
"""Data files of at most this total size are cheap to rewrite (bytes)."""


@dataclass(frozen=True, slots=True)
class CompactedSegments:
    """One run of segments that compaction replaced by one segment."""

    topic: str
    partition: int
    base_offset: int
    end_offset: int
    segments: int
    """Number of segments before the replacement. One is left."""
    files_before: int
    files_after: int
    bytes_before: int
    """Bytes of the data files that were rewritten or left out."""
    bytes_written: int
    """Bytes of the new data files."""
    rows_removed: int
    """Number of rows that no reader of committed rows saw: aborted, or below the log start."""


@dataclass(slots=True)
class FileCompactionReport:
    """The results of one call of ``compact_files``."""

    compacted: list[CompactedSegments] = field(default_factory=list)
    lost_races: int = 0
    """Replacements that were given up because another process changed the segments meanwhile."""


def compact_files(
    session: Session, *, topic: str | None = None, target_file_bytes: int = TARGET_FILE_BYTES
) -> FileCompactionReport:
    """Compact small files and segments. Several processes may do so at once.

    Args:
        topic: the topic to compact; None compacts all topics.
        target_file_bytes: do not write files larger than this.

    Raises:
        UnknownTopicOrPartition
        CorruptRecord: a file is missing or damaged. The function compacts all other segments before it raises.
    """

    def plan(topic: Topic, partition: Partition) -> Iterator[FileCompaction]:
        for segments in _segments_together(topic, partition, topic.config.segment_bytes):
            if len(segments) > 1 or _has_small_files(segments[0], target_file_bytes):
                run = SegmentRun(topic, partition.id.partition, tuple(segments))
                yield FileCompaction(session, run, partition.log_start_offset, target_file_bytes)

    return FileCompactionReport(*rewrite_all(session, partitions_of(session, topic), plan))


def join_small_segments(session: Session, partitions: Collection[PartitionId]) -> FileCompactionReport:
    """Join small segments of partitions where there are several. A process that sealed them calls this.

    Small commits fill a segment with few bytes. Without this, a scan of a store without a coordinator would fetch a
    file and an index for every 500 commits. Large segments are left to ``compact_files``.

    Raises:
        CorruptRecord: a file is missing or damaged. The function joins all other segments before it raises.
    """

    def plan(topic: Topic, partition: Partition) -> Iterator[FileCompaction]:
        most_bytes = min(topic.config.segment_bytes, _SMALL_BYTES)
        for segments in _segments_together(topic, partition, most_bytes):
            if len(segments) >= _FEWEST_JOINED:
                run = SegmentRun(topic, partition.id.partition, tuple(segments))
                yield FileCompaction(session, run, partition.log_start_offset, TARGET_FILE_BYTES)

    return FileCompactionReport(*rewrite_all(session, partitions, plan))


def _has_small_files(segment: SealedSegment, target_file_bytes: int) -> bool:
    return segment.file_count > 1 and 2 * segment.bytes < target_file_bytes * segment.file_count


def _segments_together(topic: Topic, partition: Partition, most_bytes: int) -> list[Sequence[SealedSegment]]:
    """Return the sealed segments in runs. Each run becomes one segment, of at most ``most_bytes`` of data files."""
    most_batches = _SEALED_AT_ONCE * topic.config.segment_batches
    together: list[Sequence[SealedSegment]] = []
    clean = [each for each in partition.sealed if each.end_offset <= partition.cleaned_offset]
    # Never join clean and dirty segments: compaction by key treats a segment as clean or dirty as a whole.
    for side in (clean, partition.sealed[len(clean) :]):
        limits = (
            Limit(lambda segment: segment.bytes, most_bytes),
            Limit(lambda segment: segment.batch_count, most_batches),
        )
        for group in limited_groups(side, *limits):
            together += doubling_runs(group, lambda segment: segment.batch_count + 1)
    return together


@dataclass(frozen=True, slots=True)
class FileCompaction:
    """The compaction of a run of segments, which become one segment."""

    session: Session
    expected: SegmentRun
    log_start_offset: int
    """The log start of the partition. Rows below it are left out of new files."""
    target_file_bytes: int
    joins_files: bool = True
    """False: only rewrite files with hidden rows."""

    def run(self) -> CompactedSegments | None:
        """Compact the segments. Return None if there is nothing to do.

        Raises:
            SegmentsChanged
            CorruptRecord: a file is missing or damaged.
        """
        store, environment = self.session.object_store, self.session.environment
        # Read the date before the first put: the log compares this lower bound with the horizon of vacuum.
        upload_ms = store.clock.last_date_ms
        batches = read_batches(store, self.expected.segments)
        sources = source_files(batches)
        visible = [source for source in sources if any(self._keeps(batch) for batch in source.batches)]
        rewritten = [each for each in self._groups(visible) if len(each) > 1 or self._has_hidden_rows(each[0])]
        if not rewritten and len(self.expected.segments) == 1:
            return None
        unchanged = {source.file.path for source in visible}.difference(*map(_paths, rewritten))
        left: dict[int, Batch] = {}
        for each in rewritten:
            left |= self._join(each)
        environment.reached("segment.compact_files.files_written")
        kept = [
            batch
            if batch.file is None or batch.file.path in unchanged
            else left.get(batch.base_offset) or without_rows(batch)
            for batch in batches
        ]
        entry = write_replacement(
            self.session,
            self.expected,
            kept,
            aborted=read_aborted(store, self.expected.segments),
            reason="compact_files",
            removed_end_slot=None,
            upload_ms=upload_ms,
        )
        environment.reached("segment.compact_files.index_written")
        append_rewrite(self.session, entry)
        environment.reached("segment.compact_files.replaced")
        return CompactedSegments(
            topic=self.expected.topic.topic,
            partition=self.expected.partition,
            base_offset=entry.base_offset,
            end_offset=entry.end_offset,
            segments=len(self.expected.segments),
            files_before=len(sources),
            files_after=entry.file_count,
            bytes_before=sum(each.file.length for each in sources if each.file.path not in unchanged),
            bytes_written=sum({batch.file: batch.file.length for batch in left.values() if batch.file}.values()),
            rows_removed=sum(each.record_count for each in batches) - sum(each.record_count for each in kept),
        )

    def _groups(self, sources: Sequence[SourceFile]) -> Iterator[Sequence[SourceFile]]:
        """Yield the files in groups. The files of a group become one file. A group may have one file."""
        if not self.joins_files:
            yield from ([source] for source in sources)
            return
        for chunk in limited_groups(sources, Limit(lambda source: source.file.length, self.target_file_bytes)):
            if sum(source.file.length for source in chunk) <= _SMALL_BYTES:
                yield chunk
            else:
                yield from doubling_runs(chunk, lambda source: source.file.length)

    def _keeps(self, batch: Batch) -> bool:
        """Return True if new files hold rows of a batch."""
        is_hidden = is_aborted(batch) or batch.end_offset <= self.log_start_offset
        return not (is_hidden and self.expected.topic.config.is_published)

    def _straddles(self, source: SourceFile) -> bool:
        """Return True if the log starts within a file of a published topic."""
        is_within = source.batches[0].base_offset < self.log_start_offset < source.batches[-1].end_offset
        return is_within and self.expected.topic.config.is_published

    def _has_hidden_rows(self, source: SourceFile) -> bool:
        return self._straddles(source) or not all(self._keeps(batch) for batch in source.batches)

    def _join(self, sources: Sequence[SourceFile]) -> dict[int, Batch]:
        """Write the rows of files into a new one. Return the batches that have rows there, by base offset."""
        path = f"{self.expected.new_path(self.session.environment)}.parquet"
        stored = stored_schema(self.expected.topic)
        written = RewrittenFile(path, self.expected.topic)
        joined: list[Batch] = []
        bodies = read_files(self.session.object_store, [each.file for each in sources])
        for source, body in zip(sources, bodies, strict=True):
            counts = [batch.record_count for batch in source.batches]
            retained = np.repeat([self._keeps(batch) for batch in source.batches], counts)
            if self._straddles(source):
                retained &= row_offsets(source, body, stored) >= self.log_start_offset
            if not retained.any():
                continue
            first_row = written.rows
            for batch, of_batch in zip(source.batches, np.split(retained, np.cumsum(counts)[:-1]), strict=True):
                count = int(of_batch.sum())
                if count:
                    joined.append(batch._replace(record_count=count, first_row=first_row))
                first_row += count
            written.add(source, body, retained)
        if not joined:
            return {}
        file = written.upload(self.session.object_store)
        return {batch.base_offset: batch._replace(file=file) for batch in joined}


def _paths(sources: Iterable[SourceFile]) -> set[str]:
    return {source.file.path for source in sources}


def doubling_runs(items: Sequence[T], weight: Callable[[T], int]) -> list[Sequence[T]]:
    """Split the items, in their order, into runs that weigh at least twice as much as their heaviest item.

    An item that fits into no run of this kind is a run alone.
    """
    if len(items) < 2:
        return [items] if items else []
    weights = [weight(item) for item in items]
    heaviest = weights.index(max(weights))
    if sum(weights) >= 2 * weights[heaviest]:
        return [items]
    before, after = doubling_runs(items[:heaviest], weight), doubling_runs(items[heaviest + 1 :], weight)
    return [*before, items[heaviest : heaviest + 1], *after]
