"""A producer's batches in flight: sent and not answered yet, with the sequences by which they are recognised."""

from __future__ import annotations

from collections.abc import Sequence

from eoslog.client.awaited_offsets import AwaitedOffsets
from eoslog.errors import EosLogError
from eoslog.rules.names import PartitionId
from eoslog.rules.producer_ids import ProducerIdentity
from eoslog.rules.sequences import sequence_after
from eoslog.rules.transaction_entries import BatchAppended
from eoslog.rules.transaction_requests import AppendedRows
from eoslog.segment.writer import WrittenFile
from eoslog.store.process import HomeProcess


class InFlightBatches:
    """Batches whose append has no answer yet. They are appended again unchanged, and recognised by their sequences.

    The object is true while there are any.
    """

    def __init__(self, transactional_id: str | None, home: HomeProcess) -> None:
        self._transactional_id = transactional_id
        self._home = home
        self._sequences: dict[PartitionId, int] = {}
        self._batches: list[BatchAppended] = []
        self.awaited = AwaitedOffsets(self._home)
        """The callers that wait for the offsets of these batches."""
        self.was_sent = False
        """Whether these batches were proposed to the log before, and so may have landed."""

    def __bool__(self) -> bool:
        return bool(self._batches)

    @property
    def batches(self) -> Sequence[BatchAppended]:
        """The batches that are in flight."""
        return tuple(self._batches)

    def send(
        self,
        files: Sequence[WrittenFile],
        awaited: AwaitedOffsets,
        identity: ProducerIdentity,
        *,
        upload_ms: int,
        time_ms: int,
    ) -> None:
        """Make batches of uploaded files, with the next sequences of their partitions. None may be in flight.

        Args:
            awaited: the callers that wait for the offsets of the files' rows.
            upload_ms: a lower bound of the time at which the first upload began (ms by the store's clock).
        """
        assert not self._batches
        self.awaited = awaited
        self.was_sent = False
        for file in files:
            self._batches.append(
                BatchAppended(
                    topic_id=file.topic_id,
                    partition=file.partition,
                    base_offset=0,
                    record_count=file.record_count,
                    file=file.reference,
                    upload_ms=upload_ms,
                    transactional_id=self._transactional_id,
                    producer_id=identity.producer_id,
                    producer_epoch=identity.producer_epoch,
                    base_sequence=self._next_sequence(file.topic_id, file.partition, file.record_count),
                    min_timestamp=file.min_timestamp,
                    max_timestamp=file.max_timestamp,
                    statistics=file.statistics,
                    time_ms=time_ms,
                )
            )

    def send_as(self, identity: ProducerIdentity) -> None:
        """Give the batches to another identity, whose sequences begin at 0. None of them may have landed."""
        self._sequences = {}
        self._batches = [
            batch.model_copy(
                update={
                    "producer_id": identity.producer_id,
                    "producer_epoch": identity.producer_epoch,
                    "base_sequence": self._next_sequence(batch.topic_id, batch.partition, batch.record_count),
                }
            )
            for batch in self._batches
        ]

    def _next_sequence(self, topic_id: str, partition: int, record_count: int) -> int:
        place = PartitionId(topic_id, partition)
        base_sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence_after(base_sequence, record_count)
        return base_sequence

    def acknowledge(self, appended: Sequence[AppendedRows]) -> None:
        """Take the answer: nothing is in flight any more. Tell the waiting callers their offsets."""
        self._batches = []
        self.awaited.deliver(appended)

    def fail(self, error: EosLogError) -> None:
        """End every wait for offsets with ``error``; the batches stay, for they may have landed."""
        self.awaited.fail(error)

    def reset(self) -> None:
        """Forget what is in flight, and begin the sequences anew, as the next epoch does."""
        self._sequences = {}
        self._batches = []
        self.awaited = AwaitedOffsets(self._home)
