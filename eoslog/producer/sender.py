"""The path of a producer's rows into the log (Kafka's ``Sender``): they are collected, uploaded and appended.

A step that failed may be repeated as a whole. It continues where it stopped: nothing is lost or written twice. The
module also holds the batches in flight, and counts rows, files and bytes for the summary in the commit entry.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import pyarrow as pa

from eoslog.errors import EosLogError, SchemaMismatch, UnknownProducerId, UnknownTopicOrPartition
from eoslog.format.file_writer import WrittenFile, contents_of
from eoslog.producer.record_accumulator import RecordAccumulator
from eoslog.producer.record_futures import AwaitedOffsets, RecordFuture, RowsOutcome
from eoslog.producer.rows import partition_of_key, record_row, rows_by_partition, with_timestamps
from eoslog.producer.transaction_manager import TransactionManager
from eoslog.session.idempotent_append import IdempotentAppend
from eoslog.session.session import Session, check_partition, find_topic, has_topic
from eoslog.session.time_limits import TimeLimits
from eoslog.state.append_requests import AppendBatches, AppendedRows, DuplicateRows
from eoslog.state.end_requests import TransactionContent
from eoslog.state.names import PartitionId
from eoslog.state.producer_ids import ProducerIdentity
from eoslog.state.sequences import sequence_after
from eoslog.state.store_state import Topic
from eoslog.state.transaction_entries import BatchAppended, CommitSummary, StagedBatch, WrittenRows
from eoslog.storage import tracing
from eoslog.storage.calls import Call
from eoslog.storage.process import HomeProcess

_ANY_PARTITION = -1
"""The partition that a user of librdkafka gives to let the partitioner choose."""


class _Written(NamedTuple):
    """The amounts written to one topic."""

    rows: int = 0
    files: int = 0
    bytes: int = 0


class CommitNumbers:
    """Row, file and byte counts of one transaction, for the summary in its commit entry."""

    def __init__(self) -> None:
        self._topics: dict[str, _Written] = {}

    def add(self, batches: Iterable[BatchAppended | StagedBatch]) -> None:
        """Count batches that the log has acknowledged, or that the commit will append."""
        for batch in batches:
            rows, files, size = self._topics.get(batch.topic_id, _Written())
            self._topics[batch.topic_id] = _Written(rows + batch.record_count, files + 1, size + batch.file.length)

    @property
    def rows(self) -> int:
        """The number of rows in the counted batches."""
        return sum(each.rows for each in self._topics.values())

    def summary(self, staged: Iterable[StagedBatch], duration_ms: int) -> CommitSummary:
        """Return the summary of a commit that also appends ``staged``.

        Args:
            duration_ms: how long the transaction has been open (ms).
        """
        total = CommitNumbers()
        total._topics = dict(self._topics)
        total.add(staged)
        written = total._topics.values()
        topics = None
        if len(self._topics) > 1:
            # Eager batches are not in the commit entry, so the summary counts them by topic.
            topics = tuple(WrittenRows(topic_id=key, **each._asdict()) for key, each in total._topics.items())
        return CommitSummary(
            rows=sum(each.rows for each in written),
            files=sum(each.files for each in written),
            bytes=sum(each.bytes for each in written),
            duration_ms=max(0, duration_ms),
            topics=topics,
        )


class InFlightBatches:
    """Batches whose append has no answer yet.

    They are appended again unchanged, so the log recognizes duplicates by their sequences. The object is true while it
    holds batches.
    """

    def __init__(self, transactional_id: str | None, home: HomeProcess) -> None:
        self._transactional_id = transactional_id
        self._home = home
        self._sequences: dict[PartitionId, int] = {}
        self._batches: list[BatchAppended] = []
        self.contents: dict[str, bytes] = {}
        """The contents of the files that travel in the record, by path."""
        self.awaited = AwaitedOffsets(self._home)
        """The futures of these batches' rows."""
        self.was_sent = False
        """True if these batches were sent to the log before, and so may have landed."""

    def __bool__(self) -> bool:
        return bool(self._batches)

    @property
    def batches(self) -> Sequence[BatchAppended]:
        """The batches in flight."""
        return tuple(self._batches)

    def send(
        self,
        files: Sequence[WrittenFile],
        awaited: AwaitedOffsets,
        identity: ProducerIdentity,
        *,
        upload_ms: int,
        time_ms: int,
    ) -> None:
        """Make batches of uploaded files, with the next sequences of their partitions. No batch may be in flight.

        Args:
            awaited: the futures of the files' rows.
            upload_ms: a lower bound of the time at which the first upload began (ms by the store's clock).
        """
        assert not self._batches
        self.contents = contents_of(files)
        self.awaited = awaited
        self.was_sent = False
        for file in files:
            self._batches.append(
                file.batch(
                    transactional_id=self._transactional_id,
                    producer_id=identity.producer_id,
                    producer_epoch=identity.producer_epoch,
                    base_sequence=self._next_sequence(file.topic_id, file.partition, file.record_count),
                    upload_ms=upload_ms,
                    time_ms=time_ms,
                )
            )

    def send_as(self, identity: ProducerIdentity) -> None:
        """Assign the batches to another producer id, whose sequences begin at 0. No batch may have landed."""
        self._sequences = {}
        self._batches = [
            batch.model_copy(
                update={
                    "producer_id": identity.producer_id,
                    "producer_epoch": identity.producer_epoch,
                    "base_sequence": self._next_sequence(batch.topic_id, batch.partition, batch.record_count),
                }
            )
            for batch in self._batches
        ]

    def _next_sequence(self, topic_id: str, partition: int, record_count: int) -> int:
        partition_id = PartitionId(topic_id, partition)
        base_sequence = self._sequences.get(partition_id, 0)
        self._sequences[partition_id] = sequence_after(base_sequence, record_count)
        return base_sequence

    def acknowledge(self) -> AwaitedOffsets:
        """Note that the batches have an answer, so that none is in flight. Return their futures."""
        self._batches = []
        self.contents = {}
        return self.awaited.take_all()

    def reset(self) -> None:
        """Drop the batches in flight and restart the sequences at 0, as the next epoch does."""
        self._sequences = {}
        self._batches = []
        self.contents = {}
        self.awaited = AwaitedOffsets(self._home)


