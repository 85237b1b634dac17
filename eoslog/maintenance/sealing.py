"""Sealing: close the front of a partition's active segment, below the last stable offset, and write its index files.

The batches of a sealed segment are in its index and no longer in the state. One record seals the segments of many
partitions. The process writes their files in parallel before it appends the entries that name them. If another process
seals a segment first, its files stay unnamed, and vacuum deletes them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from eoslog.errors import OffsetOutOfRange, UnknownTopicOrPartition
from eoslog.format.checked_files import crc32c
from eoslog.format.kafka_files import encode_producer_snapshot, encode_transaction_index, snapshot_entries
from eoslog.format.segment_index import encode_segment_index
from eoslog.log.log import Log
from eoslog.state.draft import AppendEntries
from eoslog.state.entries import SegmentSealed
from eoslog.state.entry_fields import FileReference
from eoslog.state.partition_state import Partition
from eoslog.state.partitions import sealable_end
from eoslog.state.store_state import StoreState, Topic
from eoslog.state.topics import topic_named
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectStore

_MOST_SEGMENTS_A_RECORD = 64
_MOST_ROWS_A_RECORD = 20_000
"""The largest number of batches and producers in the files of one record, unless one segment has more."""


def seal_segments(log: Log[StoreState], store: ObjectStore, environment: Environment) -> list[SegmentSealed]:
    """Seal every segment that is large or old enough. Return the entries that this call appended.

    Only rows below the last stable offset are sealed, because the outcome of later rows may be open.
    """

    def candidates(state: StoreState, slot: int) -> list[_Candidate]:
        now_ms = store.clock.now_ms()
        found = []
        for partition_id, partition in state.partitions.items():
            topic = state.topics[partition_id.topic_id]
            end_offset = sealable_end(partition, topic.config, now_ms)
            if end_offset is not None:
                found.append((topic, partition, end_offset))
        return found

    return _seal_while(log, store, environment, candidates)


def seal_now(
    log: Log[StoreState], store: ObjectStore, environment: Environment, topics: Collection[str]
) -> list[SegmentSealed]:
    """Seal the active segments of topics, even if they are small and new. Return the entries of this call.

    The call seals up to the last stable offsets at its beginning. So it ends even if other processes keep writing. It
    skips a name without a topic, because another process may have deleted the topic meanwhile.
    """
    ends = log.read(
        lambda state, slot: {
            each: state.partitions[each].last_stable_offset
            for topic in topics
            if topic in state.topic_ids
            for each in topic_named(state, topic).partition_ids()
        }
    )

    def candidates(state: StoreState, slot: int) -> list[_Candidate]:
        now_ms = store.clock.now_ms()
        found = []
        for partition_id, end in ends.items():
            topic, partition = state.topics.get(partition_id.topic_id), state.partitions.get(partition_id)
            if topic is None or partition is None or partition.segment_base_offset >= end:
                continue
            end_offset = sealable_end(partition, topic.config, now_ms, of_any_age=True)
            if end_offset is not None:
                found.append((topic, partition, end_offset))
        return found

    return _seal_while(log, store, environment, candidates)


_Candidate = tuple[Topic, Partition, int]
"""A partition with its topic, and the end (exclusive) up to which its active segment can be sealed."""


class _PlannedSeal(NamedTuple):
    """The seal of one segment."""

    entry: SegmentSealed
    files: list[tuple[str, bytes]]
    """The paths and contents of the files that the entry names."""


def _seal_while(
    log: Log[StoreState],
    store: ObjectStore,
    environment: Environment,
    candidates: Callable[[StoreState, int], list[_Candidate]],
) -> list[SegmentSealed]:
    """Seal the candidates until there are none."""
    sealed: list[SegmentSealed] = []
    while True:
        found = log.read(candidates, refresh=not sealed)
        if not found:
            return sealed
        for group in _in_groups(found):
            sealed += _seal(log, store, environment, group)


def _in_groups(candidates: Sequence[_Candidate]) -> Iterator[list[_Candidate]]:
    """Yield the candidates in groups, one for each record. The memory for the files of a group is limited."""
    group: list[_Candidate] = []
    rows = 0
    for each in candidates:
        partition = each[1]
        count = len(partition.active) + len(partition.start_producers)
        if group and (len(group) == _MOST_SEGMENTS_A_RECORD or rows + count > _MOST_ROWS_A_RECORD):
            yield group
            group, rows = [], 0
        group.append(each)
        rows += count
    yield group


def seal_segment(
    log: Log[StoreState],
    store: ObjectStore,
    environment: Environment,
    topic: Topic,
    partition: Partition,
    end_offset: int,
) -> None:
    """Seal the active segment of a partition up to an offset (exclusive), at or below the last stable offset.

    Do nothing if another process has sealed the segment or deleted the topic.
    """
    _seal(log, store, environment, [(topic, partition, end_offset)])


def _seal(
    log: Log[StoreState], store: ObjectStore, environment: Environment, candidates: Sequence[_Candidate]
) -> list[SegmentSealed]:
    """Seal one segment of each candidate. Return the entries, without those of segments that others sealed first."""
    # A lower bound for the upload of all files: the date of an answer before the first put. The log compares it with
    # the horizon, so that vacuum never deletes a file that an entry names.
    upload_ms = store.clock.last_date_ms
    planned = [_plan(candidate, environment.new_id(), upload_ms) for candidate in candidates]
    store.put_new([file for each in planned for file in each.files])
    environment.reached("segment.seal.files_written")
    entries = [each.entry for each in planned]
    landed = log.append(AppendEntries(entries, unless=(OffsetOutOfRange, UnknownTopicOrPartition)))
    if any(landed):
        environment.reached("segment.seal.sealed")
    return [entry for entry, has_landed in zip(entries, landed, strict=True) if has_landed]


def _plan(candidate: _Candidate, name: str, upload_ms: int) -> _PlannedSeal:
    """Return the entry that seals a segment, with its files.

    Args:
        name: a random name for the files.
        upload_ms: a lower bound of the time at which they are put (ms by the store's clock).
    """
    topic, partition, end_offset = candidate
    count = bisect_left(partition.active, end_offset, key=lambda batch: batch.base_offset)
    base_offset = partition.segment_base_offset
    prefix = f"{topic.prefix}{partition.id.partition}/{base_offset:020d}/{name}"
    aborted = [txn for txn in partition.aborted if txn.last_offset < end_offset]
    txnindex = encode_transaction_index(aborted)
    snapshot = encode_producer_snapshot(snapshot_entries(partition.start_producers.values()))
    files = {
        "index": (f"{prefix}.index.parquet", encode_segment_index(partition.active[:count], txnindex)),
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
        upload_ms=upload_ms,
    )
    return _PlannedSeal(entry, list(files.values()))
