"""A processor after an interrupt at any instruction: its clients are closed in order, and each record counts once."""

from __future__ import annotations

import gc
import inspect
import random
import signal
from functools import cache

import pytest

from eoslog import ConsumerRecord, Processor, ProcessorOutput, Store, TopicPartition, errors
from tests.interrupts.interruption import Point, TimeLimit, handled, interrupt, points
from tests.interrupts.stores import empty_store, objects_of, store_of

_ROWS = 4
_SLICE = 15


@cache
def _objects() -> dict[str, bytes]:
    store = empty_store()
    store.admin.create_topic("in")
    store.admin.create_topic("out")
    with store.producer() as producer:
        for number in range(_ROWS):
            producer.send("in", b"%d" % number)
    return objects_of(store)


def copy(records: list[ConsumerRecord], output: ProcessorOutput) -> None:
    for record in records:
        output.send("out", record.value)
    output.flush()


def processor(store: Store) -> Processor:
    return store.processor(
        "in",
        copy,
        group_id="g",
        transactional_id="p",
        max_records=_ROWS // 2,
        commit_interval_ms=0,
        producer_options={"staged": False},
    )


def found_points() -> list[Point]:
    points(processor(store_of(_objects())).run_available)  # Imports and caches are filled.
    return points(processor(store_of(_objects())).run_available)


def run(point: Point, error: type[BaseException]) -> None:
    store = store_of(_objects())

    def fail() -> None:
        raise error

    told: list[str] = []
    try:
        with handled(fail):
            interrupt(processor(store).run_available, point)
    except (error, errors.EosLogError) as raised:
        # A client that could not be closed in order adds a note.
        told = [repr(raised), *getattr(raised, "__notes__", ())]
    assert not any("ConcurrentAccess" in each or "CONCURRENT_ACCESS" in each for each in told), point
    gc.collect()
    if callable(left := signal.getsignal(signal.SIGTERM)):
        # The interrupt came just before the handler was removed. The handler does not stop the processor any more.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        assert not inspect.getclosurevars(left).nonlocals["is_running"], point
    with store.producer("p") as successor:
        successor.init_transactions()
    done = store.consumer("g").committed(TopicPartition("in", 0)) or 0
    assert store.scan("out").to_table()["value"].to_pylist() == [b"%d" % each for each in range(done)], point


def test_after_an_interrupt_a_processor_is_closed_and_the_outputs_are_those_of_the_committed_records() -> None:
    chosen = random.Random("processor")
    for point in chosen.sample(found_points(), _SLICE):
        run(point, chosen.choice([KeyboardInterrupt, SystemExit, TimeLimit]))


@pytest.mark.slow
@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeLimit])
def test_an_interrupt_at_any_instruction_of_a_processor_counts_each_record_once(error: type[BaseException]) -> None:
    for point in found_points():
        run(point, error)
