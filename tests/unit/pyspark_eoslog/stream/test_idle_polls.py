"""An idle stream where polls are cheap: a row is seen soon, and polls take a small part of the time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import eoslog
from eoslog.storage.local_store import LocalStore
from eoslog.storage.object_store import StoredObject
from pyspark_eoslog.stream.stream_reader import EosLogStreamReader
from tests.unit.pyspark_eoslog.stream.world import ManualEnvironment, held, produce, reader, rows

LOCAL_PAUSE_MS = LocalStore.least_poll_pause_ms


def idle(stream: EosLogStreamReader, position: Any, polls: int = 6) -> None:
    """Let the pauses grow to their full length."""
    for _ in range(polls):
        assert stream.latestOffset(position, ReadAllAvailable()) == position


def at(time: ManualEnvironment, monkeypatch: pytest.MonkeyPatch, moment_ms: int, act: Callable[[], object]) -> None:
    """Do something once, during the first sleep that reaches a moment."""
    sleep, acts = time.sleep_ms, [act]

    def sleep_ms(duration_ms: float) -> None:
        sleep(duration_ms)
        if acts and time.now_ms >= moment_ms:
            acts.pop()()

    monkeypatch.setattr(time, "sleep_ms", sleep_ms)


def test_a_row_ends_the_wait(store: eoslog.Store, time: ManualEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = reader(store)
    start = stream.initialOffset()
    idle(stream, start)
    moment_ms = time.now_ms + 300
    at(time, monkeypatch, moment_ms, lambda: produce(store, 7))

    end = stream.latestOffset(start, ReadAllAvailable())

    assert rows(stream, start, end) == [7]
    assert time.now_ms <= moment_ms + LOCAL_PAUSE_MS


@pytest.mark.usefixtures("paid_requests")
def test_where_requests_cost_money_the_wait_is_not_shortened(
    store: eoslog.Store, time: ManualEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = reader(store)
    start = stream.initialOffset()
    idle(stream, start)
    sleeps = len(time.slept)
    at(time, monkeypatch, time.now_ms + 1, lambda: produce(store, 7))

    end = stream.latestOffset(start, ReadAllAvailable())

    assert end != start
    assert time.slept[sleeps:] == [1000]


def test_commits_elsewhere_do_not_end_the_wait(
    store: eoslog.Store, time: ManualEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.admin.create_topic("other", schema=store.scan("in").schema)
    stream = reader(store)
    start = stream.initialOffset()
    idle(stream, start)
    began_ms = time.now_ms
    at(time, monkeypatch, began_ms + 100, lambda: produce(store, 7, topic="other"))

    assert stream.latestOffset(start, ReadAllAvailable()) == start

    assert time.now_ms - began_ms == 1000


def test_an_idle_stream_polls_as_often_as_is_promised(store: eoslog.Store, time: ManualEnvironment) -> None:
    stream = reader(store)
    start = stream.initialOffset()
    idle(stream, start)
    began_ms, before = time.now_ms, held(stream).requests.total()

    idle(stream, start, 60)

    polls = held(stream).requests.total() - before
    verification = 2
    assert polls <= (time.now_ms - began_ms) / LOCAL_PAUSE_MS + verification
    assert polls >= (time.now_ms - began_ms) / LOCAL_PAUSE_MS / 2


@pytest.mark.parametrize("cost_ms", [1, 4, 30])
def test_polls_take_no_more_than_a_fiftieth_of_the_time(
    store: eoslog.Store, time: ManualEnvironment, monkeypatch: pytest.MonkeyPatch, cost_ms: int
) -> None:
    stream = reader(store)
    start = stream.initialOffset()
    idle(stream, start)
    get, spent_ms = LocalStore.get, 0

    def slow_get(objects: LocalStore, path: str) -> StoredObject:
        nonlocal spent_ms
        time.now_ms += cost_ms
        spent_ms += cost_ms
        return get(objects, path)

    monkeypatch.setattr(LocalStore, "get", slow_get)
    began_ms, before = time.now_ms, held(stream).requests.total()

    idle(stream, start, 60)

    assert spent_ms >= 60 * cost_ms
    polls = held(stream).requests.total() - before
    once_a_second = 60 + 2
    assert polls <= (time.now_ms - began_ms) / (50 * cost_ms) + once_a_second
