"""Administration: topics, transactions, producers and offsets (Kafka's ``Admin``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from eoslog.client.positions import PartitionOffsets
from eoslog.errors import InvalidRequest, InvalidTopic, TransactionalIdNotFound
from eoslog.rules.coordinator import abort_open_transaction
from eoslog.rules.draft import Draft
from eoslog.rules.entries import TopicConfig, TopicCreated, TopicDeleted, TopicSchema
from eoslog.rules.names import TopicPartition, check_topic_name
from eoslog.rules.partitioner import check_key_type
from eoslog.rules.partitions import partition_of
from eoslog.rules.producer_ids import MAX_TRANSACTION_TIMEOUT_MS, task_producer_id, task_transactional_id
from eoslog.rules.state import StoreState, Topic, Transaction, TransactionState
from eoslog.rules.topics import topic_named
from eoslog.segment.schema_json import check_storable, encode_schema, normalise_schema

if TYPE_CHECKING:
    from eoslog.client.store import Store

_LARGEST_PARTITION_COUNT = 10_000


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
    last_timestamp: int
    current_transaction_start_offset: int
    """-1 if it has no open transaction here."""


class HangingTransaction(NamedTuple):
    """A transaction that has been open for longer than any may be."""

    topic_partition: TopicPartition
    transactional_id: str
    producer_id: int
    start_offset: int
    duration_ms: int


class Admin:
    """Looks at a store and changes it. Every answer is as of the log's tail."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int = 1,
        schema: pa.Schema | None = None,
        key: str | Sequence[str] = (),
        spark_schema: str | None = None,
        config: TopicConfig | None = None,
    ) -> Topic:
        """Create a topic, and the store with it if there is none.

        Args:
            schema: the topic's columns; without it the topic holds Kafka records (key, value, headers, timestamp).
            key: the columns whose values choose a row's partition; rows without stay with their writer's partition.
            spark_schema: the schema as Spark's JSON, for types that Arrow does not name.

        Raises:
            TopicAlreadyExists, InvalidTopic, UnsupportedSchema
        """
        check_topic_name(topic)
        if not isinstance(partitions, int) or not 1 <= partitions <= _LARGEST_PARTITION_COUNT:
            raise InvalidTopic(
                f"topic {topic}: the number of partitions must be 1 to {_LARGEST_PARTITION_COUNT}, not {partitions!r}"
            )
        keys = (key,) if isinstance(key, str) else tuple(key)
        topic_schema = _topic_schema(topic, schema, keys, spark_schema)
        self._store.ensure_created()
        entry = TopicCreated(
            topic=topic,
            topic_id=self._store.environment.new_token(),
            partitions=partitions,
            topic_schema=topic_schema,
            config=config or TopicConfig(),
            time_ms=self._store.now_ms(),
        )

        def propose(draft: Draft) -> Topic:
            draft.append(entry)
            return draft.topics[entry.topic_id]

        return self._store.append(propose)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic. Its files go when vacuum runs.

        Raises:
            UnknownTopicOrPartition
        """
        self._store.append(
            lambda draft: draft.append(TopicDeleted(topic=topic, topic_id=topic_named(draft, topic).topic_id))
        )

    def list_topics(self) -> list[str]:
        return self._store.read(lambda state, slot: sorted(state.topic_ids))

    def describe_topic(self, topic: str) -> Topic:
        """Raises: UnknownTopicOrPartition"""
        return self._store.read(lambda state, slot: topic_named(state, topic))

    def offsets(self, topic: str) -> list[PartitionOffsets]:
        """Earliest offset, last stable offset and high watermark of each partition.

        Raises:
            UnknownTopicOrPartition
        """

        def look(state: StoreState, slot: int) -> list[PartitionOffsets]:
            partitions = [partition_of(state, place) for place in topic_named(state, topic).partition_ids()]
            return [
                PartitionOffsets(
                    partition.id.partition,
                    partition.log_start_offset,
                    partition.last_stable_offset,
                    partition.high_watermark,
                )
                for partition in partitions
            ]

        return self._store.read(look)

    def list_transactions(
        self, *, states: Iterable[str] | None = None, producer_ids: Iterable[int] | None = None
    ) -> list[TransactionListing]:
        """All transactional ids, those of jobs' tasks among them.

        Args:
            states: only those in one of these states, as ``"Ongoing"`` or ``"ONGOING"``.
            producer_ids: only those with one of these producer ids.

        Raises:
            InvalidRequest: an unknown state.
        """
        wanted = None if states is None else {_state_named(state) for state in states}
        ids = None if producer_ids is None else set(producer_ids)
        listed = self._store.read(
            lambda state, slot: [each for txn in state.transactions.values() for each in _with_tasks(txn)]
        )
        return [
            TransactionListing(each.transactional_id, each.producer_id, each.state.name)
            for each in listed
            if (wanted is None or each.state in wanted) and (ids is None or each.producer_id in ids)
        ]

    def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """Raises: TransactionalIdNotFound"""

        def look(state: StoreState, slot: int) -> TransactionDescription:
            txn = _find(state, transactional_id)
            open_since = txn.start_ms if txn.state is TransactionState.ONGOING else -1
            return TransactionDescription(
                txn.transactional_id,
                txn.producer_id,
                txn.producer_epoch,
                txn.state.name,
                txn.timeout_ms,
                open_since,
                max(0, self._store.now_ms() - open_since) if open_since >= 0 else -1,
                tuple(
                    sorted(
                        TopicPartition(state.topics[place.topic_id].topic, place.partition)
                        for place in txn.partitions
                        if place.topic_id in state.topics
                    )
                ),
                txn.kind,
                txn.last_update_ms,
            )

        return self._store.read(look)

    def describe_producers(self, topic: str, partition: int) -> list[ProducerDescription]:
        """The producers that a partition knows.

        Raises:
            UnknownTopicOrPartition
        """

        def look(state: StoreState, slot: int) -> list[ProducerDescription]:
            place = topic_named(state, topic).partition_ids()
            if not 0 <= partition < len(place):
                partition_of(state, place[0]._replace(partition=partition))
            return [
                ProducerDescription(
                    known.producer_id,
                    known.producer_epoch,
                    known.batches[-1].last_sequence if known.batches else -1,
                    known.last_timestamp,
                    known.current_txn_first_offset,
                )
                for known in partition_of(state, place[partition]).producers.values()
            ]

        return self._store.read(look)

    def abort_transaction(self, transactional_id: str) -> bool:
        """Abort what is open under a transactional id, and fence its producer. False if nothing is open.

        Raises:
            TransactionalIdNotFound
        """
        now_ms = self._store.now_ms()
        return self._store.append(
            lambda draft: abort_open_transaction(draft, transactional_id, reason="admin", time_ms=now_ms)
        )

    def find_hanging_transactions(
        self, *, max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS
    ) -> list[HangingTransaction]:
        """Transactions open for longer than ``max_transaction_timeout_ms``, which hold the last stable offset back."""

        def look(state: StoreState, slot: int) -> list[HangingTransaction]:
            now_ms = self._store.now_ms()
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

        return self._store.read(look)


def _topic_schema(topic: str, schema: pa.Schema | None, key: tuple[str, ...], spark_schema: str | None) -> TopicSchema:
    if schema is None:
        if key:
            raise InvalidTopic(
                f"topic {topic}: Kafka records are partitioned by their key; give a schema to name columns"
            )
        return TopicSchema(kind="records")
    if not isinstance(schema, pa.Schema):
        raise InvalidRequest(f"topic {topic}: the schema must be a pyarrow.Schema, not {type(schema).__name__}")
    schema = normalise_schema(schema)
    check_storable(schema)
    for name in key:
        if name not in schema.names:
            raise InvalidTopic(f"topic {topic}: key column {name!r} is not one of {', '.join(schema.names)}")
        check_key_type(name, schema.field(name).type)
    return TopicSchema(kind="columns", arrow=encode_schema(schema), spark=spark_schema, key=key)


def _state_named(name: str) -> TransactionState:
    folded = "".join(character for character in name if character.isalpha()).upper()
    for state in TransactionState:
        if state.name.replace("_", "") == folded:
            return state
    known = ", ".join(state.name for state in TransactionState)
    raise InvalidRequest(f"transaction state {name!r} is unknown; the states are: {known}")


def _with_tasks(txn: Transaction) -> list[Transaction]:
    """A transactional id, and those of its tasks, which are derived from it."""
    return [txn, *(_task(txn, number) for number in range(txn.task_count))]


def _task(txn: Transaction, number: int) -> Transaction:
    from dataclasses import replace

    return replace(
        txn,
        transactional_id=task_transactional_id(txn.transactional_id, number),
        producer_id=task_producer_id(txn.producer_id, number),
        kind="task",
        task_count=0,
    )


def _find(state: StoreState, transactional_id: str) -> Transaction:
    txn = state.transactions.get(transactional_id)
    if txn is not None:
        return txn
    job_id, _, number = transactional_id.rpartition("/")
    job = state.transactions.get(job_id)
    if job is not None and number.isdigit() and int(number) < job.task_count:
        return _task(job, int(number))
    raise TransactionalIdNotFound(f"no transactional id is {transactional_id!r}")
