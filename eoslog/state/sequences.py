"""Idempotence: whether a batch's (producer id, epoch, sequence) may follow what a partition has seen of its producer.

Kafka's rules of transaction version 2 (``ProducerAppendInfo``, ``ProducerStateEntry``, KIP-890), and one beyond
Kafka: a batch below the last five is known as a duplicate wherever the state proves that its sequences were written.
"""

from __future__ import annotations

from eoslog.errors import InvalidProducerEpoch, OutOfOrderSequence
from eoslog.state.partition_state import NO_OFFSET, ProducerState, SequenceRange

BATCHES_TO_RETAIN = 5
MAX_EPOCH = 32767
LAST_USABLE_EPOCH = MAX_EPOCH - 1
SEQUENCES = 1 << 31
"""After 2^31 - 1 sequences go on from 0."""


class DuplicateBatch(Exception):
    """Not an error: the batch was appended before. ``base_offset`` is -1 when its offset is no longer known."""

    def __init__(self, base_offset: int, timestamp: int = -1) -> None:
        super().__init__(f"duplicate of the batch at offset {base_offset}")
        self.base_offset = base_offset
        self.timestamp = timestamp


def sequence_after(base_sequence: int, record_count: int) -> int:
    """The sequence that follows a batch; 2^31 - 1 wraps to 0."""
    return (base_sequence + record_count) % SEQUENCES


def last_sequence_of(base_sequence: int, record_count: int) -> int:
    return (base_sequence + record_count - 1) % SEQUENCES


def check_sequence(
    known: ProducerState | None, producer_epoch: int, base_sequence: int, record_count: int, place: str
) -> None:
    """Refuse a batch that may not follow, and recognize one that was appended before.

    Raises:
        InvalidProducerEpoch: the epoch is older than the partition's.
        OutOfOrderSequence: the sequence leaves a gap, overlaps an earlier batch in part, or may never
            have been written.
        DuplicateBatch: the batch was appended before.
    """
    if known is not None and producer_epoch < known.producer_epoch:
        raise InvalidProducerEpoch(
            f"{place}: the batch has epoch {producer_epoch}, but the partition has seen epoch {known.producer_epoch}"
        )
    if known is None or producer_epoch > known.producer_epoch or not known.batches:
        if base_sequence != 0:
            raise OutOfOrderSequence(
                f"{place}: the first batch of an epoch begins at sequence 0, this one at {base_sequence}"
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
        f"{place}: sequence {expected} is expected next, the batch holds {base_sequence} to {last}"
    )


def _is_older(known: ProducerState, base_sequence: int, last: int, expected: int) -> bool:
    """Return True if the epoch certainly wrote these sequences before the batches that are kept.

    The state does not say how often sequences wrapped. It is certain only that the epoch wrote every sequence from 0
    up to the oldest kept batch: those above it may be the previous round's, or nobody's.
    """
    oldest = known.batches[0].base_sequence
    # A batch ahead of a gap, or one that overlaps a kept batch, has low sequences too if the wrap lies between. If it
    # passed for an old one, its rows would be lost. So an old batch is behind all kept ones, and nearer behind the
    # expected sequence than ahead of it.
    back = (expected - base_sequence) % SEQUENCES
    is_behind = (expected - oldest) % SEQUENCES <= back <= SEQUENCES // 2
    return is_behind and base_sequence <= last < oldest


def with_batch(
    known: ProducerState | None,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
    base_offset: int,
    timestamp: int,
    transactional: bool,
) -> ProducerState:
    """The producer's state after a batch that ``check_sequence`` let pass."""
    added = SequenceRange(
        base_sequence,
        last_sequence_of(base_sequence, record_count),
        base_offset,
        base_offset + record_count - 1,
        timestamp,
    )
    kept = known.batches if known is not None and known.producer_epoch == producer_epoch else ()
    first_offset = known.current_txn_first_offset if known is not None else NO_OFFSET
    if transactional and first_offset == NO_OFFSET:
        first_offset = base_offset
    return ProducerState(producer_id, producer_epoch, (*kept, added)[-BATCHES_TO_RETAIN:], timestamp, first_offset)


def with_marker(known: ProducerState | None, producer_id: int, marker_epoch: int, timestamp: int) -> ProducerState:
    """The producer's state after a marker: the epoch moves on, no batch of the old one counts any more.

    Raises:
        InvalidProducerEpoch: the marker's epoch is not strictly greater than the partition's (KIP-1228).
    """
    if known is not None and marker_epoch <= known.producer_epoch:
        raise InvalidProducerEpoch(
            f"producer {producer_id}: marker epoch {marker_epoch} is not above the partition's {known.producer_epoch}"
        )
    return ProducerState(producer_id, marker_epoch, (), timestamp, NO_OFFSET)
