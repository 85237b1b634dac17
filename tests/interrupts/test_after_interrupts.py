"""What follows an interrupted call: the next call, other threads that wait, and the exit of the process."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from eoslog import errors
from eoslog.producer.producer import Producer
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from eoslog.store import Store
from tests.interrupts.interruption import Point, TimeLimit, handled, interrupt, points
from tests.interrupts.test_producer_interrupts import new_store, rows_in
from tests.interrupts.test_signal_handlers import limited
from tests.programs import ran

_SLICE = 20
"""How many points of a call the quick tests take."""

some_and_all = pytest.mark.parametrize("most", [_SLICE, pytest.param(None, marks=pytest.mark.slow)])
"""Runs a test at some points of a call. The slow tests take all of them."""


def chosen(found: list[Point], most: int | None) -> list[Point]:
    return found if most is None else random.Random(1).sample(found, min(most, len(found)))


class _SlowStore(MemoryStore):
    pause_s = 0.0

    def get(self, *args: Any, **options: Any) -> Any:
        time.sleep(self.pause_s)
        return super().get(*args, **options)

    def put(self, *args: Any, **options: Any) -> Any:
        time.sleep(self.pause_s)
        return super().put(*args, **options)


def slow_store() -> tuple[_SlowStore, Store]:
    environment = Environment()
    objects = _SlowStore(environment)
    store = Store(objects, environment)
    store.admin.create_topic("t", partitions=1)
    return objects, store


def fail() -> None:
    raise KeyboardInterrupt


def test_an_interrupt_that_leaves_the_block_of_a_consumer_closes_it() -> None:
    objects, store = slow_store()
    with store.producer() as producer:
        producer.send("t", b"row")

    consumer = store.consumer("g", auto_offset_reset="earliest")
    consumer.subscribe("t")
    objects.pause_s = 0.3
    with pytest.raises(TimeLimit), consumer, limited(0.1):
        consumer.poll(5)

    assert "closed" in repr(consumer)


def test_a_poll_after_an_interrupted_poll_waits_for_its_step() -> None:
    objects, store = slow_store()
    with store.producer() as producer:
        producer.send("t", b"row")
    consumer = store.consumer("g", auto_offset_reset="earliest")
    consumer.subscribe("t")
    objects.pause_s = 0.3
    with pytest.raises(TimeLimit), limited(0.1):
        consumer.poll(5)

    assert [record.value for record in consumer.poll(5)] == [b"row"]


def lingering() -> tuple[Store, Producer]:
    store = new_store()
    producer = store.producer(linger_ms=10)
    producer.send("t", b"flushed")
    producer.flush()
    while producer._background is not None and producer._background._is_running:
        time.sleep(0.001)
    return store, producer


@some_and_all
def test_the_background_flush_goes_on_after_an_interrupt_at_any_instruction_of_send(most: int | None) -> None:
    _, first = lingering()
    for point in chosen(points(lambda: first.send("t", b"sent")), most):
        store, producer = lingering()
        with handled(fail), suppress(KeyboardInterrupt):
            interrupt(lambda producer=producer: producer.send("t", b"sent"), point)  # type: ignore[misc]

        assert producer.send("t", b"next").result(10).offset in (1, 2), str(point)
        producer.close(timeout=10)
        assert rows_in(store)[-1] == b"next"


def test_a_refused_close_of_a_handler_leaves_the_background_flush() -> None:
    _, producer = lingering()
    refused: list[str] = []

    def close() -> None:
        try:
            producer.close()
        except errors.ConcurrentAccess as error:
            refused.append(str(error))

    producer.send("t", b"sent")
    first = next(point for point in points(producer.flush) if point.code.co_name == "_flush")
    with handled(close):
        interrupt(producer.flush, first)

    assert refused
    assert producer.send("t", b"next").result(10)
    producer.close()


@pytest.mark.usefixtures("files_are_objects")
def test_a_thread_that_waits_for_a_row_of_an_interrupted_flush_gets_its_offset() -> None:
    objects, store = slow_store()
    producer = store.producer(linger_ms=20)
    future = producer.send("t", b"row")
    objects.pause_s = 0.2
    with pytest.raises(TimeLimit), limited(0.1):
        producer.flush()

    assert future.result(10).offset == 0
    producer.close()


def test_a_repeated_abort_completes_the_futures_that_an_interrupt_left() -> None:
    producer = new_store().producer("tx")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"1", on_delivery=lambda error, record: fail())
    future = producer.send("t", b"2")
    with pytest.raises(KeyboardInterrupt):
        producer.abort_transaction()

    producer.abort_transaction()

    assert isinstance(future.exception(0), errors.TransactionAborted)


def occupied() -> tuple[Producer, threading.Event, threading.Thread]:
    """A producer that another thread's flush occupies, until the event is set."""
    producer = new_store().producer()
    entered, goes_on = threading.Event(), threading.Event()

    def wait(error: BaseException | None, record: object) -> None:
        entered.set()
        goes_on.wait(10)

    producer.send("t", b"row", on_delivery=wait)
    other = threading.Thread(target=producer.flush, daemon=True)
    other.start()
    entered.wait(10)
    return producer, goes_on, other


