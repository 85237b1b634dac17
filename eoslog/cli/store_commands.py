"""Commands on a whole store: its description, its history, its maintenance, and the check of its objects."""

from __future__ import annotations

import logging
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from operator import itemgetter
from types import FrameType
from typing import Any

import click

from eoslog.admin.transaction_descriptions import count_transactional_ids
from eoslog.cli import completion
from eoslog.cli.metrics_options import metrics_options, prometheus_metrics, serve_metrics
from eoslog.cli.options import (
    COUNT,
    NATURAL,
    Command,
    Invocation,
    parsed,
    pass_invocation,
    topic_option,
    transactional_id_option,
    yes_option,
)
from eoslog.cli.rendering import (
    Columns,
    Line,
    duration_shown,
    print_error,
    print_json,
    print_line,
    progress,
    shown,
    time_shown,
)
from eoslog.errors import EosLogError, RetriableError
from eoslog.format.json_values import to_json
from eoslog.log.slot_deletion import delete_old_checkpoints, delete_old_slots
from eoslog.maintenance.append_service import AppendService
from eoslog.maintenance.coordinator import STEPS, Coordinator, StepReport
from eoslog.read.history import Operation
from eoslog.state.application_versions import is_sink
from eoslog.state.store_state import StoreState
from eoslog.verification.findings import Finding, Severity
from eoslog.verification.repair import Repair
from eoslog.wording import counted

_STORE = Columns(
    "StoreId FormatVersion ReaderFeatures WriterFeatures CreatedMs:time ProbedPutIfAbsent=probe.put_if_absent",
    "ProbedMs=probe.time_ms:time",
)
_COPIED = Columns("CopiedStoreId=store_id CopiedSlot=slot CopiedMs=time_ms:time")
_APPEND_SERVICE = Columns("AppendService=address AppendServiceExpiresMs=expires_ms:time")
_STATE = Columns(
    # The features of the description are those of its creation. The state may have more.
    "ReaderFeatures WriterFeatures VacuumHorizonMs=horizon_ms:time MaxTransactionTimeoutMs:duration",
    ("Topics", lambda state: len(state.topics)),
    ("Partitions", lambda state: len(state.partitions)),
    ("TransactionalIds", count_transactional_ids),
    ("OpenTransactions", lambda state: len(state.ongoing)),
    ("IdempotentProducers", lambda state: len(state.producers)),
    ("ConsumerGroups", lambda state: len(state.groups)),
)
_STEP = click.Choice([step.name for step in STEPS])
_MS_A_SECOND = 1_000
_FOUND, _COULD_NOT_LOOK = 1, 2


@click.command(cls=Command, examples=[""])
@pass_invocation
def describe(invocation: Invocation) -> None:
    """Describe the store: its id, format, log and size. Times are by the store's clock; --json prints them in ms.

    VacuumHorizon: files that were uploaded before this time can no longer be committed.
    """
    store = invocation.store()
    description = store.describe()

    def snapshot(state: StoreState, slot: int) -> dict[str, Any]:
        checkpoint, previous = store.log.replica.checkpoint, store.log.replica.previous_checkpoint
        service = store.log.replica.append_service
        announced = service is not None and service.is_current(store.now_ms())
        return {
            "NewestSlot": slot,
            "CheckpointSlot": checkpoint.slot if checkpoint is not None else None,
            "PreviousCheckpointSlot": previous.slot if previous is not None else None,
            **(_APPEND_SERVICE.of(service) if announced else {}),
            **_STATE.of(state),
        }

    copied = {} if description.copied is None else _COPIED.of(description.copied)
    invocation.print_facts({"Url": store.url, **_STORE.of(description), **copied, **store.read(snapshot)})


@click.command(cls=Command, examples=["--max-transaction-timeout-ms 3600000"])
@click.option(
    "--max-transaction-timeout-ms",
    type=COUNT,
    required=True,
    metavar="MS",
    help="The longest timeout of a transaction (Kafka's transaction.max.timeout.ms; 900000 in a new store).",
)
@pass_invocation
def alter(invocation: Invocation, max_transaction_timeout_ms: int) -> None:
    """Change settings of the store. `describe` shows them."""
    invocation.store().admin.alter_store(max_transaction_timeout_ms=max_transaction_timeout_ms)
    invocation.print_facts({"MaxTransactionTimeoutMs": max_transaction_timeout_ms})


