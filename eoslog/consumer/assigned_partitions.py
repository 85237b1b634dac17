"""The partitions that a consumer reads: the position in each, the planned rows, and the order in which they are
read."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from datetime import timedelta

import pyarrow as pa

from eoslog.consumer.consumer_records import ConsumerRecord, Deserializers, columns_to_read, to_records
from eoslog.consumer.reset_policy import ResetPolicy
from eoslog.consumer.subscription import Subscription
from eoslog.errors import (
    EosLogError,
    NoOffsetForPartition,
    OffsetOutOfRange,
    RecordDeserializationFailed,
    UnknownTopicOrPartition,
)
from eoslog.format.topic_schemas import stored_schema
from eoslog.read.isolation import IsolationLevel, visible_end
from eoslog.read.offset_lookup import offset_for_time
from eoslog.read.planner import ReadPlanner
from eoslog.read.row_reader import PartitionRead, read_rows
from eoslog.session.session import Session
from eoslog.state.groups import committed_offset
from eoslog.state.names import PartitionId, TopicPartition, topic_partition
from eoslog.state.partition_state import Partition
from eoslog.state.pending_offsets import pending_partitions
from eoslog.state.store_state import StoreState, Topic

_logger = logging.getLogger(__name__)
_DECODED_AT_ONCE = 500
_DECODED_BYTES = 1 << 20
"""The most rows and bytes that are decoded at once. Decoding ahead makes a loop over single records fast."""


class PartitionFetch:
    """Reads one partition forward. A file is fetched when its first row is needed, one file at a time.

    It decodes rows ahead. The position moves past a record only when the record is returned.
    """

    def __init__(
        self,
        store: Session,
        topic: Topic,
        partition: int,
        *,
        with_transaction: bool = False,
        deserializers: Deserializers | None = None,
    ) -> None:
        self._store = store
        self._with_transaction = with_transaction
        self._deserializers = deserializers if topic.topic_schema.kind == "records" else None
        self.topic = topic
        self.partition = partition
        self.position: int | None = None
        """The next offset to return; None until it is resolved."""
        self.first_position: int | None = None
        """The lowest position of this consumer in the partition; None until there is one."""
        self.paused = False
        self._planned_end = 0
        self._rows_ahead = 0
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._batch: pa.RecordBatch | None = None
        self._row = 0
        self._decoded: list[ConsumerRecord] = []
        self._returned = 0
        """The number of decoded records that were returned."""

    @property
    def partition_id(self) -> PartitionId:
        return PartitionId(self.topic.topic_id, self.partition)

    @property
    def rows_ahead(self) -> int:
        """The number of planned rows that are not yet returned. It may be too high if compaction has removed rows."""
        return self._rows_ahead

    @property
    def has_decoded(self) -> bool:
        """True if the next record is decoded. Then ``take`` reads no file for it."""
        return self._returned < len(self._decoded)

    def move(self, position: int | None) -> None:
        """Set the position, and drop the plan."""
        self.position = position
        if position is not None:
            self.first_position = position if self.first_position is None else min(position, self.first_position)
        self._drop_plan()

    def _drop_plan(self) -> None:
        self._rows_ahead = 0
        self._batches = iter(())
        self._batch = None
        self._row = 0
        self._decoded = []
        self._returned = 0

    def plan(self, topic: Topic, partition: Partition, isolation: IsolationLevel) -> None:
        """Plan the visible rows from the position on. If there is none, the position moves past the invisible ones.

        Args:
            topic: the topic of the newest state. It may have more columns than before.

        Raises:
            OffsetOutOfRange: the partition does not hold the position.
        """
        if self.position is None:
            return
        if self._rows_ahead:
            if self.position >= partition.log_start_offset:
                return
            self._drop_plan()
        in_range = partition.log_start_offset <= self.position <= partition.high_watermark
        if in_range and visible_end(partition, isolation) <= self.position:
            return
        self.topic = topic
        plan = ReadPlanner(self._store.indexes, topic.topic, isolation).plan(partition, self.position)
        self._planned_end = plan.end_offset
        self._rows_ahead = plan.record_count
        read = PartitionRead(
            store=self._store.object_store,
            topic=plan.topic,
            partition=plan.partition,
            files=plan.rows,
            stored=stored_schema(self.topic),
            wanted=columns_to_read(self.topic, with_transaction=self._with_transaction),
            threads=1,
        )
        self._batches = self._store.call_counts.read(topic.topic, read_rows(read))
        if not self._rows_ahead:
            self.move(plan.end_offset)

    def take(self, most: int) -> list[ConsumerRecord]:
        """Return the next planned records, at most ``most``. The position moves past them.

        Raises:
            CorruptRecord, StoreUnavailable: the position stays, and the next call of ``plan`` plans it again.
            RecordDeserializationFailed: the first record; the position stays. If there are records before it, they are
                returned, and the next call raises the error.
        """
        records: list[ConsumerRecord] = []
        while len(records) < most and self._rows_ahead:
            if not self.has_decoded:
                if self._batch is None or self._row == self._batch.num_rows:
                    if records:
                        # Return these records before the next file is read: an error there would lose them.
                        break
                    if not self._next_batch():
                        self.move(self._planned_end)
                    continue
                self._decode(self._batch, most - len(records))
            taken = self._decoded[self._returned : self._returned + most - len(records)]
            if self._deserializers is not None:
                taken = self._deserialized(self._deserializers, taken, may_raise=not records)
                if not taken:
                    break
            records += taken
            self._returned += len(taken)
            self._rows_ahead -= len(taken)
            self.position = records[-1].offset + 1
        if records and not self._rows_ahead:
            self.move(max(self._planned_end, records[-1].offset + 1))
        return records

    def _deserialized(
        self, deserializers: Deserializers, records: list[ConsumerRecord], *, may_raise: bool
    ) -> list[ConsumerRecord]:
        """Return the records up to the first one that cannot be deserialized."""
        found: list[ConsumerRecord] = []
        try:
            for record in records:
                found.append(deserializers.apply(record))
        except RecordDeserializationFailed:
            if may_raise and not found:
                raise
        return found

    def _decode(self, batch: pa.RecordBatch, wanted: int) -> None:
        affordable = _DECODED_BYTES * batch.num_rows // max(1, batch.nbytes)
        rows = batch.slice(self._row, max(wanted, min(_DECODED_AT_ONCE, affordable)))
        self._decoded = to_records(self.topic, self.partition, rows)
        self._returned = 0
        self._row += rows.num_rows

    def _next_batch(self) -> bool:
        """Decode the next batch. Return False if there is none, because compaction removed the planned rows."""
        try:
            self._batch = next(self._batches, None)
        except BaseException:
            self._drop_plan()
            raise
        self._row = 0
        return self._batch is not None


class AssignedPartitions:
    """The assigned partitions of a consumer. A position is resolved when it is first needed."""

    def __init__(
        self,
        store: Session,
        group_id: str | None,
        isolation: IsolationLevel,
        *,
        reset_policy: ResetPolicy,
        subscription: Subscription,
        new_partitions_from_beginning: bool = True,
        with_transaction: bool = False,
        deserializers: Deserializers | None = None,
    ) -> None:
        self._store = store
        self._subscription = subscription
        self._new_from_beginning = new_partitions_from_beginning
        self._group_id = group_id
        self._isolation = isolation
        self._reset_policy = reset_policy
        self._with_transaction = with_transaction
        self._deserializers = deserializers
        self._fetches: dict[TopicPartition, PartitionFetch] = {}
        self._resets: dict[TopicPartition, str] = {}
        self._turn = 0
        self._last: PartitionFetch | None = None
        """The partition of the record that ``take_one`` returned last, while it is assigned."""
        self._before: dict[PartitionFetch, int | None] = {}
        """The position of each partition that the running call reads, as it was before the call."""
        self.held_back = False
        """True if an open transaction hid rows from the last plan, or if a position depends on a prepared one."""

    def settle(self, *, has_returned: bool) -> None:
        """Settle the last call, before the next one begins.

        Args:
            has_returned: True if the call returned its records. Otherwise it moves the positions back: nobody has the
                records, and no commit may pass over them.
        """
        if not has_returned:
            for fetch, position in self._before.items():
                fetch.move(position)
        # Last: after an interrupt in the loop, the next call moves all positions back.
        self._before = {}

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._fetches)

    def __len__(self) -> int:
        return len(self._fetches)

    def get(self, key: TopicPartition) -> PartitionFetch | None:
        return self._fetches.get(topic_partition(key))

    def topic_ids(self) -> tuple[tuple[str, str], ...]:
        """Return the name and id of each topic that is read."""
        return tuple(sorted({(fetch.topic.topic, fetch.topic.topic_id) for fetch in self._fetches.values()}))

    def without(self, topics: Mapping[TopicPartition, Topic]) -> set[TopicPartition]:
        """Return the partitions that are not in ``topics``, also the partitions of a topic that was created again."""
        return {key for key in self._fetches if not self._reads(key, topics)}

    def _reads(self, key: TopicPartition, topics: Mapping[TopicPartition, Topic]) -> bool:
        return key in topics and key in self._fetches and topics[key].topic_id == self._fetches[key].topic.topic_id

    def replace(self, topics: Mapping[TopicPartition, Topic]) -> set[TopicPartition]:
        """Read these partitions from now on. Partitions that were already read keep their positions.

        Returns:
            The new partitions. Their positions are not resolved yet.
        """
        new = {key for key in topics if not self._reads(key, topics)}
        self._fetches = {
            key: self._fetches[key]
            if key not in new
            else PartitionFetch(
                self._store,
                topics[key],
                key.partition,
                with_transaction=self._with_transaction,
                deserializers=self._deserializers,
            )
            for key in sorted(topics)
        }
        self._resets = {key: policy for key, policy in self._resets.items() if key in topics and key not in new}
        self._last = None
        self.held_back = False
        return new

    def seek(self, key: TopicPartition, position: int | str) -> None:
        """Set a position to an offset, or to a policy (``earliest``, ``latest``) that is resolved later."""
        key = topic_partition(key)
        fetch = self._fetches[key]
        self._before.pop(fetch, None)
        if isinstance(position, str):
            self._resets[key] = position
            fetch.move(None)
        else:
            fetch.move(position)
            self._resets.pop(key, None)

    def seek_to_committed(self, key: TopicPartition) -> None:
        """Move to the group's offset; without one, to where this consumer began. The position is resolved later."""
        fetch = self._fetches[topic_partition(key)]
        self._before.pop(fetch, None)
        self._resets.pop(topic_partition(key), None)
        fetch.move(None)

    def positions(self) -> dict[TopicPartition, int]:
        """Return the resolved positions."""
        return {key: fetch.position for key, fetch in self._fetches.items() if fetch.position is not None}

    def paused(self) -> set[TopicPartition]:
        return {key for key, fetch in self._fetches.items() if fetch.paused}

    def rows_ahead(self) -> int:
        """Return the number of planned rows of partitions that are not paused."""
        return sum(fetch.rows_ahead for fetch in self._fetches.values() if not fetch.paused)

    def resolve(self) -> dict[TopicPartition, Partition]:
        """Resolve all positions, and return the partitions of the newest known state.

        A position stays unresolved if an open transaction may still commit the group's offset: starting at the old
        offset would read the rows of that transaction again.

        Raises:
            UnknownTopicOrPartition: a topic was deleted.
            NoOffsetForPartition
        """

        def snapshot(
            state: StoreState, slot: int
        ) -> tuple[dict[TopicPartition, Partition], dict[TopicPartition, int | ResetPolicy]]:
            found = {key: _partition(state, key, fetch) for key, fetch in self._fetches.items()}
            starts = {
                key: self._start(state, key, found[key])
                for key, fetch in self._fetches.items()
                if fetch.position is None and not self._is_pending(state, key, fetch)
            }
            return found, starts

        found, starts = self._store.read(snapshot, refresh=False)
        for key, start in starts.items():
            fetch = self._fetches[key]
            self._before.pop(fetch, None)
            fetch.move(start if isinstance(start, int) else self._offset_of(start, fetch.topic, found[key]))
            self._resets.pop(key, None)
        return found

    def _topics(self) -> dict[TopicPartition, Topic]:
        """Return the topics of the newest known state."""

        def snapshot(state: StoreState, slot: int) -> dict[TopicPartition, Topic]:
            return {key: state.topics.get(fetch.topic.topic_id, fetch.topic) for key, fetch in self._fetches.items()}

        return self._store.read(snapshot, refresh=False)

    def _is_pending(self, state: StoreState, key: TopicPartition, fetch: PartitionFetch) -> bool:
        asks_group = self._group_id is not None and key not in self._resets
        return asks_group and fetch.partition_id in pending_partitions(state, self._group_id or "")

    def _start(self, state: StoreState, key: TopicPartition, partition: Partition) -> int | ResetPolicy:
        """Return the committed offset, or the policy that gives the first position."""
        policy = self._resets.get(key)
        if policy is not None:
            return policy
        if self._group_id is not None:
            committed = committed_offset(state, self._group_id, partition.id)
            if committed is not None:
                return committed.offset
        first_position = self._fetches[key].first_position
        if first_position is not None:
            # ``seek_to_committed`` before the first commit. The reset policy could pass over rows that the application
            # got, but did not commit.
            return first_position
        if self._reset_policy == "none":
            raise NoOffsetForPartition(
                f"group {self._group_id!r} has no committed offset for {key.topic}-{key.partition}. Call seek(), or "
                "set auto_offset_reset"
            )
        # "latest" passes over the rows from before the subscription. A partition that was added later has no such rows.
        # A consumer that began at its end would miss the rows that were written before it saw the partition.
        is_new = self._new_from_beginning and self._subscription.was_added(state, key.topic, partition)
        return "earliest" if is_new else self._reset_policy

    def _offset_of(self, policy: ResetPolicy, topic: Topic, partition: Partition) -> int:
        if policy == "earliest":
            return partition.log_start_offset
        if isinstance(policy, timedelta):
            begin_ms = self._store.now_ms() - policy // timedelta(milliseconds=1)
            found = offset_for_time(self._store, topic, partition, isolation=self._isolation, timestamp_ms=begin_ms)
            if found is not None:
                return found.offset
        return visible_end(partition, self._isolation)

    def plan(self) -> None:
        """Plan the next rows in the newest known state.

        Raises:
            OffsetOutOfRange: a position was deleted, and the policy is ``none``.
        """
        self.held_back = False
        partitions, topics = self.resolve(), self._topics()
        for key, partition in partitions.items():
            fetch = self._fetches[key]
            if fetch.paused:
                continue
            hidden = visible_end(partition, self._isolation) < partition.high_watermark
            self.held_back |= hidden or fetch.position is None
            self._before.setdefault(fetch, fetch.position)
            try:
                fetch.plan(topics[key], partition, self._isolation)
            except OffsetOutOfRange as error:
                if self._reset_policy == "none":
                    raise
                _logger.info("%s: reset to %s: %s", self._store, self._reset_policy, error)
                fetch.move(self._offset_of(self._reset_policy, topics[key], partition))
                fetch.plan(topics[key], partition, self._isolation)

    def take_one(self) -> list[ConsumerRecord]:
        """Return one record, or none, as ``take`` does. The next partition follows when no decoded record is left."""
        last = self._last
        if last is None or last.paused or not last.has_decoded:
            self._last = None
            return self.take(1)
        self._before.setdefault(last, last.position)
        return last.take(1)

    def take(self, most: int) -> list[ConsumerRecord]:
        """Return records of the partitions in turn, so that a long partition does not delay the others.

        Raises:
            CorruptRecord, StoreUnavailable, RecordDeserializationFailed: no record was read before the error. Otherwise
                those records are returned first, and the next call raises the error.
        """
        fetches = [fetch for fetch in self._fetches.values() if not fetch.paused]
        records: list[ConsumerRecord] = []
        if not fetches:
            return records
        first = self._turn % len(fetches)
        self._turn += 1
        for fetch in fetches[first:] + fetches[:first]:
            while fetch.rows_ahead and len(records) < most:
                self._last = fetch
                self._before.setdefault(fetch, fetch.position)
                try:
                    records += fetch.take(most - len(records))
                except EosLogError:
                    if records:
                        return records
                    raise
        return records


def _partition(state: StoreState, key: TopicPartition, fetch: PartitionFetch) -> Partition:
    partition = state.partitions.get(fetch.partition_id)
    if partition is None:
        raise UnknownTopicOrPartition(
            f"topic {key.topic} was deleted, or created again, while {key.topic}-{key.partition} was assigned"
        )
    return partition
