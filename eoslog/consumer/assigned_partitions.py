"""The partitions that a consumer reads: where it stands in each, what lies ahead, and whose turn it is."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from eoslog.consumer.consumer_records import ConsumerRecord
from eoslog.consumer.fetcher import PartitionFetch
from eoslog.errors import EosLogError, NoOffsetForPartition, OffsetOutOfRange, UnknownTopicOrPartition
from eoslog.read.isolation import IsolationLevel, visible_end
from eoslog.session.session import Session
from eoslog.state.groups import committed_offset
from eoslog.state.names import TopicPartition, topic_partition
from eoslog.state.partition_state import Partition
from eoslog.state.prepared import pending_partitions
from eoslog.state.store_state import StoreState, Topic

_logger = logging.getLogger(__name__)


class AssignedPartitions:
    """What a consumer holds of its partitions. A position is resolved when it is needed first."""

    def __init__(
        self,
        store: Session,
        group_id: str | None,
        isolation: IsolationLevel,
        reset_policy: str,
        *,
        with_transaction: bool = False,
    ) -> None:
        self._store = store
        self._group_id = group_id
        self._isolation = isolation
        self._reset_policy = reset_policy
        self._with_transaction = with_transaction
        self._fetches: dict[TopicPartition, PartitionFetch] = {}
        self._resets: dict[TopicPartition, str] = {}
        self._turn = 0
        self.held_back = False
        """Whether an open transaction hid rows of a partition from the last plan, or where to read on."""

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._fetches)

    def __len__(self) -> int:
        return len(self._fetches)

    def get(self, place: TopicPartition) -> PartitionFetch | None:
        return self._fetches.get(topic_partition(place))

    def topic_ids(self) -> tuple[tuple[str, str], ...]:
        """Name and id of each topic that is read."""
        return tuple(sorted({(fetch.topic.topic, fetch.topic.topic_id) for fetch in self._fetches.values()}))

    def without(self, topics: Mapping[TopicPartition, Topic]) -> set[TopicPartition]:
        """The partitions that are not among these. One of a topic that was created again is another."""
        return {place for place in self._fetches if not self._reads(place, topics)}

    def _reads(self, place: TopicPartition, topics: Mapping[TopicPartition, Topic]) -> bool:
        return place in topics and place in self._fetches and topics[place].topic_id == self._topic_id(place)

    def _topic_id(self, place: TopicPartition) -> str:
        return self._fetches[place].topic.topic_id

    def replace(self, topics: Mapping[TopicPartition, Topic]) -> set[TopicPartition]:
        """Read these partitions from now on. Those that were read already go on; the others' positions are resolved.

        Returns:
            The others.
        """
        new = {place for place in topics if not self._reads(place, topics)}
        store = self._store
        self._fetches = {
            place: self._fetches[place]
            if place not in new
            else PartitionFetch(
                store.object_store,
                store.indexes,
                topics[place],
                place.partition,
                with_transaction=self._with_transaction,
            )
            for place in sorted(topics)
        }
        self._resets = {place: policy for place, policy in self._resets.items() if place in topics and place not in new}
        self.held_back = False
        return new

    def seek(self, place: TopicPartition, position: int | str) -> None:
        """Go on from an offset, or from where the policy ``earliest`` or ``latest`` leads when it is resolved."""
        place = topic_partition(place)
        self._resets.pop(place, None)
        if isinstance(position, str):
            self._resets[place] = position
            self._fetches[place].move(None)
        else:
            self._fetches[place].move(position)

    def positions(self) -> dict[TopicPartition, int]:
        """The positions that are resolved."""
        return {place: fetch.position for place, fetch in self._fetches.items() if fetch.position is not None}

    def paused(self) -> set[TopicPartition]:
        return {place for place, fetch in self._fetches.items() if fetch.paused}

    def rows_ahead(self) -> int:
        """Rows that are planned and may be handed out."""
        return sum(fetch.rows_ahead for fetch in self._fetches.values() if not fetch.paused)

    def resolve(self) -> dict[TopicPartition, Partition]:
        """The partitions as the newest known state has them; from here on each has a position.

        Unless it is to begin at an offset of the group that a prepared transaction may still set: it waits for that.

        Raises:
            UnknownTopicOrPartition: a topic was deleted.
            NoOffsetForPartition
        """

        def look(state: StoreState, slot: int) -> dict[TopicPartition, Partition]:
            found = {place: _partition(state, place, fetch) for place, fetch in self._fetches.items()}
            for place, fetch in self._fetches.items():
                if fetch.position is None and not self._is_pending(state, place, fetch):
                    fetch.move(self._initial_position(state, place, found[place]))
                    self._resets.pop(place, None)
            return found

        return self._store.read(look, refresh=False)

    def _topics(self) -> dict[TopicPartition, Topic]:
        """The topics as the newest known state has them."""

        def look(state: StoreState, slot: int) -> dict[TopicPartition, Topic]:
            return {
                place: state.topics.get(fetch.topic.topic_id, fetch.topic) for place, fetch in self._fetches.items()
            }

        return self._store.read(look, refresh=False)

    def _is_pending(self, state: StoreState, place: TopicPartition, fetch: PartitionFetch) -> bool:
        asks_group = self._group_id is not None and place not in self._resets
        return asks_group and fetch.partition_id in pending_partitions(state, self._group_id or "")

    def _initial_position(self, state: StoreState, place: TopicPartition, partition: Partition) -> int:
        policy = self._resets.get(place)
        if policy is None and self._group_id is not None:
            committed = committed_offset(state, self._group_id, partition.id)
            if committed is not None:
                return committed.offset
        policy = policy or self._reset_policy
        if policy == "none":
            raise NoOffsetForPartition(
                f"group {self._group_id!r} has no committed offset for {place.topic}-{place.partition}: seek, or "
                "choose auto_offset_reset"
            )
        return self._offset_of(policy, partition)

    def _offset_of(self, policy: str, partition: Partition) -> int:
        return visible_end(partition, self._isolation) if policy == "latest" else partition.log_start_offset

    def plan(self) -> None:
        """Plan what lies ahead in the newest known state.

        Raises:
            OffsetOutOfRange: a position is gone, and the policy is ``none``.
        """
        self.held_back = False
        partitions, topics = self.resolve(), self._topics()
        for place, partition in partitions.items():
            fetch = self._fetches[place]
            if fetch.paused:
                continue
            hidden = visible_end(partition, self._isolation) < partition.high_watermark
            self.held_back |= hidden or fetch.position is None
            try:
                fetch.plan(topics[place], partition, self._isolation)
            except OffsetOutOfRange as error:
                if self._reset_policy == "none":
                    raise
                _logger.info("%s: reset to %s: %s", self._store, self._reset_policy, error)
                fetch.move(self._offset_of(self._reset_policy, partition))
                fetch.plan(topics[place], partition, self._isolation)

    def take(self, most: int) -> list[ConsumerRecord]:
        """Records of the partitions in turn, so that none starves behind a long one.

        Raises:
            CorruptRecord, StoreUnavailable: and no record is in hand.
        """
        fetches = [fetch for fetch in self._fetches.values() if not fetch.paused]
        records: list[ConsumerRecord] = []
        if not fetches:
            return records
        first = self._turn % len(fetches)
        self._turn += 1
        for fetch in fetches[first:] + fetches[:first]:
            while fetch.rows_ahead and len(records) < most:
                try:
                    records += fetch.take(most - len(records))
                except EosLogError:
                    if records:
                        return records
                    raise
        return records


def _partition(state: StoreState, place: TopicPartition, fetch: PartitionFetch) -> Partition:
    partition = state.partitions.get(fetch.partition_id)
    if partition is None:
        raise UnknownTopicOrPartition(
            f"topic {place.topic} was deleted, or created again, while {place.topic}-{place.partition} was assigned"
        )
    return partition
