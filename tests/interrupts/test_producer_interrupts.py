"""An exception at any instruction of a producer's call is like a crash of the call, and not of the process."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from typing import Any, NamedTuple

import pytest

from eoslog import errors
from eoslog.producer.producer import Producer
from eoslog.session.positions import RecordMetadata
from eoslog.state.names import TopicPartition
from eoslog.storage.environment import Environment
from eoslog.store import Store
from tests.interrupts.interruption import Point, TimeLimit, handled, interrupt, points
from tests.interrupts.stores import empty_store, objects_of, store_of

_SLICE = 2
"""How many points of a call the quick test takes, for each way to go on."""


class Setting(NamedTuple):
    """A producer before the call to interrupt."""

    store: Store
    producer: Producer
    futures: dict[bytes, Future[RecordMetadata]]


@cache
def _template() -> dict[str, bytes]:
    """The objects of a store with the topic ``t``."""
    store = empty_store()
    store.admin.create_topic("t", partitions=1)
    return objects_of(store)


def new_store() -> Store:
    """A store with the topic ``t``."""
    return store_of(_template())


def rows_in(store: Store) -> list[bytes]:
    """The committed rows, in the order of their offsets, as a new process reads them."""
    found: list[bytes] = Store(store.object_store, Environment()).scan("t").to_table()["value"].to_pylist()
    return found


def setting(transactional_id: str | None, staged: bool, until: str) -> Setting:
    store = new_store()
    producer = store.producer(transactional_id, staged=staged)
    futures: dict[bytes, Future[RecordMetadata]] = {}
    if transactional_id is not None and until != "init_transactions":
        producer.init_transactions()
        if until != "begin_transaction":
            producer.begin_transaction()
    if until not in ("init_transactions", "begin_transaction"):
        futures[b"flushed"] = producer.send("t", b"flushed")
        producer.flush()
        futures[b"waiting"] = producer.send("t", b"waiting")
    if until == "complete_transaction":
        producer.prepare_transaction()
    return Setting(store, producer, futures)


CALLS: dict[str, Callable[[Producer], Any]] = {
    "init_transactions": lambda producer: producer.init_transactions(),
    "begin_transaction": lambda producer: producer.begin_transaction(),
    "send": lambda producer: producer.send("t", b"sent"),
    "flush": lambda producer: producer.flush(),
    "send_offsets": lambda producer: producer.send_offsets_to_transaction({TopicPartition("t", 0): 1}, "g"),
    "commit_transaction": lambda producer: producer.commit_transaction(),
    "abort_transaction": lambda producer: producer.abort_transaction(),
    "prepare_transaction": lambda producer: producer.prepare_transaction(),
    "complete_transaction": lambda producer: producer.complete_transaction(f"{producer.producer_id}:0"),
    "close": lambda producer: producer.close(),
}
KINDS = {"eager": ("tx", False), "staged": ("tx", True), "without transactions": (None, False)}
CASES = [
    (kind, call) for kind in KINDS for call in CALLS if KINDS[kind][0] is not None or call in ("send", "flush", "close")
]


def repeat(case: Setting, call: str) -> list[list[bytes]]:
    """Make the interrupted call again, then end the transaction. Return the rows that may be there afterwards."""
    producer, rows = case.producer, list(case.futures)
    CALLS[call](producer)
    if producer.transactional_id is None:
        producer.close()
        return [[*rows, b"sent"], [*rows, b"sent", b"sent"]] if call == "send" else [rows]
    if call == "init_transactions":
        producer.begin_transaction()
    if call == "prepare_transaction":
        producer.complete_transaction(producer.prepared_transaction or "")
    if call in ("init_transactions", "begin_transaction", "send", "flush", "send_offsets"):
        producer.commit_transaction()
    producer.close()
    if call in ("abort_transaction", "close"):
        return [[]]
    return [[*rows, b"sent"], [*rows, b"sent", b"sent"]] if call == "send" else [rows]


def abort(case: Setting, call: str) -> list[list[bytes]]:
    """Abort the transaction. If that is refused, the refusal says what to do."""
    producer, rows = case.producer, list(case.futures)
    expected: list[list[bytes]] = [[]]
    try:
        producer.abort_transaction()
    except errors.IllegalState as error:
        refusal = str(error)
        if "was successful" in refusal:
            expected = [rows] if call in ("commit_transaction", "complete_transaction") else [[]]
        elif "was not answered. Repeat" in refusal or "repeat init_transactions()" in refusal:
            CALLS[call](producer)
            if call == "prepare_transaction":
                producer.complete_transaction(producer.prepared_transaction or "")
            expected = [rows]
        elif call not in ("init_transactions", "begin_transaction", "close"):
            raise
    producer.close()
    return expected


def close(case: Setting, call: str) -> list[list[bytes]]:
    """Leave the ``with`` block."""
    producer, rows = case.producer, list(case.futures)
    producer.close()
    if producer.transactional_id is None:
        return [rows, [*rows, b"sent"]] if call == "send" else [rows]
    if call in ("prepare_transaction", "complete_transaction"):
        # A prepared transaction outlives its producer. The next one decides.
        successor = case.store.producer(producer.transactional_id)
        successor.init_transactions()
        successor.close()
    return [rows, []] if call in ("commit_transaction", "complete_transaction") else [[]]


WAYS = {"repeat": repeat, "abort": abort, "close": close}


def ways(kind: str) -> list[str]:
    return [way for way in WAYS if way != "abort" or KINDS[kind][0] is not None]


def run(kind: str, call: str, way: str, point: Point, error: type[BaseException]) -> None:
    """Interrupt a call at a point, go on, and compare what the program was told with what a new process reads."""
    case = setting(*KINDS[kind], until=call)

    def fail() -> None:
        raise error

    try:
        with handled(fail):
            interrupt(lambda: CALLS[call](case.producer), point)
    except error:
        expected = WAYS[way](case, call)
    else:
        # The signal came too late for this run of the call.
        case.producer.close()
        return
    found = rows_in(case.store)
    assert found in expected, found
    for row, future in case.futures.items():
        assert future.done()
        if future.exception() is not None:
            assert row not in found
        elif case.producer.transactional_id is None:
            assert found[future.result().offset] == row
    write_next(case.store, case.producer.transactional_id)
    assert rows_in(case.store) == [*found, b"next"]


def write_next(store: Store, transactional_id: str | None) -> None:
    """Write a row in another process."""
    with Store(store.object_store, Environment()).producer(transactional_id) as producer:
        if transactional_id is not None:
            producer.init_transactions()
            producer.begin_transaction()
        producer.send("t", b"next")
        if transactional_id is not None:
            producer.commit_transaction()


def points_of(kind: str, call: str) -> list[Point]:
    warm_up = setting(*KINDS[kind], until=call)
    CALLS[call](warm_up.producer)
    case = setting(*KINDS[kind], until=call)
    return points(lambda: CALLS[call](case.producer))


@pytest.mark.parametrize(("kind", "call"), CASES)
def test_after_an_interrupt_the_truth_is_told_and_no_row_is_lost_or_doubled(kind: str, call: str) -> None:
    found = points_of(kind, call)
    chosen = random.Random(f"{kind} {call}")

    for way in ways(kind):
        for point in chosen.sample(found, min(_SLICE, len(found))):
            run(kind, call, way, point, chosen.choice([KeyboardInterrupt, SystemExit, TimeLimit]))


@pytest.mark.slow
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, TimeLimit])
@pytest.mark.parametrize(("kind", "call"), CASES)
def test_an_interrupt_at_any_instruction_is_like_a_crash_of_the_call(
    kind: str, call: str, error: type[BaseException]
) -> None:
    for way in ways(kind):
        for point in points_of(kind, call):
            try:
                run(kind, call, way, point, error)
            except BaseException as failed:
                failed.add_note(f"interrupted at {point}")
                raise
