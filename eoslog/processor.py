"""Consume, transform, produce: the records of topics become rows of other topics, exactly once.

Kafka Streams offers the same by its setting ``processing.guarantee=exactly_once_v2`` (KIP-447).
"""

from __future__ import annotations

import inspect
import json
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from queue import SimpleQueue
from types import FrameType
from typing import Any, TypeVar

from eoslog.arguments import DEFAULT_SESSION_TIMEOUT_MS, Count, Natural
from eoslog.consumer.consumer import Consumer
from eoslog.consumer.consumer_records import ConsumerRecord
from eoslog.errors import (
    AbortableError,
    ApplicationRecoverableError,
    CommitFailed,
    CorruptRecord,
    InvalidOption,
    NotAStore,
    RetriableError,
    StoreAccessDenied,
    UnstableOffsetCommit,
    UnsupportedFormat,
    Wakeup,
)
from eoslog.format.json_values import to_json
from eoslog.producer.producer import Producer
from eoslog.session.client_options import named_options
from eoslog.session.session import Session, find_topic
from eoslog.state.names import TopicPartition, check_id, names_given
from eoslog.storage.environment import Environment
from eoslog.wording import quoted

T = TypeVar("T")
_logger = logging.getLogger(__name__)
_POLL_S = 1.0
_PAUSE_MS = 100
"""The pause before a call is repeated (ms). Most calls that fail have waited for much longer."""
_OWN_OPTIONS = ("config", "enable_auto_commit", "group_id", "isolation_level", "max_poll_records", "transactional_id")
_CONVERTERS = ("key_deserializer", "value_deserializer", "key_serializer", "value_serializer")
_NOT_OF_A_RECORD = (
    AbortableError,
    RetriableError,
    ApplicationRecoverableError,
    StoreAccessDenied,
    NotAStore,
    CorruptRecord,
    UnsupportedFormat,
)
"""Errors of the producer for which no record is the reason. All but the first two end the run."""


