"""Rows that a producer has collected and not yet appended (Kafka's ``RecordAccumulator``)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from eoslog.errors import SchemaMismatch
from eoslog.format.file_writer import MOST_INLINE_BYTES, DataFileWriter, Placement, TopicTarget, WrittenFile
from eoslog.producer.record_futures import AwaitedOffsets, AwaitedRows, RecordFuture
from eoslog.producer.rows import RecordRow, records_table
from eoslog.session.session import Session
from eoslog.state.names import PartitionId
from eoslog.state.partitions import newest_expired_ms, topic_of
from eoslog.state.store_state import StoreState, Topic
from eoslog.storage.process import HomeProcess

_RECORD_OVERHEAD_BYTES = 64
_LARGEST_RECORD_BYTES = 2**31 - 1
"""An array of Arrow holds no larger value."""
_MOST_RECORDS_NOT_ENCODED = 10_000
_OLDEST_DATE_MS = 3_600_000


@dataclass(slots=True)
class _Records:
    """Records of one partition that are not yet encoded as Arrow."""

    topic: Topic
    awaited: AwaitedRows
    """The futures of the partition's rows. Its ``count`` does not include ``rows`` yet."""
    rows: list[RecordRow] = field(default_factory=list)


class RecordAccumulator:
    """Collects rows by partition and uploads them as files. A failed step may be repeated: nothing is lost."""

    def __init__(self, store: Session, buffer_bytes: int, home: HomeProcess) -> None:
        self._store = store
        self._home = home
        self._limit = buffer_bytes
        self._writer = DataFileWriter(store.object_store, store.environment.new_id, buffer_bytes=buffer_bytes // 2)
        self._sticky = int(store.environment.jitter() * 1_000_003)
        self._clear()

    def _clear(self) -> None:
        self._records: dict[tuple[str, int], _Records] = {}
        """By ``PartitionId``. A lookup uses an equal plain tuple, because that is cheaper to make."""
        self._record_bytes = 0
        self._most_records = 0
        self.awaited = AwaitedOffsets(self._home)
        """The futures of these rows."""
        self.files: list[WrittenFile] = []
        """Files that were uploaded, and that the sender has not yet taken."""
        self.upload_ms: int | None = None
        """A lower bound of the time at which the upload of the first file began (ms by the store's clock)."""

    @property
    def has_rows(self) -> bool:
        """True if rows are collected or uploaded, but not yet in flight."""
        return bool(self.files or self._writer.buffered_rows or any(each.rows for each in self._records.values()))

    @property
    def row_count(self) -> int:
        """The number of rows that are collected or uploaded, but not yet in flight."""
        collected = sum(len(records.rows) for records in self._records.values()) + self._writer.buffered_rows
        return collected + sum(file.record_count for file in self.files)

    @property
    def is_full(self) -> bool:
        """True if more than ``buffer_bytes`` is collected."""
        return self._record_bytes + self._writer.buffered_bytes > self._limit

    @property
    def needs_room(self) -> bool:
        """True if it is full or has many records. Then rows must be encoded or written before more are added."""
        return (
            self._record_bytes + self._writer.buffered_bytes > self._limit
            or self._most_records >= _MOST_RECORDS_NOT_ENCODED
        )

    def sticky_partition(self, topic: Topic) -> int:
        """Return the partition of rows without a key until the next upload."""
        return self._sticky % topic.partitions

    def add_record(self, topic: Topic, partition: int, row: RecordRow) -> RecordFuture:
        """Add a Kafka record, as made by ``record_row``. It is encoded later.

        Raises:
            SchemaMismatch: the record is too large.
        """
        key, value, _, _ = row
        size = len(key or b"") + len(value or b"") + _RECORD_OVERHEAD_BYTES
        if size > _LARGEST_RECORD_BYTES:
            raise SchemaMismatch(
                f"topic {topic.topic}: a record of {size} bytes is too large. Store the value elsewhere, and send its "
                "address"
            )
        records = self._records.get((topic.topic_id, partition))
        if records is None:
            partition_id = PartitionId(topic.topic_id, partition)
            records = self._records[partition_id] = _Records(topic, self.awaited.of(topic, partition_id))
        self._record_bytes += size
        rows = records.rows
        # Number the row by counting the rows before it. A separate counter would be wrong after an interrupt (Ctrl-C)
        # between two lines, and would shift offsets.
        before = len(rows)
        future = RecordFuture(records.awaited, records.awaited.count + before)
        if before >= self._most_records:
            self._most_records = before + 1
        # No call from here to the return of send(): an interrupt comes before the row is added, or after the return.
        rows += (row,)
        return future

    def add_tables(self, topic: Topic, tables: Iterable[tuple[int, pa.Table]]) -> None:
        """Add rows, by partition and in the topic's schema.

        Raises:
            UnknownTopicOrPartition: a topic was deleted in the meantime. Nothing was added.
        """
        target = self._target(topic)
        self._encode()
        for partition, rows in tables:
            self.awaited.of(topic, PartitionId(topic.topic_id, partition)).count += rows.num_rows
            self._writer.add(target, partition, rows)

    def encode_many(self) -> None:
        """Encode the records as Arrow if a partition has many, because rows in Python need far more memory.

        Raises:
            UnknownTopicOrPartition: a topic was deleted meanwhile.
        """
        if self._most_records >= _MOST_RECORDS_NOT_ENCODED:
            self._encode()

    def upload_for_room(self) -> None:
        """Upload the partitions with the most bytes.

        Raises:
            UnknownTopicOrPartition: a topic was deleted meanwhile.
            RetriableError
        """
        self._encode()
        self.files += self._writer.make_room(self._begin_upload())

    def upload(self) -> None:
        """Write all rows to files, and upload the files that do not travel in the record.

        Raises:
            UnknownTopicOrPartition: a topic was deleted meanwhile.
            RetriableError
        """
        self._encode()
        self.files += self._writer.flush(self._begin_upload(), self._placement())
        self._store.environment.reached("client.producer.files_uploaded")
        self._sticky += 1

    def upload_all(self) -> None:
        """Upload also the files that were to travel in the record. Raises: RetriableError"""
        self.files = self._writer.upload_contents(self.files, self._placement())

    def take_files(self) -> list[WrittenFile]:
        """Hand the uploaded files over to the caller."""
        taken, self.files = self.files, []
        return taken

    def discard(self) -> None:
        """Drop everything. Vacuum deletes the files that were uploaded."""
        self._clear()
        self._writer.discard()

    def _encode(self) -> None:
        topics = {records.topic.topic_id: records.topic for records in self._records.values()}
        targets = {topic_id: self._target(topic) for topic_id, topic in topics.items()}
        while self._records:
            partition_id, records = next(iter(self._records.items()))
            if not records.rows:
                # The send that began the partition was interrupted.
                del self._records[partition_id]
                continue
            table = records_table(records.rows)
            # Remove each before the next: a repeated step must not encode the same records twice.
            del self._records[partition_id]
            records.awaited.count += len(records.rows)
            topic_id, partition = partition_id
            self._writer.add(targets[topic_id], partition, table)
        self._record_bytes = self._most_records = 0

    def _target(self, topic: Topic) -> TopicTarget:
        def snapshot(state: StoreState, slot: int) -> TopicTarget:
            # The newest schema has the ids of columns that were added since the caller looked at the topic.
            return TopicTarget.of(state, topic_of(state, topic.topic_id))

        return self._store.read(snapshot, refresh=False)

    def _placement(self) -> Placement:
        inline_bytes = sum(file.length for file in self.files if file.content is not None)
        return placement_of_files(self._store, room_bytes=MOST_INLINE_BYTES - inline_bytes)

    def _begin_upload(self) -> int:
        """Return the time now (ms). Remember a lower bound of it for the oldest file that is uploaded."""
        now_ms = self._store.now_ms()
        if not self.files and self._writer.buffered_rows:
            self.upload_ms = begin_of_upload_ms(self._store, now_ms)
        return now_ms


def placement_of_files(store: Session, *, room_bytes: int = MOST_INLINE_BYTES) -> Placement:
    """Return the placement of the files of a flush.

    Args:
        room_bytes: the largest total size of the files that travel in the record.
    """
    config = store.log.config
    return Placement(
        inline_bytes=config.inline_limit_bytes,
        room_bytes=room_bytes,
        shared_bytes=config.shared_limit_bytes,
        time_ms=lambda: _shared_time_ms(store),
    )


def _shared_time_ms(store: Session) -> int:
    # The log compares the time in the path with its own time and horizon, which may be ahead of the store's time.
    # A claimed date may be wrong, but a path with a time that is too late only keeps its object longer.
    least_ms = store.read(lambda state, slot: max(state.time_ms, newest_expired_ms(state) + 1), refresh=False)
    return max(store.now_ms(), store.object_store.clock.latest_claim_ms, least_ms)


def begin_of_upload_ms(store: Session, now_ms: int) -> int:
    """Return a time that is not after the begin of an upload at ``now_ms`` (ms by the store's clock).

    It is the date of an earlier answer: vacuum compares it with the upload time of the store. An old date would
    make the files look old, so a request refreshes it.
    """
    clock = store.object_store.clock
    if now_ms - clock.last_date_ms > _OLDEST_DATE_MS:
        store.read(lambda state, slot: None)
    return clock.last_date_ms
