"""Commits in order: all rows that each slot of the log committed, over all requested topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from eoslog.arguments import is_whole_number
from eoslog.errors import InvalidOption, OffsetOutOfRange
from eoslog.format.topic_schemas import stored_schema
from eoslog.read.columns import choose_columns, default_columns
from eoslog.read.committed_rows import rows_by_commit
from eoslog.read.file_rows import FileRows, ListedRows, PlannedRows
from eoslog.read.planner import PartitionPlan
from eoslog.read.scan import Scan
from eoslog.session.session import Session
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import NO_SLOT, Partition
from eoslog.state.store_state import StoreState, Topic
from eoslog.state.topics import topic_named
from eoslog.storage.calls import ExclusiveIterator
from eoslog.wording import quoted


class CommittedTransaction(NamedTuple):
    """One transaction that a slot committed. Each task of a Spark job has its own."""

    transactional_id: str | None
    """The transactional id; None for rows without a transaction."""
    producer_id: int
    producer_epoch: int


class Commit:
    """All rows that one slot of the log committed in the requested topics."""

    def __init__(
        self,
        store: Session,
        slot: int,
        timestamp: int,
        *,
        topics: Mapping[str, Topic],
        rows: Mapping[PartitionId, tuple[FileRows, ...]],
    ) -> None:
        self._store = store
        self._topics = topics
        self._rows = rows
        self.slot = slot
        """The slot of the commit. To continue after this commit, pass it as ``after_slot``."""
        self.timestamp = timestamp
        """The log's time at the slot (ms)."""

    def __repr__(self) -> str:
        return f"Commit(slot={self.slot}, topics={self.topics}, record_count={self.record_count})"

    @property
    def topics(self) -> list[str]:
        """The requested topics to which this commit wrote rows, sorted by name."""
        written = {partition_id.topic_id for partition_id in self._rows}
        return sorted(name for name, topic in self._topics.items() if topic.topic_id in written)

    @property
    def transactions(self) -> tuple[CommittedTransaction, ...]:
        """The transactions of the commit. There are several for the tasks of a job, or if writers shared the slot."""
        found: dict[CommittedTransaction, None] = {}
        for batches in (rows.batches for files in self._rows.values() for rows in files):
            producers = (
                each.tolist() for each in (batches.transactional_id, batches.producer_id, batches.producer_epoch)
            )
            found |= dict.fromkeys(map(CommittedTransaction, *producers))
        return tuple(found)

    @property
    def record_count(self) -> int:
        """The number of rows. It is known without reading files."""
        return sum(rows.record_count for files in self._rows.values() for rows in files)

    def scan(self, topic: str, columns: Sequence[str] | None = None) -> Scan:
        """Return a scan of the commit's rows in one topic. See ``Store.scan`` for the columns.

        Raises:
            InvalidOption: the topic was not requested, or has no such column.
        """
        known = self._topics.get(topic) if isinstance(topic, str) else None
        if known is None:
            raise InvalidOption(
                f"topic {quoted(topic)} was not requested. Use one of: {', '.join(sorted(self._topics))}"
            )
        plans = [
            _plan(topic, partition_id, files)
            for partition_id, files in sorted(self._rows.items(), key=lambda each: each[0])
            if partition_id.topic_id == known.topic_id
        ]
        wanted = default_columns(known) if columns is None else choose_columns(known, columns)
        return Scan(self._store, plans, stored_schema(known), columns=wanted, slot=self.slot)

    def to_tables(self) -> dict[str, pa.Table]:
        """Return all rows of the commit, by topic.

        Raises:
            CorruptRecord, StoreUnavailable
        """
        return {topic: self.scan(topic).to_table() for topic in self.topics}


def _plan(topic: str, partition_id: PartitionId, files: Sequence[FileRows]) -> PartitionPlan:
    start, end = int(files[0].batches.base_offset[0]), int(files[-1].batches.end_offset[-1])
    rows = PlannedRows([ListedRows(files)])
    return PartitionPlan(
        topic=topic,
        topic_id=partition_id.topic_id,
        partition=partition_id.partition,
        start_offset=start,
        end_offset=end,
        rows=rows,
    )


def read_commits(store: Session, topics: Sequence[str], after_slot: int, until_slot: int | None) -> Iterator[Commit]:
    """Yield commits; see ``Store.commits``. The call takes a snapshot of the topics. Iteration reads the rows."""
    names = list(dict.fromkeys(topics))
    if not names:
        raise InvalidOption("name the topics whose commits are to be read")
    for slot in (after_slot, 0 if until_slot is None else until_slot):
        if not is_whole_number(slot):
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
        Commit(store, slot, timestamp, topics=found, rows=rows)
        for slot, timestamp, rows in rows_by_commit(store.indexes, partitions, after_slot, until)
    )
