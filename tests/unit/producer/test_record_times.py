"""The times of Kafka records: writers refuse what readers cannot show, and readers show every other row."""

from __future__ import annotations

import datetime
import time
from typing import Any

import pyarrow as pa
import pytest

from eoslog.errors import SchemaMismatch
from eoslog.format.record_times import GREATEST_MS, LEAST_MS
from eoslog.producer import rows
from eoslog.producer.rows import rows_by_partition, rows_to_write
from eoslog.session.session import find_topic
from eoslog.store import Store
from tests.unit.support.reading import T0, assigned, transaction

NOW_MS = 1_767_225_600_000
BEYOND = {
    "after the year 9999": GREATEST_MS + 1,
    "microseconds": NOW_MS * 1000,
    "nanoseconds": NOW_MS * 1_000_000,
    "2**62": 2**62,
    "2**63 - 1": 2**63 - 1,
}
BEFORE = {"before the year 1": LEAST_MS - 1, "-2**63": -(2**63)}
LAST = datetime.datetime(9999, 12, 31, 23, 59, 59, 999000, datetime.UTC)
FIRST = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)


def table(*times: int) -> pa.Table:
    column = pa.array(times, pa.timestamp("ms", "UTC"))
    return pa.table({"value": [b"%d" % number for number in range(len(times))], "timestamp": column})


def store_with(store: Store, monkeypatch: pytest.MonkeyPatch, *times: int) -> None:
    """Write records as an earlier version did, which took every time."""
    with monkeypatch.context() as earlier, store.producer() as producer:
        earlier.setattr(rows, "unstorable", lambda times: None)
        for each in times:
            producer.send_table("t", table(each).append_column("partition", pa.array([0])))
            producer.flush()


@pytest.mark.parametrize("wrong", [*BEYOND.values(), *BEFORE.values(), -1, 2**64], ids=str)
def test_send_refuses_a_time_that_is_not_in_milliseconds(store: Store, wrong: int) -> None:
    producer = store.producer()

    with pytest.raises(SchemaMismatch, match=rf"topic t: timestamp must be milliseconds.*not {wrong}.*{GREATEST_MS}"):
        producer.send("t", b"v", timestamp=wrong)


@pytest.mark.parametrize("wrong", [*BEYOND.values(), *BEFORE.values()], ids=str)
def test_send_table_refuses_such_a_time_among_others(store: Store, wrong: int) -> None:
    producer = store.producer()

    with pytest.raises(SchemaMismatch, match=rf"topic t: column 'timestamp': {wrong} ms .*years 1 to 9999"):
        producer.send_table("t", table(NOW_MS, wrong, NOW_MS))

    producer.flush()
    assert store.scan("t").record_count == 0


@pytest.mark.parametrize(("unit", "wrong"), [("s", 2**62), ("s", -(2**62)), ("us", 2**62), ("ms", 2**62)])
def test_rows_of_spark_and_of_files_are_refused_too(store: Store, unit: Any, wrong: int) -> None:
    topic = find_topic(store, "t")
    given = pa.table({"value": [b"v"], "timestamp": pa.array([wrong], pa.timestamp(unit, "UTC"))})

    with pytest.raises(SchemaMismatch, match=r"column 'timestamp'.* years 1 to 9999"):
        list(rows_by_partition(topic, rows_to_write(topic, given, NOW_MS), 0))


def test_the_first_and_the_last_time_are_kept(store: Store) -> None:
    with store.producer() as producer:
        producer.send("t", b"last", partition=0, timestamp=GREATEST_MS)
        producer.send_table("t", table(LEAST_MS).append_column("partition", pa.array([0])))

    assert [record.timestamp for record in assigned(store, T0).poll(1)] == [GREATEST_MS, LEAST_MS]
    assert store.scan("t").to_table()["timestamp"].to_pylist() == [LAST, FIRST]


@pytest.mark.parametrize("wrong", [*BEYOND.values(), *BEFORE.values()], ids=str)
def test_a_stored_time_beyond_the_range_hides_no_other_row(
    store: Store, monkeypatch: pytest.MonkeyPatch, wrong: int
) -> None:
    store_with(store, monkeypatch, NOW_MS, wrong, NOW_MS + 1)
    shown = LAST if wrong > 0 else FIRST

    found = store.scan("t").to_table()
    times = [each if each == shown else round(each.timestamp() * 1000) for each in found["timestamp"].to_pylist()]

    assert times == [NOW_MS, shown, NOW_MS + 1]
    assert [record.timestamp for record in assigned(store, T0).poll(1)] == [NOW_MS, wrong, NOW_MS + 1]
    assert store.scan("t", columns=["timestamp"]).to_table()["timestamp"].to_pylist()[1] == shown


def test_control_rows_beside_such_a_time_are_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store_with(store, monkeypatch, 2**62)
    transaction(store, "commit", b"v")

    found = store.scan("t", partitions=[0], include_control_rows=True).to_table()

    assert found["_control"].to_pylist() == [None, None, "COMMIT"]
    assert found["timestamp"].to_pylist()[0] == LAST


@pytest.mark.parametrize(
    ("condition", "offsets"),
    [
        ("timestamp >= '9999-12-31T00:00:00Z'", [1]),
        ("timestamp <= '9999-12-31T23:59:59.999Z'", [0, 1, 2]),
        ("timestamp < '9999-12-31T00:00:00Z'", [0, 2]),
        ("timestamp > '9999-12-31T23:59:59.999Z'", []),
    ],
)
def test_conditions_see_the_time_that_readers_show(
    store: Store, monkeypatch: pytest.MonkeyPatch, condition: str, offsets: list[int]
) -> None:
    store_with(store, monkeypatch, NOW_MS, 2**62, NOW_MS + 1)

    assert store.scan("t", predicate=condition).to_table()["offset"].to_pylist() == offsets


def test_lookup_by_time_finds_the_number_as_it_is_stored(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store_with(store, monkeypatch, NOW_MS, 2**62)
    consumer = store.consumer()

    assert consumer.offsets_for_times({T0: NOW_MS + 1})[T0] == (1, 2**62)
    assert consumer.offsets_for_times({T0: time.time_ns()})[T0] == (1, 2**62)
    assert consumer.offsets_for_times({T0: 2**62 + 1})[T0] is None
