"""Data files: the rows of a batch as Parquet, and the checks that a file's content must pass before it is used.

Writing is optimized for speed: no dictionaries, delta encodings, row groups of 64 MiB or 128 k rows, and no compression
where it saves no space. Reading treats a file as hostile input, although `checked_files` has compared at least its
footer with the log. It compares the footer with fixed limits before it decodes anything.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from eoslog.errors import CorruptRecord, InvalidRequest
from eoslog.format.column_casts import cast_array
from eoslog.format.column_types import ColumnType, check_text, column_type, declare, nulls, parts
from eoslog.format.statistics import UNKNOWN, ColumnBounds, has_nan, has_statistics, row_group_bounds
from eoslog.format.stored_columns import LEAST_COMPRESSED_BYTES
from eoslog.wording import first_line

ROW_GROUP_ROWS = 128 * 1024
ROW_GROUP_BYTES = 64 << 20
BATCH_ROWS = 64 * 1024
"""The largest number of rows in a batch of ``DataFile.batches``. Other sizes cost more on the way to Spark."""

OFFSET_DELTA_COLUMN: pa.Field[Any] = pa.field("_offset_delta", pa.int64(), nullable=False)
"""The last column of every data file: how far a row's offset is from the base offset of the file's first batch.

A writer does not know the base offset yet. It counts the rows from 0. In a file that compaction wrote, the numbers of
removed rows are missing. eoslog reads the column only if rows of a batch were removed. Other engines need it to compute
offsets.
"""

DECODING_ERRORS = (
    pa.ArrowException,
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    NotImplementedError,
    OverflowError,
    MemoryError,
    RecursionError,
)
"""The errors that the decoders of Parquet and JSON raise for damaged bytes."""

_LEAST_NUMBER_BYTES = 4
"""About how many bytes a number takes in memory. Its encoding may take none."""
_LARGEST_HOLE_BYTES = 64 << 10
_MAX_ROW_GROUP_ROWS = 1 << 20
_MAX_ROW_GROUP_BYTES = 1 << 31
_MAX_FOOTER_STRING_BYTES = 1 << 20
_MAX_FOOTER_CONTAINER = 1 << 20
_LIMITS: dict[str, Any] = {
    "thrift_string_size_limit": _MAX_FOOTER_STRING_BYTES,
    "thrift_container_size_limit": _MAX_FOOTER_CONTAINER,
}


def encode_data_file(table: pa.Table, schema: pa.Schema | None = None) -> bytes:
    """Return the rows as a Parquet file.

    The file does not contain the Arrow schema, because readers use the topic's schema.

    Args:
        schema: the columns of the table with their column ids; None writes no ids.

    Raises:
        pyarrow.ArrowInvalid: a column that is not nullable holds a null.
    """
    builder = DataFileBuilder(table.schema if schema is None else schema)
    builder.add(table)
    return builder.finish()


def with_offset_deltas(rows: pa.Table) -> pa.Table:
    """Return the rows of a new batch with their offset deltas: 0, 1, 2 and so on."""
    return rows.append_column(OFFSET_DELTA_COLUMN, pa.array(np.arange(rows.num_rows, dtype=np.int64)))


class DataFileBuilder:
    """Builds a data file from several tables. Memory holds the encoded file and one row group.

    Spark takes the bounds of a column for bounds of all its values, and NaN for the greatest value. Arrow's writer
    leaves NaN out of the bounds. So a floating-point column with NaN has no bounds in the whole file.

    Args:
        schema: the columns, with their ids if the file should have them. The file does not contain the Arrow schema.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._sink = pa.BufferOutputStream()
        self._writer: pq.ParquetWriter | None = None
        self._is_compressed = False
        self._bounded_floats = _bounded_floats(schema)
        """The floating-point columns without NaN so far. Their row groups have bounds."""
        self._pieces: list[pa.Table] = []
        self._piece_bytes = 0
        self._piece_rows = 0
        self.rows = 0
        """The number of rows added so far."""

    def add(self, rows: pa.Table) -> None:
        """Append rows.

        Raises:
            pyarrow.ArrowInvalid: a column that is not nullable holds a null.
        """
        self._pieces.append(rows)
        self._piece_bytes += rows.nbytes
        self._piece_rows += rows.num_rows
        self.rows += rows.num_rows
        if self._piece_rows >= ROW_GROUP_ROWS or self._piece_bytes >= ROW_GROUP_BYTES:
            self._write()

    def finish(self) -> bytes:
        """Close the file and return its content."""
        self._write().close()
        return self._sink.getvalue().to_pybytes()

    def _write(self) -> pq.ParquetWriter:
        pieces, size = self._pieces, self._piece_bytes
        self._pieces = []
        self._piece_bytes = self._piece_rows = 0
        table = pa.concat_tables(pieces) if len(pieces) > 1 else pieces[0] if pieces else self._schema.empty_table()
        with_nan = {name for name in self._bounded_floats if has_nan(table.column(name))}
        self._bounded_floats -= with_nan
        if self._writer is None:
            # Decide on compression as late as possible: a file that ends within its first row group may be small.
            self._is_compressed = size >= LEAST_COMPRESSED_BYTES
            self._writer = self._new_writer()
        elif with_nan:
            self._writer = self._encoded_again(self._writer)
        for rows in _split(table, size):
            self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))
        return self._writer

    def _new_writer(self) -> pq.ParquetWriter:
        return _writer(self._sink, self._schema, self._bounded_floats, compressed=self._is_compressed)

    def _encoded_again(self, writer: pq.ParquetWriter) -> pq.ParquetWriter:
        """Encode the row groups so far with fewer bounds. A writer cannot stop writing bounds within a file."""
        writer.close()
        file = _opened(pa.BufferReader(self._sink.getvalue()))
        self._sink = pa.BufferOutputStream()
        writer = self._new_writer()
        for group in range(file.num_row_groups):
            batches = [
                _conform(batch.schema.names, batch.columns, batch.num_rows, wanted=self._schema, name="a new data file")
                for batch in file.iter_batches(row_groups=[group], use_threads=False)
            ]
            rows = pa.Table.from_batches(batches)
            writer.write_table(rows, row_group_size=rows.num_rows)
        return writer


