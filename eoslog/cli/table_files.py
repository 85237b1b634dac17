"""``eoslog export`` and ``eoslog import``: topics as Parquet, CSV and JSON lines files on this host, batch by batch."""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import IO, Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

import eoslog
from eoslog.cli import completion
from eoslog.cli.options import NATURAL, Command, Invocation, pass_invocation, transactional_id_option
from eoslog.cli.rendering import progress
from eoslog.errors import InvalidRequest, SchemaMismatch, TransactionalIdNotFound
from eoslog.format.json_values import rows_of_json, to_json
from eoslog.format.limited_groups import Limit, limited_groups
from eoslog.format.topic_schemas import stored_schema
from eoslog.producer.rows import rows_by_partition, rows_to_write
from eoslog.read.columns import available_columns
from eoslog.read.isolation import IsolationLevel
from eoslog.state.store_state import Topic
from eoslog.wording import counted, without_code

FORMATS = ("parquet", "csv", "json")
"""The formats of files. ``json`` has a JSON object a line."""
_SUFFIXES = {f".{kind}": kind for kind in FORMATS} | {".jsonl": "json", ".ndjson": "json"}
_ROWS_A_GROUP = 131_072
_BYTES_A_GROUP = 32 << 20
_ROWS_A_BATCH = 65_536
_LINES_A_BATCH = 10_000
_CSV_BLOCK_BYTES = 4 << 20
_INSTEAD = "choose other columns with --columns, or export to Parquet or JSON"

_format_option = click.option(
    "--format", type=click.Choice(FORMATS), help="The format, if the name of FILE does not tell it."
)
_LEVEL = click.Choice([level.value for level in IsolationLevel], case_sensitive=False)
_DEFAULT_LEVEL = "By default read_committed; snapshot with --slot or --timestamp."
_VERSION = "The version of the import. If this or a later one was committed, nothing is imported."


@click.command(
    cls=Command,
    examples=[
        "flights flights.parquet",
        "flights flights.csv --columns carrier,miles,_offset",
        """flights long.parquet --predicate "miles > 1000 AND carrier IN ('UA', 'B6')\"""",
        "payments payments.jsonl --timestamp 2026-01-31T12:00:00Z",
    ],
)
@click.argument("topic", shell_complete=completion.topics)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@_format_option
@click.option("--columns", metavar="NAMES", help="These columns, such as a,b. By default the topic's own.")
@click.option("--predicate", metavar="SQL", help="Only rows for which this is true, as in SQL's WHERE.")
@click.option("--partition", type=NATURAL, multiple=True, help="Only this partition. May be repeated.")
@click.option("--isolation-level", type=_LEVEL, help=_DEFAULT_LEVEL)
@click.option("--slot", type=NATURAL, help="The rows as of this slot of the log.")
@click.option("--timestamp", metavar="TIME", help="The rows as of 2026-01-31T12:00:00Z, or ms since 1970.")
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@pass_invocation
def export(
    invocation: Invocation,
    topic: str,
    file: Path,
    format: str | None,
    columns: str | None,
    predicate: str | None,
    partition: tuple[int, ...],
    isolation_level: str | None,
    slot: int | None,
    timestamp: str | None,
    overwrite: bool,
) -> None:
    """Write the rows of TOPIC into FILE.

    The formats are Parquet (.parquet), CSV (.csv) and JSON lines (.json, .jsonl, .ndjson). FILE appears when it is
    complete. Rows come partition by partition. --columns also takes the columns that say where a row is, such as
    _offset and _slot, and for Kafka records partition and offset.
    """
    kind = _format_of(file, format)
    if file.exists() and not overwrite:
        raise click.UsageError(f"{file} exists already: --overwrite replaces it.")
    store = invocation.store()
    names = columns.split(",") if columns is not None else stored_schema(store.admin.describe_topic(topic)).names
    scan = store.scan(
        topic,
        isolation_level=isolation_level,
        columns=[name.strip() for name in names],
        predicate=predicate,
        partitions=partition or None,
        slot=slot,
        timestamp=timestamp,
    )
    rows = 0
    with progress(label := f"exporting {topic}") as show:

        def report(far: eoslog.Progress) -> None:
            show(label, far.rows, scan.record_count, f"{far.files}/{far.total_files} files")

        def batches() -> Iterator[pa.RecordBatch]:
            nonlocal rows
            for batch in scan.to_batches(progress=report):
                rows += batch.num_rows
                yield batch

        write_file(file, kind, scan.schema, batches(), name=store.environment.new_id())
    size = file.stat().st_size
    invocation.print_result(
        f"exported {counted(rows, 'row')} of {topic} to {file}, {size} bytes",
        {"topic": topic, "file": str(file), "rows": rows, "bytes": size, "slot": scan.slot if slot is None else slot},
    )


