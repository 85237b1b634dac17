"""What the scenarios are played with: topics with small segments, transactions of one row, and a look at both."""

from __future__ import annotations

from eoslog.producer.producer import Producer
from eoslog.state.entries import TopicConfig
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import Partition
from eoslog.store import Store

SEGMENT_BATCHES = 2


def topic_of_small_segments(store: Store, topic: str) -> None:
    """A topic whose segments hold one row and its control row, when they are sealed."""
    store.admin.create_topic(topic, config=TopicConfig(segment_batches=SEGMENT_BATCHES))


def write(
    store: Store, topic: str, *ends: str, transactional_id: str = "tx", transaction_timeout_ms: int = 900_000
) -> Producer:
    """A transaction of one row for each of ``ends``: ``commit``, ``abort``, or ``open`` to leave it open."""
    producer = store.producer(transactional_id, transaction_timeout_ms=transaction_timeout_ms)
    producer.init_transactions()
    for number, end in enumerate(ends):
        producer.begin_transaction()
        producer.send(topic, b"%d" % number, partition=0)
        producer.flush()
        if end == "commit":
            producer.commit_transaction()
        elif end == "abort":
            producer.abort_transaction()
    return producer


def partition_of(store: Store, topic: str, partition: int = 0) -> Partition:
    """A partition's state at the log's tail."""
    return store.read(lambda state, slot: state.partitions[PartitionId(state.topic_ids[topic], partition)])


def read(store: Store, topic: str, isolation_level: str = "read_committed") -> list[tuple[int, bytes]]:
    """The offsets and values that a reader is shown in partition 0."""
    scan = store.scan(topic, isolation_level=isolation_level, columns=["offset", "value"], partitions=[0])
    return [(row["offset"], row["value"]) for row in scan.to_table().to_pylist()]


def state_of(store: Store, transactional_id: str = "tx") -> str:
    return store.admin.describe_transaction(transactional_id).transaction_state


def epoch_of(store: Store, transactional_id: str = "tx") -> int:
    return store.admin.describe_transaction(transactional_id).producer_epoch
