"""``eoslog transactions``: list, describe, abort, and what holds readers back (``kafka-transactions.sh``)."""

from __future__ import annotations

from typing import Annotated

import click

from eoslog.admin.transaction_descriptions import COORDINATOR_EPOCH
from eoslog.cli.options import Param, Session, TransactionalId, command, command_group
from eoslog.cli.rendering import Columns
from eoslog.state.store_state import TransactionState

_MS_A_MINUTE = 60_000
_NO_BROKER = -1
"""The coordinator that is shown: Kafka's number for no broker, since no process is the coordinator."""

transactions = command_group("transactions", "List, describe and abort transactions.")


@command(
    "transactions list",
    "",
    "--state Ongoing --state Empty",
    "--producer-id 2097152 --json",
    "--duration-filter 60000 --transactional-id-pattern 'etl-.*'",
)
def list_transactions(
    session: Session,
    *,
    state: Annotated[tuple[str, ...], Param("Only this state, as Ongoing or EMPTY. May be repeated.", "STATE")] = (),
    producer_id: Annotated[tuple[int, ...], Param("Only this producer id. May be repeated.", "ID", int)] = (),
    duration_filter: Annotated[int | None, Param("Only transactions that have been open for longer.", "MS")] = None,
    transactional_id_pattern: Annotated[str | None, Param("Only ids that this matches as a whole.", "REGEX")] = None,
) -> None:
    """List transactional ids, including those of tasks of jobs. Coordinator is -1: no process is the coordinator.

    A state that does not exist gives a warning, as in Kafka.
    """
    listed = session.store().admin.list_transactions(
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
    session.print_rows(columns, listed, empty="no transactional ids")


@command("transactions describe", "etl-1")
def describe_transaction(session: Session, transactional_id: TransactionalId) -> None:
    """Describe the transactional id ID. Times are by the store's clock; --json prints ms, or -1 for none."""
    columns = Columns(
        ("CoordinatorId", lambda found: _NO_BROKER),
        "TransactionalId ProducerId ProducerEpoch TransactionState TransactionTimeoutMs:duration",
        "CurrentTransactionStartTimeMs=transaction_start_time_ms:time TransactionDurationMs:duration TopicPartitions",
        "Kind LastUpdateTimeMs=last_update_ms:time PreparedTransaction PreparedTimeMs:time PreparedTimeoutMs:duration",
    )
    session.print_facts(columns.of(session.store().admin.describe_transaction(transactional_id)))


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


@command("transactions last-committed", "etl-1")
def last_committed(session: Session, transactional_id: TransactionalId) -> None:
    """Show the last commit of the transactional id ID, and the versions of its applications."""
    session.print_facts(_LAST_COMMITTED.of(session.store().admin.last_committed(transactional_id)))


@command("transactions describe-producers", "payments 0")
def describe_producers(session: Session, topic: str, partition: int) -> None:
    """List the producers that PARTITION of TOPIC knows. A start offset of -1 means that no transaction is open."""
    columns = Columns(
        "ProducerId ProducerEpoch LatestCoordinatorEpoch? LastSequence LastTimestamp:time CurrentTransactionStartOffset"
    )
    found = session.store().admin.describe_producers(topic, partition)
    session.print_rows(columns, found, empty="no producers")


@command("transactions find-hanging", "", "--max-transaction-timeout 5 --topic payments --partition 0")
def find_hanging(
    session: Session,
    *,
    max_transaction_timeout: Annotated[int, Param("Find transactions that are open for longer.", "MINUTES")] = 15,
    topic: Annotated[str | None, Param("Only in this topic.", "TOPIC")] = None,
    partition: Annotated[int | None, Param("Only in this partition of --topic.")] = None,
) -> None:
    """Find transactions that have been open for too long and hold readers back.

    Reason says why a transaction is still open. `transactions abort` ends it. Every coordinator ends it too, once it
    is past its timeout.
    """
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic.")
    found = session.store().admin.find_hanging_transactions(
        max_transaction_timeout_ms=max_transaction_timeout * _MS_A_MINUTE, topic=topic, partition=partition
    )
    columns = Columns(
        "Topic=topic_partition.topic Partition=topic_partition.partition ProducerId? ProducerEpoch?",
        ("CoordinatorEpoch?", lambda each: COORDINATOR_EPOCH),
        "StartOffset LastTimestamp:time? DurationMs:duration TransactionalId Reason:text",
    )
    session.print_rows(columns, found, empty="no hanging transactions")


@command("transactions abort", "etl-1", "--topic payments --partition 0 --start-offset 42")
def abort(
    session: Session,
    transactional_id: Annotated[str | None, Param(metavar="[ID]")] = None,
    *,
    topic: Annotated[str | None, Param("Instead of ID: the topic,", "TOPIC")] = None,
    partition: Annotated[int | None, Param("the partition, and")] = None,
    start_offset: Annotated[int | None, Param("the first offset of the transaction there.")] = None,
) -> None:
    """Abort the open transaction of the transactional id ID, or the one at an offset, and fence its producer."""
    admin = session.store().admin
    if transactional_id is not None and topic is None and partition is None and start_offset is None:
        aborted = admin.abort_transaction(transactional_id)
    elif transactional_id is None and topic is not None and partition is not None and start_offset is not None:
        transactional_id, aborted = admin.abort_transaction_at(topic, partition, start_offset), True
    else:
        raise click.UsageError("Name the transaction by its ID, or by --topic, --partition and --start-offset.")
    _print_end(session, transactional_id, "aborted", aborted)


@command("transactions force-terminate", "payments-to-bank")
def force_terminate(session: Session, transactional_id: TransactionalId) -> None:
    """Abort the open transaction of the transactional id ID even if it is prepared, and fence its producer.

    Another system may already have committed its half of a prepared transaction. Look there first.
    """
    _print_end(
        session, transactional_id, "terminated", session.store().admin.force_terminate_transaction(transactional_id)
    )


def _print_end(session: Session, transactional_id: str, done: str, is_done: bool) -> None:
    text = f"{done} the transaction of {transactional_id}" if is_done else f"nothing was open under {transactional_id}"
    session.print_result(text, {"transactional_id": transactional_id, done: is_done})