def _writer(
    sink: pa.BufferOutputStream, schema: pa.Schema, bounded_floats: frozenset[str], *, compressed: bool
) -> pq.ParquetWriter:
    encodings, statistics = _encodings_and_statistics(schema, bounded_floats)
    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd" if compressed else "none",
        compression_level=1 if compressed else None,
        use_dictionary=False,
        column_encoding=encodings,
        write_statistics=statistics,
        write_page_checksum=True,
        store_schema=False,
    )


class _FetchedRanges(io.RawIOBase):
    """Ranges of a data file, as a file for Parquet's reader. Other parts of the file cannot be read."""

    def __init__(self, starts: Sequence[int], ranges: Sequence[bytes]) -> None:
        """
        Args:
            starts: the positions of the ranges in the file, in ascending order.
        """
        self._starts = starts
        self._ranges = ranges
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        end = self._starts[-1] + len(self._ranges[-1])
        self._at = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: end}[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def read_buffer(self, size: int) -> memoryview:
        """Return bytes without a copy. ``pyarrow.PythonFile`` prefers it to ``read``."""
        number = max(0, bisect_right(self._starts, self._at) - 1)
        begin = self._at - self._starts[number]
        found = memoryview(self._ranges[number])[begin : begin + size] if begin >= 0 else memoryview(b"")
        self._at += len(found)
        return found

    def read(self, size: int = -1) -> bytes:
        return bytes(self.read_buffer(size))


class RowGroup(NamedTuple):
    """Rows of a data file that are encoded together."""

    rows: range
    """Their numbers in the file, counted from 0."""
    decoded_bytes: int
    """About how many bytes of memory the decoded rows take."""


class DataFile:
    """A data file of a topic whose footer has been read and checked. Several threads may read it at once."""

    def __init__(
        self,
        end: bytes | memoryview | pa.Buffer,
        schema: pa.Schema,
        expected_rows: int,
        *,
        name: str,
        fetch: Callable[[Sequence[tuple[int, int]]], Sequence[bytes]] | None = None,
    ) -> None:
        """
        Args:
            end: the last bytes of the file, with its footer. The caller has compared them with the log.
            schema: the columns and types of the topic.
            expected_rows: the file's number of rows in the entry that names it.
            name: the path of the file, for error messages.
            fetch: returns ranges of the file, each a position and a length. The checksums of their pages are verified.
                None: ``end`` is the whole file.

        Raises:
            CorruptRecord: the file is not Parquet, or contradicts the entry.
        """
        self._end = end
        self._fetch = fetch
        self._schema = schema
        self._rows = expected_rows
        self._name = name
        with corrupt_if_unreadable(name):
            file = _opened(pa.BufferReader(end))
            self._footer = file.metadata
            _check_footer(self._footer, expected_rows, name)
            self._stored = file.schema_arrow
        self._unused = [file]

    def row_groups(self, may_match: Callable[[Callable[[str], ColumnBounds]], bool] | None = None) -> list[RowGroup]:
        """Return the row groups in their order.

        Args:
            may_match: a function that returns False for row groups to leave out. Its argument returns the bounds of a
                column by name. None: leave out nothing.
        """
        numbers = _LEAST_NUMBER_BYTES * len(self._schema.names)
        with corrupt_if_unreadable(self._name):
            return [
                RowGroup(rows, max(self._footer.row_group(index).total_byte_size, len(rows) * numbers))
                for index, rows in enumerate(_row_groups(self._footer))
                if may_match is None or may_match(partial(self._bounds, self._footer.row_group(index)))
            ]

    def _bounds(self, group: pq.RowGroupMetaData, column: str) -> ColumnBounds:
        """Return the bounds of a column in a row group; unknown unless the file has it with the topic's type."""
        leaves = self._leaves([column])
        if len(leaves) != 1 or column not in self._schema.names or column not in self._stored.names:
            return UNKNOWN
        data_type = self._schema.field(column).type
        if self._stored.field(column).type != data_type or not has_statistics(data_type):
            return UNKNOWN
        return row_group_bounds(group.column(leaves[0]), data_type)

    def _leaves(self, columns: Sequence[str]) -> list[int]:
        """Return the numbers of the columns in the footer, by the rule of Parquet's reader."""
        paths = [self._footer.schema.column(index).path for index in range(self._footer.num_columns)]
        prefixes = tuple(f"{name}." for name in columns)
        return [index for index, path in enumerate(paths) if path in columns or path.startswith(prefixes)]

    def batches(
        self,
        columns: Sequence[str] | None = None,
        first_row: int = 0,
        row_count: int | None = None,
        *,
        batch_rows: int = BATCH_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        """Return rows in their order. Only the needed row groups and columns are decoded.

        The iterator checks the file while the caller takes batches. A column that the file lacks is null.

        Args:
            columns: the names of the wanted columns, in this order; None yields all columns.
            first_row: the number of the first wanted row, counted from 0.
            row_count: the number of wanted rows; None yields all rows from ``first_row`` on.
            batch_rows: the largest number of rows in a batch.

        Raises:
            CorruptRecord: the file is damaged, or lacks these rows or columns.
            InvalidRequest: the schema has no such column, or the file no such row.
        """
        name, schema = self._name, self._schema
        last_row = self._rows if row_count is None else first_row + row_count
        if not 0 <= first_row <= last_row <= self._rows:
            raise InvalidRequest(f"{name}: rows {first_row} to {last_row} are not within the file's {self._rows}")
        if missing := [column for column in columns or () if schema.get_field_index(column) < 0]:
            raise InvalidRequest(f"{name}: there is no column {missing[0]!r}. Use one of: {', '.join(schema.names)}")
        wanted = schema if columns is None else pa.schema([schema.field(column) for column in columns])
        stored = self._stored.names
        for field in wanted:
            if stored.count(field.name) > 1:
                raise CorruptRecord(f"{name}: the file has column {field.name!r} {stored.count(field.name)} times")
            if field.name not in stored and not field.nullable:
                raise CorruptRecord(f"{name}: column {field.name!r} is missing and may not be null")
        return self._batches(wanted, first_row, last_row, batch_rows)

    def _batches(self, wanted: pa.Schema, first_row: int, last_row: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
        stored, name = set(self._stored.names), self._name
        names = [field.name for field in wanted if field.name in stored]
        if not names or first_row == last_row:
            for start in range(first_row, last_row, batch_rows):
                yield _conform([], [], min(batch_rows, last_row - start), wanted=wanted, name=name)
            return
        groups = _row_groups(self._footer)
        needed = [index for index, rows in enumerate(groups) if rows.start < last_row and rows.stop > first_row]
        row = groups[needed[0]].start
        with corrupt_if_unreadable(name):
            file = self._opened(needed, names)
            for batch in file.iter_batches(batch_size=batch_rows, row_groups=needed, columns=names, use_threads=False):
                begin, end = max(first_row - row, 0), min(last_row - row, batch.num_rows)
                row += batch.num_rows
                if begin < end:
                    part = batch.slice(begin, end - begin)
                    yield _conform(part.schema.names, part.columns, part.num_rows, wanted=wanted, name=name)
                if row >= last_row:
                    return
                if batch.num_rows == 0:
                    break
        raise CorruptRecord(f"{name}: ends after {row} rows, but its entry says that it has at least {last_row}")

    def _opened(self, groups: Sequence[int], columns: Sequence[str]) -> pq.ParquetFile:
        if self._fetch is None:
            # Parquet's reader serves one thread, so only one call takes the reader that read the footer.
            with suppress(IndexError):
                return self._unused.pop()
            return _opened(pa.BufferReader(self._end), metadata=self._footer)
        leaves = self._leaves(columns)
        chunks = (self._footer.row_group(group).column(leaf) for group in groups for leaf in leaves)
        ranges = _merged(map(_chunk_range, chunks))
        fetched = _FetchedRanges([start for start, _ in ranges], self._fetch(ranges))
        return _opened(pa.PythonFile(fetched, mode="r"), metadata=self._footer, page_checksum_verification=True)


def _chunk_range(chunk: pq.ColumnChunkMetaData) -> tuple[int, int]:
    """Return the position and the length of a column's pages in a row group."""
    start = min(each for each in (chunk.dictionary_page_offset, chunk.data_page_offset) if each)
    return start, chunk.total_compressed_size


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join ranges with small holes between them. Fetching a hole costs less than another request."""
    merged: list[tuple[int, int]] = []
    for start, length in sorted(ranges):
        if merged and start - sum(merged[-1]) <= _LARGEST_HOLE_BYTES:
            first, before = merged[-1]
            merged[-1] = first, max(before, start + length - first)
        else:
            merged.append((start, length))
    return merged


def open_data_file(source: Any, name: str) -> pq.ParquetFile:
    """Open a data file and read only its footer.

    Args:
        source: its path on this host, or a ``pyarrow.NativeFile``.
        name: the name of the file, for error messages.

    Raises:
        CorruptRecord: the file is not Parquet.
    """
    with corrupt_if_unreadable(name):
        return _opened(source)


def _opened(source: Any, **options: Any) -> pq.ParquetFile:
    return pq.ParquetFile(source, **_LIMITS, **options)


def _conform(names: list[str], columns: list[Any], rows: int, *, wanted: pa.Schema, name: str) -> pa.RecordBatch:
    """Return the columns with the wanted types and order. It casts only where types differ."""
    found = dict(zip(names, columns, strict=True))
    if not wanted.names:
        # RecordBatch.from_arrays makes a batch without columns empty. This is the only way to keep the number of rows.
        empty: Any = pa.StructArray.from_buffers(pa.struct([]), rows, [None])
        return pa.RecordBatch.from_struct_array(empty)
    arrays: list[Any] = []
    for field in wanted:
        array = found.get(field.name)
        if array is None:
            array = nulls(rows, field.type)
        elif array.type != field.type:
            array = cast_array(array, field.type)
        elif parts(field.type):
            # The types of nested arrays have the column ids of the file, which are not for users.
            array = declare(array, field.type)
        if array.null_count and not field.nullable:
            raise CorruptRecord(f"{name}: column {field.name!r} holds a null, but the topic allows none")
        check_text(array)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _check_footer(footer: pq.FileMetaData, expected_rows: int, name: str) -> None:
    """Refuse a footer whose numbers contradict the entry, or would make the decoder allocate without bound.

    It does not check column chunks: pyarrow terminates the process if Python merely accesses the metadata of a forged
    one. Only a read of some columns or with a predicate accesses them (docs/security.md).
    """
    if footer.num_rows != expected_rows:
        raise CorruptRecord(f"{name}: has {footer.num_rows} rows, but its entry says {expected_rows}")
    rows = 0
    for index in range(footer.num_row_groups):
        group = footer.row_group(index)
        if not 0 <= group.num_rows <= _MAX_ROW_GROUP_ROWS:
            raise CorruptRecord(f"{name}: row group {index} claims {group.num_rows} rows")
        rows += group.num_rows
        if not 0 <= group.total_byte_size <= _MAX_ROW_GROUP_BYTES:
            raise CorruptRecord(f"{name}: row group {index} claims {group.total_byte_size} bytes")
    if rows != expected_rows:
        raise CorruptRecord(f"{name}: its row groups have {rows} rows, but its entry says {expected_rows}")


def _row_groups(footer: pq.FileMetaData) -> list[range]:
    ends = accumulate((footer.row_group(index).num_rows for index in range(footer.num_row_groups)), initial=0)
    return [range(begin, end) for begin, end in pairwise(ends)]


def _split(table: pa.Table, size: int) -> Iterator[pa.Table]:
    """Split a table of ``size`` bytes into row groups within the limits of rows and bytes.

    A single row may exceed the limit of bytes.
    """
    rows = table.num_rows
    step = min(ROW_GROUP_ROWS, max(1, rows * ROW_GROUP_BYTES // max(1, size)))
    if rows <= step:
        if rows:
            yield table
        return
    for start in range(0, rows, step):
        piece = table.slice(start, step)
        if piece.nbytes > 2 * ROW_GROUP_BYTES:
            yield from _split(piece, piece.nbytes)  # Its rows are larger than the table's average.
        else:
            yield piece


@lru_cache(maxsize=64)
def _encodings_and_statistics(
    schema: pa.Schema, bounded_floats: frozenset[str]
) -> tuple[dict[str, str] | None, list[str] | bool]:
    """Return the encodings of columns by name and the columns with statistics, in the form of Parquet's writer."""
    flat = _flat_columns(schema)
    encodings = {name: found.encoding for name, found in flat if found.encoding}
    statistics = [
        name for name, found in flat if found.kind != "binary" and (found.kind != "float" or name in bounded_floats)
    ]
    return encodings or None, statistics or False


@lru_cache(maxsize=64)
def _bounded_floats(schema: pa.Schema) -> frozenset[str]:
    """Return the floating-point columns that may have bounds. Columns within others have no bounds."""
    return frozenset(name for name, found in _flat_columns(schema) if found.kind == "float")


def _flat_columns(schema: pa.Schema) -> list[tuple[str, ColumnType]]:
    """Return the columns without parts, by name.

    Parquet's writer names columns by their dotted path. It cannot tell column "a.b" from field b of column a, so such
    columns keep the defaults and have no bounds.
    """
    return [
        (field.name, found)
        for field in schema
        if "." not in field.name and (found := column_type(field.type)) and not parts(field.type)
    ]


@contextmanager
def corrupt_if_unreadable(name: str) -> Iterator[None]:
    """Turn the errors of Parquet's reader into ``CorruptRecord``. Any of them means that the file is damaged."""
    try:
        yield
    except CorruptRecord:
        raise
    except DECODING_ERRORS as error:
        raise CorruptRecord(f"{name}: cannot be read as a data file: {first_line(error)}") from error
