"""Administration of transactions and producers: list, describe, abort, find those that hang (Kafka's ``Admin``)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eoslog.client.last_committed import LastCommitted, last_committed
from eoslog.client.transaction_descriptions import (
    HangingTransaction,
    ProducerDescription,
    TransactionDescription,
    TransactionListings,
    describe_producers,
    describe_transaction,
    hanging_transactions,
    list_transactions,
    transaction_at,
    transaction_filter,
)
from eoslog.errors import InvalidRequest
from eoslog.rules.draft import Draft
from eoslog.rules.names import TopicPartition
from eoslog.rules.producer_ids import MAX_TRANSACTION_TIMEOUT_MS
from eoslog.rules.transaction_requests import AbortTransaction, ForceTerminateTransaction

if TYPE_CHECKING:
    from eoslog.client.store import Store


@dataclass(frozen=True)
class _AbortTransactionAt:
    """Abort the transaction whose first row in a partition has this offset. The answer is its transactional id."""

    place: TopicPartition
    start_offset: int
    time_ms: int

    def apply(self, draft: Draft) -> str:
        transactional_id = transaction_at(draft, self.place, self.start_offset)
        if transactional_id is None:
            raise InvalidRequest(
                f"no open transaction begins at offset {self.start_offset} of partition "
                f"{self.place.topic}-{self.place.partition}"
            )
        AbortTransaction(transactional_id, "admin", self.time_ms).apply(draft)
        return transactional_id


class TransactionAdministration:
    """Looks at transactions and their producers, and ends what is open. Every answer is as of the log's tail."""

    _store: Store

    def list_transactions(
        self,
        *,
        states: Iterable[str] | None = None,
        producer_ids: Iterable[int] | None = None,
        running_longer_than_ms: int | None = None,
        transactional_id_pattern: str | None = None,
    ) -> TransactionListings:
        """All transactional ids, those of jobs' tasks among them (Kafka's ``listTransactions``).

        Args:
            states: only those in one of these states, as ``"Ongoing"`` or ``"ONGOING"``. A name that no state has is
                passed over, and told in ``unknown_states`` of the answer.
            producer_ids: only those with one of these producer ids.
            running_longer_than_ms: only those whose transaction is open for longer (KIP-994).
            transactional_id_pattern: only those that this regular expression matches as a whole (KIP-1152).

        Raises:
            InvalidRegularExpression
        """
        wanted = transaction_filter(
            states=states,
            producer_ids=producer_ids,
            running_longer_than_ms=running_longer_than_ms,
            transactional_id_pattern=transactional_id_pattern,
        )
        return self._store.read(lambda state, slot: list_transactions(state, wanted, self._store.now_ms()))

    def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """What is known of a transactional id, or of that of a job's task.

        Raises:
            TransactionalIdNotFound
            InvalidRequest: the id is empty.
        """
        return self._store.read(
            lambda state, slot: describe_transaction(state, transactional_id, self._store.now_ms()),
        )

    def last_committed(self, transactional_id: str) -> LastCommitted:
        """What a transactional id committed last: slot, group offsets, rows, and the versions of its applications.

        Raises:
            TransactionalIdNotFound: the id is unknown, and no version was ever committed under it.
        """
        return self._store.read(lambda state, slot: last_committed(state, transactional_id))

    def describe_producers(self, topic: str, partition: int) -> list[ProducerDescription]:
        """The producers that a partition knows.

        Raises:
            UnknownTopicOrPartition
        """
        return self._store.read(lambda state, slot: describe_producers(state, TopicPartition(topic, partition)))

    def abort_transaction(self, transactional_id: str) -> bool:
        """Abort what is open under a transactional id, and fence its producer. False if nothing is open.

        Raises:
            TransactionalIdNotFound
            InvalidTxnState: it is prepared; see ``force_terminate_transaction``.
        """
        return self._store.append(AbortTransaction(transactional_id, "admin", self._store.now_ms()))

    def force_terminate_transaction(self, transactional_id: str) -> bool:
        """Abort what is open under a transactional id even if it is prepared, and fence its producer (KIP-939).

        Whoever prepared it may have decided to commit, in another system too: there the decision stands.

        Returns:
            False if nothing is open; then nobody is fenced.

        Raises:
            TransactionalIdNotFound
        """
        return self._store.append(ForceTerminateTransaction(transactional_id, self._store.now_ms()))

    def abort_transaction_at(self, topic: str, partition: int, start_offset: int) -> str:
        """Abort the transaction whose first row in a partition has this offset, and fence its producer.

        ``describe_producers`` and ``find_hanging_transactions`` tell the offset.

        Returns:
            Its transactional id. It ends in all its partitions.

        Raises:
            UnknownTopicOrPartition
            InvalidRequest: no open transaction begins there.
            InvalidTxnState: it is prepared; see ``force_terminate_transaction``.
        """
        place = TopicPartition(topic, partition)
        return self._store.append(_AbortTransactionAt(place, start_offset, self._store.now_ms()))

    def find_hanging_transactions(
        self,
        *,
        max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
        topic: str | None = None,
        partition: int | None = None,
    ) -> list[HangingTransaction]:
        """Transactions open for longer than ``max_transaction_timeout_ms``, which hold the last stable offset back.

        One for each partition that they wrote to; of one topic, or one partition of it, if it is given.

        Raises:
            UnknownTopicOrPartition
        """
        return self._store.read(
            lambda state, slot: hanging_transactions(
                state, self._store.now_ms(), max_transaction_timeout_ms, topic=topic, partition=partition
            )
        )
