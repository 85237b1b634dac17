"""What compaction keeps of a partition beside the newest row of each key: Kafka's rules (``LogCleaner``).

A marker stays until all rows of its transaction are gone, and then until its delete horizon; a producer's last batch
stays, without rows if need be, because it holds the producer's last sequence.
"""

from __future__ import annotations

from eoslog.rules.partition_state import NO_TIME, Batch, Partition, ProducerState, Verdict


class CleanedTransactions:
    """The transactions that compaction comes across on its way from the log's start (``CleanedTransactionMetadata``).

    A transaction is named by its id and the slot that ended it. The tasks of a job share the marker of the job.
    """

    def __init__(self) -> None:
        self._with_batches: set[tuple[str | None, int]] = set()

    def on_batch(self, batch: Batch) -> None:
        """A batch of rows, or one that was kept without rows, is still there."""
        if batch.transactional:
            self._with_batches.add((batch.transactional_id, batch.end_slot))
            job, separator, _ = (batch.transactional_id or "").rpartition("/")
            if separator:
                self._with_batches.add((job, batch.end_slot))

    def is_empty(self, marker: Batch) -> bool:
        """Whether no batch of the marker's transaction is left before it, or the marker itself was emptied."""
        return marker.record_count == 0 or (marker.transactional_id, marker.end_slot) not in self._with_batches


def cleaned_marker(
    marker: Batch, transaction_is_empty: bool, producers: dict[int, ProducerState], now_ms: int, retention_ms: int
) -> Batch | None:
    """What is left of a control row; None if nothing is.

    Args:
        producers: what the partition knows of its producers.
        now_ms: the store's time.
        retention_ms: how long the marker of an empty transaction is kept.
    """
    if not transaction_is_empty:
        return marker
    if marker.record_count and marker.delete_horizon_ms == NO_TIME:
        return marker._replace(delete_horizon_ms=now_ms + retention_ms)
    if marker.record_count and now_ms < marker.delete_horizon_ms:
        return marker
    return without_rows(marker) if is_last_of_its_producer(marker, producers) else None


def without_rows(batch: Batch) -> Batch:
    """A batch, or a control row, of which only its place, its sequence and its epoch are left."""
    return batch._replace(record_count=0, file=None, first_row=0, delete_horizon_ms=NO_TIME, statistics=None)


def is_last_of_its_producer(batch: Batch, producers: dict[int, ProducerState]) -> bool:
    """Whether a batch holds the last sequence of a producer that the partition knows, or a control row its epoch."""
    producer = producers.get(batch.producer_id)
    if producer is None:
        return False
    if producer.batches:
        return batch.control is None and batch.end_offset - 1 == producer.batches[-1].last_offset
    return batch.control is not None and batch.producer_epoch == producer.producer_epoch


def is_aborted(batch: Batch) -> bool:
    """Whether the rows of a batch go at once: those of an aborted transaction."""
    return batch.control is None and batch.verdict is Verdict.ABORTED


def may_drop_tombstones(batch: Batch, now_ms: int) -> bool:
    """Whether the tombstones of a batch have been kept for long enough (KIP-534)."""
    return batch.delete_horizon_ms != NO_TIME and now_ms >= batch.delete_horizon_ms


def dirty_ratio(partition: Partition, uncleanable_offset: int) -> float:
    """Which part of the bytes below an offset was never compacted."""
    cleanable = [segment for segment in partition.sealed if segment.base_offset < uncleanable_offset]
    dirty = sum(segment.bytes for segment in cleanable if segment.end_offset > partition.cleaned_offset)
    return dirty / max(1, sum(segment.bytes for segment in cleanable))
