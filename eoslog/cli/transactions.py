"""``eoslog transactions``: list, describe, abort, and what holds readers back (``kafka-transactions.sh``)."""

from __future__ import annotations

import click

from eoslog.cli.context import Session, global_options, pass_session
from eoslog.client.transaction_descriptions import COORDINATOR_EPOCH
from eoslog.rules.state import TransactionState

_MS_A_MINUTE = 60_000
_COORDINATOR = -1
"""Kafka's number for no broker: the log decides, and whoever appends to it coordinates."""


@click.group()
def transactions() -> None:
    """List, describe and abort transactions."""


@transactions.command("list")
@click.option(
    "--state", "states", multiple=True, metavar="STATE", help="Only those in this state, as Ongoing or COMPLETE_COMMIT."
)
@click.option(
    "--producer-id", "producer_ids", multiple=True, type=int, metavar="ID", help="Only that with this producer id."
)
@click.option(
    "--duration-filter",
    type=click.IntRange(min=0),
    metavar="MS",
    help="Only those whose transaction has been open for longer.",
)
@click.option(
    "--transactional-id-pattern",
    metavar="REGEX",
    help="Only those that this regular expression matches from end to end.",
)
@global_options
@pass_session
def list_transactions(
    session: Session,
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    duration_filter: int | None,
    transactional_id_pattern: str | None,
) -> None:
    """List transactional ids, those of jobs' tasks among them. Coordinator is -1: no process holds that office.

    A state that does not exist is passed over with a warning, as in Kafka.

    \b
    Examples:
      eoslog --store my-store transactions list
      eoslog --store my-store transactions list --state Ongoing --state Empty
      eoslog --store my-store transactions list --producer-id 2097152 --json
      eoslog --store my-store transactions list --duration-filter 60000 --transactional-id-pattern 'etl-.*'
    """
    listed = session.store().admin.list_transactions(
        states=states or None,
        producer_ids=producer_ids or None,
        running_longer_than_ms=duration_filter,
        transactional_id_pattern=transactional_id_pattern,
    )
    for name in listed.unknown_states:
        known = ", ".join(state.name for state in TransactionState)
        click.secho(f"no transaction state is named {name!r}; the states are: {known}", fg="yellow", err=True)
    session.print_rows(
        ("TransactionalId", "Coordinator", "ProducerId", "TransactionState", "PreparedTransaction"),
        [
            (each.transactional_id, _COORDINATOR, each.producer_id, each.transaction_state, each.prepared_transaction)
            for each in listed
        ],
        empty="no transactional ids",
    )


@transactions.command("describe")
@click.argument("transactional_id", metavar="ID")
@global_options
@pass_session
def describe(session: Session, transactional_id: str) -> None:
    """Describe the transactional id ID. Times are ms by the store's clock, -1 outside of a transaction.

    \b
    Example:
      eoslog --store my-store transactions describe etl-1
    """
    found = session.store().admin.describe_transaction(transactional_id)
    session.print_facts(
        {
            "CoordinatorId": _COORDINATOR,
            "TransactionalId": found.transactional_id,
            "ProducerId": found.producer_id,
            "ProducerEpoch": found.producer_epoch,
            "TransactionState": found.transaction_state,
            "TransactionTimeoutMs": found.transaction_timeout_ms,
            "CurrentTransactionStartTimeMs": found.transaction_start_time_ms,
            "TransactionDurationMs": found.transaction_duration_ms,
            "TopicPartitions": [f"{place.topic}-{place.partition}" for place in found.topic_partitions],
            "Kind": found.kind,
            "LastUpdateTimeMs": found.last_update_ms,
            "PreparedTransaction": found.prepared_transaction,
            "PreparedTimeMs": found.prepared_time_ms,
            "PreparedTimeoutMs": found.prepared_timeout_ms,
        }
    )


@transactions.command("last-committed")
@click.argument("transactional_id", metavar="ID")
@global_options
@pass_session
def last_committed(session: Session, transactional_id: str) -> None:
    """Show what the transactional id ID committed last, and the versions of its applications.

    \b
    Example:
      eoslog --store my-store transactions last-committed etl-1
    """
    found = session.store().admin.last_committed(transactional_id)
    session.print_facts(
        {
            "TransactionalId": found.transactional_id,
            "Slot": found.slot,
            "CommitTimeMs": found.timestamp,
            "ProducerId": found.producer_id,
            "ProducerEpoch": found.producer_epoch,
            "ApplicationId": found.application_id,
            "Version": found.version,
            "Rows": [f"{topic}: {rows}" for topic, rows in found.rows.items()],
            "Offsets": [
                f"{group}: {place.topic}-{place.partition}: {position.offset}"
                for group, offsets in found.offsets.items()
                for place, position in offsets.items()
            ],
            "Versions": [
                f"{each.application_id} {each.sink}: {each.version}"
                + (f" of query {each.query_id}" if each.query_id is not None else "")
                for each in found.versions
            ],
        }
    )


