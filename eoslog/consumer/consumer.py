"""The consumer (Kafka's ``KafkaConsumer``): reads topics record by record, alone or shared out among a group."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from queue import SimpleQueue
from types import TracebackType
from typing import Concatenate, Literal, NoReturn, ParamSpec, TypeVar

from eoslog.consumer.assigned_partitions import AssignedPartitions
from eoslog.consumer.consumer_records import ConsumerRecord
from eoslog.consumer.fetcher import PartitionFetch
from eoslog.consumer.offset_commits import OffsetCommits
from eoslog.consumer.offset_lookup import OffsetAndTimestamp, offset_for_time
from eoslog.consumer.subscription import RebalanceListener, RebalanceListeners, Subscription
from eoslog.errors import (
    FencedInstanceId,
    IllegalState,
    InvalidOption,
    InvalidRequest,
    UnstableOffsetCommit,
    Wakeup,
    quoted,
    shortened,
)
from eoslog.read.isolation import IsolationLevel, visible_end
from eoslog.session.group_metadata import GroupMetadata
from eoslog.session.positions import OffsetAndMetadata
from eoslog.session.session import Session
from eoslog.session.topic_lookup import find_topic, partition_named
from eoslog.state.names import TopicPartition, check_id, topic_partition
from eoslog.state.partition_state import Partition
from eoslog.state.store_state import Topic
from eoslog.storage.exclusive import Exclusive
from eoslog.storage.process import HomeProcess, cannot_be_pickled

P = ParamSpec("P")
T = TypeVar("T")
_FIRST_PAUSE_MS = 10
_LONGEST_PAUSE_MS = 500
_LOOK_AT_LEAST_EVERY_MS = 1_000
_RESET_POLICIES = ("earliest", "latest", "none")


def _call(method: Callable[Concatenate[Consumer, P], T]) -> Callable[Concatenate[Consumer, P], T]:
    """Wrap a public method: check the process, then admit one thread."""
    name = f"{method.__name__.removeprefix('_')}()"

    @wraps(method)
    def entered(self: Consumer, /, *args: P.args, **kwargs: P.kwargs) -> T:
        # Before the lock: a thread of the parent may have held it during the fork, and nothing releases it here.
        self._home.check(name)
        with self._exclusive.call(name):
            found = method(self, *args, **kwargs)
        # A rebalance listener may have forked: the records are the parent's.
        self._home.check(name)
        return found

    return entered


class Consumer:
    """Reads records in the order of their offsets. Use it from one thread at a time, as in Kafka.

    During a call of one thread, a call of another raises ``ConcurrentAccess`` and changes nothing. Only ``wakeup`` is
    always allowed: to stop a consumer from another thread, call ``wakeup`` there and ``close`` in the polling thread.
    A forked child must open its own consumer: there each call except ``close`` raises ``OpenedBeforeFork``.

    A consumer with a group commits offsets when it is told to: a commit is a slot of the log, and who consumes in a
    transaction commits them there (``Producer.send_offsets_to_transaction``). So ``enable_auto_commit`` is off, unlike
    Kafka's.

    Its session lasts from poll to poll: a member that does not poll for ``session_timeout_ms`` may be evicted by the
    others, and joins anew at its next poll. When partitions are shared out anew it keeps its positions of those that
    stay its own, and begins others at the committed offsets; after an eviction it does so with all.
    """

    def __init__(
        self,
        store: Session,
        group_id: str | None = None,
        *,
        isolation_level: str | IsolationLevel = IsolationLevel.READ_COMMITTED,
        auto_offset_reset: Literal["earliest", "latest", "none"] = "latest",
        max_poll_records: int = 500,
        session_timeout_ms: int = 45_000,
        group_instance_id: str | None = None,
        enable_auto_commit: bool = False,
        auto_commit_interval_ms: int = 5_000,
        with_transaction: bool = False,
    ) -> None:
        """
        Args:
            auto_offset_reset: where to begin without a committed offset, or when the position is gone.
            max_poll_records: how many records a poll returns at most.
            session_timeout_ms: how long a member may be silent, 6,000 to 1,800,000 ms.
            group_instance_id: makes this a static member (KIP-345): when it is closed or dies its partitions wait for
                the next consumer of the same id, for as long as a member may be silent.
            enable_auto_commit: commit positions in ``poll`` and ``close``.
            auto_commit_interval_ms: how long ``poll`` waits at least between two such commits.
            with_transaction: records tell who wrote them (``ConsumerRecord.transaction``).

        Raises:
            InvalidOption, InvalidRequest
        """
        self._isolation = IsolationLevel.of(isolation_level)
        if self._isolation is IsolationLevel.SNAPSHOT:
            raise InvalidOption("a consumer follows offsets and cannot read a snapshot; use store.scan(), or Spark")
        if auto_offset_reset not in _RESET_POLICIES:
            raise InvalidOption(
                f"auto_offset_reset {quoted(auto_offset_reset)} is unknown; it is one of: {', '.join(_RESET_POLICIES)}"
            )
        if max_poll_records < 1:
            raise InvalidOption(f"max_poll_records must be at least 1, not {max_poll_records}")
        if group_id is not None:
            check_id("group id", group_id)
        elif enable_auto_commit or group_instance_id is not None:
            option = "enable_auto_commit" if enable_auto_commit else "group_instance_id"
            raise InvalidOption(f"{option} needs a group_id")
        self._store = store
        self.group_id = group_id
        self._max_poll_records = max_poll_records
        self._subscription = Subscription(store, group_id, session_timeout_ms, group_instance_id)
        self._assigned = AssignedPartitions(
            store, group_id, self._isolation, auto_offset_reset, with_transaction=with_transaction
        )
        self._commits = OffsetCommits(
            store, self._subscription, self._assigned, auto_commit_interval_ms if enable_auto_commit else None
        )
        self._home = HomeProcess("consumer")
        self._exclusive = Exclusive(
            "consumer",
            "Use a consumer for each thread; wakeup() ends a poll() from any thread.",
            reentrant=True,
        )
        self._wakeups: SimpleQueue[None] = SimpleQueue()
        self._looked_at_ms: int | None = None
        self._closed = False

    def __reduce__(self) -> NoReturn:
        raise cannot_be_pickled(self, "the store's URL, and open a consumer there")

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @_call
    def subscribe(
        self,
        topics: str | Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        on_revoked: RebalanceListener | None = None,
        on_assigned: RebalanceListener | None = None,
        on_lost: RebalanceListener | None = None,
    ) -> None:
        """Read these topics, sharing their partitions with the group's other members; all of them without a group.

        Args:
            pattern: in place of ``topics``: a regular expression that a whole name matches. Topics that come later are
                read as soon as they are seen.
            on_revoked: called by ``poll`` with partitions that are about to go to others, and by ``unsubscribe`` and
                ``close`` with all; what was read of them may be committed there.
            on_assigned: called by ``poll`` with partitions that have come.
            on_lost: called by ``poll`` with partitions that have gone already, since the group went on without this
                consumer; ``on_revoked`` is called if there is none.

        Raises:
            IllegalState: partitions were assigned by hand.
            InvalidRequest: the pattern is no regular expression, or there are topics beside it.
            UnknownTopicOrPartition
        """
        self._check_open("subscribe()")
        if self._assigned and not self._subscription.is_active:
            raise IllegalState("subscribe() is not allowed after assign(): call unsubscribe() first")
        names = (topics,) if isinstance(topics, str) else tuple(sorted(set(topics)))
        listeners = RebalanceListeners(on_revoked, on_assigned, on_lost)
        if pattern is not None:
            if names:
                raise InvalidRequest("subscribe() takes topics or a pattern, not both")
            self._subscription.begin(_compiled(pattern), listeners)
            return
        if not names:
            self.unsubscribe()
            return
        for name in names:
            find_topic(self._store, name)
        self._subscription.begin(names, listeners)

    @_call
    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without joining the group. Offsets may still be committed.

        Raises:
            IllegalState: topics are subscribed to.
            UnknownTopicOrPartition
        """
        self._check_open("assign()")
        if self._subscription.is_active:
            raise IllegalState("assign() is not allowed after subscribe(): call unsubscribe() first")
        wanted = [topic_partition(place) for place in partitions]
        for place in wanted:
            find_topic(self._store, place.topic)
        found = self._partitions_of(wanted, refresh=False)
        self._assign({place: topic for place, (topic, _) in found.items()})

    @_call
    def unsubscribe(self) -> None:
        """Read nothing any more, and leave the group."""
        self._check_open("unsubscribe()")
        if self._subscription.is_active:
            self._subscription.listeners.tell_revoked(self._assigned)
        self._subscription.end()
        self._assign({})

    @_call
    def subscription(self) -> set[str]:
        """The topics that are subscribed to."""
        return set(self._subscription.topics)

    @_call
    def assignment(self) -> set[TopicPartition]:
        """The partitions that this consumer reads; of a subscription, after its first poll."""
        return set(self._assigned)

    @_call
    def poll(self, timeout: float = 1.0) -> list[ConsumerRecord]:
        """The next records, at most ``max_poll_records``; an empty list if none came within ``timeout`` seconds.

        Raises:
            IllegalState: nothing is subscribed to or assigned.
            OffsetOutOfRange, NoOffsetForPartition: with ``auto_offset_reset="none"``.
            UnknownTopicOrPartition: an assigned topic was deleted.
            FencedInstanceId: another consumer has joined under this ``group_instance_id``; close this one.
            Wakeup: ``wakeup`` was called. No record is lost: the next poll goes on.
            ConcurrentAccess: another thread uses this consumer. Every other call except ``wakeup`` raises it too.
            CorruptRecord, RetriableError
        """
        self._check_open("poll()")
        if not self._subscription.is_active and not self._assigned:
            raise IllegalState("poll() needs topics or partitions: call subscribe() or assign() first")
        if timeout < 0:
            raise InvalidRequest(f"timeout must not be negative, but is {timeout}")
        environment = self._store.environment
        deadline = environment.monotonic_ms() + int(timeout * 1000)
        pause = _FIRST_PAUSE_MS
        while True:
            # Before records are taken: a Wakeup raised after that would lose them.
            self._check_not_woken()
            records = self._poll_once()
            if records:
                return records
            if self._assigned.held_back and self._store.overdue_transactions.abort_for_reader():
                continue
            remaining = deadline - environment.monotonic_ms()
            if remaining <= 0:
                return []
            environment.wait_ms(min(pause, remaining), self._wakeups)
            pause = min(pause * 2, _LONGEST_PAUSE_MS)

    def wakeup(self) -> None:
        """Make the current ``poll`` raise ``Wakeup``, or the next one if none is running. Several calls end one poll.

        Any thread may call it, and so may a signal handler. A poll that waits ends at once. A poll that is reading
        returns its records if it finds any; then the next poll raises.

        Raises:
            OpenedBeforeFork
        """
        self._home.check("wakeup()")
        self._wakeups.put(None)

    def _check_not_woken(self) -> None:
        if self._wakeups.empty():
            return
        while not self._wakeups.empty():
            self._wakeups.get_nowait()
        raise Wakeup("poll() was ended by wakeup(). Nothing is lost: close the consumer, or poll again.")

    def _poll_once(self) -> list[ConsumerRecord]:
        self._commits.commit_automatically(only_if_due=True)
        few_ahead = self._assigned.rows_ahead() < self._max_poll_records
        if few_ahead or self._subscription.is_new or self._is_look_due():
            self._look()
        return self._assigned.take(self._max_poll_records)

    def _is_look_due(self) -> bool:
        now_ms = self._store.environment.monotonic_ms()
        return self._looked_at_ms is None or now_ms - self._looked_at_ms >= _LOOK_AT_LEAST_EVERY_MS

    def _look(self) -> None:
        """Fold what is new, by one small request if nothing is, and plan from there."""
        self._store.read(lambda state, slot: None)
        self._looked_at_ms = self._store.environment.monotonic_ms()
        self._share_out()
        self._assigned.plan()

    def _share_out(self) -> None:
        """Take the partitions that the newest generation gives this member, and let go of the others."""
        subscription = self._subscription
        try:
            shared_out = subscription.share_out()
        except FencedInstanceId:
            self._lose(self._assigned)
            raise
        if shared_out is None:
            return
        if shared_out.is_lost:
            self._lose(self._assigned)
        subscription.enter(shared_out)
        gone = self._assigned.without(shared_out.topics)
        if gone:
            self._commits.commit_automatically(only_if_due=False)
            subscription.listeners.tell_revoked(gone)
        come = self._assign(shared_out.topics)
        subscription.follow(shared_out)
        subscription.listeners.tell_assigned(come)

    def _lose(self, partitions: Iterable[TopicPartition]) -> None:
        """Others may have read these since, so what is known of them counts no more."""
        lost = list(partitions)
        self._assign({})
        self._subscription.listeners.tell_lost(lost)

    def _assign(self, topics: Mapping[TopicPartition, Topic]) -> set[TopicPartition]:
        come = self._assigned.replace(topics)
        self._commits.forget_positions()
        self._looked_at_ms = None
        return come

    @_call
    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that ``poll`` gives of this partition.

        Raises:
            IllegalState: the partition is not assigned.
            NoOffsetForPartition
            UnstableOffsetCommit: a prepared transaction may still set it; ``poll`` gives nothing of the partition until
                that has ended.
        """
        fetch = self._fetch(partition, "position()")
        if fetch.position is None:
            self._store.read(lambda state, slot: None)
            self._assigned.resolve()
        if fetch.position is None:
            raise UnstableOffsetCommit(
                f"a prepared transaction may still set the group's offset of {_place(partition)}"
            )
        return fetch.position

    @_call
    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from another offset.

        Raises:
            IllegalState: the partition is not assigned.
            InvalidRequest: the offset is negative, or no number.
        """
        self._fetch(partition, "seek()")
        if not isinstance(offset, int) or isinstance(offset, bool):
            raise InvalidRequest(f"an offset of {_place(partition)} is a number, not {quoted(offset)}")
        if offset < 0:
            raise InvalidRequest(f"offset {offset} of {_place(partition)} is negative")
        self._assigned.seek(partition, offset)

    @_call
    def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Go on from the first offset there is, as of the next ``poll`` or ``position``; all partitions if None."""
        self._reset(partitions, "earliest", "seek_to_beginning()")

    @_call
    def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Go on from the end of what is visible, as of the next ``poll`` or ``position``; all partitions if None."""
        self._reset(partitions, "latest", "seek_to_end()")

    def _reset(self, partitions: Iterable[TopicPartition] | None, policy: str, call: str) -> None:
        self._check_open(call)
        for place in list(self._assigned if partitions is None else partitions):
            self._fetch(place, call)
            self._assigned.seek(place, policy)

    @_call
    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Give no records of these partitions until ``resume``.

        Raises:
            IllegalState: one is not assigned.
        """
        for fetch in [self._fetch(place, "pause()") for place in partitions]:
            fetch.paused = True

    @_call
    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo ``pause``."""
        for fetch in [self._fetch(place, "resume()") for place in partitions]:
            fetch.paused = False

    @_call
    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return self._assigned.paused()

    @_call
    def commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None) -> None:
        """Store offsets for the group, durably when this returns: by default the positions of all assigned partitions.

        Raises:
            IllegalState: the consumer has no group.
            IllegalGeneration, UnknownMember: the group has gone on without this consumer; poll, and read again.
                UnknownMember also if the consumer is no member (``assign``) and the group has members.
            FencedInstanceId: another consumer has joined under this ``group_instance_id``; close this one.
            UnknownTopicOrPartition, RetriableError
        """
        self._check_open("commit()")
        self._commits.commit(offsets)

    @_call
    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed, as of now; None where it has not.

        Raises:
            IllegalState: the consumer has no group.
            UnstableOffsetCommit: a prepared transaction may still set one of them, and who read on from the one before
                would read again what that transaction has read. Not under read_uncommitted (Kafka's
                ``requireStable``).
            UnknownTopicOrPartition
        """
        return self._commits.committed(
            partitions, require_stable=self._isolation is not IsolationLevel.READ_UNCOMMITTED
        )

    @_call
    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that each partition holds. Raises: UnknownTopicOrPartition"""
        return {place: found.log_start_offset for place, (_, found) in self._partitions_of(partitions).items()}

    @_call
    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end (exclusive) of what this consumer is shown: last stable offset, or high watermark if uncommitted.

        Raises:
            UnknownTopicOrPartition
        """
        return {
            place: visible_end(found, self._isolation) for place, (_, found) in self._partitions_of(partitions).items()
        }

    @_call
    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first visible record of each partition at or after a time (ms since the epoch); None if there is none.

        Raises:
            UnknownTopicOrPartition
            InvalidRequest: a time is no number.
        """
        for place, timestamp in timestamps.items():
            if not isinstance(timestamp, int) or isinstance(timestamp, bool):
                raise InvalidRequest(f"a time for {_place(place)} is a number of ms, not {quoted(timestamp)}")
        store = self._store
        return {
            place: offset_for_time(
                store.object_store, store.indexes, topic, partition, self._isolation, timestamps[place]
            )
            for place, (topic, partition) in self._partitions_of(timestamps).items()
        }

    @_call
    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets lie between each assigned partition's position and the end of what is visible now."""
        self._check_open("lag()")
        self._store.read(lambda state, slot: None)
        partitions = self._assigned.resolve()
        return {
            place: max(0, visible_end(partitions[place], self._isolation) - position)
            for place, position in self._assigned.positions().items()
        }

    @_call
    def group_metadata(self) -> GroupMetadata:
        """Who commits: for ``send_offsets_to_transaction``, so that a consumer its group has left behind cannot commit.

        Nor can one whose topic was deleted and created again: ask before the poll that follows the records.

        Raises:
            IllegalState: the consumer has no group.
        """
        return self._subscription.group_metadata()._replace(topic_ids=self._assigned.topic_ids())

    def close(self) -> None:
        """Leave the group, and read no more. May be called again. In a forked child it does nothing."""
        # Apart from the call below, which a forked child is refused: a with statement calls this there, too.
        if self._home.is_this:
            self._close()

    @_call
    def _close(self) -> None:
        if self._closed:
            return
        try:
            self._commits.commit_automatically(only_if_due=False)
            if self._subscription.is_active:
                self._subscription.listeners.tell_revoked(self._assigned)
        finally:
            self._subscription.leave()
            self._assign({})
            self._closed = True

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise IllegalState(f"{call} is not allowed: this consumer is closed")

    def _fetch(self, place: TopicPartition, call: str) -> PartitionFetch:
        self._check_open(call)
        fetch = self._assigned.get(place)
        if fetch is None:
            raise IllegalState(f"{call} is not allowed: {_place(place)} is not assigned to this consumer")
        return fetch

    def _partitions_of(
        self, partitions: Iterable[TopicPartition], *, refresh: bool = True
    ) -> dict[TopicPartition, tuple[Topic, Partition]]:
        places = [topic_partition(place) for place in partitions]
        return self._store.read(
            lambda state, slot: {place: partition_named(state, place) for place in places}, refresh=refresh
        )


def _place(partition: TopicPartition) -> str:
    return f"{shortened(partition[0])}-{partition[1]}"


def _compiled(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, TypeError) as error:
        raise InvalidRequest(f"pattern {quoted(pattern)} is no regular expression: {error}") from None
