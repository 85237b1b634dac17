"""The reading of one partition by a consumer: its position, its plan, and the rows that are already decoded."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from eoslog.consumer.consumer_records import ConsumerRecord, columns_to_read, to_records
from eoslog.format.segment_index_cache import SegmentIndexes
from eoslog.format.topic_schema_json import stored_schema
from eoslog.read.file_slices import read_slices
from eoslog.read.isolation import IsolationLevel, visible_end
from eoslog.read.planner import ReadPlanner
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import Partition
from eoslog.state.store_state import Topic
from eoslog.storage.object_store import ObjectStore


class PartitionFetch:
    """Reads one partition forward. A file is fetched when its first row is needed, one file at a time."""

    def __init__(
        self,
        store: ObjectStore,
        indexes: SegmentIndexes,
        topic: Topic,
        partition: int,
        *,
        with_transaction: bool = False,
    ) -> None:
        self._store = store
        self._indexes = indexes
        self._with_transaction = with_transaction
        self.topic = topic
        self.partition = partition
        self.position: int | None = None
        """The next offset to return; None until it is resolved."""
        self.paused = False
        self._planned_end = 0
        self._rows_ahead = 0
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._batch: pa.RecordBatch | None = None
        self._row = 0

    @property
    def partition_id(self) -> PartitionId:
        return PartitionId(self.topic.topic_id, self.partition)

    @property
    def rows_ahead(self) -> int:
        """The number of planned rows that are not yet returned. It may be too high if compaction has removed rows."""
        return self._rows_ahead

    def move(self, position: int | None) -> None:
        """Set the position, and drop the plan."""
        self.position = position
        self._drop_plan()

    def _drop_plan(self) -> None:
        self._rows_ahead = 0
        self._batches = iter(())
        self._batch = None
        self._row = 0

    def plan(self, topic: Topic, partition: Partition, isolation: IsolationLevel) -> None:
        """Plan the visible rows from the position on. If there is none, the position moves past the invisible ones.

        Args:
            topic: the topic of the newest state. It may have more columns than before.

        Raises:
            OffsetOutOfRange: the partition does not hold the position.
        """
        if self.position is None:
            return
        if self._rows_ahead:
            if self.position >= partition.log_start_offset:
                return
            self._drop_plan()
        in_range = partition.log_start_offset <= self.position <= partition.high_watermark
        if in_range and visible_end(partition, isolation) <= self.position:
            return
        self.topic = topic
        plan = ReadPlanner(self._indexes, topic.topic, isolation).plan(partition, self.position)
        self._planned_end = plan.end_offset
        self._rows_ahead = plan.record_count
        self._batches = read_slices(
            self._store,
            plan.topic,
            plan.partition,
            plan.slices,
            stored_schema(self.topic),
            columns_to_read(self.topic, with_transaction=self._with_transaction),
            threads=1,
        )
        if not self._rows_ahead:
            self.move(plan.end_offset)

    def take(self, most: int) -> list[ConsumerRecord]:
        """Return the next planned records, at most ``most``. The position moves past them.

        Raises:
            CorruptRecord, StoreUnavailable: the position stays, and the next call of ``plan`` plans it again.
        """
        records: list[ConsumerRecord] = []
        while len(records) < most and self._rows_ahead:
            if self._batch is None or self._row == self._batch.num_rows:
                if records:
                    # Return these records before the next file is read: an error there would lose them.
                    break
                if not self._next_batch():
                    self.move(self._planned_end)
                continue
            rows = self._batch.slice(self._row, most - len(records))
            records += to_records(self.topic, self.partition, rows)
            self._row += rows.num_rows
            self._rows_ahead -= rows.num_rows
            self.position = records[-1].offset + 1
        if records and not self._rows_ahead:
            self.move(max(self._planned_end, records[-1].offset + 1))
        return records

    def _next_batch(self) -> bool:
        """Decode the next batch. Return False if there is none, because compaction removed the planned rows."""
        try:
            self._batch = next(self._batches, None)
        except BaseException:
            self._drop_plan()
            raise
        self._row = 0
        return self._batch is not None
