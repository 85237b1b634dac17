"""The verdict bites: each way to break a promise is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import eoslog
from tests.checker import Kind, Operation, Outcome, Poll, Send
from tests.soak.checking import (
    Row,
    contradictions_of,
    damaged,
    illegal_histories,
    lost_keys,
    lost_recent_rows,
    reordered,
    undecided,
    uneven_bank,
    uneven_copies,
    uneven_invoices,
    unkept_acknowledgements,
    unlike_snapshots,
    unstable_rows,
    wrong_fold,
)
from tests.soak.layout import INVOICING, PUBLISHED, Run
from tests.soak.made_up import evidence, row
from tests.soak.observer import Observer
from tests.soak.two_phase_producer import open_database


def transaction(outcome: Outcome, *values: str) -> Operation:
    sends = tuple(Send(f"orders-{number}", value) for number, value in enumerate(values))
    return Operation("eager-1.1", Kind.TXN, outcome, 1, 2, sends)


TWO_ROWS = [row("orders-0", 0, "eager-1/1/1"), row("orders-1", 0, "eager-1/1/2")]


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.INFO])
def test_a_transaction_that_shows_whole_contradicts_nothing(store: eoslog.Store, outcome: Outcome) -> None:
    operations = [transaction(outcome, "eager-1/1/1", "eager-1/1/2")]

    assert list(unkept_acknowledgements(evidence(store, operations, TWO_ROWS))) == []


@pytest.mark.parametrize(
    ("outcome", "rows", "found"),
    [
        (Outcome.OK, [], "shows 0 of 2 rows"),
        (Outcome.OK, TWO_ROWS[:1], "shows 1 of 2 rows"),
        (Outcome.INFO, TWO_ROWS[:1], "shows in part"),
        (Outcome.FAIL, TWO_ROWS, "failed and shows 2 of 2 rows"),
        (Outcome.OK, [*TWO_ROWS, row("orders-0", 9, "eager-1/1/1")], "more than once"),
        (Outcome.OK, [*TWO_ROWS, row("orders-0", 9, "eager-1/1/3")], "nobody wrote eager-1/1/3"),
    ],
)
def test_lost_torn_failed_doubled_and_foreign_rows_are_found(
    store: eoslog.Store, outcome: Outcome, rows: list[Row], found: str
) -> None:
    operations = [transaction(outcome, "eager-1/1/1", "eager-1/1/2")]

    (contradiction,) = unkept_acknowledgements(evidence(store, operations, rows))

    assert found in contradiction


def test_a_row_at_another_offset_than_was_acknowledged_is_found(store: eoslog.Store) -> None:
    sends = (Send("orders-0", "idempotent-1/1/1", 7),)
    operations = [Operation("idempotent-1.1", Kind.SEND, Outcome.OK, 1, 2, sends)]

    (contradiction,) = unkept_acknowledgements(evidence(store, operations, [row("orders-0", 8, "idempotent-1/1/1")]))

    assert "acknowledged at orders-0:7 and is at [8]" in contradiction


def test_rows_of_one_producer_in_another_order_are_found(store: eoslog.Store) -> None:
    rows = [row("orders-0", 0, "eager-1/1/2"), row("orders-0", 1, "eager-1/1/1")]

    (contradiction,) = reordered(evidence(store, [], rows))

    assert contradiction == "orders-0:1 has eager-1/1/1 behind eager-1/1/2"


def test_a_row_that_was_shown_and_is_gone_or_another_is_found(store: eoslog.Store) -> None:
    poll = Poll({"orders-0": [(0, "eager-1/1/1"), (1, "eager-1/1/2")]})
    operations = [Operation("assigned-1.1", Kind.POLL, Outcome.OK, 1, 2, (poll,))]

    contradictions = list(unstable_rows(evidence(store, operations, [row("orders-0", 0, "eager-1/1/9")])))

    assert len(contradictions) == 2


def test_rows_that_only_one_of_two_systems_has_are_found(store: eoslog.Store, tmp_path: Path) -> None:
    run = Run(tmp_path, "", 0)
    with open_database(run) as database:
        database.execute("INSERT INTO rows VALUES ('bank-0', 'bank-1/1/1')")
    database.close()

    contradictions = list(uneven_bank(evidence(store, [], [row("bank-0", 0, "bank-1/1/2")], tmp_path)))

    assert contradictions == ["bank lacks bank-0 bank-1/1/1", "bank has one bank-0 bank-1/1/2 too many"]


def test_a_state_unlike_the_fold_of_the_log_is_found(store: eoslog.Store) -> None:
    observer = Observer(store)
    observer.follow()
    assert list(wrong_fold(evidence(store, [], [], observer=observer))) == []

    observer.state.groups.clear()
    observer.state.topics.clear()

    (contradiction,) = wrong_fold(evidence(store, [], [], observer=observer))
    assert "is not that of the whole log" in contradiction


def test_a_transaction_that_nobody_decided_is_found(store: eoslog.Store) -> None:
    with store.producer("eager-1") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"eager-1/1/1", partition=2)
        producer.flush()

        contradictions = list(undecided(evidence(store, [], [])))

    (contradiction,) = contradictions
    assert contradiction.startswith("orders-2: the last stable offset stays behind")


def test_a_missing_and_a_doubled_invoice_are_found(store: eoslog.Store) -> None:
    with store.producer("transformer-1") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for number in (1, 2, 3):
            producer.send("orders", f"eager-1/1/{number}".encode(), partition=0)
        position = {eoslog.TopicPartition("orders", 0): 2}
        producer.send_offsets_to_transaction(position, INVOICING)
        producer.commit_transaction()
    orders = [row("orders-0", offset, f"eager-1/1/{offset + 1}") for offset in range(3)]
    first, second = (f"transformer-1/1/{number}|eager-1/1/{number}" for number in (1, 2))
    exact = [*orders, row("invoices-0", 0, first), row("invoices-0", 1, second)]
    wrong = [*orders, row("invoices-0", 0, first), row("invoices-1", 0, first)]

    assert list(uneven_invoices(evidence(store, [], exact))) == []
    assert list(uneven_invoices(evidence(store, [], wrong))) == [
        "invoices lacks eager-1/1/2",
        "invoices has one eager-1/1/1 too many",
    ]


def committed_micro_batch(folder: Path, sink: str, source: str, end: int) -> None:
    """What Spark leaves in a checkpoint: the offsets of a micro-batch, and that it is committed."""
    for name in ("offsets", "commits"):
        (folder / "checkpoints" / sink / name).mkdir(parents=True)
    topics = {"topics": {source: {"topic_id": "an id", "0": end}}}
    (folder / "checkpoints" / sink / "offsets" / "0").write_text("v1\n{}\n" + json.dumps(topics))
    (folder / "checkpoints" / sink / "commits" / "0").write_text("v1\n{}")


def test_a_sink_that_is_not_its_source_below_the_checkpoint_is_found(store: eoslog.Store, tmp_path: Path) -> None:
    committed_micro_batch(tmp_path, "copies", "orders", 2)
    orders = [row("orders-0", offset, f"eager-1/1/{offset + 1}") for offset in range(3)]
    exact = [*orders, row("copies-0", 0, "eager-1/1/1"), row("copies-1", 0, "eager-1/1/2")]
    wrong = [*orders, row("copies-0", 0, "eager-1/1/1"), row("copies-1", 0, "eager-1/1/3")]

    assert list(uneven_copies(evidence(store, [], exact, tmp_path, has_streams=True))) == []
    assert list(uneven_copies(evidence(store, [], wrong, tmp_path, has_streams=True))) == [
        "copies lacks eager-1/1/2",
        "copies has one eager-1/1/3 too many",
    ]


def test_a_row_of_a_sink_without_a_source_is_of_nobody(store: eoslog.Store) -> None:
    shown = Poll({"copies-0": [(0, "eager-1/1/1"), (1, "of nobody")]})
    operations = [transaction(Outcome.OK, "eager-1/1/1"), Operation("r.1", Kind.POLL, Outcome.OK, 3, 4, (shown,))]
    rows = [TWO_ROWS[0], row("copies-0", 0, "eager-1/1/1"), row("copies-0", 1, "of nobody")]

    found = list(illegal_histories(evidence(store, operations, rows, has_streams=True)))

    assert [each for each in found if "unwritten-read" in each] == found
    assert {"of nobody" in each for each in found} == {True}


def test_without_streams_nothing_is_said_of_their_sinks(store: eoslog.Store, tmp_path: Path) -> None:
    about = "the sinks of streams are their sources below the checkpoints"
    open_database(Run(tmp_path, "", 0)).close()

    assert about not in contradictions_of(evidence(store, [], [], tmp_path))
    assert about in contradictions_of(evidence(store, [], [], tmp_path, has_streams=True))


@pytest.mark.parametrize(("shown", "count"), [("1/9", 0), ("2/3", 0), ("1/8", 1), (None, 1)])
def test_a_key_without_its_newest_acknowledged_row_is_found(store: eoslog.Store, shown: str | None, count: int) -> None:
    key = "idempotent-1-0-4"
    operations = [
        Operation("idempotent-1.1", Kind.SEND, Outcome.OK, 1, 2, (Send("newest-0", f"idempotent-1/1/{each}@{key}"),))
        for each in (8, 9)
    ]
    rows = [row("newest-0", 5, f"idempotent-1/{shown}@{key}")] if shown is not None else []

    assert len(list(lost_keys(evidence(store, operations, rows)))) == count


def test_recent_rows_that_are_lost_or_should_not_be_there_are_found(store: eoslog.Store) -> None:
    operations = [
        Operation("idempotent-1.1", Kind.SEND, Outcome.OK, 1, 2, (Send("recent-0", "idempotent-1/1/1", 0),)),
        Operation("idempotent-1.1", Kind.SEND, Outcome.FAIL, 3, 4, (Send("recent-0", "idempotent-1/1/2"),)),
    ]

    assert list(lost_recent_rows(evidence(store, operations, [row("recent-0", 0, "idempotent-1/1/1")]))) == []
    lost, risen = lost_recent_rows(evidence(store, operations, [row("recent-0", 0, "idempotent-1/1/2")]))
    assert "was acknowledged at recent-0:0 and is not there" in lost
    assert "failed and shows idempotent-1/1/2" in risen


@pytest.mark.usefixtures("files_are_objects")
def test_a_data_file_that_is_gone_is_found(store: eoslog.Store) -> None:
    with store.producer() as producer:
        producer.send("orders", b"idempotent-1/1/1", partition=0)
        producer.flush()
    assert list(damaged(evidence(store, [], []))) == []

    (path,) = [each.path for each in store.object_store.list("orders/") if each.path.endswith(".parquet")]
    store.object_store.delete([path])

    assert any(path in each for each in damaged(evidence(store, [], [])))


def published_order(store: eoslog.Store) -> None:
    for number in (1, 2):
        with store.producer() as producer:
            producer.send("orders", f"idempotent-1/1/{number}".encode(), partition=0)
        for topic in PUBLISHED:
            store.admin.publish(topic)


def test_tables_with_the_rows_of_the_snapshots_contradict_nothing(store: eoslog.Store) -> None:
    published_order(store)

    assert list(unlike_snapshots(evidence(store, [], []))) == []


def test_a_topic_without_its_table_is_found(store: eoslog.Store) -> None:
    found = list(unlike_snapshots(evidence(store, [], [])))

    assert found == [f"{topic} has no {each} table" for topic in PUBLISHED for each in ("Delta", "Iceberg")]


def test_a_version_that_lacks_a_row_is_found(store: eoslog.Store) -> None:
    published_order(store)
    path = f"orders/_delta_log/{1:020d}.json"
    lines = store.object_store.get(path).body.splitlines(keepends=True)
    store.object_store.put(path, b"".join(line for line in lines if not line.startswith(b'{"add"')))

    (contradiction,) = unlike_snapshots(evidence(store, [], []))

    assert contradiction.startswith("Delta version 1 of orders has 1 rows, the snapshot at slot")
    assert "2: None for (0, 1, " in contradiction


def test_an_iceberg_version_that_shows_another_snapshot_is_found(store: eoslog.Store) -> None:
    published_order(store)
    directory = "__iceberg/orders/metadata"
    newest = json.loads(store.object_store.get(f"{directory}/v2.metadata.json").body)
    newest["current-snapshot-id"] = newest["snapshots"][0]["snapshot-id"]
    newest["snapshots"][0]["summary"]["eoslog.slot"] = newest["snapshots"][1]["summary"]["eoslog.slot"]
    store.object_store.put(f"{directory}/v2.metadata.json", json.dumps(newest).encode())

    (contradiction,) = unlike_snapshots(evidence(store, [], []))

    assert contradiction.startswith("Iceberg version 2 of orders has 1 rows, the snapshot at slot")
    assert "2: None for (0, 1, " in contradiction
