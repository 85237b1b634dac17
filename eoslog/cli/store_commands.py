"""Commands on a store as a whole: what it is, what was done in it, and one step of maintenance at a time."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from typing import Annotated, Any

import click

from eoslog.cli.json_values import to_json
from eoslog.cli.options import COUNT, Param, Session, command
from eoslog.cli.rendering import Columns, print_json, progress, shown, title_of
from eoslog.log.slot_deletion import delete_old_checkpoints, delete_old_publications, delete_old_slots
from eoslog.maintenance.coordinator import Coordinator
from eoslog.maintenance.file_compaction import CompactedSegments
from eoslog.maintenance.key_compaction import CompactedPartition
from eoslog.read.history import Operation
from eoslog.state.store_state import StoreState

_STORE = Columns(
    "StoreId FormatVersion ReaderFeatures WriterFeatures CreatedMs ProbedPutIfAbsent=probe.put_if_absent",
    "ProbedMs=probe.time_ms",
)
_STATE = Columns(
    "HorizonMs",
    ("Topics", lambda state: len(state.topics)),
    ("Partitions", lambda state: len(state.partitions)),
    ("TransactionalIds", lambda state: len(state.transactions)),
    ("OngoingTransactions", lambda state: len(state.ongoing)),
    ("IdempotentProducers", lambda state: len(state.producers)),
    ("ConsumerGroups", lambda state: len(state.groups)),
)


@command("describe", "")
def describe(session: Session) -> None:
    """Describe the store: its id, format, log and size. Times are ms by the store's clock."""
    store = session.store()
    description = store.describe()

    def look(state: StoreState, slot: int) -> dict[str, Any]:
        checkpoint, previous = store.log.replica.checkpoint, store.log.replica.previous_checkpoint
        return {
            "NewestSlot": slot,
            "CheckpointSlot": checkpoint.slot if checkpoint is not None else None,
            "PreviousCheckpointSlot": previous.slot if previous is not None else None,
            **_STATE.of(state),
        }

    session.print_facts({"Url": store.url, **_STORE.of(description), **store.read(look)})


@command("metrics", "", "--json")
def metrics(session: Session) -> None:
    """Show metrics of transactions, producers and the log.

    The table has the partitions whose last stable offset lags behind their end. With --json it has all partitions.
    """
    found = session.store().metrics()
    columns = Columns(
        "Slot SlotsSinceCheckpoint PartitionsWithLateTransactionsCount ProducerIdCount PreparedTransactions",
        "LongestOpenTransactionMs TransactionsByState",
    )
    lags = [
        {"Topic": place.topic, "Partition": place.partition, "LastStableOffsetLag": lag}
        for place, lag in found.last_stable_offset_lag.items()
        if lag > 0 or session.as_json
    ]
    session.print_facts(columns.of(found), last_stable_offset_lag=lags)


def _by(operation: Operation) -> str | None:
    if operation.transactional_id is not None or operation.producer_id is None:
        return operation.transactional_id
    return f"producer {operation.producer_id}"


def _details(operation: Operation) -> str | None:
    """Return the fields of an operation that have no column, in words."""
    found = []
    if operation.query_id is not None:
        found.append(f"query {f'{operation.query_name} ' if operation.query_name else ''}{operation.query_id}")
    if operation.batch_id is not None:
        found.append(f"micro-batch {operation.batch_id}")
    # The version of a streaming sink is its micro-batch.
    repeated = (operation.application_id, operation.version) == (operation.transactional_id, operation.batch_id)
    if operation.version is not None and not repeated:
        found.append(f"version {operation.version} of {operation.application_id}")
    if operation.task_count is not None:
        found.append(f"{operation.task_count} tasks")
    if operation.engine is not None:
        found.append(operation.engine)
    if operation.reason not in (None, "client"):
        found.append(f"ended by {operation.reason}")
    for name, value in operation.parameters.items():
        if isinstance(value, dict):
            value = [f"{each}={setting}" for each, setting in value.items()]
        if value != []:
            found.append(f"{name} {shown(value)}")
    return "; ".join(found) or None


