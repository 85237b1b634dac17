"""Rows of checkpoint parts and segment indexes, read as hostile input.

This module checks the types of columns, the nulls, and that the numbers agree with each other. So the code that uses a
decoded state or index needs no further checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import MISSING, fields
from functools import cache
from itertools import repeat
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from eoslog.errors import CorruptRecord, InvalidEntry
from eoslog.state.entry_fields import FileReference
from eoslog.state.partition_state import Batch, Partition, SealedSegment
from eoslog.state.partitions import check_file_place
from eoslog.state.store_state import Topic
from eoslog.wording import without_code

LEAST_COMPRESSED_BYTES = 2048
"""Smaller Arrow data (bytes) is stored without compression. Starting the codec for each column would take longer than
all other work, and the file fits into one disk block either way."""

T = TypeVar("T")
Columns = Mapping[str, Any]
Decode = Callable[[Any], Iterable[Any]]


def columns_of(rows: Any) -> Columns:
    """Return the columns of a record batch or of an array of structs, by name."""
    if isinstance(rows, pa.RecordBatch):
        return dict(zip(rows.schema.names, rows.columns, strict=True))
    if not isinstance(rows.type, pa.StructType):
        return {}
    return {field.name: column for field, column in zip(rows.type, rows.flatten(), strict=True)}


def plain(column: Any) -> list[Any]:
    """Decode a column of numbers, strings or booleans."""
    # Not by NumPy: Arrow would import pandas for it, which takes longer than to open the log of a thousand topics.
    return list(column.to_pylist())


def objects(kind: Callable[..., Any], rows: Any, /, **decode: Decode) -> list[Any]:
    """Decode one object per row.

    Args:
        kind: a named tuple or a dataclass. Its fields name the columns.
        rows: a record batch, or an array of structs without nulls.
        decode: decoders of columns by field. All other columns use ``plain``.

    Raises:
        CorruptRecord: there is no column for a field without default.
    """
    count = len(rows)
    if not count:
        return []
    columns = columns_of(rows)
    values: list[Iterable[Any]] = []
    for name, default in _fields(kind):
        if name in columns:
            values.append(decode.get(name, plain)(columns[name]))
        elif default is MISSING:
            raise CorruptRecord(f"there is no column {name}")
        else:
            values.append(repeat(default, count))
    return list(map(kind, *values))


def each_of(kind: Callable[..., T], **columns: Iterable[Any]) -> Iterator[T]:
    """Yield one object per row.

    Args:
        kind: a named tuple or a dataclass.
        columns: the values of each of its fields.
    """
    return map(kind, *(columns[name] for name, _ in _fields(kind)))


def lists(column: Any, decode: Decode = plain, collect: Callable[[list[Any]], Any] = list) -> list[Any]:
    """Decode one collection per row of a column of lists without nulls.

    Args:
        column: the column.
        decode: decodes the elements of all rows at once.
        collect: makes a collection of the elements of one row.
    """
    if not len(column):
        return []
    elements = list(decode(column.flatten()))
    found = []
    start = 0
    for length in plain(column.value_lengths()):
        if length:
            found.append(collect(elements[start : start + length]))
            start += length
        else:
            found.append(collect([]))
    return found


def optional(column: Any, decode: Decode) -> list[Any]:
    """Decode a nullable column with ``decode``. A null becomes None."""
    if not column.null_count:
        return list(decode(column))
    values = iter(decode(column.drop_null()))
    return [next(values) if is_valid else None for is_valid in column.is_valid().to_pylist()]


@cache
def _fields(kind: Any) -> tuple[tuple[str, Any], ...]:
    """Return the fields of a class in the order of its arguments, with their defaults or ``MISSING``."""
    if hasattr(kind, "_field_defaults"):
        return tuple((name, kind._field_defaults.get(name, MISSING)) for name in kind._fields)
    return tuple((field.name, field.default) for field in fields(kind))


_ROWS_AT_ONCE = 4096
_MOST_ROWS_A_BYTE = 8
_FEW_ROWS = 100_000
_MOST_BYTES_A_BYTE = 256
_FEW_BYTES = 64 << 20
LARGEST_OFFSET = 2**63 - 1


def stored_batches(
    body: bytes, schema: pa.Schema, nullable: Set[str], *, all_at_once: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a Parquet file as columns, some rows at a time. ``objects`` turns them into objects.

    Args:
        body: the content of the file.
        schema: the columns and types that this version writes. Other columns are not checked, and some may be missing.
        nullable: paths of columns that may be null, for example ``prepared``, or ``active[].file`` within a list.
        all_at_once: yield the rows of each row group together, for a caller that needs all of them.

    Raises:
        CorruptRecord: a column has another type or a forbidden null, or the file claims far more data than its bytes
            can contain.
        Exception: any error of Arrow if the bytes are not Parquet.
    """
    file = pq.ParquetFile(pa.BufferReader(body))
    footer = file.metadata
    if footer.num_rows > max(_FEW_ROWS, _MOST_ROWS_A_BYTE * len(body)):
        raise CorruptRecord(f"{len(body)} bytes claim to hold {footer.num_rows} rows")
    claimed = sum(footer.row_group(index).total_byte_size for index in range(footer.num_row_groups))
    if not 0 <= claimed <= max(_FEW_BYTES, _MOST_BYTES_A_BYTE * len(body)):
        raise CorruptRecord(f"{len(body)} bytes claim to hold {claimed}")
    _check_types(file.schema_arrow, schema, "")
    rows_at_once = max(1, footer.num_rows) if all_at_once else _ROWS_AT_ONCE
    for batch in file.iter_batches(batch_size=rows_at_once, use_threads=False):
        for field, column in zip(batch.schema, batch.columns, strict=True):
            if field.name in schema.names:
                _check_values(field.name, column, schema.field(field.name).type, nullable)
        yield batch


