"""The future of a sent record does what any ``concurrent.futures.Future`` does, whenever it is first looked at."""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import gc
import pickle
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from itertools import permutations

import pyarrow as pa
import pytest

from eoslog import errors
from eoslog.producer.producer import Producer
from eoslog.producer.record_futures import AppendedRows, AwaitedRows, RecordFuture
from eoslog.session.positions import RecordMetadata
from eoslog.state.names import PartitionId
from eoslog.storage.calls import Call
from eoslog.storage.process import HomeProcess
from eoslog.store import Store
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import values

PLACE = PartitionId("topic id", 0)


def sent(store: Store, count: int = 1) -> tuple[Producer, list[Future[RecordMetadata]]]:
    producer = store.producer()
    return producer, [producer.send("t", b"%d" % number, partition=0) for number in range(count)]


def look(future: Future[RecordMetadata]) -> None:
    assert not future.done()


def leave(future: Future[RecordMetadata]) -> None:
    """Do not look at it before it is done."""


EARLIER = pytest.mark.parametrize("earlier", [look, leave])


@EARLIER
def test_a_future_is_running_until_its_record_is_written(
    store: Store, earlier: Callable[[Future[RecordMetadata]], None]
) -> None:
    producer, [future] = sent(store)
    earlier(future)

    producer.flush()

    assert isinstance(future, Future)
    assert (future.done(), future.running(), future.cancelled()) == (True, False, False)
    assert future.result() == RecordMetadata("t", 0, 0)
    assert future.exception() is None
    assert repr(future) == "RecordFuture(topic='t', partition=0, offset=0)"


def test_a_running_future_times_out_and_cannot_be_cancelled(store: Store) -> None:
    producer, [first, second] = sent(store, 2)

    assert not first.cancel()
    assert first.running()
    assert not second.cancelled()
    for future in (first, second):
        with pytest.raises(TimeoutError):
            future.result(0)
        with pytest.raises(TimeoutError):
            future.exception(0)

    producer.flush()
    assert (first.result(0).offset, second.result(0).offset) == (0, 1)
    assert not first.cancel()


@EARLIER
def test_a_future_of_an_aborted_record_fails(store: Store, earlier: Callable[[Future[RecordMetadata]], None]) -> None:
    producer = open_transaction(store, "tx")
    future = producer.send("t", b"v")
    earlier(future)

    producer.abort_transaction()

    assert isinstance(future.exception(), errors.TransactionAborted)
    with pytest.raises(errors.TransactionAborted):
        future.result()


@EARLIER
def test_a_staged_future_is_done_without_an_offset(
    store: Store, earlier: Callable[[Future[RecordMetadata]], None]
) -> None:
    producer = open_transaction(store, "tx", staged=True)
    future = producer.send("t", b"v", partition=1)
    earlier(future)

    producer.commit_transaction()

    assert future.result(0) == RecordMetadata("t", 1, -1)


def test_callbacks_are_called_once_in_the_order_of_their_addition(store: Store) -> None:
    producer, [future, never_looked_at] = sent(store, 2)
    called: list[str] = []
    future.add_done_callback(lambda _: called.append("first"))
    future.add_done_callback(lambda _: called.append("second"))

    producer.flush()
    assert called == ["first", "second"]

    future.add_done_callback(lambda _: called.append("after completion"))
    never_looked_at.add_done_callback(lambda done: called.append(f"offset {done.result().offset}"))
    producer.send("t", b"more")
    producer.flush()
    assert called == ["first", "second", "after completion", "offset 1"]


def test_a_callback_that_raises_stops_neither_the_flush_nor_other_callbacks(store: Store) -> None:
    producer, [first, second] = sent(store, 2)
    called: list[int] = []
    first.add_done_callback(lambda _: 1 / 0)
    first.add_done_callback(lambda done: called.append(done.result().offset))
    second.add_done_callback(lambda done: called.append(done.result().offset))

    producer.flush()

    assert called == [0, 1]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_futures_are_done_in_the_order_of_their_rows(store: Store, order: tuple[int, ...]) -> None:
    producer, futures = sent(store, 3)
    seen: list[tuple[int, list[bool]]] = []
    for number in order:
        futures[number].add_done_callback(
            lambda done: seen.append((done.result().offset, [each.done() for each in futures]))
        )

    producer.flush()

    assert seen == [(0, [True, False, False]), (1, [True, True, False]), (2, [True, True, True])]


def test_a_future_used_in_an_earlier_callback_is_done_afterwards(store: Store) -> None:
    producer, futures = sent(store, 3)
    seen: list[tuple[int, list[bool]]] = []

    def look_at_the_last(done: Future[RecordMetadata]) -> None:
        seen.append((done.result().offset, [each.done() for each in futures]))
        if len(seen) == 1:
            futures[2].add_done_callback(look_at_the_last)

    futures[1].add_done_callback(look_at_the_last)

    producer.flush()

    assert seen == [(1, [True, True, False]), (2, [True, True, True])]


def test_wait_and_as_completed_take_futures_of_any_age(store: Store) -> None:
    producer, old = sent(store, 2)
    producer.flush()
    new = [producer.send("t", b"new", partition=0) for _ in range(2)]

    done, running = concurrent.futures.wait([*old, *new], timeout=0)
    assert (done, running) == (set(old), set(new))
    completed = concurrent.futures.as_completed([*old, *new])
    assert {next(completed), next(completed)} == set(old)
    producer.flush()

    assert set(completed) == set(new)
    assert concurrent.futures.wait([*old, *new]).done == {*old, *new}
    assert [future.result().offset for future in (*old, *new)] == [0, 1, 2, 3]


