"""The gateway's own producer: it writes the batches of clients without idempotence, in the order of their arrival."""

from __future__ import annotations

from collections.abc import Sequence

from eoslog.errors import EosLogError, InvalidProducerEpoch, OutOfOrderSequence, UnknownProducerId
from eoslog.producer.producer_batches import UploadedBatch, new_producer
from eoslog.session.session import Session
from eoslog.state.append_requests import AppendedRows
from eoslog.state.producer_ids import ProducerIdentity
from eoslog.state.sequences import sequence_after

_LOST = (InvalidProducerEpoch, OutOfOrderSequence, UnknownProducerId)
"""The errors that say that the store does not know the producer any more, or knows other sequences."""


class OwnProducer:
    """An identity and its sequences. One thread at a time uses it."""

    def __init__(self, store: Session) -> None:
        self._store = store
        self._identity: ProducerIdentity | None = None
        self._sequences: dict[tuple[str, int], int] = {}
        """The next sequence of each partition."""

    def stamped(self, batches: Sequence[UploadedBatch]) -> list[UploadedBatch]:
        """Return the batches with this producer's identity and its next sequences.

        Raises:
            RetriableError, StoreAccessDenied: there is no identity yet, and the store gives none.
        """
        if self._identity is None:
            self._identity = new_producer(self._store)
            self._sequences = {}
        producer_id, epoch = self._identity
        sequences = dict(self._sequences)
        stamped = []
        for uploaded in batches:
            partition = (uploaded.batch.topic, uploaded.batch.partition)
            sequence = sequences.get(partition, 0)
            stamped.append(uploaded.of_producer(producer_id, epoch, sequence))
            sequences[partition] = sequence_after(sequence, uploaded.batch.rows.num_rows)
        return stamped

    def note(self, stamped: Sequence[UploadedBatch], answers: Sequence[AppendedRows | EosLogError]) -> bool:
        """Note the outcome of an append. Return False if the store has lost the identity.

        Then the refused batches are to be stamped and appended again, before any later batch.
        """
        for uploaded, answer in zip(stamped, answers, strict=True):
            batch = uploaded.batch
            if isinstance(answer, AppendedRows):
                after = sequence_after(batch.base_sequence, batch.rows.num_rows)
                self._sequences[batch.topic, batch.partition] = after
        is_lost = any(isinstance(answer, _LOST) for answer in answers)
        if is_lost:
            self.forget()
        return not is_lost

    def forget(self) -> None:
        """Take a new identity for the next batches: the outcome of the last ones is not known."""
        self._identity = None


def is_lost(answer: AppendedRows | EosLogError) -> bool:
    """Return True if the store refused a batch only because it does not know the producer."""
    return isinstance(answer, _LOST)