@click.command(cls=Command, examples=["", "--json", "--prometheus"])
@click.option("--prometheus", is_flag=True, help="Print the text format of Prometheus.")
@pass_invocation
def metrics(invocation: Invocation, prometheus: bool) -> None:
    """Show metrics of transactions, producers and the log.

    The tables of lags have only partitions that lag behind their end. --json and --prometheus print all of them, and
    also the counts of transactions, inits, rows and errors. These counts begin when a process opens the log, so follow
    them in a process that runs, such as `coordinator --metrics-port`.
    """
    if prometheus:
        click.echo(prometheus_metrics().exposition(invocation.store()), nl=False)
        return
    found = invocation.store().metrics()
    columns = Columns(
        "Slot SlotsSinceCheckpoint PartitionsWithLateTransactionsCount ProducerIdCount PreparedTransactions",
        "LongestOpenTransactionMs:duration TransactionsByState OpenTransactionsByAgeMs?",
    )
    groups = [
        {"Group": group, "Topic": partition.topic, "Partition": partition.partition, "ConsumerLag": lag}
        for group, lags_of_group in found.consumer_lag.items()
        for partition, lag in lags_of_group.items()
        if lag > 0 or invocation.as_json
    ]
    lags = [
        {"Topic": partition.topic, "Partition": partition.partition, "LastStableOffsetLag": lag}
        for partition, lag in found.last_stable_offset_lag.items()
        if lag > 0 or invocation.as_json
    ]
    publication = Columns(("Topic", itemgetter(0)), ("PublicationLagMs:duration", itemgetter(1)))
    publications = [publication.of(each) for each in found.publication_lag_ms.items()]
    counts = Columns("Inits DuplicateBatches").of(found) if invocation.as_json else {}
    ended = [
        {"Outcome": outcome, "Reason": reason, "TransactionsEnded": number}
        for outcome, of_reason in found.transactions_ended.items()
        for reason, number in of_reason.items()
        if number or invocation.as_json
    ]
    by_topic = {"RowsIn": found.rows_in, "BytesIn": found.bytes_in, "RowsOut": found.rows_out}
    by_topic |= {"BytesOut": found.bytes_out}
    topics = [
        {"Topic": topic, "TopicBytes": size}
        | ({name: counts.get(topic, 0) for name, counts in by_topic.items()} if invocation.as_json else {})
        for topic, size in found.topic_bytes.items()
    ]
    ends = [
        {"Topic": partition.topic, "Partition": partition.partition, "EndOffset": end}
        for partition, end in found.end_offsets.items()
    ]
    errors = [{"Error": error, "AppendErrors": number} for error, number in found.append_errors.items()]
    members = [{"Group": group, "GroupMembers": number} for group, number in found.group_members.items()]
    invocation.print_facts(
        columns.of(found) | counts,
        last_stable_offset_lag=lags,
        consumer_lag=groups,
        publications=publications,
        transactions_ended=ended,
        topics=topics,
        end_offsets=ends,
        append_errors=errors,
        group_members=members,
    )


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
    is_micro_batch = operation.version == operation.batch_id and is_sink(
        operation.transactional_id or "", operation.application_id or ""
    )
    if operation.version is not None and not is_micro_batch:
        found.append(f"version {operation.version} of {operation.application_id}")
    if operation.task_count is not None:
        found.append(counted(operation.task_count, "task"))
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


_OPERATION = Columns(
    "Slot Timestamp:time Operation Topics Rows Files? Bytes:size? DurationMs:duration?",
    ("By", _by),
    ("Details?", _details),
)


