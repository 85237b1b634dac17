"""What the administration tells of transactions and producers, read off the store's state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from eoslog.client.topics import partition_named
from eoslog.errors import InvalidRequest, TransactionalIdNotFound
from eoslog.rules.names import TopicPartition
from eoslog.rules.producer_ids import task_producer_id, task_transactional_id
from eoslog.rules.state import StoreState, Transaction, TransactionState


class TransactionListing(NamedTuple):
    """A line of ``list_transactions``."""

    transactional_id: str
    producer_id: int
    transaction_state: str


class TransactionDescription(NamedTuple):
    """What is known of a transactional id. Times are ms by the store's clock."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    transaction_state: str
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    """-1 outside of a transaction."""
    transaction_duration_ms: int
    """-1 outside of a transaction."""
    topic_partitions: tuple[TopicPartition, ...]
    kind: str
    """``producer``, ``job``, or ``task`` of a job."""
    last_update_ms: int


class ProducerDescription(NamedTuple):
    """What a partition knows of a producer id."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    """-1 if it knows of no batch."""
    last_timestamp: int
    """ms since the epoch."""
    current_transaction_start_offset: int
    """-1 if it has no open transaction here."""


class HangingTransaction(NamedTuple):
    """A transaction that has been open for longer than any may be, in one of its partitions."""

    topic_partition: TopicPartition
    transactional_id: str
    producer_id: int
    start_offset: int
    duration_ms: int


def state_named(name: str) -> TransactionState:
    """A transaction's state by its name, as ``Ongoing`` or ``ONGOING``.

    Raises:
        InvalidRequest: no state has this name.
    """
    folded = "".join(character for character in name if character.isalpha()).upper()
    for state in TransactionState:
        if state.name.replace("_", "") == folded:
            return state
    known = ", ".join(state.name for state in TransactionState)
    raise InvalidRequest(f"transaction state {name!r} is unknown; the states are: {known}")


def list_transactions(
    state: StoreState, states: set[TransactionState] | None, producer_ids: set[int] | None
) -> list[TransactionListing]:
    """All transactional ids, those of jobs' tasks among them, in one of these states and with one of these ids."""
    return [
        TransactionListing(each.transactional_id, each.producer_id, each.state.name)
        for transaction in state.transactions.values()
        for each in _with_tasks(transaction)
        if (states is None or each.state in states) and (producer_ids is None or each.producer_id in producer_ids)
    ]


def describe_transaction(state: StoreState, transactional_id: str, now_ms: int) -> TransactionDescription:
    """Raises: TransactionalIdNotFound"""
    found = _find(state, transactional_id)
    start_ms = found.start_ms if found.state is TransactionState.ONGOING else -1
    return TransactionDescription(
        found.transactional_id,
        found.producer_id,
        found.producer_epoch,
        found.state.name,
        found.timeout_ms,
        start_ms,
        max(0, now_ms - start_ms) if start_ms >= 0 else -1,
        tuple(
            sorted(
                TopicPartition(state.topics[place.topic_id].topic, place.partition)
                for place in found.partitions
                if place.topic_id in state.topics
            )
        ),
        found.kind,
        found.last_update_ms,
    )


def describe_producers(state: StoreState, topic_partition: TopicPartition) -> list[ProducerDescription]:
    """Raises: UnknownTopicOrPartition"""
    _, partition = partition_named(state, topic_partition)
    return [
        ProducerDescription(
            known.producer_id,
            known.producer_epoch,
            known.batches[-1].last_sequence if known.batches else -1,
            known.last_timestamp,
            known.current_txn_first_offset,
        )
        for known in partition.producers.values()
    ]


def hanging_transactions(state: StoreState, now_ms: int, max_transaction_timeout_ms: int) -> list[HangingTransaction]:
    """Transactions that are open for longer than ``max_transaction_timeout_ms``, by partition."""
    return [
        HangingTransaction(
            TopicPartition(state.topics[place.topic_id].topic, place.partition),
            name,
            state.transactions[name].producer_id,
            state.partitions[place].open_transactions[state.transactions[name].producer_id],
            now_ms - start_ms,
        )
        for name, start_ms in state.ongoing.items()
        if now_ms - start_ms > max_transaction_timeout_ms
        for place in sorted(state.transactions[name].partitions)
        if place in state.partitions
    ]


def _with_tasks(transaction: Transaction) -> Iterator[Transaction]:
    """A transactional id, and those of its tasks, which are derived from it."""
    yield transaction
    for number in range(transaction.task_count):
        yield _task(transaction, number)


def _task(job: Transaction, number: int) -> Transaction:
    return replace(
        job,
        transactional_id=task_transactional_id(job.transactional_id, number),
        producer_id=task_producer_id(job.producer_id, number),
        kind="task",
        task_count=0,
    )


def _find(state: StoreState, transactional_id: str) -> Transaction:
    found = state.transactions.get(transactional_id)
    if found is not None:
        return found
    job_id, _, number = transactional_id.rpartition("/")
    job = state.transactions.get(job_id)
    if job is not None and number.isdigit() and int(number) < job.task_count:
        return _task(job, int(number))
    raise TransactionalIdNotFound(f"no transactional id is {transactional_id!r}")
