"""Descriptions of transactions and producers, taken from the store's state."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from eoslog.arguments import is_whole_number
from eoslog.errors import InvalidRegularExpression, InvalidRequest
from eoslog.session.session import partition_named
from eoslog.state.draft import Draft
from eoslog.state.names import PartitionId, TopicPartition, check_id, names_given
from eoslog.state.partition_state import Partition
from eoslog.state.prepared import prepared_state
from eoslog.state.producer_ids import prepared_identity, task_producer_id, task_transactional_id
from eoslog.state.store_state import StoreState, Transaction, TransactionState
from eoslog.state.transaction_requests import unknown_transactional_id
from eoslog.wording import quoted

COORDINATOR_EPOCH = 0
"""Always 0. Kafka counts here how often a transaction coordinator moved to another broker. eoslog has none."""


class TransactionListing(NamedTuple):
    """A line of ``list_transactions``."""

    transactional_id: str
    producer_id: int
    transaction_state: str
    prepared_transaction: str | None = None
    """The name of the transaction if it is prepared, ``producer_id:epoch``."""
    kind: str = "producer"
    """``producer``, ``job``, or ``task`` of a job."""


class TransactionListings(list[TransactionListing]):
    """The answer of ``list_transactions``."""

    def __init__(self, found: Iterable[TransactionListing], unknown_states: Iterable[str] = ()) -> None:
        super().__init__(found)
        self.unknown_states = tuple(unknown_states)
        """The requested names that are not the name of a state."""


class TransactionFilter(NamedTuple):
    """The filter of ``list_transactions``. A field that is None filters nothing."""

    states: frozenset[TransactionState] | None = None
    unknown_states: tuple[str, ...] = ()
    producer_ids: frozenset[int] | None = None
    running_longer_than_ms: int | None = None
    """Only open transactions whose first partition was added longer ago."""
    pattern: re.Pattern[str] | None = None
    """It must match the whole id."""


class TransactionDescription(NamedTuple):
    """The state of a transactional id. Times are ms by the store's clock."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    transaction_state: str
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    """The begin of the open transaction, or else of the last one; -1 if there was none since the last init."""
    transaction_duration_ms: int
    """-1 outside of a transaction."""
    topic_partitions: tuple[TopicPartition, ...]
    kind: str
    """``producer``, ``job``, or ``task`` of a job."""
    last_update_ms: int
    prepared_transaction: str | None = None
    """The name of the transaction if it is prepared, ``producer_id:epoch``. Its holder's epoch may be higher."""
    prepared_time_ms: int = -1
    """The time at which it was prepared; -1 if it is not prepared."""
    prepared_timeout_ms: int = -1
    """How long it may stay prepared; -1 if there is no limit, or if it is not prepared."""


class ProducerDescription(NamedTuple):
    """The state of a producer id in a partition."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    """-1 if the partition knows no batch of it."""
    last_timestamp: int
    """ms since the epoch."""
    current_transaction_start_offset: int
    """-1 if it has no open transaction here."""
    latest_coordinator_epoch: int = COORDINATOR_EPOCH


class HangingTransaction(NamedTuple):
    """A transaction that has been open for too long, in one of its partitions."""

    topic_partition: TopicPartition
    transactional_id: str | None
    """None if no transactional id has this producer id."""
    producer_id: int
    producer_epoch: int
    start_offset: int
    last_timestamp: int
    """The timestamp of the producer's last batch here (ms since the epoch); -1 if it is not known."""
    duration_ms: int
    reason: str
    """Why it is still open."""


_ANY_AGE = -(2**62)
"""Less than the age of every transaction (ms), also of one whose start is in the future by this clock."""
WITHIN_TIMEOUT = "within its own timeout"
PAST_TIMEOUT = "past its timeout: a coordinator or the next writer to this store aborts it"
PREPARED = "prepared: it waits for complete_transaction or force-terminate"
NO_TRANSACTIONAL_ID = "no transactional id has this producer id"
NOT_ITS_PARTITION = "its transactional id has no open transaction here"


def named_partition(state: StoreState, partition_id: PartitionId) -> TopicPartition:
    """Return a partition by the name of its topic."""
    return TopicPartition(state.topics[partition_id.topic_id].topic, partition_id.partition)