@click.command(cls=Command, examples=["", "payments --limit 5", "payments --transactional-id etl-1 --aborts --json"])
@click.argument("topic", required=False, shell_complete=completion.topics)
@click.option("--limit", type=COUNT, metavar="N", default=20, show_default=True, help="The newest N operations.")
@click.option("--all", "unlimited", is_flag=True, help="All operations that the log still has.")
@transactional_id_option(help="Only the transactions of this id.")
@click.option("--aborts", is_flag=True, help="Show aborted transactions too.")
@pass_invocation
def history(
    invocation: Invocation, topic: str | None, limit: int, unlimited: bool, transactional_id: str | None, aborts: bool
) -> None:
    """Show the commits and changes of TOPIC, or of all topics, the newest first.

    If TOPIC is given, rows, files and bytes are those of TOPIC alone. --wide adds files, bytes, duration and details.
    The log deletes old slots after their retention, and their history is lost. A message on standard error says where
    the history begins then.
    """
    found = invocation.store().history(
        topic, limit=None if unlimited else limit, transactional_id=transactional_id, include_aborts=aborts
    )
    operations = list(found)
    if invocation.as_json:
        print_json([to_json({name: getattr(each, name) for name in each.__dataclass_fields__}) for each in operations])
    else:
        invocation.print_rows(_OPERATION, operations, empty="no operations")
    if found.is_cut:
        click.echo(f"slots before {found.oldest_slot} were deleted, and their history with them", err=True)


@click.command(cls=Command, examples=[""])
@pass_invocation
def checkpoint(invocation: Invocation) -> None:
    """Write a checkpoint now. Readers open the log there. Writers write checkpoints too."""
    store = invocation.store()
    store.read(lambda state, slot: None)
    with progress("writing a checkpoint"):
        reference = store.log.checkpoint()
    invocation.print_facts(Columns("Slot Path Bytes=length:size").of(reference))


@click.command(cls=Command, examples=[""])
@pass_invocation
def seal(invocation: Invocation) -> None:
    """Seal the segments that are large or old enough. This keeps the state of the log small. Writers do it too."""
    with progress("sealing segments"):
        sealed = Coordinator(invocation.store()).seal()
    invocation.print_rows(Columns("Topic Partition"), sealed, empty="no segment is large or old enough")


@click.command(cls=Command, examples=["--dry-run", ""])
@click.option("--dry-run", is_flag=True, help="Show the files to delete, and delete nothing.")
@pass_invocation
def vacuum(invocation: Invocation, dry_run: bool) -> None:
    """Delete unused files, and old slots and checkpoints of the log.

    A file is unused if no transaction names it or can still name it. The settings vacuum.staged_max_age_ms,
    vacuum.deleted_file_retention_ms and log.slot_retention_ms are the least ages of deleted objects. A job must commit
    within vacuum.staged_max_age_ms of its first upload. Otherwise its commit fails with StagedFilesExpired. Only an
    unused object that several files share is deleted earlier: 24 hours after its upload. VacuumHorizon: files that
    were uploaded before this time can no longer be committed.
    """
    store, ages = invocation.store(), invocation.settings.vacuum
    with progress("reading the list of files"):
        # Slots come first: on a full disk their space is that of the vacuum's own entries.
        slots = 0 if dry_run else delete_old_slots(store.log)
        report = store.admin.vacuum(
            staged_max_age_ms=ages.staged_max_age_ms,
            deleted_file_retention_ms=ages.deleted_file_retention_ms,
            dry_run=dry_run,
        )
        deleted = {"Slots": slots, "CheckpointObjects": 0 if dry_run else delete_old_checkpoints(store.log)}
    columns = Columns(
        "DryRun VacuumHorizonMs=horizon_ms:time", ("Files", lambda found: len(found.paths)), "Bytes:size KeptFiles"
    )
    paths = {"Paths": report.paths} if dry_run or invocation.as_json else {}
    if report.unreadable_indexes or invocation.as_json:
        paths["UnreadableIndexes"] = report.unreadable_indexes
    invocation.print_facts(columns.of(report) | deleted | paths)


_COPY = Columns("Url StoreId Slot SourceSlot WasComplete Files Bytes:size FilesReused")


