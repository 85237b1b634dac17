"""An exception at any instruction of a consumer's call loses no record.

A later poll returns each record that the interrupted call did not return, and no commit passes over it.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from eoslog.consumer.consumer import Consumer
from eoslog.log.replica import Replica
from eoslog.state.names import TopicPartition
from eoslog.storage.environment import Environment
from eoslog.store import Store
from tests.interrupts.interruption import SIGNAL, Point, TimeLimit, handled, interrupt, points
from tests.interrupts.stores import empty_store, objects_of, store_of

_PARTITIONS = [TopicPartition("t", number) for number in range(3)]
_ROWS = 12
_SLICE = 6
"""How many points of a call the quick test takes."""


@cache
def _template() -> dict[str, bytes]:
    store = empty_store()
    store.admin.create_topic("t", partitions=len(_PARTITIONS))
    with store.producer() as producer:
        for number in range(_ROWS):
            producer.send("t", b"%d" % number, partition=number % len(_PARTITIONS))
            if number % 5 == 0:
                producer.flush()
    return objects_of(store)


def new_store() -> Store:
    """A store with the topic ``t``, whose partitions have rows."""
    return store_of(_template())


def member(store: Store, *, polls: int) -> tuple[Consumer, list[bytes]]:
    """A consumer that commits automatically, and the values that it has returned after some polls."""
    consumer = store.consumer(
        "g",
        auto_offset_reset="earliest",
        max_poll_records=4,
        enable_auto_commit=True,
        auto_commit_interval_ms=0,
        value_deserializer=bytes,
    )
    consumer.subscribe("t")
    returned: list[bytes] = []
    for _ in range(polls):
        returned += polled(consumer)
    return consumer, returned


def polled(consumer: Consumer) -> list[bytes]:
    return [record.value for record in consumer.poll(0)]


CALLS: dict[str, tuple[int, Callable[[Consumer], Any]]] = {
    "first poll": (0, polled),
    "poll": (1, polled),
    "last poll": (3, polled),
    "next": (1, lambda consumer: [next(consumer).value]),
    "commit": (1, lambda consumer: consumer.commit()),
    "position": (1, lambda consumer: consumer.position(_PARTITIONS)),
    "lag": (0, lambda consumer: consumer.lag()),
    "seek": (1, lambda consumer: consumer.seek(_PARTITIONS[0], consumer.position(_PARTITIONS[0]))),
    "subscribe": (0, lambda consumer: consumer.subscribe("t")),
    "close": (1, lambda consumer: consumer.close()),
}
"""Each call, and how many polls come before it."""


def run(call: str, point: Point, error: type[BaseException]) -> None:
    """Interrupt a call at a point, read on, close, and compare the records and the group's offsets."""
    store = new_store()
    polls, made = CALLS[call]
    consumer, returned = member(store, polls=polls)

    def fail() -> None:
        raise error

    try:
        with handled(fail):
            told = interrupt(lambda: made(consumer), point)
    except error:
        told = None
    if isinstance(told, list):
        returned += told
    if call != "close":
        for _ in range(_ROWS):
            returned += polled(consumer)
        assert sorted(returned, key=int) == [b"%d" % number for number in range(_ROWS)]
    consumer.close()
    with Store(store.object_store, Environment()).consumer("g", auto_offset_reset="earliest") as successor:
        committed = successor.committed(_PARTITIONS)
        successor.assign(_PARTITIONS)
        left = [record.value for record in successor.poll(0)]
    # A close that was interrupted before its commit leaves the group where it was. No row is passed over.
    assert {*returned, *left} == {b"%d" % number for number in range(_ROWS)}
    if call != "close":
        assert all(committed.values())
        assert not left


def points_of(call: str) -> list[Point]:
    polls, made = CALLS[call]
    for _ in range(2):
        consumer, _ = member(new_store(), polls=polls)
        found = points(lambda consumer=consumer: made(consumer))  # type: ignore[misc]
        consumer.close()
    return found


@pytest.mark.parametrize("call", CALLS)
def test_a_record_that_an_interrupted_call_took_is_returned_later(call: str) -> None:
    found = points_of(call)
    chosen = random.Random(call)

    for point in chosen.sample(found, min(_SLICE, len(found))):
        run(call, point, chosen.choice([KeyboardInterrupt, SystemExit, TimeLimit]))


@pytest.mark.slow
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, TimeLimit])
@pytest.mark.parametrize("call", CALLS)
def test_an_interrupt_at_any_instruction_loses_no_record(call: str, error: type[BaseException]) -> None:
    for point in points_of(call):
        try:
            run(call, point, error)
        except BaseException as failed:
            failed.add_note(f"interrupted at {point}")
            raise


@pytest.mark.parametrize("call", ["close", "poll", "assignment"])
def test_a_call_after_an_interrupt_waits_for_the_step_of_the_interrupted_call(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer, _ = member(new_store(), polls=1)
    consumer.seek_to_beginning()
    interrupted = threading.Event()
    read = Replica.read

    def slow_read(*arguments: Any, **options: Any) -> Any:
        if not interrupted.is_set():
            interrupted.wait(60)
            # The step is still running when the next call begins.
            time.sleep(0.2)
        return read(*arguments, **options)

    def fail() -> None:
        raise TimeLimit

    monkeypatch.setattr(Replica, "read", slow_read)
    killer = threading.Timer(0.1, signal.pthread_kill, (threading.get_ident(), SIGNAL))
    with handled(fail):
        killer.start()
        with pytest.raises(TimeLimit):
            consumer.lag()
    interrupted.set()
    killer.join()

    getattr(consumer, call)()
    consumer.close()
