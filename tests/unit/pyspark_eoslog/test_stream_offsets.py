"""Stream offsets: canonical text, origin checks, and limits that always make progress."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.errors import CorruptRecord, InvalidOption, UnknownTopicOrPartition
from eoslog.rules.names import TopicPartition
from pyspark_eoslog.stream_offsets import StreamOffsets, check_origin, limit_offsets

IDS = {"b": "2" * 32, "a": "1" * 32}


def offsets(**changes: Any) -> StreamOffsets:
    values: dict[str, Any] = {
        "store_id": "s",
        "topic_ids": IDS,
        "offsets": {TopicPartition("b", 10): 3, TopicPartition("b", 9): 2, TopicPartition("a", 0): 1},
    }
    return StreamOffsets(**{**values, **changes})


def test_the_text_is_sorted_by_topic_and_by_the_number_of_the_partition() -> None:
    assert json.dumps(offsets().as_json()) == (
        '{"store_id": "s", "topics": {"a": {"topic_id": "11111111111111111111111111111111", "0": 1}, '
        '"b": {"topic_id": "22222222222222222222222222222222", "9": 2, "10": 3}}}'
    )


def test_offsets_survive_the_checkpoint() -> None:
    assert StreamOffsets.of(json.loads(json.dumps(offsets().as_json()))) == offsets()


def test_a_slot_survives_the_checkpoint() -> None:
    snapshot = offsets(offsets={}, slot=17)

    assert StreamOffsets.of(json.loads(json.dumps(snapshot.as_json()))) == snapshot


@pytest.mark.parametrize("value", [None, {}, {"topics": {}}, {"store_id": "s", "topics": {"a": {"0": 1}}}, "text"])
def test_a_checkpoint_of_another_source_is_refused(value: Any) -> None:
    with pytest.raises(CorruptRecord, match="not those of an eoslog stream"):
        StreamOffsets.of(value)


def test_a_topic_that_was_created_again_is_refused() -> None:
    with pytest.raises(UnknownTopicOrPartition, match="topic a was deleted and created again"):
        check_origin(offsets(), offsets(topic_ids={**IDS, "a": "3" * 32}))


def test_another_store_is_refused() -> None:
    with pytest.raises(UnknownTopicOrPartition, match="belongs to the store s"):
        check_origin(offsets(), offsets(store_id="t"))


def test_another_isolation_level_is_refused_where_offsets_mean_something_else() -> None:
    with pytest.raises(InvalidOption, match="isolation level"):
        check_origin(offsets(), offsets(slot=3))


def test_a_topic_cannot_join_a_stream_of_slots() -> None:
    with pytest.raises(InvalidOption, match="topic b was not part"):
        check_origin(offsets(topic_ids={"a": IDS["a"]}, slot=1), offsets(slot=3))


places = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 4))


@given(st.dictionaries(places, st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1), st.integers(1, 500))
def test_a_limit_stays_within_the_log_and_makes_progress(
    ranges: dict[TopicPartition, tuple[int, int]], max_offsets: int
) -> None:
    start = {place: first for place, (first, _) in ranges.items()}
    end = {place: first + more for place, (first, more) in ranges.items()}

    limited = limit_offsets(start, end, max_offsets)

    assert limited.keys() == end.keys()
    assert all(start[place] <= limited[place] <= end[place] for place in end)
    assert (limited == start) == (end == start)
    # A share of less than one offset counts as one, for each partition.
    assert sum(limited[place] - start[place] for place in end) <= max_offsets + len(end)
