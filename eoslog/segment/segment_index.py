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

from eoslog.errors import CorruptRecord, without_code
from eoslog.rules.entry_fields import FileReference
from eoslog.rules.partition_rows import BATCHES_SCHEMA, NULLABLE_IN_BATCHES, batch_from_row, batch_row
from eoslog.rules.partition_state import Batch
from eoslog.rules.stored_rows import LARGEST_OFFSET, check_batches, stored_rows
from eoslog.segment.stored_file import read_file
from eoslog.store.object_store import ObjectStore

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
    end = 0
    try:
        for rows in stored_rows(body, BATCHES_SCHEMA, NULLABLE_IN_BATCHES):
            batches = [batch_from_row(row) for row in rows]
            check_batches(batches, end, LARGEST_OFFSET)
            end = batches[-1].end_offset if batches else end
            yield from batches
    except CorruptRecord as error:
        raise CorruptRecord(f"segment index {name}: {without_code(error)}") from None
    except Exception as error:
        raise CorruptRecord(f"segment index {name} cannot be read: {type(error).__name__}: {error}") from None


def read_segment_index(store: ObjectStore, index: FileReference) -> list[Batch]:
    """The batches of a segment, from the file that the log names.

    Raises:
        CorruptRecord: the file is missing, not what its entry says, or names data files outside of its partition.
    """
    return batches_of_index(read_file(store, index), index)


def batches_of_index(body: bytes, index: FileReference) -> list[Batch]:
    """As ``read_segment_index``, of a file that was read and checked already."""
    batches = decode_segment_index(body, index.path)
    partition = "/".join(index.path.split("/")[:3]) + "/"
    for batch in batches:
        if batch.file is not None and not batch.file.path.startswith(partition):
            raise CorruptRecord(f"segment index {index.path} names a file outside of its partition: {batch.file.path}")
    return batches


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
