"""A topic at the newest slot, as a publisher sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from eoslog.state.partition_state import NO_SLOT, Partition
from eoslog.state.store_state import LastCommit, StoreState, Topic
from eoslog.state.topics import topic_named


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """A topic at the newest slot."""

    store_id: str
    slot: int
    time_ms: int
    topic: Topic
    partitions: tuple[Partition, ...]
    last_commits: Mapping[str, LastCommit]
    """The last commits of the transactional ids that have rows in an active segment."""

    @classmethod
    def of(cls, state: StoreState, slot: int, topic: str) -> TopicSnapshot:
        """Return the snapshot of a topic.

        Raises:
            UnknownTopicOrPartition
        """
        found = topic_named(state, topic)
        partitions = tuple(state.partitions[each] for each in found.partition_ids())
        writers = {writer_of(batch.transactional_id) for partition in partitions for batch in partition.active}
        transactions = ((writer, state.transactions.get(writer)) for writer in writers)
        return cls(
            store_id=state.store_id,
            slot=slot,
            time_ms=state.time_ms,
            topic=found,
            partitions=partitions,
            last_commits={
                writer: transaction.last_commit
                for writer, transaction in transactions
                if transaction is not None and transaction.last_commit is not None
            },
        )

    @property
    def has_records(self) -> bool:
        """True for a topic of Kafka records, whose batches have bounds of ``timestamp`` only."""
        return self.topic.topic_schema.kind == "records"

    @property
    def only_grows(self) -> bool:
        """True if no row was ever removed, and no setting removes rows."""
        config = self.topic.config
        return (
            not config.is_compacted
            and config.retention_ms < 0
            and config.retention_bytes < 0
            and all(
                partition.log_start_offset == 0 and partition.removed_end_slot == NO_SLOT
                for partition in self.partitions
            )
        )


def writer_of(transactional_id: str | None) -> str:
    """Return the transactional id of the commit. A task of a job commits with the id of its job."""
    return (transactional_id or "").rpartition("/")[0] or transactional_id or ""


def table_id(topic: Topic) -> str:
    """Return the id of a topic's table: the topic id, 32 hexadecimal digits, in the form of a UUID.

    A topic that is deleted and created again is another table: a stream of the old table must not continue.
    """
    return str(UUID(topic.topic_id))
