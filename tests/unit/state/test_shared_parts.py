"""Small topics share the parts of a checkpoint, a large topic has its own, and what did not change is not written."""

from __future__ import annotations

import random

import pytest

from eoslog.format.partition_rows import ROWS_OF_A_PART, part_name, shared_parts
from eoslog.state.entries import TopicConfig, TopicSchema
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import Partition, ProducerState
from eoslog.state.store_state import StoreState, Topic


def store_of(topics: int, partitions: int = 10) -> StoreState:
    state = StoreState()
    ids = random.Random(1)
    for number in range(topics):
        topic_id = f"{ids.getrandbits(128):032x}"
        topic = Topic(f"t{number}", topic_id, partitions, TopicSchema(kind="records"), TopicConfig(), 1, ())
        state.topics[topic_id] = topic
        state.partitions |= {place: Partition(place) for place in topic.partition_ids()}
    return state


def fill(partition: Partition, rows: int) -> None:
    partition.producers |= {number: ProducerState(number, 0, (), 0, -1) for number in range(rows)}


def names(state: StoreState) -> dict[str, set[PartitionId]]:
    return {part_name(part): {partition.id for partition in part} for part in shared_parts(state)}


def test_each_partition_is_in_one_part() -> None:
    state = store_of(1000)
    fill(state.partitions[PartitionId(list(state.topics)[7], 3)], 3 * ROWS_OF_A_PART)

    found = [partition.id for part in shared_parts(state) for partition in part]

    assert len(found) == len(state.partitions)
    assert set(found) == set(state.partitions)


@pytest.mark.parametrize("topics", [1, 2, 819, 820, 1000, 5000])
def test_parts_are_bounded_in_number_and_size(topics: int) -> None:
    parts = list(shared_parts(store_of(topics)))

    assert max(map(len, parts)) <= ROWS_OF_A_PART
    assert len(parts) <= 1 + 4 * topics * 10 // ROWS_OF_A_PART


def test_a_large_topic_has_its_own_parts_and_most_others_stay_as_they_were() -> None:
    state = store_of(1000)
    large = list(state.topics)[7]
    before = names(state)

    for partition in range(10):
        fill(state.partitions[PartitionId(large, partition)], ROWS_OF_A_PART // 4)
    after = names(state)

    own = [places for places in after.values() if any(place.topic_id == large for place in places)]
    assert len(own) == 4
    assert all({place.topic_id for place in places} == {large} for places in own)
    assert len(before.keys() & after.keys()) == len(before) - 1


def test_a_partition_above_the_limit_is_alone() -> None:
    state = store_of(3, partitions=2)
    place = PartitionId(list(state.topics)[1], 1)
    fill(state.partitions[place], 2 * ROWS_OF_A_PART)

    assert {place} in names(state).values()


def test_a_topic_that_goes_changes_the_name_of_one_part() -> None:
    state = store_of(1000)
    before = names(state)

    del state.topics[list(state.topics)[500]]

    assert len(before.keys() & names(state).keys()) == len(before) - 1
