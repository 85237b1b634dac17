"""The files of a topic's ``snapshot`` at the newest slot, as a Delta table names them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from eoslog.delta.actions import BASE_OFFSET_COLUMN, END_OFFSET_TAG, PARTITION_COLUMN, AddFile
from eoslog.delta.delta_statistics import file_statistics, whole_statistics
from eoslog.format.checked_files import read_file
from eoslog.format.segment_index import SegmentIndexes
from eoslog.format.topic_schemas import stored_schema
from eoslog.maintenance.segment_rewriting import SourceFile, row_offsets, source_files
from eoslog.read.embedded_files import EmbeddedFile, put_embedded_files
from eoslog.state.partition_state import NO_SLOT, Batch, Outcome, Partition
from eoslog.state.store_state import LastCommit, StoreState, Topic
from eoslog.state.topics import topic_named
from eoslog.storage.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A data file that contains only committed rows."""

    path: str
    """The path relative to the topic's directory."""
    partition: int
    base_offset: int
    """The offset from which the file's stored offset deltas count."""
    end_offset: int
    rows: int
    size: int
    end_slot: int
    """The last slot that committed rows of the file."""
    end_time_ms: int
    """The log's time at this slot (ms)."""
    transactional_id: str | None
    """The transactional id of this commit."""
    stats: str

    def added(self, columns: Collection[str], *, data_change: bool) -> AddFile:
        """Return the action that adds the file to a table.

        Args:
            columns: the columns for which the table's files have bounds.
        """
        return AddFile(
            path=self.path,
            partition_values={PARTITION_COLUMN: str(self.partition), BASE_OFFSET_COLUMN: str(self.base_offset)},
            size=self.size,
            modification_time=max(0, self.end_time_ms),
            data_change=data_change,
            stats=whole_statistics(self.stats, columns),
            tags={END_OFFSET_TAG: str(self.end_offset)},
        )


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """A topic at the newest slot."""

    store_id: str
    slot: int
    time_ms: int
    topic: Topic
    partitions: tuple[Partition, ...]
    last_commits: Mapping[str, LastCommit]
    """The last commits of the transactional ids that have rows in an active segment."""

    @classmethod
    def of(cls, state: StoreState, slot: int, topic: str) -> TopicSnapshot:
        """Return the snapshot of a topic.

        Raises:
            UnknownTopicOrPartition
        """
        found = topic_named(state, topic)
        partitions = tuple(state.partitions[each] for each in found.partition_ids())
        writers = {writer_of(batch.transactional_id) for partition in partitions for batch in partition.active}
        transactions = ((writer, state.transactions.get(writer)) for writer in writers)
        return cls(
            store_id=state.store_id,
            slot=slot,
            time_ms=state.time_ms,
            topic=found,
            partitions=partitions,
            last_commits={
                writer: transaction.last_commit
                for writer, transaction in transactions
                if transaction is not None and transaction.last_commit is not None
            },
        )

    @property
    def only_grows(self) -> bool:
        """True if no row was ever removed, and no setting removes rows."""
        config = self.topic.config
        return (
            not config.is_compacted
            and config.retention_ms < 0
            and config.retention_bytes < 0
            and all(
                partition.log_start_offset == 0 and partition.removed_end_slot == NO_SLOT
                for partition in self.partitions
            )
        )


def writer_of(transactional_id: str | None) -> str:
    """Return the transactional id of the commit. A task of a job commits with the id of its job."""
    return (transactional_id or "").rpartition("/")[0] or transactional_id or ""


class HiddenRows(Exception):
    """A data file holds visible and hidden rows. It must be rewritten before a version of the Delta table names it."""


class PublishedFiles:
    """The published files of one topic. It caches the files of sealed segments."""

    def __init__(self, store: ObjectStore, indexes: SegmentIndexes) -> None:
        self._store = store
        self._indexes = indexes
        self._first_offsets: dict[str, int] = {}
        """By path: the offset of the first row, for files that contained the log start."""
        self._of_segments: dict[str, tuple[PublishedFile, ...]] = {}
        """The files of sealed segments by the path of the index."""

    def of(self, snapshot: TopicSnapshot) -> list[PublishedFile]:
        """Return the files that hold exactly the rows of a snapshot. Embedded files are put as objects first.

        Raises:
            HiddenRows
            CorruptRecord: an index is missing or damaged.
        """
        stored = stored_schema(snapshot.topic)
        kept: dict[str, tuple[PublishedFile, ...]] = {}
        found: list[PublishedFile] = []
        embedded: list[EmbeddedFile] = []
        for partition in snapshot.partitions:
            for segment in partition.sealed:
                path = segment.index.path
                files = self._of_segments.get(path)
                if files is None or segment.base_offset < partition.log_start_offset:
                    files = tuple(self._in(snapshot.topic, stored, partition, self._indexes.batches(segment)))
                kept[path] = files
                found += files
            files = tuple(self._in(snapshot.topic, stored, partition, partition.active))
            found += files
            named = {f"{snapshot.topic.topic}/{each.path}" for each in files}
            embedded += [
                EmbeddedFile(batch.file, batch.slot)
                for batch in partition.active
                if batch.file is not None and not batch.file.is_object and batch.file.path in named
            ]
        put_embedded_files(self._store, embedded)
        self._of_segments = kept
        return found

    def _in(
        self, topic: Topic, stored: pa.Schema, partition: Partition, batches: Iterable[Batch]
    ) -> Iterator[PublishedFile]:
        log_start_offset = partition.log_start_offset
        for source in source_files(batches):
            file, first, last = source.file, source.batches[0], source.batches[-1]
            committed = [batch.outcome is Outcome.COMMITTED for batch in source.batches]
            if not any(committed) or last.end_offset <= log_start_offset:
                continue
            if not all(committed) or self._first_offset(source, stored, log_start_offset) < log_start_offset:
                raise HiddenRows
            newest = max(source.batches, key=lambda batch: batch.end_slot)
            yield PublishedFile(
                path=file.path.removeprefix(f"{topic.topic}/"),
                partition=partition.id.partition,
                base_offset=first.base_offset,
                end_offset=last.end_offset,
                rows=source.rows,
                size=file.length,
                end_slot=newest.end_slot,
                end_time_ms=newest.end_time_ms,
                transactional_id=newest.transactional_id,
                stats=file_statistics(source.batches, stored, has_records=topic.topic_schema.kind == "records"),
            )

    def _first_offset(self, source: SourceFile, stored: pa.Schema, log_start_offset: int) -> int:
        """Return a lower bound of the offset of a file's first row. It is exact if the file was read."""
        first = source.batches[0]
        if first.base_offset >= log_start_offset or not first.has_gaps:
            return first.base_offset
        # Compaction may have removed the first rows. Only the file shows whether it did.
        path = source.file.path
        if path not in self._first_offsets:
            body = read_file(self._store, source.file, source.slot)
            self._first_offsets[path] = int(row_offsets(source, body, stored)[0])
        return self._first_offsets[path]
