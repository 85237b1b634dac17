"""``for record in consumer``: a record is read when the loop gets it, not when it was fetched."""

from __future__ import annotations

import pytest

from eoslog import errors
from eoslog.consumer.consumer import Consumer
from eoslog.store import Store
from tests.unit.support.reading import T0, T1, assigned, send, taken
from tests.unit.support.world import World, faulty, values


def test_a_loop_gets_every_record_and_ends_after_the_timeout(store: Store, world: World) -> None:
    send(store, *(b"%d" % number for number in range(1_200)))
    consumer = assigned(store, consumer_timeout_ms=3_000)
    since = world.time_ms

    assert [record.value for record in consumer] == [b"%d" % number for number in range(1_200)]

    assert 3_000 <= world.time_ms - since < 4_000


def test_a_loop_waits_for_records_without_a_limit(store: Store, world: World) -> None:
    consumer = assigned(store)
    since = world.time_ms
    other = world.process()

    def arrive() -> None:
        if world.time_ms - since > 600_000:
            world.while_asleep = lambda: None
            send(other, b"late")

    world.while_asleep = arrive

    assert next(consumer).value == b"late"


def test_a_commit_in_the_loop_commits_up_to_its_record(store: Store) -> None:
    send(store, *(b"%d" % number for number in range(5)))
    consumer = assigned(store, T0, group_id="g")
    committed = []

    for record in consumer:
        assert consumer.position(T0) == record.offset + 1
        consumer.commit()
        committed.append(store.admin.list_consumer_group_offsets("g")[T0].offset)
        if len(committed) == 3:
            break

    assert committed == [1, 2, 3]
    assert taken(consumer.poll(0)) == [b"3", b"4"]


def test_records_that_are_fetched_but_not_in_the_loop_yet_are_not_in_the_transaction(store: Store) -> None:
    send(store, *(b"%d" % number for number in range(4)))
    store.admin.create_topic("out")
    consumer = assigned(store, T0, group_id="g")
    producer = store.producer("tx")
    producer.init_transactions()

    for record in consumer:
        producer.begin_transaction()
        producer.send("out", record.value)
        positions = {place: consumer.position(place) for place in consumer.assignment()}
        producer.send_offsets_to_transaction(positions, consumer.group_metadata())
        producer.commit_transaction()
        if record.offset == 1:
            break

    restarted = assigned(store, T0, group_id="g", auto_offset_reset="none")
    assert taken(restarted.poll(0)) == [b"2", b"3"]
    assert values(store, "out") == [b"0", b"1"]


def test_automatic_commits_do_not_include_the_record_that_the_loop_has_not_got(store: Store, world: World) -> None:
    send(store, *(b"%d" % number for number in range(4)))
    consumer = assigned(store, T0, group_id="g", enable_auto_commit=True, auto_commit_interval_ms=1_000)

    next(consumer)
    world.pass_time(2_000)
    next(consumer)

    assert store.admin.list_consumer_group_offsets("g")[T0].offset == 1


@pytest.mark.usefixtures("files_are_objects")
def test_a_loop_costs_a_request_a_second_at_most_while_records_are_there(store: Store) -> None:
    send(store, *(b"%d" % number for number in range(100)))
    consumer = assigned(store, T0)
    faulty(store).gets.clear()

    for _ in range(100):
        next(consumer)

    assert len(faulty(store).gets) == 2


def test_few_large_records_are_decoded_ahead(store: Store) -> None:
    send(store, *(bytes(400_000) for _ in range(10)))
    consumer = assigned(store, T0)

    next(consumer)

    fetch = consumer._assigned.get(T0)
    assert fetch is not None
    assert len(fetch._decoded) == 2


def test_a_loop_reads_a_paused_partition_no_further(store: Store) -> None:
    send(store, b"0", b"1")
    send(store, b"other", partition=1)
    consumer = assigned(store, T0, T1, consumer_timeout_ms=0)
    assert next(consumer).value == b"0"

    consumer.pause([T0])
    assert [record.value for record in consumer] == [b"other"]

    consumer.resume([T0])
    assert [record.value for record in consumer] == [b"1"]


def test_a_seek_within_the_loop_counts_at_once(store: Store) -> None:
    send(store, *(b"%d" % number for number in range(4)))
    consumer = assigned(store, T0, consumer_timeout_ms=0)
    seen = []

    for record in consumer:
        seen.append(record.offset)
        if seen == [0, 1]:
            consumer.seek(T0, 3)

    assert seen == [0, 1, 3]


def test_partitions_are_read_in_turn(store: Store) -> None:
    for _ in range(2):
        send(store, *(b"long" for _ in range(600)), partition=0)
    send(store, b"short", partition=1)
    consumer = assigned(store, T0, T1)

    assert b"short" in [next(consumer).value for _ in range(700)]


def test_a_partition_that_moves_to_another_member_is_read_no_further(store: Store, world: World) -> None:
    for number in (0, 1):
        send(store, *(b"%d" % number for _ in range(10)), partition=number)
    first = store.consumer("g", auto_offset_reset="earliest", consumer_timeout_ms=0)
    first.subscribe("t")
    next(first)
    second = world.process().consumer("g", auto_offset_reset="earliest", consumer_timeout_ms=0)
    second.subscribe("t")
    list(second)
    world.pass_time(2_000)

    read = {record.partition for record in first}

    assert {place.partition for place in first.assignment()} >= read
    assert len(read) == 1
    first.commit()


def test_close_in_the_loop_ends_it(store: Store) -> None:
    send(store, b"0", b"1")
    consumer = assigned(store)

    for _ in consumer:
        consumer.close()

    assert list(consumer) == []
    with pytest.raises(errors.IllegalState):
        consumer.poll(0)


def test_wakeup_ends_the_loop_and_the_next_one_continues(store: Store) -> None:
    send(store, b"0", b"1")
    consumer = assigned(store, consumer_timeout_ms=0)

    for _ in consumer:
        consumer.wakeup()

    assert [record.value for record in consumer] == [b"1"]


def test_a_loop_without_topics_is_refused(store: Store) -> None:
    with pytest.raises(errors.IllegalState, match=r"next\(\) needs topics or partitions"):
        next(store.consumer())


def test_an_error_leaves_the_loop_and_the_next_one_continues(store: Store) -> None:
    send(store, b"0")
    consumer: Consumer = assigned(store, T0)
    faulty(store).go_down()
    with pytest.raises(errors.StoreUnavailable):
        next(consumer)

    faulty(store).heal()

    assert next(consumer).value == b"0"


@pytest.mark.parametrize("wrong", [-1, "1", 1.5, True])
def test_the_timeout_of_a_loop_is_a_whole_number(store: Store, wrong: object) -> None:
    with pytest.raises(errors.InvalidOption, match="consumer_timeout_ms is"):
        store.consumer(consumer_timeout_ms=wrong)  # type: ignore[arg-type]