@some_and_all
def test_an_interrupt_at_any_instruction_of_a_waiting_call_leaves_no_lock_locked(most: int | None) -> None:
    def waiting(producer: Producer) -> Callable[[], object]:
        def call() -> None:
            with suppress(errors.RequestTimedOut):
                producer.flush(timeout=0.06)

        return call

    producer, goes_on, _ = occupied()
    found: list[Point] = points(waiting(producer))
    goes_on.set()
    for point in chosen(found, most):
        producer, goes_on, other = occupied()
        with handled(fail), suppress(KeyboardInterrupt):
            interrupt(waiting(producer), point)
        goes_on.set()
        other.join(10)
        assert not other.is_alive(), str(point)


_SUSPENDED = """
import eoslog
store = eoslog.connect({path!r}, fsync=False)
store.admin.create_topic("t", partitions=1)
def rows():
    with store.consumer("g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe("t")
        yield consumer.poll(0)
suspended = rows()
next(suspended)
"""


def test_a_finalizer_s_call_at_the_end_of_the_interpreter_returns(tmp_path: Any) -> None:
    script = _SUSPENDED.format(path=str(tmp_path / "store"))

    assert ran(script)[0] == 0


_ENDS_DURING_A_STEP = """
import signal, threading, time
from eoslog.storage.environment import Environment

def step():
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    time.sleep(0.5)
    print("the step has ended", flush=True)

signal.signal(signal.SIGINT, signal.default_int_handler)
Environment().uninterrupted(step)
"""


def test_the_interpreter_waits_for_the_step_of_an_interrupted_call() -> None:
    """A thread that is stopped within Arrow's code would abort the process."""
    _, output, errors = ran(_ENDS_DURING_A_STEP)

    assert output == "the step has ended\n"
    assert "KeyboardInterrupt" in errors


@some_and_all
def test_an_interrupted_send_frees_a_producer_that_another_thread_closes(most: int | None) -> None:
    def closing() -> Producer:
        producer = new_store().producer()
        producer.send("t", b"row")
        admitted = producer._admitted

        def closed_meanwhile(topic: str) -> Any:
            found = admitted(topic)
            producer._calls.is_to_be_closed = True
            return found

        producer._admitted = closed_meanwhile  # type: ignore[method-assign]
        return producer

    first = closing()
    for point in chosen(points(lambda: first.send("t", b"sent")), most):
        producer = closing()
        with handled(fail), suppress(KeyboardInterrupt):
            interrupt(lambda producer=producer: producer.send("t", b"sent"), point)  # type: ignore[misc]

        closer = threading.Thread(target=producer.close)
        closer.start()
        closer.join(10)
        assert "closed" in repr(producer), str(point)


def test_threads_that_wait_for_an_occupied_producer_do_not_wake_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    producer, goes_on, _ = occupied()
    exclusive = producer._calls.exclusive
    woken: list[int] = []
    wake = exclusive.wake

    def counted() -> None:
        woken.append(threading.get_ident())
        wake()

    monkeypatch.setattr(exclusive, "wake", counted)
    threads = [threading.Thread(target=producer.flush) for _ in range(8)]
    for thread in threads:
        thread.start()
    while len(exclusive.waiting) < len(threads):
        time.sleep(0.001)
    wake()
    time.sleep(0.2)

    assert not woken
    goes_on.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
