"""Writing of data files: collect rows by partition, encode them, and upload them under unguessable names.

No reader sees a file until an entry of the log names it. Vacuum deletes files that no entry names. A small file is not
uploaded: its content travels in the record of its entry. Larger ones of one flush may share an object.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eoslog.format.checked_files import crc32c, footer_crc32c
from eoslog.format.data_file import encode_data_file, with_offset_deltas
from eoslog.format.limited_groups import Limit, limited_groups
from eoslog.format.statistics import encode_statistics
from eoslog.format.topic_schemas import conform, file_schema
from eoslog.state.entry_fields import FileReference, SharedPosition, shared_object_path
from eoslog.state.store_state import StoreState, Topic
from eoslog.state.transaction_entries import BatchAppended, StagedBatch
from eoslog.storage import tracing

DEFAULT_BUFFER_BYTES = 64 << 20
MOST_INLINE_BYTES = 1 << 20
"""The largest total size of the files of one request that travel in its record (bytes)."""
MOST_SHARED_BYTES = 16 << 20
"""The largest size of a shared object (bytes)."""
_LONGEST_UPLOAD_MS = 3_600_000
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
    """True if the topic is published. Readers of its tables need each file as an object of its own."""

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
    shared: SharedPosition | None = None
    """The place of the file in a shared object; None if it is elsewhere."""

    @property
    def reference(self) -> FileReference:
        """The reference by which an entry names the file."""
        return FileReference(
            path=self.path,
            length=self.length,
            crc32c=self.crc32c,
            footer_crc32c=self.footer_crc32c,
            in_record=None if self.content is None else True,
            shared=self.shared,
        )

    def batch(
        self,
        *,
        transactional_id: str | None,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        upload_ms: int,
        time_ms: int,
        registers_producer: bool = False,
    ) -> BatchAppended:
        """Return the file as a batch of a producer. The slot that appends it will give its rows their offsets.

        Args:
            upload_ms: a lower bound of the time at which the upload began (ms by the store's clock).
        """
        return BatchAppended(
            topic_id=self.topic_id,
            partition=self.partition,
            base_offset=0,
            record_count=self.record_count,
            file=self.reference,
            upload_ms=upload_ms,
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            registers_producer=True if registers_producer else None,
            min_timestamp=self.min_timestamp,
            max_timestamp=self.max_timestamp,
            statistics=self.statistics,
            time_ms=time_ms,
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


@dataclass(frozen=True, slots=True)
class NewFile:
    """Rows that become one file, in the topic's own schema."""

    target: TopicTarget
    partition: int
    table: pa.Table


@dataclass(slots=True)
class _Buffer:
    target: TopicTarget
    partition: int
    tables: list[pa.Table] = field(default_factory=list)
    bytes: int = 0
    rows: int = 0

    def new_file(self) -> NewFile:
        table = self.tables[0] if len(self.tables) == 1 else pa.concat_tables(self.tables)
        return NewFile(self.target, self.partition, table)


class Uploads(Protocol):
    """The part of an object store that a writer needs."""

    def put_new(self, objects: Sequence[tuple[str, bytes]]) -> None:
        """Put objects under new names."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The rules by which new files go into the record, into shared objects, or into objects of their own."""

    inline_bytes: int = 0
    """A file up to this size travels in the record."""
    room_bytes: int = 0
    """The largest total size of the files that travel in the record."""
    shared_bytes: int = 0
    """A file up to this size shares an object with others that do not travel in the record."""
    time_ms: Callable[[], int] = int
    """Returns the time for the path of a shared object: the store's or the log's, whichever is later (ms)."""


OBJECTS_ONLY = Placement()
"""Every file is an object of its own."""


def contents_of(files: Iterable[WrittenFile]) -> dict[str, bytes]:
    """Return the contents of the files that are to travel in a record, by path."""
    return {file.path: file.content for file in files if file.content is not None}


def upload_beyond(store: Uploads, files: Sequence[WrittenFile]) -> list[WrittenFile]:
    """Upload the files for which one record has no room, each as an object. Return all files in their order."""
    inline = [file for file in files if file.content is not None]
    _, beyond = _divided(inline, MOST_INLINE_BYTES, MOST_INLINE_BYTES)
    if beyond:
        store.put_new(list(contents_of(beyond).items()))
    uploaded = {file.path for file in beyond}
    return [replace(file, content=None) if file.path in uploaded else file for file in files]


def _divided(
    files: Sequence[WrittenFile], largest_bytes: int, room_bytes: int | None = None
) -> tuple[list[WrittenFile], list[WrittenFile]]:
    """Divide files into small files that fit together into the room, and the other files."""
    fitting: list[WrittenFile] = []
    others: list[WrittenFile] = []
    for file in files:
        if file.length > largest_bytes or (room_bytes is not None and file.length > room_bytes):
            others.append(file)
            continue
        fitting.append(file)
        if room_bytes is not None:
            room_bytes -= file.length
    return fitting, others


def _shared(path: str, files: Sequence[WrittenFile]) -> tuple[list[WrittenFile], bytes]:
    """Return files as parts of a shared object, and its content."""
    contents = [file.content or b"" for file in files]
    positions = accumulate(map(len, contents), initial=0)
    parts = [
        replace(file, content=None, shared=SharedPosition(path=path, position=position))
        for file, position in zip(files, positions, strict=False)
    ]
    return parts, b"".join(contents)


class DataFileWriter:
    """Collects rows and writes them to files. It uploads the largest buffers when all exceed ``buffer_bytes``."""

    def __init__(
        self, store: Uploads, new_name: Callable[[], str], *, buffer_bytes: int = DEFAULT_BUFFER_BYTES
    ) -> None:
        self._store = store
        self._new_name = new_name
        self._buffer_bytes = buffer_bytes
        self._buffers: dict[tuple[str, int], _Buffer] = {}
        self.buffered_bytes = 0
        """Bytes of the collected rows."""
        self._loose_bytes = 0
        """Bytes of the rows added since ``_release_input`` last copied the buffers."""

    @property
    def buffered_rows(self) -> int:
        return sum(buffer.rows for buffer in self._buffers.values())

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
        self.buffered_bytes += size
        self._loose_bytes += size

    def make_room(self, append_time_ms: int) -> list[WrittenFile]:
        """Upload the largest buffers until at most ``buffer_bytes`` are left. After an error rows stay collected."""
        keys = [key for key, buffer in self._buffers.items() if buffer.rows > _LARGEST_FILE_ROWS]
        excess = self.buffered_bytes - self._buffer_bytes - sum(self._buffers[key].bytes for key in keys)
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
            self._release_input()
        return written

    def flush(self, append_time_ms: int, placement: Placement = OBJECTS_ONLY) -> list[WrittenFile]:
        """Write all collected rows. After an error they stay collected, and the caller may call again.

        Args:
            append_time_ms: the timestamp of rows that have none of their own (ms).
            placement: the rules for the files. Files of published topics are objects of their own.
        """
        return self._upload(list(self._buffers), append_time_ms, placement)

    def upload_contents(self, files: Sequence[WrittenFile], placement: Placement) -> list[WrittenFile]:
        """Upload the files that were to travel in the record, and return all files in their order.

        A partition may have several files here, and their order is that of its rows.
        """
        may_share, large = _divided([file for file in files if file.content is not None], placement.shared_bytes)
        uploaded = {file.path: file for file in self._put(may_share, large, placement)}
        return [uploaded.get(file.path, file) for file in files]

    def discard(self) -> None:
        """Drop the collected rows without uploading them."""
        self._buffers.clear()
        self.buffered_bytes = 0
        self._loose_bytes = 0

    def _release_input(self) -> None:
        """Copy the collected rows. Otherwise the rows of one partition keep the memory of their whole input batch."""
        for buffer in self._buffers.values():
            buffer.tables = [_copied(pa.concat_tables(buffer.tables))]
        self._loose_bytes = 0

    def _upload(
        self, keys: Sequence[tuple[str, int]], append_time_ms: int, placement: Placement = OBJECTS_ONLY
    ) -> list[WrittenFile]:
        buffers = [self._buffers[key] for key in keys]
        written = self.write([buffer.new_file() for buffer in buffers if buffer.rows], append_time_ms, placement)
        for key in keys:
            self.buffered_bytes -= self._buffers.pop(key).bytes
        return written

    def write(
        self, files: Sequence[NewFile], append_time_ms: int, placement: Placement = OBJECTS_ONLY
    ) -> list[WrittenFile]:
        """Write files of these rows, without collecting them. Return the files in the same order.

        Args:
            append_time_ms: the timestamp of rows that have none of their own (ms).
            placement: the rules for the files. Files of published topics are objects of their own.
        """
        if not files:
            return []
        with tracing.span("upload", tracing.MESSAGING | {"messaging.operation.name": "upload"}) as span:
            encoded = [self._encoded(rows, append_time_ms) for rows in files]
            published = {file.path for rows, file in zip(files, encoded, strict=True) if rows.target.is_published}
            written = self._placed(encoded, published, placement)
            if span is not None:
                topics = {rows.target.topic for rows in files}
                sizes = {"eoslog.files": len(written), "eoslog.bytes": sum(file.length for file in written)}
                tracing.describe(span, sizes | tracing.rows_of(topics, sum(file.record_count for file in written)))
            return written

    def _placed(
        self, files: Sequence[WrittenFile], published: Container[str], placement: Placement
    ) -> list[WrittenFile]:
        """Upload the files that do not travel in the record. Return all files in their order.

        Args:
            published: the paths of the files of published topics.
        """
        of_published = [file for file in files if file.path in published]
        inline, others = _divided(
            [file for file in files if file.path not in published], placement.inline_bytes, placement.room_bytes
        )
        may_share, large = _divided(others, placement.shared_bytes)
        placed = {file.path: file for file in inline + self._put(may_share, [*of_published, *large], placement)}
        return [placed[file.path] for file in files]

    def _encoded(self, rows: NewFile, append_time_ms: int) -> WrittenFile:
        target, table = rows.target, rows.table
        body = encode_data_file(with_offset_deltas(table), file_schema(table.schema, target.arrow))
        earliest, latest = _timestamps(table, append_time_ms)
        return WrittenFile(
            topic_id=target.topic_id,
            partition=rows.partition,
            path=target.file_path(rows.partition, self._new_name()),
            length=len(body),
            crc32c=crc32c(body),
            footer_crc32c=footer_crc32c(body),
            record_count=table.num_rows,
            min_timestamp=earliest,
            max_timestamp=latest,
            statistics=encode_statistics(body, table, target.statistics_columns),
            content=body,
        )

    def _put(
        self, may_share: Sequence[WrittenFile], own: Sequence[WrittenFile], placement: Placement
    ) -> list[WrittenFile]:
        """Upload files, and return them without their contents.

        Args:
            may_share: the files that may share objects. A single file is an object of its own.
            own: further files that are objects of their own.
        """
        if not may_share and not own:
            return []
        groups = list(limited_groups(may_share, Limit(lambda file: file.length, MOST_SHARED_BYTES)))
        own = [*own, *(file for group in groups if len(group) == 1 for file in group)]
        groups = [group for group in groups if len(group) > 1]
        objects = list(contents_of(own).items())
        while True:
            time_ms = placement.time_ms()
            shared = [
                (path, *_shared(path, group))
                for group in groups
                for path in [shared_object_path(time_ms, self._new_name())]
            ]
            objects += [(path, content) for path, _, content in shared]
            if objects:
                self._store.put_new(objects)
            if not shared or placement.time_ms() - time_ms < _LONGEST_UPLOAD_MS:
                break
            # This host was suspended, and its clock stood still. The answer to the put shows it. The log may take the
            # objects for expired, so they get new names.
            objects = []
        return [replace(file, content=None) for file in own] + [part for _, parts, _ in shared for part in parts]


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
