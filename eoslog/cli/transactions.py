"""``eoslog transactions``: list, describe, abort, and what holds readers back (``kafka-transactions.sh``)."""

from __future__ import annotations

import click

from eoslog.cli.context import Session, global_options, pass_session

_MS_A_MINUTE = 60_000


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
@global_options
@pass_session
def list_transactions(session: Session, states: tuple[str, ...], producer_ids: tuple[int, ...]) -> None:
    """List transactional ids, those of jobs' tasks among them.

    \b
    Examples:
      eoslog --store my-store transactions list
      eoslog --store my-store transactions list --state Ongoing --state Empty
      eoslog --store my-store transactions list --producer-id 2097152 --json
    """
    listed = session.store().admin.list_transactions(states=states or None, producer_ids=producer_ids or None)
    session.print_rows(("TransactionalId", "ProducerId", "TransactionState"), listed, empty="no transactional ids")


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
            "TransactionalId": found.transactional_id,
            "Kind": found.kind,
            "ProducerId": found.producer_id,
            "ProducerEpoch": found.producer_epoch,
            "TransactionState": found.transaction_state,
            "TransactionTimeoutMs": found.transaction_timeout_ms,
            "CurrentTransactionStartTimeMs": found.transaction_start_time_ms,
            "TransactionDurationMs": found.transaction_duration_ms,
            "TopicPartitions": [f"{place.topic}-{place.partition}" for place in found.topic_partitions],
            "LastUpdateTimeMs": found.last_update_ms,
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
        ("ProducerId", "ProducerEpoch", "LastSequence", "LastTimestamp", "CurrentTransactionStartOffset"),
        session.store().admin.describe_producers(topic, partition),
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
@global_options
@pass_session
def find_hanging(session: Session, max_transaction_timeout: int) -> None:
    """Find transactions that have been open for too long and hold readers back.

    \b
    Example:
      eoslog --store my-store transactions find-hanging --max-transaction-timeout 5
    """
    found = session.store().admin.find_hanging_transactions(
        max_transaction_timeout_ms=max_transaction_timeout * _MS_A_MINUTE
    )
    session.print_rows(
        ("Topic", "Partition", "TransactionalId", "ProducerId", "StartOffset", "DurationMs"),
        [
            (*each.topic_partition, each.transactional_id, each.producer_id, each.start_offset, each.duration_ms)
            for each in found
        ],
        empty="no hanging transactions",
    )


@transactions.command("abort")
@click.argument("transactional_id", metavar="ID")
@global_options
@pass_session
def abort(session: Session, transactional_id: str) -> None:
    """Abort what is open under the transactional id ID, and fence its producer.

    \b
    Example:
      eoslog --store my-store transactions abort etl-1
    """
    aborted = session.store().admin.abort_transaction(transactional_id)
    session.print_result(
        f"aborted the transaction of {transactional_id}" if aborted else f"nothing was open under {transactional_id}",
        {"transactional_id": transactional_id, "aborted": aborted},
    )
