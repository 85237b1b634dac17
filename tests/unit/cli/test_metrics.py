"""``metrics``: what it prints."""

from __future__ import annotations

import eoslog
from tests.unit.cli.command import Command


def test_metrics_are_told_as_json_and_as_text(command: Command, store: eoslog.Store) -> None:
    store.admin.create_topic("quiet")
    producer = store.producer("etl-1")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"open")
    producer.flush()

    found = command.json("metrics")
    text = command.ok("metrics")

    assert found["transactions_by_state"] == {"ONGOING": 1}
    assert found["partitions_with_late_transactions_count"] == 0
    assert found["producer_id_count"] == 1
    assert found["last_stable_offset_lag"] == [
        {"topic": "quiet", "partition": 0, "last_stable_offset_lag": 0},
        {"topic": "t", "partition": 0, "last_stable_offset_lag": 1},
    ]
    assert "PartitionsWithLateTransactionsCount  0" in text
    assert "TransactionsByState                  ONGOING 1" in text
    assert "quiet" not in text
    assert text.splitlines()[-1].split() == ["t", "0", "1"]
