"""Consume, transform, produce: the records of topics become rows of other topics, exactly once.

Kafka Streams offers the same by its setting ``processing.guarantee=exactly_once_v2`` (KIP-447).
"""

from __future__ import annotations

import json
import logging
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from types import FrameType
from typing import Any, TypeVar

from eoslog.arguments import Count, Natural
from eoslog.consumer.consumer import Consumer
from eoslog.consumer.consumer_records import ConsumerRecord
from eoslog.errors import AbortableError, ApplicationRecoverableError, InvalidOption, RetriableError, Wakeup
from eoslog.producer.producer import Producer
from eoslog.session.client_options import named_options
from eoslog.session.session import Session, find_topic
from eoslog.state.names import TopicPartition, check_id, names_given
from eoslog.storage.environment import Environment
from eoslog.wording import quoted

T = TypeVar("T")
Process = Callable[[list[ConsumerRecord], Producer], object]
_logger = logging.getLogger(__name__)
_POLL_S = 1.0
_PAUSE_MS = 100
"""The pause before a call is repeated (ms). Most calls that fail have waited for much longer."""
_SESSION_TIMEOUT_MS = 45_000
_OWN_OPTIONS = ("config", "enable_auto_commit", "group_id", "isolation_level", "max_poll_records", "transactional_id")
_DESERIALIZERS = ("key_deserializer", "value_deserializer")


class _ProcessFailed(Exception):
    """The application's function raised an exception, which is the ``__cause__`` of this one."""