@click.command(
    cls=Command,
    examples=[
        "s3://backups/my-store-2026-01-31",
        "s3://backups/my-store --update",
        "before-the-mistake --timestamp 2026-01-31T12:00:00Z --new-identity",
        "test-store --new-identity",
        "TARGET --target-config backup.toml",
    ],
)
@click.argument("target")
@click.option("--update", is_flag=True, help="Bring a complete copy to a newer slot, with the files that it lacks.")
@click.option("--slot", type=NATURAL, help="Copy the store at this slot of the log. Default: the newest slot.")
@click.option("--timestamp", metavar="TIME", help="Copy the store at this time, such as 2026-01-31T12:00:00Z or in ms.")
@click.option("--new-identity", is_flag=True, help="Give the copy a new store id, for tests or a second pipeline.")
@click.option(
    "--target-config",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="The settings file of TARGET. Default: the settings file of the source.",
)
@pass_invocation
def copy(
    invocation: Invocation,
    target: str,
    update: bool,
    slot: int | None,
    timestamp: str | None,
    new_identity: bool,
    target_config: str | None,
) -> None:
    """Copy the store at one slot to TARGET, an empty location or an earlier copy. Others may use the store meanwhile.

    TARGET is a local path, or an s3://, gs://, abfss:// or az:// URL. It is a store only when all files are there and
    the copy is verified. If a copy was interrupted, the same command continues it. docs/backup.md says what continues
    on a copy with the same identity: use the source or the copy from then on, not both.

    A complete copy stays as it is, and the command says how far it is behind. With --update it gets the newest slot.

    --slot and --timestamp copy an older state, as long as the log's checkpoints and slots and the files that were
    dropped since still exist. Beyond that the command is refused, and names the oldest slot that it can copy.
    """
    source, there = invocation.store(), invocation.store_at(target, target_config)
    with _without_warnings_of_the_log(), progress() as show:
        report = source.admin.copy(
            there, new_identity=new_identity, update=update, slot=slot, timestamp=timestamp, progress=show
        )
    if report.was_complete and not invocation.as_json:
        behind = report.source_slot - report.slot
        print_line(
            f"{report.url} is a complete copy already, of slot {report.slot}. "
            + (
                f"The store is at slot {report.source_slot}, so the copy is {counted(behind, 'slot')} behind. Nothing "
                "was done: --update copies the newest slot"
                if behind
                else "The store has no newer slot"
            )
        )
        return
    findings = _all_findings(report.findings, as_json=invocation.as_json)
    invocation.print_facts(
        _COPY.of(report) | ({"Findings": [each.as_json() for each in findings]} if invocation.as_json else {})
    )


@click.command(cls=Command, examples=["payments --dry-run", "payments"])
@click.argument("topic", shell_complete=completion.topics)
@click.option("--dry-run", is_flag=True, help="Show the missing or damaged files, and restore nothing.")
@pass_invocation
def restore_indexes(invocation: Invocation, topic: str, dry_run: bool) -> None:
    """Restore missing or damaged .txnindex and .snapshot files of TOPIC.

    Only Kafka's tools read them. A .snapshot can be restored if the segment before it exists. An .index.parquet cannot
    be restored, because nothing else has its content.
    """
    with progress("reading the index files of the topic"):
        found = invocation.store().admin.restore_indexes(topic, dry_run=dry_run)
    columns = Columns("Partition BaseOffset Kind Problem Restored Path?")
    invocation.print_rows(columns, found, empty="no file is missing or damaged")


_now_option = click.option(
    "--now", is_flag=True, help="First seal the active segments, even if they are small and new."
)


@click.command(cls=Command, examples=["", "flights", "flights --now"])
@click.argument("topic", required=False, shell_complete=completion.topics)
@_now_option
@pass_invocation
def compact_files(invocation: Invocation, topic: str | None, now: bool) -> None:
    """Rewrite small data files in sealed segments into large ones. By default in all topics. Readers see no change."""
    with progress("compacting files"):
        found = invocation.store().admin.compact_files(topic, now=now)
    columns = Columns(
        "Topic Partition BaseOffset EndOffset? Segments FilesBefore FilesAfter BytesWritten:size",
    )
    invocation.print_rows(columns, found.compacted, empty="no sealed segment has small files to be compacted")


