"""``eoslog transactions``: list, describe, abort, fence, and what holds readers back (``kafka-transactions.sh``)."""

from __future__ import annotations

import click

from eoslog.admin.admin import Admin
from eoslog.admin.transaction_descriptions import COORDINATOR_EPOCH, transaction_at
from eoslog.cli import completion
from eoslog.cli.options import NATURAL, Group, Invocation, confirm, pass_invocation, topic_option, yes_option
from eoslog.cli.rendering import Columns, duration_shown, shown
from eoslog.state.names import TopicPartition
from eoslog.state.store_state import TransactionState

_MS_A_MINUTE = 60_000
_NO_BROKER = -1
"""The number of the transaction coordinator that is shown: Kafka's for no broker, since no process is one."""

transactions = Group("transactions", help="List, describe and abort transactions, fence producers.")


@transactions.command(
    "list",
    examples=[
        "",
        "--state Ongoing --state Empty",
        "--producer-id 2097152 --json",
        "--duration-filter 60000 --transactional-id-pattern 'etl-.*'",
    ],
)
@click.option(
    "--state", metavar="STATE", multiple=True, help="Only this state, such as Ongoing or EMPTY. May be repeated."
)
@click.option("--producer-id", type=int, metavar="ID", multiple=True, help="Only this producer id. May be repeated.")
@click.option("--duration-filter", type=NATURAL, metavar="MS", help="Only transactions that have been open for longer.")
@click.option("--transactional-id-pattern", metavar="REGEX", help="Only ids that this matches as a whole.")
@pass_invocation
def list_transactions(
    invocation: Invocation,
    state: tuple[str, ...],
    producer_id: tuple[int, ...],
    duration_filter: int | None,
    transactional_id_pattern: str | None,
) -> None:
    """List transactional ids, including those of tasks of jobs. Coordinator is -1: no process is Kafka's transaction
    coordinator.

    A state that does not exist gives a warning, as in Kafka.
    """
    listed = invocation.store().admin.list_transactions(
        states=state or None,
        producer_ids=producer_id or None,
        running_longer_than_ms=duration_filter,
        transactional_id_pattern=transactional_id_pattern,
    )
    for name in listed.unknown_states:
        known = ", ".join(state.name for state in TransactionState)
        click.secho(f"no transaction state is named {name!r}; the states are: {known}", fg="yellow", err=True)
    coordinator = ("Coordinator?", lambda each: _NO_BROKER)
    columns = Columns("TransactionalId", coordinator, "ProducerId TransactionState Kind PreparedTransaction?")
    invocation.print_rows(columns, listed, empty="no transactional ids")


@transactions.command("describe", examples=["etl-1"])
@click.argument("transactional_id", metavar="ID", shell_complete=completion.transactional_ids)
@pass_invocation
def describe_transaction(invocation: Invocation, transactional_id: str) -> None:
    """Describe the transactional id ID. Times are by the store's clock; --json prints ms, or -1 for none."""
    columns = Columns(
        ("CoordinatorId", lambda found: _NO_BROKER),
        "TransactionalId ProducerId ProducerEpoch TransactionState TransactionTimeoutMs:duration",
        "CurrentTransactionStartTimeMs=transaction_start_time_ms:time TransactionDurationMs:duration TopicPartitions",
        "Kind LastUpdateTimeMs=last_update_ms:time PreparedTransaction PreparedTimeMs:time PreparedTimeoutMs:duration",
    )
    invocation.print_facts(columns.of(invocation.store().admin.describe_transaction(transactional_id)))


_LAST_COMMITTED = Columns(
    "TransactionalId Slot CommitTimeMs=timestamp:time ProducerId ProducerEpoch ApplicationId Version",
    ("Rows", lambda found: [f"{topic}: {rows}" for topic, rows in found.rows.items()]),
    (
        "Offsets",
        lambda found: [
            f"{group}: {partition.topic}-{partition.partition}: {position.offset}"
            for group, offsets in found.offsets.items()
            for partition, position in offsets.items()
        ],
    ),
    (
        "Versions",
        lambda found: [
            f"{each.application_id} {each.sink}: {each.version}"
            + (f" of query {each.query_id}" if each.query_id is not None else "")
            for each in found.versions
        ],
    ),
)


@transactions.command(examples=["etl-1"])
@click.argument("transactional_id", metavar="ID", shell_complete=completion.transactional_ids)
@pass_invocation
def last_committed(invocation: Invocation, transactional_id: str) -> None:
    """Show the last commit of the transactional id ID, and the versions of its applications."""
    invocation.print_facts(_LAST_COMMITTED.of(invocation.store().admin.last_committed(transactional_id)))


@transactions.command(examples=["payments 0"])
@click.argument("topic", shell_complete=completion.topics)
@click.argument("partition", type=NATURAL)
@pass_invocation
def describe_producers(invocation: Invocation, topic: str, partition: int) -> None:
    """List the producers that PARTITION of TOPIC knows. A start offset of -1 means that no transaction is open."""
    columns = Columns(
        "ProducerId ProducerEpoch LatestCoordinatorEpoch? LastSequence LastTimestamp:time CurrentTransactionStartOffset"
    )
    found = invocation.store().admin.describe_producers(topic, partition)
    invocation.print_rows(columns, found, empty="no producers")


