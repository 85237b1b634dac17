"""Following the log: few requests, whatever the history, and nothing that changed goes unnoticed."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import eoslog
from eoslog.errors import NotAStore, StoreAccessDenied, UnknownTopicOrPartition
from pyspark_eoslog.stream.stream_reader import EosLogStreamReader
from pyspark_eoslog.worker import this_worker
from tests.unit.pyspark_eoslog.stream.world import (
    NUMBERS,
    ManualEnvironment,
    drain,
    held,
    produce,
    reader,
    rows,
    seal,
    step,
)
from tests.unit.support.transactions import open_transaction

pytestmark = pytest.mark.usefixtures("paid_requests")

CONFIG = eoslog.TopicConfig(segment_batches=2)


def poll(stream: EosLogStreamReader, position: Any, times: int) -> list[int]:
    """The requests of each of so many polls that find nothing."""
    requests = []
    for _ in range(times):
        before = held(stream).requests.total()
        assert stream.latestOffset(position, ReadAllAvailable()) == position
        requests.append(held(stream).requests.total() - before)
    return requests


def newest_slot(store: eoslog.Store) -> int:
    return store.read(lambda state, slot: slot, refresh=False)


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "in"},
        {"subscribePattern": "in|other-.*"},
        {"assign": '{"in": [0]}'},
        {"subscribePattern": "in|other-.*", "isolationLevel": "snapshot"},
        {"subscribePattern": "in|other-.*", "transactionConsistent": "true"},
        {"subscribe": "in", "maxFilesPerTrigger": 1, "maxBytesPerTrigger": 1},
    ],
)
def test_an_idle_poll_is_one_request_for_any_history_and_topics(
    store: eoslog.Store, time: ManualEnvironment, options: dict[str, Any]
) -> None:
    for number in range(20):
        store.admin.create_topic(f"other-{number}", schema=NUMBERS, partitions=3)
    stream = reader(store, **options)
    position = stream.initialOffset()
    counted = []
    for _ in range(3):
        for number in range(6):
            produce(store, number)
        seal(store)
        _, position = drain(stream, position)
        counted += poll(stream, position, 5)

    assert counted == [1] * 15


def test_a_growing_number_of_sealed_segments_costs_a_stream_nothing(store: eoslog.Store) -> None:
    store.admin.create_topic("sealed", schema=NUMBERS, config=CONFIG)
    stream = reader(store, subscribe="sealed")
    position = stream.initialOffset()
    counted = []
    for number in range(12):
        produce(store, number, topic="sealed")
        seal(store)
        slots = store.read(lambda state, slot: slot)
        known = held(stream).log.replica.slot
        before = held(stream).requests.total()
        end = step(stream, position)
        assert rows(stream, position, end) == [number]
        counted.append(held(stream).requests.total() - before - (slots - known))
        position = end

    new_index, probes = 1, 2
    assert max(counted[2:]) <= new_index + probes


def test_the_memory_of_a_stream_does_not_grow_with_the_rows_that_it_has_read(store: eoslog.Store) -> None:
    store.admin.create_topic("sealed", partitions=2, schema=NUMBERS, config=CONFIG)
    for number in range(16):
        produce(store, number, topic="sealed", partition=number % 2)
    seal(store)
    stream = reader(store, subscribe="sealed", maxFilesPerTrigger=1)
    position, kept = stream.initialOffset(), []
    while (end := step(stream, position)) != position:
        position = end
        kept.append(len(stream._next_end._admission._next_slots))

    assert len(kept) == 16
    assert max(kept) <= 2
    assert kept[-1] == 0


def test_once_a_minute_one_more_request_checks_the_stores_identity(
    store: eoslog.Store, time: ManualEnvironment
) -> None:
    stream = reader(store)
    start = stream.initialOffset()
    poll(stream, start, 5)
    began_ms, began = time.now_ms, held(stream).requests.total()

    poll(stream, start, 300)

    minutes = (time.now_ms - began_ms) / 60_000
    assert minutes > 4
    requests = held(stream).requests.total() - began
    assert 300 + int(minutes) <= requests <= 300 + int(minutes) + 1
    assert requests <= (time.now_ms - began_ms) / 1000 + 1


@pytest.mark.parametrize("as_long", [False, True])
def test_a_store_recreated_in_place_ends_the_stream_within_a_minute(
    store: eoslog.Store, time: ManualEnvironment, as_long: bool
) -> None:
    produce(store, 1)
    stream = reader(store)
    _, position = drain(stream, stream.initialOffset())
    shutil.rmtree(store.url)
    another = eoslog.connect(store.url, fsync=False)
    another.admin.create_topic("in", schema=NUMBERS)
    if as_long:
        produce(another, 2)
        assert newest_slot(another) == newest_slot(store)

    with pytest.raises(UnknownTopicOrPartition, match="the checkpoint belongs to the store"):
        poll(stream, position, 70)
    assert time.now_ms <= 62_000


def test_a_store_that_is_gone_ends_the_stream_within_a_minute(store: eoslog.Store, time: ManualEnvironment) -> None:
    stream = reader(store)
    start = stream.initialOffset()
    shutil.rmtree(store.url)

    with pytest.raises(NotAStore):
        poll(stream, start, 70)


def test_a_denied_abort_of_a_dead_transaction_is_not_repeated_constantly(
    store: eoslog.Store, time: ManualEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = reader(store)
    start = stream.initialOffset()
    dead = open_transaction(store, "dead", transaction_timeout_ms=500)
    dead.send_table("in", pa.table({"n": [0]}, schema=NUMBERS))
    dead.flush()
    # Not before: the record of the flush would abort a transaction that is past its time-out already.
    threading.Event().wait(0.6)

    def denied(*arguments: Any, **keywords: Any) -> Any:
        raise StoreAccessDenied("read only")

    monkeypatch.setattr(held(stream).object_store, "put_if_absent", denied)
    stream.latestOffset(start, ReadAllAvailable())

    assert poll(stream, start, 50) == [1] * 50


def test_available_now_does_not_stay_behind_a_dead_transaction(store: eoslog.Store) -> None:
    dead = open_transaction(store, "dead", transaction_timeout_ms=1)
    dead.send_table("in", pa.table({"n": [0]}, schema=NUMBERS))
    dead.flush()
    produce(store, 1)
    stream = reader(store)

    stream.prepareForTriggerAvailableNow()

    assert drain(stream, stream.initialOffset())[0] == [[1]]


def test_the_reported_latest_offset_needs_no_request_and_ignores_limits(store: eoslog.Store) -> None:
    stream = reader(store, maxOffsetsPerTrigger=1)
    start = stream.initialOffset()
    produce(store, 1, 2, 3)
    assert stream.reportLatestOffset() is None
    step(stream, start)
    before = held(stream).requests.total()

    assert stream.reportLatestOffset()["topics"]["in"]["0"] == 4  # type: ignore[index]
    assert held(stream).requests.total() == before


def test_readers_share_nothing_but_the_store(store: eoslog.Store, tmp_path: Path) -> None:
    produce(store, 1)
    one, other = reader(store), reader(store)
    one.prepareForTriggerAvailableNow()
    start = one.initialOffset()
    produce(store, 2)

    assert drain(one, start)[0] == [[1]]
    assert drain(other, start)[0] == [[1, 2]]
    assert len(this_worker().stores) == 1
