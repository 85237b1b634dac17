"""``eoslog import``: files on this host into a topic, in one transaction."""

from __future__ import annotations

from pathlib import Path

import click

import eoslog
from eoslog.cli.context import Session, global_options, pass_session
from eoslog.cli.output import progress_bar
from eoslog.cli.table_files import FORMATS, first_columns, format_of, naming, read_tables
from eoslog.client.rows import deal_out
from eoslog.client.rows_read import rows_to_write
from eoslog.errors import TransactionalIdNotFound
from eoslog.read.columns import available_columns
from eoslog.rules.state import Topic


@click.command("import")
@click.argument("topic")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--format", "chosen", type=click.Choice(FORMATS), help="If the names of the FILEs do not tell it.")
@click.option("--transactional-id", metavar="ID", help="Names the import: an earlier one of this id is fenced.")
@click.option(
    "--version",
    type=click.IntRange(min=0, max=2**63 - 1),
    help="The number of this piece of work: an import of it, or of a later one, is not repeated.",
)
@global_options
@pass_session
def import_files(
    session: Session,
    topic: str,
    files: tuple[Path, ...],
    chosen: str | None,
    transactional_id: str | None,
    version: int | None,
) -> None:
    """Write the rows of FILEs into TOPIC, all of them or none: Parquet, CSV or JSON lines, as `export` writes them.

    Columns go by their names, which a CSV file has in its first line; of Kafka records they are key, value, headers
    and timestamp, and partition chooses the partition. Columns that tell where a row was read are passed over. Rows
    are uploaded as they are read, and nobody sees one of them before the commit.

    `topics create --schema-from FILE` makes a topic with the columns of a Parquet file.

    \b
    Examples:
      eoslog --store my-store import flights january.parquet february.parquet
      eoslog --store my-store import flights march.csv --transactional-id monthly --version 3
    """
    if version is not None and transactional_id is None:
        raise click.UsageError("--version needs --transactional-id: it counts the work of one application")
    kinds = [format_of(path, chosen) for path in files]
    store = session.store()
    target = store.admin.describe_topic(topic)
    for path, kind in zip(files, kinds, strict=True):
        _check_columns(path, kind, target)
    rows, committed = 0, False
    if not _was_committed(store, transactional_id, version):
        name = transactional_id or f"import-{store.environment.new_token()}"
        total = sum(path.stat().st_size for path in files)
        with (
            progress_bar(f"importing into {topic}", total) as show,
            store.producer(name, staged=True) as producer,
        ):
            producer.init_transactions()
            producer.begin_transaction()
            before = 0
            for path, kind in zip(files, kinds, strict=True):
                for table, done in read_tables(path, kind, available_columns(target)):
                    with naming(path):
                        producer.send_table(topic, rows_to_write(target, table, store.now_ms()))
                    rows += table.num_rows
                    show(before + done, f"{rows} rows")
                before += path.stat().st_size
            committed = producer.commit_transaction(version=version)
    told = f"imported {rows} row{'s' * (rows != 1)} of {len(files)} file{'s' * (len(files) != 1)} into {topic}"
    session.print_result(
        told if committed else f"version {version} of {transactional_id} was committed before: nothing was imported",
        {"topic": topic, "files": len(files), "rows": rows if committed else 0, "committed": committed},
    )


def _was_committed(store: eoslog.Store, transactional_id: str | None, version: int | None) -> bool:
    """Whether the work was done before, so that nothing need be uploaded. The commit itself decides."""
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
    """Raises: SchemaMismatch: the file has columns that the topic cannot take. Nothing was uploaded yet."""
    columns = first_columns(path, kind, available_columns(topic))
    if columns is not None:
        with naming(path):
            for _ in deal_out(topic, rows_to_write(topic, columns.empty_table(), 0), 0):
                raise AssertionError("no rows, but rows were dealt out")
