"""Lookup of a topic or a partition by the name that a user gave."""

from __future__ import annotations

from eoslog.errors import UnknownTopicOrPartition, quoted
from eoslog.session.session import Session
from eoslog.state.draft import Draft
from eoslog.state.names import PartitionId, TopicPartition
from eoslog.state.partition_state import Partition
from eoslog.state.partitions import partition_of
from eoslog.state.store_state import StoreState, Topic
from eoslog.state.topics import topic_named


def find_topic(store: Session, name: str) -> Topic:
    """Return the topic of the known state. Read the newest state only if that has no such topic.

    Raises:
        UnknownTopicOrPartition
    """

    def known(state: StoreState, slot: int) -> bool:
        return name in state.topic_ids

    stale = not store.read(known, refresh=False)
    return store.read(lambda state, slot: topic_named(state, name), refresh=stale)


def partition_named(state: StoreState | Draft, place: TopicPartition | tuple[str, int]) -> tuple[Topic, Partition]:
    """Return a topic and one of its partitions.

    Raises:
        UnknownTopicOrPartition
    """
    name, partition = place
    topic = topic_named(state, name)
    return topic, partition_of(state, PartitionId(topic.topic_id, partition))


def check_partition(topic: Topic, partition: int) -> int:
    """Check a partition number, and return it.

    Raises:
        UnknownTopicOrPartition: the topic has no such partition.
    """
    if not isinstance(partition, int) or not 0 <= partition < topic.partitions:
        raise UnknownTopicOrPartition(
            f"topic {topic.topic} has partitions 0 to {topic.partitions - 1}, not {quoted(partition)}"
        )
    return partition
