"""Lookup of offsets by time: the first visible row of a partition at or after a timestamp."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from eoslog.format.topic_schemas import RECORDS_SCHEMA, stored_schema
from eoslog.read.columns import POSITION_COLUMNS, RECORD_COLUMNS
from eoslog.read.file_rows import FileRows
from eoslog.read.isolation import IsolationLevel
from eoslog.read.planner import ReadPlanner
from eoslog.read.row_reader import PartitionRead, read_rows
from eoslog.session.session import Session
from eoslog.state.partition_state import Partition
from eoslog.state.store_state import Topic
from eoslog.storage.object_store import ObjectStore


class OffsetAndTimestamp(NamedTuple):
    """The offset and the timestamp of a row."""

    offset: int
    timestamp: int
    """ms since the epoch."""


def offset_for_time(
    store: Session, topic: Topic, partition: Partition, *, isolation: IsolationLevel, timestamp_ms: int
) -> OffsetAndTimestamp | None:
    """Return the first visible row whose timestamp is ``timestamp_ms`` or later; None if there is none.

    This reads one file, and more only if the latest rows of a file are not visible. Rows of a topic of columns have the
    time at which their batch was written.
    """
    start = next(
        (segment.base_offset for segment in partition.sealed if segment.max_timestamp >= timestamp_ms),
        partition.segment_base_offset,
    )
    plan = ReadPlanner(store.indexes, topic.topic, isolation).plan(partition, max(start, partition.log_start_offset))
    late = (rows.only(rows.batches.taken(rows.batches.timestamp >= timestamp_ms)) for rows in plan.rows)
    first = next((rows for rows in late if len(rows.batches)), None)
    if first is None:
        return None
    if topic.topic_schema.kind == "columns" and not first.batches.has_gaps[0]:
        return OffsetAndTimestamp(int(first.batches.base_offset[0]), int(first.batches.timestamp[0]))
    return _first_row(
        store.object_store, topic, partition.id.partition, files=chain([first], late), timestamp_ms=timestamp_ms
    )


def _first_row(
    store: ObjectStore, topic: Topic, partition: int, *, files: Iterable[FileRows], timestamp_ms: int
) -> OffsetAndTimestamp | None:
    if topic.topic_schema.kind == "records":
        # As stored, in ms. The readers' column has microseconds, in which not every timestamp fits.
        wanted = pa.schema([RECORDS_SCHEMA.field("timestamp"), RECORD_COLUMNS.field("offset")])
    else:
        wanted = pa.schema([POSITION_COLUMNS.field("_timestamp"), POSITION_COLUMNS.field("_offset")])
    time, offset = wanted.names
    read = PartitionRead(
        store=store,
        topic=topic.topic,
        partition=partition,
        files=files,
        stored=stored_schema(topic),
        wanted=wanted,
        threads=1,
    )
    for rows in read_rows(read):
        times = rows.column(time).cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).to_numpy()
        late_enough = np.flatnonzero(times >= timestamp_ms)
        if len(late_enough):
            row = int(late_enough[0])
            return OffsetAndTimestamp(int(rows.column(offset).to_numpy()[row]), int(times[row]))
    return None
