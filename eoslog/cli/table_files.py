"""Files of tables on this host: Parquet, CSV and JSON lines, written and read batch by batch."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import IO, Any, Protocol

import click
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from eoslog.cli.json_values import row_of_json, to_json
from eoslog.errors import SchemaMismatch, without_code

_SUFFIXES = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
FORMATS = ("parquet", "csv", "json")
"""``json`` has a JSON object a line."""

_ROWS_A_GROUP = 131_072
_BYTES_A_GROUP = 32 << 20
_ROWS_A_BATCH = 65_536
_LINES_A_BATCH = 10_000
_CSV_BLOCK_BYTES = 4 << 20
_INSTEAD = "choose other columns with --columns, or export to Parquet or JSON"


def format_of(path: Path, chosen: str | None) -> str:
    """The format that was chosen, or that of the file's name.

    Raises:
        click.UsageError: neither tells.
    """
    found = chosen or _SUFFIXES.get(path.suffix.lower())
    if found is None:
        raise click.UsageError(f"the name {path.name!r} tells no format: give --format, one of {', '.join(FORMATS)}")
    return found


class _Writer(Protocol):
    def write(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...

    def abandon(self) -> None:
        """Let go of the file, of which nothing is wanted any more, while it is still open."""


@contextmanager
def written_file(path: Path, kind: str, schema: pa.Schema, name: str) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """Write a file that is there as a whole, or not at all: under a temporary ``name`` beside it until it is done.

    Raises:
        SchemaMismatch: the format cannot hold a column.
        click.FileError
    """
    writers: dict[str, Callable[[IO[bytes], pa.Schema], _Writer]] = {
        "parquet": _ParquetFile,
        "csv": _CsvFile,
        "json": _JsonFile,
    }
    temporary = path.with_name(f".{path.name}.{name}")
    try:
        with temporary.open("xb") as file:
            writer = writers[kind](file, schema)
            try:
                yield writer.write
                writer.close()
            except BaseException:
                with suppress(Exception):
                    writer.abandon()
                raise
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise click.FileError(str(path), error.strerror or str(error)) from None
    finally:
        temporary.unlink(missing_ok=True)


class _ParquetFile:
    """Row groups of a size that is read well, whatever the size of the batches."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(file, schema, compression="zstd")
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= _ROWS_A_GROUP or self._bytes >= _BYTES_A_GROUP:
            self._write_group()

    def close(self) -> None:
        if self._batches:
            self._write_group()
        self._writer.close()

    def abandon(self) -> None:
        # Else it ends its file when it is collected, and complains on standard error that it cannot.
        self._writer.close()

    def _write_group(self) -> None:
        table = pa.Table.from_batches(self._batches)
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._batches, self._rows, self._bytes = [], 0, 0


class _JsonFile:
    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        self._file = file

    def write(self, batch: pa.RecordBatch) -> None:
        for row in batch.to_pylist():
            self._file.write(json.dumps(to_json(row), ensure_ascii=False).encode() + b"\n")

    def close(self) -> None:
        pass

    def abandon(self) -> None:
        pass


class _CsvFile:
    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        nested = [field.name for field in schema if pa.types.is_nested(field.type)]
        if nested:
            raise SchemaMismatch(
                f"CSV has no lists, structs or maps, and so no column {', '.join(map(repr, nested))}: {_INSTEAD}"
            )
        self._writer = csv.CSVWriter(file, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        try:
            self._writer.write_batch(batch)
        except pa.ArrowInvalid as error:
            raise SchemaMismatch(f"CSV is text, and some bytes are none ({error}): {_INSTEAD}") from None

    def close(self) -> None:
        self._writer.close()

    def abandon(self) -> None:
        self._writer.close()


def first_columns(path: Path, kind: str, columns: pa.Schema) -> pa.Schema | None:
    """The columns of a file as its beginning tells them; None for JSON lines. ``columns`` is that of ``read_tables``.

    Raises:
        SchemaMismatch: it is no such file.
    """
    with _told_of(path):
        if kind == "parquet":
            return pq.read_schema(path)
        if kind == "csv":
            with _opened_csv(path, columns) as reader:
                return reader.schema
    return None


def read_tables(path: Path, kind: str, columns: pa.Schema) -> Iterator[tuple[pa.Table, int]]:
    """The rows of a file in parts, each with how much of the file was read up to its end (bytes).

    Args:
        columns: what columns of these names hold, where the format does not say it.

    Raises:
        SchemaMismatch: naming the file, and what is wrong in it.
    """
    readers = {"parquet": _parquet_tables, "csv": _csv_tables, "json": _json_tables}
    with _told_of(path):
        yield from readers[kind](path, columns)


def _parquet_tables(path: Path, columns: pa.Schema) -> Iterator[tuple[pa.Table, int]]:
    with pq.ParquetFile(path) as file:
        size, total, rows = path.stat().st_size, file.metadata.num_rows, 0
        for batch in file.iter_batches(batch_size=_ROWS_A_BATCH):
            rows += batch.num_rows
            yield pa.Table.from_batches([batch]), size * rows // max(1, total)


def _csv_tables(path: Path, columns: pa.Schema) -> Iterator[tuple[pa.Table, int]]:
    with path.open("rb") as file, _opened_csv(file, columns) as reader:
        for batch in reader:
            yield pa.Table.from_batches([batch]), file.tell()


def _opened_csv(file: Any, columns: pa.Schema) -> csv.CSVStreamingReader:
    """A null is nothing between two commas; an empty string stands in quotes."""
    return csv.open_csv(
        file,
        read_options=csv.ReadOptions(block_size=_CSV_BLOCK_BYTES),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types={field.name: field.type for field in columns if not pa.types.is_nested(field.type)},
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _json_tables(path: Path, columns: pa.Schema) -> Iterator[tuple[pa.Table, int]]:
    number = 0
    with path.open("rb") as file:
        while lines := list(islice(file, _LINES_A_BATCH)):
            rows = []
            for line in lines:
                number += 1
                try:
                    rows.append(row_of_json(line, columns))
                except SchemaMismatch as error:
                    raise SchemaMismatch(f"line {number}: {without_code(error)}") from None
            yield _table_of(rows, columns), file.tell()


def _table_of(rows: Sequence[dict[str, Any]], columns: pa.Schema) -> pa.Table:
    """Rows as a table, without the columns that none of them has."""
    nullable = pa.schema([field.with_nullable(True) for field in columns])
    table = pa.Table.from_pylist(list(rows), schema=nullable)
    return table.select([name for name in table.schema.names if table[name].null_count < table.num_rows])


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """What does not fit is told with the file in which it stands."""
    try:
        yield
    except SchemaMismatch as error:
        raise SchemaMismatch(f"{path}: {without_code(error)}") from None


@contextmanager
def _told_of(path: Path) -> Iterator[None]:
    """An error in a file is one of its content, and names it."""
    try:
        with naming(path):
            yield
    except (pa.ArrowException, ValueError, TypeError, OverflowError, OSError) as error:
        raise SchemaMismatch(f"{path}: {' '.join(str(error).split())}") from None
