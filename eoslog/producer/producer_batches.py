"""Batches of several producers in one call: one record for all of them, and an answer or an error for each.

The caller keeps the epochs and sequences of the producers, for example a server for Kafka's clients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa

from eoslog.arguments import is_whole_number
from eoslog.errors import EosLogError, InvalidRequest, SchemaMismatch, UnknownTopicOrPartition
from eoslog.format.file_writer import DataFileWriter, NewFile, TopicTarget, WrittenFile, contents_of
from eoslog.producer.record_accumulator import begin_of_upload_ms, placement_of_files
from eoslog.producer.rows import stored_rows, with_timestamps
from eoslog.session.session import Session, check_partition
from eoslog.state.append_requests import AppendBatches, AppendedRows, AppendMany, DuplicateRows
from eoslog.state.names import check_id
from eoslog.state.producer_ids import DEFAULT_TRANSACTION_TIMEOUT_MS, ProducerIdentity
from eoslog.state.sequences import MAX_EPOCH, SEQUENCES
from eoslog.state.store_state import StoreState, Topic
from eoslog.state.topics import topic_named
from eoslog.state.transaction_requests import InitProducerId
from eoslog.wording import quoted

MOST_BATCHES = 1024
"""The largest number of batches in a call. With the longest statistics and names they still fit into a record."""


@dataclass(frozen=True, kw_only=True)
class ProducerBatch:
    """Rows of one producer for one partition, with the producer's own epoch and sequence."""

    topic: str
    partition: int
    rows: pa.Table | pa.RecordBatch
    """At least one row, in the columns of the topic. Kafka records without timestamps get the store's time."""
    producer_id: int
    producer_epoch: int
    base_sequence: int
    """The producer's sequence number of the first row in this partition."""
    transactional_id: str | None = None
    """None for a producer without transactional id. If its producer id has expired, sequence 0 registers it again."""
    needs_added_partition: bool = False
    """True if the batch may not begin a transaction: its partition must belong to the open one. It is for clients of
    Kafka's transaction version 1, whose late batches would begin the next transaction."""


_Topics: TypeAlias = Mapping[str, tuple[Topic, TopicTarget] | EosLogError]


@dataclass(frozen=True)
class UploadedBatch:
    """A batch whose rows are written: as an object, or in bytes that the record will have."""

    batch: ProducerBatch
    file: WrittenFile
    upload_ms: int
    """A lower bound of the time at which the upload began (ms by the store's clock)."""

    def of_producer(self, producer_id: int, producer_epoch: int, base_sequence: int) -> UploadedBatch:
        """Return the same rows as a batch of another producer, or with other sequences."""
        changed = replace(
            self.batch, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence
        )
        return replace(self, batch=changed)


def append_many(store: Session, batches: Sequence[ProducerBatch]) -> list[AppendedRows | EosLogError]:
    """Append batches of several producers. Return the offsets of each batch, or the error that refuses it, in order.

    A refused batch does not affect the others. The batches of a producer in a partition are checked in their order, so
    their sequences follow each other. All batches go into one record, and small ones need no other request.

    Args:
        batches: at most 1,024 batches.

    Raises:
        RetriableError: it concerns all batches. After ``CommitStateUnknown`` they may have landed. Repeat the call with
            the same sequences: no batch is appended twice. The answer for a batch that has landed has the offset -1 if
            its producer has written five later batches to the partition. The batch is refused if its producer has
            raised its epoch there.
        StoreAccessDenied
        InvalidRequest: ``batches`` is not a sequence, or has too many batches.
    """
    uploaded = upload_many(store, batches)
    answers = iter(append_uploaded(store, [each for each in uploaded if isinstance(each, UploadedBatch)]))
    return [next(answers) if isinstance(each, UploadedBatch) else each for each in uploaded]


def new_producer(store: Session) -> ProducerIdentity:
    """Return the identity of a new producer without transactional id.

    Raises:
        RetriableError, StoreAccessDenied
    """
    request = InitProducerId(None, DEFAULT_TRANSACTION_TIMEOUT_MS, store.now_ms())
    return store.append(request).identity


def upload_many(store: Session, batches: Sequence[ProducerBatch]) -> list[UploadedBatch | EosLogError]:
    """Write the rows of batches, without their offsets: the first half of ``append_many``, whose errors it raises.

    Returns:
        For each batch its uploaded rows, or the error that refuses it. No reader sees the rows until they are appended.
    """
    if not isinstance(batches, Sequence) or isinstance(batches, str | bytes):
        raise InvalidRequest(f"batches are a list of ProducerBatch, not {quoted(batches)}")
    if len(batches) > MOST_BATCHES:
        raise InvalidRequest(f"one call takes at most {MOST_BATCHES} batches, not {len(batches)}. Make several calls")
    checked = _checked(store, batches)
    accepted = [(batch, rows) for batch, rows in zip(batches, checked, strict=True) if isinstance(rows, NewFile)]
    uploaded = iter(_uploaded(store, accepted))
    return [rows if isinstance(rows, EosLogError) else next(uploaded) for rows in checked]


def append_uploaded(store: Session, uploaded: Sequence[UploadedBatch]) -> list[AppendedRows | EosLogError]:
    """Append uploaded batches: the second half of ``append_many``, whose errors it raises.

    Returns:
        The offsets of each batch, or the error that refuses it.
    """
    time_ms = store.now_ms()
    return _appended(store, [_request(each, time_ms) for each in uploaded])