@click.command(cls=Command, examples=["", "balances", "balances --now"])
@click.argument("topic", required=False, shell_complete=completion.topics)
@_now_option
@pass_invocation
def compact_keys(invocation: Invocation, topic: str | None, now: bool) -> None:
    """Keep the newest row of each key in sealed segments. By default in all topics that are due."""
    with progress("compacting by key"):
        found = invocation.store().admin.compact_keys(topic, now=now)
    columns = Columns(
        "Topic Partition CleanedOffset SegmentsReplaced? RowsRemoved BytesBefore:size BytesAfter:size",
    )
    invocation.print_rows(columns, found.partitions, empty="nothing is to be compacted")


@click.command(cls=Command, examples=["flights"])
@click.argument("topic", shell_complete=completion.topics)
@pass_invocation
def publish(invocation: Invocation, topic: str) -> None:
    """Publish TOPIC as the tables that its setting publish names, for other engines.

    The new version of a table shows all rows that are committed now. A coordinator publishes at intervals.
    """
    with progress("publishing"):
        found = invocation.store().admin.publish(topic)
    invocation.print_rows(Columns("Topic Format Version Slot FilesAdded FilesRemoved"), found)


def _interval(text: str) -> tuple[str, int]:
    step, _, number = text.partition("=")
    seconds = float(number)
    if not 0.001 <= seconds <= 1e9:
        raise click.BadParameter(f"{text!r}: an interval is 0.001 to 1000000000 seconds")
    return _STEP.convert(step, None, None), int(seconds * _MS_A_SECOND)


_INTERVAL = parsed(_interval, "STEP=SECONDS")


@click.command(cls=Command, examples=["", "--once", "--interval vacuum=3600 --without delete-old-slots --json"])
@click.option("--once", is_flag=True, help="Run every step once, report each, and end. The status is 1 if one failed.")
@click.option("--step", type=_STEP, metavar="STEP", multiple=True, help="Only this step. May be repeated.")
@click.option("--without", type=_STEP, metavar="STEP", multiple=True, help="Not this step. May be repeated.")
@click.option("--interval", type=_INTERVAL, metavar="STEP=SECONDS", multiple=True, help="How often a step runs.")
@metrics_options
@click.option("--append-listen", metavar="HOST:PORT", help="Append for writers on all hosts.")
@click.option("--advertise", metavar="HOST:PORT", help="Where writers reach --append-listen.")
@click.option("--append-certificate", metavar="FILE", help="The TLS certificate of --append-listen (PEM).")
@click.option("--append-private-key", metavar="FILE", help="The private key of the certificate (PEM).")
@pass_invocation
def coordinator(
    invocation: Invocation,
    once: bool,
    step: tuple[str, ...],
    without: tuple[str, ...],
    interval: tuple[tuple[str, int], ...],
    metrics_port: int | None,
    metrics_address: str,
    append_listen: str | None,
    advertise: str | None,
    append_certificate: str | None,
    append_private_key: str | None,
) -> None:
    """Run the background maintenance of a store.

    The coordinator ends overdue transactions, expires ids, seals segments, writes checkpoints and vacuums. It runs
    until SIGTERM or Ctrl-C. It prints a line for each step that changed something, with --verbose for each step, and
    with --json as JSON objects. Several coordinators may run at once. Every append also aborts transactions past their
    timeouts. A reader that may not write therefore needs a coordinator only while no process appends.

    With --append-listen it appends for writers on all hosts. They find its address in the log, and do not race.

    The steps: STEPS. Their intervals are in the section coordinator of the settings.
    """
    settings = invocation.settings
    steps = [each.name for each in STEPS if (not step or each.name in step) and each.name not in without]
    if not steps:
        raise click.UsageError("No step is left to run.")
    if once and interval:
        raise click.UsageError("--once runs every step once: leave --interval out.")
    if once and append_listen is not None:
        raise click.UsageError("--once ends before writers can connect: leave --append-listen out.")
    if append_listen is None and (advertise or append_certificate or append_private_key):
        raise click.UsageError("--advertise, --append-certificate and --append-private-key need --append-listen.")
    if once and metrics_port is not None:
        raise click.UsageError("--once ends before Prometheus can scrape: leave --metrics-port out.")
    store = invocation.store()
    intervals_ms = {each.name: getattr(settings.coordinator, each.setting) for each in STEPS} | dict(interval)
    work = Coordinator(
        store,
        transactional_id_expiration_ms=settings.coordinator.transactional_id_expiration_ms,
        producer_id_expiration_ms=settings.coordinator.producer_id_expiration_ms,
        offsets_retention_ms=settings.groups.offsets_retention_ms,
        staged_max_age_ms=settings.vacuum.staged_max_age_ms,
        deleted_file_retention_ms=settings.vacuum.deleted_file_retention_ms,
        intervals_ms=intervals_ms,
    )

    observe: Callable[[StepReport], None] | None = None
    if metrics_port is not None:
        chosen_ms = {name: intervals_ms[name] for name in steps}
        serve = partial(prometheus_metrics().serve, store, metrics_address, metrics_port, chosen_ms)
        observe = serve_metrics(metrics_address, metrics_port, serve)

    def report(found: StepReport) -> None:
        if observe is not None:
            observe(found)
        if found.did or found.error is not None or invocation.verbosity or once:
            _print_step(found, as_json=invocation.as_json)

    if once:
        if any(found.error is not None for found in work.run_once(steps=steps, report=report)):
            raise click.exceptions.Exit(1)
        return
    # An object store that does not answer yet ends nothing: the steps retry.
    with suppress(RetriableError):
        store.describe()
    click.echo(f"maintaining {store.url}: {len(steps)} steps; SIGTERM or Ctrl-C ends it", err=True)
    with _sigterm_awaited() as has_come, ExitStack() as running:
        if append_listen is not None:
            service = running.enter_context(
                AppendService(
                    store,
                    append_listen,
                    advertise=advertise,
                    certificate=append_certificate,
                    private_key=append_private_key,
                )
            )
            click.echo(f"listening for writers: {service.address}", err=True)
        work.run(steps=steps, report=report, stop=has_come)


