"""Sealing: close the front of a partition's active segment, below the last stable offset, and write its index files.

The batches of a sealed segment are in its index and no longer in the state. Rows in records and shared objects move to
data files of the segment. One record seals the segments of many partitions. The process writes their files in parallel
before it appends the entries that name them. If another process seals a segment first, its files stay unnamed, and
vacuum deletes them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple

from eoslog.errors import CorruptRecord, OffsetOutOfRange, UnknownTopicOrPartition
from eoslog.format.checked_files import crc32c, read_files
from eoslog.format.kafka_files import encode_producer_snapshot, encode_transaction_index, snapshot_entries
from eoslog.format.limited_groups import Limit, limited_groups
from eoslog.format.segment_index import encode_segment_index
from eoslog.maintenance.segment_rewriting import RewrittenFile, SourceFile
from eoslog.session.session import Session
from eoslog.state.draft import AppendEntries
from eoslog.state.entries import SegmentSealed
from eoslog.state.entry_fields import FileReference
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import Batch, Partition
from eoslog.state.partitions import sealable_end
from eoslog.state.store_state import StoreState, Topic
from eoslog.state.topics import topic_named

_MOST_SEGMENTS_A_RECORD = 64
_MOST_ROWS_A_RECORD = 20_000
"""The largest number of batches and producers in the files of one record, unless one segment has more."""
_MOST_MOVED_BYTES_A_RECORD = 64 << 20
"""The largest size of the rows that one record moves to data files (bytes), unless one segment has more."""
_LARGEST_MOVED_FILE_BYTES = 32 << 20
"""The largest size of the rows in one new data file (bytes). It also bounds the files that are not yet put."""


def seal_segments(session: Session) -> list[SegmentSealed]:
    """Seal every segment that is large or old enough. Return the entries that this call appended.

    Only rows below the last stable offset are sealed, because the outcome of later rows may be open.
    """

    def candidates(state: StoreState, slot: int) -> list[_Candidate]:
        now_ms = session.object_store.clock.now_ms()
        found = []
        for partition_id, partition in state.partitions.items():
            topic = state.topics[partition_id.topic_id]
            end_offset = sealable_end(partition, topic.config, now_ms)
            if end_offset is not None:
                found.append((topic, partition, end_offset))
        return found

    return _seal_while(session, candidates)


def seal_now(session: Session, topics: Collection[str]) -> list[SegmentSealed]:
    """Seal the active segments of topics, even if they are small and new. Return the entries of this call.

    The call seals up to the last stable offsets at its beginning. So it ends even if other processes keep writing. It
    skips a name without a topic, because another process may have deleted the topic meanwhile.
    """
    ends = session.log.read(
        lambda state, slot: {
            each: state.partitions[each].last_stable_offset
            for topic in topics
            if topic in state.topic_ids
            for each in topic_named(state, topic).partition_ids()
        }
    )

    def candidates(state: StoreState, slot: int) -> list[_Candidate]:
        now_ms = session.object_store.clock.now_ms()
        found = []
        for partition_id, end in ends.items():
            topic, partition = state.topics.get(partition_id.topic_id), state.partitions.get(partition_id)
            if topic is None or partition is None or partition.segment_base_offset >= end:
                continue
            end_offset = sealable_end(partition, topic.config, now_ms, of_any_age=True)
            if end_offset is not None:
                found.append((topic, partition, end_offset))
        return found

    return _seal_while(session, candidates)


_Candidate = tuple[Topic, Partition, int]
"""A partition with its topic, and the end (exclusive) up to which its active segment can be sealed."""


class _PlannedSeal(NamedTuple):
    entry: SegmentSealed
    files: list[tuple[str, bytes]]
    """The paths and contents of the entry's files that are still to be put."""


class _Sealed(NamedTuple):
    entries: list[SegmentSealed]
    """The entries that landed. Other processes sealed the other segments first."""
    damage: dict[PartitionId, CorruptRecord]
    """The error of each partition whose rows cannot be read."""


