"""Requests of a consumer that polls and finds nothing, in a store where a request costs money."""

from __future__ import annotations

import pytest

from eoslog.consumer.consumer import Consumer
from eoslog.store import Store
from tests.unit.support.reading import T0, T1, assigned, send, taken
from tests.unit.support.world import World, faulty

LEAST_PAUSE_MS = 1_000


@pytest.fixture
def idle(store: Store, world: World, monkeypatch: pytest.MonkeyPatch) -> Consumer:
    """A consumer of another process in a remote store. It has polled for ten seconds without a record."""
    consumer = assigned(remote_process(world, monkeypatch))
    poll_for(world, consumer, 10_000, timeout=0.1)
    return consumer


def remote_process(world: World, monkeypatch: pytest.MonkeyPatch) -> Store:
    process = world.process()
    monkeypatch.setattr(process.object_store, "is_remote", True, raising=False)
    monkeypatch.setattr(process.object_store, "least_poll_pause_ms", LEAST_PAUSE_MS, raising=False)
    return process


def poll_for(world: World, consumer: Consumer, duration_ms: int, timeout: float) -> int:
    """Poll, and return the number of requests. A poll takes a millisecond at least."""
    requests, end_ms = consumer._store.requests, world.time_ms + duration_ms
    before = requests.total()
    while world.time_ms < end_ms:
        assert consumer.poll(timeout) == []
        world.pass_time(1)
    return requests.total() - before


@pytest.mark.parametrize(("timeout", "duration_s"), [(0, 5), (0.1, 20), (1, 20), (10, 20)])
def test_an_idle_consumer_sends_a_request_a_second(
    idle: Consumer, world: World, timeout: float, duration_s: int
) -> None:
    assert poll_for(world, idle, duration_s * 1000, timeout) <= duration_s + 1


def test_an_idle_member_also_sends_its_heartbeats(store: Store, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = remote_process(world, monkeypatch).consumer("g", session_timeout_ms=60_000)
    consumer.subscribe("t")
    poll_for(world, consumer, 10_000, 0.1)

    assert poll_for(world, consumer, 60_000, 0.1) <= 61 + 3


def test_a_local_poll_always_reads_the_newest_state(store: Store, world: World) -> None:
    consumer = assigned(world.process())
    for number in range(10):
        assert consumer.poll(0) == []
        send(store, b"%d" % number)
        assert taken(consumer.poll(0)) == [b"%d" % number]


def test_a_record_of_another_process_is_found_within_the_least_pause(
    idle: Consumer, store: Store, world: World
) -> None:
    send(store, b"v")
    began_ms = world.time_ms

    assert taken(idle.poll(10)) == [b"v"]

    assert world.time_ms - began_ms <= LEAST_PAUSE_MS


def test_records_of_this_process_are_found_without_a_read_of_the_log(idle: Consumer) -> None:
    send(idle._store, b"v")
    faulty(idle._store).gets.clear()

    assert taken(idle.poll(0)) == [b"v"]

    assert [path for path in faulty(idle._store).gets if not path.startswith("t/")] == []


def test_pauses_are_short_again_after_a_record(idle: Consumer, store: Store, world: World) -> None:
    send(store, b"1")
    assert taken(idle.poll(10)) == [b"1"]
    assert idle.poll(0.05) == []
    send(store, b"2")
    began_ms = world.time_ms

    assert taken(idle.poll(10)) == [b"2"]

    assert world.time_ms - began_ms <= 100


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
def test_a_seek_finds_a_record_that_another_process_has_told(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    consumer = assigned(remote_process(world, monkeypatch), T0, auto_offset_reset=policy)
    consumer.seek(T0, 0)
    poll_for(world, consumer, 10_000, timeout=0.1)
    send(store, b"0", b"1", b"2")

    consumer.seek(T0, 2)

    assert taken(consumer.poll(0)) == [b"2"]


def test_a_seek_to_the_end_takes_the_newest_end(idle: Consumer, store: Store) -> None:
    send(store, b"before")

    idle.seek_to_end()
    idle.poll(0)
    send(store, b"after")

    assert taken(idle.poll(10)) == [b"after"]


def test_partitions_that_are_assigned_in_a_pause_are_read_at_once(idle: Consumer, store: Store) -> None:
    send(store, b"0", partition=0)
    idle.assign([T0, T1])

    assert taken(idle.poll(0)) == [b"0"]
