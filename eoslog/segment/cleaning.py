"""Cleaning a sealed segment: the rows that compaction keeps, and what is left of its batches, markers and index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eoslog.rules.aborted import AbortedTransaction
from eoslog.rules.cleaning import (
    CleanedTransactions,
    cleaned_marker,
    is_aborted,
    is_last_of_its_producer,
    may_drop_tombstones,
    without_rows,
)
from eoslog.rules.entry_fields import FileReference
from eoslog.rules.partition_state import NO_SLOT, NO_TIME, Batch, ProducerState
from eoslog.rules.state import Topic
from eoslog.segment.offset_map import OffsetMap
from eoslog.segment.replacing import SegmentRun, read_aborted, read_batches
from eoslog.segment.rewriting import RewrittenFile, SourceFile, read_rows, row_offsets, source_files
from eoslog.segment.row_keys import RowKeys
from eoslog.segment.stored_file import read_files
from eoslog.segment.stored_schema import stored_schema
from eoslog.store.environment import Environment
from eoslog.store.object_store import ObjectStore

_TIMESTAMP = "timestamp"


@dataclass(slots=True)
class CleanedSegment:
    """What compaction leaves of a segment."""

    batches: list[Batch] = field(default_factory=list)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    """The aborted transactions of which something is left before their marker."""
    rows_removed: int = 0
    removed_end_slot: int = NO_SLOT
    """The last slot that ended a transaction of which committed rows were removed."""
    has_changed: bool = False


@dataclass(slots=True)
class _KeptRows:
    """Of one file: which rows stay, and what that makes of its batches."""

    retained: npt.NDArray[np.bool_]
    tombstones: npt.NDArray[np.bool_]
    timestamps: npt.NDArray[np.int64] | None
    """Of Kafka records (ms); None if the rows have the time of their batch."""


class Cleaner:
    """Cleans the segments of a partition, in their order from the first one on.

    Args:
        producers: what the partition knows of its producers.
        now_ms: the store's time.
    """

    def __init__(
        self,
        store: ObjectStore,
        environment: Environment,
        topic: Topic,
        producers: dict[int, ProducerState],
        offset_map: OffsetMap,
        now_ms: int,
        target_file_bytes: int,
    ) -> None:
        self._store = store
        self._environment = environment
        self._topic = topic
        self._stored = stored_schema(topic)
        self._keys = RowKeys(topic)
        self._producers = producers
        self._map = offset_map
        self._now_ms = now_ms
        self._target_file_bytes = target_file_bytes
        self._transactions = CleanedTransactions()

    def clean(self, run: SegmentRun) -> CleanedSegment:
        """Write the rows that stay, where some of their file go.

        Raises:
            CorruptRecord
        """
        batches = read_batches(self._store, run.segments)
        aborted = read_aborted(self._store, run.segments)
        with_rows = self._clean_files(run, source_files(batches))
        cleaned = CleanedSegment()
        pinned: set[int] = set()
        for batch in batches:
            left: Batch | None
            if batch.control is not None:
                is_empty = self._transactions.is_empty(batch)
                left = cleaned_marker(
                    batch, is_empty, self._producers, self._now_ms, self._topic.config.delete_retention_ms
                )
                if not is_empty:
                    pinned.add(batch.base_offset)
            else:
                self._transactions.on_batch(batch)
                left = with_rows.get(batch.base_offset)
                if left is None and is_last_of_its_producer(batch, self._producers):
                    left = without_rows(batch)
                self._count(cleaned, batch, left)
            if left is not None:
                cleaned.batches.append(left)
        cleaned.aborted = [each for each in aborted if each.last_offset in pinned]
        cleaned.has_changed = (cleaned.batches, cleaned.aborted) != (batches, aborted)
        return cleaned

    def _count(self, cleaned: CleanedSegment, before: Batch, left: Batch | None) -> None:
        removed = before.record_count - (left.record_count if left is not None else 0)
        cleaned.rows_removed += removed
        if removed and not is_aborted(before):
            cleaned.removed_end_slot = max(cleaned.removed_end_slot, before.end_slot)

    def _clean_files(self, run: SegmentRun, sources: Sequence[SourceFile]) -> dict[int, Batch]:
        """What is left of the batches that keep rows, by their base offset. Neighbouring rewritten files become one."""
        left: dict[int, Batch] = {}
        written: RewrittenFile | None = None
        pending: list[Batch] = []
        estimated_bytes = 0.0

        def close() -> None:
            nonlocal written
            if written is not None:
                file = written.upload()
                left.update((batch.base_offset, batch._replace(file=file)) for batch in pending)
                pending.clear()
                written = None

        # A file of aborted rows alone is not even read.
        kept = [each for each in sources if not all(is_aborted(batch) for batch in each.batches)]
        for source, body in zip(kept, read_files(self._store, [each.file for each in kept]), strict=True):
            rows = self._kept_rows(source, body)
            if rows.retained.all():
                close()
                left.update((batch.base_offset, batch) for batch in self._kept_batches(source, rows, None))
                continue
            if not rows.retained.any():
                continue
            part = source.file.length * float(rows.retained.mean())
            if written is not None and estimated_bytes + part > self._target_file_bytes:
                close()
            if written is None:
                written = RewrittenFile(self._store, f"{run.new_path(self._environment)}.parquet", self._stored)
                estimated_bytes = 0.0
            pending += self._kept_batches(source, rows, written.rows)
            written.add(source, body, rows.retained)
            estimated_bytes += part
        close()
        return left

    def _kept_rows(self, source: SourceFile, body: bytes) -> _KeptRows:
        counts = [batch.record_count for batch in source.batches]
        offsets = row_offsets(source, body, self._stored)
        is_dropped = np.repeat([is_aborted(batch) for batch in source.batches], counts)
        drops_tombstones = np.repeat([may_drop_tombstones(batch, self._now_ms) for batch in source.batches], counts)
        tombstones = np.zeros(source.rows, np.bool_)
        is_newest = np.ones(source.rows, np.bool_)
        records = self._topic.topic_schema.kind == "records"
        timestamps = np.zeros(source.rows, np.int64) if records else None
        columns = [*self._keys.key_columns, *self._keys.value_columns, *([_TIMESTAMP] if records else [])]
        newest, end_offset, row = self._map.newest, self._map.end_offset, 0
        for rows in read_rows(source, body, self._stored, columns):
            end = row + rows.num_rows
            keys = self._keys.keys(rows)
            # No row replaces one without a key, so it stays, unlike with Kafka's cleaner: its writer was told that it
            # is there, and may not have known yet that the topic is compacted.
            is_newest[row:end] = [
                key is None or offset >= newest.get(key, -1)
                for key, offset in zip(keys, offsets[row:end].tolist(), strict=True)
            ]
            tombstones[row:end] = self._keys.tombstones(rows) & [key is not None for key in keys]
            if timestamps is not None:
                timestamps[row:end] = rows.column(_TIMESTAMP).cast(pa.int64()).to_numpy()
            row = end
        is_kept = (offsets >= end_offset) | (is_newest & ~(tombstones & drops_tombstones))
        return _KeptRows(is_kept & ~is_dropped, tombstones, timestamps)

    def _kept_batches(self, source: SourceFile, rows: _KeptRows, first_row: int | None) -> list[Batch]:
        """The batches that keep rows; ``first_row`` is where they begin in another file, None if they stay."""
        found = []
        file: FileReference | None = source.file if first_row is None else None
        before = 0
        for batch in source.batches:
            here = slice(batch.first_row, batch.first_row + batch.record_count)
            retained = rows.retained[here]
            count = int(retained.sum())
            if not count:
                continue
            left = batch._replace(
                record_count=count, file=file, first_row=batch.first_row if first_row is None else first_row + before
            )
            if rows.timestamps is not None and count < batch.record_count:
                times = rows.timestamps[here][retained]
                left = left._replace(min_timestamp=max(-1, int(times.min())), max_timestamp=max(-1, int(times.max())))
            # What the map does not reach has not deleted its key yet.
            is_mapped = batch.end_offset <= self._map.end_offset
            if is_mapped and left.delete_horizon_ms == NO_TIME and (rows.tombstones[here] & retained).any():
                left = left._replace(delete_horizon_ms=self._now_ms + self._topic.config.delete_retention_ms)
            found.append(left)
            before += count
        return found
