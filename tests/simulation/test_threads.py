"""Threads of a simulated process share its clock, its pauses and its death; each has a place of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.simulation.faults import LONG_PAUSES_MS, Faults
from tests.simulation.log_services import open_log
from tests.simulation.log_simulation import LogSimulation
from tests.simulation.plan import Plan
from tests.simulation.simulation import raise_failures, run_to_the_end
from tests.simulation.world import Process, Violation, World


def history_of(work: Callable[[Process], None], faults: Faults | None = None, *, seed: int = 0) -> World:
    """The world after one process has ended."""
    world = World(seed, faults or Faults())
    world.spawn("process", work)
    run_to_the_end(world)
    return world


def test_a_thread_that_waits_goes_on_when_another_one_sets_the_event() -> None:
    event = threading.Event()
    order: list[str] = []

    def set_later(process: Process) -> None:
        process.sleep(1_000)
        order.append("set")
        event.set()

    def work(process: Process) -> None:
        process.start_thread(lambda: set_later(process))
        assert process.wait_for(event, 60_000)
        order.append("woken")
        process.sleep(1)

    history_of(work)

    assert order == ["set", "woken"]


def test_a_thread_waits_no_longer_than_its_patience() -> None:
    waited_ms: list[int] = []

    def work(process: Process) -> None:
        began_ms = process.elapsed_ms()
        assert not process.wait_for(threading.Event(), 500)
        waited_ms.append(process.elapsed_ms() - began_ms)

    history_of(work)

    assert 500 <= waited_ms[0] < 600


def test_threads_that_all_wait_for_ever_end_the_history() -> None:
    with pytest.raises(Violation, match="for ever: process"):
        history_of(lambda process: [process.wait_for(threading.Event())].clear())


def test_a_pause_stops_all_threads_of_a_process() -> None:
    gaps_ms: list[int] = []

    def watch(process: Process) -> None:
        while True:
            before_ms = process.world.time_ms
            process.sleep(1)
            gaps_ms.append(process.world.time_ms - before_ms)

    def work(process: Process) -> None:
        for _ in range(3):
            process.start_thread(lambda: watch(process))
        process.sleep(200)
        process.world.faults = Faults(pause=1.0)
        process.stop("request")
        process.world.faults = Faults()
        process.sleep(200)

    history_of(work)

    assert sum(gap >= min(LONG_PAUSES_MS) for gap in gaps_ms) >= 3


@pytest.mark.parametrize("ends_by", [Faults(death=1.0), Faults()], ids=["killed", "ended"])
def test_no_thread_outlives_its_process(ends_by: Faults) -> None:
    steps: list[str] = []

    def go_on(process: Process) -> None:
        while True:
            process.sleep(10)
            steps.append("alive" if process.alive else "dead")

    def work(process: Process) -> None:
        process.start_thread(lambda: go_on(process))
        process.sleep(1_000)
        process.world.faults = ends_by
        process.stop("request")

    world = history_of(work)

    assert set(steps) == {"alive"}
    assert not world.threads


@pytest.mark.parametrize("lock", ["Replica.lock", "AppendQueue._mutex", "Checkpointing._lock"])
def test_a_request_that_holds_a_lock_of_the_log_ends_the_history(lock: str) -> None:
    def work(process: Process) -> None:
        log = open_log(process)
        locks = {
            "Replica.lock": log.replica.lock,
            "AppendQueue._mutex": log.appender._queue._mutex,
            "Checkpointing._lock": log._checkpointing._lock,
        }
        with locks[lock]:
            log.store.list_directories("log/")

    with pytest.raises(Violation, match=f"{lock} is held during LIST"):
        history_of(work)


def test_an_interrupt_meets_only_threads_that_expect_it() -> None:
    interrupted: list[str] = []

    def work_until_interrupted(process: Process) -> None:
        try:
            process.sleep(1)
        except KeyboardInterrupt:
            interrupted.append("thread")

    def work(process: Process) -> None:
        thread = process.start_thread(lambda: work_until_interrupted(process), is_interruptible=True)
        process.wait_for(thread.ended)

    history_of(work, Faults(interrupt=1.0))

    assert interrupted == ["thread"]


@pytest.mark.parametrize("seed", range(2))
def test_a_seed_with_threads_repeats_itself_exactly(seed: int) -> None:
    plan = Plan.of_services("threads", seed, 400)

    assert LogSimulation(seed, plan=plan).run().trace == LogSimulation(seed, plan=plan).run().trace


def test_an_error_of_a_thread_fails_the_history() -> None:
    def fail() -> None:
        raise ValueError("broken")

    def work(process: Process) -> None:
        process.wait_for(process.start_thread(fail).ended)

    world = World(0, Faults())
    world.spawn("process", work)
    world.run(100)

    with pytest.raises(Violation, match=r"process\.1: ValueError: broken"):
        raise_failures(world)
