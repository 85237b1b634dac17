"""Commits, one after the other: what each slot of the log committed, whole, over all topics that are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from eoslog.errors import InvalidOption, OffsetOutOfRange, quoted
from eoslog.format.topic_schema_json import stored_schema
from eoslog.read.columns import choose_columns, default_columns
from eoslog.read.committed_rows import slices_by_commit
from eoslog.read.planner import FileSlice, PartitionPlan, Slices
from eoslog.read.scan import Scan
from eoslog.session.session import Session
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import NO_SLOT, Partition
from eoslog.state.store_state import StoreState, Topic
from eoslog.state.topics import topic_named
from eoslog.storage.exclusive import ExclusiveIterator


class CommittedTransaction(NamedTuple):
    """One of the transactions that a slot committed; of a Spark job, one of its tasks."""

    transactional_id: str | None
    """None for rows without a transaction."""
    producer_id: int
    producer_epoch: int


class Commit:
    """What one slot of the log committed in the topics that are read: all of it, once."""

    def __init__(
        self,
        store: Session,
        slot: int,
        timestamp: int,
        topics: Mapping[str, Topic],
        rows: Mapping[PartitionId, tuple[FileSlice, ...]],
    ) -> None:
        self._store = store
        self._topics = topics
        self._rows = rows
        self.slot = slot
        """Its place in the order of commits. Go on behind it with ``after_slot``."""
        self.timestamp = timestamp
        """The log's time at the slot (ms)."""

    def __repr__(self) -> str:
        return f"Commit(slot={self.slot}, topics={self.topics}, record_count={self.record_count})"

    @property
    def topics(self) -> list[str]:
        """Those of the topics that are read into which it wrote rows, in their order."""
        written = {partition_id.topic_id for partition_id in self._rows}
        return sorted(name for name, topic in self._topics.items() if topic.topic_id in written)

    @property
    def transactions(self) -> tuple[CommittedTransaction, ...]:
        """Who wrote the rows. Several, if writers of one process shared the slot, or for the tasks of a job."""
        origins = [piece.origin for slices in self._rows.values() for piece in slices]
        return tuple(
            dict.fromkeys(
                CommittedTransaction(origin.transactional_id, origin.producer_id, origin.producer_epoch)
                for origin in origins
            )
        )

    @property
    def record_count(self) -> int:
        """The number of rows, known without reading any."""
        return sum(piece.record_count for slices in self._rows.values() for piece in slices)

    def scan(self, topic: str, columns: Sequence[str] | None = None) -> Scan:
        """Its rows in one of the topics; see ``Store.scan`` for the columns.

        Raises:
            InvalidOption: the topic is not one of those that are read, or has no such column.
        """
        known = self._topics.get(topic)
        if known is None:
            raise InvalidOption(
                f"topic {quoted(topic)} is not read here; the topics are: {', '.join(sorted(self._topics))}"
            )
        plans = [
            PartitionPlan(
                topic,
                partition_id.topic_id,
                partition_id.partition,
                slices[0].base_offset,
                slices[-1].gaps_end_offset or slices[-1].base_offset + slices[-1].record_count,
                Slices([slices]),
            )
            for partition_id, slices in sorted(self._rows.items())
            if partition_id.topic_id == known.topic_id
        ]
        wanted = default_columns(known) if columns is None else choose_columns(known, columns)
        return Scan(self._store.object_store, plans, stored_schema(known), wanted, self.slot)

    def to_tables(self) -> dict[str, pa.Table]:
        """All its rows, by topic.

        Raises:
            CorruptRecord, StoreUnavailable
        """
        return {topic: self.scan(topic).to_table() for topic in self.topics}


def read_commits(store: Session, topics: Sequence[str], after_slot: int, until_slot: int | None) -> Iterator[Commit]:
    """See ``Store.commits``. The topics are looked at now, the rows when they are asked for."""
    names = list(dict.fromkeys(topics))
    if not names:
        raise InvalidOption("name the topics whose commits are to be read")
    for slot in (after_slot, 0 if until_slot is None else until_slot):
        if not isinstance(slot, int) or isinstance(slot, bool):
            raise InvalidOption(f"a slot is a number of the log, not {quoted(slot)}")

    def snapshot(state: StoreState, newest: int) -> tuple[dict[str, Topic], dict[PartitionId, Partition], int]:
        found = {name: topic_named(state, name) for name in names}
        partition_ids = [partition_id for topic in found.values() for partition_id in topic.partition_ids()]
        return found, {partition_id: state.partitions[partition_id] for partition_id in partition_ids}, newest

    found, partitions, newest = store.read(snapshot)
    until = newest if until_slot is None else until_slot
    if not NO_SLOT <= after_slot <= newest or until > newest:
        raise InvalidOption(f"slots {after_slot} to {until} are not there: the log holds slots 0 to {newest}")
    by_id = {topic.topic_id: name for name, topic in found.items()}
    for partition_id, partition in partitions.items():
        if NO_SLOT < after_slot < partition.removed_end_slot:
            raise OffsetOutOfRange(
                f"partition {by_id[partition_id.topic_id]}-{partition_id.partition}: rows that were committed after "
                f"slot {after_slot}, up to slot {partition.removed_end_slot}, have been deleted since. Read from a "
                "later slot, or omit after_slot to read the rows that are left"
            )
    return ExclusiveIterator(
        Commit(store, slot, timestamp, found, rows)
        for slot, timestamp, rows in slices_by_commit(store.indexes, partitions, after_slot, until)
    )