def test_a_future_can_be_awaited(store: Store) -> None:
    async def send() -> list[int]:
        producer, [running] = sent(store)
        wrapped = asyncio.wrap_future(running)
        later = asyncio.wrap_future(producer.send("t", b"2", partition=0))
        await asyncio.to_thread(producer.flush)
        done = producer.send("t", b"3", partition=0)
        await asyncio.to_thread(producer.flush)
        return [(await each).offset for each in (wrapped, later, asyncio.wrap_future(done))]

    assert asyncio.run(send()) == [0, 1, 2]


def test_threads_wait_for_the_flush_of_another(store: Store) -> None:
    producer, futures = sent(store, 8)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        # Two threads look at each future, perhaps for the first time at once.
        waiting = [pool.submit(future.result, 60) for future in (*futures[:4], *futures[:4])]
        producer.flush()
        offsets = [each.result(60).offset for each in waiting]

    assert offsets == [0, 1, 2, 3, 0, 1, 2, 3]


@pytest.mark.usefixtures("hurried_threads")
def test_threads_that_look_first_while_rows_are_told_miss_nothing() -> None:
    """Each thread adds a callback to each future, and waits for it, at whatever moment it comes to it."""
    for _ in range(20):
        rows = AwaitedRows(HomeProcess("producer"), "t", PLACE)
        futures = [RecordFuture(rows, number) for number in range(200)]
        called: list[list[int]] = [[] for _ in range(4)]

        def observe(offsets: list[int], futures: list[RecordFuture] = futures) -> None:
            for number, future in enumerate(futures):
                future.add_done_callback(lambda done: offsets.append(done.result(0).offset))
                if number % 10 == 0:
                    assert concurrent.futures.wait([future], 60).done == {future}

        threads = [threading.Thread(target=observe, args=(offsets,)) for offsets in called]
        for thread in threads:
            thread.start()
        rows.tell([AppendedRows(PLACE, 10, 150), AppendedRows(PLACE, 400, 50)], Call("flush()"))
        for thread in threads:
            thread.join()

        expected = [*range(10, 160), *range(400, 450)]
        assert [sorted(offsets) for offsets in called] == [expected] * 4
        assert [future.result(0).offset for future in futures] == expected


def test_offsets_are_those_of_the_rows_batches() -> None:
    rows = AwaitedRows(HomeProcess("producer"), "t", PLACE)
    futures = [RecordFuture(rows, number) for number in range(6)]
    look(futures[4])

    rows.tell([AppendedRows(PLACE, 7, 2), AppendedRows(PLACE, -1, 1), AppendedRows(PLACE, 20, 2)], Call("flush()"))

    assert [future.result(0).offset for future in futures] == [7, 8, -1, 20, 21, -1]


def test_an_interrupted_flush_shifts_no_offset(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from eoslog.producer import record_accumulator

    producer = store.producer()
    first = producer.send("t", b"0", partition=0)
    encode = record_accumulator.records_table

    def interrupted(rows: object) -> pa.Table:
        raise KeyboardInterrupt

    monkeypatch.setattr(record_accumulator, "records_table", interrupted)
    with pytest.raises(KeyboardInterrupt):
        producer.flush()
    monkeypatch.setattr(record_accumulator, "records_table", encode)
    second = producer.send("t", b"1", partition=0)
    producer.send_table("t", pa.table({"value": [b"2", b"3"], "partition": [0, 0]}))
    last = producer.send("t", b"4", partition=0)

    producer.flush()

    assert values(store) == [b"0", b"1", b"2", b"3", b"4"]
    assert [future.result(0).offset for future in (first, second, last)] == [0, 1, 4]


def test_nothing_holds_a_future_that_the_sender_drops(store: Store) -> None:
    producer = store.producer()
    dropped = weakref.ref(producer.send("t", b"v"))
    gc.collect()

    assert dropped() is None


def test_nobody_needs_to_hold_a_future_with_a_callback(store: Store) -> None:
    producer = store.producer()
    called: list[int] = []
    producer.send("t", b"v").add_done_callback(lambda done: called.append(done.result().offset))
    gc.collect()

    producer.flush()

    assert called == [0]


def test_a_future_takes_attributes_and_has_no_others(store: Store) -> None:
    producer, [future] = sent(store)
    future.tag = "mine"  # type: ignore[attr-defined]

    producer.flush()

    assert (future.tag, future.result(0).offset) == ("mine", 0)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="no attribute 'unknown'"):
        future.unknown  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_future_cannot_be_copied(store: Store, duplicate: Callable[[object], object]) -> None:
    _, [future] = sent(store)

    with pytest.raises(errors.InvalidRequest, match="pass on its result"):
        duplicate(future)


def test_a_close_that_does_not_wait_for_a_send_shuts_the_producer_after_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, _ = sent(store)
    now_ms = store.now_ms

    def close_meanwhile() -> int:
        closing = threading.Thread(target=producer.close, kwargs={"timeout": 0})
        closing.start()
        closing.join()
        return now_ms()

    monkeypatch.setattr(store, "now_ms", close_meanwhile)
    future = producer.send("t", b"last")

    assert isinstance(future.exception(0), errors.TransactionAborted)
    with pytest.raises(errors.IllegalState):
        producer.send("t", b"later")
