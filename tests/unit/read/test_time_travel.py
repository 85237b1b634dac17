"""Reading as of a slot or a time: one consistent cut through the log, computed from any later state."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog import InvalidOption, OffsetOutOfRange, Store
from eoslog.read.time_travel import iso_time
from eoslog.state.draft import AppendEntry
from eoslog.state.entries import LogStartMoved
from tests.depth import examples
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import World


def write(store: Store, value: bytes) -> None:
    """One transaction with a row in each partition."""
    producer = open_transaction(store, "tx")
    for partition in (0, 1):
        producer.send("t", value, partition=partition)
    producer.commit_transaction()


def values(store: Store, **options: Any) -> list[bytes]:
    found: list[bytes] = store.scan("t", columns=["value"], **options).to_table()["value"].to_pylist()
    return sorted(found)


def at(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)


def test_a_snapshot_as_of_a_time_shows_transactions_ended_by_then(store: Store, world: World) -> None:
    write(store, b"1")
    first = world.time_ms
    world.pass_time(1000)
    write(store, b"2")

    assert values(store, timestamp=first) == values(store, timestamp=at(first)) == [b"1", b"1"]
    assert values(store, timestamp=first + 999) == [b"1", b"1"]
    assert values(store, timestamp=first + 1000) == [b"1", b"1", b"2", b"2"]


def test_the_zone_of_a_time_does_not_matter(store: Store, world: World) -> None:
    write(store, b"1")
    world.pass_time(1000)
    write(store, b"2")
    elsewhere = at(world.time_ms - 1).astimezone(timezone(timedelta(hours=-7)))

    assert values(store, timestamp=elsewhere) == [b"1", b"1"]


def test_a_time_may_be_a_text_as_in_sparks_option(store: Store, world: World) -> None:
    write(store, b"1")
    first = at(world.time_ms).isoformat()
    world.pass_time(1000)
    write(store, b"2")

    assert values(store, timestamp=first) == [b"1", b"1"]


def test_a_snapshot_before_the_topics_creation_is_refused(world: World) -> None:
    store = world.process()
    store.admin.create_topic("earlier")
    before_slot, before = store.read(lambda state, slot: slot), world.time_ms
    world.pass_time(1000)
    topic = store.admin.create_topic("t", partitions=2)
    created = (
        f"topic t did not exist at {{}}. It was created at slot {topic.created_slot}, at {iso_time(world.time_ms)}"
    )

    with pytest.raises(OffsetOutOfRange, match=re.escape(created.format(f"slot {before_slot}"))):
        store.scan("t", slot=before_slot)
    with pytest.raises(OffsetOutOfRange, match=re.escape(created.format(iso_time(before)))):
        store.scan("t", timestamp=before)
    assert values(store, slot=topic.created_slot) == values(store, timestamp=world.time_ms) == []


def test_a_time_ahead_of_the_log_pins_its_newest_slot(store: Store, world: World) -> None:
    write(store, b"1")
    world.pass_time(1000)

    scan = store.scan("t", columns=["value"], timestamp=world.time_ms)
    write(store, b"2")

    assert scan.record_count == scan.to_table().num_rows == 2
    assert values(store, timestamp=world.time_ms) == [b"1", b"1", b"2", b"2"]


@pytest.mark.parametrize(
    ("timestamp", "message"),
    [
        (datetime(2020, 1, 1), "has no time zone"),
        ("2020-01-01T00:00:00", "has no time zone"),
        ("yesterday", "is not a point in time"),
        (1.5, "is not a point in time"),
        (True, "is not a point in time"),
        (-1, "lies before 1970"),
    ],
)
def test_a_timestamp_that_is_no_point_in_time_is_refused(store: Store, timestamp: Any, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        store.scan("t", timestamp=timestamp)


def test_the_future_is_refused_by_the_stores_clock(store: Store, world: World) -> None:
    assert values(store, timestamp=world.time_ms) == []
    newest, newest_ms = store.read(lambda state, slot: (slot, state.time_ms))
    world.pass_time(1000)
    future = "timestamp 2099-01-31T12:00:00Z lies in the future."
    message = f"{future} The newest commit is slot {newest}, of {iso_time(newest_ms)}"
    with pytest.raises(InvalidOption, match=re.escape(message)):
        store.scan("t", timestamp="2099-01-31T13:00:00+01:00")
    with pytest.raises(InvalidOption, match="lies in the future"):
        store.scan("t", timestamp=world.time_ms + 1)


def test_a_slot_and_a_time_exclude_each_other_and_other_isolation_levels(store: Store, world: World) -> None:
    with pytest.raises(InvalidOption, match="not both"):
        store.scan("t", slot=0, timestamp=world.time_ms)
    with pytest.raises(InvalidOption, match="'snapshot' only"):
        store.scan("t", timestamp=world.time_ms, isolation_level="read_committed")
    with pytest.raises(InvalidOption, match="holds slots 0 to"):
        store.scan("t", slot=99)


def test_a_time_or_slot_below_the_snapshot_floor_is_out_of_range(store: Store, world: World) -> None:
    write(store, b"1")
    world.pass_time(1000)
    write(store, b"2")
    floor_ms = world.time_ms
    topic_id = store.admin.describe_topic("t").topic_id
    store.append(AppendEntry(LogStartMoved(topic_id=topic_id, partition=0, offset=2, reason="delete_records")))
    floor = store.read(lambda state, slot: slot)
    world.pass_time(1000)
    write(store, b"3")

    with pytest.raises(OffsetOutOfRange, match=re.escape(f"at slot {floor}, at {iso_time(floor_ms)}")):
        store.scan("t", timestamp=floor_ms - 1)
    with pytest.raises(OffsetOutOfRange, match=f"a snapshot of the earlier slot {floor - 1} would lack them"):
        store.scan("t", slot=floor - 1)
    assert values(store, timestamp=floor_ms) == [b"1", b"2", b"2"]


@examples(8)
@given(st.lists(st.tuples(st.integers(-500, 2000), st.booleans()), min_size=1, max_size=12))
def test_every_time_shows_what_the_slots_up_to_it_had_committed(steps: list[tuple[int, bool]]) -> None:
    """Clocks of writers go back and forth; each slot's snapshot was noted when it was the newest."""
    world = World()
    store = world.process()
    created_ms = world.time_ms
    store.admin.create_topic("t", partitions=2)
    noted: dict[int, tuple[int, list[bytes]]] = {}
    open_producer = store.producer("open", transaction_timeout_ms=900_000)
    open_producer.init_transactions()
    is_begun = False
    for number, (passed_ms, is_open) in enumerate(steps):
        world.time_ms += passed_ms
        if is_open and not is_begun:
            open_producer.begin_transaction()
            open_producer.send("t", b"o%d" % number, partition=0)
            open_producer.flush()
            is_begun = True
        elif is_open:
            open_producer.commit_transaction()
            is_begun = False
        else:
            write(store, b"%d" % number)
        slot, time_ms = store.read(lambda state, slot: (slot, state.time_ms))
        noted[slot] = (time_ms, values(store, slot=slot))

    newest_ms = max(time_ms for time_ms, _ in noted.values())
    for asked in {time_ms + delta for time_ms, _ in noted.values() for delta in (-1, 0, 1)}:
        if not created_ms <= asked <= newest_ms:
            continue
        last = max((slot for slot, (time_ms, _) in noted.items() if time_ms <= asked), default=None)
        assert values(store, timestamp=asked) == ([] if last is None else noted[last][1])