class _Unanswered(Exception):
    """The object store did not answer a call of the application's function in time."""


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
            raise InvalidOption(
                f"process must be a function of a list of records and a producer, not {quoted(process)}"
            )
        check_id("group id", group_id)
        check_id("transactional id", transactional_id)
        for_consumer = _checked_options("consumer_options", consumer_options)
        for_producer = _checked_options("producer_options", producer_options)
        given = for_consumer | for_producer
        for name in _OWN_OPTIONS:
            if name in given:
                raise InvalidOption(f"a processor decides {name} itself. Leave it out of the options of its clients")
        for name in _DESERIALIZERS:
            if dead_letter_topic is not None and name in given:
                raise InvalidOption(
                    f"{name} does not go with dead_letter_topic, which keeps the bytes of a record. Decode them in the "
                    "function: then a record that cannot be decoded becomes a dead letter"
                )
        session_timeout_ms = for_consumer.get("session_timeout_ms", _SESSION_TIMEOUT_MS)
        if isinstance(session_timeout_ms, int) and 2 * commit_interval_ms > session_timeout_ms:
            raise InvalidOption(
                f"commit_interval_ms is {commit_interval_ms}; it must be at most half of session_timeout_ms "
                f"({session_timeout_ms}). Otherwise the group evicts this processor between two polls"
            )
        self._store = store
        self._topics = names_given("topics", topics)
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
            while not self._stop.is_requested:
                found = clients.step(_POLL_S)
                count += found
                if not found and clients.is_at_end():
                    break
        return count

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
        if self._dead_letter_topic is not None:
            topic = find_topic(self._store, self._dead_letter_topic)
            if topic.topic_schema.kind != "records" or "compact" in topic.config.cleanup_policy:
                raise InvalidOption(
                    f"dead_letter_topic {quoted(self._dead_letter_topic)} must be a topic of Kafka records that is not "
                    "compacted: a record may have no key"
                )
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
                self._process,
                self._dead_letter_topic,
                self._stop,
                max_records=self._max_records,
                commit_interval_ms=self._commit_interval_ms,
            )
            # The predecessor is fenced before this consumer takes its partitions.
            clients.repeated(producer.init_transactions)
            consumer.subscribe(self._topics)
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

        def stop(number: int, frame: FrameType | None) -> None:
            self.stop()

        signal.signal(signal.SIGTERM, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


class _Clients:
    """The consumer and the producer of one run."""

    def __init__(
        self,
        store: Session,
        consumer: Consumer,
        producer: Producer,
        process: Process,
        dead_letter_topic: str | None,
        stop: _Stop,
        *,
        max_records: int,
        commit_interval_ms: int,
    ) -> None:
        self._store = store
        self._consumer = consumer
        self._producer = producer
        self._process = process
        self._dead_letter_topic = dead_letter_topic
        self._stop = stop
        self._max_records = max_records
        self._commit_interval_ms = commit_interval_ms
        self._begun_ms: int | None = None
        """When the last transaction began (elapsed time, ms). None after a full poll: the next begins at once."""

    def step(self, timeout_s: float) -> int:
        """Process the next records in a transaction. Return their number; 0 if none came, or if it was aborted."""
        self._await_interval()
        try:
            records = self.repeated(lambda: self._consumer.poll(timeout_s))
        except Wakeup:
            return 0
        if not records:
            return 0
        self._begun_ms = self._store.environment.monotonic_ms() if len(records) < self._max_records else None
        try:
            is_committed = self._transact(lambda: self._process(records, self._producer))
        except _ProcessFailed as failed:
            if self._dead_letter_topic is None:
                raise _cause_of(failed) from None
            _logger.warning("%r processes records one by one: %r", self, failed.__cause__)
            return self._process_each(records)
        return len(records) if is_committed else 0

    def is_at_end(self) -> bool:
        """Return True if no visible record is left in the partitions of this consumer."""
        return not any(self.repeated(self._consumer.lag).values())

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
        # The positions of all assigned partitions, also of those without records: a consumer skips control rows, too.
        return self._consumer.position(self._consumer.assignment())

    def _transact(self, work: Callable[[], object], offsets: Mapping[TopicPartition, int] | None = None) -> bool:
        """Do work in a transaction, and commit offsets in it. If ``offsets`` is None, commit the consumer's positions.

        Returns:
            False if the transaction was aborted. Then the consumer has gone back to the committed offsets.

        Raises:
            _ProcessFailed: the work failed. The transaction was aborted, and the consumer has gone back.
            EosLogError: the clients must be closed.
        """
        producer, consumer = self._producer, self._consumer
        self.repeated(producer.begin_transaction)
        try:
            self._work(work)
            positions = self.repeated(self._positions) if offsets is None else offsets
            self.repeated(lambda: producer.send_offsets_to_transaction(positions, consumer.group_metadata()))
            self.repeated(producer.commit_transaction)
        except AbortableError as error:
            _logger.warning("%r aborts a transaction, and reads its records again: %s", self, error)
            self._go_back()
            return False
        except _ProcessFailed:
            self._go_back()
            raise
        except _Unanswered as unanswered:
            _logger.warning("%r aborts a transaction, and reads its records again: %s", self, unanswered.__cause__)
            self._go_back()
            self._stop.wait_ms(_PAUSE_MS)
            return False
        return True

    def _work(self, work: Callable[[], object]) -> None:
        try:
            work()
        except RetriableError as error:
            raise _Unanswered from error
        except (AbortableError, ApplicationRecoverableError):
            raise  # An error of the producer, whatever the record is.
        except Exception as error:
            raise _ProcessFailed from error

    def _go_back(self) -> None:
        self.repeated(self._producer.abort_transaction)
        self._consumer.seek_to_committed()

    def _process_each(self, records: Sequence[ConsumerRecord]) -> int:
        """Process each record in a transaction of its own. A record for which the function fails is a dead letter."""
        for done, record in enumerate(records):
            after = {TopicPartition(record.topic, record.partition): record.offset + 1}
            try:
                is_committed = self._transact(partial(self._process, [record], self._producer), after)
            except _ProcessFailed as failed:
                error = _cause_of(failed)
                _logger.warning("%r sends %s to %s: %r", self, _place_of(record), self._dead_letter_topic, error)
                try:
                    is_committed = self._transact(partial(self._send_dead_letter, record, error), after)
                except _ProcessFailed as unsent:
                    raise _cause_of(unsent) from error
            if not is_committed or self._stop.is_requested:
                return done + is_committed
        return len(records)

    def _send_dead_letter(self, record: ConsumerRecord, error: Exception) -> None:
        """Send a record with the headers of Kafka Streams' dead letters (KIP-1034)."""
        described = {
            "exception": f"{type(error).__module__}.{type(error).__qualname__}",
            "message": str(error),
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
            timestamp=record.timestamp,
        )


def _checked_options(name: str, given: object) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise InvalidOption(f"{name} is {quoted(given)}; it must be a dict of options by their names")
    return dict(given)


def _cause_of(failed: _ProcessFailed) -> Exception:
    assert isinstance(failed.__cause__, Exception)
    return failed.__cause__


def _bytes_of(value: Any) -> bytes | None:
    """Return bytes as they are, and the key or row of a topic of columns as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    return json.dumps(value, default=str, ensure_ascii=False).encode(errors="replace")


def _place_of(record: ConsumerRecord) -> str:
    return f"{record.topic}-{record.partition} at offset {record.offset}"