def state_named(name: str) -> TransactionState | None:
    """Return a transaction state by its name, such as ``Ongoing`` or ``ONGOING``; None if the name is unknown."""
    folded = "".join(character for character in name if character.isalpha()).upper()
    return next((state for state in TransactionState if state.name.replace("_", "") == folded), None)


def transaction_filter(
    *,
    states: Iterable[str] | None = None,
    producer_ids: Iterable[int] | None = None,
    running_longer_than_ms: int | None = None,
    transactional_id_pattern: str | None = None,
) -> TransactionFilter:
    """Return the filter for these arguments of ``list_transactions``.

    Raises:
        InvalidRegularExpression
        InvalidRequest: an argument has another type.
    """
    named = None if states is None else {name: state_named(name) for name in names_given("states", states)}
    if producer_ids is not None:
        producer_ids = list(producer_ids) if isinstance(producer_ids, Iterable) else [producer_ids]
        for each in producer_ids:
            if not is_whole_number(each):
                raise InvalidRequest(f"producer_ids are whole numbers, not {quoted(each)}")
    if transactional_id_pattern is not None and not isinstance(transactional_id_pattern, str):
        raise InvalidRequest(f"transactional_id_pattern is {quoted(transactional_id_pattern)}; it must be a string")
    try:
        pattern = re.compile(transactional_id_pattern) if transactional_id_pattern else None
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidRegularExpression(
            f"transactional id pattern {quoted(transactional_id_pattern)} is not a regular expression: {error}"
        ) from None
    return TransactionFilter(
        None if named is None else frozenset(state for state in named.values() if state is not None),
        () if named is None else tuple(name for name, state in named.items() if state is None),
        None if producer_ids is None else frozenset(producer_ids),
        running_longer_than_ms,
        pattern,
    )


def list_transactions(state: StoreState, wanted: TransactionFilter, now_ms: int) -> TransactionListings:
    """Return the transactional ids that pass the filter, including those of jobs' tasks."""
    found = (
        TransactionListing(each.transactional_id, each.producer_id, each.state.name, _prepared_state(each), each.kind)
        for transaction in state.transactions.values()
        for each in _with_tasks(transaction)
        if _passes(each, wanted, now_ms)
    )
    return TransactionListings(found, wanted.unknown_states)


def count_transactional_ids(state: StoreState) -> int:
    """Return the number of transactional ids, including those of jobs' tasks."""
    return sum(1 + each.task_count for each in state.transactions.values())


def _passes(transaction: Transaction, wanted: TransactionFilter, now_ms: int) -> bool:
    running_ms = now_ms - transaction.start_ms if transaction.state is TransactionState.ONGOING else -1
    return (
        transaction.state is not TransactionState.DEAD
        and (wanted.states is None or transaction.state in wanted.states)
        and (wanted.producer_ids is None or transaction.producer_id in wanted.producer_ids)
        and (wanted.running_longer_than_ms is None or running_ms > wanted.running_longer_than_ms)
        and (wanted.pattern is None or wanted.pattern.fullmatch(transaction.transactional_id) is not None)
    )


def describe_transaction(state: StoreState, transactional_id: str, now_ms: int) -> TransactionDescription:
    """Raises: TransactionalIdNotFound, InvalidRequest"""
    check_id("transactional id", transactional_id)
    found = _find(state, transactional_id)
    prepared = found.prepared
    staged = {PartitionId(batch.topic_id, batch.partition) for batch in prepared.batches} if prepared else set()
    timeout_ms = prepared.timeout_ms if prepared else None
    return TransactionDescription(
        transactional_id=found.transactional_id,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        transaction_state=found.state.name,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        transaction_duration_ms=max(0, now_ms - found.start_ms) if found.state is TransactionState.ONGOING else -1,
        topic_partitions=tuple(
            sorted(
                named_partition(state, partition_id)
                for partition_id in found.partitions | found.added_partitions | staged
                if partition_id.topic_id in state.topics
            )
        ),
        kind=found.kind,
        last_update_ms=found.last_update_ms,
        prepared_transaction=_prepared_state(found),
        prepared_time_ms=prepared.time_ms if prepared else -1,
        prepared_timeout_ms=-1 if timeout_ms is None else timeout_ms,
    )