def _check_types(found: Any, wanted: Any, where: str) -> None:
    """Check the types of a schema's or struct's fields, by name."""
    types = {field.name: field.type for field in wanted}
    names = [field.name for field in found]
    if len(set(names)) < len(names):
        raise CorruptRecord(f"two columns{where and f' of {where}'} have the same name")
    for field in found:
        if field.name in types:
            _check_type(field.type, types[field.name], f"{where}{field.name}")


def _check_type(found: Any, wanted: Any, where: str) -> None:
    if isinstance(found, pa.StructType) and isinstance(wanted, pa.StructType):
        _check_types(found, wanted, f"{where}.")
    elif isinstance(found, pa.ListType) and isinstance(wanted, pa.ListType):
        _check_type(found.value_type, wanted.value_type, f"{where}[]")
    elif not (
        found == wanted or pa.types.is_null(found) or (pa.types.is_integer(found) and pa.types.is_integer(wanted))
    ):
        raise CorruptRecord(f"column {where} is {found}, not {wanted}")


def _check_values(where: str, column: Any, wanted: Any, nullable: Set[str]) -> None:
    """Refuse forbidden nulls and too large numbers in a column, and in the fields and elements within it."""
    if column.null_count:
        if where not in nullable:
            raise CorruptRecord(f"column {where} holds a null")
        column = column.drop_null()
    if pa.types.is_null(column.type):
        return
    if pa.types.is_integer(wanted) and column.type != wanted:
        column.cast(wanted)
    if isinstance(wanted, pa.ListType):
        _check_values(f"{where}[]", column.flatten(), wanted.value_type, nullable)
    elif isinstance(wanted, pa.StructType):
        known = {field.name: field.type for field in wanted}
        for field, values in zip(column.type, column.flatten(), strict=True):
            if field.name in known:
                _check_values(f"{where}.{field.name}", values, known[field.name], nullable)


def check_number(name: str, value: object, least: int = -1, end: int = 2**63) -> None:
    """Check that a value is an integer from ``least`` to ``end`` (exclusive).

    Raises:
        CorruptRecord: it is not.
    """
    if type(value) is not int or not least <= value < end:
        raise CorruptRecord(f"{name} is {value!r}, not a number from {least} to {end - 1}")


