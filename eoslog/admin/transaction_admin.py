"""Administration of transactions and producers: list, describe, abort, find hanging ones (Kafka's ``Admin``)."""

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
from eoslog.arguments import Integer, TransactionTimeout, is_whole_number
from eoslog.errors import InvalidRequest
from eoslog.session.client_options import named_options
from eoslog.session.positions import OffsetAndMetadata
from eoslog.session.session import Session
from eoslog.state.draft import Draft
from eoslog.state.entries import StoreConfigChanged
from eoslog.state.group_entries import GroupOffsets
from eoslog.state.names import TopicPartition, check_id, topic_partition
from eoslog.state.producer_ids import check_timeout
from eoslog.state.store_state import StoreState
from eoslog.state.transaction_requests import (
    AbortTransaction,
    FenceProducer,
    ForceTerminateTransaction,
    unknown_transactional_id,
)
from eoslog.wording import quoted


class CommittedVersion(NamedTuple):
    """The last committed version of an application. It never expires."""

    application_id: str
    sink: str
    """The scope of the versions: ``*``, or the topic of a Spark job as ``<topic>:<topic id>``."""
    version: int
    query_id: str | None = None
    """The streaming query that committed it; None outside of streams."""


class LastCommitted(NamedTuple):
    """The last commit of a transactional id. Fields are None or empty if there was none, or if the id has expired."""

    transactional_id: str
    slot: int | None
    timestamp: int | None
    """The log's time at the slot (ms)."""
    producer_id: int | None
    producer_epoch: int | None
    application_id: str | None
    """The application whose version was committed with it; None if there was none."""
    version: int | None
    offsets: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]]
    """The offsets that were committed with it, by group. The group may have committed newer ones since."""
    rows: Mapping[str, int]
    """The number of rows that it wrote, by topic."""
    versions: tuple[CommittedVersion, ...]
    """The last version of each application and sink, of this commit or an earlier one."""


def last_committed(state: StoreState, transactional_id: str) -> LastCommitted:
    """Raises: TransactionalIdNotFound"""
    transaction = state.transactions.get(transactional_id)
    versions = tuple(
        CommittedVersion(key.application_id, key.sink, last.version, last.query_id)
        for key, last in state.application_versions.items()
        if key.transactional_id == transactional_id
    )
    if transaction is None and not versions:
        raise unknown_transactional_id(transactional_id, state.transactions)
    commit = None if transaction is None else transaction.last_commit
    if commit is None:
        return LastCommitted(
            transactional_id=transactional_id,
            slot=None,
            timestamp=None,
            producer_id=None,
            producer_epoch=None,
            application_id=None,
            version=None,
            offsets={},
            rows={},
            versions=versions,
        )
    work = commit.application_version
    offsets: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
    for each in commit.offsets:
        offsets.setdefault(each.group, {}).update(_by_partition(state, each))
    return LastCommitted(
        transactional_id=transactional_id,
        slot=commit.slot,
        timestamp=commit.time_ms,
        producer_id=commit.producer_id,
        producer_epoch=commit.producer_epoch,
        application_id=None if work is None else work.application_id,
        version=None if work is None else work.version,
        offsets=offsets,
        rows={state.topics[each.topic_id].topic: each.rows for each in commit.rows if each.topic_id in state.topics},
        versions=versions,
    )


