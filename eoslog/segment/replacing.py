"""Putting a rewritten segment in the place of sealed ones: its index files first, then the entry that names them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from eoslog.errors import OffsetOutOfRange, StagedFilesExpired, UnknownTopicOrPartition
from eoslog.log.log import Log
from eoslog.rules.aborted import AbortedTransaction
from eoslog.rules.entry_fields import FileReference
from eoslog.rules.names import PartitionId
from eoslog.rules.partition_state import Batch, SealedSegment
from eoslog.rules.requests import AppendEntry
from eoslog.rules.segment_entries import LogCleaned, ReplacedSegment, SegmentsReplaced
from eoslog.rules.state import StoreState, Topic
from eoslog.rules.topics import topic_named
from eoslog.segment.data_file import crc32c
from eoslog.segment.segment_index import decode_txnindex_copy, encode_segment_index, read_segment_index
from eoslog.segment.stored_file import read_file
from eoslog.segment.transaction_index import decode_transaction_index, encode_transaction_index
from eoslog.store.environment import Environment
from eoslog.store.object_store import ObjectStore

_RACES = (OffsetOutOfRange, UnknownTopicOrPartition, StagedFilesExpired)


@dataclass(frozen=True, slots=True)
class SegmentRun:
    """Adjacent sealed segments of a partition, as they stood when they were looked at."""

    topic: Topic
    partition: int
    segments: tuple[SealedSegment, ...]

    def new_path(self, environment: Environment) -> str:
        """Where a new file of the run goes, without its suffix."""
        base_offset = self.segments[0].base_offset
        return f"{self.topic.prefix}{self.partition}/{base_offset:020d}/{environment.new_token()}"


def read_batches(store: ObjectStore, segments: Sequence[SealedSegment]) -> list[Batch]:
    """The batches and control rows of segments.

    Raises:
        CorruptRecord: an index is missing, or not what its entry says.
    """
    return [batch for segment in segments for batch in read_segment_index(store, segment.index)]


def read_aborted(store: ObjectStore, segments: Sequence[SealedSegment]) -> list[AbortedTransaction]:
    """The aborted transactions whose marker lies in these segments.

    Raises:
        CorruptRecord
    """
    return [
        transaction
        for segment in segments
        if segment.txnindex is not None
        for transaction in decode_transaction_index(_txnindex_copy(store, segment), segment.txnindex.path)
    ]


def _txnindex_copy(store: ObjectStore, segment: SealedSegment) -> bytes:
    """The content of a segment's ``.txnindex``, as its index repeats it: the file itself may be gone.

    Raises:
        CorruptRecord: the index is missing, or not what its entry says.
    """
    return decode_txnindex_copy(read_file(store, segment.index), segment.index.path)


def write_replacement(
    store: ObjectStore,
    environment: Environment,
    run: SegmentRun,
    batches: Sequence[Batch],
    aborted: Sequence[AbortedTransaction],
    reason: Literal["merge", "compact"],
    *,
    removed_end_slot: int | None,
    upload_ms: int,
) -> SegmentsReplaced:
    """Write the index files of the segment that replaces a run.

    Args:
        upload_ms: a lower bound of the time at which the first data file was written.
    """
    path = run.new_path(environment)
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
        upload_ms=upload_ms,
        time_ms=store.clock.now_ms(),
    )


def _kept_txnindex(store: ObjectStore, run: SegmentRun, aborted: Sequence[AbortedTransaction]) -> FileReference | None:
    """The one file of the run that lists exactly these aborted transactions."""
    files = [segment.txnindex for segment in run.segments if segment.txnindex is not None]
    if len(files) != 1 or not aborted or read_aborted(store, run.segments) != list(aborted):
        return None
    return files[0]


def append_unless_lost(log: Log[StoreState], entry: SegmentsReplaced | LogCleaned) -> bool:
    """Append an entry. False if somebody else was faster: the new files are left to vacuum."""
    landed = log.append(AppendEntry(entry, unless=_RACES))
    if not landed:
        log.environment.reached("segment.replacement.overtaken")
    return landed


def is_there(log: Log[StoreState], run: SegmentRun) -> bool:
    """Whether the segments of a run still are what they were. If not, vacuum may have deleted their files."""

    def look(state: StoreState, slot: int) -> bool:
        partition = state.partitions.get(PartitionId(run.topic.topic_id, run.partition))
        return partition is not None and set(run.segments) <= set(partition.sealed)

    return log.read(look)


def places_to_look_at(state: StoreState, topic: str | None) -> list[PartitionId]:
    """The partitions of a topic, or of all topics if it is None.

    Raises:
        UnknownTopicOrPartition
    """
    topics = list(state.topics.values()) if topic is None else [topic_named(state, topic)]
    return [place for each in topics for place in each.partition_ids()]
