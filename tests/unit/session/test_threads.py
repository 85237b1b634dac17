"""Shared objects give correct results, or refuse the second thread at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from eoslog.errors import ConcurrentAccess, StoreUnavailable, TopicAlreadyExists
from eoslog.maintenance.coordinator import Coordinator
from eoslog.maintenance.sealing import seal_segments
from eoslog.session.metrics import CallTimes
from eoslog.state.entries import TopicConfig
from eoslog.storage.calls import ExclusiveIterator
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from eoslog.store import Store
from tests.unit.support.held import held, holding_store, in_threads
from tests.unit.support.reading import send
from tests.unit.support.world import values

pytestmark = pytest.mark.usefixtures("hurried_threads")
THREADS = 6
ITERATORS: dict[str, Callable[[Store], Iterator[Any]]] = {
    "to_batches": lambda store: store.scan("t").to_batches(),
    "commits": lambda store: store.commits("t"),
    "history": lambda store: store.history("t"),
    "verify": lambda store: store.admin.verify(data=True),
    "repair": lambda store: store.admin.repair(list(store.admin.verify())),
}


def filled_store(store: Store) -> Store:
    """A topic of two segments with an index each, and rows behind them; and an index file that is damaged."""
    store.admin.create_topic("t", config=TopicConfig(segment_batches=2))
    for number in range(5):
        send(store, b"%d" % number)
        seal_segments(store)
    damaged = next(info.path for info in store.object_store.list("t/") if info.path.endswith(".snapshot"))
    store.object_store.put(damaged, b"damaged")
    return store


@pytest.fixture
def store() -> Store:
    return filled_store(Store(MemoryStore(Environment()), Environment()))


def told(items: Iterator[Any]) -> list[str]:
    """The rest of an iterator, as text that can be compared."""
    return [str(each.to_pylist()) if isinstance(each, pa.RecordBatch) else repr(each) for each in items]


@pytest.mark.parametrize("name", ITERATORS)
def test_a_second_thread_cannot_advance_an_iterator_in_use(name: str) -> None:
    store = filled_store(holding_store())
    expected = told(ITERATORS[name](store))
    if name == "repair":
        # It is done now; the repair of the same damage is to be seen again.
        damaged = next(info.path for info in store.object_store.list("t/") if info.path.endswith(".snapshot"))
        store.object_store.put(damaged, b"damaged")
    store = Store(store.object_store, Environment())  # Knows no index yet.
    items = ITERATORS[name](store)

    with held(store, lambda: next(items)) as first, pytest.raises(ConcurrentAccess, match="holder_0 is under way"):
        next(items)

    assert expected
    assert told(iter([first.result()])) + told(items) == expected


def test_a_callback_cannot_advance_the_iterator_that_calls_it(store: Store) -> None:
    refused = []

    def advance(progress: object) -> None:
        with pytest.raises(ConcurrentAccess) as error:
            next(batches)
        refused.append(error)

    batches = store.scan("t").to_batches(progress=advance)

    assert sum(batch.num_rows for batch in batches) == 5
    assert refused


def test_a_failed_iterator_fails_again_instead_of_ending() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise StoreUnavailable("no answer")

    iterator = ExclusiveIterator(items())
    assert next(iterator) == 1

    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            next(iterator)


def test_an_iterator_that_was_closed_is_empty(store: Store) -> None:
    history = store.history("t")
    next(history)

    history.close()

    assert list(history) == []


def test_threads_that_advance_one_iterator_lose_and_double_nothing(store: Store) -> None:
    expected = [operation.slot for operation in store.history()]
    history = store.history()
    taken: list[int] = []

    def take() -> None:
        while True:
            try:
                taken.append(next(history).slot)
            except ConcurrentAccess:
                continue
            except StopIteration:
                return

    in_threads(THREADS, take)

    assert sorted(taken, reverse=True) == expected


@pytest.mark.parametrize("name", ["to_batches", "commits", "history", "verify"])
def test_each_thread_reads_all_through_one_store(store: Store, name: str) -> None:
    expected = told(ITERATORS[name](store))
    cold = Store(store.object_store, Environment())

    assert in_threads(THREADS, lambda: told(ITERATORS[name](cold))) == [expected] * THREADS


def test_one_scan_is_read_by_all_threads(store: Store) -> None:
    scan = Store(store.object_store, Environment()).scan("t")
    expected = [b"%d" % number for number in range(5)]

    assert in_threads(THREADS, lambda: scan.to_table()["value"].to_pylist()) == [expected] * THREADS


def test_exactly_one_of_several_threads_creates_a_topic(store: Store) -> None:
    admin = store.admin

    def create() -> bool:
        try:
            admin.create_topic("new")
        except TopicAlreadyExists:
            return False
        return True

    assert sorted(in_threads(THREADS, create)) == [False] * (THREADS - 1) + [True]


def test_threads_may_run_one_coordinator_at_once(store: Store) -> None:
    before = values(store)
    coordinator = Coordinator(store, staged_max_age_ms=0, deleted_file_retention_ms=3_600_000)

    reports = [report for each in in_threads(3, coordinator.run_once) for report in each]

    assert [report.error for report in reports if report.error is not None] == []
    assert values(store) == before


def test_call_times_of_threads_add_up() -> None:
    whole = CallTimes()
    part = CallTimes(within=whole)

    in_threads(THREADS, lambda: [part.add("flush-time-ns-total", 1) for _ in range(1_000)])

    assert part.totals()["flush-time-ns-total"] == whole.totals()["flush-time-ns-total"] == THREADS * 1_000


@pytest.mark.usefixtures("hurried_threads")
@pytest.mark.parametrize("transactional", [False, True])
def test_threads_sharing_one_producer_write_each_record_and_table_row_once(transactional: bool) -> None:
    """The buffer is so small that sends flush, too."""
    store = Store(MemoryStore(Environment()), Environment())
    store.admin.create_topic("t", partitions=2)
    producer = store.producer("tx" if transactional else None, buffer_bytes=2_000)
    if transactional:
        producer.init_transactions()
        producer.begin_transaction()
    threads = count()

    def write() -> list[tuple[bytes, Any]]:
        thread = next(threads)
        sent = []
        for number in range(150):
            value = b"%d-%03d" % (thread, number)
            if number % 10 == 9:
                producer.send_table("t", pa.table({"value": pa.array([value], pa.binary())}))
                sent.append((value, None))
            else:
                sent.append((value, producer.send("t", value)))
            if number % 50 == thread:
                producer.flush()
        return sent

    sent = [each for rows in in_threads(THREADS, write) for each in rows]
    if transactional:
        producer.commit_transaction()
    producer.close()

    assert values(store) == sorted(value for value, _ in sent)
    records = store.scan("t").to_table().to_pylist()
    places = {record["value"]: (record["partition"], record["offset"]) for record in records}
    for value, future in sent:
        if future is not None:
            assert future.result(0)[1:] == places[value]