@transactions.command(examples=["", "--max-transaction-timeout 5 --topic payments --partition 0"])
@click.option(
    "--max-transaction-timeout",
    type=NATURAL,
    metavar="MINUTES",
    help="Find transactions that are open for longer. Default: the store's longest timeout, 15 minutes unless altered.",
)
@topic_option(help="Only in this topic.")
@click.option("--partition", type=NATURAL, help="Only in this partition of --topic.")
@pass_invocation
def find_hanging(
    invocation: Invocation, max_transaction_timeout: int | None, topic: str | None, partition: int | None
) -> None:
    """Find transactions that have been open for too long and hold readers back.

    Reason says why a transaction is still open. `transactions abort` ends it. Every coordinator ends it too, once it
    is past its timeout.
    """
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic.")
    found = invocation.store().admin.find_hanging_transactions(
        max_transaction_timeout_ms=None if max_transaction_timeout is None else max_transaction_timeout * _MS_A_MINUTE,
        topic=topic,
        partition=partition,
    )
    columns = Columns(
        "Topic=topic_partition.topic Partition=topic_partition.partition ProducerId? ProducerEpoch?",
        ("CoordinatorEpoch?", lambda each: COORDINATOR_EPOCH),
        "StartOffset LastTimestamp:time? DurationMs:duration TransactionalId Reason",
    )
    invocation.print_rows(columns, found, empty="no hanging transactions")


@transactions.command(examples=["etl-1", "--topic payments --partition 0 --start-offset 42 --yes"])
@click.argument("transactional_id", metavar="[ID]", required=False, shell_complete=completion.transactional_ids)
@topic_option(help="Instead of ID: the topic,")
@click.option("--partition", type=NATURAL, help="the partition, and")
@click.option("--start-offset", type=NATURAL, help="the first offset of the transaction there.")
@yes_option
@pass_invocation
def abort(
    invocation: Invocation,
    transactional_id: str | None,
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
    yes: bool,
) -> None:
    """Abort the open transaction of the transactional id ID, or the one at an offset.

    Its producer is not fenced: it gets an error, and may begin its next transaction. `transactions fence` stops it.
    """
    store = invocation.store()
    admin = store.admin
    if transactional_id is not None and topic is None and partition is None and start_offset is None:
        _confirm_end(admin, transactional_id, "Abort", yes=yes)
        aborted = admin.abort_transaction(transactional_id)
    elif transactional_id is None and topic is not None and partition is not None and start_offset is not None:
        place = TopicPartition(topic, partition)
        holder = store.read(lambda state, slot: transaction_at(state, place, start_offset))
        if holder is not None:
            _confirm_end(admin, holder, "Abort", yes=yes)
        transactional_id, aborted = admin.abort_transaction_at(topic, partition, start_offset), True
    else:
        raise click.UsageError("Name the transaction by its ID, or by --topic, --partition and --start-offset.")
    _print_end(invocation, transactional_id, "aborted", aborted)


@transactions.command(examples=["etl-1", "etl-1 --yes"])
@click.argument("transactional_id", metavar="ID", shell_complete=completion.transactional_ids)
@yes_option
@pass_invocation
def fence(invocation: Invocation, transactional_id: str, yes: bool) -> None:
    """Fence the producer of the transactional id ID, and abort its open transaction if there is one.

    Every later call of this producer fails. A program that is started again gets the id again.
    """
    admin = invocation.store().admin
    is_open = admin.describe_transaction(transactional_id).transaction_state == TransactionState.ONGOING.name
    also = ", and abort its open transaction" if is_open else ""
    confirm(f"Fence the producer of {shown(transactional_id)}{also}?", yes=yes)
    aborted = admin.fence_producer(transactional_id)
    text = f"fenced the producer of {transactional_id}" + (", and aborted its transaction" if aborted else "")
    invocation.print_result(text, {"transactional_id": transactional_id, "fenced": True, "aborted": aborted})


@transactions.command(examples=["payments-to-bank"])
@click.argument("transactional_id", metavar="ID", shell_complete=completion.transactional_ids)
@yes_option
@pass_invocation
def force_terminate(invocation: Invocation, transactional_id: str, yes: bool) -> None:
    """Abort the open transaction of ID even if it is prepared, and fence its producer.

    Another system may already have committed its half of a prepared transaction. Look there first.
    """
    admin = invocation.store().admin
    _confirm_end(admin, transactional_id, "Force the abort of", yes=yes)
    _print_end(invocation, transactional_id, "terminated", admin.force_terminate_transaction(transactional_id))


def _confirm_end(admin: Admin, transactional_id: str, verb: str, *, yes: bool) -> None:
    """Ask whether to end the open transaction of an id. If none is open, there is nothing to ask."""
    found = admin.describe_transaction(transactional_id)
    if found.transaction_state == TransactionState.ONGOING.name:
        prepared = "prepared " if found.prepared_transaction is not None else ""
        age = duration_shown(found.transaction_duration_ms)
        confirm(f"{verb} the {prepared}transaction of {shown(transactional_id)}, open for {age}?", yes=yes)


def _print_end(invocation: Invocation, transactional_id: str, done: str, is_done: bool) -> None:
    text = f"{done} the transaction of {transactional_id}" if is_done else f"nothing was open under {transactional_id}"
    invocation.print_result(text, {"transactional_id": transactional_id, done: is_done})
