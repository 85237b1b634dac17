"""The rules of one partition: rows get offsets, markers commit or abort them, segments are sealed.

Offsets, high watermark, last stable offset and aborted index are Kafka's (``UnifiedLog``, ``ProducerStateManager``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import groupby

from eoslog.errors import InvalidEntry, InvalidTxnState, OffsetOutOfRange, StagedFilesExpired, UnknownTopicOrPartition
from eoslog.state.draft import Draft
from eoslog.state.entries import SegmentSealed, TopicConfig
from eoslog.state.entry_fields import FileReference, SharedPosition
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import (
    NO_SEQUENCE,
    NO_SLOT,
    NO_TIME,
    AbortedTransaction,
    Batch,
    Control,
    Outcome,
    Partition,
    SealedSegment,
)
from eoslog.state.producer_ids import ProducerIdentity
from eoslog.state.sequences import check_sequence, move_segment_start, with_batch, with_marker
from eoslog.state.store_state import LogPosition, PendingDeletion, StoreState, Topic
from eoslog.state.transaction_entries import BatchAppended, StagedBatch, TransactionEnded
from eoslog.wording import quoted

LONGEST_EMBEDDED_MS = 6 * 3600 * 1000
"""A segment with rows in records or shared objects may be sealed after this time (ms), however small it is."""
LONGEST_UNNAMED_MS = 24 * 3600 * 1000
"""An entry may name a shared object until this time after the time in its path (ms, by the log's time)."""


def topic_of(state: StoreState | Draft, topic_id: str) -> Topic:
    """Return the topic with this id.

    Raises:
        UnknownTopicOrPartition: the topic was deleted, and possibly created again under another id.
    """
    topic = state.topics.get(topic_id)
    if topic is None:
        raise UnknownTopicOrPartition(f"no topic has the id {topic_id}: it was deleted, or created again")
    return topic


def partition_of(state: StoreState | Draft, partition_id: PartitionId) -> Partition:
    """Return a partition of an existing topic.

    Raises:
        UnknownTopicOrPartition: the topic was deleted, or has no partition of this number.
    """
    return topic_and_partition(state, partition_id)[1]


def topic_and_partition(state: StoreState | Draft, partition_id: PartitionId) -> tuple[Topic, Partition]:
    """Return an existing topic, and a partition of it.

    Raises:
        UnknownTopicOrPartition: as ``partition_of``.
    """
    topic = topic_of(state, partition_id.topic_id)
    partition = state.partitions.get(partition_id)
    if partition is None:
        raise UnknownTopicOrPartition(
            f"topic {topic.topic} has partitions 0 to {topic.partitions - 1}, not {quoted(partition_id.partition)}"
        )
    return topic, partition


def check_file_place(topic: Topic, partition_id: PartitionId, file: FileReference) -> None:
    """Check that a file lies in the directory of its partition, in this incarnation of the topic.

    Raises:
        InvalidEntry: the file lies elsewhere.
    """
    if not file.path.startswith(f"{topic.prefix}{partition_id.partition}/"):
        raise InvalidEntry(f"file {file.path} lies outside partition {topic.topic}-{partition_id.partition}")


def check_object(topic: Topic, partition_id: PartitionId, file: FileReference) -> None:
    """Check that a file is an object in the directory of its partition.

    Raises:
        InvalidEntry: it lies elsewhere, in a record, or in a shared object.
    """
    check_file_place(topic, partition_id, file)
    if not file.is_object:
        raise InvalidEntry(f"file {file.path} must be an object, but is said to be in a record or in a shared object")


def check_batch(partition: Partition, where: str, entry: BatchAppended) -> None:
    """Check that a producer may append an eager batch to the partition now.

    Args:
        where: the partition's name for error messages.

    Raises:
        InvalidTxnState: the batch has no transaction, but its producer has one open in the partition.
        InvalidProducerEpoch, OutOfOrderSequence, DuplicateBatch: see ``check_sequence``.
    """
    if entry.transactional_id is None and entry.producer_id in partition.open_transactions:
        raise InvalidTxnState(
            f"{where}: producer {entry.producer_id} has an open transaction here, and a batch outside of it is refused"
        )
    check_sequence(
        partition.producers.get(entry.producer_id),
        entry.producer_epoch,
        entry.base_sequence,
        entry.record_count,
        where,
    )


def append_batch(partition: Partition, entry: BatchAppended, position: LogPosition) -> None:
    """Append an eager batch at the end of the partition."""
    identity = ProducerIdentity(entry.producer_id, entry.producer_epoch)
    transactional = entry.transactional_id is not None
    batch = _batch_of(
        entry, entry.transactional_id, identity, position, base_sequence=entry.base_sequence, is_open=transactional
    )
    if transactional:
        partition.open_transactions.setdefault(entry.producer_id, entry.base_offset)
    partition.active.append(batch)
    partition.active_bytes += entry.file.length
    partition.producers[entry.producer_id] = with_batch(partition.producers.get(entry.producer_id), batch)
    partition.next_offset += entry.record_count


def append_staged(
    partition: Partition,
    batch: StagedBatch,
    transactional_id: str,
    *,
    identity: ProducerIdentity,
    position: LogPosition,
) -> None:
    """Append a staged batch at the end of the partition, in the slot that commits it.

    It leaves no producer state. A retry is recognized by the epoch and the application version of its transaction.
    """
    partition.active.append(_batch_of(batch, transactional_id, identity, position))
    partition.active_bytes += batch.file.length
    partition.next_offset += batch.record_count


def _batch_of(
    entry: BatchAppended | StagedBatch,
    transactional_id: str | None,
    identity: ProducerIdentity,
    position: LogPosition,
    *,
    base_sequence: int = NO_SEQUENCE,
    is_open: bool = False,
) -> Batch:
    """Return the rows of a file as a batch.

    Args:
        is_open: True if the transaction of the rows is open. Otherwise they are committed at this position.
    """
    return Batch(
        base_offset=entry.base_offset,
        record_count=entry.record_count,
        last_offset_delta=entry.record_count - 1,
        file=entry.file,
        first_row=0,
        control=None,
        slot=position.slot,
        end_slot=NO_SLOT if is_open else position.slot,
        end_time_ms=NO_TIME if is_open else position.time_ms,
        outcome=Outcome.OPEN if is_open else Outcome.COMMITTED,
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        base_sequence=base_sequence,
        min_timestamp=entry.min_timestamp,
        max_timestamp=entry.max_timestamp,
        transactional=transactional_id is not None,
        statistics=entry.statistics,
    )


def append_marker(
    partition: Partition, ended: TransactionEnded, identity: ProducerIdentity, position: LogPosition, *, eager: bool
) -> int:
    """End a producer's transaction in the partition: set the outcome of its rows, append the control row, and take its
    epoch.

    Args:
        identity: the producer id of the rows, with the epoch of the control row.
        eager: True if the transaction appended eager batches here, so that the partition keeps producer state.

    Returns:
        The number of eager rows that got their outcome.
    """
    producer_id, marker_epoch = identity
    control, outcome = Control.ABORT, Outcome.ABORTED
    if ended.outcome == "commit":
        control, outcome = Control.COMMIT, Outcome.COMMITTED
    marker_offset = partition.next_offset
    settled = 0
    first_offset = partition.open_transactions.pop(producer_id, None)
    if first_offset is not None:
        settled = _settle(partition, producer_id, first_offset, outcome=outcome, position=position)
        if outcome is Outcome.ABORTED:
            # This transaction was removed above, so the next open one gives the last stable offset after the marker.
            stable = next(iter(partition.open_transactions.values()), marker_offset + 1)
            partition.aborted.append(AbortedTransaction(producer_id, first_offset, marker_offset, stable))
    # Under transaction version 2 the marker's epoch is above that of the rows. A late batch of the ended transaction
    # has an older epoch from now on, and is refused (KIP-890). Staged batches need no such protection: they enter only
    # with the transaction's end.
    if eager:
        partition.producers[producer_id] = with_marker(
            partition.producers.get(producer_id),
            producer_id,
            marker_epoch,
            ended.time_ms,
            keeps_epoch=ended.keeps_epoch,
        )
    partition.active.append(
        Batch(
            base_offset=marker_offset,
            record_count=1,
            last_offset_delta=0,
            file=None,
            first_row=0,
            control=control,
            slot=position.slot,
            end_slot=position.slot,
            end_time_ms=position.time_ms,
            outcome=outcome,
            transactional_id=ended.transactional_id,
            producer_id=producer_id,
            producer_epoch=marker_epoch,
            base_sequence=NO_SEQUENCE,
            min_timestamp=ended.time_ms,
            max_timestamp=ended.time_ms,
            transactional=True,
        )
    )
    partition.next_offset += 1
    return settled


def _settle(
    partition: Partition, producer_id: int, first_offset: int, *, outcome: Outcome, position: LogPosition
) -> int:
    """Give a producer's open batches from an offset on their outcome. Returns their number of rows."""
    settled = 0
    start = bisect_left(partition.active, first_offset, key=lambda batch: batch.base_offset)
    for index in range(start, len(partition.active)):
        batch = partition.active[index]
        if batch.producer_id == producer_id and batch.outcome is Outcome.OPEN:
            partition.active[index] = batch._replace(
                outcome=outcome, end_slot=position.slot, end_time_ms=position.time_ms
            )
            settled += batch.record_count
    return settled


def sealable_end(partition: Partition, config: TopicConfig, now_ms: int, *, of_any_age: bool = False) -> int | None:
    """Return the end offset (exclusive) up to which the active segment may be sealed; None if no batch may be.

    Only decided batches are sealed. The segment must be large enough or old enough at ``now_ms`` of the store's clock.
    Its age counts from the log's time when its first batch was decided. The timestamps of its rows do not count:
    otherwise a backfill of old rows would be sealed batch by batch.

    Args:
        of_any_age: a segment that is neither large nor old may be sealed too.
    """
    stable = partition.last_stable_offset
    decided = [batch for batch in partition.active if batch.end_offset <= stable]
    size = 0
    for count, batch in enumerate(decided, 1):
        size += batch.file.length if batch.file is not None else 0
        if size >= config.segment_bytes or count >= config.segment_batches:
            return batch.end_offset
    # Slots and shared objects with rows cannot be deleted, so such rows are sealed earlier.
    longest_ms = config.longest_segment_ms
    if any(not file.is_object for file in _files_of(decided)):
        longest_ms = min(longest_ms, LONGEST_EMBEDDED_MS)
    if decided and (of_any_age or decided[0].end_time_ms + longest_ms < now_ms):
        return decided[-1].end_offset
    return None


def seal(draft: Draft, entry: SegmentSealed) -> None:
    """Close the active segment below ``end_offset``.

    Raises:
        InvalidEntry: the segment is not the active one, ends beyond the last stable offset or within a batch, or lacks
            the index of its aborted transactions.
        OffsetOutOfRange: another process has sealed it already.
        StagedFilesExpired: the files are older than the horizon.
    """
    partition_id = PartitionId(entry.topic_id, entry.partition)
    partition = partition_of(draft, partition_id)
    if entry.base_offset < partition.segment_base_offset:
        raise OffsetOutOfRange(f"segment {entry.base_offset} of partition {entry.partition} is sealed already")
    if entry.base_offset != partition.segment_base_offset or not (
        entry.base_offset < entry.end_offset <= partition.last_stable_offset
    ):
        raise InvalidEntry(
            f"segment {entry.base_offset} to {entry.end_offset} cannot be sealed: the active segment begins "
            f"at {partition.segment_base_offset}, and the last stable offset is {partition.last_stable_offset}"
        )
    check_upload(draft, entry.upload_ms)
    count = bisect_left(partition.active, entry.end_offset, key=lambda batch: batch.base_offset)
    batches = partition.active[:count]
    if batches[-1].end_offset != entry.end_offset:
        raise InvalidEntry(f"a segment cannot end at offset {entry.end_offset}, within a batch")
    if entry.txnindex is None and any(txn.last_offset < entry.end_offset for txn in partition.aborted):
        raise InvalidEntry(f"segment {entry.base_offset} holds aborted transactions, but the seal names no txnindex")
    topic = topic_of(draft, entry.topic_id)
    for file in (entry.index, entry.txnindex, entry.snapshot, *entry.data):
        if file is not None:
            check_object(topic, partition_id, file)
    runs = sum(not is_object for is_object, _ in groupby(file.is_object for file in _files_of(batches)))
    if len(entry.data) < runs or (entry.data and not runs):
        raise InvalidEntry(
            f"segment {entry.base_offset} has {runs} runs of files in records and shared objects, but the seal names "
            f"{len(entry.data)} new data files"
        )
    size = sum(file.length for file in _files_of(batches))
    kept = [*(file for file in _files_of(batches) if file.is_object), *entry.data]
    partition = draft.edit_partition(partition_id)
    partition.sealed = (
        *partition.sealed,
        SealedSegment(
            base_offset=entry.base_offset,
            end_offset=entry.end_offset,
            batch_count=count,
            bytes=sum(file.length for file in kept),
            min_timestamp=min(batch.min_timestamp for batch in batches),
            max_timestamp=max(batch.max_timestamp for batch in batches),
            max_end_slot=max((batch.end_slot for batch in batches if batch.outcome is Outcome.COMMITTED), default=0),
            index=entry.index,
            txnindex=entry.txnindex,
            snapshot=entry.snapshot,
            slot=draft.slot,
            file_count=len(kept),
        ),
    )
    move_segment_start(draft, partition, batches)
    del partition.active[:count]
    partition.active_bytes -= size
    partition.segment_base_offset = entry.end_offset
    partition.aborted = [txn for txn in partition.aborted if txn.last_offset >= entry.end_offset]
    # Readers that planned before this slot still read the rows in their records and shared objects.
    oldest_record, oldest_shared_ms = oldest_record_of(batches), oldest_shared_ms_of(batches)
    add_pending_deletion(
        draft, PendingDeletion(draft.slot, oldest_record=oldest_record, oldest_shared_ms=oldest_shared_ms)
    )


def add_pending_deletion(draft: Draft, deletion: PendingDeletion) -> None:
    """Add what an entry dropped, unless it dropped nothing.

    One record may seal many segments, so its deletions without files become one.
    """
    if deletion == PendingDeletion(draft.slot):
        return
    kept = draft.pending_deletions
    if kept and kept[-1].slot == draft.slot and not (kept[-1].has_files or deletion.has_files):
        deletion = PendingDeletion(
            draft.slot,
            oldest_record=_least(kept[-1].oldest_record, deletion.oldest_record),
            oldest_shared_ms=_least(kept[-1].oldest_shared_ms, deletion.oldest_shared_ms),
        )
        kept = kept[:-1]
    draft.pending_deletions = (*kept, deletion)


def _least(*numbers: int | None) -> int | None:
    return min((number for number in numbers if number is not None), default=None)


def _files_of(batches: Iterable[Batch]) -> list[FileReference]:
    return [batch.file for batch in batches if batch.file is not None]


def oldest_record_of(batches: Iterable[Batch]) -> int | None:
    """Return the oldest slot whose record has rows of these batches; None if no record has any."""
    return min((batch.slot for batch in batches if batch.file is not None and batch.file.in_record), default=None)


def oldest_shared_ms_of(batches: Iterable[Batch]) -> int | None:
    """Return the time of the oldest shared object with rows of these batches (ms); None if there is none."""
    return min((file.shared.time_ms for file in _files_of(batches) if file.shared is not None), default=None)


def oldest_needed_record(state: StoreState) -> int | None:
    """Return the oldest slot whose record has rows that a reader may need; None if no record has any."""
    found = [oldest_record_of(partition.active) for partition in state.partitions.values()]
    found += [deletion.oldest_record for deletion in state.pending_deletions]
    return min((slot for slot in found if slot is not None), default=None)


def shared_positions(state: StoreState) -> dict[str, SharedPosition]:
    """Return where data files are in shared objects, by path: of active segments and of prepared transactions."""
    files = [file for partition in state.partitions.values() for file in _files_of(partition.active)]
    for name in state.ongoing:
        prepared = state.transactions[name].prepared
        files += [batch.file for batch in prepared.batches] if prepared is not None else []
    return {file.path: file.shared for file in files if file.shared is not None}


def newest_expired_ms(state: StoreState | Draft) -> int:
    """Return the newest time in the path of shared objects that no entry may name any more (ms, inclusive)."""
    return max(state.horizon_ms, state.time_ms - LONGEST_UNNAMED_MS)


def newest_deletable_ms(state: StoreState, waiting: Iterable[PendingDeletion]) -> int:
    """Return the newest time in the path of the shared objects that vacuum may delete (ms, inclusive).

    Vacuum keeps the shared objects that an entry names, whatever their time.

    Args:
        waiting: the deletions whose readers may still run. They need all shared objects from their oldest one on.
    """
    needed = [each.oldest_shared_ms for each in waiting if each.oldest_shared_ms is not None]
    return min([newest_expired_ms(state), *(oldest_ms - 1 for oldest_ms in needed)])


def check_shared(draft: StoreState | Draft, file: FileReference) -> None:
    """Check that vacuum cannot have deleted the shared object of a file.

    Vacuum deletes unnamed shared objects up to ``newest_expired_ms``. This time never decreases.

    Raises:
        StagedFilesExpired: the time in the object's path is at or before ``newest_expired_ms``.
    """
    if file.shared is not None and file.shared.time_ms <= newest_expired_ms(draft):
        raise StagedFilesExpired(
            f"file {file.path} was committed too late: vacuum may have deleted shared objects up to "
            f"{newest_expired_ms(draft)} ms. Write its rows again"
        )


def check_upload(draft: StoreState | Draft, upload_ms: int) -> None:
    """Check that vacuum cannot have deleted the files that an entry names.

    Vacuum deletes unnamed files that were uploaded at or before the horizon. ``upload_ms`` is a lower bound of the
    upload of each file, so every file of an accepted entry is newer.

    Raises:
        StagedFilesExpired: the upload began at or before the horizon.
    """
    if upload_ms <= draft.horizon_ms:
        raise StagedFilesExpired(
            f"files uploaded at {upload_ms} ms or later were committed too late: vacuum may have deleted files that "
            f"were uploaded at {draft.horizon_ms} ms or before. Write them again"
        )
