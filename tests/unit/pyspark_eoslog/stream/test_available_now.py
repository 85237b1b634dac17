"""``availableNow``: a run ends where the log ended when it began, in as many micro-batches as its limits ask for."""

from __future__ import annotations

from typing import Any

import pytest

import eoslog
from tests.unit.pyspark_eoslog.stream.world import NUMBERS, drain, held, produce, reader, rows, step

LEVELS = pytest.mark.parametrize(
    "level",
    [{}, {"isolationLevel": "read_uncommitted"}, {"isolationLevel": "snapshot"}, {"transactionConsistent": "true"}],
)
PATTERN = {"subscribePattern": "in|new.*"}


@LEVELS
@pytest.mark.parametrize(
    "limit", [{}, {"maxFilesPerTrigger": 1}, {"maxOffsetsPerTrigger": 2}, {"maxBytesPerTrigger": 1}]
)
def test_rows_that_come_during_a_run_are_left_to_the_next_run(
    store: eoslog.Store, level: dict[str, Any], limit: dict[str, Any]
) -> None:
    for number in range(4):
        produce(store, number)
    stream = reader(store, **PATTERN, **level, **limit)
    stream.prepareForTriggerAvailableNow()
    start = stream.initialOffset()
    first = step(stream, start)
    produce(store, 4)
    store.admin.create_partitions("in", 2)
    produce(store, 5, partition=1)
    store.admin.create_topic("new", schema=NUMBERS)
    produce(store, 6, topic="new")

    batches, position = drain(stream, first)

    assert sorted(rows(stream, start, first) + [number for batch in batches for number in batch]) == [0, 1, 2, 3]
    assert "new" not in position["topics"]
    another = reader(store, **PATTERN, **level, **limit)
    another.prepareForTriggerAvailableNow()
    assert sorted(number for batch in drain(another, position)[0] for number in batch) == [4, 5, 6]


@LEVELS
def test_a_run_that_died_in_the_middle_is_completed_by_the_next(store: eoslog.Store, level: dict[str, Any]) -> None:
    for number in range(4):
        produce(store, number)
    died = reader(store, **PATTERN, **level, maxFilesPerTrigger=1)
    died.prepareForTriggerAvailableNow()
    start = died.initialOffset()
    first = step(died, start)
    planned = step(died, first)
    store.admin.create_topic("new", schema=NUMBERS)
    produce(store, 4, topic="new")

    again = reader(store, **PATTERN, **level, maxFilesPerTrigger=1)
    again.prepareForTriggerAvailableNow()
    replayed = rows(again, first, planned)
    batches, _ = drain(again, planned)

    assert rows(died, start, first) + replayed == [0, 1]
    assert sorted(number for batch in batches for number in batch) == [2, 3, 4]


@LEVELS
def test_a_frozen_run_asks_the_log_nothing_more(store: eoslog.Store, level: dict[str, Any]) -> None:
    for number in range(4):
        produce(store, number)
    stream = reader(store, **level, maxFilesPerTrigger=1)
    stream.prepareForTriggerAvailableNow()
    position = stream.initialOffset()
    before = held(stream).requests.total()

    while (end := step(stream, position)) != position:
        stream.partitions(position, end)
        position = end

    assert held(stream).requests.total() == before
    assert stream.reportLatestOffset() is not None


def test_a_pattern_that_nothing_matches_yet_is_done_at_once(store: eoslog.Store) -> None:
    stream = reader(store, subscribePattern="new.*")
    stream.prepareForTriggerAvailableNow()
    start = stream.initialOffset()

    assert step(stream, start) == start
    assert stream.partitions(start, start) == []
