"""Idempotence: the check that a batch's epoch and sequence follow the earlier batches of its producer in a partition.

The rules are those of Kafka's transaction version 2 (``ProducerAppendInfo``, ``ProducerStateEntry``, KIP-890). One rule
goes beyond Kafka: a batch older than the last five is a duplicate, too, if the state shows that its sequences were
written.

The state also keeps each partition's producers as they were at the start of the active segment. They are the content of
the segment's ``.snapshot`` file and outlive the earlier segments (``ProducerStateManager``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from eoslog.errors import InvalidProducerEpoch, OutOfOrderSequence
from eoslog.state.draft import Draft
from eoslog.state.partition_state import NO_OFFSET, NO_SEQUENCE, Batch, Partition, ProducerState, SequenceRange

BATCHES_TO_RETAIN = 5
MAX_EPOCH = 32767
LAST_USABLE_EPOCH = MAX_EPOCH - 1
SEQUENCES = 1 << 31
"""The number of sequences. After 2^31 - 1 they continue at 0."""


class DuplicateBatch(Exception):
    """Not an error: the batch was appended before. ``base_offset`` is -1 if its offset is no longer known."""

    def __init__(self, base_offset: int, timestamp: int = -1) -> None:
        super().__init__(f"duplicate of the batch at offset {base_offset}")
        self.base_offset = base_offset
        self.timestamp = timestamp


def sequence_after(base_sequence: int, record_count: int) -> int:
    """Return the sequence that follows a batch; 2^31 - 1 wraps to 0."""
    return (base_sequence + record_count) % SEQUENCES


def last_sequence_of(base_sequence: int, record_count: int) -> int:
    """Return the last sequence of a batch; 2^31 - 1 wraps to 0."""
    return (base_sequence + record_count - 1) % SEQUENCES


def check_sequence(
    known: ProducerState | None, producer_epoch: int, base_sequence: int, record_count: int, where: str
) -> None:
    """Check that a batch follows the earlier ones of its producer, and recognize a duplicate.

    Args:
        where: the partition's name for error messages.

    Raises:
        InvalidProducerEpoch: the epoch is older than the partition's.
        OutOfOrderSequence: the sequence leaves a gap, overlaps an earlier batch in part, or may never
            have been written.
        DuplicateBatch: the batch was appended before.
    """
    if known is not None and producer_epoch < known.producer_epoch:
        raise InvalidProducerEpoch(
            f"{where}: the batch has epoch {producer_epoch}, but the partition has seen epoch {known.producer_epoch}"
        )
    # Each epoch starts at sequence 0, and so does a producer that the partition does not know (KIP-890). Otherwise a
    # lost batch before this one would go unnoticed. A marker of a new epoch leaves it without batches; the next batch
    # starts it.
    if known is None or producer_epoch > known.producer_epoch or not known.batches:
        if base_sequence != 0:
            raise OutOfOrderSequence(
                f"{where}: the first batch of an epoch must begin at sequence 0, but this one begins at {base_sequence}"
            )
        return
    last = last_sequence_of(base_sequence, record_count)
    for batch in known.batches:
        if batch.base_sequence == base_sequence and batch.last_sequence == last:
            raise DuplicateBatch(batch.base_offset, batch.timestamp)
    expected = sequence_after(known.batches[-1].last_sequence, 1)
    if base_sequence == expected:
        return
    if _is_older(known, base_sequence, last, expected):
        raise DuplicateBatch(NO_OFFSET)
    raise OutOfOrderSequence(
        f"{where}: the next batch must begin at sequence {expected}, but this one holds {base_sequence} to {last}"
    )


def _is_older(known: ProducerState, base_sequence: int, last: int, expected: int) -> bool:
    """Return True if the epoch certainly wrote these sequences before the batches that are kept.

    The state does not say how often sequences wrapped. It is certain only that the epoch wrote every sequence from 0 up
    to the oldest kept batch. Sequences above it may be from the round before the wrap, or may never have been written.
    """
    oldest = known.batches[0].base_sequence
    # If sequences have just wrapped, a batch after a gap and a batch that overlaps a kept one have low sequences, too.
    # If such a batch passed for an old one, its rows would be lost. Therefore an old batch must be behind all kept
    # batches, and nearer behind the expected sequence than ahead of it.
    back = (expected - base_sequence) % SEQUENCES
    is_behind = (expected - oldest) % SEQUENCES <= back <= SEQUENCES // 2
    return is_behind and base_sequence <= last < oldest


def with_batch(known: ProducerState | None, batch: Batch) -> ProducerState:
    """Return the producer's state after a batch that passed ``check_sequence``."""
    added = SequenceRange(
        batch.base_sequence,
        last_sequence_of(batch.base_sequence, batch.last_offset_delta + 1),
        batch.base_offset,
        batch.end_offset - 1,
        batch.max_timestamp,
    )
    kept = _batches_of(known, batch.producer_epoch)
    first_offset = known.current_txn_first_offset if known is not None else NO_OFFSET
    if batch.transactional and first_offset == NO_OFFSET:
        first_offset = batch.base_offset
    batches = (*kept, added)[-BATCHES_TO_RETAIN:]
    return ProducerState(batch.producer_id, batch.producer_epoch, batches, batch.max_timestamp, first_offset)


