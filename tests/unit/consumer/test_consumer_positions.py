"""Where a consumer begins, how it moves about, and what it looks up."""

from __future__ import annotations

from typing import Any

import pytest

from eoslog import errors
from eoslog.errors import InvalidRequest
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.reading import T0, T1, assigned, send, taken, transaction
from tests.unit.support.transactions import open_transaction

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


# Looking up


def test_offsets_are_found_by_time_among_visible_rows(store: Store) -> None:
    for moment in (1000, 3000, 2000):
        send(store, b"v", timestamp=moment)
    producer = open_transaction(store, "tx")
    producer.send("t", b"undecided", partition=0, timestamp=9000)
    producer.flush()
    consumer = store.consumer()

    def found(moment: int) -> Any:
        return consumer.offsets_for_times({T0: moment})[T0]

    assert (found(0), found(1000)) == ((0, 1000), (0, 1000))
    assert (found(1001), found(3000)) == ((1, 3000), (1, 3000))
    assert found(3001) is None
    assert store.consumer(isolation_level="read_uncommitted").offsets_for_times({T0: 3001})[T0] == (3, 9000)


@pytest.mark.parametrize("moment", [-1, -2, -(2**63), 2**63])
def test_a_time_that_is_none_is_refused_with_the_calls_for_both_ends(store: Store, moment: int) -> None:
    send(store, b"v")

    with pytest.raises(InvalidRequest, match=rf"t-0 must be an integer.*not {moment}. Use end_offsets\(\)"):
        store.consumer().offsets_for_times({T0: moment})


def test_a_time_in_other_units_has_the_answer_of_kafka(store: Store) -> None:
    send(store, b"v", timestamp=1_767_225_600_000)
    consumer = store.consumer()

    assert consumer.offsets_for_times({T0: 1_767_225_600})[T0] == (0, 1_767_225_600_000)
    assert consumer.offsets_for_times({T0: 1_767_225_600_000_000_000})[T0] is None


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
