"""What a partition knew of its producers where its active segment begins: the content of the segment's ``.snapshot``.

The state carries it along, so that it outlives the segments before (Kafka's ``ProducerStateManager``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from eoslog.state.draft import Draft
from eoslog.state.partition_state import NO_OFFSET, NO_SEQUENCE, Batch, Partition, ProducerState, SequenceRange
from eoslog.state.sequences import last_sequence_of


def move_segment_start(draft: Draft, partition: Partition, batches: Iterable[Batch]) -> None:
    """The active segment begins after ``batches``, which were its first. Producer ids that expired stay forgotten."""
    partition.start_producers = producers_after(
        partition.start_producers, batches, lambda batch: _is_live(draft, partition, batch)
    )


def producers_after(
    before: Mapping[int, ProducerState], batches: Iterable[Batch], is_live: Callable[[Batch], bool]
) -> dict[int, ProducerState]:
    """What is known of producers after ``batches``, each with its last batch only.

    Args:
        is_live: whether a batch's producer id is still known.
    """
    after = dict(before)
    for batch in batches:
        state = _after(after.get(batch.producer_id), batch)
        if state is not None and is_live(batch):
            after[batch.producer_id] = state
    return after


def _after(known: ProducerState | None, batch: Batch) -> ProducerState | None:
    """A producer's state after a batch, with this one only. Staged batches leave none, only their marker does."""
    if batch.control is not None:
        return ProducerState(batch.producer_id, batch.producer_epoch, (), batch.max_timestamp, NO_OFFSET)
    if batch.base_sequence == NO_SEQUENCE:
        return None
    first_offset = known.current_txn_first_offset if known is not None else NO_OFFSET
    if batch.transactional and first_offset == NO_OFFSET:
        first_offset = batch.base_offset
    last = SequenceRange(
        batch.base_sequence,
        last_sequence_of(batch.base_sequence, batch.last_offset_delta + 1),
        batch.base_offset,
        batch.end_offset - 1,
        batch.max_timestamp,
    )
    return ProducerState(batch.producer_id, batch.producer_epoch, (last,), batch.max_timestamp, first_offset)


def _is_live(draft: Draft, partition: Partition, batch: Batch) -> bool:
    if batch.producer_id in partition.producers:
        return True
    transaction = draft.transactions.get(batch.transactional_id or "")
    return transaction is not None and transaction.producer_id == batch.producer_id
