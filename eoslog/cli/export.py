"""``eoslog export``: a topic's rows into a file on this host."""

from __future__ import annotations

from pathlib import Path

import click

from eoslog.cli.context import Session, global_options, pass_session
from eoslog.cli.output import progress_bar
from eoslog.cli.table_files import FORMATS, format_of, written_file
from eoslog.read.isolation import IsolationLevel
from eoslog.read.time_travel import parse_timestamp
from eoslog.segment.stored_schema import stored_schema


@click.command("export")
@click.argument("topic")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--format", "chosen", type=click.Choice(FORMATS), help="If the name of FILE does not tell it.")
@click.option("--columns", metavar="NAMES", help="These columns, with commas between; all of the topic's own if not.")
@click.option("--predicate", metavar="SQL", help="Only rows of which this is true, as in SQL's WHERE.")
@click.option("--partition", "partitions", type=click.IntRange(min=0), multiple=True, help="Only this partition.")
@click.option(
    "--isolation-level",
    type=click.Choice([level.value for level in IsolationLevel]),
    help="read_committed if not given; snapshot with --slot or --timestamp.",
)
@click.option("--slot", type=click.IntRange(min=0), help="The rows as of this slot of the log.")
@click.option("--timestamp", metavar="TIME", help="The rows as of this time: 2026-01-31T12:00:00Z, or ms since 1970.")
@click.option("--overwrite", is_flag=True, help="Replace FILE if it is there.")
@global_options
@pass_session
def export(
    session: Session,
    topic: str,
    file: Path,
    chosen: str | None,
    columns: str | None,
    predicate: str | None,
    partitions: tuple[int, ...],
    isolation_level: str | None,
    slot: int | None,
    timestamp: str | None,
    overwrite: bool,
) -> None:
    """Write the rows of TOPIC into FILE: Parquet (.parquet), CSV (.csv) or JSON lines (.json, .jsonl, .ndjson).

    The file is there when all of it is, and not before. Rows come partition by partition. Columns that tell where a
    row stands can be chosen too: _offset or _slot, say, and of Kafka records partition and offset.

    \b
    Examples:
      eoslog --store my-store export flights flights.parquet
      eoslog --store my-store export flights flights.csv --columns carrier,miles,_offset
      eoslog --store my-store export flights long.parquet --predicate "miles > 1000 AND carrier IN ('UA', 'B6')"
      eoslog --store my-store export payments payments.jsonl --timestamp 2026-01-31T12:00:00Z
    """
    kind = format_of(file, chosen)
    if file.exists() and not overwrite:
        raise click.UsageError(f"{file} is there already: --overwrite replaces it")
    store = session.store()
    names = columns.split(",") if columns is not None else stored_schema(store.admin.describe_topic(topic)).names
    scan = store.scan(
        topic,
        isolation_level=isolation_level,
        columns=[name.strip() for name in names],
        predicate=predicate,
        partitions=partitions or None,
        slot=slot,
        timestamp=None if timestamp is None else parse_timestamp(timestamp),
    )
    rows = 0
    with (
        progress_bar(f"exporting {topic}", scan.record_count) as show,
        written_file(file, kind, scan.schema, store.environment.new_token()) as write,
    ):
        for batch in scan.to_batches(progress=lambda far: show(far.rows, f"{far.files}/{far.total_files} files")):
            write(batch)
            rows += batch.num_rows
    size = file.stat().st_size
    session.print_result(
        f"exported {rows} row{'s' * (rows != 1)} of {topic} to {file}, {size} bytes",
        {"topic": topic, "file": str(file), "rows": rows, "bytes": size, "slot": scan.slot if slot is None else slot},
    )
