"""Sealing: the decided front of a partition becomes a closed segment with index files, and leaves the state.

The files are written before the entry that names them. Whoever loses the race to seal leaves files for vacuum.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from eoslog.errors import OffsetOutOfRange, UnknownTopicOrPartition
from eoslog.log.log import Log
from eoslog.rules.draft import Draft
from eoslog.rules.entries import FileReference, SegmentSealed
from eoslog.rules.partitions import sealable_end
from eoslog.rules.state import NO_OFFSET, NO_SEQUENCE, Batch, Partition, StoreState, Topic
from eoslog.segment.data_file import crc32c
from eoslog.segment.producer_snapshot import (
    ProducerSnapshotEntry,
    decode_producer_snapshot,
    encode_producer_snapshot,
)
from eoslog.segment.segment_index import decode_segment_index, encode_segment_index
from eoslog.segment.stored_file import read_file
from eoslog.segment.transaction_index import encode_transaction_index
from eoslog.store.environment import Environment
from eoslog.store.object_store import ObjectStore


def seal_segments(log: Log[StoreState], store: ObjectStore, environment: Environment) -> list[SegmentSealed]:
    """Seal every segment that is large enough and decided. Returns what this call sealed."""
    sealed: list[SegmentSealed] = []
    while True:
        candidates = log.read(_sealable, refresh=not sealed)
        if not candidates:
            return sealed
        for topic, partition, end_offset, live in candidates:
            entry = _write_files(store, environment, topic, partition, end_offset, live)
            if _append(log, entry):
                sealed.append(entry)


def _sealable(state: StoreState, slot: int) -> list[tuple[Topic, Partition, int, frozenset[int]]]:
    found = []
    for partition_id, partition in state.partitions.items():
        topic = state.topics[partition_id.topic_id]
        end_offset = sealable_end(partition, topic.config)
        if end_offset is not None:
            live = frozenset(partition.producers) | {txn.producer_id for txn in state.transactions.values()}
            found.append((topic, partition, end_offset, live))
    return found


def _append(log: Log[StoreState], entry: SegmentSealed) -> bool:
    def propose(draft: Draft) -> bool:
        try:
            draft.append(entry)
        except (OffsetOutOfRange, UnknownTopicOrPartition):
            return False
        return True

    return log.append(propose)


def _write_files(
    store: ObjectStore,
    environment: Environment,
    topic: Topic,
    partition: Partition,
    end_offset: int,
    live: frozenset[int],
) -> SegmentSealed:
    upload_ms = store.clock.last_date_ms
    count = bisect_left(partition.active, end_offset, key=lambda batch: batch.base_offset)
    base_offset = partition.segment_base_offset
    name = environment.new_token()
    prefix = f"{topic.prefix}{partition.id.partition}/{base_offset:020d}/{name}"
    aborted = [txn for txn in partition.aborted if txn.last_offset < end_offset]
    files = {
        "index": (f"{prefix}.index.parquet", encode_segment_index(partition.active[:count])),
        "snapshot": (f"{prefix}.snapshot", encode_producer_snapshot(_snapshot_at_start(store, partition, live))),
    }
    if aborted:
        files["txnindex"] = (f"{prefix}.txnindex", encode_transaction_index(aborted))
    store.put_many(list(files.values()))
    environment.reached("segment.seal.files_written")
    references = {
        kind: FileReference(path=path, length=len(body), crc32c=crc32c(body)) for kind, (path, body) in files.items()
    }
    return SegmentSealed(
        topic_id=partition.id.topic_id,
        partition=partition.id.partition,
        base_offset=base_offset,
        end_offset=end_offset,
        index=references["index"],
        txnindex=references.get("txnindex"),
        snapshot=references["snapshot"],
        upload_ms=upload_ms,
    )


def _snapshot_at_start(store: ObjectStore, partition: Partition, live: frozenset[int]) -> list[ProducerSnapshotEntry]:
    """The producer state at the start of the active segment: that of the segment before, moved on by its batches."""
    if not partition.sealed:
        return []
    before = partition.sealed[-1]
    snapshot, index = (read_file(store, file) for file in (before.snapshot, before.index))
    return advance_snapshot(
        decode_producer_snapshot(snapshot, before.snapshot.path), decode_segment_index(index, before.index.path), live
    )


def advance_snapshot(
    entries: Iterable[ProducerSnapshotEntry], batches: Sequence[Batch], live: frozenset[int]
) -> list[ProducerSnapshotEntry]:
    """The producer state after ``batches``, of those producer ids that have not expired.

    Staged batches leave no state; their marker leaves the epoch of their job (Kafka's ``ProducerStateEntry``).
    """
    known = {entry.producer_id: entry for entry in entries}
    for batch in batches:
        before = known.get(batch.producer_id)
        if batch.control is not None:
            known[batch.producer_id] = ProducerSnapshotEntry(
                batch.producer_id, batch.producer_epoch, NO_SEQUENCE, NO_OFFSET, 0, batch.max_timestamp, 0, NO_OFFSET
            )
        elif batch.base_sequence != NO_SEQUENCE:
            first_offset = before.current_txn_first_offset if before is not None else NO_OFFSET
            if batch.transactional and first_offset == NO_OFFSET:
                first_offset = batch.base_offset
            known[batch.producer_id] = ProducerSnapshotEntry(
                batch.producer_id,
                batch.producer_epoch,
                (batch.base_sequence + batch.last_offset_delta) % (1 << 31),
                batch.end_offset - 1,
                batch.last_offset_delta,
                batch.max_timestamp,
                0,
                first_offset,
            )
    return [known[producer_id] for producer_id in sorted(known) if producer_id in live]
