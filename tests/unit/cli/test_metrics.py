"""``metrics``: what it prints."""

from __future__ import annotations

from dataclasses import fields

import eoslog
from tests.unit.cli.command import Command
from tests.unit.support.transactions import open_transaction


def test_metrics_are_told_as_json_and_as_text(command: Command, store: eoslog.Store) -> None:
    store.admin.create_topic("quiet")
    producer = open_transaction(store, "etl-1")
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
    assert found["end_offsets"] == [
        {"topic": "quiet", "partition": 0, "end_offset": 0},
        {"topic": "t", "partition": 0, "end_offset": 1},
    ]
    assert [each["topic"] for each in found["topics"]] == ["t", "quiet"]
    assert found["topics"][0]["topic_bytes"] == store.metrics().topic_bytes["t"] > 0
    assert "PartitionsWithLateTransactionsCount  0" in text
    assert "TransactionsByState                  ONGOING 1" in text
    assert ["t", "0", "1"] in [line.split() for line in text.splitlines()]
    assert ["quiet", "0", "0"] in [line.split() for line in text.splitlines()]


def test_metrics_as_json_have_every_value_that_the_store_has(command: Command, store: eoslog.Store) -> None:
    found = command.json("metrics")

    of_this_process = {"requests", "appends", "call_times_ns"}
    by_topic = {"topic_bytes", "rows_in", "bytes_in", "rows_out", "bytes_out"}
    names = {field.name for field in fields(store.metrics())} - of_this_process
    renamed = {"publication_lag_ms": "publications"}
    assert {renamed.get(name, name) for name in names - by_topic} <= found.keys()
    assert by_topic <= found["topics"][0].keys()
    assert {(each["outcome"], each["reason"]) for each in found["transactions_ended"]} >= {
        ("commit", "client"),
        ("abort", "fence"),
    }
