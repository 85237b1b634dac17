"""The files of a topic's ``snapshot`` at the newest slot, as its tables name them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from eoslog.format.checked_files import read_file
from eoslog.format.segment_index import SegmentIndexes
from eoslog.format.topic_schemas import stored_schema
from eoslog.maintenance.segment_rewriting import SourceFile, row_offsets, source_files
from eoslog.publication.file_statistics import file_statistics
from eoslog.publication.published_file import FileRange, PublishedFile
from eoslog.publication.topic_snapshot import TopicSnapshot
from eoslog.read.embedded_files import EmbeddedFile, put_embedded_files
from eoslog.state.partition_state import Batch, Outcome, Partition
from eoslog.state.store_state import Topic
from eoslog.storage.object_store import ObjectStore


class HiddenRows(Exception):
    """A data file holds visible and hidden rows. It must be rewritten before a version of a table names it."""


class PublishedFiles:
    """The published files of one topic. It caches the files of sealed segments."""

    def __init__(self, store: ObjectStore, indexes: SegmentIndexes) -> None:
        self._store = store
        self._indexes = indexes
        self._first_offsets: dict[str, int] = {}
        """The offset of the first row of each file that contained the log start, by path."""
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
                    files = tuple(self._files_in(snapshot.topic, stored, partition, self._indexes.batches(segment)))
                kept[path] = files
                found += files
            files = tuple(self._files_in(snapshot.topic, stored, partition, partition.active))
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

    def _files_in(
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
                range=FileRange(partition.id.partition, first.base_offset, last.end_offset, source.rows),
                size=file.length,
                end_slot=newest.end_slot,
                end_time_ms=newest.end_time_ms,
                transactional_id=newest.transactional_id,
                statistics=file_statistics(source.batches, stored, has_records=topic.topic_schema.kind == "records"),
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