def _by_partition(state: StoreState, offsets: GroupOffsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets by partition. Deleted topics are left out."""
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

    partition: TopicPartition
    start_offset: int
    time_ms: int

    def apply(self, draft: Draft) -> str:
        transactional_id = transaction_at(draft, self.partition, self.start_offset)
        if transactional_id is None:
            raise InvalidRequest(
                f"no open transaction begins at offset {self.start_offset} of partition "
                f"{self.partition.topic}-{self.partition.partition}. Run eoslog transactions describe-producers: it "
                "shows where the open ones begin"
            )
        AbortTransaction(transactional_id, "admin", self.time_ms).apply(draft)
        return transactional_id


@dataclass(frozen=True)
class _AlterStore:
    max_transaction_timeout_ms: int

    def apply(self, draft: Draft) -> None:
        if draft.max_transaction_timeout_ms != self.max_transaction_timeout_ms:
            draft.append(StoreConfigChanged(max_transaction_timeout_ms=self.max_transaction_timeout_ms))


class TransactionAdministration:
    """Inspects transactions and their producers, and aborts open ones. Every answer is that of the newest state."""

    _store: Session

    @named_options("list_transactions()")
    def list_transactions(
        self,
        *,
        states: Iterable[str] | None = None,
        producer_ids: Iterable[int] | None = None,
        running_longer_than_ms: Integer | None = None,
        transactional_id_pattern: str | None = None,
    ) -> TransactionListings:
        """List transactional ids, including those of jobs' tasks (Kafka's ``listTransactions``).

        Args:
            states: list only ids in one of these states, such as ``"Ongoing"`` or ``"ONGOING"``. Unknown names are
                ignored and returned in ``unknown_states`` of the answer.
            producer_ids: list only ids with one of these producer ids.
            running_longer_than_ms: list only ids whose transaction has been open for longer (ms, KIP-994).
            transactional_id_pattern: list only ids that this regular expression matches as a whole (KIP-1152).

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
        """Describe a transactional id, which may be that of a job's task.

        Raises:
            TransactionalIdNotFound
            InvalidRequest: the id is empty.
        """
        return self._store.read(
            lambda state, slot: describe_transaction(state, transactional_id, self._store.now_ms()),
        )

    def last_committed(self, transactional_id: str) -> LastCommitted:
        """Return the last commit of a transactional id: slot, group offsets, rows, and application versions.

        Raises:
            TransactionalIdNotFound: the id is unknown, and no version was ever committed under it.
        """
        check_id("transactional id", transactional_id)
        return self._store.read(lambda state, slot: last_committed(state, transactional_id))

    def describe_producers(self, topic: str, partition: int) -> list[ProducerDescription]:
        """Return the producers that a partition knows.

        Raises:
            UnknownTopicOrPartition
        """
        return self._store.read(lambda state, slot: describe_producers(state, TopicPartition(topic, partition)))

    def abort_transaction(self, transactional_id: str) -> bool:
        """Abort the open transaction of a transactional id.

        Its producer is not fenced. The next call of the producer raises an error that names the abort. The producer
        calls ``abort_transaction()``, and may begin its next transaction. Use ``fence_producer`` to stop it.

        Returns:
            False if no transaction is open.

        Raises:
            TransactionalIdNotFound
            InvalidTxnState: the transaction is prepared; see ``force_terminate_transaction``.
        """
        check_id("transactional id", transactional_id)
        return self._store.append(AbortTransaction(transactional_id, "admin", self._store.now_ms()))

    def fence_producer(self, transactional_id: str) -> bool:
        """Fence the producer of a transactional id, and abort its open transaction (Kafka's ``fenceProducers``).

        The next call of the producer raises ``ProducerFenced``, also if it has no open transaction. A run of a Spark
        job ends in the same way at its next commit. A process that calls ``init_transactions()`` gets the id again.

        Returns:
            True if a transaction was open, and was aborted.

        Raises:
            TransactionalIdNotFound
            InvalidTxnState: the transaction is prepared; see ``force_terminate_transaction``.
        """
        check_id("transactional id", transactional_id)
        return self._store.append(FenceProducer(transactional_id, self._store.now_ms()))

    def force_terminate_transaction(self, transactional_id: str) -> bool:
        """Abort the open transaction of a transactional id even if it is prepared, and fence its producer (KIP-939).

        The application that prepared it may have decided to commit, and other systems may already have committed. This
        call does not undo that.

        Returns:
            False if no transaction is open. Then no producer is fenced.

        Raises:
            TransactionalIdNotFound
        """
        check_id("transactional id", transactional_id)
        return self._store.append(ForceTerminateTransaction(transactional_id, self._store.now_ms()))

    def abort_transaction_at(self, topic: str, partition: int, start_offset: int) -> str:
        """Abort the transaction whose first row in a partition has this offset, as ``abort_transaction`` does.

        ``describe_producers`` and ``find_hanging_transactions`` return the offset. The transaction ends in all its
        partitions.

        Returns:
            Its transactional id.

        Raises:
            UnknownTopicOrPartition
            InvalidRequest: no open transaction begins there.
            InvalidTxnState: the transaction is prepared; see ``force_terminate_transaction``.
        """
        key = topic_partition((topic, partition))
        if not is_whole_number(start_offset):
            raise InvalidRequest(f"start_offset is {quoted(start_offset)}; it must be an offset")
        return self._store.append(_AbortTransactionAt(key, start_offset, self._store.now_ms()))

    @named_options("find_hanging_transactions()")
    def find_hanging_transactions(
        self,
        *,
        max_transaction_timeout_ms: Integer | None = None,
        topic: str | None = None,
        partition: int | None = None,
    ) -> list[HangingTransaction]:
        """Return transactions that have been open for longer than ``max_transaction_timeout_ms`` (ms).

        They hold the last stable offset back. The answer has one item for each partition that such a transaction wrote
        to.

        Args:
            max_transaction_timeout_ms: None: the store's maximum.
            topic: only this topic; all topics if None.
            partition: only this partition of ``topic``.

        Raises:
            UnknownTopicOrPartition
        """

        def found(state: StoreState, slot: int) -> list[HangingTransaction]:
            longest_ms = max_transaction_timeout_ms
            if longest_ms is None:
                longest_ms = state.max_transaction_timeout_ms
            return hanging_transactions(state, self._store.now_ms(), longest_ms, topic=topic, partition=partition)

        return self._store.read(found)

    @named_options("alter_store()")
    def alter_store(self, *, max_transaction_timeout_ms: TransactionTimeout) -> None:
        """Change the settings of the store. Every writer follows the new settings from this slot on.

        Args:
            max_transaction_timeout_ms: the longest ``transaction_timeout_ms`` with which a producer may be initialized
                (ms; Kafka's ``transaction.max.timeout.ms``; 900,000 in a new store). ``init_transactions`` with a
                longer one raises ``InvalidTransactionTimeout``. Producers that are initialized keep their timeouts.

        Raises:
            InvalidTransactionTimeout: it is not a number of ms from 1 to 2^31 - 1.
        """
        check_timeout(max_transaction_timeout_ms)
        self._store.append(_AlterStore(max_transaction_timeout_ms))
