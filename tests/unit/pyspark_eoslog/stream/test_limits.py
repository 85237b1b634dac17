"""Limits: what options and Spark's trigger make of them, and shares of offsets that always make progress."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    ReadMinRows,
)

from eoslog.read.admission import limit_offsets
from eoslog.state.names import TopicPartition
from pyspark_eoslog.stream.next_end import Limits


@pytest.mark.parametrize(
    ("given_limits", "wanted"),
    [
        ({}, ReadAllAvailable()),
        ({"max_offsets": 1, "max_bytes": 2, "max_files": 3, "min_offsets": 4}, ReadMaxRows(1)),
        ({"max_bytes": 2, "max_files": 3, "min_offsets": 4}, ReadMaxBytes(2)),
        ({"max_files": 3, "min_offsets": 4}, ReadMaxFiles(3)),
        ({"min_offsets": 4}, ReadMinRows(4)),
    ],
)
def test_spark_is_told_one_limit_and_hands_it_back_without_harm(given_limits: Any, wanted: ReadLimit) -> None:
    limits = Limits(**given_limits)

    assert limits.default_read_limit() == wanted
    assert limits.asked_for(wanted) == limits


def test_a_trigger_that_wants_everything_is_given_everything() -> None:
    assert Limits(1, 2, 3, 4).asked_for(ReadAllAvailable()) == Limits()


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