def _prepared_state(transaction: Transaction) -> str | None:
    identity = prepared_identity(transaction)
    return None if identity is None else prepared_state(identity)


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


def hanging_transactions(
    state: StoreState,
    now_ms: int,
    max_transaction_timeout_ms: int,
    *,
    topic: str | None = None,
    partition: int | None = None,
) -> list[HangingTransaction]:
    """Return transactions that have been open for longer than ``max_transaction_timeout_ms``, by partition (KIP-664).

    In Kafka the transaction coordinator may not know a hanging transaction, so it never ends it. Here one slot
    ends a transaction in all its partitions. An unknown transaction would be a fault of the store, and ``reason`` would
    say so.

    Raises:
        UnknownTopicOrPartition: ``topic`` has no such partition.
    """
    holders = {state.transactions[name].open_producer_id: state.transactions[name] for name in state.ongoing}
    found = [
        _hanging(
            state, partition_id, producer_id, start_offset=start_offset, holder=holders.get(producer_id), now_ms=now_ms
        )
        for partition_id in _partition_ids(state, topic, partition)
        for producer_id, start_offset in state.partitions[partition_id].open_transactions.items()
    ]
    return [each for each in found if each.duration_ms > max_transaction_timeout_ms]


def holding_transactions(
    state: StoreState, now_ms: int, *, topic: str | None = None
) -> dict[TopicPartition, HangingTransaction]:
    """Return the transaction that holds back each partition: the one with the first open row.

    Raises:
        UnknownTopicOrPartition: there is no such topic.
    """
    found: dict[TopicPartition, HangingTransaction] = {}
    # The transactions of a partition come in the order of their first rows.
    for each in hanging_transactions(state, now_ms, _ANY_AGE, topic=topic):
        found.setdefault(each.topic_partition, each)
    return found


def transaction_at(state: StoreState | Draft, topic_partition: TopicPartition, start_offset: int) -> str | None:
    """Return the transactional id whose open transaction begins at an offset of a partition; None if there is none.

    Raises:
        UnknownTopicOrPartition
    """
    _, partition = partition_named(state, topic_partition)
    for producer_id, first_offset in partition.open_transactions.items():
        if first_offset == start_offset:
            return next(
                (name for name in state.ongoing if state.transactions[name].open_producer_id == producer_id), None
            )
    return None


def _partition_ids(state: StoreState, topic: str | None, partition: int | None) -> list[PartitionId]:
    if topic is None:
        return sorted(state.partitions)
    if partition is not None:
        return [partition_named(state, TopicPartition(topic, partition))[1].id]
    return partition_named(state, TopicPartition(topic, 0))[0].partition_ids()


def _hanging(
    state: StoreState,
    partition_id: PartitionId,
    producer_id: int,
    *,
    start_offset: int,
    holder: Transaction | None,
    now_ms: int,
) -> HangingTransaction:
    partition: Partition = state.partitions[partition_id]
    known = partition.producers.get(producer_id)
    last_timestamp = known.last_timestamp if known is not None else -1
    if holder is None:
        reason, since_ms = NO_TRANSACTIONAL_ID, last_timestamp
    else:
        since_ms = holder.start_ms
        if partition_id not in holder.partitions:
            reason = NOT_ITS_PARTITION
        elif holder.prepared is not None:
            reason = PREPARED
        else:
            reason = PAST_TIMEOUT if now_ms - since_ms > holder.timeout_ms else WITHIN_TIMEOUT
    return HangingTransaction(
        topic_partition=named_partition(state, partition_id),
        transactional_id=holder.transactional_id if holder is not None else None,
        producer_id=producer_id,
        producer_epoch=known.producer_epoch if known is not None else -1,
        start_offset=start_offset,
        last_timestamp=last_timestamp,
        duration_ms=now_ms - since_ms,
        reason=reason,
    )


def _with_tasks(transaction: Transaction) -> Iterator[Transaction]:
    """Yield a transactional id and those of its tasks. Task ids are derived from the job's id and not stored."""
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
    raise unknown_transactional_id(transactional_id, state.transactions)