@click.command(
    "import",
    cls=Command,
    examples=["flights january.parquet february.parquet", "flights march.csv --transactional-id monthly --version 3"],
)
@click.argument("topic", shell_complete=completion.topics)
@click.argument("files", type=click.Path(exists=True, dir_okay=False, path_type=Path), nargs=-1, required=True)
@_format_option
@transactional_id_option(help="The id of the import. It fences an earlier one.")
@click.option("--version", type=click.IntRange(min=0, max=2**63 - 1), help=_VERSION)
@pass_invocation
def import_files(
    invocation: Invocation,
    topic: str,
    files: tuple[Path, ...],
    format: str | None,
    transactional_id: str | None,
    version: int | None,
) -> None:
    """Write all rows of FILEs into TOPIC, or none.

    FILEs are Parquet, CSV or JSON lines, as `export` writes them. Columns are matched by name. A CSV file has the
    names in its first line. Kafka records have the columns key, value, headers and timestamp; the column partition
    chooses the partition. Columns that say where a row was read are ignored. Rows are uploaded as they are read, and
    no reader sees one before the commit.

    `topics create --schema-from FILE` creates a topic with the columns of a Parquet file.
    """
    if version is not None and transactional_id is None:
        raise click.UsageError("--version needs --transactional-id: it is the version of one application.")
    kinds = [_format_of(path, format) for path in files]
    store = invocation.store()
    target = store.admin.describe_topic(topic)
    for path, kind in zip(files, kinds, strict=True):
        _check_columns(path, kind, target)
    rows, committed = 0, False
    if not _was_committed(store, transactional_id, version):
        name = transactional_id or f"import-{store.environment.new_id()}"
        before, total = 0, sum(path.stat().st_size for path in files)
        with progress(label := f"importing into {topic}") as show, store.producer(name, staged=True) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for path, kind in zip(files, kinds, strict=True):
                for table, done in read_tables(path, kind, available_columns(target)):
                    with _errors_name(path):
                        producer.send_table(topic, rows_to_write(target, table, store.now_ms()))
                    rows += table.num_rows
                    show(label, before + done, total, counted(rows, "row"))
                before += path.stat().st_size
            committed = producer.commit_transaction(version=version)
    message = f"imported {counted(rows, 'row')} of {counted(len(files), 'file')} into {topic}"
    invocation.print_result(
        message if committed else f"version {version} of {transactional_id} was committed before: nothing was imported",
        {"topic": topic, "files": len(files), "rows": rows if committed else 0, "committed": committed},
    )


def _was_committed(store: eoslog.Store, transactional_id: str | None, version: int | None) -> bool:
    """Return True if the version is committed, so that no upload is needed. The commit itself decides."""
    if transactional_id is None or version is None:
        return False
    try:
        versions = store.admin.last_committed(transactional_id).versions
    except TransactionalIdNotFound:
        return False
    return any(
        each.version >= version for each in versions if (each.application_id, each.sink) == (transactional_id, "*")
    )


def _check_columns(path: Path, kind: str, topic: Topic) -> None:
    """Check the columns of a file before anything is uploaded. Raises: SchemaMismatch"""
    columns = first_columns(path, kind, available_columns(topic))
    if columns is not None:
        with _errors_name(path):
            for _ in rows_by_partition(topic, rows_to_write(topic, columns.empty_table(), 0), 0):
                raise AssertionError("an empty table gave rows")


def _format_of(path: Path, chosen: str | None) -> str:
    found = chosen or _SUFFIXES.get(path.suffix.lower())
    if found is None:
        raise click.UsageError(
            f"The name {path.name!r} has no known format. Give --format, one of {', '.join(FORMATS)}."
        )
    return found


def write_file(path: Path, kind: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, name: str) -> None:
    """Write a file that appears as a whole or not at all: it has a temporary ``name`` beside it until it is complete.

    Raises:
        SchemaMismatch: the format cannot hold a column.
        InvalidRequest: the file cannot be written.
    """
    formats = {"parquet": _write_parquet, "csv": _write_csv, "json": _write_json}
    temporary = path.with_name(f".{path.name}.{name}")
    try:
        with temporary.open("xb") as file:
            formats[kind](file, schema, batches)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        reason = error.strerror or error
        raise InvalidRequest(f"{path} cannot be written: {reason}. Choose another path") from None
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def _closed(writer: Any) -> Iterator[Any]:
    """Close a writer of Arrow's. One that is left open complains on standard error when it is collected."""
    try:
        yield writer
    except BaseException:
        with suppress(Exception):
            writer.close()
        raise
    writer.close()


