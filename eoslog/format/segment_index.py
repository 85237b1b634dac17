"""The index of a sealed segment: its batches and control rows, as they stood in the state.

Its Parquet metadata hold what the ``.txnindex`` beside it holds, so that this file can be put back at any time, also
when batches were compacted away. The ``.snapshot`` is named by the segment's entry alone: readers need no producer
state, and with many producers it is far larger than the batches.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from eoslog.errors import CorruptRecord, without_code
from eoslog.format.batch_columns import BatchColumns, decode_batches
from eoslog.format.data_file import read_file
from eoslog.format.partition_rows import BATCHES_SCHEMA, batch_row
from eoslog.state.entry_fields import FileReference
from eoslog.state.partition_state import Batch
from eoslog.storage.object_store import ObjectStore

_TXNINDEX = "eoslog.txnindex"
# Nearly all values are different, and nobody skips rows of an index: dictionaries and bounds of twenty columns would
# only make it larger, and slower to read.
_ENCODING: Any = {"compression": "zstd", "use_dictionary": False, "write_statistics": False, "store_schema": False}


def encode_segment_index(batches: Sequence[Batch], txnindex: bytes) -> bytes:
    """The index file of a segment, as Parquet.

    Args:
        txnindex: the content of the ``.txnindex`` beside it; empty if the segment has none.
    """
    table = pa.Table.from_pylist([batch_row(batch) for batch in batches], schema=BATCHES_SCHEMA)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, BATCHES_SCHEMA, **_ENCODING) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({_TXNINDEX: base64.b64encode(txnindex).decode()})
    return bytes(sink.getvalue())


def decode_segment_index(body: bytes, name: str) -> list[Batch]:
    """The batches of a segment in the order of their offsets.

    Raises:
        CorruptRecord: these are not the bytes of an index.
    """
    return list(iterate_segment_index(body, name))


def iterate_segment_index(body: bytes, name: str) -> Iterator[Batch]:
    """As ``decode_segment_index``, one after the other."""
    return decode_columns(body, name).batches()


def decode_columns(body: bytes, name: str) -> BatchColumns:
    """As ``decode_segment_index``, as columns."""
    try:
        return decode_batches(body)
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
    return list(columns_of_index(body, index).batches())


def columns_of_index(body: bytes, index: FileReference) -> BatchColumns:
    """As ``batches_of_index``, as columns."""
    columns = decode_columns(body, index.path)
    partition = "/".join(index.path.split("/")[:3]) + "/"
    paths = columns.path.drop_null()
    inside = pc.starts_with(paths, pattern=partition).to_numpy(zero_copy_only=False)
    if not inside.all():
        outside = paths[int(inside.argmin())].as_py()
        raise CorruptRecord(f"segment index {index.path} names a file outside of its partition: {outside}")
    return columns


def decode_txnindex_copy(body: bytes, name: str) -> bytes:
    """The content of the ``.txnindex`` beside an index, which the index repeats; empty if the segment has none.

    Raises:
        CorruptRecord: these are not the bytes of an index.
    """
    try:
        metadata = pq.read_metadata(pa.BufferReader(body)).metadata or {}
        return base64.b64decode(metadata[_TXNINDEX.encode()], validate=True)
    except Exception as error:
        raise CorruptRecord(f"segment index {name} cannot be read: {type(error).__name__}: {error}") from None
