"""The producer (Kafka's ``KafkaProducer``). It is always idempotent, and transactional if it has a transactional id.

An eager producer, the default, works like Kafka's: a flush gives rows their offsets, and the end of the transaction
decides whether they are committed. A staged producer only uploads rows; they get offsets in the slot that commits them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, NoReturn, TypeVar

import pyarrow as pa

from eoslog.arguments import Count, Natural, TimeLimit, TransactionTimeout
from eoslog.errors import (
    ConcurrentAccess,
    DeliveryTimedOut,
    EosLogError,
    FatalError,
    IllegalState,
    InvalidOption,
    InvalidRequest,
    OpenedBeforeFork,
    RequestTimedOut,
    RetriableError,
    TransactionAborted,
)
from eoslog.format.arrow_input import ArrowStream
from eoslog.format.file_writer import DEFAULT_BUFFER_BYTES
from eoslog.producer import exit_flush
from eoslog.producer.background_sender import BACKGROUND_FLUSH, BackgroundSender
from eoslog.producer.producer_calls import CallOutcome, ProducerCalls, checked_timeout, producer_call
from eoslog.producer.producer_lifecycle import ProducerLifecycle, ProducerPhase, ends_the_producer
from eoslog.producer.producer_log import ProducerLog
from eoslog.producer.record_futures import DeliveryCallback, RecordFuture
from eoslog.producer.rows import rows_of
from eoslog.producer.sender import Sender
from eoslog.producer.transaction_manager import TransactionManager
from eoslog.session.client_options import NEEDLESS_PRODUCER_CALLS, PRODUCER_CALLS, named_options, named_otherwise
from eoslog.session.idempotent_append import IdempotentAppend
from eoslog.session.metrics import CallTimes
from eoslog.session.positions import (
    GroupMetadata,
    OffsetAndMetadata,
    RecordMetadata,
    checked_group,
    group_offsets,
    offsets_given,
)
from eoslog.session.serializers import Serializer, check_callable, serialized
from eoslog.session.session import Session
from eoslog.session.time_limits import DEFAULT_DELIVERY_TIMEOUT_MS, DEFAULT_MAX_BLOCK_MS, LONGEST_WAIT_MS, TimeLimits
from eoslog.state.names import TopicPartition, check_id
from eoslog.state.prepared import DEFAULT_PREPARED_TIMEOUT_MS, parse_prepared_state, prepared_state
from eoslog.state.store_state import Topic
from eoslog.state.transaction_entries import ApplicationVersion, CommitSummary
from eoslog.state.transaction_requests import InitAnswer
from eoslog.storage.calls import Call
from eoslog.storage.process import HomeProcess, cannot_be_pickled
from eoslog.wording import quoted

T = TypeVar("T")


@named_otherwise(PRODUCER_CALLS, NEEDLESS_PRODUCER_CALLS)
class Producer:
    """Writes records and tables. Threads may share it.

    A forked child must open its own producer: in the child, each call that reaches the store raises
    ``OpenedBeforeFork``.

    Use it as a context manager: if an exception leaves the ``with`` block, the open transaction is aborted. A prepared
    transaction stays prepared.
    """

    @named_options("a producer")
    def __init__(
        self,
        store: Session,
        transactional_id: str | None,
        *,
        transaction_timeout_ms: TransactionTimeout,
        staged: bool = False,
        buffer_bytes: Count | None = None,
        max_block_ms: TimeLimit = DEFAULT_MAX_BLOCK_MS,
        delivery_timeout_ms: TimeLimit = DEFAULT_DELIVERY_TIMEOUT_MS,
        prepared_timeout_ms: TransactionTimeout | None = DEFAULT_PREPARED_TIMEOUT_MS,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        linger_ms: Natural | None = None,
        fail_on_send_error: bool = False,
    ) -> None:
        check_callable("key_serializer", key_serializer)
        check_callable("value_serializer", value_serializer)
        if linger_ms is not None and staged:
            raise InvalidOption(
                "linger_ms does not apply to a staged producer: only the commit appends its rows. Leave it out"
            )
        if fail_on_send_error and transactional_id is None:
            raise InvalidOption("fail_on_send_error needs a transactional_id: without one there is nothing to abort")
        if transactional_id is not None:
            check_id("transactional id", transactional_id)
        elif staged:
            raise InvalidRequest("a staged producer needs a transactional id")
        self._store = store
        self.transactional_id = transactional_id
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._serializes = key_serializer is not None or value_serializer is not None
        self._fails_on_send_error = fail_on_send_error
        self._call_times = CallTimes(within=store.call_times)
        self._limits = TimeLimits(store.environment, max_block_ms, delivery_timeout_ms)
        self._home = HomeProcess("producer")
        append = IdempotentAppend(store, self._home, self._limits)
        self._requests = TransactionManager(
            store,
            append,
            transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            prepared_timeout_ms=prepared_timeout_ms,
        )
        self._log = ProducerLog(store, transactional_id, self._requests)
        self._lifecycle = ProducerLifecycle()
        self._logged_phase = self._lifecycle.phase
        self._phase_of_sends = ProducerPhase.UNINITIALIZED if transactional_id is None else ProducerPhase.IN_TRANSACTION
        """The only phase in which ``send`` and ``send_table`` are allowed."""
        self._calls = ProducerCalls(
            self._home, store.environment, self._limits, call_times=self._call_times, shut=self._shut
        )
        self._span = self._calls.transaction_span
        self._sender = Sender(
            store,
            append,
            self._requests,
            self._limits,
            transactional_id,
            staged=staged,
            buffer_bytes=buffer_bytes or DEFAULT_BUFFER_BYTES,
            home=self._home,
        )
        self._background = None
        if linger_ms is not None:
            self._background = BackgroundSender(
                store.environment, linger_ms, self._calls.exclusive, self._flush_in_background
            )
        self._forget()

    def __repr__(self) -> str:
        name = "" if self.transactional_id is None else f", {quoted(self.transactional_id)}"
        return f"Producer({self._store.url!r}{name}, state={self._lifecycle.phase.value!r})"

    def _forget(self) -> None:
        """Drop everything that belongs to one transaction."""
        self._describe_span()
        exit_flush.discard(self)
        self._committing: tuple[ApplicationVersion | None] | None = None
        self._began_ms = self._store.environment.monotonic_ms()
        self._requests.forget()
        self._sender.forget()

    def _describe_span(self) -> None:
        self._span.describe(self._sender.topics, lambda: self._sender.transaction_rows)

    def __reduce__(self) -> NoReturn:
        raise cannot_be_pickled(self, "the store's URL, and open a producer there")

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._warn_of_dropped_rows()
        if error is None:
            self.close()
            return
        rows = self._sender.waiting_rows if self.transactional_id is None else 0
        try:
            self.close()
        except EosLogError as also:
            error.add_note(f"the producer could not be closed in order: {also}")
            if rows:
                self._log.rows_lost(rows, also)

    def _warn_of_dropped_rows(self) -> None:
        """Warn of the rows that the end of the ``with`` block drops, because it aborts their transaction."""
        open_phases = (ProducerPhase.IN_TRANSACTION, ProducerPhase.ABORTABLE_ERROR, ProducerPhase.ABORTING)
        if self.transactional_id is None or not self._home.is_this or self._lifecycle.phase not in open_phases:
            return
        rows = self._sender.transaction_rows
        if rows:
            self._log.rows_dropped(rows)

    @property
    def state(self) -> str:
        """The phase of this producer, as its ``repr`` shows it: ``uninitialized``, ``ready``, ``in transaction``, ...

        After an error of a transaction it is ``abortable error`` (abort the transaction) or ``fatal error`` (close the
        producer). Kafka's client keeps the same states (``TransactionManager.State``).
        """
        return self._lifecycle.phase.value

    @property
    def error(self) -> EosLogError | None:
        """The error with which the transaction or the producer has failed; None if ``state`` names no error."""
        return self._lifecycle.error

    @property
    def producer_id(self) -> int:
        """The producer id; -1 before ``init_transactions``."""
        return self._requests.producer_id

    @property
    def producer_epoch(self) -> int:
        """The current epoch; -1 before ``init_transactions``. It rises at the end of every transaction (KIP-890).

        Without transactions, it rises when the producer gives up rows whose outcome it does not know.
        """
        return self._requests.identity.producer_epoch if self._requests.identity else -1

    @property
    def prepared_transaction(self) -> str | None:
        """The name of the prepared transaction that waits to be completed; None if there is none.

        ``prepare_transaction`` returned this name. After ``init_transactions(keep_prepared=True)`` it may be the
        transaction of an earlier producer.
        """
        return None if self._requests.prepared is None else prepared_state(self._requests.prepared)

    @producer_call
    @named_options("init_transactions()")
    def init_transactions(self, timeout: float | None = None, *, keep_prepared: bool = False) -> None:
        """Take over the transactional id: fence an earlier producer, and abort the transaction that it left open.

        Args:
            timeout: the time limit of this call (s), as for ``flush``.
            keep_prepared: do not abort a prepared transaction (KIP-939). Then ``prepared_transaction`` names it, and it
                must be completed first. An open transaction that is not prepared is aborted in any case.

        Raises:
            IllegalState: the producer has no transactional id, or was initialized before.
            RequestTimedOut: call it again; until then no other call is allowed.
        """
        self._need_transactional("init_transactions()")
        if self._untold("init_transactions()", keep_prepared) is not None:
            return
        self._lifecycle.enter(ProducerPhase.INITIALIZING, "init_transactions()")
        self._log_phase()

        def initialize() -> InitAnswer:
            answer = self._requests.initialize(keep_prepared=keep_prepared)
            kept = self._requests.prepared is not None
            self._lifecycle.arrive(ProducerPhase.PREPARED if kept else ProducerPhase.READY)
            self._calls.settled(None, keep_prepared)
            return answer

        answer = self._guarded(initialize)
        self._log.initialized(answer)

    def metrics(self) -> dict[str, int]:
        """Return the totals of this producer's own calls, by Kafka's names.

        ``record-send-total`` counts the rows that the log has acknowledged. The rows of a staged producer count at
        their commit or prepare. ``outgoing-byte-total`` counts the bytes of their files. The others are times of calls
        (ns), such as ``txn-commit-time-ns-total``.
        """
        sent = {"record-send-total": self._sender.sent_rows, "outgoing-byte-total": self._sender.sent_bytes}
        return sent | self._call_times.totals()

    @producer_call
    def begin_transaction(self) -> None:
        """Begin a transaction. Nothing is written before its first flush.

        Raises:
            IllegalState
            TransactionAbortable: the previous transaction failed and must be aborted first.
        """
        self._need_transactional("begin_transaction()")
        if self._lifecycle.phase is ProducerPhase.IN_TRANSACTION and self._untold("begin_transaction()") is not None:
            return
        self._lifecycle.check_not_abortable()
        self._lifecycle.check_may_enter(ProducerPhase.IN_TRANSACTION, "begin_transaction()")
        self._forget()
        self._span.begin(self._store.url, self.transactional_id, self._requests.identity)
        self._calls.settled(None)
        # Last: an interrupt above leaves the producer without a transaction, and the call may be repeated.
        self._lifecycle.enter(ProducerPhase.IN_TRANSACTION, "begin_transaction()")
        self._log_phase()

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
        timestamp: int | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> Future[RecordMetadata]:
        """Send a record. The next flush writes it, at the latest the commit.

        Args:
            value, key: bytes or None; with a serializer, any object that it takes. None stays None.
            partition: the partition; if None, the hash of the key decides (Kafka's murmur2).
            timestamp: ms since the epoch, at most the year 9999; the store's time if None.
            on_delivery: a function of an error and a ``RecordMetadata``. The thread that completes the future calls it:
                with None and the offset, or with the error and offset -1. Its own exceptions are logged. It is not
                called if ``send`` raises an error.

        Returns:
            A future of the record's partition and offset. It is done after the flush, and its ``result()`` waits for
            that. It cannot be cancelled. If the transaction is aborted first, it fails with ``TransactionAborted``.
            The futures of one partition are done in the order of the sends.

        Raises:
            UnknownTopicOrPartition, SchemaMismatch, IllegalState
            SerializationFailed: a serializer raised an error.
            The errors of ``flush``: a send to a full buffer flushes it first.

            A record that is refused before a flush is left out. The transaction stays open, and its commit succeeds
            without the record. With ``fail_on_send_error`` the transaction can only be aborted.
        """
        try:
            self._home.check("send()")
            if on_delivery is not None and not callable(on_delivery):
                raise InvalidRequest(
                    f"on_delivery must be a function of an error and a record, not {quoted(on_delivery)}"
                )
            # Serializers are the application's code. Run them before the call is entered and the record is added.
            if self._serializes:
                key = serialized(topic, "key", self._key_serializer, key)
                value = serialized(topic, "value", self._value_serializer, value)
            calls = self._calls
            exclusive = calls.exclusive
            call = Call("send()")
            try:
                try:
                    # The fast path: this call waits for nothing, so it needs no time limit and does not read a clock.
                    if exclusive.holder is None and exclusive.next_call is None:
                        exclusive.holder = call
                        target = self._admitted(topic)
                        if target is not None:
                            exit_flush.add(self)
                            future = self._sender.add_record(target, value, key, partition, headers, timestamp)
                            if on_delivery is not None or self._background is not None:
                                self._added(future, on_delivery)
                            return future
                finally:
                    if calls.is_to_be_closed:
                        calls.end(call)
            finally:
                # The statements of exclusive.leave(call).
                call.has_left = True
                if (call.step is None or call.step.has_ended or not call.step.has_begun) and exclusive.holder is call:
                    exclusive.holder = None
                if exclusive.waiting and exclusive.holder is None:
                    exclusive.wake()
            return self._send(topic, value, key, partition, headers, timestamp, on_delivery)
        except EosLogError as error:
            self._fail_if_refused(error)
            raise

    def _fail_if_refused(self, error: EosLogError) -> None:
        """Fail the transaction if ``send`` or ``send_table`` has refused a record, and the option asks for it."""
        is_refusal = isinstance(error, FatalError) and not isinstance(error, IllegalState | ConcurrentAccess)
        if self._fails_on_send_error and is_refusal:
            self._fail_transaction(error)

    @producer_call
    def _fail_transaction(self, error: EosLogError) -> None:
        if self._lifecycle.phase is ProducerPhase.IN_TRANSACTION:
            self._calls.exclusive.run(lambda: self._fail(error))
            self._log_phase()
            self._tell()

    @producer_call
    def _send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        headers: Sequence[tuple[str, bytes | None]] | None,
        timestamp: int | None,
        on_delivery: DeliveryCallback | None,
    ) -> Future[RecordMetadata]:
        target = self._admit(topic, "send()")
        exit_flush.add(self)
        future = self._sender.add_record(target, value, key, partition, headers, timestamp)
        self._added(future, on_delivery)
        return future

    def _added(self, future: RecordFuture, on_delivery: DeliveryCallback | None) -> None:
        """Register the callback of an added record, and start the thread of the background flush."""
        if on_delivery is not None:
            future.call_on_delivery(on_delivery)
        self._start_background()

    def _start_background(self) -> None:
        """Start the thread of the background flush, unless it runs."""
        if self._background is not None and self._background.needs_start:
            start = self._background.start
            # A step: an interrupt half way would leave the rows without a thread. Some environments have no threads.
            # They run the work of the thread here, so a further call is allowed.
            self._calls.exclusive.call_back(lambda: self._calls.exclusive.run(start))

    def send_table(self, topic: str, table: ArrowStream | pa.RecordBatch) -> None:
        """Send rows as Arrow. The next flush writes them, at the latest the commit.

        The rows are a ``pyarrow.Table``, or any object with Arrow's stream interface: a data frame of pandas or Polars,
        a DuckDB relation, a scan of another topic. A stream is read once, into memory. A pandas index
        becomes a column if it has a name.

        A topic of Kafka records takes the columns ``key``, ``value``, ``headers``, ``timestamp`` and ``partition``; all
        but ``value`` may be absent. The columns ``topic``, ``offset`` and ``timestampType`` of a scan are left out, so
        ``send_table(topic, store.scan(other))`` sends each record to its partition. A topic of columns takes its own
        columns, and optionally ``_partition``.

        Raises:
            UnknownTopicOrPartition, SchemaMismatch, IllegalState
            The errors of ``flush``: a send to a full buffer flushes it first.

            Rows that are refused before a flush are left out, all of them. The transaction stays open, and its commit
            succeeds without them. With ``fail_on_send_error`` the transaction can only be aborted.
        """
        try:
            self._send_table(topic, table)
        except EosLogError as error:
            self._fail_if_refused(error)
            raise

    @producer_call
    def _send_table(self, topic: str, table: ArrowStream | pa.RecordBatch) -> None:
        target = self._admit(topic, "send_table()")
        rows = rows_of(target, table)
        tables = self._limits.repeat(lambda: self._sender.rows_by_partition(target, rows))
        exit_flush.add(self)
        self._guarded(lambda: self._sender.add_tables(target, tables))
        self._start_background()

    def _admit(self, topic: str, call: str) -> Topic:
        """Check that the producer takes rows now, make room for them, and return their topic."""
        self._check_sendable(call)
        if self._sender.needs_room:
            # Make room before the rows are added: if this fails, the call has added nothing.
            self._deliver(self._sender.make_room)
        known = self._sender.known_topic(topic)
        return known or self._calls.exclusive.run(lambda: self._limits.repeat(lambda: self._sender.find_topic(topic)))

    def _admitted(self, topic: str) -> Topic | None:
        """Return the topic if it is known and rows can be added without any other step; otherwise None."""
        calls = self._calls
        if calls.is_to_be_closed or calls.unreported is not None or self._lifecycle.phase is not self._phase_of_sends:
            return None
        return None if self._sender.needs_room else self._sender.known_topic(topic)

    @producer_call
    def flush(self, timeout: float | None = None) -> None:
        """Write all rows sent so far. Eager rows get their offsets now; staged rows are uploaded.

        Args:
            timeout: how long this call tries (s), in place of ``max_block_ms``; negative: no limit.

        Raises:
            RequestTimedOut: the time is over. Call it again; nothing is written twice.
            DeliveryTimedOut: rows have waited for ``delivery_timeout_ms``, and the producer gives them up.
            IllegalState: the producer is closed.
            The error with which the background flush (``linger_ms``) gave up earlier rows without a transaction. The
                remaining rows are written before it is raised.
            AbortableError, ApplicationRecoverableError, FatalError

            After any of these except ``RequestTimedOut``, the producer drops the rows that it has not yet written, and
            their futures fail. A transaction must be aborted then. A producer without transactions continues with the
            next rows, unless the error is final for the producer: then each later call raises it again.
        """
        self._flush()

    def _flush(self) -> None:
        if self._lifecycle.phase is not self._phase_of_sends:
            self._lifecycle.check_not_closed("flush()")
            if self.transactional_id is None:
                # Each call raises the error that ended the producer, so none is left to report.
                self._calls.unreported = None
                self._lifecycle.check_not_fatal()
            elif self._lifecycle.has_failed or self._lifecycle.phase is ProducerPhase.ABORTING:
                # As in Kafka, the commit raises the error of a failed transaction; a flush does not.
                return
        self._flush_rows()
        self._calls.raise_unreported()

    def _flush_rows(self) -> None:
        self._deliver(self._sender.flush)
        if self.transactional_id is None and not self._sender.has_waiting_rows:
            # A callback may have sent rows during the flush: then they wait for the exit flush. A transactional
            # producer stays registered, because its flushed rows are lost unless the transaction commits.
            exit_flush.discard(self)

    def _flush_watched_rows(self) -> None:
        """Flush before the transaction is ended if callbacks wait for its rows: they may send further rows into it."""
        if self._sender.is_watched:
            self._flush_rows()

    def _flush_in_background(self, call: Call) -> bool:
        """Write the waiting rows. Return True if rows still wait. The next call raises an error of this flush."""
        # In other phases a call of the user writes the rows, or has given them up.
        has_rows = self._lifecycle.phase is self._phase_of_sends and self._sender.has_waiting_rows
        if not self._home.is_this or not (has_rows or self._sender.has_untold):
            return False
        try:
            self._home.check(call.name)
            self._calls.begin(call, self._limits.max_block_ms, self._store.environment.monotonic_ms())
            if has_rows:
                self._flush_rows()
            else:
                # The call that wrote the rows was interrupted before it completed their futures.
                self._tell()
        except OpenedBeforeFork:
            # A callback has forked the process, and this is the child.
            return False
        except EosLogError as error:
            self._log.background_flush_failed(error)
        finally:
            self._calls.end(call)
        return self._lifecycle.phase is self._phase_of_sends and self._sender.has_waiting_rows

    @producer_call
    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        group: str | GroupMetadata,
        timeout: float | None = None,
    ) -> None:
        """Commit a consumer group's offsets with the transaction (KIP-447).

        Args:
            offsets: the next offset to read, by partition.
            group: the group's id, or ``consumer.group_metadata()``. With the metadata, the commit is refused if a
                partition has moved to another member since. With the id alone it is not refused, and a warning in the
                log says so if the group has members.
            timeout: the time limit of this call (s), as for ``flush``.

        Raises:
            IllegalState, UnknownTopicOrPartition
            InvalidRequest: an offset is negative, or no group is given.
            TransactionAbortable: the transaction has failed and must be aborted.
        """
        self._need_transactional("send_offsets_to_transaction()")
        self._lifecycle.check_not_abortable()
        self._lifecycle.check_in_transaction("send_offsets_to_transaction()")
        metadata = checked_group(group)
        given = offsets_given(offsets)
        if not given:
            return
        added = self._limits.repeat(
            lambda: self._store.read(lambda state, slot: group_offsets(state, given, metadata), refresh=False)
        )
        self._requests.add_offsets(added)

    @producer_call
    def prepare_transaction(self) -> str:
        """Flush, then prepare the transaction: the first phase of a two-phase commit (KIP-939).

        Every check that could refuse the commit is made now. The prepared transaction takes no more rows, outlives this
        producer, and can be completed within ``prepared_timeout_ms``. A later producer takes it over with
        ``init_transactions(keep_prepared=True)``.

        Returns:
            The transaction's name, ``producer_id:epoch``. Store it with the decision to commit. No other transaction
            ever has the same name.

        Raises:
            RequestTimedOut: ``max_block_ms`` is over, and the outcome may be unknown. Repeat this call; no other call
                is allowed.
            AbortableError: abort the transaction. It is not prepared and never will be.
            ApplicationRecoverableError: close this producer.
        """
        self._need_transactional("prepare_transaction()")
        self._calls.check_not_repeated()
        if (outcome := self._untold("prepare_transaction()")) is not None:
            return str(outcome.answer)
        self._lifecycle.check_not_abortable()
        self._enter(ProducerPhase.PREPARING, "prepare_transaction()")
        self._flush_watched_rows()

        def prepare() -> str:
            self._sender.flush()
            # The prepared transaction may commit long after the slots of its prepare were deleted.
            self._sender.upload_staged()
            content = self._sender.staged_content(self._open_for_ms())
            self._requests.prepare(content)
            self._sender.count_sent(content.batches)
            self._store.environment.reached("client.producer.prepared")
            self._forget()
            self._lifecycle.arrive(ProducerPhase.PREPARED)
            prepared = self.prepared_transaction or ""
            self._calls.settled(prepared)
            return prepared

        return self._guarded(prepare)

    @producer_call
    def complete_transaction(self, prepared: str) -> None:
        """Commit the prepared transaction if ``prepared`` is its name; otherwise abort it (KIP-939).

        Args:
            prepared: the name of the transaction that the application last decided to commit, as
                ``prepare_transaction`` returned it. Give the empty string if there is none.

        Raises:
            InvalidRequest: ``prepared`` is not a name that ``prepare_transaction`` returns.
            IllegalState: no transaction is prepared.
            The errors of ``commit_transaction`` and ``abort_transaction``. After an error of the object store such as
            ``StoreAccessDenied`` the transaction stays prepared: call it again.
        """
        self._need_transactional("complete_transaction()")
        decided = parse_prepared_state(prepared)
        if self._untold("complete_transaction()", decided) is not None:
            return
        try:
            self._lifecycle.check_prepared(self._requests.prepared is not None)
        except IllegalState as error:
            raise self._calls.explained(error) from None
        if decided == self._requests.prepared:
            self._commit(None, decided)
        else:
            self._abort(decided)

    @producer_call
    def commit_transaction(
        self, timeout: float | None = None, *, application_id: str | None = None, version: int | None = None
    ) -> bool:
        """Flush, then commit the transaction's rows and group offsets in one step.

        A prepared transaction is committed as it is.

        Args:
            timeout: the time limit of this call (s), as for ``flush``.
            application_id: the application that ``version`` belongs to; the transactional id if None.
            version: the application's own number of this work. It is committed with the transaction, and must rise from
                commit to commit. A version at or below the largest committed one is a replay: then the transaction is
                aborted, and neither its rows nor its group offsets are committed again. ``admin.last_committed``
                returns the largest committed version.

        Returns:
            True if this transaction is committed; False if its version was committed before.

        Raises:
            InvalidRequest: ``application_id`` is given without ``version``, or ``version`` is not a whole number of 0
                or more.
            IllegalState: the transaction is prepared and a version is given; or this call repeats a commit that had
                another version.
            RequestTimedOut: ``max_block_ms`` is over, and the outcome may be unknown. Repeat this call; no other call
                is allowed.
            AbortableError: abort the transaction. It is not committed and never will be.
            ApplicationRecoverableError: close this producer.
        """
        self._need_transactional("commit_transaction()")
        self._calls.check_not_repeated()
        if (outcome := self._untold("commit_transaction()", (application_id, version))) is not None:
            return bool(outcome.answer)
        self._lifecycle.check_not_abortable()
        return self._commit(self._application_version(application_id, version), (application_id, version))

    def _commit(self, work: ApplicationVersion | None, arguments: object) -> bool:
        """Commit the transaction.

        Args:
            arguments: the arguments of the user's call. If it is interrupted, a call with the same ones gets the
                answer.
        """
        self._enter(ProducerPhase.COMMITTING, "commit_transaction()")
        self._committing = (work,)
        self._flush_watched_rows()
        was_prepared = self._requests.prepared is not None

        def commit() -> tuple[bool, CommitSummary | None]:
            self._sender.flush()
            content = self._sender.staged_content(self._open_for_ms())
            holds = self._sender.has_appended or content.batches or self._requests.has_offsets or work is not None
            committed = True
            summary: CommitSummary | None = None
            if holds or was_prepared:
                summary = content.summary
                committed = self._requests.commit(replace(content, application_version=work))
                self._sender.count_sent(content.batches if committed else ())
            self._forget()
            self._span.end("committed" if committed else "replayed")
            self._lifecycle.arrive(ProducerPhase.READY)
            self._calls.settled(committed, arguments)
            return committed, summary

        committed, summary = self._guarded(commit)
        if not committed:
            self._log.replayed()
        elif summary is not None:
            self._log.committed(None if was_prepared else summary)
        return committed

    def _open_for_ms(self) -> int:
        """Return the time since this producer began the transaction (ms)."""
        return self._store.environment.monotonic_ms() - self._began_ms

    def _application_version(self, application_id: str | None, version: int | None) -> ApplicationVersion | None:
        """Return the application version to commit; None if the caller gave none."""
        if version is None and application_id is not None:
            raise InvalidRequest(f"application_id {quoted(application_id)} is given without a version. Give both")
        if version is not None and (type(version) is not int or not 0 <= version < 2**63):
            raise InvalidRequest(f"version {quoted(version)} is invalid; it must be a whole number, 0 or more")
        work = None
        if version is not None:
            named = (self.transactional_id or "") if application_id is None else application_id
            check_id("application id", named)
            work = ApplicationVersion(application_id=named, sink="*", version=version)
        if work is not None and self._requests.prepared is not None:
            raise IllegalState("a prepared transaction takes no version. Commit it without one")
        if self._committing not in (None, (work,)):
            raise IllegalState(
                "the unanswered commit had another application id or version. Repeat it with the same ones"
            )
        return work

    @producer_call
    def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the transaction: ``read_committed`` never shows any of its rows.

        Args:
            timeout: the time limit of this call (s), as for ``flush``.

        Raises:
            RequestTimedOut: ``max_block_ms`` is over. Repeat this call; no other call is allowed.
            ApplicationRecoverableError: close this producer.
        """
        self._need_transactional("abort_transaction()")
        self._calls.check_not_repeated()
        if self._untold("abort_transaction()") is not None:
            return
        self._abort()

    def _abort(self, arguments: object = None) -> None:
        self._enter(ProducerPhase.ABORTING, "abort_transaction()")
        # The log may know the transaction only if a request of this producer may have landed. Otherwise there is
        # nothing to end.
        is_known = self._sender.may_have_appended or self._requests.may_be_known

        def abort() -> None:
            self._sender.fail(TransactionAborted("the transaction was aborted before this record was written"))
            if is_known:
                self._requests.abort()
            self._forget()
            self._span.end("aborted")
            self._lifecycle.arrive(ProducerPhase.READY)
            self._calls.settled(None, arguments)

        self._guarded(abort)
        if is_known:
            self._log.aborted()

    def _enter(self, phase: ProducerPhase, call: str) -> None:
        """Enter the phase of a call that ends the transaction.

        Raises:
            IllegalState: the call is not allowed. The message says if an interrupted call has ended the transaction.
        """
        try:
            self._lifecycle.enter(phase, call)
        except IllegalState as error:
            raise self._calls.explained(error) from None
        self._log_phase()

    def close(self, timeout: float | None = None) -> None:
        """Flush and close. An open transaction is aborted, unless it is prepared.

        The producer is closed afterwards, also if this call raises an error of eoslog. If an interrupt ends this call,
        repeat it.

        Args:
            timeout: give up after this time (s); ``max_block_ms`` if None. With 0 nothing is written. A call of another
                thread that does not end in time is cut short.

        Raises:
            DeliveryTimedOut: rows without a transaction were not acknowledged in time.
            RequestTimedOut: the open transaction could not be aborted in time. Its own timeout ends it.
            AbortableError, ApplicationRecoverableError, FatalError: the remaining rows could not be written.
        """
        longest_ms = self._limits.max_block_ms if timeout is None else checked_timeout(timeout) * 1000
        timeout_ms = int(max(0, min(longest_ms, LONGEST_WAIT_MS)))
        if self._background is None or not self._home.is_this:
            self._calls.close(timeout_ms, self._finish)
            return
        ends_ms = self._store.environment.monotonic_ms() + timeout_ms
        # A refused call changes nothing.
        self._calls.exclusive.check_may_nest(Call("close()"))
        self._background.stop()
        try:
            cut = self._calls.close(timeout_ms, self._finish)
        finally:
            self._background.join(max(0, ends_ms - self._store.environment.monotonic_ms()))
        if cut == BACKGROUND_FLUSH and timeout_ms > 0:
            # A user's call that is cut short raises an error itself. The background flush has no caller, so close()
            # must report that it did not end.
            if self.transactional_id is None:
                raise DeliveryTimedOut(
                    f"the producer was closed after {timeout_ms} ms, before its rows were acknowledged; some may have "
                    "been written, or be written later"
                )
            raise RequestTimedOut(
                f"the producer was closed after {timeout_ms} ms, before its transaction was aborted. The transaction's "
                "own timeout ends it"
            )

    def _flush_at_exit(self, timeout_ms: int) -> None:
        """Flush at interpreter exit if the producer has no transactional id. Never raises."""
        if self.transactional_id is None and self._home.is_this:
            try:
                # No close(): other threads of the program may still write.
                self._calls.at_exit(timeout_ms, self._flush)
            except Exception as error:  # the exit must continue, whatever fails here
                self._log.exit_flush_failed(error)

    def _warn_at_exit(self) -> None:
        """Warn of the rows that are lost at interpreter exit."""
        if self._home.is_this:
            rows = self._sender.waiting_rows if self.transactional_id is None else self._sender.transaction_rows
            if rows:
                self._log.rows_lost_at_exit(rows)

    def _finish(self) -> None:
        phase = self._lifecycle.phase
        if phase in (ProducerPhase.IN_TRANSACTION, ProducerPhase.ABORTABLE_ERROR, ProducerPhase.ABORTING):
            self._abort()
        elif phase is ProducerPhase.FATAL_ERROR:
            # No call has raised it yet if the background flush met it.
            self._calls.raise_unreported()
        elif self.transactional_id is None and phase is not ProducerPhase.CLOSED:
            try:
                self._flush()
            except RetriableError as error:
                given_up = DeliveryTimedOut(
                    f"the producer was closed before its rows were acknowledged; some may have been written: {error}"
                )
                self._sender.fail(given_up)
                raise given_up from error

    def _shut(self) -> None:
        def shut() -> None:
            self._sender.fail(TransactionAborted("the producer was closed before this record was acknowledged"))
            self._forget()
            self._span.end("open" if self._requests.prepared is None else "prepared")
            self._lifecycle.arrive(ProducerPhase.CLOSED)

        self._calls.exclusive.run(shut)
        self._log_phase()
        self._tell()

    def _untold(self, name: str, arguments: object = None) -> CallOutcome | None:
        """Return the outcome of an interrupted call that the running call repeats; None if there is none.

        The futures that the interrupted call did not complete are completed first.
        """
        outcome = self._calls.untold(name, arguments)
        if outcome is not None:
            self._tell()
        return outcome

    def _tell(self) -> None:
        """Complete the futures of rows whose outcome is known, and call their callbacks."""
        call = self._calls.exclusive.holder
        assert call is not None
        self._sender.tell(call)

    def _need_transactional(self, call: str) -> None:
        if self.transactional_id is None:
            raise IllegalState(f"{call} needs a producer with a transactional id")
        self._lifecycle.check_not_fatal()

    def _check_sendable(self, call: str) -> None:
        self._calls.raise_unreported()
        if self._lifecycle.phase is self._phase_of_sends:
            return
        # Report the most serious problem first.
        if self.transactional_id is None:
            self._lifecycle.check_not_closed(call)
            self._lifecycle.check_not_fatal()
            return
        self._lifecycle.check_not_fatal()
        self._lifecycle.check_not_abortable()
        self._lifecycle.check_in_transaction(call)

    def _deliver(self, step: Callable[[], None]) -> None:
        """Run a step that may write rows, and complete their futures."""
        self._guarded(step)
        # A callback of a written row may have forked. The child must not continue this call.
        self._home.check("this call")

    def _guarded(self, step: Callable[[], T]) -> T:
        """Run a step to its end, and repeat it after retriable errors. Any other error fails the futures, too.

        The step calls no code of the application. Afterwards, callbacks of rows run in this thread. A handler of the
        log is such code, too.
        """
        before = self._lifecycle.phase
        try:
            answer = self._calls.exclusive.run(partial(self._repeated, step))
        except EosLogError as error:
            self._log_phase()
            if self._lifecycle.has_failed and self._lifecycle.phase is not before:
                self._log.failed(error, is_fatal=self._lifecycle.phase is ProducerPhase.FATAL_ERROR)
            self._tell()
            raise
        self._log_phase()
        self._tell()
        return answer

    def _log_phase(self) -> None:
        phase, before = self._lifecycle.phase, self._logged_phase
        if phase is before:
            return
        self._logged_phase = phase
        self._log.phase_changed(before, phase)

    def _repeated(self, step: Callable[[], T]) -> T:
        try:
            return self._limits.repeat(step)
        except RetriableError:
            raise
        except EosLogError as error:
            # The caller and the futures get this error now. So the exit need not warn about these rows.
            exit_flush.discard(self)
            if self.transactional_id is None:
                self._calls.gave_up(error)
            if self.transactional_id is None and not ends_the_producer(error):
                # Without a transaction only the rows of this flush are lost. The producer continues with later rows.
                self._sender.give_up(error)
            else:
                self._fail(error)
            raise

    def _fail(self, error: EosLogError) -> None:
        """Fail the transaction, or the producer, with an error. The futures of its waiting rows fail, too."""
        self._lifecycle.fail(error, holds_prepared=self._requests.prepared is not None)
        self._span.fail(error)
        if self._lifecycle.phase is ProducerPhase.FATAL_ERROR:
            self._describe_span()
            self._span.end("failed")
        self._sender.fail(error)