def _seal_while(session: Session, candidates: Callable[[StoreState, int], list[_Candidate]]) -> list[SegmentSealed]:
    """Seal the candidates until there are none.

    Raises:
        CorruptRecord: rows of a segment cannot be read. All other candidates were sealed.
    """
    sealed: list[SegmentSealed] = []
    damage: dict[PartitionId, CorruptRecord] = {}
    while True:
        found = session.log.read(candidates, refresh=not sealed)
        found = [each for each in found if each[1].id not in damage]
        if not found:
            break
        for group in _in_groups(found):
            of_group = _seal(session, group)
            sealed += of_group.entries
            damage |= of_group.damage
    if damage:
        raise next(iter(damage.values()))
    return sealed


def _in_groups(candidates: Sequence[_Candidate]) -> Iterator[list[_Candidate]]:
    """Yield the candidates in groups, one for each record. The memory for the files of a group is limited."""
    return limited_groups(
        candidates,
        Limit(lambda each: 1, _MOST_SEGMENTS_A_RECORD),
        Limit(lambda each: len(each[1].active) + len(each[1].start_producers), _MOST_ROWS_A_RECORD),
        Limit(lambda each: _moved_bytes(each[1]), _MOST_MOVED_BYTES_A_RECORD),
    )


def _moved_bytes(partition: Partition) -> int:
    return sum(batch.file.length for batch in partition.active if batch.file and not batch.file.is_object)


def seal_segment(session: Session, topic: Topic, partition: Partition, end_offset: int) -> None:
    """Seal the active segment of a partition up to an offset (exclusive), at or below the last stable offset.

    Do nothing if another process has sealed the segment or deleted the topic.
    """
    damage = _seal(session, [(topic, partition, end_offset)]).damage
    if damage:
        raise damage[partition.id]


def _seal(session: Session, candidates: Sequence[_Candidate]) -> _Sealed:
    """Seal one segment of each candidate, with one record."""
    log, store = session.log, session.object_store
    # A lower bound for the upload of all files: the date of an answer before the first put. The log compares it with
    # the horizon, so that vacuum never deletes a file that an entry names.
    upload_ms = store.clock.last_date_ms
    planned: list[_PlannedSeal] = []
    damage: dict[PartitionId, CorruptRecord] = {}
    for candidate in candidates:
        partition = candidate[1]
        try:
            planned.append(_plan(session, candidate, upload_ms))
        except CorruptRecord as error:
            # Another process may have sealed the segment, and slots may have been deleted since.
            if log.read(partial(_segment_base_offset, partition.id)) == partition.segment_base_offset:
                damage[partition.id] = error
    if not planned:
        return _Sealed([], damage)
    store.put_new([file for each in planned for file in each.files])
    session.environment.reached("segment.seal.files_written")
    entries = [each.entry for each in planned]
    landed = log.append(AppendEntries(entries, unless=(OffsetOutOfRange, UnknownTopicOrPartition)))
    if any(landed):
        session.environment.reached("segment.seal.sealed")
    return _Sealed([entry for entry, has_landed in zip(entries, landed, strict=True) if has_landed], damage)


def _segment_base_offset(partition_id: PartitionId, state: StoreState, slot: int) -> int | None:
    partition = state.partitions.get(partition_id)
    return None if partition is None else partition.segment_base_offset