def _checked(store: Session, batches: Sequence[ProducerBatch]) -> list[NewFile | EosLogError]:
    """Return the rows of each batch as files store them, or the error that refuses the batch."""
    now_ms = store.now_ms()
    topics = _topics(store, batches, refresh=False)
    checked = [_checked_rows(topics, batch, now_ms) for batch in batches]
    if any(isinstance(each, UnknownTopicOrPartition | SchemaMismatch) for each in checked):
        # The topic may have been created since, or may have got more partitions or columns.
        topics = _topics(store, batches, refresh=True)
        checked = [
            _checked_rows(topics, batch, now_ms) if isinstance(rows, EosLogError) else rows
            for batch, rows in zip(batches, checked, strict=True)
        ]
    return checked


def _topics(store: Session, batches: Sequence[ProducerBatch], *, refresh: bool) -> _Topics:
    """Return the topics of the batches by name; for an unknown one, the error that says so."""
    names = {batch.topic for batch in batches if isinstance(batch, ProducerBatch) and isinstance(batch.topic, str)}

    def snapshot(state: StoreState, slot: int) -> _Topics:
        return {name: _target(state, name) for name in names}

    return store.read(snapshot, refresh=refresh)


def _target(state: StoreState, name: str) -> tuple[Topic, TopicTarget] | EosLogError:
    try:
        topic = topic_named(state, name)
    except UnknownTopicOrPartition as error:
        return error.with_traceback(None)
    return topic, TopicTarget.of(state, topic)


def _checked_rows(topics: _Topics, batch: ProducerBatch, now_ms: int) -> NewFile | EosLogError:
    try:
        return _new_file(topics, batch, now_ms)
    except EosLogError as error:
        # The traceback would keep the rows of all batches in memory for as long as the caller keeps the error.
        return error.with_traceback(None)


def _new_file(topics: _Topics, batch: ProducerBatch, now_ms: int) -> NewFile:
    """Return the rows of a batch as a file stores them.

    Raises:
        UnknownTopicOrPartition, SchemaMismatch, InvalidRecord
        InvalidRequest: an argument has the wrong type or is out of range, or there are no rows.
    """
    if not isinstance(batch, ProducerBatch) or not isinstance(batch.topic, str):
        raise InvalidRequest(f"a batch is a ProducerBatch with the name of a topic, not {quoted(batch)}")
    found = topics[batch.topic]
    if isinstance(found, EosLogError):
        # Each batch gets an error of its own: a raised error keeps its traceback.
        raise type(found)(str(found))
    topic, target = found
    where = f"topic {topic.topic}, partition {check_partition(topic, batch.partition)}"
    _check_number(where, "producer_id", batch.producer_id, 2**63)
    _check_number(where, "producer_epoch", batch.producer_epoch, MAX_EPOCH + 1)
    _check_number(where, "base_sequence", batch.base_sequence, SEQUENCES)
    if batch.transactional_id is not None:
        check_id("transactional id", batch.transactional_id)
    rows = batch.rows
    if not isinstance(rows, pa.Table | pa.RecordBatch):
        raise InvalidRequest(f"{where}: rows must be a pyarrow.Table or RecordBatch, not {type(rows).__name__}")
    if not 0 < rows.num_rows < SEQUENCES:
        raise InvalidRequest(f"{where}: a batch has 1 to {SEQUENCES - 1} rows, not {rows.num_rows}")
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    return NewFile(target, batch.partition, stored_rows(topic, with_timestamps(topic, table, now_ms)))


def _check_number(where: str, name: str, number: object, end: int) -> None:
    if not is_whole_number(number) or not 0 <= number < end:
        raise InvalidRequest(f"{where}: {name} must be a whole number from 0 to {end - 1}, not {quoted(number)}")


def _uploaded(store: Session, accepted: Sequence[tuple[ProducerBatch, NewFile]]) -> list[UploadedBatch]:
    """Write the files of the batches in one flush."""
    if not accepted:
        return []
    now_ms = store.now_ms()
    upload_ms = begin_of_upload_ms(store, now_ms)
    writer = DataFileWriter(store.object_store, store.environment.new_id)
    files = writer.write([rows for _, rows in accepted], now_ms, placement_of_files(store))
    store.environment.reached("client.producer.files_uploaded")
    return [UploadedBatch(batch, file, upload_ms) for (batch, _), file in zip(accepted, files, strict=True)]


def _request(uploaded: UploadedBatch, time_ms: int) -> AppendBatches:
    batch = uploaded.batch
    return AppendBatches(
        [
            uploaded.file.batch(
                transactional_id=batch.transactional_id,
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                base_sequence=batch.base_sequence,
                upload_ms=uploaded.upload_ms,
                time_ms=time_ms,
                registers_producer=batch.transactional_id is None,
            )
        ],
        contents_of([uploaded.file]),
        needs_added_partition=batch.needs_added_partition,
    )


def _appended(store: Session, requests: Sequence[AppendBatches]) -> list[AppendedRows | EosLogError]:
    answers = store.append(AppendMany(requests)) if requests else []
    for answer in answers:
        if isinstance(answer, EosLogError):
            store.call_counts.failed(answer)
        else:
            store.call_counts.duplicate_batches += sum(isinstance(rows, DuplicateRows) for rows in answer)
    return [answer if isinstance(answer, EosLogError) else answer[0] for answer in answers]
