"""What the polls of a consumer promise when it reads alone."""

from __future__ import annotations

import gc
from typing import Any

import pyarrow as pa
import pytest

from eoslog import errors
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.reading import T0, T1, assigned, send, taken
from tests.unit.support.world import World, faulty


def test_a_poll_gives_so_many_records_and_the_next_goes_on(store: Store) -> None:
    send(store, *(b"%d" % number for number in range(10)))
    consumer = assigned(store, max_poll_records=4)

    polls = [taken(consumer.poll(0)) for _ in range(4)]

    assert polls == [[b"0", b"1", b"2", b"3"], [b"4", b"5", b"6", b"7"], [b"8", b"9"], []]


@pytest.mark.parametrize("collects", [True, False])
def test_a_poll_leaves_the_garbage_collector_as_it_is(store: Store, collects: bool) -> None:
    send(store, b"v")
    consumer = assigned(store)
    collected = gc.isenabled()
    try:
        (gc.enable if collects else gc.disable)()

        assert taken(consumer.poll(0)) == [b"v"]

        assert gc.isenabled() is collects
    finally:
        (gc.enable if collected else gc.disable)()


def test_records_with_and_without_headers_come_together(store: Store) -> None:
    with store.producer() as producer:
        for headers in (None, [("h", b"x")], [], [("h", None), ("h", b"y")]):
            producer.send("t", b"v", partition=0, headers=headers)

    records = assigned(store).poll(0)

    assert [list(record.headers) for record in records] == [[], [("h", b"x")], [], [("h", None), ("h", b"y")]]


@pytest.mark.usefixtures("files_are_objects")
def test_a_file_is_fetched_once_however_many_polls_it_lasts(store: Store) -> None:
    send(store, *(b"%d" % number for number in range(10)))
    consumer = assigned(store, max_poll_records=3)
    faulty(store).gets.clear()

    while consumer.poll(0):
        pass

    assert len([path for path in faulty(store).gets if path.startswith("t/")]) == 1


@pytest.mark.usefixtures("files_are_objects")
def test_files_that_are_not_asked_for_are_not_fetched(store: Store) -> None:
    for number in range(5):
        send(store, b"%d" % number)
    consumer = assigned(store, max_poll_records=2)
    faulty(store).gets.clear()

    consumer.poll(0)

    assert len([path for path in faulty(store).gets if path.startswith("t/")]) == 2


def test_a_poll_of_nothing_new_costs_one_small_request(store: Store) -> None:
    send(store, b"1")
    consumer = assigned(store)
    consumer.poll(0)
    before = store.requests.copy()

    assert consumer.poll(0) == []

    assert store.requests - before == {"GET": 1}


def test_a_poll_waits_in_growing_steps_until_its_timeout(store: Store, world: World) -> None:
    consumer = assigned(store)
    consumer.poll(0)
    before, since = store.requests.copy(), world.time_ms

    assert consumer.poll(timeout=10) == []

    assert 10_000 <= world.time_ms - since < 11_000
    assert 10 < (store.requests - before)["GET"] < 40


def test_a_poll_returns_what_arrives_while_it_waits(store: Store, world: World) -> None:
    consumer = assigned(store)
    since = world.time_ms
    other = world.process()

    def arrive() -> None:
        world.while_asleep = lambda: None
        send(other, b"new")

    world.while_asleep = arrive

    assert taken(consumer.poll(timeout=60)) == [b"new"]
    assert world.time_ms - since < 1000


def test_no_partition_starves_behind_a_long_one(store: Store) -> None:
    send(store, *(b"long" for _ in range(20)), partition=0)
    send(store, b"short", partition=1)
    consumer = assigned(store, max_poll_records=5)

    first_two = taken(consumer.poll(0)) + taken(consumer.poll(0))

    assert b"short" in first_two


def test_a_poll_without_topics_or_a_negative_timeout_is_refused(store: Store) -> None:
    with pytest.raises(errors.IllegalState):
        store.consumer().poll(0)
    with pytest.raises(errors.InvalidRequest):
        assigned(store).poll(-1)


def test_rows_of_columns_come_as_dicts_with_their_key(store: Store, world: World) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string())])
    store.admin.create_topic("keyed", schema=schema, key="id")
    store.admin.create_topic("plain", schema=schema)
    with store.producer() as producer:
        for topic in ("keyed", "plain"):
            producer.send_table(topic, pa.table({"id": [1, None], "name": ["a", None]}, schema=schema))
    consumer = store.consumer(auto_offset_reset="earliest")
    consumer.subscribe(["keyed", "plain"])

    records = consumer.poll()

    one, none = {"id": 1, "name": "a"}, {"id": None, "name": None}
    assert [record[:7] for record in records] == [
        ("keyed", 0, 0, world.time_ms, (1,), one, ()),
        ("keyed", 0, 1, world.time_ms, (None,), none, ()),
        ("plain", 0, 0, world.time_ms, None, one, ()),
        ("plain", 0, 1, world.time_ms, None, none, ()),
    ]


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_subscriber_finds_new_partitions_and_keeps_its_other_positions(
    store: Store, world: World, reset: Any
) -> None:
    consumer = store.consumer(auto_offset_reset=reset)
    consumer.subscribe("t")
    consumer.poll(0)
    send(store, b"1", b"2")
    assert taken(consumer.poll(0)) == [b"1", b"2"]
    consumer.seek(T0, 1)
    world.process().admin.create_partitions("t", 3)
    world.pass_time(2_000)

    assert taken(consumer.poll(0)) == [b"2"]
    assert consumer.assignment() == {T0, T1, TopicPartition("t", 2)}
    with world.process().producer() as producer:
        producer.send("t", b"3", partition=2)
    assert taken(consumer.poll(0)) == [b"3"]


# Closing


def test_a_closed_consumer_refuses_every_call_and_may_be_closed_again(store: Store) -> None:
    with assigned(store, group_id="g") as consumer:
        consumer.poll(0)
    consumer.close()

    for call in (
        consumer.poll,
        consumer.commit,
        consumer.lag,
        consumer.unsubscribe,
        consumer.seek_to_end,
        lambda: consumer.subscribe("t"),
        lambda: consumer.assign([T0]),
        lambda: consumer.seek(T0, 0),
        lambda: consumer.position(T0),
    ):
        with pytest.raises(errors.IllegalState, match=r"this consumer is closed\. Open another consumer$"):
            call()