def _plan(session: Session, candidate: _Candidate, upload_ms: int) -> _PlannedSeal:
    """Return the entry that seals a segment, with its files. Many moved rows are put at once.

    Args:
        upload_ms: a lower bound of the time at which they are put (ms by the store's clock).

    Raises:
        CorruptRecord: rows of the segment cannot be read.
    """
    topic, partition, end_offset = candidate
    count = bisect_left(partition.active, end_offset, key=lambda batch: batch.base_offset)
    base_offset = partition.segment_base_offset
    directory = f"{topic.prefix}{partition.id.partition}/{base_offset:020d}/"
    prefix = directory + session.environment.new_id()
    moved = _MovedRows(session, topic, directory)
    batches = moved.batches(partition.active[:count])
    aborted = [txn for txn in partition.aborted if txn.last_offset < end_offset]
    txnindex = encode_transaction_index(aborted)
    snapshot = encode_producer_snapshot(snapshot_entries(partition.start_producers.values()))
    files = {
        "index": (f"{prefix}.index.parquet", encode_segment_index(batches, txnindex)),
        "snapshot": (f"{prefix}.snapshot", snapshot),
    }
    if aborted:
        files["txnindex"] = (f"{prefix}.txnindex", txnindex)
    references = {
        kind: FileReference(path=path, length=len(body), crc32c=crc32c(body)) for kind, (path, body) in files.items()
    }
    entry = SegmentSealed(
        topic_id=partition.id.topic_id,
        partition=partition.id.partition,
        base_offset=base_offset,
        end_offset=end_offset,
        index=references["index"],
        txnindex=references.get("txnindex"),
        snapshot=references["snapshot"],
        data=tuple(moved.files),
        upload_ms=upload_ms,
    )
    return _PlannedSeal(entry, [*files.values(), *moved.not_put])


class _MovedRows:
    """Moves rows from records and shared objects to new data files of their segment."""

    def __init__(self, session: Session, topic: Topic, directory: str) -> None:
        self._store = session.object_store
        self._environment = session.environment
        self._topic = topic
        self._directory = directory
        self.files: list[FileReference] = []
        """The new files."""
        self.not_put: list[tuple[str, bytes]] = []
        """The paths and contents of the last new files. The caller puts them with the other files of the seal."""

    def batches(self, batches: Sequence[Batch]) -> list[Batch]:
        """Return the batches of a segment, with new files instead of embedded ones.

        An index lists the batches of a file one after the other. So a file that is an object of its own divides the
        moved rows into two new files. If the new files are larger than ``_LARGEST_MOVED_FILE_BYTES``, they are put at
        once.

        If the topic is published, each batch has a new file of its own: a version of a table may show the rows of one
        batch already, and the next version those of another one.

        Raises:
            CorruptRecord: rows cannot be read.
        """
        with_rows = [(index, batch) for index, batch in enumerate(batches) if batch.file is not None]
        found = list(batches)
        most_batches = 1 if self._topic.config.is_published else len(batches)
        for is_moved, run in groupby(with_rows, key=lambda each: _is_embedded(each[1])):
            limits = (
                Limit(lambda each: _length(each[1]), _LARGEST_MOVED_FILE_BYTES),
                Limit(lambda each: 1, most_batches),
            )
            for group in limited_groups(run, *limits) if is_moved else ():
                indexes, moved = zip(*group, strict=True)
                for index, batch in zip(indexes, self._moved(moved), strict=True):
                    found[index] = batch
        return found

    def _moved(self, batches: Sequence[Batch]) -> list[Batch]:
        """Write the rows of batches to one new file, and return the batches with this file."""
        written = RewrittenFile(f"{self._directory}{self._environment.new_id()}.parquet", self._topic)
        sources = [SourceFile(batch.file, (batch,)) for batch in batches if batch.file is not None]
        first_rows = []
        bodies = read_files(self._store, [each.file for each in sources], [each.slot for each in sources])
        for source, body in zip(sources, bodies, strict=True):
            first_rows.append(written.rows)
            written.add(source, body)
        file, content = written.finish()
        self.files.append(file)
        self.not_put.append((file.path, content))
        if sum(len(content) for _, content in self.not_put) > _LARGEST_MOVED_FILE_BYTES:
            self._store.put_new(self.not_put)
            self.not_put = []
        return [batch._replace(file=file, first_row=row) for batch, row in zip(batches, first_rows, strict=True)]


def _length(batch: Batch) -> int:
    return 0 if batch.file is None else batch.file.length


def _is_embedded(batch: Batch) -> bool:
    return batch.file is not None and not batch.file.is_object
