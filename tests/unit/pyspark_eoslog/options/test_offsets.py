"""Where a read begins and ends: a timestamp for all comes before one for each, and both come before offsets."""

from __future__ import annotations

import pytest

from eoslog.errors import InvalidOption
from pyspark_eoslog.options.offset_options import ByTimestamp, ending_offsets, starting_offsets

EACH = '{"a": {"0": 5}}'


def test_offsets_are_read_as_the_kafka_connector_reads_them() -> None:
    assert starting_offsets({}) is None
    assert starting_offsets({"startingoffsets": "Earliest"}) == "earliest"
    assert ending_offsets({"endingoffsets": '{"a": {"0": 23, "1": -2}}'}) == {"a": {0: 23, 1: -2}}


def test_times_come_before_offsets_and_one_for_all_before_one_for_each() -> None:
    options = {"startingoffsets": "earliest", "startingoffsetsbytimestamp": EACH}
    for_each = ByTimestamp("startingOffsetsByTimestamp", {"a": {0: 5}}, "error")
    for_all = ByTimestamp("startingTimestamp", 9, "error")

    assert starting_offsets(options) == for_each
    assert starting_offsets(options | {"startingtimestamp": " 9 "}) == for_all


def test_a_missing_later_row_fails_only_at_a_strict_start() -> None:
    ends = ending_offsets({"endingoffsetsbytimestamp": EACH})
    starts = starting_offsets({"startingtimestamp": "1", "startingoffsetsbytimestampstrategy": "LATEST"})

    assert ends == ByTimestamp("endingOffsetsByTimestamp", {"a": {0: 5}}, "latest")
    assert starts == ByTimestamp("startingTimestamp", 1, "latest")


@pytest.mark.parametrize("value", ["newest", "[]", '{"a": {"0": -3}}'])
def test_other_offsets_are_refused(value: str) -> None:
    with pytest.raises(InvalidOption, match="'earliest', 'latest' and offsets by topic and partition as JSON"):
        ending_offsets({"endingoffsets": value})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("startingtimestamp", "-1", "whole number"),
        ("startingtimestamp", "2026-01-01", "whole number of milliseconds since the epoch, of at least 0"),
        ("startingoffsetsbytimestamp", "1000", "ms since the epoch by topic and partition"),
        ("startingoffsetsbytimestamp", '{"a": {"0": -1}}', "ms since the epoch by topic and partition"),
        ("startingoffsetsbytimestampstrategy", "earliest", "Valid are 'error' and 'latest'"),
    ],
)
def test_other_times_are_refused_though_another_option_comes_before(name: str, value: str, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        starting_offsets({"startingtimestamp": "1", name: value})
