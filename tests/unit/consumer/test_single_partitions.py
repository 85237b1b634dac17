"""Where a consumer takes partitions, it takes a single one, too."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eoslog import errors
from eoslog.consumer.consumer import Consumer
from eoslog.session.positions import OffsetAndMetadata
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.reading import T0, T1, send, taken


@pytest.mark.parametrize("place", [T0, ("t", 0)])
def test_a_single_partition_is_assigned_sought_paused_and_resumed(store: Store, place: TopicPartition) -> None:
    send(store, b"0", b"1")
    consumer = store.consumer("g", auto_offset_reset="earliest")

    consumer.assign(place)
    assert consumer.assignment() == {T0}
    consumer.seek_to_end(place)
    assert consumer.position(T0) == 2
    consumer.seek_to_beginning(place)
    consumer.pause(place)
    assert consumer.poll(0) == []
    consumer.resume(place)
    assert taken(consumer.poll(0)) == [b"0", b"1"]
    assert consumer.beginning_offsets(place) == {T0: 0}
    assert consumer.end_offsets(place) == {T0: 2}


def test_the_committed_offset_of_one_partition_is_a_number_and_of_several_a_dictionary(store: Store) -> None:
    consumer = store.consumer("g")
    consumer.commit({T0: OffsetAndMetadata(2, "mine")})

    assert consumer.committed(T0) == 2
    assert consumer.committed(T1) is None
    assert consumer.committed([T0, T1]) == {T0: OffsetAndMetadata(2, "mine"), T1: None}
    assert consumer.committed((T0,)) == consumer.committed([T0]) == {T0: OffsetAndMetadata(2, "mine")}
    assert consumer.committed([]) == {}


def test_the_position_of_one_partition_is_a_number_and_of_several_a_dictionary(store: Store) -> None:
    send(store, b"0", b"1")
    consumer = store.consumer("g", auto_offset_reset="earliest")
    consumer.assign([T0, T1])
    next(consumer)

    assert consumer.position(T0) == 1
    assert consumer.position(consumer.assignment()) == {T0: 1, T1: 0}
    assert consumer.position([T0]) == {T0: 1}
    assert consumer.position([]) == {}
    with pytest.raises(errors.IllegalState, match="other-0 is not assigned"):
        consumer.position([T0, TopicPartition("other", 0)])


@pytest.mark.parametrize(
    "call", [Consumer.assign, Consumer.committed, Consumer.position, Consumer.pause, Consumer.seek_to_end]
)
@pytest.mark.parametrize("wrong", ["t", 3, [("t", 0, 1)], ["t"]])
def test_an_object_that_is_no_partition_is_refused(store: Store, call: Callable[..., object], wrong: object) -> None:
    with pytest.raises(errors.InvalidRequest, match=r"TopicPartition\(topic, partition\), not"):
        call(store.consumer("g"), wrong)
