"""Calls of a signal handler: refused at once on the object that is in a call, and possible on any other."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

import eoslog
from eoslog import errors
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.delta_logs import tables
from tests.interrupts.interruption import TimeLimit, handled, interrupt, points
from tests.interrupts.stores import empty_store
from tests.interrupts.test_producer_interrupts import new_store, rows_in
from tests.programs import Program

_SLICE = 20


@pytest.mark.parametrize("call", ["send", "flush", "close", "commit_transaction", "abort_transaction"])
def test_a_handler_s_call_within_a_commit_is_refused_and_changes_nothing(call: str) -> None:
    def arranged() -> tuple[Store, eoslog.Producer]:
        store = new_store()
        producer = store.producer("tx")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"row")
        return store, producer

    for point in random.Random(call).sample(points(arranged()[1].commit_transaction), _SLICE):
        store, producer = arranged()
        within: list[str] = []

        def nested(producer: eoslog.Producer = producer, within: list[str] = within) -> None:
            try:
                producer.send("t", b"nested") if call == "send" else getattr(producer, call)()
            except errors.ConcurrentAccess as refused:
                within.append(str(refused))
            except errors.IllegalState:
                # The commit has left already.
                return

        # Before the commit is entered, the handler's call is not within it, and may end the transaction.
        with handled(nested), suppress(errors.IllegalState):
            interrupt(producer.commit_transaction, point)
        producer.close()

        assert not within or rows_in(store) == [b"row"]


def test_a_handler_writes_and_reads_with_other_objects_of_the_store() -> None:
    def commit() -> tuple[Store, Callable[[], object]]:
        store = new_store()
        producer = store.producer("tx")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"row")
        return store, producer.commit_transaction

    def poll() -> tuple[Store, Callable[[], object]]:
        store = new_store()
        with store.producer() as producer:
            producer.send("t", b"row")
        consumer = store.consumer("g", auto_offset_reset="earliest")
        consumer.subscribe("t")
        return store, lambda: consumer.poll(0)

    for arranged in (commit, poll):
        for point in random.Random(1).sample(points(arranged()[1]), _SLICE):
            store, call = arranged()
            handled_rows: list[bytes] = []

            def other(store: Store = store, rows: list[bytes] = handled_rows) -> None:
                rows.append(b"by the handler")
                with store.producer() as producer:
                    producer.send("t", b"by the handler")
                with store.consumer(auto_offset_reset="earliest") as consumer:
                    consumer.assign(TopicPartition("t", 0))
                    consumer.poll(0)

            with handled(other):
                interrupt(call, point)

            assert sorted(rows_in(store)) == [*handled_rows, b"row"]


@pytest.mark.parametrize("handler", ["publishes", "raises"])
def test_a_publication_survives_a_handler_at_any_point(handler: str) -> None:
    def arranged() -> Store:
        store = empty_store()
        store.admin.create_topic("t", config={"publish": "delta"})
        with store.producer() as producer:
            producer.send("t", b"row")
        return store

    for point in random.Random(handler).sample(points(partial(arranged().admin.publish, "t")), _SLICE):
        store = arranged()

        def handle(store: Store = store) -> None:
            if handler == "raises":
                raise TimeLimit
            with suppress(errors.ConcurrentAccess):
                store.admin.publish("t")

        kept: TimeLimit | None = None
        try:
            with handled(handle):
                interrupt(partial(store.admin.publish, "t"), point)
        except TimeLimit as error:
            # A traceback keeps the frames of the call, and all that they hold.
            kept = error
        store.admin.publish("t")
        del kept

        *_, newest = tables(store.object_store, "t")
        assert newest.rows() == [(0, 0, b"row")]


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """A time limit, as programs set it: SIGALRM raises an exception in the main thread."""

    def over(*_: object) -> None:
        raise TimeLimit

    before = signal.signal(signal.SIGALRM, over)
    began = time.monotonic()
    # The time limit of the test is a timer of this kind, too.
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, left - (time.monotonic() - began)))


def under_time_limits(path: Path, seconds: float) -> None:
    """Write transactions, and read them in a group, for some time, under time limits that come at any moment."""
    chosen = random.Random(7)
    store = eoslog.connect(path / "store", fsync=False)
    store.admin.create_topic("t", partitions=3)
    producer = store.producer("tx")
    producer.init_transactions()
    consumer = store.consumer("g", auto_offset_reset="earliest", enable_auto_commit=True, auto_commit_interval_ms=0)
    consumer.subscribe("t")
    sent: list[bytes] = []
    read: list[bytes] = []
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        rows = [b"%d" % (len(sent) + number) for number in range(3)]
        producer.begin_transaction()
        for row in rows:
            producer.send("t", row)
        committed = False
        while not committed:
            with suppress(TimeLimit), limited(chosen.random() * 0.03):
                committed = producer.commit_transaction()
        sent += rows
        records: list[eoslog.ConsumerRecord] = []
        with suppress(TimeLimit), limited(chosen.random() * 0.03):
            records = consumer.poll(0.01)
        # The time limit may come after the call has returned.
        read += [record.value for record in records]
    while rows := [record.value for record in consumer.poll(0.2)]:
        read += rows
    consumer.close()
    producer.close()

    assert sorted(read, key=int) == sent
    fresh = eoslog.connect(path / "store")
    assert sorted(fresh.scan("t").to_table()["value"].to_pylist(), key=int) == sent
    with fresh.consumer("g") as successor:
        ends_of = successor.end_offsets([TopicPartition("t", number) for number in range(3)])
        assert all(successor.committed(each) == end for each, end in ends_of.items())


def in_a_process_of_its_own(path: Path, seconds: float) -> None:
    """The time limits may come in a tool that measures this process, and leave a lock of it locked."""
    script = (
        "from pathlib import Path\n"
        "from tests.interrupts.test_signal_handlers import under_time_limits\n"
        f"under_time_limits(Path({str(path)!r}), {seconds})"
    )
    with Program(script) as program:
        _, told = program.communicate(300 + seconds)
    assert program.returncode == 0, told.decode()


def test_rows_are_exact_under_time_limits_at_random_moments(tmp_path: Path) -> None:
    in_a_process_of_its_own(tmp_path, 2)


@pytest.mark.slow
def test_rows_are_exact_under_time_limits_for_longer(tmp_path: Path) -> None:
    in_a_process_of_its_own(tmp_path, 120)
