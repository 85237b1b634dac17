"""The producer state at the start of the active segment: the content of the segment's ``.snapshot`` file.

The store's state keeps it, so it outlives the earlier segments (Kafka's ``ProducerStateManager``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from eoslog.state.draft import Draft
from eoslog.state.partition_state import NO_OFFSET, NO_SEQUENCE, Batch, Partition, ProducerState, SequenceRange
from eoslog.state.sequences import last_sequence_of


def move_segment_start(draft: Draft, partition: Partition, batches: Iterable[Batch]) -> None:
    """Move the start of the active segment behind its first ``batches``. Expired producer ids do not come back."""
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
