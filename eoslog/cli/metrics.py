"""``eoslog metrics``: numbers to watch, by Kafka's names."""

from __future__ import annotations

import click

from eoslog.cli import output
from eoslog.cli.context import Session, global_options, pass_session


@click.command()
@global_options
@pass_session
def metrics(session: Session) -> None:
    """Show what to watch: late and open transactions, what they hold back, producers, the length of the log.

    Partitions whose last stable offset lags behind their end are listed; with --json all are.

    \b
    Examples:
      eoslog --store my-store metrics
      eoslog --store my-store metrics --json
    """
    found = session.store().metrics()
    facts = {
        "Slot": found.slot,
        "SlotsSinceCheckpoint": found.slots_since_checkpoint,
        "PartitionsWithLateTransactionsCount": found.partitions_with_late_transactions_count,
        "ProducerIdCount": found.producer_id_count,
        "PreparedTransactions": found.prepared_transactions,
        "LongestOpenTransactionMs": found.longest_open_transaction_ms,
    }
    columns = ("Topic", "Partition", "LastStableOffsetLag")
    rows = [(*place, lag) for place, lag in found.last_stable_offset_lag.items()]
    if session.as_json:
        by_partition = [output.named(columns, row) for row in rows]
        by_state = dict(found.transactions_by_state)
        output.print_json(
            output.named(facts.keys(), facts.values())
            | {"transactions_by_state": by_state, "last_stable_offset_lag": by_partition}
        )
        return
    states = [f"{name} {count}" for name, count in found.transactions_by_state.items()]
    output.print_facts(facts | {"TransactionsByState": states})
    behind = [row for row in rows if row[2] > 0]
    if behind:
        output.print_line("")
        output.print_table(columns, behind)