@transactions.command("describe-producers")
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@global_options
@pass_session
def describe_producers(session: Session, topic: str, partition: int) -> None:
    """List the producers that PARTITION of TOPIC knows. A start offset of -1: no transaction is open there.

    \b
    Example:
      eoslog --store my-store transactions describe-producers payments 0
    """
    session.print_rows(
        (
            "ProducerId",
            "ProducerEpoch",
            "LatestCoordinatorEpoch",
            "LastSequence",
            "LastTimestamp",
            "CurrentTransactionStartOffset",
        ),
        [
            (
                each.producer_id,
                each.producer_epoch,
                each.latest_coordinator_epoch,
                each.last_sequence,
                each.last_timestamp,
                each.current_transaction_start_offset,
            )
            for each in session.store().admin.describe_producers(topic, partition)
        ],
        empty="no producers",
    )


@transactions.command("find-hanging")
@click.option(
    "--max-transaction-timeout",
    type=click.IntRange(min=0),
    default=15,
    show_default=True,
    metavar="MINUTES",
    help="A transaction that is open for longer is hanging.",
)
@click.option("--topic", metavar="TOPIC", help="Only in this topic.")
@click.option("--partition", type=click.IntRange(min=0), help="Only in this partition of --topic.")
@global_options
@pass_session
def find_hanging(session: Session, max_transaction_timeout: int, topic: str | None, partition: int | None) -> None:
    """Find transactions that have been open for too long and hold readers back.

    Reason says why each is still open. `transactions abort` ends it; so does every coordinator, when it is past its
    time-out.

    \b
    Examples:
      eoslog --store my-store transactions find-hanging
      eoslog --store my-store transactions find-hanging --max-transaction-timeout 5 --topic payments --partition 0
    """
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic")
    found = session.store().admin.find_hanging_transactions(
        max_transaction_timeout_ms=max_transaction_timeout * _MS_A_MINUTE, topic=topic, partition=partition
    )
    session.print_rows(
        (
            "Topic",
            "Partition",
            "ProducerId",
            "ProducerEpoch",
            "CoordinatorEpoch",
            "StartOffset",
            "LastTimestamp",
            "DurationMs",
            "TransactionalId",
            "Reason",
        ),
        [
            (
                *each.topic_partition,
                each.producer_id,
                each.producer_epoch,
                COORDINATOR_EPOCH,
                each.start_offset,
                each.last_timestamp,
                each.duration_ms,
                each.transactional_id,
                each.reason,
            )
            for each in found
        ],
        empty="no hanging transactions",
    )


@transactions.command("abort")
@click.argument("transactional_id", metavar="[ID]", required=False)
@click.option("--topic", metavar="TOPIC", help="In place of ID: the topic,")
@click.option("--partition", type=click.IntRange(min=0), help="the partition, and")
@click.option("--start-offset", type=click.IntRange(min=0), help="the offset at which the transaction begins there.")
@global_options
@pass_session
def abort(
    session: Session, transactional_id: str | None, topic: str | None, partition: int | None, start_offset: int | None
) -> None:
    """Abort what is open under the transactional id ID, or what begins at an offset, and fence its producer.

    \b
    Examples:
      eoslog --store my-store transactions abort etl-1
      eoslog --store my-store transactions abort --topic payments --partition 0 --start-offset 42
    """
    admin = session.store().admin
    if transactional_id is not None and topic is None and partition is None and start_offset is None:
        aborted = admin.abort_transaction(transactional_id)
    elif transactional_id is None and topic is not None and partition is not None and start_offset is not None:
        transactional_id, aborted = admin.abort_transaction_at(topic, partition, start_offset), True
    else:
        raise click.UsageError("name the transaction by its ID, or by --topic, --partition and --start-offset")
    session.print_result(
        f"aborted the transaction of {transactional_id}" if aborted else f"nothing was open under {transactional_id}",
        {"transactional_id": transactional_id, "aborted": aborted},
    )


@transactions.command("force-terminate")
@click.argument("transactional_id", metavar="ID")
@global_options
@pass_session
def force_terminate(session: Session, transactional_id: str) -> None:
    """Abort what is open under the transactional id ID even if it is prepared, and fence its producer.

    Whoever prepared it may have decided to commit, and another system may hold its half already: look there first.

    \b
    Example:
      eoslog --store my-store transactions force-terminate payments-to-bank
    """
    terminated = session.store().admin.force_terminate_transaction(transactional_id)
    session.print_result(
        f"terminated the transaction of {transactional_id}"
        if terminated
        else f"nothing was open under {transactional_id}",
        {"transactional_id": transactional_id, "terminated": terminated},
    )