def with_marker(
    known: ProducerState | None, producer_id: int, marker_epoch: int, timestamp: int, *, keeps_epoch: bool
) -> ProducerState:
    """Return the producer's state after a marker: with the marker's epoch, and without batches of an older one.

    Args:
        keeps_epoch: True for an end of transaction version 1, whose marker has the epoch of the rows.

    Raises:
        InvalidProducerEpoch: the marker's epoch is not strictly greater than the partition's (KIP-1228).
    """
    least = -1 if known is None else known.producer_epoch + (0 if keeps_epoch else 1)
    if marker_epoch < least:
        raise InvalidProducerEpoch(
            f"producer {producer_id}: marker epoch {marker_epoch} is below the least epoch of the partition, {least}"
        )
    return ProducerState(producer_id, marker_epoch, _batches_of(known, marker_epoch), timestamp, NO_OFFSET)


def _batches_of(known: ProducerState | None, producer_epoch: int) -> tuple[SequenceRange, ...]:
    return known.batches if known is not None and known.producer_epoch == producer_epoch else ()


def move_segment_start(draft: Draft, partition: Partition, batches: Iterable[Batch]) -> None:
    """Move the start of the active segment behind its first ``batches``. Producer ids that have expired stay out."""
    partition.start_producers = producers_after(
        partition.start_producers, batches, lambda batch: _is_live(draft, partition, batch)
    )


def producers_after(
    before: Mapping[int, ProducerState], batches: Iterable[Batch], is_live: Callable[[Batch], bool]
) -> dict[int, ProducerState]:
    """Return the state of producers after ``batches``, each with its last batch only.

    Args:
        is_live: returns True if the producer id of a batch has not expired.
    """
    after = dict(before)
    for batch in batches:
        state = _after(after.get(batch.producer_id), batch)
        if state is not None and is_live(batch):
            after[batch.producer_id] = state
    return after


def _after(known: ProducerState | None, batch: Batch) -> ProducerState | None:
    """Return a producer's state after a batch, with this batch only; None for a staged batch, which leaves no state."""
    if batch.control is not None:
        kept = _batches_of(known, batch.producer_epoch)
        return ProducerState(batch.producer_id, batch.producer_epoch, kept, batch.max_timestamp, NO_OFFSET)
    if batch.base_sequence == NO_SEQUENCE:
        return None
    after = with_batch(known, batch)
    return after._replace(batches=after.batches[-1:])


def _is_live(draft: Draft, partition: Partition, batch: Batch) -> bool:
    if batch.producer_id in partition.producers:
        return True
    transaction = draft.transactions.get(batch.transactional_id or "")
    return transaction is not None and transaction.producer_id == batch.producer_id
