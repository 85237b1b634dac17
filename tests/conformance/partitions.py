"""Partitions for the scenarios: topics with small segments, transactions of one row, and a look at their state."""

from __future__ import annotations

from eoslog.client.store import Store
from eoslog.rules.entries import TopicConfig
from eoslog.rules.names import PartitionId
from eoslog.rules.state import Partition

SEGMENT_BATCHES = 2


def topic_of_small_segments(store: Store, topic: str) -> None:
    """A topic whose segments hold one row and its control row, when they are sealed."""
    store.admin.create_topic(topic, config=TopicConfig(segment_batches=SEGMENT_BATCHES))


def write(store: Store, topic: str, *ends: str, transactional_id: str = "tx") -> None:
    """A transaction of one row for each of ``ends``: ``commit``, ``abort``, or ``open`` to leave it open."""
    with_id = store.producer(transactional_id)
    with_id.init_transactions()
    for number, end in enumerate(ends):
        with_id.begin_transaction()
        with_id.send(topic, b"%d" % number, partition=0)
        with_id.flush()
        if end == "commit":
            with_id.commit_transaction()
        elif end == "abort":
            with_id.abort_transaction()


def partition_of(store: Store, topic: str, partition: int = 0) -> Partition:
    """A partition's state at the log's tail."""
    return store.read(lambda state, slot: state.partitions[PartitionId(state.topic_ids[topic], partition)])


def read(store: Store, topic: str, isolation_level: str = "read_committed") -> list[tuple[int, bytes]]:
    """The offsets and values that a reader is shown in partition 0."""
    scan = store.scan(topic, isolation_level=isolation_level, columns=["offset", "value"], partitions=[0])
    return [(row["offset"], row["value"]) for row in scan.to_table().to_pylist()]
