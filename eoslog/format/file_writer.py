"""Writing of data files: collect rows by partition, encode them, and upload them under unguessable names.

No reader sees a file until an entry of the log names it. Vacuum deletes files that no entry names. A small file is not
uploaded: its content travels in the record of its entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eoslog.format.checked_files import crc32c, footer_crc32c
from eoslog.format.data_file import encode_data_file, with_offset_deltas
from eoslog.format.statistics import encode_statistics
from eoslog.format.topic_schemas import conform, file_schema
from eoslog.state.entry_fields import FileReference
from eoslog.state.store_state import StoreState, Topic
from eoslog.state.transaction_entries import StagedBatch
from eoslog.storage import tracing

DEFAULT_BUFFER_BYTES = 64 << 20
MOST_INLINE_BYTES = 1 << 20
"""The largest total size of the files of one request that travel in its record (bytes)."""
_LARGEST_FILE_ROWS = 1 << 24
_LARGEST_CHUNK_BYTES = 1 << 30
_TIMESTAMP = pa.timestamp("ms", tz="UTC")


@dataclass(frozen=True, slots=True)
class TopicTarget:
    """The paths and settings of a topic's new files: plain values, which can be sent to other processes."""

    topic: str
    topic_id: str
    segment_bases: tuple[int, ...]
    """Base offset of each partition's active segment."""
    statistics_columns: int = 0
    """The largest number of columns with statistics in the log; 0 for Kafka records."""
    arrow: str | None = None
    """The topic's encoded schema, which has the column ids; None for Kafka records."""
    is_published: bool = False
    """True if the topic has a Delta table. Its readers need objects, so no file travels in a record."""

    @classmethod
    def of(cls, state: StoreState, topic: Topic) -> TopicTarget:
        bases = (state.partitions[partition_id].segment_base_offset for partition_id in topic.partition_ids())
        statistics_columns = topic.config.statistics_columns if topic.topic_schema.kind == "columns" else 0
        return cls(
            topic.topic,
            topic.topic_id,
            tuple(bases),
            statistics_columns,
            topic.topic_schema.arrow,
            topic.config.is_published,
        )

    @property
    def partitions(self) -> int:
        return len(self.segment_bases)

    def file_path(self, partition: int, name: str) -> str:
        return f"{self.topic}/{self.topic_id}/{partition}/{self.segment_bases[partition]:020d}/{name}.parquet"


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """An encoded data file: plain values, which can be sent to the process that commits."""

    topic_id: str
    partition: int
    path: str
    length: int
    crc32c: int
    footer_crc32c: int
    record_count: int
    min_timestamp: int
    max_timestamp: int
    statistics: str | None = None
    """Statistics of the columns in the form of an entry."""
    content: bytes | None = field(default=None, repr=False)
    """The content, if it is to travel in the record; None if the file was uploaded."""

    @property
    def reference(self) -> FileReference:
        """The reference by which an entry names the file."""
        return FileReference(
            path=self.path,
            length=self.length,
            crc32c=self.crc32c,
            footer_crc32c=self.footer_crc32c,
            in_record=None if self.content is None else True,
        )

    def staged(self, task: int | None = None) -> StagedBatch:
        """Return the file as a staged batch. The end of the transaction will give its rows their offsets.

        Args:
            task: the task of a job that wrote the file.
        """
        return StagedBatch(
            topic_id=self.topic_id,
            partition=self.partition,
            base_offset=0,
            record_count=self.record_count,
            file=self.reference,
            min_timestamp=self.min_timestamp,
            max_timestamp=self.max_timestamp,
            statistics=self.statistics,
            task=task,
        )


@dataclass(slots=True)
class _Buffer:
    target: TopicTarget
    partition: int
    tables: list[pa.Table] = field(default_factory=list)
    bytes: int = 0
    rows: int = 0


class Uploads(Protocol):
    """What a writer needs of an object store."""

    def put_new(self, objects: Sequence[tuple[str, bytes]]) -> None:
        """Put objects under new names."""


def contents_of(files: Iterable[WrittenFile]) -> dict[str, bytes]:
    """Return the contents of the files that are to travel in a record, by path."""
    return {file.path: file.content for file in files if file.content is not None}


def upload_beyond(store: Uploads, files: Sequence[WrittenFile], most_bytes: int) -> list[WrittenFile]:
    """Upload the files for which one record has no room, and return all files in their order.

    Args:
        most_bytes: the largest total size of the files that travel in the record (bytes); 0 uploads all.
    """
    room = most_bytes
    beyond: list[tuple[str, bytes]] = []
    found = []
    for file in files:
        if file.content is not None and file.length > room:
            beyond.append((file.path, file.content))
            file = replace(file, content=None)
        elif file.content is not None:
            room -= file.length
        found.append(file)
    if beyond:
        store.put_new(beyond)
    return found