class ProcessorOutput:
    """Sends rows in the transaction of a processor. It is the producer without the calls that end a transaction."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.send = producer.send
        """See ``Producer.send``. Do not wait for the future: it is done at the commit, after the function."""
        self.send_table = producer.send_table
        """See ``Producer.send_table``."""
        self.flush = producer.flush
        """See ``Producer.flush``."""

    def __repr__(self) -> str:
        return f"ProcessorOutput({self._producer!r})"


Process = Callable[[list[ConsumerRecord], ProcessorOutput], object]


class _ProcessFailed(Exception):
    """The function of the application raised an exception, or hid one of the producer."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class _Stop:
    """The request to stop a processor. A signal handler may make it at any instruction of the waiting thread."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._requests: SimpleQueue[None] = SimpleQueue()
        """A signal handler may put while its own thread uses the queue. A ``threading.Event`` could deadlock."""
        self.is_requested = False

    def request(self) -> None:
        self.is_requested = True
        self._requests.put(None)

    def wait_ms(self, duration_ms: int) -> None:
        """Wait until the time is over, or until the stop is requested."""
        if duration_ms > 0 and not self.is_requested:
            self._environment.wait_ms(duration_ms, self._requests)


class Processor:
    """Gives the records of topics to a function, which sends rows to other topics. Each record counts exactly once.

    The rows and the group's offsets are in one transaction, so a program may be killed at any time and started again.
    Several programs may share the work: each has the same ``group_id`` and its own ``transactional_id``.
    """

    @named_options("a processor")
    def __init__(
        self,
        store: Session,
        topics: str | Iterable[str],
        process: Process,
        *,
        open_consumer: Callable[..., Consumer],
        open_producer: Callable[..., Producer],
        group_id: str,
        transactional_id: str,
        max_records: Count = 500,
        commit_interval_ms: Natural = 100,
        dead_letter_topic: str | None = None,
        consumer_options: Mapping[str, Any] | None = None,
        producer_options: Mapping[str, Any] | None = None,
    ) -> None:
        """See ``Store.processor`` for the other options.

        Args:
            open_consumer, open_producer: ``Store.consumer`` and ``Store.producer`` of the store.

        Raises:
            InvalidOption, InvalidRequest
        """
        if not callable(process):
            raise InvalidOption(f"process must be a function of a list of records and an output, not {quoted(process)}")
        called = process if inspect.isroutine(process) else type(process).__call__
        if inspect.iscoroutinefunction(called) or inspect.isgeneratorfunction(called):
            raise InvalidOption(
                "process is a coroutine or a generator, whose call processes nothing. Give a plain function"
            )
        check_id("group id", group_id)
        check_id("transactional id", transactional_id)
        for_consumer = _checked_options("consumer_options", consumer_options)
        for_producer = _checked_options("producer_options", producer_options)
        given = for_consumer | for_producer
        for name in _OWN_OPTIONS:
            if name in given:
                raise InvalidOption(f"a processor decides {name} itself. Leave it out of the options of its clients")
        for name in _CONVERTERS:
            if dead_letter_topic is not None and name in given:
                raise InvalidOption(
                    f"{name} does not go with dead_letter_topic, which keeps the bytes of a record. Decode and encode "
                    "in the function: then a record for which that fails becomes a dead letter"
                )
        session_timeout_ms = for_consumer.get("session_timeout_ms", DEFAULT_SESSION_TIMEOUT_MS)
        if isinstance(session_timeout_ms, int) and 2 * commit_interval_ms > session_timeout_ms:
            raise InvalidOption(
                f"commit_interval_ms is {commit_interval_ms}; it must be at most half of session_timeout_ms "
                f"({session_timeout_ms}). Otherwise the group evicts this processor between two polls"
            )
        self._store = store
        self._topics = names_given("topics", topics)
        if not self._topics:
            raise InvalidOption("topics is empty. Name the topics to read")
        if dead_letter_topic is not None and not isinstance(dead_letter_topic, str):
            raise InvalidOption(f"dead_letter_topic is {quoted(dead_letter_topic)}; it must be the name of a topic")
        if dead_letter_topic in self._topics:
            raise InvalidOption(
                "dead_letter_topic is one of topics, so each dead letter would be processed again. Give another topic"
            )
        self._process = process
        self._open_consumer = open_consumer
        self._open_producer = open_producer
        self._group_id = group_id
        self._transactional_id = transactional_id
        self._max_records = max_records
        self._commit_interval_ms = commit_interval_ms
        self._dead_letter_topic = dead_letter_topic
        self._consumer_options = {"auto_offset_reset": "earliest", **for_consumer}
        self._producer_options = {"staged": True, **for_producer}
        self._stop = _Stop(store.environment)
        self._consumer: Consumer | None = None

    def __repr__(self) -> str:
        return f"Processor({quoted(self._group_id)}, {quoted(self._transactional_id)})"

    def run(self) -> None:
        """Process records until ``stop`` is called, and wait for more.

        In the main thread, SIGTERM calls ``stop`` if the program has no handler of its own.

        Raises:
            The exception of the function, if there is no dead letter topic. Nothing of its transaction is committed,
                and the next run begins at the same records.
            ProducerFenced: another processor has begun with this transactional id.
            RetriableError: the object store did not answer a call of the function in time, or ``stop`` was called while
                the object store did not answer.
            Errors of the clients that are neither retriable nor abortable.
        """
        if self._stop.is_requested:
            return
        with self._stopping_on_sigterm(), self._clients() as clients:
            while not self._stop.is_requested:
                clients.step(_POLL_S)

    def run_available(self) -> int:
        """Process the records that are visible now in the partitions of this processor, and return their number.

        Raises:
            The errors of ``run``.
        """
        count = 0
        if self._stop.is_requested:
            return count
        with self._stopping_on_sigterm(), self._clients() as clients:
            ends: dict[TopicPartition, int] = {}
            while not self._stop.is_requested:
                count += clients.step(_POLL_S, ends)
                if clients.has_reached(ends):
                    break
        return count

    @property
    def is_stopped(self) -> bool:
        """True if ``stop`` was called, or SIGTERM came. Then ``run`` and ``run_available`` do nothing."""
        return self._stop.is_requested

    def stop(self) -> None:
        """Let ``run`` return after its current transaction. Any thread and any signal handler may call it.

        A processor that was stopped does not run again.
        """
        self._stop.request()
        consumer = self._consumer
        if consumer is not None:
            consumer.wakeup()

    @contextmanager
    def _clients(self) -> Iterator[_Clients]:
        with (
            self._open_producer(self._transactional_id, **self._producer_options) as producer,
            self._open_consumer(
                self._group_id, max_poll_records=self._max_records, **self._consumer_options
            ) as consumer,
        ):
            clients = _Clients(
                self._store,
                consumer,
                producer,
                process=self._process,
                dead_letter_topic=self._dead_letter_topic,
                stop=self._stop,
                max_records=self._max_records,
                commit_interval_ms=self._commit_interval_ms,
            )
            clients.repeated(clients.check_dead_letter_topic)
            # The predecessor is fenced before this consumer takes its partitions.
            clients.repeated(producer.init_transactions)
            clients.repeated(lambda: consumer.subscribe(self._topics, on_assigned=clients.commit_first_positions))
            self._consumer = consumer
            try:
                yield clients
            finally:
                self._consumer = None

    @contextmanager
    def _stopping_on_sigterm(self) -> Iterator[None]:
        is_main = threading.current_thread() is threading.main_thread()
        if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            yield
            return

        process_id = os.getpid()
        is_running = True

        def stop(number: int, frame: FrameType | None) -> None:
            if is_running and os.getpid() == process_id:
                self.stop()
                return
            # A child that the function forked has inherited this handler, or an interrupt has left it here. End the
            # process as if there was no handler.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)

        try:
            signal.signal(signal.SIGTERM, stop)
            yield
        finally:
            # First, and without a call: no interrupt comes before it.
            is_running = False
            if signal.getsignal(signal.SIGTERM) is stop:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)


class _Clients:
    """The consumer and the producer of one run."""

    def __init__(
        self,
        store: Session,
        consumer: Consumer,
        producer: Producer,
        *,
        process: Process,
        dead_letter_topic: str | None,
        stop: _Stop,
        max_records: int,
        commit_interval_ms: int,
    ) -> None:
        self._store = store
        self._consumer = consumer
        self._producer = producer
        self._output = ProcessorOutput(producer)
        self._process = process
        self._dead_letter_topic = dead_letter_topic
        self._stop = stop
        self._max_records = max_records
        self._commit_interval_ms = commit_interval_ms
        self._begun_ms: int | None = None
        """When the last transaction began (elapsed time, ms). None after a full poll: the next begins at once."""

    def check_dead_letter_topic(self) -> None:
        """Raises: UnknownTopicOrPartition, InvalidOption: the topic does not take every record."""
        if self._dead_letter_topic is None:
            return
        topic = find_topic(self._store, self._dead_letter_topic)
        if topic.topic_schema.kind != "records" or "compact" in topic.config.cleanup_policy:
            raise InvalidOption(
                f"dead_letter_topic {quoted(self._dead_letter_topic)} must be a topic of Kafka records that is not "
                "compacted: a record may have no key"
            )

    def commit_first_positions(self, partitions: Iterable[TopicPartition]) -> None:
        """Commit the positions of new partitions for which the group has no offset.

        Otherwise ``auto_offset_reset`` would decide again after a crash. With ``latest`` it would pass over records
        that the function got, but whose transaction did not commit.
        """

        def commit() -> None:
            first = {}
            for partition in partitions:
                with suppress(UnstableOffsetCommit):
                    if self._consumer.committed(partition) is None:
                        first[partition] = self._consumer.position(partition)
            if first:
                self._consumer.commit(first)

        with suppress(CommitFailed):  # The group has gone on without this member. The next poll joins again.
            self.repeated(commit)

    def step(self, timeout_s: float, ends: dict[TopicPartition, int] | None = None) -> int:
        """Process the next records in a transaction.

        Args:
            ends: takes the end of the visible records (exclusive) of each partition that this step sees first.

        Returns:
            The number of records; 0 if none came, or if the transaction was aborted.
        """
        self._await_interval()
        try:
            records = self.repeated(lambda: self._consumer.poll(timeout_s))
        except Wakeup:
            return 0
        if ends is not None:
            new = self._consumer.assignment() - ends.keys()
            ends |= self.repeated(lambda: self._consumer.end_offsets(new)) if new else {}
        if not records:
            return 0
        self._begun_ms = self._store.environment.monotonic_ms() if len(records) < self._max_records else None
        # The function may change its list.
        outcome = self._transact(lambda: self._process(list(records), self._output))
        if not isinstance(outcome, Exception):
            return len(records) if outcome else 0
        if self._dead_letter_topic is None:
            raise outcome  # Outside of an except clause, which would replace the context of the exception.
        _logger.warning("%r processes records one by one: %r", self, outcome)
        return self._process_each(records)

    def has_reached(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Return True if the positions of all partitions have reached these ends.

        A partition without an end has not: a stop may end the poll that has assigned it.
        """
        positions = self.repeated(self._positions)
        return all(partition in ends and position >= ends[partition] for partition, position in positions.items())

    def repeated(self, call: Callable[[], T]) -> T:
        """Repeat a call until its outcome is known, or until the processor is stopped."""
        while True:
            try:
                return call()
            except RetriableError as error:
                if self._stop.is_requested:
                    raise
                _logger.warning("%r repeats a call: %s", self, error)
                self._stop.wait_ms(_PAUSE_MS)

    def __repr__(self) -> str:
        return f"the processor of {self._producer!r}"

    def _await_interval(self) -> None:
        """Wait until the commit interval is over, so that records share a transaction; not after a full poll."""
        if self._begun_ms is not None:
            self._stop.wait_ms(self._begun_ms + self._commit_interval_ms - self._store.environment.monotonic_ms())

    def _positions(self) -> dict[TopicPartition, int]:
        """Return the positions of all assigned partitions, also of those without records.

        A consumer passes over control rows, too. A partition whose position depends on an open transaction is left
        out: no record of it was polled.
        """
        found = {}
        for partition in self._consumer.assignment():
            with suppress(UnstableOffsetCommit):
                found[partition] = self._consumer.position(partition)
        return found

    def _transact(
        self, work: Callable[[], object], offsets: Mapping[TopicPartition, int] | None = None
    ) -> bool | Exception:
        """Do work in a transaction, and commit offsets in it. If ``offsets`` is None, commit the consumer's positions.

        Returns:
            True if the transaction was committed. False if it was aborted, and the exception of the work if that
            failed. In both cases the consumer has gone back to the committed offsets.

        Raises:
            EosLogError: the clients must be closed.
        """
        producer, consumer = self._producer, self._consumer
        self.repeated(producer.begin_transaction)
        try:
            self._work(work)
            positions = self.repeated(self._positions) if offsets is None else offsets
            self.repeated(lambda: producer.send_offsets_to_transaction(positions, consumer.group_metadata()))
            self.repeated(producer.commit_transaction)
        except (AbortableError, RetriableError) as error:
            # ``repeated`` raises a retriable error only after a stop. Otherwise it is one of the work.
            if isinstance(error, RetriableError) and self._stop.is_requested:
                raise
            _logger.warning("%r aborts a transaction, and reads its records again: %s", self, error)
            self._go_back()
            self._stop.wait_ms(_PAUSE_MS)
            return False
        except _ProcessFailed as failed:
            self._go_back()
            return failed.error
        return True

    def _work(self, work: Callable[[], object]) -> None:
        failed: Exception | None = None
        try:
            work()
        except _NOT_OF_A_RECORD:
            raise
        except Exception as error:
            failed = error
        # The function may have hidden the producer's error, or put it into an exception of its own.
        hidden = self._producer.error
        if isinstance(hidden, _NOT_OF_A_RECORD):
            raise hidden
        failure = hidden if failed is None else failed
        if failure is not None:
            raise _ProcessFailed(failure)

    def _go_back(self) -> None:
        self.repeated(self._producer.abort_transaction)
        self._consumer.seek_to_committed()

    def _process_each(self, records: Sequence[ConsumerRecord]) -> int:
        """Process each record in a transaction of its own. A record for which the function fails is a dead letter."""
        for done, record in enumerate(records):
            after = {TopicPartition(record.topic, record.partition): record.offset + 1}
            outcome = self._transact(partial(self._process, [record], self._output), after)
            if isinstance(outcome, Exception):
                failure = outcome
                _logger.warning("%r sends %s to %s: %r", self, _place_of(record), self._dead_letter_topic, failure)
                outcome = self._transact(partial(self._send_dead_letter, record, failure), after)
                if isinstance(outcome, Exception):
                    outcome.add_note(f"{_place_of(record)} could not be sent to {self._dead_letter_topic}")
                    raise outcome from failure
            if not outcome or self._stop.is_requested:
                return done + outcome
        return len(records)

    def _send_dead_letter(self, record: ConsumerRecord, error: Exception) -> None:
        """Send a record with the headers of Kafka Streams' dead letters (KIP-1034)."""
        described = {
            "exception": f"{type(error).__module__}.{type(error).__qualname__}",
            "message": _text_of(error),
            "topic": record.topic,
            "partition": str(record.partition),
            "offset": str(record.offset),
        }
        assert self._dead_letter_topic is not None
        self._producer.send(
            self._dead_letter_topic,
            _bytes_of(record.value),
            key=_bytes_of(record.key),
            headers=[
                *record.headers,
                *((f"__streams.errors.{name}", text.encode(errors="replace")) for name, text in described.items()),
            ],
            # ``send`` takes no times before 1970, but ``send_table`` does.
            timestamp=max(0, record.timestamp),
        )


def _checked_options(name: str, given: object) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise InvalidOption(f"{name} is {quoted(given)}; it must be a dict of options by their names")
    return dict(given)


def _text_of(error: Exception) -> str:
    try:
        return str(error)
    except Exception as also:
        return f"its text raised {type(also).__name__}"


def _bytes_of(value: Any) -> bytes | None:
    """Return bytes as they are, and the key or row of a topic of columns as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    return json.dumps(to_json(value), ensure_ascii=False).encode()


def _place_of(record: ConsumerRecord) -> str:
    return f"{record.topic}-{record.partition} at offset {record.offset}"