def _time(operation: Operation) -> str | None:
    if operation.timestamp is None:
        return None
    moment = datetime.fromtimestamp(operation.timestamp / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_OPERATION = Columns(
    "Slot",
    ("Timestamp", _time),
    "Operation Topics Rows Files Bytes DurationMs",
    ("By", _by),
    ("Details", _details),
)


@command("history", "", "payments --limit 5", "payments --transactional-id etl-1 --aborts --json")
def history(
    session: Session,
    topic: str | None = None,
    *,
    limit: Annotated[int, Param("The newest N operations.", "N", COUNT)] = 20,
    unlimited: Annotated[bool, Param("All operations that the log still has.", name="--all")] = False,
    transactional_id: Annotated[str | None, Param("Only the transactions of this id.", "ID")] = None,
    aborts: Annotated[bool, Param("Show aborted transactions too.")] = False,
) -> None:
    """Show the commits and changes of TOPIC, or of all topics, the newest first.

    If TOPIC is given, rows, files and bytes are those of TOPIC alone. The log deletes old slots after their retention,
    and their history is lost. A message on standard error says where the history begins then.
    """
    found = session.store().history(
        topic, limit=None if unlimited else limit, transactional_id=transactional_id, include_aborts=aborts
    )
    operations = list(found)
    if session.as_json:
        print_json([to_json({name: getattr(each, name) for name in each.__dataclass_fields__}) for each in operations])
    else:
        session.print_rows(_OPERATION, operations, empty="no operations")
    if found.is_cut:
        click.echo(f"slots before {found.oldest_slot} were deleted, and their history with them", err=True)


@command("checkpoint", "")
def checkpoint(session: Session) -> None:
    """Write a checkpoint now. Readers open the log there. Writers write checkpoints too."""
    store = session.store()
    store.read(lambda state, slot: None)
    with progress("writing a checkpoint"):
        reference = store.log.checkpoint()
    session.print_facts(Columns("Slot Path Bytes=length").of(reference))


@command("seal", "")
def seal(session: Session) -> None:
    """Seal the segments that are large or old enough. This keeps the state of the log small. Writers do it too."""
    with progress("sealing segments"):
        sealed = Coordinator(session.store()).seal()
    session.print_rows(Columns("Topic Partition"), sealed, empty="no segment is large or old enough")


@command("vacuum", "--dry-run", "")
def vacuum(
    session: Session, *, dry_run: Annotated[bool, Param("Show the files to delete, and delete nothing.")] = False
) -> None:
    """Delete unused files, and old slots and checkpoints of the log.

    A file is unused if no transaction names it or can still name it. The settings vacuum.staged_max_age_ms,
    vacuum.deleted_file_retention_ms and log.slot_retention_ms are the least ages of what is deleted. A job whose commit
    comes later than the first of them after its first upload fails with StagedFilesExpired.
    """
    store, ages = session.store(), session.settings.vacuum
    with progress("reading the list of files"):
        report = store.admin.vacuum(
            staged_max_age_ms=ages.staged_max_age_ms,
            deleted_file_retention_ms=ages.deleted_file_retention_ms,
            dry_run=dry_run,
        )
        of_the_log = {
            "Slots": delete_old_slots,
            "CheckpointObjects": delete_old_checkpoints,
            "Publications": delete_old_publications,
        }
        deleted = {title: 0 if dry_run else delete(store.log) for title, delete in of_the_log.items()}
    columns = Columns("DryRun HorizonMs", ("Files", lambda found: len(found.paths)), "Bytes KeptFiles")
    paths = {"Paths": report.paths} if dry_run or session.as_json else {}
    session.print_facts(columns.of(report) | deleted | paths)


@command("restore-indexes", "payments --dry-run", "payments")
def restore_indexes(
    session: Session,
    topic: str,
    *,
    dry_run: Annotated[bool, Param("Show the missing or damaged files, and restore nothing.")] = False,
) -> None:
    """Restore missing or damaged .txnindex and .snapshot files of TOPIC.

    Only Kafka's tools read them. A .snapshot can be restored if the segment before it exists. An .index.parquet cannot
    be restored, because nothing else has its content.
    """
    with progress("reading the index files of the topic"):
        found = session.store().admin.restore_indexes(topic, dry_run=dry_run)
    columns = Columns("Partition BaseOffset Kind Problem Restored Path")
    session.print_rows(columns, found, empty="no file is missing or damaged")


@command("compact-files", "", "flights")
def compact_files(session: Session, topic: str | None = None) -> None:
    """Rewrite small data files in sealed segments into large ones. By default in all topics. Readers see no change."""
    with progress("compacting files"):
        found = session.store().admin.compact_files(topic)
    columns = Columns(*(title_of(field.name) for field in fields(CompactedSegments)))
    session.print_rows(columns, found.compacted, empty="no sealed segment has small files to be compacted")


@command("compact-keys", "", "balances")
def compact_keys(session: Session, topic: str | None = None) -> None:
    """Keep the newest row of each key in sealed segments. By default in all topics that are due."""
    with progress("compacting by key"):
        found = session.store().admin.compact_keys(topic)
    columns = Columns(*(title_of(field.name) for field in fields(CompactedPartition)))
    session.print_rows(columns, found.partitions, empty="nothing is to be compacted")