class Sender:
    """Writes the rows of one producer: it collects, uploads and appends them."""

    def __init__(
        self,
        store: Session,
        append: IdempotentAppend,
        requests: TransactionManager,
        limits: TimeLimits,
        transactional_id: str | None,
        *,
        staged: bool,
        buffer_bytes: int,
        home: HomeProcess,
    ) -> None:
        self._store = store
        self._append = append
        self._requests = requests
        self._limits = limits
        self._transactional_id = transactional_id
        self._staged = staged
        self._accumulator = RecordAccumulator(store, buffer_bytes, home)
        self._in_flight = InFlightBatches(transactional_id, home)
        self._settled: deque[tuple[AwaitedOffsets, RowsOutcome]] = deque()
        """Futures whose rows have an outcome, and that are not told yet."""
        self.topics: dict[str, Topic] = {}
        """Topics found so far, by name. They stay the same throughout a transaction."""
        self._topics_before: dict[str, Topic] = {}
        """The topics of the last transaction that used a topic."""
        self.sent_rows = 0
        """The number of rows that the log has acknowledged."""
        self.sent_bytes = 0
        """The bytes of their files."""
        self.forget()

    def forget(self) -> None:
        """Drop everything and restart the sequences, as the next epoch does.

        Topics must be found again: a topic may be deleted and created again before the next transaction.
        """
        self._forget_topics()
        self.has_appended = False
        """True if batches of the transaction are known to be in the log."""
        self.numbers = CommitNumbers()
        """Counts of these batches."""
        self._accumulator.discard()
        self._in_flight.reset()
        self._limits.end_delivery()
        self._append.forget()

    def _forget_topics(self) -> None:
        if self.topics:
            self._topics_before, self.topics = self.topics, {}

    def count_sent(self, batches: Iterable[BatchAppended | StagedBatch]) -> None:
        """Count the rows of batches that the log has acknowledged."""
        for batch in batches:
            self.sent_rows += batch.record_count
            self.sent_bytes += batch.file.length

    def give_up(self, error: EosLogError) -> None:
        """Drop the rows that are not acknowledged, of a producer without transactions.

        Batches in flight may have landed, or may still land, under their sequences. So the producer raises its epoch,
        and its sequences begin again at 0. A partition refuses the late batches once it has a batch of the new epoch.
        """
        self.fail(error)
        self._append.forget()
        if self._in_flight:
            self._requests.raise_epoch()
            self._in_flight.reset()
        self._accumulator.discard()
        self._forget_topics()

    def fail(self, error: EosLogError) -> None:
        """Fail all futures with ``error``. Batches in flight stay, because they may have landed."""
        self._limits.end_delivery()
        for awaited in (self._accumulator.awaited, self._in_flight.awaited):
            self._settled.append((awaited.take_all(), error))

    def tell(self, call: Call) -> None:
        """Complete the futures whose rows have an outcome, and call their callbacks.

        This is no part of a step: callbacks are code of the application, and run in the thread of the call. If they are
        interrupted, the next call continues here.
        """
        while self._settled:
            told = self._settled[0]
            told[0].tell(told[1], call)
            # A callback may have made calls, which told further futures.
            if self._settled and self._settled[0] is told:
                self._settled.popleft()

    @property
    def has_untold(self) -> bool:
        """True if ``tell`` has futures to complete."""
        return bool(self._settled)

    @property
    def may_have_appended(self) -> bool:
        """True if batches are in the log, or may still land."""
        return self.has_appended or bool(self._in_flight)

    @property
    def has_waiting_rows(self) -> bool:
        """True if rows were sent that are not known to be in the log."""
        return bool(self._in_flight) or self._accumulator.has_rows

    @property
    def waiting_rows(self) -> int:
        """The number of rows that were sent and are not known to be in the log."""
        return self._accumulator.row_count + sum(batch.record_count for batch in self._in_flight.batches)

    @property
    def transaction_rows(self) -> int:
        """The number of rows that were sent in the open transaction."""
        return self.waiting_rows + self.numbers.rows

    @property
    def is_watched(self) -> bool:
        """True if a callback or a thread waits for the outcome of rows."""
        return self._accumulator.awaited.is_watched or self._in_flight.awaited.is_watched

    def staged_content(self, open_for_ms: int) -> TransactionContent:
        """Return the staged batches, which the commit will append, and the summary of the transaction.

        Args:
            open_for_ms: how long the transaction has been open (ms).
        """
        files = self._accumulator.files
        batches = [file.staged() for file in files]
        return TransactionContent(
            batches=batches,
            upload_ms=self._accumulator.upload_ms,
            files=contents_of(files),
            summary=self.numbers.summary(batches, open_for_ms),
        )

    def upload_staged(self) -> None:
        """Upload all staged files. Raises: RetriableError"""
        self._accumulator.upload_all()

    def known_topic(self, name: str) -> Topic | None:
        """Return a topic that this transaction has used. Or return one of the last transaction, if it is unchanged.

        The call takes no lock, so it needs no step in a thread of the library.

        Returns:
            None if the topic must be found (``find_topic``), which also reports a name that is no string.
        """
        if not isinstance(name, str):
            return None
        found = self.topics.get(name)
        if found is None:
            found = self._topics_before.get(name)
            if found is None or not has_topic(self._store, found):
                return None
            self.topics[name] = found
        return found

    def find_topic(self, name: str) -> Topic:
        """Find a topic by its name, and remember it in ``topics``.

        Raises:
            UnknownTopicOrPartition, RetriableError
        """
        found = self.topics[name] = find_topic(self._store, name)
        return found

    def add_record(
        self,
        topic: Topic,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        headers: Sequence[tuple[str, bytes | None]] | None,
        timestamp: int | None,
    ) -> RecordFuture:
        """Add a record; see ``Producer.send``."""
        row = record_row(
            topic, key, value, headers=headers, timestamp_ms=self._store.now_ms() if timestamp is None else timestamp
        )
        if partition is None:
            number = partition_of_key(topic, key, self._accumulator.sticky_partition(topic))
        elif type(partition) is int and partition == _ANY_PARTITION:
            raise UnknownTopicOrPartition(
                f"topic {topic.topic} has no partition {partition}. Give None to let the partitioner choose one"
            )
        else:
            number = check_partition(topic, partition)
        return self._accumulator.add_record(topic, number, row)

    def rows_by_partition(self, topic: Topic, table: pa.Table) -> list[tuple[int, pa.Table]]:
        """Partition the rows, in the topic's schema. Nothing is added yet.

        If the rows do not fit the known schema, the newest schema is tried: the topic may have got more columns.

        Raises:
            SchemaMismatch: the rows do not fit the newest schema either.
            RetriableError
        """
        table = with_timestamps(topic, table, self._store.now_ms())
        sticky = self._accumulator.sticky_partition(topic)
        try:
            return list(rows_by_partition(topic, table, sticky))
        except SchemaMismatch:
            newest = self._store.read(lambda state, slot: state.topics.get(topic.topic_id))
            if newest is None or newest.topic_schema == topic.topic_schema:
                raise
        self.topics[topic.topic] = newest
        return list(rows_by_partition(newest, table, sticky))

    def add_tables(self, topic: Topic, tables: list[tuple[int, pa.Table]]) -> None:
        """Add the partitioned rows.

        Raises:
            UnknownTopicOrPartition: the topic was deleted in the meantime. Nothing was added.
        """
        self._accumulator.add_tables(topic, tables)

    @property
    def needs_room(self) -> bool:
        """True if ``make_room`` must be called before more rows are added."""
        return self._accumulator.needs_room

    def make_room(self) -> None:
        """Encode records if there are many, and write rows if the buffer is full.

        Raises:
            The errors of ``flush``.
        """
        self._limits.begin_delivery()
        self._accumulator.encode_many()
        if self._accumulator.is_full:
            if self._staged:
                self._accumulator.upload_for_room()
            else:
                self.flush()
        self._limits.end_delivery()

    def flush(self) -> None:
        """Upload all rows. Eager rows are appended and get offsets; staged rows have none before the commit.

        The delivery timeout runs from the first attempt until the rows are written or given up.

        Raises:
            RetriableError, and the errors with which the log refuses a batch.
        """
        self._limits.begin_delivery()
        with self._flush_span():
            self._settle_in_flight()
            self._accumulator.upload()
            if self._staged:
                self._settled.append((self._accumulator.awaited.take_all(), ()))
            elif self._accumulator.files:
                if self._requests.identity is None:
                    self._requests.initialize()
                self._send_files()
                self._settle_in_flight()
        self._limits.end_delivery()

    def _flush_span(self) -> AbstractContextManager[Any]:
        """Return the span of a flush. A flush of nothing has none."""
        rows = self.waiting_rows if tracing.may_record() else 0
        if not rows:
            return nullcontext()
        described = {"messaging.operation.name": "flush", "messaging.operation.type": "send"}
        return tracing.span("flush", tracing.MESSAGING | described | tracing.rows_of(self.topics, rows), kind="CLIENT")

    def _send_files(self) -> None:
        accumulator, identity = self._accumulator, self._requests.identity
        assert identity is not None
        assert accumulator.upload_ms is not None
        now_ms = self._store.now_ms()
        self._in_flight.send(
            accumulator.take_files(),
            accumulator.awaited.take_all(),
            identity,
            upload_ms=accumulator.upload_ms,
            time_ms=now_ms,
        )

    def _settle_in_flight(self) -> None:
        """Append the batches in flight, for the first time or repeated."""
        if not self._in_flight:
            return
        appended = self._append_in_flight()
        self._store.call_counts.duplicate_batches += sum(isinstance(each, DuplicateRows) for each in appended)
        self.has_appended = True
        batches = self._in_flight.batches
        self.numbers.add(batches)
        self.count_sent(batches)
        if self._transactional_id is None:
            self._forget_topics()
        self._settled.append((self._in_flight.acknowledge(), appended))

    def _append_in_flight(self) -> list[AppendedRows]:
        may_have_landed = self._in_flight.was_sent
        self._in_flight.was_sent = True
        try:
            return self._append(AppendBatches(self._in_flight.batches, self._in_flight.contents))
        except UnknownProducerId:
            if self._transactional_id is not None or may_have_landed:
                raise
            # The producer id has expired, because it was not used for a day. These batches were sent only once and were
            # refused, so none has landed: send them under a new id.
            self._in_flight.was_sent = False
        self._requests.initialize()
        assert self._requests.identity is not None
        self._in_flight.send_as(self._requests.identity)
        self._in_flight.was_sent = True
        return self._append(AppendBatches(self._in_flight.batches, self._in_flight.contents))
