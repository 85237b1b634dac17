"""The processes of one host take turns: in order, woken at once, and never blocked by a stopped process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eoslog.storage import host_queue
from eoslog.storage.environment import Environment
from eoslog.storage.host_queue import HostQueue


@pytest.fixture
def queue(tmp_path: Path) -> HostQueue:
    return HostQueue(str(tmp_path), Environment())


@contextmanager
def taken(queue: HostQueue) -> Iterator[bool]:
    """Wait for the turn. The context's value is True if it had to wait."""
    with queue.place() as place:
        place.wait_for_turn()
        yield place.must_wait


def wait_until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        threading.Event().wait(0.001)


def wait_threads() -> int:
    return sum(thread.name == "eoslog-turn" for thread in threading.enumerate())


def test_a_free_turn_begins_without_a_wait(queue: HostQueue) -> None:
    with taken(queue) as has_waited:
        assert not has_waited


def test_the_next_is_woken_when_the_turn_ends(queue: HostQueue) -> None:
    told: list[bool] = []

    def take() -> None:
        with taken(queue) as has_waited:
            told.append(has_waited)

    waiting = threading.Thread(target=take)
    with taken(queue):
        waiting.start()
        wait_until(lambda: wait_threads() == 1)
        assert told == []
    waiting.join()

    assert told == [True]


def test_the_one_that_waits_is_before_the_one_that_has_just_had_its_turn(queue: HostQueue) -> None:
    order: list[str] = []

    def take(name: str) -> None:
        with taken(queue):
            order.append(name)

    waiting = threading.Thread(target=take, args=("waiting",))
    with taken(queue):
        waiting.start()
        wait_until(lambda: wait_threads() == 1)
    take("again")
    waiting.join()

    assert order == ["waiting", "again"]


def test_a_holder_that_was_stopped_delays_only_the_first_turn(
    queue: HostQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_queue, "PATIENCE_MS", 10)
    with taken(queue):
        with taken(queue) as has_waited:
            assert has_waited
        monkeypatch.setattr(host_queue, "PATIENCE_MS", 3_600_000)
        with taken(queue) as has_waited:
            assert has_waited

    wait_until(lambda: wait_threads() == 0)
    with taken(queue) as has_waited:
        assert not has_waited


def test_a_wait_that_was_given_up_takes_no_turn_later(queue: HostQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_queue, "PATIENCE_MS", 10)
    with taken(queue), taken(queue):
        pass

    wait_until(lambda: wait_threads() == 0)
    for _ in range(3):
        with taken(queue) as has_waited:
            assert not has_waited


def test_the_turn_of_a_process_that_dies_is_free(queue: HostQueue) -> None:
    child = os.fork()
    if child == 0:
        taken(queue).__enter__()
        os._exit(0)
    os.waitpid(child, 0)

    with taken(queue) as has_waited:
        assert not has_waited


def test_a_forked_child_does_not_keep_the_turn_of_its_parent(queue: HostQueue) -> None:
    leave, left = os.pipe()
    with taken(queue):
        child = os.fork()
        if child == 0:
            os.close(left)
            os.read(leave, 1)
            os._exit(0)
    try:
        with taken(queue) as has_waited:
            assert not has_waited
    finally:
        os.close(left)
        os.close(leave)
        os.waitpid(child, 0)


def test_without_a_directory_to_write_to_nobody_waits(tmp_path: Path) -> None:
    queue = HostQueue(str(tmp_path / "missing"), Environment())

    with taken(queue) as first, taken(queue) as second:
        assert not first
        assert not second


def test_turns_leave_no_file_open(queue: HostQueue) -> None:
    with taken(queue):
        pass
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        with taken(queue):
            pass

    assert len(os.listdir("/proc/self/fd")) == before
    assert not host_queue._open_waits


def test_a_place_says_how_many_are_before_it(queue: HostQueue) -> None:
    with queue.place() as first, queue.place() as second, queue.place() as third:
        assert not first.must_wait
        assert second.must_wait
        assert not second.is_behind
        assert third.is_behind


def test_a_process_that_leaves_while_it_is_next_gets_no_turn_later(queue: HostQueue) -> None:
    with queue.place():
        with queue.place() as place:
            place.wait_to_be_next()
        wait_until(lambda: wait_threads() == 0)
        with queue.place() as place:
            assert not place.is_behind


def test_a_wait_that_ends_with_an_error_is_given_up_too(queue: HostQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_queue, "PATIENCE_MS", 10)
    with taken(queue):
        with pytest.raises(ZeroDivisionError), taken(queue):
            raise ZeroDivisionError
        monkeypatch.setattr(host_queue, "PATIENCE_MS", 3_600_000)
        with taken(queue) as has_waited:
            assert has_waited


def test_no_wait_is_longer_than_the_deadline(queue: HostQueue) -> None:
    with taken(queue), queue.place(deadline_ms=0) as place:
        place.wait_for_turn()
        assert place.must_wait
