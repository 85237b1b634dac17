"""Rewriting of data files: the rows of several files go into one file, with their offsets in a column.

Rows are streamed. Memory holds one source file and one new file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby, takewhile
from typing import Literal, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eoslog.errors import CorruptRecord, OffsetOutOfRange, StagedFilesExpired, UnknownTopicOrPartition
from eoslog.format.checked_files import crc32c, footer_crc32c, read_file
from eoslog.format.data_file import OFFSET_DELTA_COLUMN, DataFile, DataFileBuilder
from eoslog.format.kafka_files import decode_transaction_index, encode_transaction_index
from eoslog.format.segment_index import decode_txnindex_copy, encode_segment_index, read_segment_index
from eoslog.format.topic_schemas import file_schema, stored_schema
from eoslog.maintenance.known_tables import KnownTables
from eoslog.session.session import Session
from eoslog.state.draft import AppendEntry
from eoslog.state.entries import LogCleaned, ReplacedSegment, SegmentsReplaced, SkippedFile
from eoslog.state.entry_fields import FileReference
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import NO_SLOT, AbortedTransaction, Batch, Partition, SealedSegment
from eoslog.state.store_state import StoreState, Topic
from eoslog.state.topics import topic_named
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectStore

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
_RACES = (OffsetOutOfRange, UnknownTopicOrPartition, StagedFilesExpired)
"""Errors of an entry that lost a race: its segments changed, its topic was deleted, or the horizon passed its files."""


@dataclass(frozen=True, slots=True)
class SegmentRun:
    """Adjacent sealed segments of a partition, as a snapshot of the state showed them."""

    topic: Topic
    partition: int
    segments: tuple[SealedSegment, ...]

    def new_path(self, environment: Environment) -> str:
        """Return the path of a new file of the run, without its suffix."""
        base_offset = self.segments[0].base_offset
        return f"{self.topic.prefix}{self.partition}/{base_offset:020d}/{environment.new_id()}"


def read_batches(store: ObjectStore, segments: Sequence[SealedSegment]) -> list[Batch]:
    """Return the batches and control rows of segments.

    Raises:
        CorruptRecord: an index is missing or differs from its entry.
    """
    return [batch for segment in segments for batch in read_segment_index(store, segment.index)]


def read_aborted(store: ObjectStore, segments: Sequence[SealedSegment]) -> list[AbortedTransaction]:
    """Return the aborted transactions whose marker lies in these segments.

    Raises:
        CorruptRecord: an index is missing or differs from its entry.
    """
    return [
        transaction
        for segment in segments
        if segment.txnindex is not None
        for transaction in decode_transaction_index(txnindex_copy(store, segment), segment.txnindex.path)
    ]


def txnindex_copy(store: ObjectStore, segment: SealedSegment) -> bytes:
    """Return the content of a segment's ``.txnindex``. It comes from the index, because the file may be missing.

    Raises:
        CorruptRecord: the index is missing or differs from its entry.
    """
    return decode_txnindex_copy(read_file(store, segment.index), segment.index.path)


def write_replacement(
    session: Session,
    run: SegmentRun,
    batches: Sequence[Batch],
    *,
    aborted: Sequence[AbortedTransaction],
    reason: Literal["compact_files", "compact_keys", "skip_files"],
    removed_end_slot: int | None,
    upload_ms: int,
    skipped: tuple[SkippedFile, ...] = (),
) -> SegmentsReplaced:
    """Write the index files of the segment that replaces a run, and return the entry that names them.

    Args:
        batches: the batches and control rows of the new segment.
        aborted: its aborted transactions.
        removed_end_slot: the latest slot that ended a transaction whose committed rows were removed; None if there is
            none.
        upload_ms: a lower bound of the time at which the first new data file was written (ms, the store's clock).
        skipped: the missing or damaged files whose rows were removed.
    """
    store = session.object_store
    path = run.new_path(session.environment)
    encoded_aborted = encode_transaction_index(aborted)
    objects = [(f"{path}.index.parquet", encode_segment_index(batches, encoded_aborted))]
    txnindex = _kept_txnindex(store, run, aborted)
    if aborted and txnindex is None:
        objects.append((f"{path}.txnindex", encoded_aborted))
    store.put_new(objects)
    references = [FileReference(path=name, length=len(body), crc32c=crc32c(body)) for name, body in objects]
    files = {batch.file for batch in batches if batch.file is not None}
    return SegmentsReplaced(
        topic_id=run.topic.topic_id,
        partition=run.partition,
        reason=reason,
        replaced=tuple(
            ReplacedSegment(base_offset=segment.base_offset, index=segment.index.path) for segment in run.segments
        ),
        base_offset=run.segments[0].base_offset,
        end_offset=run.segments[-1].end_offset,
        batch_count=len(batches),
        file_count=len(files),
        bytes=sum(file.length for file in files),
        min_timestamp=min((batch.min_timestamp for batch in batches), default=-1),
        max_timestamp=max((batch.max_timestamp for batch in batches), default=-1),
        index=references[0],
        txnindex=txnindex if txnindex is not None or not aborted else references[1],
        snapshot=run.segments[0].snapshot,
        removed_end_slot=removed_end_slot,
        skipped=skipped,
        upload_ms=upload_ms,
        time_ms=store.clock.now_ms(),
    )


def _kept_txnindex(store: ObjectStore, run: SegmentRun, aborted: Sequence[AbortedTransaction]) -> FileReference | None:
    """Return the run's only ``.txnindex`` if it lists exactly these aborted transactions, else None."""
    files = [segment.txnindex for segment in run.segments if segment.txnindex is not None]
    if len(files) != 1 or not aborted or read_aborted(store, run.segments) != list(aborted):
        return None
    return files[0]


class SegmentsChanged(Exception):
    """Another process changed the segments of a rewrite meanwhile. Vacuum deletes the new files."""


def append_rewrite(session: Session, entry: SegmentsReplaced | LogCleaned) -> None:
    """Append an entry.

    Raises:
        SegmentsChanged
    """
    if not session.log.append(AppendEntry(entry, unless=_RACES)):
        session.environment.reached("segment.replacement.overtaken")
        raise SegmentsChanged


def current_partition(
    session: Session, partition_id: PartitionId, *, refresh: bool = True
) -> tuple[Topic, Partition] | None:
    """Return a partition with its topic; None if the topic was deleted."""

    def found(state: StoreState, slot: int) -> tuple[Topic, Partition] | None:
        topic, partition = state.topics.get(partition_id.topic_id), state.partitions.get(partition_id)
        return None if topic is None or partition is None else (topic, partition)

    return session.log.read(found, refresh=refresh)


def are_named(session: Session, partition_id: PartitionId, segments: Iterable[SealedSegment]) -> bool:
    """Return True if the log still names all these segments. If not, vacuum may have deleted their files."""
    found = current_partition(session, partition_id)
    return found is not None and set(segments) <= set(found[1].sealed)


class Rewrite(Protocol[R_co]):
    """A planned rewrite of segments."""

    @property
    def expected(self) -> SegmentRun:
        """The segments that are still to be replaced. If one is gone, another process replaced or dropped it."""

    def run(self) -> R_co | None:
        """Rewrite the segments. Return None if there is nothing to do.

        Raises:
            SegmentsChanged
            CorruptRecord: a file is missing or damaged.
        """


def partitions_of(session: Session, topic: str | None) -> list[PartitionId]:
    """Return the partitions of a topic; None means all topics.

    Raises:
        UnknownTopicOrPartition
    """

    def partition_ids(state: StoreState, slot: int) -> list[PartitionId]:
        topics = list(state.topics.values()) if topic is None else [topic_named(state, topic)]
        return [partition_id for each in topics for partition_id in each.partition_ids()]

    return session.log.read(partition_ids)


def rewrite_all(
    session: Session,
    partitions: Iterable[PartitionId],
    plan: Callable[[Topic, Partition], Iterable[Rewrite[R]]],
) -> tuple[list[R], int]:
    """Run the rewrites that are planned for each of the partitions. Skip partitions that were deleted meanwhile.

    Of a published topic, only segments whose rows are published are rewritten. A version of a table then either adds
    rows or moves them, and a stream of the table gets each row once.

    Returns:
        The results, and the number of rewrites that were given up because another process changed the segments
        meanwhile.

    Raises:
        CorruptRecord: a file is missing or damaged. The function runs all other rewrites before it raises.
    """

    @cache
    def published_slot(topic: Topic) -> int | None:
        store_id = session.log.read(lambda state, slot: state.store_id, refresh=False)
        last = KnownTables.of(session).newest(topic, store_id)
        return None if last is None else last.slot

    def planned(partition_id: PartitionId) -> list[Rewrite[R]]:
        found = current_partition(session, partition_id, refresh=False)
        if found is None:
            return []
        topic, partition = found
        rewrites = list(plan(topic, partition))
        if rewrites and topic.config.is_published:
            rewrites = list(plan(topic, _published_part(partition, published_slot(topic))))
        return rewrites

    results: list[R] = []
    lost_races = 0
    damage: CorruptRecord | None = None
    for each in partitions:
        for rewrite in planned(each):
            try:
                result = rewrite.run()
            except SegmentsChanged:
                lost_races += 1
            except CorruptRecord as error:
                # Another process may have replaced the segments, and a vacuum may have deleted their files. That is a
                # lost race and no damage. Only a file of a segment that the log still names is damaged.
                if are_named(session, each, rewrite.expected.segments):
                    damage = error
                else:
                    lost_races += 1
            else:
                if result is not None:
                    results.append(result)
    if damage is not None:
        raise damage
    return results, lost_races


def _published_part(partition: Partition, slot: int | None) -> Partition:
    """Return a partition as if it ended before the first segment with rows that were committed after a slot.

    Args:
        slot: the slot that the newest versions of the tables show; None if one has no version. A publisher may
            be about to put the first one, at a slot before some of the rows. So no segment is rewritten until then.
    """
    published = NO_SLOT if slot is None else slot
    sealed = tuple(takewhile(lambda segment: segment.max_end_slot <= published, partition.sealed))
    if len(sealed) == len(partition.sealed):
        return partition
    return replace(partition, sealed=sealed, segment_base_offset=partition.sealed[len(sealed)].base_offset)


TARGET_FILE_BYTES = 64 << 20
"""The target size of a rewritten file. A read task fetches whole files, so they must not be too large."""


class SourceFile(NamedTuple):
    """A data file of a sealed segment, with its batches in the order of their rows."""

    file: FileReference
    batches: tuple[Batch, ...]

    @property
    def rows(self) -> int:
        return sum(batch.record_count for batch in self.batches)

    @property
    def slot(self) -> int:
        """The slot that gave the rows their offsets. A file in a record has the rows of one slot."""
        return self.batches[0].slot


def source_files(batches: Iterable[Batch]) -> list[SourceFile]:
    """Return the data files of a segment's batches, in the order of their offsets."""
    with_rows = (batch for batch in batches if batch.file is not None)
    found = []
    for _, group in groupby(with_rows, key=lambda batch: batch.file and batch.file.path):
        together = tuple(group)
        file = together[0].file
        assert file is not None
        found.append(SourceFile(file, together))
    return found


def row_offsets(source: SourceFile, body: bytes, stored: pa.Schema) -> npt.NDArray[np.int64]:
    """Return the offset of each row of a file. Only batches with gaps need the offsets that the file contains.

    Raises:
        CorruptRecord: the file is damaged.
    """
    in_file = np.empty(0, np.int64)
    if any(batch.has_gaps for batch in source.batches):
        pieces = read_rows(source, body, stored, [OFFSET_DELTA_COLUMN.name])
        in_file = np.concatenate([rows.column(0).to_numpy() for rows in pieces]) + source.batches[0].base_offset
    return np.concatenate(
        [
            in_file[batch.first_row : batch.first_row + batch.record_count]
            if batch.has_gaps
            else np.arange(batch.base_offset, batch.base_offset + batch.record_count, dtype=np.int64)
            for batch in source.batches
        ]
    )


def read_rows(
    source: SourceFile, body: bytes, stored: pa.Schema, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a file, with the named columns; None yields the topic's columns."""
    return DataFile(
        body, stored if columns is None else stored.append(OFFSET_DELTA_COLUMN), source.rows, name=source.file.path
    ).batches(columns)


class RewrittenFile:
    """A new data file that takes the rows of other files."""

    def __init__(self, path: str, topic: Topic) -> None:
        self._path = path
        self._stored = stored_schema(topic)
        self._schema = file_schema(self._stored, topic.topic_schema.arrow)
        self._builder = DataFileBuilder(self._schema)
        self._base_offset: int | None = None
        """The base offset of the first batch with rows in the new file."""

    @property
    def rows(self) -> int:
        return self._builder.rows

    def add(self, source: SourceFile, body: bytes, retained: npt.NDArray[np.bool_] | None = None) -> None:
        """Add the rows of a file.

        Args:
            source: the file.
            body: its content.
            retained: for each row, whether to add it, at least one; None adds all rows.

        Raises:
            CorruptRecord: the file is damaged.
        """
        offsets = row_offsets(source, body, self._stored)
        if self._base_offset is None:
            first_row = 0 if retained is None else int(retained.argmax())
            self._base_offset = next(
                batch.base_offset for batch in source.batches if first_row < batch.first_row + batch.record_count
            )
        deltas = offsets - self._base_offset
        row = 0
        for rows in read_rows(source, body, self._stored):
            end = row + rows.num_rows
            with_deltas = pa.Table.from_arrays([*rows.columns, pa.array(deltas[row:end])], schema=self._schema)
            self._builder.add(with_deltas if retained is None else with_deltas.filter(pa.array(retained[row:end])))
            row = end

    def finish(self) -> tuple[FileReference, bytes]:
        """Return the reference to the file, and its content."""
        body = self._builder.finish()
        checksums = {"crc32c": crc32c(body), "footer_crc32c": footer_crc32c(body)}
        return FileReference(path=self._path, length=len(body), **checksums), body

    def upload(self, store: ObjectStore) -> FileReference:
        """Write the file to the store. No reader sees it until an entry names it."""
        file, body = self.finish()
        store.put_new([(file.path, body)])
        return file
