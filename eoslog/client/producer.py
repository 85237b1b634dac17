"""The producer: idempotent always, transactional with a transactional id (Kafka's ``KafkaProducer``).

Eager by default, as Kafka's: a flush gives rows their offsets, and the transaction's end settles them. Staged: rows are
uploaded, and get their offsets in the slot that commits them.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice, repeat
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from eoslog.client.group import GroupMetadata, group_offsets
from eoslog.client.positions import OffsetAndMetadata, RecordMetadata
from eoslog.client.producer_state import ProducerPhase, check_in_transaction, check_not_closed, check_transition
from eoslog.client.rows import check_partition, deal_out, partition_of_key, record_row, records_table
from eoslog.client.timeouts import add_timed_out
from eoslog.errors import (
    ApplicationRecoverableError,
    CorruptRecord,
    EosLogError,
    IllegalState,
    InvalidEntry,
    InvalidRequest,
    InvalidTxnState,
    RetriableError,
    TransactionAbortable,
    TransactionAborted,
    UnsupportedFormat,
)
from eoslog.rules.coordinator import append_batch, end_request, end_transaction, initialise
from eoslog.rules.draft import Draft
from eoslog.rules.entries import BatchAppended, FileReference, GroupOffsets, StagedBatch
from eoslog.rules.names import PartitionId, TopicPartition, check_id
from eoslog.rules.partitions import topic_of
from eoslog.rules.producer_ids import ProducerIdentity, check_timeout
from eoslog.rules.sequences import DuplicateBatch, sequence_after
from eoslog.rules.state import NO_OFFSET, StoreState, Topic
from eoslog.rules.topics import topic_named
from eoslog.segment.writer import DEFAULT_BUFFER_BYTES, DataFileWriter, TopicTarget, WrittenFile

if TYPE_CHECKING:
    from eoslog.client.store import Store

T = TypeVar("T")
_RECORD_OVERHEAD_BYTES = 64
_ROWS_A_BUFFER = 10_000
_OLDEST_DATE_MS = 3_600_000


Waiting = Future[RecordMetadata] | int
"""Who waits for the offsets of a partition's rows, in their order: the future of one record, or so many rows for whom
nobody waits."""

_PRODUCER_IS_DONE = (ApplicationRecoverableError, InvalidTxnState, CorruptRecord, UnsupportedFormat, InvalidEntry)
"""After these an abort leads nowhere either. Whatever else is refused ends only the transaction."""


@dataclass(slots=True)
class _Rows:
    """Records of one partition that are not yet encoded, and what waits for their offsets."""

    topic: Topic
    rows: list[dict[str, Any]] = field(default_factory=list)
    futures: list[Waiting] = field(default_factory=list)


@dataclass(slots=True)
class _Unacknowledged:
    """Batches that were uploaded and whose append has no answer yet. They are appended again, and recognised."""

    batches: list[BatchAppended]
    futures: dict[tuple[str, int], list[Waiting]]


class Producer:
    """Writes records and tables. Safe to share between threads; not to be used after a fork.

    Use it as a context manager: an open transaction is aborted on the way out of an exception.
    """

    def __init__(
        self,
        store: Store,
        transactional_id: str | None,
        *,
        transaction_timeout_ms: int,
        staged: bool = False,
        buffer_bytes: int | None = None,
    ) -> None:
        check_timeout(transaction_timeout_ms)
        if transactional_id is not None:
            check_id("transactional id", transactional_id)
        elif staged:
            raise InvalidRequest("a staged producer needs a transactional id")
        self._store = store
        self.transactional_id = transactional_id
        self._timeout_ms = transaction_timeout_ms
        self._staged = staged
        self._limit = buffer_bytes or DEFAULT_BUFFER_BYTES
        self._writer = DataFileWriter(store.object_store, store.environment.new_token, buffer_bytes=self._limit // 2)
        self._lock = threading.RLock()
        self._phase = ProducerPhase.UNINITIALIZED
        self._identity: ProducerIdentity | None = None
        self._error: EosLogError | None = None
        self._sticky = int(store.environment.jitter() * 1_000_003)
        self._forget()

    def _forget(self) -> None:
        """Drop everything that belongs to one transaction. A topic may be another by the next."""
        self._topics: dict[str, Topic] = {}
        self._rows: dict[tuple[str, int], _Rows] = {}
        self._row_bytes = 0
        self._futures: dict[tuple[str, int], list[Waiting]] = defaultdict(list)
        self._written: list[WrittenFile] = []
        self._upload_ms: int | None = None
        self._unacknowledged: _Unacknowledged | None = None
        self._sequences: dict[PartitionId, int] = {}
        self._began = False
        self._offsets: dict[str, GroupOffsets] = {}
        self._writer.discard()

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
            self._fail_futures(also)
            self._phase = ProducerPhase.CLOSED

    @property
    def producer_id(self) -> int:
        """The producer id, -1 before ``init_transactions``."""
        return self._identity.producer_id if self._identity else -1

    @property
    def producer_epoch(self) -> int:
        """The current epoch; it rises with every transaction that ends. -1 before ``init_transactions``."""
        return self._identity.producer_epoch if self._identity else -1

    def init_transactions(self) -> None:
        """Take the transactional id over: abort what an earlier producer left open, and fence it.

        Raises:
            IllegalState: the producer has no transactional id, or was initialised before.
            InvalidTransactionTimeout, RetriableError
        """
        with self._lock:
            if self.transactional_id is None:
                raise IllegalState("init_transactions() needs a producer with a transactional id")
            self._enter(ProducerPhase.INITIALIZING, "init_transactions()")
            self._initialise()
            self._phase = ProducerPhase.READY

    def _initialise(self) -> ProducerIdentity:
        now_ms = self._now_ms()

        def propose(draft: Draft) -> ProducerIdentity:
            identity = initialise(draft, self.transactional_id, timeout_ms=self._timeout_ms, time_ms=now_ms)
            add_timed_out(draft, now_ms)
            return identity

        self._identity = self._guarded(lambda: self._store.append(propose))
        return self._identity

    def begin_transaction(self) -> None:
        """Begin a transaction. Nothing is written before its first flush.

        Raises:
            IllegalState
        """
        with self._lock:
            self._need_transactional("begin_transaction()")
            self._enter(ProducerPhase.IN_TRANSACTION, "begin_transaction()")
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
            A future of where the record went, done after the flush. It cannot be cancelled; an abort of the transaction
            ends it with ``TransactionAborted``.

        Raises:
            UnknownTopicOrPartition, SchemaMismatch, IllegalState, and what a full buffer's flush raises.
        """
        with self._lock:
            self._check_sendable("send()")
            self._make_room()
            target = self._topic(topic)
            when = self._now_ms() if timestamp is None else timestamp
            row = record_row(target, key, value, headers, when)
            place = (
                partition_of_key(target, key, self._sticky % target.partitions)
                if partition is None
                else check_partition(target, partition)
            )
            rows = self._rows.setdefault((target.topic_id, place), _Rows(target))
            future: Future[RecordMetadata] = Future()
            future.set_running_or_notify_cancel()
            rows.rows.append(row)
            rows.futures.append(future)
            self._row_bytes += len(key or b"") + len(value or b"") + _RECORD_OVERHEAD_BYTES
            if len(rows.rows) >= _ROWS_A_BUFFER:
                self._encode_rows()
            return future

    def send_table(self, topic: str, table: pa.Table | pa.RecordBatch) -> None:
        """Hand over rows as Arrow; see ``deal_out`` for the columns.

        Raises:
            UnknownTopicOrPartition, SchemaMismatch, IllegalState, and what a full buffer's flush raises.
        """
        with self._lock:
            self._check_sendable("send_table()")
            self._make_room()
            target = self._topic(topic)
            if isinstance(table, pa.RecordBatch):
                table = pa.Table.from_batches([table])
            if target.topic_schema.kind == "records" and "timestamp" not in table.schema.names:
                now = pa.scalar(self._now_ms(), pa.timestamp("ms", tz="UTC"))
                table = table.append_column("timestamp", pa.repeat(now, table.num_rows))
            dealt_out = list(deal_out(target, table, self._sticky % target.partitions))
            self._encode_rows()
            for partition, rows in dealt_out:
                self._futures[(target.topic_id, partition)].append(rows.num_rows)
                self._writer.add(self._target(target), partition, rows)

    def _make_room(self) -> None:
        """Write what fills the buffer, before more is taken in: so a call that fails has taken in nothing."""
        if self._row_bytes + self._writer.buffered_bytes <= self._limit:
            return
        if not self._staged:
            self.flush()
            return
        self._encode_rows()
        self._note_upload()
        self._written += self._guarded(lambda: self._writer.make_room(self._now_ms()))

    def _encode_rows(self) -> None:
        topics = {rows.topic.topic_id: rows.topic for rows in self._rows.values()}
        targets = {topic_id: self._target(topic) for topic_id, topic in topics.items()}
        for (topic_id, partition), rows in self._rows.items():
            self._futures[(topic_id, partition)] += rows.futures
            self._writer.add(targets[topic_id], partition, records_table(rows.rows))
        self._rows.clear()
        self._row_bytes = 0

    def _target(self, topic: Topic) -> TopicTarget:
        """Where a topic's files go.

        Raises:
            UnknownTopicOrPartition: it was deleted meanwhile.
        """

        def look(state: StoreState, slot: int) -> TopicTarget:
            topic_of(state, topic.topic_id)
            return TopicTarget.of(state, topic)

        return self._guarded(lambda: self._store.read(look, refresh=False))

    def _note_upload(self) -> None:
        """Remember when the upload of the oldest file began, at the latest that the store's own dates prove."""
        if self._written or not self._writer.buffered_rows:
            return
        if self._now_ms() - self._store.object_store.clock.last_date_ms > _OLDEST_DATE_MS:
            self._store.read(lambda state, slot: None)
        self._upload_ms = self._store.object_store.clock.last_date_ms

    def flush(self) -> None:
        """Write everything handed over. Eager rows get their offsets now; staged ones are uploaded.

        Raises:
            RetriableError: call again; nothing is written twice.
            AbortableError, ApplicationRecoverableError, FatalError
        """
        with self._lock:
            if self._phase in (ProducerPhase.FATAL_ERROR, ProducerPhase.ABORTABLE_ERROR):
                return
            if self._identity is None and self.transactional_id is None and self._has_rows():
                self._initialise()
            self._settle_unacknowledged()
            self._encode_rows()
            self._note_upload()
            self._written += self._guarded(lambda: self._writer.flush(self._now_ms()))
            self._sticky += 1
            if self._staged:
                self._deliver(self._futures, {})
                self._futures.clear()
                return
            if self._written:
                self._unacknowledged = _Unacknowledged(self._batches(), dict(self._futures))
                self._written = []
                self._futures.clear()
                self._settle_unacknowledged()

    def _has_rows(self) -> bool:
        return bool(self._rows or self._written or self._writer.buffered_rows)

    def _batches(self) -> list[BatchAppended]:
        assert self._identity is not None
        assert self._upload_ms is not None
        batches = []
        now_ms = self._now_ms()
        for file in self._written:
            place = PartitionId(file.topic_id, file.partition)
            base_sequence = self._sequences.get(place, 0)
            self._sequences[place] = sequence_after(base_sequence, file.record_count)
            batches.append(
                BatchAppended(
                    topic_id=file.topic_id,
                    partition=file.partition,
                    base_offset=0,
                    record_count=file.record_count,
                    file=FileReference(path=file.path, length=file.length, crc32c=file.crc32c),
                    upload_ms=self._upload_ms,
                    transactional_id=self.transactional_id,
                    producer_id=self._identity.producer_id,
                    producer_epoch=self._identity.producer_epoch,
                    base_sequence=base_sequence,
                    min_timestamp=file.min_timestamp,
                    max_timestamp=file.max_timestamp,
                    time_ms=now_ms,
                )
            )
        return batches

    def _settle_unacknowledged(self) -> None:
        """Append the batches in flight, or append them again: those that landed are recognised by their sequence."""
        pending = self._unacknowledged
        if pending is None:
            return

        def propose(draft: Draft) -> list[int]:
            offsets = []
            for batch in pending.batches:
                try:
                    offsets.append(append_batch(draft, batch))
                except DuplicateBatch as duplicate:
                    offsets.append(duplicate.base_offset)
            return offsets

        offsets = self._guarded(lambda: self._store.append(propose))
        self._unacknowledged = None
        self._began = True
        bases: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        for batch, offset in zip(pending.batches, offsets, strict=True):
            bases[(batch.topic_id, batch.partition)].append((offset, batch.record_count))
        self._deliver(pending.futures, bases)
        if self.transactional_id is None:
            self._topics.clear()

    def _deliver(
        self,
        futures: Mapping[tuple[str, int], list[Waiting]],
        bases: Mapping[tuple[str, int], list[tuple[int, int]]],
    ) -> None:
        names = {topic.topic_id: name for name, topic in self._topics.items()}
        for place, waiting in futures.items():
            offsets = _offsets_of_rows(bases.get(place, ()))
            for future in waiting:
                if isinstance(future, int):
                    deque(islice(offsets, future), maxlen=0)
                else:
                    future.set_result(RecordMetadata(names[place[0]], place[1], next(offsets)))

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
        """
        with self._lock:
            self._need_transactional("send_offsets_to_transaction()")
            check_in_transaction(self._phase, "send_offsets_to_transaction()")
            if not offsets:
                return
            added = self._store.read(lambda state, slot: group_offsets(state, offsets, group), refresh=False)
            before = self._offsets.get(added.group)
            if before is not None:
                newer = {(each.topic_id, each.partition) for each in added.offsets}
                kept = tuple(each for each in before.offsets if (each.topic_id, each.partition) not in newer)
                added = added.model_copy(update={"offsets": kept + added.offsets})
            self._offsets[added.group] = added

    def commit_transaction(self) -> None:
        """Flush, then end the transaction with everything it holds, in one step.

        Raises:
            RetriableError: the outcome is unknown; call it again, and nothing else.
            AbortableError: abort the transaction.
            ApplicationRecoverableError: close this producer.
        """
        with self._lock:
            self._need_transactional("commit_transaction()")
            self._raise_abortable()
            self._enter(ProducerPhase.COMMITTING, "commit_transaction()")
            self.flush()
            staged = self._staged_batches()
            if self._began or staged or self._offsets:
                self._end("commit", staged)
            self._forget()
            self._phase = ProducerPhase.READY

    def abort_transaction(self) -> None:
        """End the transaction so that none of its rows shows under read_committed.

        Raises:
            RetriableError: the outcome is unknown; call it again, and nothing else.
            ApplicationRecoverableError: close this producer.
        """
        with self._lock:
            self._need_transactional("abort_transaction()")
            self._enter(ProducerPhase.ABORTING, "abort_transaction()")
            self._fail_futures(TransactionAborted("the transaction was aborted before this record was written"))
            if self._began or self._unacknowledged is not None:
                self._end("abort", [])
            self._forget()
            self._error = None
            self._phase = ProducerPhase.READY

    def _end(self, verdict: str, staged: list[StagedBatch]) -> None:
        assert self._identity is not None
        assert self.transactional_id is not None
        request = end_request(
            self.transactional_id,
            self._identity,
            verdict,
            batches=staged,
            upload_ms=self._upload_ms if staged else None,
            offsets=tuple(self._offsets.values()) if verdict == "commit" else (),
            time_ms=self._now_ms(),
        )

        def propose(draft: Draft) -> ProducerIdentity:
            identity = end_transaction(draft, request)
            add_timed_out(draft, request.time_ms)
            return identity

        self._identity = self._guarded(lambda: self._store.append(propose))

    def _staged_batches(self) -> list[StagedBatch]:
        if not self._staged:
            return []
        return [
            StagedBatch(
                topic_id=file.topic_id,
                partition=file.partition,
                base_offset=0,
                record_count=file.record_count,
                file=FileReference(path=file.path, length=file.length, crc32c=file.crc32c),
                min_timestamp=file.min_timestamp,
                max_timestamp=file.max_timestamp,
            )
            for file in self._written
        ]

    def close(self) -> None:
        """Flush, and close. A transaction still open is aborted."""
        with self._lock:
            if self._phase in (ProducerPhase.CLOSED, ProducerPhase.FATAL_ERROR):
                self._phase = ProducerPhase.CLOSED
                return
            if self.transactional_id is None:
                self.flush()
            elif self._phase in (ProducerPhase.IN_TRANSACTION, ProducerPhase.ABORTABLE_ERROR):
                self.abort_transaction()
            self._fail_futures(TransactionAborted("the producer was closed before this record was acknowledged"))
            self._forget()
            self._phase = ProducerPhase.CLOSED

    def _enter(self, phase: ProducerPhase, call: str) -> None:
        check_transition(self._phase, phase, call)
        self._phase = phase

    def _need_transactional(self, call: str) -> None:
        if self.transactional_id is None:
            raise IllegalState(f"{call} needs a producer with a transactional id")
        self._raise_fatal()

    def _raise_fatal(self) -> None:
        if self._phase is ProducerPhase.FATAL_ERROR and self._error is not None:
            raise self._error

    def _raise_abortable(self) -> None:
        if self._phase is ProducerPhase.ABORTABLE_ERROR:
            raise TransactionAbortable(f"the transaction can only be aborted, because of: {self._error}")

    def _check_sendable(self, call: str) -> None:
        if self.transactional_id is None:
            check_not_closed(self._phase, call)
            self._raise_fatal()
            return
        self._raise_fatal()
        self._raise_abortable()
        check_in_transaction(self._phase, call)

    def _pending_futures(self) -> list[Future[RecordMetadata]]:
        waiting = [rows.futures for rows in self._rows.values()] + list(self._futures.values())
        if self._unacknowledged is not None:
            waiting += self._unacknowledged.futures.values()
        return [each for futures in waiting for each in futures if not isinstance(each, int) and not each.done()]

    def _fail_futures(self, error: EosLogError) -> None:
        for future in self._pending_futures():
            future.set_exception(error)

    def _guarded(self, call: Callable[[], T]) -> T:
        """Run a step; an error that leaves no way on is remembered, one that leaves only an abort too."""
        try:
            return call()
        except RetriableError:
            raise
        except EosLogError as error:
            in_transaction = self._phase in (ProducerPhase.IN_TRANSACTION, ProducerPhase.COMMITTING)
            abortable = in_transaction and not isinstance(error, _PRODUCER_IS_DONE)
            self._error = error
            self._phase = ProducerPhase.ABORTABLE_ERROR if abortable else ProducerPhase.FATAL_ERROR
            self._fail_futures(error)
            raise

    def _topic(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = self._store.read(
                lambda state, slot: topic_named(state, name), refresh=not self._knows(name)
            )
        return topic

    def _knows(self, name: str) -> bool:
        def known(state: StoreState, slot: int) -> bool:
            return name in state.topic_ids

        return self._store.read(known, refresh=False)

    def _now_ms(self) -> int:
        return self._store.now_ms()


def _offsets_of_rows(batches: Sequence[tuple[int, int]]) -> Iterator[int]:
    """The offset of each row of consecutive batches, given as (base offset, rows); then no offsets for ever."""
    for base, count in batches:
        yield from repeat(NO_OFFSET, count) if base == NO_OFFSET else range(base, base + count)
    yield from repeat(NO_OFFSET)
