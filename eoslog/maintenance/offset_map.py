"""The offset map: where the newest committed row of each key lies in the part that was never compacted.

It is bounded in memory (Kafka's ``SkimpyOffsetMap``): when it is full, the rest stays dirty until the next pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eoslog.format.data_file import read_files
from eoslog.format.row_keys import RowKeys
from eoslog.format.topic_schema_json import stored_schema
from eoslog.maintenance.segment_rewriting import SourceFile, read_batches, read_rows, row_offsets, source_files
from eoslog.state.partition_state import Batch, SealedSegment, Verdict
from eoslog.state.store_state import Topic
from eoslog.storage.object_store import ObjectStore

OFFSET_MAP_BYTES = 256 << 20
_ENTRY_BYTES = 120


@dataclass(frozen=True, slots=True)
class OffsetMap:
    newest: dict[bytes, int]
    """Offset of the newest committed row by key."""
    end_offset: int
    """How far the map goes (exclusive): from here on, rows are kept whatever their key is."""


def build_offset_map(
    store: ObjectStore,
    topic: Topic,
    segments: Sequence[SealedSegment],
    start_offset: int,
    end_offset: int,
    most_bytes: int = OFFSET_MAP_BYTES,
) -> OffsetMap:
    """Read the keys of the committed rows in [``start_offset``, ``end_offset``).

    Args:
        segments: the sealed segments that hold the range.
        most_bytes: about how large the map may become.

    Raises:
        CorruptRecord
    """
    newest: dict[bytes, int] = {}
    keys, stored = RowKeys(topic), stored_schema(topic)
    size = 0
    for segment in segments:
        sources = [each for each in source_files(read_batches(store, [segment])) if _is_mapped(each, start_offset)]
        for source, body in zip(sources, read_files(store, [each.file for each in sources]), strict=True):
            offsets = row_offsets(source, body, stored)
            wanted = np.repeat(
                [batch.verdict is Verdict.COMMITTED for batch in source.batches],
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
    return any(_is_committed(batch) and batch.end_offset > start_offset for batch in source.batches)


def _is_committed(batch: Batch) -> bool:
    return batch.verdict is Verdict.COMMITTED
