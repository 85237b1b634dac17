"""The index of a sealed segment: its batches and control rows, in the form that they had in the state.

The Parquet metadata repeats the content of the ``.txnindex`` beside it. So that file can be restored at any time, even
after compaction removed batches. The index does not repeat the ``.snapshot``: readers need no producer state, and with
many producers the snapshot is far larger than the batches.
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
# Nearly all values are distinct, and readers never skip rows of an index. Dictionaries and statistics would only make
# it larger and slower to read.
_ENCODING: Any = {"compression": "zstd", "use_dictionary": False, "write_statistics": False, "store_schema": False}


def encode_segment_index(batches: Sequence[Batch], txnindex: bytes) -> bytes:
    """Encode the index file of a segment as Parquet.

    Args:
        batches: the batches and control rows of the segment, in the order of their offsets.
        txnindex: the content of the segment's ``.txnindex``; empty if it has none.
    """
    table = pa.Table.from_pylist([batch_row(batch) for batch in batches], schema=BATCHES_SCHEMA)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, BATCHES_SCHEMA, **_ENCODING) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({_TXNINDEX: base64.b64encode(txnindex).decode()})
    return bytes(sink.getvalue())


def decode_segment_index(body: bytes, name: str) -> list[Batch]:
    """Decode the batches of a segment in the order of their offsets.

    Args:
        body: the content of the index file.
        name: the path of the file, for error messages.

    Raises:
        CorruptRecord: these are not the bytes of an index.
    """
    return list(iterate_segment_index(body, name))


def iterate_segment_index(body: bytes, name: str) -> Iterator[Batch]:
    """Do the same as ``decode_segment_index``, but yield one batch at a time."""
    return decode_columns(body, name).batches()


def decode_columns(body: bytes, name: str) -> BatchColumns:
    """Do the same as ``decode_segment_index``, but return columns."""
    try:
        return decode_batches(body)
    except CorruptRecord as error:
        raise CorruptRecord(f"segment index {name}: {without_code(error)}") from None
    except Exception as error:
        raise CorruptRecord(f"segment index {name} cannot be read: {type(error).__name__}: {error}") from None


def read_segment_index(store: ObjectStore, index: FileReference) -> list[Batch]:
    """Read the batches of a segment from the index file that the log names.

    Raises:
        CorruptRecord: the file is missing, differs from its entry, or names data files outside of its partition.
    """
    return batches_of_index(read_file(store, index), index)


def batches_of_index(body: bytes, index: FileReference) -> list[Batch]:
    """Do the same as ``read_segment_index`` with a file that was already read and checked."""
    return list(columns_of_index(body, index).batches())


def columns_of_index(body: bytes, index: FileReference) -> BatchColumns:
    """Do the same as ``batches_of_index``, but return columns."""
    columns = decode_columns(body, index.path)
    partition = "/".join(index.path.split("/")[:3]) + "/"
    paths = columns.path.drop_null()
    inside = pc.starts_with(paths, pattern=partition).to_numpy(zero_copy_only=False)
    if not inside.all():
        outside = paths[int(inside.argmin())].as_py()
        raise CorruptRecord(f"segment index {index.path} names a file outside of its partition: {outside}")
    return columns


def decode_txnindex_copy(body: bytes, name: str) -> bytes:
    """Return the content of the segment's ``.txnindex``, which the index repeats; empty if the segment has none.

    Raises:
        CorruptRecord: these are not the bytes of an index.
    """
    try:
        metadata = pq.read_metadata(pa.BufferReader(body)).metadata or {}
        return base64.b64decode(metadata[_TXNINDEX.encode()], validate=True)
    except Exception as error:
        raise CorruptRecord(f"segment index {name} cannot be read: {type(error).__name__}: {error}") from None
