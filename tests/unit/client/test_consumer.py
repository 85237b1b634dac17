"""What a consumer promises when it reads alone."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from eoslog import errors
from eoslog.client.consumer import Consumer
from eoslog.client.consumer_records import ConsumerRecord
from eoslog.client.positions import OffsetAndMetadata
from eoslog.client.store import Store
from eoslog.rules.names import TopicPartition
from eoslog.segment.sealing import seal_segments
from tests.unit.client.world import SLOTS, FaultyStore, World

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def faulty(store: Store) -> FaultyStore:
    assert isinstance(store.object_store, FaultyStore)
    return store.object_store


def send(store: Store, *values: bytes, partition: int = 0, timestamp: int | None = None) -> None:
    with store.producer() as producer:
        for value in values:
            producer.send("t", value, partition=partition, timestamp=timestamp)


def transaction(store: Store, verdict: str, *values: bytes, partition: int = 0, transactional_id: str = "tx") -> None:
    producer = store.producer(transactional_id)
    producer.init_transactions()
    producer.begin_transaction()
    for value in values:
        producer.send("t", value, partition=partition)
    producer.flush()
    if verdict == "commit":
        producer.commit_transaction()
    elif verdict == "abort":
        producer.abort_transaction()


def assigned(store: Store, *places: TopicPartition, **options: Any) -> Consumer:
    consumer = store.consumer(**{"auto_offset_reset": "earliest", **options})
    consumer.assign(places or [T0, T1])
    return consumer


def taken(records: list[ConsumerRecord]) -> list[bytes]:
    return [record.value for record in records]


# Isolation, and positions over what is not shown


def test_read_committed_gives_committed_rows_and_read_uncommitted_all(store: Store) -> None:
    transaction(store, "commit", b"c1", b"c2")
    transaction(store, "abort", b"a1", b"a2")
    transaction(store, "open", b"o1")

    committed, uncommitted = assigned(store), assigned(store, isolation_level="read_uncommitted")

    assert taken(committed.poll(0)) == [b"c1", b"c2"]
    assert taken(uncommitted.poll(0)) == [b"c1", b"c2", b"a1", b"a2", b"o1"]
    assert (committed.position(T0), uncommitted.position(T0)) == (6, 7)


def test_nothing_shows_beyond_the_earliest_open_transaction_and_all_does_when_it_ends(store: Store) -> None:
    open_one = store.producer("open")
    open_one.init_transactions()
    open_one.begin_transaction()
    open_one.send("t", b"open", partition=0)
    open_one.flush()
    transaction(store, "commit", b"later")
    consumer = assigned(store)
    assert consumer.poll(0) == []

    open_one.commit_transaction()

    assert taken(consumer.poll(0)) == [b"open", b"later"]


def test_the_position_steps_over_aborted_rows_and_markers_though_no_record_comes(store: Store) -> None:
    transaction(store, "abort", b"a1", b"a2", b"a3")
    consumer = assigned(store)

    assert consumer.poll(0) == []

    assert consumer.position(T0) == 4


def test_a_consumer_refuses_snapshots_and_unknown_options(store: Store) -> None:
    with pytest.raises(errors.InvalidOption, match="scan"):
        store.consumer(isolation_level="snapshot")
    for options in (
        {"isolation_level": "dirty"},
        {"auto_offset_reset": "first"},
        {"max_poll_records": 0},
        {"enable_auto_commit": True},
        {"group_id": "g", "session_timeout_ms": 5},
    ):
        with pytest.raises(errors.InvalidOption):
            store.consumer(**options)
    with pytest.raises(errors.InvalidRequest):
        store.consumer("")


# Polling


def test_a_poll_gives_at_most_so_many_records_and_the_next_goes_on_there(store: Store) -> None:
    send(store, *(b"%d" % number for number in range(10)))
    consumer = assigned(store, max_poll_records=4)

    polls = [taken(consumer.poll(0)) for _ in range(4)]

    assert polls == [[b"0", b"1", b"2", b"3"], [b"4", b"5", b"6", b"7"], [b"8", b"9"], []]


def test_a_file_is_fetched_once_however_many_polls_it_lasts(store: Store) -> None:
    send(store, *(b"%d" % number for number in range(10)))
    consumer = assigned(store, max_poll_records=3)
    faulty(store).gets.clear()

    while consumer.poll(0):
        pass

    assert len([path for path in faulty(store).gets if path.startswith("t/")]) == 1


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


def test_rows_of_sealed_segments_come_like_others(store: Store, world: World) -> None:
    from eoslog.rules.entries import TopicConfig

    store.admin.create_topic("s", config=TopicConfig(segment_batches=2))
    with store.producer() as producer:
        for number in range(7):
            producer.send("s", b"%d" % number)
            producer.flush()
    assert seal_segments(store.log, store.object_store, store.environment)
    consumer = world.process().consumer(auto_offset_reset="earliest", max_poll_records=2)
    consumer.assign([TopicPartition("s", 0)])

    assert [record.offset for _ in range(4) for record in consumer.poll(0)] == list(range(7))


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
        ("keyed", 0, 0, world.time_ms, (1,), one, []),
        ("keyed", 0, 1, world.time_ms, (None,), none, []),
        ("plain", 0, 0, world.time_ms, None, one, []),
        ("plain", 0, 1, world.time_ms, None, none, []),
    ]


def test_a_damaged_file_is_reported_after_the_records_before_it_and_can_be_passed_over(store: Store) -> None:
    send(store, b"1")
    send(store, b"2")
    send(store, b"3")
    damaged = store.scan("t").plans[0].slices[1].path
    store.object_store.put(damaged, b"x" * len(store.object_store.get(damaged).body))
    consumer = assigned(store)

    assert taken(consumer.poll(0)) == [b"1"]
    with pytest.raises(errors.CorruptRecord):
        consumer.poll(0)
    consumer.seek(T0, consumer.position(T0) + 1)
    assert taken(consumer.poll(0)) == [b"3"]


def test_a_poll_that_the_store_did_not_answer_loses_nothing(store: Store) -> None:
    send(store, b"1", b"2")
    consumer = assigned(store)
    faulty(store).lose_answers("nothing", lands=False)
    faulty(store)._down = True
    with pytest.raises(errors.RetriableError):
        consumer.poll(0)
    faulty(store).heal()

    assert taken(consumer.poll(0)) == [b"1", b"2"]


# Where to begin


@pytest.mark.parametrize(("policy", "expected"), [("earliest", [b"old", b"new"]), ("latest", [b"new"])])
def test_without_a_committed_offset_the_policy_decides(store: Store, policy: Any, expected: list[bytes]) -> None:
    send(store, b"old")
    consumer = assigned(store, T0, auto_offset_reset=policy)
    first = consumer.poll(0)
    send(store, b"new")

    assert taken(first + consumer.poll(0)) == expected


def test_the_policy_none_raises(store: Store) -> None:
    with pytest.raises(errors.NoOffsetForPartition):
        assigned(store, T0, group_id="g", auto_offset_reset="none").poll(0)


def test_latest_under_read_committed_is_the_last_stable_offset(store: Store) -> None:
    transaction(store, "commit", b"1")
    transaction(store, "open", b"2", b"3")

    committed, uncommitted = assigned(store, T0), assigned(store, T0, isolation_level="read_uncommitted")
    committed.seek_to_end()
    uncommitted.seek_to_end()

    assert (committed.position(T0), uncommitted.position(T0)) == (2, 4)
    assert (committed.end_offsets([T0]), uncommitted.end_offsets([T0])) == ({T0: 2}, {T0: 4})


def test_an_offset_that_the_partition_does_not_hold_is_reset_by_the_policy(store: Store) -> None:
    send(store, b"1", b"2")
    earliest, latest, none = (assigned(store, T0, auto_offset_reset=each) for each in ("earliest", "latest", "none"))
    for consumer in (earliest, latest, none):
        consumer.seek(T0, 99)

    assert taken(earliest.poll(0)) == [b"1", b"2"]
    assert latest.poll(0) == []
    assert latest.position(T0) == 2
    with pytest.raises(errors.OffsetOutOfRange):
        none.poll(0)


# Moving about


def test_seek_goes_into_the_middle_of_a_file_and_back(store: Store) -> None:
    send(store, *(b"%d" % number for number in range(5)))
    consumer = assigned(store, T0)
    consumer.poll(0)

    consumer.seek(T0, 3)
    assert taken(consumer.poll(0)) == [b"3", b"4"]
    consumer.seek_to_beginning([T0])
    assert taken(consumer.poll(0))[0] == b"0"
    consumer.seek_to_end()
    assert consumer.poll(0) == []
    assert consumer.position(T0) == 5


def test_paused_partitions_give_nothing_until_they_are_resumed_and_lose_nothing(store: Store) -> None:
    send(store, b"0", b"0", partition=0)
    send(store, b"1", b"1", partition=1)
    consumer = assigned(store, max_poll_records=1)
    consumer.poll(0)
    consumer.pause([T0])
    assert consumer.paused() == {T0}

    while_paused = [record for _ in range(4) for record in consumer.poll(0)]
    consumer.resume([T0])
    after = [record for _ in range(4) for record in consumer.poll(0)]

    assert {record.partition for record in while_paused} == {1}
    assert {record.partition for record in after} == {0}
    assert consumer.lag() == {T0: 0, T1: 0}


@pytest.mark.parametrize("call", ["seek", "position", "pause", "resume", "seek_to_beginning", "seek_to_end"])
def test_a_partition_that_is_not_assigned_cannot_be_moved(store: Store, call: str) -> None:
    consumer = assigned(store, T0)
    with pytest.raises(errors.IllegalState):
        {
            "seek": lambda: consumer.seek(T1, 0),
            "position": lambda: consumer.position(T1),
            "pause": lambda: consumer.pause([T1]),
            "resume": lambda: consumer.resume([T1]),
            "seek_to_beginning": lambda: consumer.seek_to_beginning([T1]),
            "seek_to_end": lambda: consumer.seek_to_end([T1]),
        }[call]()


def test_lag_counts_the_offsets_up_to_the_end_of_what_is_visible(store: Store) -> None:
    transaction(store, "commit", b"1", b"2")
    transaction(store, "open", b"3")
    consumer = assigned(store, T0, max_poll_records=1)
    assert consumer.lag() == {T0: 3}
    consumer.poll(0)
    assert consumer.lag() == {T0: 2}


# Looking up


def test_offsets_are_found_by_time_among_visible_rows(store: Store) -> None:
    for moment in (1000, 3000, 2000):
        send(store, b"v", timestamp=moment)
    producer = store.producer("tx")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"undecided", partition=0, timestamp=9000)
    producer.flush()
    consumer = store.consumer()

    def found(moment: int) -> Any:
        return consumer.offsets_for_times({T0: moment})[T0]

    assert (found(0), found(1000)) == ((0, 1000), (0, 1000))
    assert (found(1001), found(3000)) == ((1, 3000), (1, 3000))
    assert found(3001) is None
    assert store.consumer(isolation_level="read_uncommitted").offsets_for_times({T0: 3001})[T0] == (3, 9000)


def test_a_row_in_the_middle_of_a_file_is_found_by_time(store: Store) -> None:
    with store.producer() as producer:
        for number in range(10):
            producer.send("t", b"v", partition=0, timestamp=number * 10)

    assert store.consumer().offsets_for_times({T0: 55, T1: 55}) == {T0: (6, 60), T1: None}


def test_offsets_at_both_ends_are_known_without_assignment(store: Store) -> None:
    send(store, b"1", b"2")
    consumer = store.consumer()

    assert consumer.beginning_offsets([T0, T1]) == {T0: 0, T1: 0}
    assert consumer.end_offsets([T0, T1]) == {T0: 2, T1: 0}


@pytest.mark.parametrize("place", [TopicPartition("nowhere", 0), TopicPartition("t", 2), TopicPartition("t", -1)])
def test_a_partition_that_does_not_exist_is_an_error_everywhere(store: Store, place: TopicPartition) -> None:
    consumer = store.consumer("g")
    for call in (
        lambda: consumer.assign([place]),
        lambda: consumer.committed([place]),
        lambda: consumer.beginning_offsets([place]),
        lambda: consumer.end_offsets([place]),
        lambda: consumer.offsets_for_times({place: 0}),
        lambda: consumer.commit({place: 0}),
    ):
        with pytest.raises(errors.UnknownTopicOrPartition):
            call()


# Committing without joining


def test_a_committed_offset_is_where_the_next_consumer_of_the_group_begins(store: Store, world: World) -> None:
    send(store, b"1", b"2", b"3")
    first = assigned(store, T0, group_id="g", max_poll_records=2)
    first.poll(0)
    first.commit()

    second = assigned(world.process(), T0, group_id="g")

    assert taken(second.poll(0)) == [b"3"]
    assert second.committed([T0, T1]) == {T0: OffsetAndMetadata(2), T1: None}


def test_offsets_are_committed_with_their_metadata_as_given(store: Store) -> None:
    consumer = store.consumer("g")
    consumer.commit({T0: OffsetAndMetadata(110, "some metadata", 15), T1: 7})

    assert consumer.committed([T0, T1]) == {T0: (110, "some metadata", 15), T1: (7, "", -1)}


def test_a_manual_assignment_does_not_join_the_group(store: Store) -> None:
    consumer = assigned(store, group_id="g")
    consumer.poll(0)
    consumer.commit()

    assert consumer.group_metadata() == ("g", -1, "", None)
    assert store.read(lambda state, slot: state.groups["g"].members) == {}


def test_a_consumer_without_a_group_cannot_commit(store: Store) -> None:
    consumer = assigned(store)
    for call in (consumer.commit, consumer.group_metadata, lambda: consumer.committed([T0])):
        with pytest.raises(errors.IllegalState, match="group_id"):
            call()


@pytest.mark.parametrize("lands", [True, False])
def test_a_commit_without_an_answer_is_repeated(store: Store, lands: bool) -> None:
    consumer = store.consumer("g")
    faulty(store).lose_answers(SLOTS, lands=lands)
    with pytest.raises(errors.CommitStateUnknown):
        consumer.commit({T0: 5})
    faulty(store).heal()

    consumer.commit({T0: 5})

    assert consumer.committed([T0]) == {T0: (5, "", -1)}


def test_positions_of_a_topic_are_not_committed_to_its_successor(store: Store, world: World) -> None:
    send(store, b"1")
    consumer = assigned(store, T0, group_id="g")
    consumer.poll(0)
    other = world.process()
    other.admin.delete_topic("t")
    other.admin.create_topic("t")

    with pytest.raises(errors.UnknownTopicOrPartition):
        consumer.commit()
    with pytest.raises(errors.UnknownTopicOrPartition):
        consumer.poll(0)
    assert store.consumer("g").committed([T0]) == {T0: None}


# Dead producers


def test_a_consumer_ends_the_transaction_of_a_dead_producer_that_hides_rows_from_it(store: Store, world: World) -> None:
    dead = world.process().producer("dead", transaction_timeout_ms=10_000)
    dead.init_transactions()
    dead.begin_transaction()
    dead.send("t", b"dead", partition=0)
    dead.flush()
    transaction(store, "commit", b"stuck")
    consumer = assigned(store, T0)
    assert consumer.poll(timeout=5) == []

    assert taken(consumer.poll(timeout=10)) == [b"stuck"]
    assert store.admin.describe_transaction("dead").transaction_state == "COMPLETE_ABORT"


def test_a_consumer_that_may_not_write_waits_for_others_to_end_it(store: Store, world: World) -> None:
    transaction(store, "open", b"dead")
    world.pass_time(120_000)
    reader = world.process()
    faulty(reader).deny("__transaction_state")
    consumer = assigned(reader, T0)

    assert consumer.poll(timeout=2) == []
    transaction(store, "commit", b"v", transactional_id="other")
    assert taken(consumer.poll(timeout=2)) == [b"v"]


def test_nothing_is_ended_that_is_within_its_timeout_or_hides_nothing(store: Store, world: World) -> None:
    transaction(store, "open", b"1", partition=0)
    elsewhere = assigned(store, T1)
    world.pass_time(120_000)
    elsewhere.poll(timeout=1)
    uncommitted = assigned(store, isolation_level="read_uncommitted")
    uncommitted.poll(timeout=1)
    uncommitted.poll(timeout=1)

    assert store.admin.describe_transaction("tx").transaction_state == "ONGOING"


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
        with pytest.raises(errors.IllegalState, match="closed"):
            call()


def test_records_tell_who_wrote_them_on_request(store: Store) -> None:
    transaction(store, "commit", b"1", b"2", partition=0)
    slot = store.read(lambda state, newest: newest)
    send(store, b"3", partition=1)

    first, second, alone = assigned(store, with_transaction=True).poll()

    assert first.transaction is not None
    assert second.transaction is not None
    assert alone.transaction is not None
    assert (first.transaction.transactional_id, first.transaction.slot) == ("tx", slot)
    assert (first.transaction.sequence, second.transaction.sequence) == (0, 1)
    assert (alone.transaction.transactional_id, alone.transaction.slot) == (None, slot + 2)
    assert alone.transaction.commit_timestamp == store.read(lambda state, newest: state.time_ms)
    assert all(record.transaction is None for record in assigned(store).poll())


def test_a_row_of_an_open_transaction_tells_that_it_is_not_decided(store: Store) -> None:
    transaction(store, "", b"1", partition=0)

    (record,) = assigned(store, with_transaction=True, isolation_level="read_uncommitted").poll()

    assert record.transaction is not None
    assert (record.transaction.slot, record.transaction.commit_timestamp) == (None, None)


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_subscriber_finds_new_partitions_and_stays_where_it_stands_in_the_others(
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
