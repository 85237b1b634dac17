"""The index of a sealed segment: its batches and control rows, as they stood in the state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from eoslog.errors import CorruptRecord
from eoslog.rules.checkpoint import BATCHES_SCHEMA, batch_from_row, batch_row
from eoslog.rules.state import Batch

_ROWS_AT_ONCE = 4096


def encode_segment_index(batches: Sequence[Batch]) -> bytes:
    """The index file of a segment, as Parquet."""
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pylist([batch_row(batch) for batch in batches], schema=BATCHES_SCHEMA)
    pq.write_table(table, sink, compression="zstd", store_schema=False)
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
        for rows in pq.ParquetFile(pa.BufferReader(body)).iter_batches(batch_size=_ROWS_AT_ONCE):
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
