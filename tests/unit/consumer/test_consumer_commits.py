"""Offsets that a consumer commits without being a member of its group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from eoslog import errors
from eoslog.session.positions import GroupMetadata, OffsetAndMetadata
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.reading import T0, T1, assigned, send, taken
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import SLOTS, World, faulty


class KafkaOffset(NamedTuple):
    """``OffsetAndMetadata`` of kafka-python 2.0."""

    offset: int
    metadata: str | None


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

    assert consumer.group_metadata()[:4] == ("g", -1, "", None)
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


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (OffsetAndMetadata(1, None), (1, "", -1)),  # type: ignore[arg-type]
        (OffsetAndMetadata(1, ""), (1, "", -1)),
        (OffsetAndMetadata(1, "", None), (1, "", -1)),  # type: ignore[arg-type]
        (OffsetAndMetadata(1, None, 3), (1, "", 3)),  # type: ignore[arg-type]
        (OffsetAndMetadata(1, "x" * 4_096, 2**31 - 1), (1, "x" * 4_096, 2**31 - 1)),
        (OffsetAndMetadata(2**63 - 1), (2**63 - 1, "", -1)),
        (KafkaOffset(1, None), (1, "", -1)),
        (KafkaOffset(1, "note"), (1, "note", -1)),
        (0, (0, "", -1)),
    ],
    ids=str,
)
def test_kafkas_forms_of_an_offset_are_taken(store: Store, given: Any, stored: tuple[int, str, int]) -> None:
    commits = _commits(store)

    for commit in commits.values():
        commit({T0: given})

    assert {name: store.admin.list_consumer_group_offsets(name) for name in commits} == {
        name: {T0: OffsetAndMetadata(*stored)} for name in commits
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (OffsetAndMetadata(1, 0), "the metadata of the offset of .* is 0; it must be None or a string"),  # type: ignore[arg-type]
        (OffsetAndMetadata(1, b"m"), "the metadata of the offset"),  # type: ignore[arg-type]
        (OffsetAndMetadata(1, "x" * 4_097), "of at most 4096 characters"),
        (OffsetAndMetadata(1, "a\udc80"), "UTF-8"),
        (OffsetAndMetadata(1, "", "1"), "the leader epoch of the offset of .* is '1'"),  # type: ignore[arg-type]
        (OffsetAndMetadata(1, "", 2**31), "the leader epoch"),
        (OffsetAndMetadata(1, "", -2), "the leader epoch"),
        (OffsetAndMetadata(2**63), "is 9223372036854775808; it must be a whole number, 0 or more"),
        (OffsetAndMetadata(True), "is True; it must be a whole number"),
        (OffsetAndMetadata(None), "is None; it must be a whole number"),  # type: ignore[arg-type]
        (-1001, "is -1001; it must be a whole number, 0 or more"),
        ((), r"is \(\). Give a number or OffsetAndMetadata"),
        ((1, "", 0, 0), "Give a number or OffsetAndMetadata"),
        ("1", "is '1'; it must be a whole number"),
        (1.0, "is 1.0; it must be a whole number"),
    ],
    ids=str,
)
def test_an_offset_that_cannot_be_stored_is_refused_by_name(store: Store, given: Any, message: str) -> None:
    for commit in _commits(store).values():
        with pytest.raises(errors.InvalidRequest, match=message):
            commit({T0: given})

    assert store.admin.list_consumer_groups() == []


@pytest.mark.parametrize("place", [("t", True), ("t", "0"), (None, 0), ("t",), "t-0", ("t", 2**63), (5, 0)], ids=str)
def test_a_place_of_an_offset_is_a_partition(store: Store, place: Any) -> None:
    for commit in _commits(store).values():
        with pytest.raises(errors.InvalidRequest, match=r"a partition is TopicPartition\(topic, partition\), not"):
            commit({place: 1})
    for call in (store.consumer().assign, store.consumer().beginning_offsets, store.consumer("g").committed):
        with pytest.raises(errors.InvalidRequest, match=r"TopicPartition\(topic, partition\)"):
            call([place])


def test_a_number_of_numpys_names_a_partition_in_every_call(store: Store) -> None:
    place = TopicPartition("t", np.int64(1))  # type: ignore[arg-type]
    send(store, b"1", partition=1)
    consumer = store.consumer("g", auto_offset_reset="earliest")
    consumer.assign([place])

    assert taken(consumer.poll(0)) == [b"1"]
    consumer.commit({place: consumer.position(place)})
    assert consumer.committed([place]) == {T1: OffsetAndMetadata(1)}


@pytest.mark.parametrize(
    "group",
    [
        *(None, 5, b"g", "", ("g", 1, "m"), GroupMetadata("g", "1")),  # type: ignore[arg-type]
        *(GroupMetadata("g", 1.5), GroupMetadata("g", 1, 7), GroupMetadata("g", 1, "m", 7)),  # type: ignore[arg-type]
        *(GroupMetadata("g", 1), GroupMetadata("g", 1, "m", topic_ids=5)),  # type: ignore[arg-type]
        *(GroupMetadata("g", 1, "m\udc80"), GroupMetadata("g", -1, "", None, ((1, "x"),))),  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_offsets_of_a_transaction_name_their_group(store: Store, group: Any) -> None:
    producer = open_transaction(store, "x")

    with pytest.raises(errors.InvalidRequest, match=r"group|member"):
        producer.send_offsets_to_transaction({T0: 1}, group)

    producer.commit_transaction()


def _commits(store: Store) -> dict[str, Callable[[Any], object]]:
    """The calls that commit offsets, by the group that they commit for."""
    producer = store.producer("x")
    producer.init_transactions()

    def in_transaction(offsets: Any) -> None:
        producer.begin_transaction()
        try:
            producer.send_offsets_to_transaction(offsets, "transaction")
        except errors.EosLogError:
            producer.abort_transaction()
            raise
        producer.commit_transaction()

    return {
        "consumer": store.consumer("consumer").commit,
        "transaction": in_transaction,
        "admin": lambda offsets: store.admin.alter_consumer_group_offsets("admin", offsets),
    }
