"""The offset map: the offset of each key's newest committed row in the dirty part of a partition.

Its memory is bounded, as in Kafka's ``SkimpyOffsetMap``. When it is full, the rest stays dirty until the next pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eoslog.format.checked_files import read_files
from eoslog.format.partitioner import RowKeys
from eoslog.format.topic_schemas import stored_schema
from eoslog.maintenance.segment_rewriting import SourceFile, read_batches, read_rows, row_offsets, source_files
from eoslog.state.partition_state import Outcome, SealedSegment
from eoslog.state.store_state import Topic
from eoslog.storage.object_store import ObjectStore

OFFSET_MAP_BYTES = 256 << 20
_ENTRY_BYTES = 120


@dataclass(frozen=True, slots=True)
class OffsetMap:
    """The offset of the newest committed row of each key, up to an offset."""

    newest: dict[bytes, int]
    """The offset of the newest committed row, by key."""
    end_offset: int
    """The end of the map (exclusive). Compaction keeps all rows from here on, because their keys are unknown."""


def build_offset_map(
    store: ObjectStore,
    topic: Topic,
    segments: Sequence[SealedSegment],
    *,
    start_offset: int,
    end_offset: int,
    most_bytes: int,
) -> OffsetMap:
    """Read the keys of the committed rows in [``start_offset``, ``end_offset``).

    Args:
        segments: the sealed segments that hold the range.
        most_bytes: the approximate size limit of the map (bytes). A full map ends before ``end_offset``.

    Raises:
        CorruptRecord: a file or an index is missing or damaged.
    """
    newest: dict[bytes, int] = {}
    keys, stored = RowKeys(topic), stored_schema(topic)
    size = 0
    for segment in segments:
        sources = [each for each in source_files(read_batches(store, [segment])) if _is_mapped(each, start_offset)]
        for source, body in zip(sources, read_files(store, [each.file for each in sources]), strict=True):
            offsets = row_offsets(source, body, stored)
            wanted = np.repeat(
                [batch.outcome is Outcome.COMMITTED for batch in source.batches],
                [batch.record_count for batch in source.batches],
            ) & (offsets >= start_offset)
            row = 0
            for rows in read_rows(source, body, stored, keys.key_columns):
                end = row + rows.num_rows
                before = len(newest)
                found = [
                    (key, offset)
                    for key, offset, is_wanted in zip(
                        keys.keys(rows), offsets[row:end].tolist(), wanted[row:end].tolist(), strict=True
                    )
                    if is_wanted and key is not None
                ]
                newest.update(found)
                average = sum(len(key) for key, _ in found) // max(1, len(found))
                size += (len(newest) - before) * (average + _ENTRY_BYTES)
                if size > most_bytes:
                    return OffsetMap(newest, int(offsets[end - 1]) + 1)
                row = end
    return OffsetMap(newest, end_offset)


def _is_mapped(source: SourceFile, start_offset: int) -> bool:
    return any(batch.outcome is Outcome.COMMITTED and batch.end_offset > start_offset for batch in source.batches)
