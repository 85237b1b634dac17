"""Administration of transactions and producers: list, describe, abort, find those that hang (Kafka's ``Admin``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from eoslog.admin.transaction_descriptions import (
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
from eoslog.errors import InvalidRequest, TransactionalIdNotFound, quoted
from eoslog.session.positions import OffsetAndMetadata
from eoslog.session.session import Session
from eoslog.state.draft import Draft
from eoslog.state.group_entries import GroupOffsets
from eoslog.state.names import TopicPartition
from eoslog.state.producer_ids import MAX_TRANSACTION_TIMEOUT_MS
from eoslog.state.store_state import StoreState
from eoslog.state.transaction_requests import AbortTransaction, ForceTerminateTransaction


class CommittedVersion(NamedTuple):
    """The last version of an application's work that was committed. It is never forgotten."""

    application_id: str
    sink: str
    """What the versions count for: ``*``, or a Spark job's topic as ``<topic>:<topic id>``."""
    version: int
    query_id: str | None = None
    """The streaming query that counted it; None outside of streams."""


class LastCommitted(NamedTuple):
    """The last commit of a transactional id. Its fields are None or empty if there was none, or the id has expired."""

    transactional_id: str
    slot: int | None
    timestamp: int | None
    """The log's time at the slot (ms)."""
    producer_id: int | None
    producer_epoch: int | None
    application_id: str | None
    """Of the version that was committed with it; None if none was."""
    version: int | None
    offsets: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]]
    """By group: the offsets that were committed with it. The group may have moved on since."""
    rows: Mapping[str, int]
    """How many it wrote, by topic."""
    versions: tuple[CommittedVersion, ...]
    """The last version of each application and sink, by this commit or an earlier one."""


def last_committed(state: StoreState, transactional_id: str) -> LastCommitted:
    """Raises: TransactionalIdNotFound"""
    transaction = state.transactions.get(transactional_id)
    versions = tuple(
        CommittedVersion(key.application_id, key.sink, last.version, last.query_id)
        for key, last in state.tokens.items()
        if key.transactional_id == transactional_id
    )
    if transaction is None and not versions:
        raise TransactionalIdNotFound(
            f"no transactional id is named {quoted(transactional_id)}, or it has expired; see list_transactions()"
        )
    commit = None if transaction is None else transaction.last_commit
    if commit is None:
        return LastCommitted(transactional_id, None, None, None, None, None, None, {}, {}, versions)
    token = commit.token
    offsets: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
    for each in commit.offsets:
        offsets.setdefault(each.group, {}).update(_by_partition(state, each))
    return LastCommitted(
        transactional_id,
        commit.slot,
        commit.time_ms,
        commit.producer_id,
        commit.producer_epoch,
        None if token is None else token.application_id,
        None if token is None else token.version,
        offsets,
        {state.topics[each.topic_id].topic: each.rows for each in commit.rows if each.topic_id in state.topics},
        versions,
    )


def _by_partition(state: StoreState, offsets: GroupOffsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """Those of topics that are still there."""
    return {
        TopicPartition(state.topics[each.topic_id].topic, each.partition): OffsetAndMetadata(
            each.offset, each.metadata, each.leader_epoch
        )
        for each in offsets.offsets
        if each.topic_id in state.topics
    }


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

    _store: Session

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