def _write_parquet(file: IO[bytes], schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write batches of any size as row groups of a size that is read well."""
    limits = Limit(lambda batch: batch.num_rows, _ROWS_A_GROUP), Limit(lambda batch: batch.nbytes, _BYTES_A_GROUP)
    with _closed(
        pq.ParquetWriter(file, schema, compression="zstd", write_statistics=_bounded_leaves(schema) or False)
    ) as writer:
        for group in limited_groups(batches, *limits):
            table = pa.Table.from_batches(group)
            writer.write_table(table, row_group_size=max(1, table.num_rows))


def _bounded_leaves(schema: pa.Schema) -> list[str]:
    """Return the paths of the columns, and of the parts of nested columns, that have bounds in an exported file.

    Arrow's writer leaves NaN out of bounds. Spark takes them for bounds of all values, and NaN for the greatest one. An
    export is written before all its rows are known, so floating-point numbers have no bounds.
    """
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, schema).close()
    leaves = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    columns = [leaves.column(index) for index in range(len(leaves))]
    floats = {column.path for column in columns if column.physical_type in ("FLOAT", "DOUBLE")}
    return [column.path for column in columns if column.path not in floats]


def _write_csv(file: IO[bytes], schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    nested = [repr(field.name) for field in schema if pa.types.is_nested(field.type)]
    if nested:
        raise SchemaMismatch(f"CSV has no lists, structs or maps, and so no column {', '.join(nested)}: {_INSTEAD}")
    with _closed(csv.CSVWriter(file, schema)) as writer:
        for batch in batches:
            try:
                writer.write_batch(batch)
            except pa.ArrowInvalid as error:
                raise SchemaMismatch(f"CSV is text, and some bytes are not text ({error}): {_INSTEAD}") from None


def _write_json(file: IO[bytes], schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    for batch in batches:
        file.writelines(json.dumps(to_json(row), ensure_ascii=False).encode() + b"\n" for row in batch.to_pylist())


def first_columns(path: Path, kind: str, columns: pa.Schema) -> pa.Schema | None:
    """Return the columns that the beginning of a file tells; None for JSON lines. ``columns``: see ``read_tables``.

    Raises:
        SchemaMismatch: the file does not have this format.
    """
    with _errors_in(path):
        if kind == "parquet":
            return pq.read_schema(path)
        if kind == "csv":
            with _opened_csv(path, columns) as reader:
                return reader.schema
    return None


def read_tables(path: Path, kind: str, columns: pa.Schema) -> Iterator[tuple[pa.Table, int]]:
    """Yield the rows of a file in parts, each with the position of its end in the file (bytes).

    Args:
        columns: the types of columns of these names, where the format does not tell them.

    Raises:
        SchemaMismatch: names the file and the problem in it.
    """
    formats = {"parquet": _parquet_tables, "csv": _csv_tables, "json": _json_tables}
    with _errors_in(path):
        yield from formats[kind](path, columns)


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
    """Open a CSV file in which a null is nothing between two commas, and an empty string has quotes."""
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
    number = 1
    with path.open("rb") as file:
        while lines := list(islice(file, _LINES_A_BATCH)):
            yield _table_of(rows_of_json(lines, columns, number), columns), file.tell()
            number += len(lines)


def _table_of(rows: Sequence[dict[str, Any]], columns: pa.Schema) -> pa.Table:
    """Return rows as a table without columns of nulls only: in JSON they look like columns that the file lacks."""
    nullable = pa.schema([field.with_nullable(True) for field in columns])
    table = pa.Table.from_pylist(list(rows), schema=nullable)
    return table.select([name for name in table.schema.names if table[name].null_count < table.num_rows])


@contextmanager
def _errors_name(path: Path) -> Iterator[None]:
    try:
        yield
    except SchemaMismatch as error:
        raise SchemaMismatch(f"{path}: {without_code(error)}") from None


@contextmanager
def _errors_in(path: Path) -> Iterator[None]:
    """Raise each error of reading a file as SchemaMismatch that names the file."""
    try:
        yield
    except (SchemaMismatch, pa.ArrowException, ValueError, TypeError, OverflowError, OSError) as error:
        problem = " ".join(without_code(error).split())
        hint = (
            "; the file is not UTF-8: convert it, for example with iconv -t UTF-8"
            if _is_not_utf8(path, problem)
            else ""
        )
        raise SchemaMismatch(f"{path}: {problem}{hint}") from None


def _is_not_utf8(path: Path, problem: str) -> bool:
    """Return True if a text has another encoding, by the problem or by the first bytes of UTF-16."""
    if "UTF8" in problem or "'utf-8' codec" in problem:
        return True
    try:
        with path.open("rb") as file:
            return file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    except OSError:
        return False
