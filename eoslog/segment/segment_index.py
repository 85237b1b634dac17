"""The index of a sealed segment: its batches and control rows, as they stood in the state.

Its Parquet metadata hold what the ``.txnindex`` and the ``.snapshot`` beside it hold, so that these can be put back at
any time, also when the segments before are gone, batches were compacted away or producer ids have expired.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from eoslog.errors import CorruptRecord
from eoslog.rules.partition_rows import BATCHES_SCHEMA, batch_from_row, batch_row
from eoslog.rules.partition_state import Batch

_ROWS_AT_ONCE = 4096
_TXNINDEX = "eoslog.txnindex"
_SNAPSHOT = "eoslog.snapshot"


@dataclass(frozen=True, slots=True)
class DerivedFiles:
    """The content of the files beside an index."""

    txnindex: bytes
    """Of the ``.txnindex``; empty if the segment has none."""
    snapshot: bytes
    """Of the ``.snapshot``."""


def encode_segment_index(batches: Sequence[Batch], derived: DerivedFiles) -> bytes:
    """The index file of a segment, as Parquet."""
    table = pa.Table.from_pylist([batch_row(batch) for batch in batches], schema=BATCHES_SCHEMA)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, BATCHES_SCHEMA, compression="zstd", store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(
            {
                _TXNINDEX: base64.b64encode(derived.txnindex).decode(),
                _SNAPSHOT: base64.b64encode(derived.snapshot).decode(),
            }
        )
    return bytes(sink.getvalue())


def decode_segment_index(body: bytes, name: str) -> list[Batch]:
    """The batches of a segment in the order of their offsets.

    Raises:
        CorruptRecord: these are not the bytes of an index.
    """
    return list(iterate_segment_index(body, name))


def iterate_segment_index(body: bytes, name: str) -> Iterator[Batch]:
    """As ``decode_segment_index``, one after the other."""
    try:
        for rows in pq.ParquetFile(pa.BufferReader(body)).iter_batches(batch_size=_ROWS_AT_ONCE, use_threads=False):
            yield from map(batch_from_row, rows.to_pylist())
    except Exception as error:
        raise CorruptRecord(f"segment index {name} cannot be read: {type(error).__name__}: {error}") from None


def rows_of_files(batches: Iterable[Batch]) -> Mapping[str, int]:
    """How many rows each data file has, by its path: a file's batches all stand in the index of one segment."""
    rows: Counter[str] = Counter()
    for batch in batches:
        if batch.file is not None:
            rows[batch.file.path] += batch.record_count
    return rows


def decode_derived_files(body: bytes, name: str) -> DerivedFiles:
    """The content of the files beside an index.

    Raises:
        CorruptRecord: these are not the bytes of an index.
    """
    try:
        metadata = pq.read_metadata(pa.BufferReader(body)).metadata or {}
        return DerivedFiles(
            *(base64.b64decode(metadata[key.encode()], validate=True) for key in (_TXNINDEX, _SNAPSHOT))
        )
    except Exception as error:
        raise CorruptRecord(f"segment index {name} cannot be read: {type(error).__name__}: {error}") from None
