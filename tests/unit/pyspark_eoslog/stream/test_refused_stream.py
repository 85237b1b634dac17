"""A stream with wrong options: Spark's runner gets a reader, which tells what is wrong at its first call."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import eoslog
from eoslog import InvalidOption
from pyspark_eoslog import DefaultSource
from pyspark_eoslog.stream.read_limits import SupportsTriggerAvailableNow
from pyspark_eoslog.stream.stream_reader import EosLogStreamReader
from tests.unit.pyspark_eoslog.stream.world import SCHEMA


@pytest.mark.parametrize("option", ["endingOffsets", "nonsense"])
@pytest.mark.parametrize(
    "call",
    [
        lambda reader: reader.initialOffset(),
        lambda reader: reader.getDefaultReadLimit(),
        lambda reader: reader.prepareForTriggerAvailableNow(),
        lambda reader: reader.latestOffset(),
        lambda reader: reader.latestOffset({}, None),
        lambda reader: reader.partitions({}, {}),
    ],
    ids=["initial", "limit", "available now", "latest", "next", "partitions"],
)
def test_wrong_options_are_reported_at_the_first_call(
    store: eoslog.Store, option: str, call: Callable[[EosLogStreamReader], object]
) -> None:
    source = DefaultSource({"path": store.url, "topic": "in", option: "latest"})
    reader = source.streamReader(SCHEMA)

    with pytest.raises(InvalidOption, match=option):
        call(reader)
    reader.stop()
    assert isinstance(reader, SupportsTriggerAvailableNow)