class DataFileWriter:
    """Collects rows and writes them to files. It uploads the largest buffers when all exceed ``buffer_bytes``."""

    def __init__(
        self, store: Uploads, new_name: Callable[[], str], *, buffer_bytes: int = DEFAULT_BUFFER_BYTES
    ) -> None:
        self._store = store
        self._new_name = new_name
        self._buffer_bytes = buffer_bytes
        self._buffers: dict[tuple[str, int], _Buffer] = {}
        self._bytes = 0
        self._loose_bytes = 0
        """Bytes of the rows added since ``_let_go`` last copied the buffers."""

    @property
    def buffered_rows(self) -> int:
        return sum(buffer.rows for buffer in self._buffers.values())

    @property
    def buffered_bytes(self) -> int:
        return self._bytes

    def append(self, target: TopicTarget, partition: int, rows: pa.Table, append_time_ms: int) -> list[WrittenFile]:
        """Add rows of one partition, in the topic's own schema. Return the files uploaded to free memory."""
        self.add(target, partition, rows)
        return self.make_room(append_time_ms)

    def add(self, target: TopicTarget, partition: int, rows: pa.Table) -> None:
        """Add rows of one partition, in the topic's own schema, without uploading."""
        buffer = self._buffers.setdefault((target.topic_id, partition), _Buffer(target, partition))
        if buffer.tables and buffer.tables[0].schema != rows.schema:
            # The topic got new columns meanwhile.
            buffer.tables = [conform(table, rows.schema) for table in buffer.tables]
            buffer.target = replace(buffer.target, arrow=target.arrow)
        size = rows.nbytes
        buffer.tables.append(rows)
        buffer.rows += rows.num_rows
        buffer.bytes += size
        self._bytes += size
        self._loose_bytes += size

    def make_room(self, append_time_ms: int) -> list[WrittenFile]:
        """Upload the largest buffers until at most ``buffer_bytes`` are left. After an error rows stay collected."""
        keys = [key for key, buffer in self._buffers.items() if buffer.rows > _LARGEST_FILE_ROWS]
        excess = self._bytes - self._buffer_bytes - sum(self._buffers[key].bytes for key in keys)
        if excess > 0:
            for key in sorted(self._buffers.keys() - set(keys), key=lambda key: -self._buffers[key].bytes):
                keys.append(key)
                excess -= self._buffers[key].bytes
                if excess <= 0:
                    break
        if not keys:
            return []
        written = self._upload(keys, append_time_ms)
        if self._loose_bytes > self._buffer_bytes:
            self._let_go()
        return written

    def flush(self, append_time_ms: int, inline_limit_bytes: int = 0) -> list[WrittenFile]:
        """Write all collected rows. After an error they stay collected, and the caller may call again.

        Args:
            append_time_ms: the timestamp of rows that have none of their own (ms).
            inline_limit_bytes: files up to this size are not uploaded, and have their content (bytes).
        """
        return self._upload(list(self._buffers), append_time_ms, inline_limit_bytes)

    def discard(self) -> None:
        """Drop the collected rows without uploading them."""
        self._buffers.clear()
        self._bytes = 0
        self._loose_bytes = 0

    def _let_go(self) -> None:
        """Copy the collected rows. Otherwise the rows of one partition keep the memory of their whole input batch."""
        for buffer in self._buffers.values():
            buffer.tables = [_copied(pa.concat_tables(buffer.tables))]
        self._loose_bytes = 0

    def _upload(
        self, keys: Sequence[tuple[str, int]], append_time_ms: int, inline_limit_bytes: int = 0
    ) -> list[WrittenFile]:
        if not keys:
            return []
        with tracing.span("upload", tracing.MESSAGING | {"messaging.operation.name": "upload"}) as span:
            topics = {self._buffers[topic_id, partition].target.topic for topic_id, partition in keys}
            written = self._put_files(keys, append_time_ms, inline_limit_bytes)
            if span is not None:
                sizes = {"eoslog.files": len(written), "eoslog.bytes": sum(file.length for file in written)}
                tracing.describe(span, sizes | tracing.rows_of(topics, sum(file.record_count for file in written)))
            return written

    def _put_files(
        self, keys: Sequence[tuple[str, int]], append_time_ms: int, inline_limit_bytes: int
    ) -> list[WrittenFile]:
        objects: list[tuple[str, bytes]] = []
        written: list[WrittenFile] = []
        for buffer in [self._buffers[key] for key in keys]:
            if buffer.rows == 0:
                continue
            table = buffer.tables[0] if len(buffer.tables) == 1 else pa.concat_tables(buffer.tables)
            body = encode_data_file(with_offset_deltas(table), file_schema(table.schema, buffer.target.arrow))
            path = buffer.target.file_path(buffer.partition, self._new_name())
            is_inline = len(body) <= inline_limit_bytes and not buffer.target.is_published
            if not is_inline:
                objects.append((path, body))
            earliest, latest = _timestamps(table, append_time_ms)
            written.append(
                WrittenFile(
                    buffer.target.topic_id,
                    buffer.partition,
                    path,
                    len(body),
                    crc32c(body),
                    footer_crc32c(body),
                    table.num_rows,
                    earliest,
                    latest,
                    encode_statistics(body, table, buffer.target.statistics_columns),
                    body if is_inline else None,
                )
            )
        if objects:
            self._store.put_new(objects)
        for key in keys:
            self._bytes -= self._buffers.pop(key).bytes
        return written


def _copied(rows: pa.Table) -> pa.Table:
    if rows.nbytes < _LARGEST_CHUNK_BYTES and any(column.num_chunks > 1 for column in rows.columns):
        return rows.combine_chunks()
    # combine_chunks does not copy a table of one chunk. Rows beyond 2 GiB do not fit into one.
    return pa.Table.from_batches([batch.take(np.arange(batch.num_rows)) for batch in rows.to_batches()], rows.schema)


def _timestamps(table: pa.Table, append_time_ms: int) -> tuple[int, int]:
    """Return the smallest and largest timestamp of Kafka records (ms). Rows of columns have their append time."""
    column = table.schema.get_field_index("timestamp")
    if column < 0 or table.schema.field(column).type != _TIMESTAMP:
        return append_time_ms, append_time_ms
    ends: Any = pc.min_max(table.column(column))
    earliest, latest = ends["min"].value, ends["max"].value
    if earliest is None or latest is None:
        return append_time_ms, append_time_ms
    return max(-1, earliest), max(-1, latest)
