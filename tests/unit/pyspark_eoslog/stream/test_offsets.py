"""Stream offsets: one canonical text, and checks of where they come from."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eoslog.errors import CorruptRecord, InvalidOption, UnknownTopicOrPartition
from eoslog.state.names import TopicPartition
from pyspark_eoslog.stream.stream_offsets import Began, StreamOffsets, check_joined, check_origin

IDS = {"b": "2" * 32, "a": "1" * 32}


def offsets(**changes: Any) -> StreamOffsets:
    values: dict[str, Any] = {
        "store_id": "s",
        "topic_ids": IDS,
        "offsets": {TopicPartition("b", 10): 3, TopicPartition("b", 9): 2, TopicPartition("a", 0): 1},
    }
    return StreamOffsets(**{**values, **changes})


def test_the_text_is_sorted_by_topic_and_partition_number() -> None:
    assert json.dumps(offsets().as_json()) == (
        '{"store_id": "s", "topics": {"a": {"topic_id": "11111111111111111111111111111111", "0": 1}, '
        '"b": {"topic_id": "22222222222222222222222222222222", "9": 2, "10": 3}}}'
    )


def test_offsets_survive_the_checkpoint() -> None:
    assert StreamOffsets.of(json.loads(json.dumps(offsets().as_json()))) == offsets()


def test_a_slot_survives_the_checkpoint() -> None:
    snapshot = offsets(offsets={}, slot=17)

    assert StreamOffsets.of(json.loads(json.dumps(snapshot.as_json()))) == snapshot


def test_the_beginning_of_a_micro_batch_is_stored_but_not_compared() -> None:
    began = Began({TopicPartition("b", 10): 2, TopicPartition("b", 9): 1, TopicPartition("a", 0): 0}, 3)
    end = offsets(is_initial=True, began=began)

    text = json.dumps(end.as_json())
    stored = StreamOffsets.of(json.loads(text))

    assert text.endswith(', "initial": true, "began": {"slot": 3, "topics": {"a": {"0": 0}, "b": {"9": 1, "10": 2}}}}')
    assert (stored.is_initial, stored.began) == (True, began)
    assert end == offsets()


@pytest.mark.parametrize("began", [None, [], {"slot": 1}, {"topics": {"a": {"0": "1"}}}, {"topics": {"a": {"x": 1}}}])
def test_a_damaged_beginning_is_refused(began: Any) -> None:
    with pytest.raises(CorruptRecord, match="not those of an eoslog stream"):
        StreamOffsets.of({**offsets().as_json(), "began": began})


@pytest.mark.parametrize("value", [None, {}, {"topics": {}}, {"store_id": "s", "topics": {"a": {"0": 1}}}, "text"])
def test_a_checkpoint_of_another_source_is_refused(value: Any) -> None:
    with pytest.raises(CorruptRecord, match="not those of an eoslog stream"):
        StreamOffsets.of(value)


def test_another_store_is_refused() -> None:
    with pytest.raises(UnknownTopicOrPartition, match="belongs to the store s"):
        check_origin(offsets(), "t", counts_slots=False)


@pytest.mark.parametrize(("stored", "counts_slots"), [(offsets(), True), (offsets(offsets={}, slot=3), False)])
def test_another_isolation_level_is_refused_where_offsets_mean_something_else(
    stored: StreamOffsets, counts_slots: bool
) -> None:
    with pytest.raises(InvalidOption, match="isolation level"):
        check_origin(stored, "s", counts_slots=counts_slots)


def test_a_topic_joins_a_stream_of_slots_only_if_created_later() -> None:
    begin = offsets(topic_ids={"a": IDS["a"]}, offsets={}, slot=3)

    check_joined(begin, {"a": 1, "b": 4})
    with pytest.raises(InvalidOption, match="topic b was not part"):
        check_joined(begin, {"a": 1, "b": 3})