coordinator.help = (coordinator.help or "").replace("STEPS", ", ".join(step.name for step in STEPS))


@contextmanager
def _sigterm_awaited() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns True after SIGTERM.

    The first SIGTERM lets a step finish. A second one ends the process at once.
    """
    came = False

    def come(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    before = signal.signal(signal.SIGTERM, come)
    try:
        yield lambda: came
    finally:
        signal.signal(signal.SIGTERM, before)


def _print_step(found: StepReport, *, as_json: bool) -> None:
    error = " ".join(str(found.error).split()) if found.error is not None else None
    if as_json:
        facts = {
            "time_ms": found.time_ms,
            "step": found.step,
            **found.did,
            "duration_ms": found.duration_ms,
            "requests": dict(found.requests),
            "error": error,
        }
        click.echo(Line(facts).json())
    else:
        head = f"{time_shown(found.time_ms)} {found.step}, {duration_shown(found.duration_ms)}: "
        if error is None:
            did = dict(found.did)
            if "unreadable_indexes" in did:
                # The log has named each of them once.
                did["unreadable_indexes"] = len(did["unreadable_indexes"])
            click.echo(head + (Line(did).text() or "nothing to do"))
        else:
            click.secho(f"{head}error: {error}", fg="red", err=True)
    sys.stdout.flush()


@click.command(cls=Command, examples=["eoslog verify my-store", "--topic payments", "--data --json", "--repair --yes"])
@click.argument("location", metavar="[STORE]", required=False)
@topic_option(help="Only the files of TOPIC. The whole log is always read.")
@click.option("--data", is_flag=True, help="Read every data file. Otherwise only presence and length are checked.")
@click.option("--repair", is_flag=True, help="Repair what can be repaired without losing anything. Asks first.")
@yes_option
@pass_invocation
def verify(
    invocation: Invocation, location: str | None, topic: str | None, data: bool, repair: bool, yes: bool
) -> None:
    """Compare every object of a store with the log. Other processes may use the store meanwhile.

    A repair writes checkpoints again, restores .txnindex and .snapshot files, and deletes temporary files that dead
    writers left more than a day ago. It changes no slot, row or data file. For other findings it prints the remedy.
    While the log or its state cannot be trusted, a repair does nothing and says what to do first.

    Exit status: 0 nothing is wrong, or all was repaired; 1 something is wrong; 2 the store could not be read.
    """
    invocation.url = location or invocation.url
    try:
        store = invocation.store()
        with _without_warnings_of_the_log():
            with progress() as show:
                found = _all_findings(store.admin.verify(topic, data=data, progress=show), as_json=invocation.as_json)
            repairable = [each for each in found if each.repairable]
            in_doubt = any(each.log_in_doubt for each in found)
            wanted = repair and repairable and (yes or in_doubt or _is_confirmed(repairable))
            repairs: list[Repair] = []
            for done in store.admin.repair(found) if wanted else ():
                repairs.append(done)
                if not invocation.as_json:
                    print_line(f"{'repaired' if done.done else 'not repaired'}: {done.finding.place}: {done.what}")
    except EosLogError as error:
        print_error(str(error))
        raise click.exceptions.Exit(_COULD_NOT_LOOK) from None
    repaired = [each.finding for each in repairs if each.done]
    left = [each for each in found if each.severity is not Severity.INFO and each not in repaired]
    unread = [] if data else ["data files were not read (--data reads them)"]
    if invocation.as_json:
        outcomes = [
            {"kind": each.finding.kind, "path": each.finding.path, "done": each.done, "what": each.what}
            for each in repairs
        ]
        print_json({"data_files_read": data, "findings": [each.as_json() for each in found], "repairs": outcomes})
    elif repairs:
        print_line(f"left: {_counts(left)}" if left else "; ".join(["everything is repaired", *unread]))
    elif not left:
        print_line("; ".join(["nothing is wrong", *([_counts(found)] if found else []), *unread]))
    elif repair:
        hint = "nothing was repaired" if repairable else "none of it can be repaired. Each finding says what to do"
        print_line(f"{_counts(found)}: {hint}")
    else:
        hint = ": eoslog verify --repair repairs what can be repaired" if repairable and not in_doubt else ""
        print_line("; ".join([f"{_counts(found)}{hint}", *unread]))
    if left:
        raise click.exceptions.Exit(_FOUND)


def _all_findings(findings: Iterable[Finding], *, as_json: bool) -> list[Finding]:
    """Collect all findings, and print each as it comes."""
    found = []
    for finding in findings:
        found.append(finding)
        if not as_json:
            color = {Severity.ERROR: "red", Severity.WARNING: "yellow"}.get(finding.severity)
            head = f"{finding.severity.value}: {finding.kind}: {finding.place}: {finding.problem}"
            click.secho(shown(head), fg=color)
            if finding.severity is not Severity.INFO:
                print_line(f"  what follows: {finding.follows}")
                print_line(f"  what to do: {finding.remedy}")
    return found


def _counts(findings: Sequence[Finding]) -> str:
    """Return the number of findings of each severity, such as ``2 errors, 1 warning``."""
    counts = Counter(each.severity for each in findings)
    names = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
    return ", ".join(counted(counts[each], name) for each, name in names.items() if counts[each])


@contextmanager
def _without_warnings_of_the_log() -> Iterator[None]:
    """Silence warnings of opening the log: a finding says the same, with what to do about it."""
    logger = logging.getLogger("eoslog.log")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _is_confirmed(repairable: list[Finding]) -> bool:
    for finding in repairable:
        click.echo(f"to be repaired: {finding.kind}: {finding.place}", err=True)
    try:
        return click.confirm("Repair these?", err=True)
    except click.Abort as error:
        if isinstance(error.__context__, EOFError):
            # Standard input has no answer. The findings are still to be printed.
            return False
        raise
