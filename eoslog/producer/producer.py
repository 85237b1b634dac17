"""The producer: idempotent always, transactional with a transactional id (Kafka's ``KafkaProducer``).

Eager by default, as Kafka's: a flush gives rows their offsets, and the transaction's end settles them. Staged: rows are
uploaded, and get their offsets in the slot that commits them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import NoReturn, TypeVar

import pyarrow as pa

from eoslog.errors import (
    DeliveryTimedOut,
    EosLogError,
    IllegalState,
    InvalidRequest,
    RetriableError,
    TransactionAborted,
    quoted,
)
from eoslog.format.file_writer import DEFAULT_BUFFER_BYTES
from eoslog.producer import exit_flush
from eoslog.producer.producer_calls import ProducerCalls, ProducerLifecycle, ProducerPhase, ends_the_producer
from eoslog.producer.sender import Sender
from eoslog.producer.transaction_manager import TransactionManager
from eoslog.session.group_metadata import GroupMetadata, checked_group, group_offsets
from eoslog.session.idempotent_append import IdempotentAppend
from eoslog.session.metrics import CallTimes
from eoslog.session.positions import OffsetAndMetadata, RecordMetadata
from eoslog.session.session import Session
from eoslog.session.time_limits import DEFAULT_DELIVERY_TIMEOUT_MS, DEFAULT_MAX_BLOCK_MS, LONGEST_WAIT_MS, TimeLimits
from eoslog.state.names import TopicPartition, check_id
from eoslog.state.prepared import DEFAULT_PREPARED_TIMEOUT_MS, parse_prepared_state, prepared_state
from eoslog.state.store_state import Topic
from eoslog.state.transaction_entries import ApplicationToken
from eoslog.storage.process import HomeProcess, cannot_be_pickled

T = TypeVar("T")
_logger = logging.getLogger(__name__)


class Producer:
    """Writes records and tables. Threads may share it.

    A forked child must open its own producer: there each call that reaches the store raises ``OpenedBeforeFork``.

    Use it as a context manager: an open transaction is aborted on the way out of an exception. A prepared one stays.
    """

    def __init__(
        self,
        store: Session,
        transactional_id: str | None,
        *,
        transaction_timeout_ms: int,
        staged: bool = False,
        buffer_bytes: int | None = None,
        max_block_ms: int = DEFAULT_MAX_BLOCK_MS,
        delivery_timeout_ms: int = DEFAULT_DELIVERY_TIMEOUT_MS,
        prepared_timeout_ms: int | None = DEFAULT_PREPARED_TIMEOUT_MS,
    ) -> None:
        if transactional_id is not None:
            check_id("transactional id", transactional_id)
        elif staged:
            raise InvalidRequest("a staged producer needs a transactional id")
        self._store = store
        self.transactional_id = transactional_id
        self._call_times = CallTimes(within=store.call_times)
        self._limits = TimeLimits(store.environment, max_block_ms, delivery_timeout_ms)
        self._home = HomeProcess("producer")
        self._append = IdempotentAppend(store, self._home, self._limits.remaining_for_delivery_ms)
        self._requests = TransactionManager(
            store,
            self._append,
            transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            prepared_timeout_ms=prepared_timeout_ms,
        )
        self._lifecycle = ProducerLifecycle()
        self._phase_of_sends = ProducerPhase.UNINITIALIZED if transactional_id is None else ProducerPhase.IN_TRANSACTION
        """The only phase in which rows are taken in."""
        self._calls = ProducerCalls(self._home, store.environment, self._limits, self._call_times, self._shut)
        self._sender = Sender(
            store,
            self._append,
            self._requests,
            transactional_id,
            staged=staged,
            buffer_bytes=buffer_bytes or DEFAULT_BUFFER_BYTES,
            home=self._home,
        )
        self._forget()

    def _forget(self) -> None:
        """Drop everything that belongs to one transaction."""
        exit_flush.discard(self)
        self._committing: tuple[ApplicationToken | None] | None = None
        self._began_ms = self._store.environment.monotonic_ms()
        self._requests.forget()
        self._sender.forget()
        self._limits.end_delivery()
        self._append.forget()

    def __reduce__(self) -> NoReturn:
        raise cannot_be_pickled(self, "the store's URL, and open a producer there")

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close()
        except EosLogError as also:
            error.add_note(f"the producer could not be closed in order: {also}")

    @property
    def producer_id(self) -> int:
        """The producer id, -1 before ``init_transactions``."""
        return self._requests.identity.producer_id if self._requests.identity else -1

    @property
    def producer_epoch(self) -> int:
        """The current epoch; it rises with every transaction that ends. -1 before ``init_transactions``."""
        return self._requests.identity.producer_epoch if self._requests.identity else -1

    @property
    def prepared_transaction(self) -> str | None:
        """The prepared transaction that waits to be completed, as ``prepare_transaction`` named it; None if none does.

        After ``init_transactions(keep_prepared=True)`` that of an earlier producer.
        """
        return None if self._requests.prepared is None else prepared_state(self._requests.prepared)

    def init_transactions(self, keep_prepared: bool = False) -> None:
        """Take the transactional id over: abort what an earlier producer left open, and fence it.

        Args:
            keep_prepared: a prepared transaction is not aborted (KIP-939): ``prepared_transaction`` names it, and it
                must be completed before anything else. One that is open and not prepared is aborted all the same.

        Raises:
            IllegalState: the producer has no transactional id, or was initialised before.
            RequestTimedOut: call it again; until then no other call is allowed.
        """
        with self._calls.of("init_transactions()"):
            self._need_transactional("init_transactions()")
            self._lifecycle.enter(ProducerPhase.INITIALIZING, "init_transactions()")
            self._guarded(lambda: self._requests.initialise(keep_prepared=keep_prepared))
            kept = self._requests.prepared is not None
            self._lifecycle.arrive(ProducerPhase.PREPARED if kept else ProducerPhase.READY)

    def metrics(self) -> dict[str, int]:
        """How long this producer's calls took in all (ns), by Kafka's names, as ``txn-commit-time-ns-total``."""
        return self._call_times.totals()

    def begin_transaction(self) -> None:
        """Begin a transaction. Nothing is written before its first flush.

        Raises:
            IllegalState
            TransactionAbortable: the one before can only be aborted.
        """
        with self._calls.of("begin_transaction()"):
            self._need_transactional("begin_transaction()")
            self._lifecycle.check_not_abortable()
            self._lifecycle.enter(ProducerPhase.IN_TRANSACTION, "begin_transaction()")
            self._forget()

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
        timestamp: int | None = None,
    ) -> Future[RecordMetadata]:
        """Hand over a record; it is written by the next flush, at the latest by the commit.

        Args:
            partition: chosen by the key (Kafka's murmur2) if None.
            timestamp: ms since the epoch; the store's time if None.

        Returns:
            A future of where the record went, done after the flush, for which its ``result()`` waits. It cannot be
            cancelled; an abort of the transaction ends it with ``TransactionAborted``. Futures of a partition are done
            in the order of the sends.

        Raises:
            UnknownTopicOrPartition, SchemaMismatch, IllegalState, and what a full buffer's flush raises.
        """
        calls = self._calls
        self._home.check("send()")
        if calls.lock.acquire(False):
            # Nearly always there is nothing to wait for. Then the call needs no time limit, and no clock for it.
            try:
                target = self._admitted(topic)
                if target is not None:
                    self._check_sendable("send()")
                    exit_flush.add(self)
                    return self._sender.add_record(target, value, key, partition, headers, timestamp)
            finally:
                calls.release()
        with calls.of("send()"):
            target = self._admit(topic, "send()")
            exit_flush.add(self)
            return self._sender.add_record(target, value, key, partition, headers, timestamp)

    def send_table(self, topic: str, table: pa.Table | pa.RecordBatch) -> None:
        """Hand over rows as Arrow; see ``deal_out`` for the columns.

        Raises:
            UnknownTopicOrPartition, SchemaMismatch, IllegalState, and what a full buffer's flush raises.
        """
        with self._calls.of("send_table()"):
            target = self._admit(topic, "send_table()")
            tables = self._limits.repeat(lambda: self._sender.deal_out(target, table))
            exit_flush.add(self)
            self._guarded(lambda: self._sender.add_tables(target, tables))

    def _admit(self, topic: str, call: str) -> Topic:
        """Whether more may be handed over, room for it, and the topic that it goes to."""
        self._check_sendable(call)
        if self._sender.needs_room:
            # Before more is taken in: so a call that fails has taken in nothing.
            self._deliver(self._sender.make_room)
        return self._sender.topics.get(topic) or self._limits.repeat(lambda: self._sender.find_topic(topic))

    def _admitted(self, topic: str) -> Topic | None:
        """The topic if it is known, and nothing is to be done before it is handed more; else None."""
        if self._calls.is_to_be_closed or self._sender.needs_room:
            return None
        return self._sender.topics.get(topic)

    def flush(self) -> None:
        """Write everything handed over. Eager rows get their offsets now; staged ones are uploaded.

        Raises:
            RequestTimedOut: ``max_block_ms`` is over. Call it again; nothing is written twice.
            DeliveryTimedOut: rows have waited for ``delivery_timeout_ms`` and are given up.
            IllegalState: the producer is closed.
            AbortableError, ApplicationRecoverableError, FatalError

            After one of them nothing that was handed over so far is written any more, unless it was already; what waits
            for an offset is told so. A transaction must be aborted. Without one the producer goes on with what it is
            handed next, unless the error ends the producer: then each call raises it again.
        """
        with self._calls.of("flush()"):
            self._lifecycle.check_not_closed("flush()")
            if self.transactional_id is None:
                self._lifecycle.check_not_fatal()
            elif self._lifecycle.has_failed or self._lifecycle.phase is ProducerPhase.ABORTING:
                # Told by the commit, as every error of a transaction is.
                return
            self._deliver(self._sender.flush)
            if self.transactional_id is None and not self._sender.waiting_rows:
                # Rows wait if a callback sent them. The flushed rows of an open transaction may still be lost.
                exit_flush.discard(self)

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        group: str | GroupMetadata,
    ) -> None:
        """Commit a consumer group's offsets with the transaction (KIP-447).

        Args:
            offsets: the next offset to read, by partition.
            group: the group's id, or ``consumer.group_metadata()``: then a consumer that its group has left behind
                cannot commit.

        Raises:
            IllegalState, UnknownTopicOrPartition
            InvalidRequest: a negative offset, or no group.
            TransactionAbortable: the transaction can only be aborted.
        """
        with self._calls.of("send_offsets_to_transaction()"):
            self._need_transactional("send_offsets_to_transaction()")
            self._lifecycle.check_not_abortable()
            self._lifecycle.check_in_transaction("send_offsets_to_transaction()")
            metadata = checked_group(group)
            if not offsets:
                return
            added = self._limits.repeat(
                lambda: self._store.read(lambda state, slot: group_offsets(state, offsets, metadata), refresh=False)
            )
            self._requests.add_offsets(added)

    def prepare_transaction(self) -> str:
        """Flush, then prepare the transaction: the first phase of a two-phase commit (KIP-939).

        All that can refuse a commit is checked now. From here on the transaction takes no more, outlives this producer,
        and waits to be completed for ``prepared_timeout_ms``. A producer that is initialised with ``keep_prepared``
        goes on from here.

        Returns:
            The transaction's name, ``producer_id:epoch``. Store it with the decision to commit; no other transaction
            ever has it.

        Raises:
            RequestTimedOut: ``max_block_ms`` is over and the outcome may be unknown; call it again, and nothing else.
            AbortableError: abort the transaction. It is not prepared and never will be.
            ApplicationRecoverableError: close this producer.
        """
        with self._calls.of("prepare_transaction()"):
            self._need_transactional("prepare_transaction()")
            self._calls.check_not_repeated()
            self._lifecycle.check_not_abortable()
            self._lifecycle.enter(ProducerPhase.PREPARING, "prepare_transaction()")
            self.flush()
            staged = self._sender.staged_batches()
            summary = self._sender.numbers.summary(staged, self._open_for_ms())
            self._guarded(lambda: self._requests.prepare(staged, self._sender.upload_ms, summary))
            self._store.environment.reached("client.producer.prepared")
            self._forget()
            self._lifecycle.arrive(ProducerPhase.PREPARED)
            return self.prepared_transaction or ""

    def complete_transaction(self, prepared: str) -> None:
        """Commit the prepared transaction if this is its name, abort it if not (KIP-939).

        Args:
            prepared: what ``prepare_transaction`` returned for the transaction that was last decided to commit; the
                empty string if there is none.

        Raises:
            InvalidRequest: not a name that ``prepare_transaction`` gives.
            IllegalState: no transaction is prepared.
            What ``commit_transaction`` and ``abort_transaction`` raise. On an error of the store such as
            ``StoreAccessDenied`` the transaction stays prepared: call it again.
        """
        with self._calls.of("complete_transaction()"):
            self._need_transactional("complete_transaction()")
            decided = parse_prepared_state(prepared)
            self._lifecycle.check_prepared("complete_transaction()", self._requests.prepared is not None)
            if decided == self._requests.prepared:
                self.commit_transaction()
            else:
                self.abort_transaction()

    def commit_transaction(self, *, application_id: str | None = None, version: int | None = None) -> bool:
        """Flush, then end the transaction with everything it holds, in one step. A prepared one is ended as it is.

        Args:
            application_id, version: the application's own name of this work, committed with it. Versions of an
                application rise; one at or below the largest committed one is a replay: then the transaction is
                aborted, and nothing of it is committed again, group offsets neither. The application is the
                transactional id unless it is named. ``admin.last_committed`` reads them back.

        Returns:
            True if this transaction is committed; False if its version was committed before.

        Raises:
            InvalidRequest: an application without a version, or a version that is not a whole number from 0 on.
            IllegalState: a version for a prepared transaction, or another one than the call that is repeated had.
            RequestTimedOut: ``max_block_ms`` is over and the outcome may be unknown; call it again, and nothing else.
            AbortableError: abort the transaction. It is not committed and never will be.
            ApplicationRecoverableError: close this producer.
        """
        with self._calls.of("commit_transaction()"):
            self._need_transactional("commit_transaction()")
            self._calls.check_not_repeated()
            self._lifecycle.check_not_abortable()
            token = self._token(application_id, version)
            self._lifecycle.enter(ProducerPhase.COMMITTING, "commit_transaction()")
            self._committing = (token,)
            self.flush()
            staged = self._sender.staged_batches()
            holds = self._sender.has_appended or staged or self._requests.has_offsets or token is not None
            committed = True
            if holds or self._requests.prepared is not None:
                upload_ms = self._sender.upload_ms
                summary = self._sender.numbers.summary(staged, self._open_for_ms())
                committed = self._guarded(lambda: self._requests.end("commit", staged, upload_ms, token, summary))
            self._forget()
            self._lifecycle.arrive(ProducerPhase.READY)
            return committed

    def _open_for_ms(self) -> int:
        """How long ago the transaction was begun here."""
        return self._store.environment.monotonic_ms() - self._began_ms

    def _token(self, application_id: str | None, version: int | None) -> ApplicationToken | None:
        """What the application calls the work that is to be committed."""
        if version is None and application_id is not None:
            raise InvalidRequest(f"application {quoted(application_id)} is given without a version of its work")
        if version is not None and (type(version) is not int or not 0 <= version < 2**63):
            raise InvalidRequest(f"version {quoted(version)} is not a whole number from 0 on")
        token = None
        if version is not None:
            named = (self.transactional_id or "") if application_id is None else application_id
            check_id("application id", named)
            token = ApplicationToken(application_id=named, sink="*", version=version)
        if token is not None and self._requests.prepared is not None:
            raise IllegalState("a prepared transaction is committed as it is; it takes no version")
        if self._committing not in (None, (token,)):
            raise IllegalState("the commit that is repeated had another application id or version; give the same")
        return token

    def abort_transaction(self) -> None:
        """End the transaction so that none of its rows shows under read_committed.

        Raises:
            RequestTimedOut: ``max_block_ms`` is over; call it again, and nothing else.
            ApplicationRecoverableError: close this producer.
        """
        with self._calls.of("abort_transaction()"):
            self._need_transactional("abort_transaction()")
            self._calls.check_not_repeated()
            self._lifecycle.enter(ProducerPhase.ABORTING, "abort_transaction()")
            self._limits.end_delivery()
            self._sender.fail(TransactionAborted("the transaction was aborted before this record was written"))
            if self._sender.may_have_appended or self._requests.may_be_known:
                self._guarded(lambda: self._requests.end("abort"))
            self._forget()
            self._lifecycle.arrive(ProducerPhase.READY)

    def close(self, timeout: float | None = None) -> None:
        """Flush, and close. A transaction still open is aborted, unless it is prepared. However this ends, the producer
        is closed.

        Args:
            timeout: give up after so many seconds, ``max_block_ms`` if None; with 0 nothing is written. A call of
                another thread that does not end meanwhile is cut short.

        Raises:
            DeliveryTimedOut: rows without a transaction were not acknowledged in time.
            RequestTimedOut: the open transaction could not be aborted in time; its own time-out ends it.
            AbortableError, ApplicationRecoverableError, FatalError: what is left could not be written.
        """
        longest_ms = self._limits.max_block_ms if timeout is None else timeout * 1000
        timeout_ms = int(max(0, min(longest_ms, LONGEST_WAIT_MS)))
        self._calls.close(timeout_ms, self._finish)

    def _flush_at_exit(self, timeout_ms: int) -> None:
        """Flush at interpreter exit if the producer has no transactional id. Never raises."""
        if self.transactional_id is None and self._home.is_this:
            try:
                # No close(): other threads of the program may still write.
                self._calls.at_exit(timeout_ms, self.flush)
            except Exception as error:  # the exit must continue, whatever fails here
                _logger.info("%s: the flush at exit failed: %s", self._store.url, error)

    def _warn_at_exit(self) -> None:
        """Log how many rows are lost at interpreter exit."""
        if not self._home.is_this:
            return
        rows = self._sender.waiting_rows
        if self.transactional_id is not None:
            rows += self._sender.numbers.rows
            why = f"The transaction of {self.transactional_id!r} was not committed: call commit_transaction()"
        else:
            why = "They were not acknowledged: call flush() or close()"
        if rows:
            _logger.warning("%s: the process exits, rows lost: %d. %s before the exit.", self._store.url, rows, why)

    def _finish(self) -> None:
        phase = self._lifecycle.phase
        if phase in (ProducerPhase.IN_TRANSACTION, ProducerPhase.ABORTABLE_ERROR):
            self.abort_transaction()
        elif self.transactional_id is None and phase not in (ProducerPhase.CLOSED, ProducerPhase.FATAL_ERROR):
            try:
                self.flush()
            except RetriableError as error:
                given_up = DeliveryTimedOut(
                    f"the producer was closed before its rows were acknowledged; some may have been written: {error}"
                )
                self._sender.fail(given_up)
                raise given_up from error

    def _shut(self) -> None:
        self._lifecycle.arrive(ProducerPhase.CLOSED)
        self._sender.fail(TransactionAborted("the producer was closed before this record was acknowledged"))
        self._forget()

    def _need_transactional(self, call: str) -> None:
        if self.transactional_id is None:
            raise IllegalState(f"{call} needs a producer with a transactional id")
        self._lifecycle.check_not_fatal()

    def _check_sendable(self, call: str) -> None:
        if self._lifecycle.phase is self._phase_of_sends:
            return
        # What is wrong, in the order of what the caller should know first.
        if self.transactional_id is None:
            self._lifecycle.check_not_closed(call)
            self._lifecycle.check_not_fatal()
            return
        self._lifecycle.check_not_fatal()
        self._lifecycle.check_not_abortable()
        self._lifecycle.check_in_transaction(call)

    def _deliver(self, step: Callable[[], None]) -> None:
        """Take a step that rows wait for."""
        self._limits.begin_delivery()
        self._guarded(step)
        self._limits.end_delivery()
        # A callback of a row that was written may have forked. The child must not go on with this call.
        self._home.check("this call")

    def _guarded(self, step: Callable[[], T]) -> T:
        """Take a step, repeatedly if need be. What that does not overcome is remembered, and told to those who wait."""
        try:
            return self._limits.repeat(step)
        except RetriableError:
            raise
        except EosLogError as error:
            # Its caller and the futures are told now. The exit need not tell it again.
            exit_flush.discard(self)
            if self.transactional_id is None and not ends_the_producer(error):
                self._limits.end_delivery()
                self._append.forget()
                self._sender.give_up(error)
            else:
                self._lifecycle.fail(error, holds_prepared=self._requests.prepared is not None)
                self._sender.fail(error)
            raise
