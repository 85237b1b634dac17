"""``minOffsetsPerTrigger`` and ``maxTriggerDelay``: when a stream waits for more, and for how long."""

from __future__ import annotations

from typing import Any

import pytest

import eoslog
from tests.unit.pyspark_eoslog.stream.world import ManualEnvironment, drain, produce, reader, rows, step

LEVELS = pytest.mark.parametrize("isolation", ["read_committed", "snapshot"])


@LEVELS
def test_the_first_micro_batch_of_a_run_never_waits(
    store: eoslog.Store, time: ManualEnvironment, isolation: str
) -> None:
    stream = reader(store, minOffsetsPerTrigger=10, isolationLevel=isolation)
    start = stream.initialOffset()
    produce(store, 1)
    first = step(stream, start)
    produce(store, 2)

    assert rows(stream, start, first) == [1]
    assert step(stream, first) == first
    restarted = reader(store, minOffsetsPerTrigger=10, isolationLevel=isolation)
    assert rows(restarted, first, step(restarted, first)) == [2]


@LEVELS
def test_later_ones_wait_for_enough(store: eoslog.Store, time: ManualEnvironment, isolation: str) -> None:
    stream = reader(store, minOffsetsPerTrigger=4, isolationLevel=isolation)
    position = first_batch(store, stream)
    produce(store, 1, 2)
    assert step(stream, position) == position

    produce(store, 3, 4)

    assert rows(stream, position, step(stream, position)) == [1, 2, 3, 4]


@LEVELS
def test_or_until_the_delay_is_over(store: eoslog.Store, time: ManualEnvironment, isolation: str) -> None:
    stream = reader(store, minOffsetsPerTrigger=100, maxTriggerDelay="30s", isolationLevel=isolation)
    position, began_ms = first_batch(store, stream), time.now_ms
    produce(store, 1)
    while step(stream, position) == position:
        assert time.now_ms < began_ms + 60_000

    assert 30_000 <= time.now_ms - began_ms < 32_000


def test_the_delay_is_fifteen_minutes_unless_told_otherwise(store: eoslog.Store, time: ManualEnvironment) -> None:
    stream = reader(store, minOffsetsPerTrigger=100)
    position = first_batch(store, stream)
    produce(store, 1)
    time.now_ms += 15 * 60_000 - 10_000
    assert step(stream, position) == position

    time.now_ms += 10_000

    assert rows(stream, position, step(stream, position)) == [1]


def test_the_delay_counts_from_the_last_micro_batch_however_long_nothing_came(
    store: eoslog.Store, time: ManualEnvironment
) -> None:
    stream = reader(store, minOffsetsPerTrigger=100, maxTriggerDelay="30s")
    position = first_batch(store, stream)
    for _ in range(60):
        assert step(stream, position) == position
    assert time.now_ms > 45_000
    produce(store, 1)

    assert rows(stream, position, step(stream, position)) == [1]


def test_a_minimum_and_a_maximum_hold_together(store: eoslog.Store, time: ManualEnvironment) -> None:
    stream = reader(store, minOffsetsPerTrigger=4, maxOffsetsPerTrigger=5)
    position = first_batch(store, stream)
    produce(store, *range(11))

    batches, position = drain(stream, position)
    assert batches == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    time.now_ms += 15 * 60_000
    assert drain(stream, position)[0] == [[10]]


def test_available_now_waits_for_nothing(store: eoslog.Store, time: ManualEnvironment) -> None:
    stream = reader(store, minOffsetsPerTrigger=4, maxOffsetsPerTrigger=5)
    produce(store, *range(11))
    stream.prepareForTriggerAvailableNow()

    assert drain(stream, stream.initialOffset())[0] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10]]
    assert not any(time.slept)


def first_batch(store: eoslog.Store, stream: Any) -> Any:
    """The end of a first micro-batch, which does not wait."""
    start = stream.initialOffset()
    produce(store, 0)
    return step(stream, start)
