"""What a producer was handed and has not yet appended (Kafka's ``RecordAccumulator``): records, rows, files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from eoslog.format.file_writer import DataFileWriter, TopicTarget, WrittenFile
from eoslog.producer.record_futures import AwaitedOffsets, AwaitedRows, RecordFuture
from eoslog.producer.rows import RecordRow, records_table
from eoslog.session.session import Session
from eoslog.state.names import PartitionId
from eoslog.state.partitions import topic_of
from eoslog.state.store_state import StoreState, Topic
from eoslog.storage.process import HomeProcess

_RECORD_OVERHEAD_BYTES = 64
_MOST_RECORDS_NOT_ENCODED = 10_000
_OLDEST_DATE_MS = 3_600_000


@dataclass(slots=True)
class _Records:
    """Records of one partition that are not yet encoded as Arrow."""

    topic: Topic
    awaited: AwaitedRows
    """All rows of the partition that have no offsets yet; these are the last ones, and it does not count them yet."""
    rows: list[RecordRow] = field(default_factory=list)


class RecordAccumulator:
    """Collects rows by partition and uploads them as files. A step that fails may be taken again: nothing is lost."""

    def __init__(self, store: Session, buffer_bytes: int, home: HomeProcess) -> None:
        self._store = store
        self._home = home
        self._limit = buffer_bytes
        self._writer = DataFileWriter(store.object_store, store.environment.new_token, buffer_bytes=buffer_bytes // 2)
        self._sticky = int(store.environment.jitter() * 1_000_003)
        self._clear()

    def _clear(self) -> None:
        self._records: dict[tuple[str, int], _Records] = {}
        """By ``PartitionId``, which costs more to make than a plain tuple that is equal to it."""
        self._record_bytes = 0
        self._most_records = 0
        self.awaited = AwaitedOffsets(self._home)
        """Who waits for the offsets of these rows."""
        self.files: list[WrittenFile] = []
        """Files that were uploaded and not yet taken."""
        self.upload_ms: int | None = None
        """A lower bound of the time at which the upload of the first file began (ms by the store's clock)."""

    @property
    def has_rows(self) -> bool:
        return bool(self._records or self.files or self._writer.buffered_rows)

    @property
    def row_count(self) -> int:
        """The number of rows that are collected or uploaded, and not yet in flight."""
        collected = sum(len(records.rows) for records in self._records.values()) + self._writer.buffered_rows
        return collected + sum(file.record_count for file in self.files)

    @property
    def is_full(self) -> bool:
        """Whether more is collected than ``buffer_bytes``."""
        return self._record_bytes + self._writer.buffered_bytes > self._limit

    @property
    def needs_room(self) -> bool:
        """Whether it is full or has many records, and so something is to be done before more is taken in."""
        return (
            self._record_bytes + self._writer.buffered_bytes > self._limit
            or self._most_records >= _MOST_RECORDS_NOT_ENCODED
        )

    @property
    def has_many_records(self) -> bool:
        """Whether a partition has so many records that they are better encoded."""
        return self._most_records >= _MOST_RECORDS_NOT_ENCODED

    def sticky_partition(self, topic: Topic) -> int:
        """Where rows without a key go until the next upload."""
        return self._sticky % topic.partitions

    def add_record(self, topic: Topic, partition: int, row: RecordRow) -> RecordFuture:
        """Take a Kafka record in, as ``record_row`` makes it. It is encoded later."""
        records = self._records.get((topic.topic_id, partition))
        if records is None:
            place = PartitionId(topic.topic_id, partition)
            records = self._records[place] = _Records(topic, self.awaited.of(topic, place))
        key, value, _, _ = row
        self._record_bytes += len(key or b"") + len(value or b"") + _RECORD_OVERHEAD_BYTES
        rows = records.rows
        # The number of the row is that of the rows before it: so an interrupt between two lines shifts no offset.
        future = RecordFuture(records.awaited, records.awaited.count + len(rows))
        rows.append(row)
        if len(rows) > self._most_records:
            self._most_records = len(rows)
        return future

    def add_tables(self, topic: Topic, tables: Iterable[tuple[int, pa.Table]]) -> None:
        """Take rows in, by partition and in the topic's schema.

        Raises:
            UnknownTopicOrPartition: a topic was deleted meanwhile; nothing was taken in.
        """
        target = self._target(topic)
        self._encode()
        for partition, rows in tables:
            self.awaited.of(topic, PartitionId(topic.topic_id, partition)).count += rows.num_rows
            self._writer.add(target, partition, rows)

    def encode_many(self) -> None:
        """Encode the records once a partition has many: rows in Python are far larger than they are as Arrow.

        Raises:
            UnknownTopicOrPartition: a topic was deleted meanwhile.
        """
        if self.has_many_records:
            self._encode()

    def upload_for_room(self) -> None:
        """Upload what takes most room.

        Raises:
            UnknownTopicOrPartition: a topic was deleted meanwhile.
            RetriableError
        """
        self._encode()
        self._note_upload()
        self.files += self._writer.make_room(self._store.now_ms())

    def upload(self) -> None:
        """Upload everything.

        Raises:
            UnknownTopicOrPartition: a topic was deleted meanwhile.
            RetriableError
        """
        self._encode()
        self._note_upload()
        self.files += self._writer.flush(self._store.now_ms())
        self._store.environment.reached("client.producer.files_uploaded")
        self._sticky += 1

    def take_files(self) -> list[WrittenFile]:
        """Hand the uploaded files over to the caller."""
        taken, self.files = self.files, []
        return taken

    def discard(self) -> None:
        """Forget everything. Files that were uploaded are left to vacuum."""
        self._clear()
        self._writer.discard()

    def _encode(self) -> None:
        topics = {records.topic.topic_id: records.topic for records in self._records.values()}
        targets = {topic_id: self._target(topic) for topic_id, topic in topics.items()}
        while self._records:
            place, records = next(iter(self._records.items()))
            table = records_table(records.rows)
            # One by one, so that a step that was stopped half-way encodes none of them twice.
            del self._records[place]
            records.awaited.count += len(records.rows)
            topic_id, partition = place
            self._writer.add(targets[topic_id], partition, table)
        self._record_bytes = self._most_records = 0

    def _target(self, topic: Topic) -> TopicTarget:
        def look(state: StoreState, slot: int) -> TopicTarget:
            topic_of(state, topic.topic_id)
            return TopicTarget.of(state, topic)

        return self._store.read(look, refresh=False)

    def _note_upload(self) -> None:
        """Remember when the upload of the oldest file begins, at the latest that the store's own dates prove."""
        if self.files or not self._writer.buffered_rows:
            return
        clock = self._store.object_store.clock
        if self._store.now_ms() - clock.last_date_ms > _OLDEST_DATE_MS:
            self._store.read(lambda state, slot: None)
        self.upload_ms = clock.last_date_ms