def check_column(rows: pa.RecordBatch, name: str, least: int = -1, end: int = 2**63) -> None:
    """Check that all numbers of a column are from ``least`` to ``end`` (exclusive).

    Raises:
        CorruptRecord: one is not.
    """
    bounds: Any = pc.min_max(rows.column(name))
    for value in bounds.as_py().values():
        if value is not None:
            check_number(name, value, least, end)


def check_batches(batches: Sequence[Batch], first_offset: int, end_offset: int) -> None:
    """Check the batches and control rows of a segment: they do not overlap, and each is possible.

    Raises:
        CorruptRecord: a batch is not possible.
    """
    end = first_offset
    for batch in batches:
        if not end <= batch.base_offset < batch.end_offset <= end_offset:
            raise CorruptRecord(
                f"a batch of offsets {batch.base_offset} to {batch.end_offset} (exclusive) does not lie within "
                f"{end} to {end_offset}"
            )
        end = batch.end_offset
        if not 0 <= batch.record_count <= batch.last_offset_delta + 1:
            raise CorruptRecord(f"the batch at offset {batch.base_offset} has {batch.record_count} rows")
        if batch.first_row < 0 or min(batch.slot, batch.end_slot, batch.end_time_ms) < -1:
            raise CorruptRecord(f"the batch at offset {batch.base_offset} has a negative row, slot or time")
        holds_rows = batch.record_count > 0 and batch.control is None
        if (batch.file is None) is holds_rows or (batch.control is not None and batch.last_offset_delta):
            raise CorruptRecord(
                f"the batch at offset {batch.base_offset} has rows without a file, or a file without rows"
            )


def check_partition(topic: Topic, partition: Partition) -> None:
    """Check that the fold could have produced a partition.

    Raises:
        CorruptRecord: the fold cannot have produced it. The message says why.
    """
    where = f"partition {topic.topic}-{partition.id.partition}"
    end = partition.next_offset
    check_number(f"{where}: the log's end", end, 0)
    for name in ("log_start_offset", "segment_base_offset", "cleaned_offset"):
        check_number(f"{where}: {name}", getattr(partition, name), 0, end + 1)
    try:
        _check_sealed(partition.sealed, partition.segment_base_offset)
        check_batches(partition.active, partition.segment_base_offset, end)
        for file in _files(partition):
            check_file_place(topic, partition.id, file)
    except (CorruptRecord, InvalidEntry) as error:
        raise CorruptRecord(f"{where}: {without_code(error)}") from None
    opened = list(partition.open_transactions.values())
    if opened != sorted(opened) or not all(0 <= offset < end for offset in opened):
        raise CorruptRecord(f"{where}: the first offsets of open transactions are not in order, or lie beyond its end")
    for aborted in partition.aborted:
        if not 0 <= aborted.first_offset <= aborted.last_offset < end or aborted.producer_id < 0:
            raise CorruptRecord(f"{where}: no transaction can have been aborted as {aborted}")
    for skipped in partition.skipped:
        fits = 0 <= skipped.base_offset < skipped.end_offset <= end and skipped.slot >= 0
        if not fits or not 0 < skipped.rows <= skipped.end_offset - skipped.base_offset:
            raise CorruptRecord(f"{where}: no rows can have been skipped as {skipped}")


def _check_sealed(segments: Sequence[SealedSegment], end_offset: int) -> None:
    end = 0
    for segment in segments:
        if not end <= segment.base_offset < segment.end_offset <= end_offset:
            raise CorruptRecord(
                f"segment {segment.base_offset} to {segment.end_offset} does not follow the segment before"
            )
        end = segment.end_offset
        for name in ("batch_count", "bytes", "file_count", "max_end_slot", "slot"):
            check_number(f"segment {segment.base_offset}: {name}", getattr(segment, name), 0)


def _files(partition: Partition) -> Iterator[FileReference]:
    for batch in partition.active:
        if batch.file is not None:
            yield batch.file
    for segment in partition.sealed:
        yield from segment.files
