"""Offsets that a consumer commits without being a member of its group."""

from __future__ import annotations

import pytest

from eoslog import errors
from eoslog.session.positions import OffsetAndMetadata
from eoslog.store import Store
from tests.unit.support.reading import T0, T1, assigned, faulty, send, taken
from tests.unit.support.world import SLOTS, World


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
