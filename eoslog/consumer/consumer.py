"""The consumer (Kafka's ``KafkaConsumer``): it reads topics record by record, alone or in a consumer group."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from math import inf
from numbers import Real
from queue import SimpleQueue
from types import TracebackType
from typing import Concatenate, NoReturn, ParamSpec, TypeVar, overload

from eoslog.arguments import DEFAULT_SESSION_TIMEOUT_MS, Count, Natural, SessionTimeout, is_whole_number
from eoslog.consumer.assigned_partitions import AssignedPartitions, PartitionFetch
from eoslog.consumer.consumer_records import ConsumerRecord, Deserializers
from eoslog.consumer.offset_commits import OffsetCommits
from eoslog.consumer.reset_policy import parse_reset_policy
from eoslog.consumer.subscription import Assignment, RebalanceListener, RebalanceListeners, Subscription
from eoslog.errors import (
    FencedInstanceId,
    IllegalState,
    InconsistentGroupProtocol,
    InvalidOption,
    InvalidRequest,
    UnstableOffsetCommit,
    Wakeup,
)
from eoslog.read.isolation import IsolationLevel, visible_end
from eoslog.read.offset_lookup import OffsetAndTimestamp, offset_for_time
from eoslog.session.client_options import CONSUMER_CALLS, named_options, named_otherwise
from eoslog.session.positions import GroupMetadata, OffsetAndMetadata
from eoslog.session.serializers import Deserializer, check_callable
from eoslog.session.session import Session, find_topic, partition_named
from eoslog.state.names import TopicPartition, check_id, names_given, topic_partition, topic_partitions
from eoslog.state.partition_state import Partition
from eoslog.state.store_state import Topic
from eoslog.storage import tracing
from eoslog.storage.calls import Call, Exclusive
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectStore
from eoslog.storage.process import HomeProcess, cannot_be_pickled
from eoslog.wording import quoted, shortened

P = ParamSpec("P")
T = TypeVar("T")
_FIRST_PAUSE_MS = 10
_LONGEST_PAUSE_MS = 500
_REFRESH_AT_LEAST_EVERY_MS = 1_000


class _Pauses:
    """The pauses between two reads of the newest state. They grow while polls find nothing.

    In a remote object store a pause goes on in the next poll. Otherwise a consumer that polls ten times a second would
    send at least ten requests a second for nothing.
    """

    def __init__(self, environment: Environment, object_store: ObjectStore) -> None:
        self._environment = environment
        self._most_kept_ms = object_store.least_poll_pause_ms if object_store.is_remote else 0
        """The longest pause that goes on in the next poll (ms)."""
        self._pause_ms = 0
        self._began_ms: int | None = None

    def begin_call(self) -> None:
        """Shorten the pause of the last poll, if it may not go on in this one."""
        self._pause_ms = min(self._pause_ms, self._most_kept_ms)

    def begin(self) -> None:
        """Begin a pause: the newest state has been read. It is twice as long as the pause before it."""
        self._pause_ms = min(max(_FIRST_PAUSE_MS, 2 * self._pause_ms), max(_LONGEST_PAUSE_MS, self._most_kept_ms))
        self._began_ms = self._environment.monotonic_ms()

    def found(self) -> None:
        """End the pause, because a poll found records. The next pause is short."""
        self._pause_ms = 0

    def end(self) -> None:
        """End the pause, and have the next poll read the newest state even if it has planned rows."""
        self._pause_ms = 0
        self._began_ms = None

    def left_ms(self) -> int:
        """Return the rest of the pause (ms); 0 if a read is due."""
        if self._began_ms is None:
            return 0
        return max(0, self._began_ms + self._pause_ms - self._environment.monotonic_ms())

    def is_read_due(self) -> bool:
        """Return True if the newest state must be read now, even if the consumer has planned rows."""
        began_ms = self._began_ms
        return began_ms is None or self._environment.monotonic_ms() - began_ms >= _REFRESH_AT_LEAST_EVERY_MS


def _call(method: Callable[Concatenate[Consumer, P], T]) -> Callable[Concatenate[Consumer, P], T]:
    """Wrap a public method: check the process, then admit one call."""
    name = f"{method.__name__.removeprefix('_')}()"

    @wraps(method)
    def entered(self: Consumer, /, *args: P.args, **kwargs: P.kwargs) -> T:
        # Check before the call is entered: a thread of the parent may have been in one during the fork.
        self._home.check(name)
        exclusive = self._exclusive
        call = Call(name)
        try:
            if not exclusive.enter(call):
                raise exclusive.refusal(name)
            if call.outer is None:
                # The records of an interrupted call were returned to nobody.
                self._assigned.settle(has_returned=self._newest.is_told)
                self._newest = call
            found = method(self, *args, **kwargs)
            # A rebalance listener may have forked. The records belong to the parent, so the child must not return them.
            self._home.check(name)
        finally:
            # The statements of exclusive.leave(call).
            call.has_left = True
            if (call.step is None or call.step.has_ended or not call.step.has_begun) and exclusive.holder is call:
                exclusive.holder = call.outer
            if exclusive.waiting and exclusive.holder is None:
                exclusive.wake()
        # No call between this line and the caller: an interrupt comes before it, or the caller has the records.
        call.is_told = True
        return found

    return entered


@named_otherwise(CONSUMER_CALLS)
class Consumer:
    """Reads records in the order of their offsets. Use it from one thread at a time, as in Kafka.

    While one thread makes a call, a call of another thread raises ``ConcurrentAccess`` and changes nothing. Only
    ``wakeup`` is always allowed: to stop a consumer from another thread, call ``wakeup`` there and ``close`` in the
    polling thread. A forked child must open its own consumer: in the child, each call except ``close`` raises
    ``OpenedBeforeFork``.

    A consumer with a group commits offsets only when the application calls ``commit``. Unlike in Kafka,
    ``enable_auto_commit`` is off by default: each commit takes a slot of the log. An application that consumes in a
    transaction commits the offsets with the transaction (``Producer.send_offsets_to_transaction``).

    The session of a group member lasts from poll to poll. If a member does not poll for ``session_timeout_ms``, other
    members may evict it, and it joins again at its next poll. After a rebalance a consumer keeps its positions in the
    partitions that it keeps, and starts in new ones at the committed offsets. After an eviction it starts in all
    partitions at the committed offsets.
    """

    @named_options("a consumer")
    def __init__(
        self,
        store: Session,
        group_id: str | None = None,
        *,
        isolation_level: str | IsolationLevel = IsolationLevel.READ_COMMITTED,
        auto_offset_reset: str = "latest",
        new_partitions_from_beginning: bool = True,
        max_poll_records: Count = 500,
        session_timeout_ms: SessionTimeout = DEFAULT_SESSION_TIMEOUT_MS,
        group_instance_id: str | None = None,
        client_id: str = "",
        enable_auto_commit: bool = False,
        auto_commit_interval_ms: Natural = 5_000,
        consumer_timeout_ms: Natural | None = None,
        with_transaction: bool = False,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
    ) -> None:
        """See ``Store.consumer`` for the options.

        Raises:
            InvalidOption, InvalidRequest
        """
        if not isinstance(store, Session):
            # The configuration of a Kafka client may hold a password, so the message does not repeat it.
            raise InvalidOption(
                f"a consumer needs a store, not {type(store).__name__}. Call eoslog.connect(url).consumer(config=…)"
            )
        self._isolation = IsolationLevel.of(isolation_level)
        if self._isolation is IsolationLevel.SNAPSHOT:
            raise InvalidOption("a consumer cannot read with isolation level 'snapshot'. Use store.scan(), or Spark")
        reset_policy = parse_reset_policy(auto_offset_reset)
        if group_id is not None:
            check_id("group id", group_id)
        elif enable_auto_commit or group_instance_id is not None:
            option = "enable_auto_commit" if enable_auto_commit else "group_instance_id"
            raise InvalidOption(f"{option} needs a group_id")
        if not isinstance(client_id, str) or client_id:
            check_id("client id", client_id)
        check_callable("key_deserializer", key_deserializer)
        check_callable("value_deserializer", value_deserializer)
        deserializes = key_deserializer is not None or value_deserializer is not None
        self._store = store
        self.group_id = group_id
        self._max_poll_records = max_poll_records
        self._consumer_timeout_ms = consumer_timeout_ms
        self._subscription = Subscription(
            store, group_id, session_timeout_ms, group_instance_id=group_instance_id, client_id=client_id
        )
        self._assigned = AssignedPartitions(
            store,
            group_id,
            self._isolation,
            reset_policy=reset_policy,
            subscription=self._subscription,
            new_partitions_from_beginning=new_partitions_from_beginning,
            with_transaction=with_transaction,
            deserializers=Deserializers(key_deserializer, value_deserializer) if deserializes else None,
        )
        self._commits = OffsetCommits(
            store, self._subscription, self._assigned, auto_commit_interval_ms if enable_auto_commit else None
        )
        self._home = HomeProcess("consumer")
        self._exclusive = Exclusive(
            "consumer",
            "Use a consumer for each thread; wakeup() ends a poll() from any thread.",
            store.environment,
        )
        self._newest = Call("")
        """The newest call that was not made in a callback."""
        self._wakeups: SimpleQueue[None] = SimpleQueue()
        self._pauses = _Pauses(store.environment, store.object_store)
        self._closed = False

    def __repr__(self) -> str:
        group = "" if self.group_id is None else f", {quoted(self.group_id)}"
        return f"Consumer({self._store.url!r}{group}{', closed' * self._closed})"

    def __reduce__(self) -> NoReturn:
        raise cannot_be_pickled(self, "the store's URL, and open a consumer there")

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the consumer. If an exception leaves the block, positions are not committed automatically.

        The block may have failed at a record that a poll returned, and the position is after that record.
        """
        if self._home.is_this:
            self._close(commits=error is None)

    @named_options("subscribe()")
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
        """Read these topics. The members of the group share the partitions; without a group, read all of them.

        Args:
            pattern: a regular expression that must match the whole name, instead of ``topics``. Topics that are created
                later are read as soon as the consumer sees them.
            on_revoked: ``poll`` calls it with partitions that the consumer is about to give up; ``unsubscribe`` and
                ``close`` call it with all partitions. Offsets of these partitions can still be committed there.
            on_assigned: ``poll`` calls it with partitions that the consumer has got.
            on_lost: ``poll`` calls it with partitions that the consumer has already lost, because the group rebalanced
                without it. If it is None, ``on_revoked`` is called instead.

        These functions may commit, seek, pause and resume. They may not poll, subscribe, assign or close.

        Raises:
            IllegalState: partitions were assigned with ``assign``, or one of these functions makes the call.
            InvalidRequest: the pattern is not a regular expression, or is given as a topic or with topics.
            UnknownTopicOrPartition
        """
        self._check_open("subscribe()")
        self._subscription.listeners.check_not_running("subscribe()")
        if self._assigned and not self._subscription.is_active:
            raise IllegalState("subscribe() is not allowed after assign(): call unsubscribe() first")
        names = names_given("topics", topics)
        listeners = RebalanceListeners(on_revoked, on_assigned, on_lost)
        if pattern is not None:
            if names:
                raise InvalidRequest("subscribe() takes topics or a pattern, not both")
            self._subscription.begin(_compiled(pattern), listeners)
            return
        if not names:
            self._unsubscribe()
            return
        for name in names:
            if isinstance(name, str) and name.startswith("^"):
                raise InvalidRequest(
                    f"{quoted(name)} is a pattern. Give it as subscribe(pattern=…): it must match a topic's whole name"
                )
            find_topic(self._store, name)
        self._subscription.begin(names, listeners)

    @_call
    def assign(self, partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Read exactly these partitions without joining the group. Offsets may still be committed.

        Raises:
            IllegalState: topics are subscribed to.
            UnknownTopicOrPartition
        """
        self._check_open("assign()")
        self._subscription.listeners.check_not_running("assign()")
        if self._subscription.is_active:
            raise IllegalState("assign() is not allowed after subscribe(): call unsubscribe() first")
        wanted = topic_partitions(partitions)
        for partition in wanted:
            find_topic(self._store, partition.topic)
        found = self._partitions_of(wanted, refresh=False)
        self._assign({partition: topic for partition, (topic, _) in found.items()})

    @_call
    def unsubscribe(self) -> None:
        """Stop reading, and leave the group."""
        self._check_open("unsubscribe()")
        self._subscription.listeners.check_not_running("unsubscribe()")
        self._unsubscribe()

    def _unsubscribe(self) -> None:
        if self._subscription.is_active:
            self._tell(self._subscription.listeners.tell_revoked, self._assigned)

        def unsubscribe() -> None:
            self._subscription.end()
            self._assign({})

        self._exclusive.run(unsubscribe)

    @_call
    def subscription(self) -> set[str]:
        """Return the subscribed topics."""
        return set(self._subscription.topics)

    @_call
    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that this consumer reads. After ``subscribe``, they are known after the first poll."""
        return set(self._assigned)

    @_call
    def poll(self, timeout: float = 1.0) -> list[ConsumerRecord]:
        """Return the next records, at most ``max_poll_records``; an empty list if none came within ``timeout`` (s).

        Raises:
            IllegalState: no topic is subscribed and no partition is assigned, or a rebalance listener calls it.
            OffsetOutOfRange, NoOffsetForPartition: with ``auto_offset_reset="none"``.
            UnknownTopicOrPartition: an assigned topic was deleted.
            FencedInstanceId: another consumer has joined with this ``group_instance_id``. Close this one.
            InconsistentGroupProtocol: clients of Kafka's protocol use the group. Choose another ``group_id``, or stop
                these clients.
            RecordDeserializationFailed: a deserializer raised an error at the first record. The position stays before
                the record; ``seek`` passes over it. Earlier records are returned first.
            Wakeup: ``wakeup`` was called. No record is lost: the next poll continues.
            ConcurrentAccess: another thread uses this consumer, or a signal handler makes the call within another call.
                Every other call except ``wakeup`` raises it too.
            CorruptRecord, RetriableError
        """
        self._check_open("poll()")
        self._subscription.listeners.check_not_running("poll()")
        self._check_has_partitions("poll()")
        timeout_ms = _timeout_ms(timeout)
        described = {
            "messaging.operation.name": "poll",
            "messaging.operation.type": "receive",
            "messaging.consumer.group.name": self.group_id,
            "eoslog.store": self._store.url,
        }
        with tracing.span("poll", tracing.MESSAGING | described, kind="CLIENT") as span:
            records = self._take(timeout_ms, self._poll_once)
            if span is not None:
                tracing.describe(span, tracing.rows_of({record.topic for record in records}, len(records)))
                headers = (header for record in records for header in record.headers or ())
                tracing.link_senders(span, (value for name, value in headers if name == "traceparent" and value))
            return records

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Iterate over the records, and wait for more: ``for record in consumer``.

        A record counts as read when the loop gets it. So ``commit`` in the loop includes the current record, and
        ``position`` is the offset after it. Neither includes records that are fetched but not yet returned.

        The loop ends when the consumer is closed, after ``wakeup``, and after ``consumer_timeout_ms`` without a record.
        After ``wakeup`` or the timeout, another loop or ``poll`` continues. The loop raises the errors of ``poll``.
        """
        return self

    def __next__(self) -> ConsumerRecord:
        """Return the next record, and wait for it if there is none.

        Raises:
            StopIteration: see ``__iter__``.
            The errors of ``poll``, except ``Wakeup``.
        """
        record = self._next()
        if record is None:
            raise StopIteration
        return record

    @_call
    def _next(self) -> ConsumerRecord | None:
        if self._closed:
            return None
        self._subscription.listeners.check_not_running("next()")
        self._check_has_partitions("next()")
        try:
            records = self._take(self._consumer_timeout_ms, self._next_once)
        except Wakeup:
            return None
        return records[0] if records else None

    def _check_has_partitions(self, call: str) -> None:
        if not self._subscription.is_active and not self._assigned:
            raise IllegalState(f"{call} needs topics or partitions: call subscribe() or assign() first")

    def _take(self, timeout_ms: int | None, take_once: Callable[[], list[ConsumerRecord]]) -> list[ConsumerRecord]:
        """Take records, and wait for them up to ``timeout_ms``; without a limit if None.

        Raises:
            Wakeup, and the errors of ``poll``
        """
        environment = self._store.environment
        began_ms = environment.monotonic_ms()
        self._pauses.begin_call()
        while True:
            # Check before records are taken: a Wakeup raised afterwards would lose them.
            self._check_not_woken()
            records = take_once()
            if records:
                self._pauses.found()
                return records
            # Nothing is visible. If an overdue transaction hides rows, abort it and read again at once.
            if self._assigned.held_back and self._store.overdue_transactions.abort_for_reader():
                continue
            wait_ms = self._pauses.left_ms()
            if timeout_ms is not None:
                left_ms = began_ms + timeout_ms - environment.monotonic_ms()
                if left_ms <= 0:
                    return []
                wait_ms = min(wait_ms, left_ms)
            if wait_ms > 0:
                environment.wait_ms(wait_ms, self._wakeups)

    def wakeup(self) -> None:
        """Make the running ``poll`` raise ``Wakeup``, or else the next one. Several calls end only one poll.

        Any thread may call it, and so may a signal handler. A poll that waits ends at once. A poll that is reading
        returns its records if it finds any; then the next poll raises. A ``for`` loop over the consumer ends instead.

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
        self._commit_automatically(only_if_due=True)
        self._refresh_if_needed(self._max_poll_records)
        return self._assigned.take(self._max_poll_records)

    def _next_once(self) -> list[ConsumerRecord]:
        self._commit_automatically(only_if_due=True)
        self._refresh_if_needed(1)
        return self._assigned.take_one()

    def _refresh_if_needed(self, wanted: int) -> None:
        few_ahead = self._assigned.rows_ahead() < wanted
        if few_ahead or self._subscription.is_new or self._pauses.is_read_due():
            self._refresh()

    def _commit_automatically(self, *, only_if_due: bool) -> None:
        if self._commits.is_automatic:
            self._exclusive.run(lambda: self._commits.commit_automatically(only_if_due=only_if_due))

    def _refresh(self) -> None:
        """Read the newest state and plan the next rows. If nothing is new, this costs one small request.

        Within a pause it costs none: the rows are planned from the state that this process has.
        """

        def refresh() -> Assignment | None:
            if self._pauses.left_ms() == 0:
                self._store.read(lambda state, slot: None)
                self._pauses.begin()
            assignment = self._subscription.next_assignment()
            if assignment is None:
                self._assigned.plan()
            return assignment

        try:
            assignment = self._exclusive.run(refresh)
        except (FencedInstanceId, InconsistentGroupProtocol):
            self._lose(self._assigned)
            raise
        if assignment is not None:
            self._follow(assignment)
            self._exclusive.run(self._assigned.plan)

    def _follow(self, assignment: Assignment) -> None:
        """Take the partitions that a new generation assigns to this member, and give up the others.

        If ``on_revoked`` fails or is interrupted, the next poll begins again. ``on_assigned`` comes last, and is called
        only once.
        """
        subscription = self._subscription
        if assignment.is_lost:
            self._lose(self._assigned)
        subscription.enter(assignment)
        revoked = self._assigned.without(assignment.topics)
        if revoked:
            self._commit_automatically(only_if_due=False)
            self._tell(subscription.listeners.tell_revoked, revoked)

        def follow() -> set[TopicPartition]:
            added = self._assign(assignment.topics)
            subscription.follow(assignment)
            return added

        self._tell(subscription.listeners.tell_assigned, self._exclusive.run(follow))

    def _lose(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop partitions that other members may have read since. Their positions are no longer valid."""
        lost = list(partitions)
        self._assign({})
        self._tell(self._subscription.listeners.tell_lost, lost)

    def _tell(self, listener: Callable[[Iterable[TopicPartition]], None], partitions: Iterable[TopicPartition]) -> None:
        """Call a listener of the application, which may make calls of this consumer."""
        self._exclusive.call_back(listener, partitions)

    def _assign(self, topics: Mapping[TopicPartition, Topic]) -> set[TopicPartition]:
        added = self._assigned.replace(topics)
        self._commits.forget_positions()
        self._pauses.end()
        return added

    @overload
    def position(self, partitions: TopicPartition) -> int: ...

    @overload
    def position(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]: ...

    def position(self, partitions: TopicPartition | Iterable[TopicPartition]) -> int | dict[TopicPartition, int]:
        """Return the position in a partition: ``poll`` returns the first record at or after this offset next.

        Returns:
            For a single ``TopicPartition``: its offset. For several: their offsets by partition, as
            ``Producer.send_offsets_to_transaction`` takes them.

        Raises:
            IllegalState: the partition is not assigned.
            NoOffsetForPartition
            UnstableOffsetCommit: an open transaction may still commit the group's offset of the partition. ``poll``
                returns no record of the partition until that transaction has ended.
        """
        wanted = topic_partitions(partitions)
        found = self._position(wanted)
        return found[wanted[0]] if _is_single(partitions, wanted) else found

    @_call
    def _position(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        fetches = {partition: self._fetch(partition, "position()") for partition in partitions}
        unresolved = [fetch for fetch in fetches.values() if fetch.position is None]
        if unresolved:
            self._exclusive.run(self._resolved)
            is_pending = any(fetch.position is None for fetch in unresolved)
            if is_pending and self._store.overdue_transactions.abort_for_reader():
                self._exclusive.run(self._resolved)
        found: dict[TopicPartition, int] = {}
        for partition, fetch in fetches.items():
            if fetch.position is None:
                raise UnstableOffsetCommit(
                    f"an open transaction may still set the group's offset of {_name_of(partition)}. Try again later"
                )
            found[partition] = fetch.position
        return found

    def _resolved(self) -> dict[TopicPartition, Partition]:
        """Resolve all positions in the newest state, and return the partitions."""
        self._store.read(lambda state, slot: None)
        return self._assigned.resolve()

    @_call
    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the position of a partition.

        Raises:
            IllegalState: the partition is not assigned.
            InvalidRequest: the offset is negative or not an integer.
        """
        self._fetch(partition, "seek()")
        if not is_whole_number(offset):
            raise InvalidRequest(f"the offset of {_name_of(partition)} must be an integer, not {quoted(offset)}")
        if offset < 0:
            raise InvalidRequest(f"the offset of {_name_of(partition)} is {offset}; it must be 0 or more")
        self._assigned.seek(partition, offset)
        # The offset may come from another process. This process may not have read the record with it yet.
        self._pauses.end()

    @_call
    def seek_to_beginning(self, partitions: TopicPartition | Iterable[TopicPartition] | None = None) -> None:
        """Move to the first offset at the next ``poll`` or ``position``; in all assigned partitions if None."""
        self._reset(partitions, "earliest", "seek_to_beginning()")

    @_call
    def seek_to_end(self, partitions: TopicPartition | Iterable[TopicPartition] | None = None) -> None:
        """Move to the end of the visible rows at the next ``poll`` or ``position``; in all partitions if None."""
        self._reset(partitions, "latest", "seek_to_end()")

    @_call
    def seek_to_committed(self, partitions: TopicPartition | Iterable[TopicPartition] | None = None) -> None:
        """Go back to the group's committed offsets at the next ``poll`` or ``position``; in all partitions if None.

        Call it after a transaction was aborted. Otherwise the next commit passes over the records of that transaction.
        Where the group has no committed offset, the consumer goes back to where it began to read the partition.

        Raises:
            IllegalState: the consumer has no group, or a partition is not assigned.
        """
        self._check_open("seek_to_committed()")
        self._subscription.group_metadata()
        wanted = list(self._assigned) if partitions is None else topic_partitions(partitions)
        for partition in wanted:
            self._fetch(partition, "seek_to_committed()")
        for partition in wanted:
            self._assigned.seek_to_committed(partition)
        # Another process may have committed offsets that this process has not read yet.
        self._pauses.end()

    def _reset(self, partitions: TopicPartition | Iterable[TopicPartition] | None, policy: str, call: str) -> None:
        self._check_open(call)
        for partition in list(self._assigned) if partitions is None else topic_partitions(partitions):
            self._fetch(partition, call)
            self._assigned.seek(partition, policy)
        # The newest state has the first offset and the end.
        self._pauses.end()

    @_call
    def pause(self, partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until ``resume``.

        Raises:
            IllegalState: a partition is not assigned.
        """
        for fetch in [self._fetch(partition, "pause()") for partition in topic_partitions(partitions)]:
            fetch.paused = True

    @_call
    def resume(self, partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Undo ``pause``."""
        for fetch in [self._fetch(partition, "resume()") for partition in topic_partitions(partitions)]:
            fetch.paused = False

    @_call
    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return self._assigned.paused()

    @_call
    def commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None) -> None:
        """Commit offsets for the group; the positions of all assigned partitions if None.

        The offsets are durable when this returns.

        Raises:
            IllegalState: the consumer has no group.
            CommitFailed: the group has gone on without this consumer, and nothing was committed. Call ``poll`` and read
                the records again. It is ``UnknownMember`` after an eviction, and if the consumer used ``assign`` and
                the group has members. It is ``IllegalGeneration`` for a partition that has moved to another member. A
                rebalance alone is no reason: a member may commit for the partitions that it has kept.
            FencedInstanceId: another consumer has joined with this ``group_instance_id``. Close this one.
            UnknownTopicOrPartition, RetriableError
        """
        self._check_open("commit()")
        self._exclusive.run(lambda: self._commits.commit(offsets))

    @overload
    def committed(self, partitions: TopicPartition) -> int | None: ...

    @overload
    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]: ...

    def committed(
        self, partitions: TopicPartition | Iterable[TopicPartition]
    ) -> int | dict[TopicPartition, OffsetAndMetadata | None] | None:
        """Return the newest committed offsets of the group; None for a partition without one.

        Returns:
            For a single ``TopicPartition``: its offset, as in kafka-python. For several: the offset and metadata of
            each, as in Java's client.

        Raises:
            IllegalState: the consumer has no group.
            UnstableOffsetCommit: an open transaction may still commit one of these offsets. A consumer that started
                at the old offset would read the rows of that transaction again. Not raised under ``read_uncommitted``
                (Kafka's ``requireStable``).
            UnknownTopicOrPartition
        """
        wanted = topic_partitions(partitions)
        found = self._committed(wanted)
        if not _is_single(partitions, wanted):
            return found
        committed = found[wanted[0]]
        return None if committed is None else committed.offset

    @_call
    def _committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        require_stable = self._isolation is not IsolationLevel.READ_UNCOMMITTED
        return self._commits.committed(partitions, require_stable=require_stable)

    @_call
    def beginning_offsets(self, partitions: TopicPartition | Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition. Raises: UnknownTopicOrPartition"""
        return {partition: found.log_start_offset for partition, (_, found) in self._partitions_of(partitions).items()}

    @_call
    def end_offsets(self, partitions: TopicPartition | Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end (exclusive) of the rows that this consumer sees.

        It is the last stable offset, or the high watermark under ``read_uncommitted``.

        Raises:
            UnknownTopicOrPartition
        """
        return {
            partition: visible_end(found, self._isolation)
            for partition, (_, found) in self._partitions_of(partitions).items()
        }

    @_call
    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first visible record of each partition at or after a time; None if there is none.

        Args:
            timestamps: ms since the epoch.

        Raises:
            UnknownTopicOrPartition
            InvalidRequest: the timestamps are not a mapping, or one is not an integer of 0 or more.
        """
        if not isinstance(timestamps, Mapping):
            raise InvalidRequest(
                "times are given by partition, such as {TopicPartition('payments', 0): 1767225600000}, not "
                f"{quoted(timestamps)}"
            )
        for partition, timestamp in timestamps.items():
            topic_partition(partition)
            # As in Kafka's own client. To others -1 and -2 mean the end and the beginning.
            if not is_whole_number(timestamp) or timestamp < 0:
                raise InvalidRequest(
                    f"the timestamp for {_name_of(partition)} must be an integer in ms, 0 or more, not "
                    f"{quoted(timestamp)}. Use end_offsets() for the end, and beginning_offsets() for the beginning"
                )
        return {
            each: offset_for_time(
                self._store, topic, partition, isolation=self._isolation, timestamp_ms=timestamps[each]
            )
            for each, (topic, partition) in self._partitions_of(timestamps).items()
        }

    @_call
    def lag(self) -> dict[TopicPartition, int]:
        """Return the number of offsets between each assigned partition's position and the end of its visible rows."""
        self._check_open("lag()")
        partitions = self._exclusive.run(self._resolved)
        return {
            partition: max(0, visible_end(partitions[partition], self._isolation) - position)
            for partition, position in self._assigned.positions().items()
        }

    @_call
    def group_metadata(self) -> GroupMetadata:
        """Return this consumer's membership, for ``Producer.send_offsets_to_transaction``.

        With it, the commit is refused if a partition has moved to another member since, or if a topic was deleted and
        created again. Call this after the records were polled and before the next poll.

        Raises:
            IllegalState: the consumer has no group.
        """
        return self._subscription.group_metadata()._replace(topic_ids=self._assigned.topic_ids())

    def close(self) -> None:
        """Stop reading, and leave the group. May be called again. In a forked child it does nothing."""
        # A ``with`` statement calls this in a forked child too, and the call below would raise an error there.
        if self._home.is_this:
            self._close()

    @_call
    def _close(self, *, commits: bool = True) -> None:
        if self._closed:
            return
        self._subscription.listeners.check_not_running("close()")
        try:
            if commits:
                self._commit_automatically(only_if_due=False)
            if self._subscription.is_active:
                self._tell(self._subscription.listeners.tell_revoked, self._assigned)
        except Exception:
            self._exclusive.run(self._leave)
            raise
        # After Ctrl-C the consumer stays open, and the call may be repeated.
        self._exclusive.run(self._leave)

    def _leave(self) -> None:
        self._subscription.leave()
        self._assign({})
        self._closed = True

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise IllegalState(f"{call} is not allowed: this consumer is closed. Open another consumer")

    def _fetch(self, partition: TopicPartition, call: str) -> PartitionFetch:
        self._check_open(call)
        fetch = self._assigned.get(topic_partition(partition))
        if fetch is None:
            raise IllegalState(f"{call} is not allowed: {_name_of(partition)} is not assigned to this consumer")
        return fetch

    def _partitions_of(
        self, partitions: TopicPartition | Iterable[TopicPartition], *, refresh: bool = True
    ) -> dict[TopicPartition, tuple[Topic, Partition]]:
        wanted = topic_partitions(partitions)
        return self._store.read(
            lambda state, slot: {partition: partition_named(state, partition) for partition in wanted}, refresh=refresh
        )


def _timeout_ms(timeout: float) -> int | None:
    """Return the timeout of a poll in ms; None for an infinite one."""
    if not isinstance(timeout, Real) or isinstance(timeout, bool) or not timeout >= 0:
        raise InvalidRequest(f"timeout is {quoted(timeout)}; it must be 0 or more, a number of seconds")
    return None if timeout == inf else int(timeout * 1000)


def _is_single(given: object, wanted: list[TopicPartition]) -> bool:
    """Return True if the caller gave one partition, and not several."""
    return len(wanted) == 1 and given == wanted[0]


def _name_of(partition: TopicPartition) -> str:
    return f"{shortened(partition[0])}-{partition[1]}"


def _compiled(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, TypeError) as error:
        raise InvalidRequest(f"pattern {quoted(pattern)} is not a regular expression: {error}") from None
