"""The consumer (Kafka's ``KafkaConsumer``): reads topics record by record, alone or shared out among a group."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from eoslog.client.assigned import AssignedPartitions
from eoslog.client.consumer_records import ConsumerRecord
from eoslog.client.fetch import PartitionFetch
from eoslog.client.group import GroupMetadata, group_offsets
from eoslog.client.membership import Membership
from eoslog.client.offset_lookup import OffsetAndTimestamp, offset_for_time
from eoslog.client.positions import OffsetAndMetadata
from eoslog.client.timeouts import end_timed_out
from eoslog.errors import (
    AbortableError,
    IllegalState,
    InvalidOption,
    InvalidRequest,
    RetriableError,
    StoreAccessDenied,
    UnknownTopicOrPartition,
)
from eoslog.read.isolation import IsolationLevel, visible_end
from eoslog.rules.draft import Draft
from eoslog.rules.entries import OffsetsCommitted
from eoslog.rules.groups import assignment as share_out
from eoslog.rules.groups import committed_offset
from eoslog.rules.names import PartitionId, TopicPartition, check_id
from eoslog.rules.partitions import partition_of
from eoslog.rules.state import Group, Partition, StoreState, Topic
from eoslog.rules.topics import topic_named

if TYPE_CHECKING:
    from eoslog.client.store import Store

_logger = logging.getLogger(__name__)
_FIRST_PAUSE_MS = 10
_LONGEST_PAUSE_MS = 500
_LOOK_AT_LEAST_EVERY_MS = 1_000
_RESET_POLICIES = ("earliest", "latest", "none")

Rebalanced = Callable[[list[TopicPartition]], None]


class Consumer:
    """Reads records in the order of their offsets. Not safe to share between threads.

    A consumer with a group commits offsets when it is told to: a commit is a slot of the log, and who consumes in a
    transaction commits them there (``Producer.send_offsets_to_transaction``). So ``enable_auto_commit`` is off, unlike
    Kafka's.

    Its session lasts from poll to poll: a member that does not poll for ``session_timeout_ms`` may be evicted by the
    others, and joins anew at its next poll. Whenever the group's generation changes, positions are those committed.
    """

    def __init__(
        self,
        store: Store,
        group_id: str | None = None,
        *,
        isolation_level: str | IsolationLevel = IsolationLevel.READ_COMMITTED,
        auto_offset_reset: Literal["earliest", "latest", "none"] = "latest",
        max_poll_records: int = 500,
        session_timeout_ms: int = 45_000,
        enable_auto_commit: bool = False,
        auto_commit_interval_ms: int = 5_000,
    ) -> None:
        """
        Args:
            auto_offset_reset: where to begin without a committed offset, or when the position is gone.
            max_poll_records: how many records a poll returns at most.
            session_timeout_ms: how long a member may be silent, 6,000 to 1,800,000 ms.
            enable_auto_commit: commit positions in ``poll`` and ``close``.

        Raises:
            InvalidOption, InvalidRequest
        """
        self._isolation = IsolationLevel.of(isolation_level)
        if self._isolation is IsolationLevel.SNAPSHOT:
            raise InvalidOption("a consumer follows offsets and cannot read a snapshot; use store.scan(), or Spark")
        if auto_offset_reset not in _RESET_POLICIES:
            raise InvalidOption(
                f"auto_offset_reset {auto_offset_reset!r} is unknown; it is one of: {', '.join(_RESET_POLICIES)}"
            )
        if max_poll_records < 1:
            raise InvalidOption(f"max_poll_records must be at least 1, not {max_poll_records}")
        if group_id is not None:
            check_id("group id", group_id)
        elif enable_auto_commit:
            raise InvalidOption("enable_auto_commit needs a group_id")
        self._store = store
        self.group_id = group_id
        self._max_poll_records = max_poll_records
        self._auto_commit_ms = auto_commit_interval_ms if enable_auto_commit else None
        self._auto_committed: dict[TopicPartition, int] = {}
        self._auto_committed_at_ms = store.environment.monotonic_ms()
        self._membership = Membership(store, group_id, session_timeout_ms) if group_id is not None else None
        self._topics: tuple[str, ...] | None = None
        self._on_revoked: Rebalanced | None = None
        self._on_assigned: Rebalanced | None = None
        self._shared_out: tuple[int, tuple[str | None, ...]] | None = None
        self._generation = -1
        self._assigned = AssignedPartitions(store, group_id, self._isolation, auto_offset_reset)
        self._looked_at_ms: int | None = None
        self._may_write = True
        self._closed = False

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def subscribe(
        self,
        topics: str | Iterable[str],
        *,
        on_revoked: Rebalanced | None = None,
        on_assigned: Rebalanced | None = None,
    ) -> None:
        """Read these topics, sharing their partitions with the group's other members; all of them without a group.

        Args:
            on_revoked, on_assigned: called by ``poll`` with the partitions, before and after they are shared out anew.

        Raises:
            IllegalState: partitions were assigned by hand.
            UnknownTopicOrPartition
        """
        self._check_open("subscribe()")
        if self._assigned and self._topics is None:
            raise IllegalState("subscribe() is not allowed after assign(): call unsubscribe() first")
        names = (topics,) if isinstance(topics, str) else tuple(sorted(set(topics)))
        if not names:
            self.unsubscribe()
            return
        for name in names:
            self._topic(name)
        self._topics = names
        self._on_revoked, self._on_assigned = on_revoked, on_assigned
        self._shared_out = None

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without joining the group. Offsets may still be committed.

        Raises:
            IllegalState: topics are subscribed to.
            UnknownTopicOrPartition
        """
        self._check_open("assign()")
        if self._topics is not None:
            raise IllegalState("assign() is not allowed after subscribe(): call unsubscribe() first")
        wanted = [TopicPartition(*place) for place in partitions]
        self._assign({place: self._topic_of(place) for place in wanted})

    def unsubscribe(self) -> None:
        """Read nothing any more, and leave the group."""
        self._check_open("unsubscribe()")
        if self._membership is not None:
            self._membership.leave()
        self._topics = None
        self._shared_out = None
        self._generation = -1
        self._assign({})

    def subscription(self) -> set[str]:
        """The topics that are subscribed to."""
        return set(self._topics or ())

    def assignment(self) -> set[TopicPartition]:
        """The partitions that this consumer reads; of a subscription, after its first poll."""
        return set(self._assigned)

    def poll(self, timeout: float = 1.0) -> list[ConsumerRecord]:
        """The next records, at most ``max_poll_records``; an empty list if none came within ``timeout`` seconds.

        Raises:
            IllegalState: nothing is subscribed to or assigned.
            OffsetOutOfRange, NoOffsetForPartition: with ``auto_offset_reset="none"``.
            UnknownTopicOrPartition: an assigned topic was deleted.
            CorruptRecord, RetriableError
        """
        self._check_open("poll()")
        if self._topics is None and not self._assigned:
            raise IllegalState("poll() needs topics or partitions: call subscribe() or assign() first")
        if timeout < 0:
            raise InvalidRequest(f"timeout must not be negative, but is {timeout}")
        environment = self._store.environment
        deadline = environment.monotonic_ms() + int(timeout * 1000)
        pause = _FIRST_PAUSE_MS
        while True:
            records = self._poll_once()
            remaining = deadline - environment.monotonic_ms()
            if records or remaining <= 0:
                return records
            if self._end_what_holds_back():
                continue
            environment.sleep_ms(min(pause, remaining))
            pause = min(pause * 2, _LONGEST_PAUSE_MS)

    def _poll_once(self) -> list[ConsumerRecord]:
        self._auto_commit(only_if_due=True)
        if self._assigned.rows_ahead() < self._max_poll_records or self._looks_again() or self._shared_out is None:
            self._look()
        return self._assigned.take(self._max_poll_records)

    def _looks_again(self) -> bool:
        now_ms = self._store.environment.monotonic_ms()
        return self._looked_at_ms is None or now_ms - self._looked_at_ms >= _LOOK_AT_LEAST_EVERY_MS

    def _look(self) -> None:
        """Fold what is new, by one small request if nothing is, and plan from there."""
        self._store.read(lambda state, slot: None)
        self._looked_at_ms = self._store.environment.monotonic_ms()
        self._share_out()
        self._assigned.plan()

    def _share_out(self) -> None:
        """Take the partitions that the newest generation gives this member."""
        if self._topics is None:
            self._shared_out = (-1, ())
            return
        topics = self._topics
        group = self._membership.follow(topics) if self._membership is not None else None

        def look(state: StoreState, slot: int) -> tuple[tuple[str | None, ...], dict[TopicPartition, Topic]]:
            ids = tuple(state.topic_ids.get(name) for name in topics)
            mine = [] if (generation, ids) == self._shared_out else self._mine(state, group, topics)
            return ids, {place: topic_named(state, place.topic) for place in mine}

        generation = group.generation if group is not None else -1
        ids, mine = self._store.read(look, refresh=False)
        if (generation, ids) == self._shared_out:
            return
        if self._assigned and self._on_revoked is not None:
            self._on_revoked(sorted(self._assigned))
        self._assign(mine)
        self._generation = generation
        self._shared_out = (generation, ids)
        if self._on_assigned is not None:
            self._on_assigned(sorted(mine))

    def _assign(self, topics: Mapping[TopicPartition, Topic]) -> None:
        self._assigned.replace(topics)
        self._auto_committed = {}
        self._looked_at_ms = None

    def _mine(self, state: StoreState, group: Group | None, topics: tuple[str, ...]) -> list[TopicPartition]:
        if group is None or self._membership is None:
            found = [state.topics[state.topic_ids[name]] for name in topics if name in state.topic_ids]
            return [TopicPartition(each.topic, number) for each in found for number in range(each.partitions)]
        return share_out(state, group).get(self._membership.member_id, [])

    def _end_what_holds_back(self) -> bool:
        """End the transactions past their time-out that hide rows from this consumer. True if one was ended."""
        if not self._assigned.held_back or not self._may_write or self._isolation is not IsolationLevel.READ_COMMITTED:
            return False
        try:
            return bool(end_timed_out(self._store))
        except StoreAccessDenied:
            self._may_write = False
        except RetriableError as error:
            _logger.info("%s: a transaction past its time-out was not ended: %s", self._store, error)
        return False

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that ``poll`` gives of this partition.

        Raises:
            IllegalState: the partition is not assigned.
            NoOffsetForPartition
        """
        fetch = self._fetch(partition, "position()")
        if fetch.position is None:
            self._store.read(lambda state, slot: None)
            self._assigned.resolve()
        assert fetch.position is not None
        return fetch.position

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from another offset.

        Raises:
            IllegalState: the partition is not assigned.
            InvalidRequest: the offset is negative.
        """
        self._fetch(partition, "seek()")
        if offset < 0:
            raise InvalidRequest(f"offset {offset} of {partition[0]}-{partition[1]} is negative")
        self._assigned.seek(partition, offset)

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Go on from the first offset there is, as of the next ``poll`` or ``position``; all partitions if None."""
        self._reset(partitions, "earliest", "seek_to_beginning()")

    def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Go on from the end of what is visible, as of the next ``poll`` or ``position``; all partitions if None."""
        self._reset(partitions, "latest", "seek_to_end()")

    def _reset(self, partitions: Iterable[TopicPartition] | None, policy: str, call: str) -> None:
        self._check_open(call)
        for place in list(self._assigned if partitions is None else partitions):
            self._fetch(place, call)
            self._assigned.seek(place, policy)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Give no records of these partitions until ``resume``.

        Raises:
            IllegalState: one is not assigned.
        """
        for fetch in [self._fetch(place, "pause()") for place in partitions]:
            fetch.paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo ``pause``."""
        for fetch in [self._fetch(place, "resume()") for place in partitions]:
            fetch.paused = False

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return self._assigned.paused()

    def commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None) -> None:
        """Store offsets for the group, durably when this returns: by default the positions of all assigned partitions.

        Raises:
            IllegalState: the consumer has no group.
            IllegalGeneration, UnknownMember: the group has gone on without this consumer; poll, and read again.
            UnknownTopicOrPartition, RetriableError
        """
        self._check_open("commit()")
        metadata = self.group_metadata()
        chosen: Mapping[TopicPartition, int | OffsetAndMetadata] = offsets or {}
        if offsets is None:
            chosen = self._assigned.positions()
        if not chosen:
            return
        now_ms = self._store.now_ms()

        def propose(draft: Draft) -> None:
            for place in chosen:
                fetch = self._assigned.get(place)
                if fetch is not None and fetch.partition_id not in draft.partitions:
                    raise UnknownTopicOrPartition(
                        f"topic {place[0]} was deleted, or created again, since its records were read"
                    )
            draft.append(OffsetsCommitted(committed=group_offsets(draft, chosen, metadata), time_ms=now_ms))

        self._store.append(propose)
        if self._membership is not None:
            self._membership.keep_alive()

    def _auto_commit(self, *, only_if_due: bool) -> None:
        if self._auto_commit_ms is None:
            return
        now_ms = self._store.environment.monotonic_ms()
        if only_if_due and now_ms - self._auto_committed_at_ms < self._auto_commit_ms:
            return
        positions = self._assigned.positions()
        if positions == self._auto_committed:
            return
        try:
            self.commit(positions)
        except (AbortableError, RetriableError) as error:
            _logger.info("%s: offsets of group %r were not committed: %s", self._store, self.group_id, error)
            return
        self._auto_committed = positions
        self._auto_committed_at_ms = now_ms

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed, as of now; None where it has not.

        Raises:
            IllegalState: the consumer has no group.
            UnknownTopicOrPartition
        """
        group_id = self.group_metadata().group_id
        places = [TopicPartition(*place) for place in partitions]

        def look(state: StoreState, slot: int) -> dict[TopicPartition, OffsetAndMetadata | None]:
            found: dict[TopicPartition, OffsetAndMetadata | None] = {}
            for place in places:
                known = committed_offset(state, group_id, _find(state, place)[1].id)
                found[place] = OffsetAndMetadata(known.offset, known.metadata, known.leader_epoch) if known else None
            return found

        return self._store.read(look)

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that each partition holds. Raises: UnknownTopicOrPartition"""
        return {place: found.log_start_offset for place, (_, found) in self._partitions_of(partitions).items()}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end (exclusive) of what this consumer is shown: last stable offset, or high watermark if uncommitted.

        Raises:
            UnknownTopicOrPartition
        """
        return {
            place: visible_end(found, self._isolation) for place, (_, found) in self._partitions_of(partitions).items()
        }

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first visible record of each partition at or after a time (ms since the epoch); None if there is none.

        Raises:
            UnknownTopicOrPartition
        """
        store = self._store
        return {
            place: offset_for_time(
                store.object_store, store.indexes, topic, partition, self._isolation, timestamps[place]
            )
            for place, (topic, partition) in self._partitions_of(timestamps).items()
        }

    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets lie between each assigned partition's position and the end of what is visible now."""
        self._check_open("lag()")
        self._store.read(lambda state, slot: None)
        partitions = self._assigned.resolve()
        return {
            place: max(0, visible_end(partitions[place], self._isolation) - position)
            for place, position in self._assigned.positions().items()
        }

    def group_metadata(self) -> GroupMetadata:
        """Who commits: for ``send_offsets_to_transaction``, so that a consumer its group has left behind cannot commit.

        Raises:
            IllegalState: the consumer has no group.
        """
        if self.group_id is None or self._membership is None:
            raise IllegalState("this consumer has no group: give it a group_id")
        return GroupMetadata(self.group_id, self._generation, self._membership.member_id)

    def close(self) -> None:
        """Leave the group, and read no more. May be called again."""
        if self._closed:
            return
        try:
            self._auto_commit(only_if_due=False)
        finally:
            if self._membership is not None:
                self._membership.leave()
            self._assign({})
            self._topics = None
            self._closed = True

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise IllegalState(f"{call} is not allowed: this consumer is closed")

    def _fetch(self, place: TopicPartition, call: str) -> PartitionFetch:
        self._check_open(call)
        fetch = self._assigned.get(place)
        if fetch is None:
            raise IllegalState(f"{call} is not allowed: {place[0]}-{place[1]} is not assigned to this consumer")
        return fetch

    def _topic(self, name: str) -> Topic:
        def known(state: StoreState, slot: int) -> bool:
            return name in state.topic_ids

        stale = not self._store.read(known, refresh=False)
        return self._store.read(lambda state, slot: topic_named(state, name), refresh=stale)

    def _topic_of(self, place: TopicPartition) -> Topic:
        topic = self._topic(place.topic)
        self._store.read(
            lambda state, slot: partition_of(state, PartitionId(topic.topic_id, place.partition)), refresh=False
        )
        return topic

    def _partitions_of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[Topic, Partition]]:
        places = [TopicPartition(*place) for place in partitions]
        return self._store.read(lambda state, slot: {place: _find(state, place) for place in places})


def _find(state: StoreState, place: TopicPartition) -> tuple[Topic, Partition]:
    topic = topic_named(state, place.topic)
    return topic, partition_of(state, PartitionId(topic.topic_id, place.partition))
