"""Idempotence: whatever becomes of requests and answers, each row is written once, in the order of the sends."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog import errors
from eoslog.producer.producer import Producer
from eoslog.session.positions import RecordMetadata
from eoslog.state.names import TopicPartition
from eoslog.storage.object_store import ObjectStore, PutOutcome
from eoslog.store import Store
from tests.depth import examples
from tests.unit.log.world import Fault
from tests.unit.support.world import SLOTS, World, values

PARTITIONS = 2


class Faults:
    """What happens to the puts of slots of one process, one fault after the other; then nothing any more."""

    def __init__(self, store: ObjectStore, faults: list[Fault]) -> None:
        self._put = store.put_if_absent
        self._faults = list(faults)
        self._late: list[tuple[str, bytes]] = []
        store.put_if_absent = self.put_if_absent  # type: ignore[method-assign]

    def put_if_absent(self, path: str, body: bytes) -> PutOutcome:
        fault = self._faults.pop(0) if self._faults and path.startswith(SLOTS) else Fault.NONE
        if fault is Fault.CONFLICT:
            return PutOutcome.CONFLICT
        if fault is Fault.LATE:
            self._late.append((path, body))
        if fault in (Fault.REQUEST_LOST, Fault.LATE):
            raise errors.StoreUnavailable("no answer")
        outcome = self._put(path, body)
        if fault is Fault.RETRIED_INSIDE:
            return PutOutcome.EXISTS
        if fault is Fault.ANSWER_LOST:
            raise errors.StoreUnavailable("no answer")
        return outcome

    def land_late(self) -> None:
        """The puts that were on their way arrive."""
        for path, body in self._late:
            self._put(path, body)
        self._late.clear()


FAULTS = st.lists(st.sampled_from([fault for fault in Fault if fault is not Fault.DENIED]), max_size=40)


def world_with_topic() -> tuple[World, Store]:
    world = World()
    store = world.process()
    store.admin.create_topic("t", partitions=PARTITIONS)
    return world, store


def rows_by_partition(store: Store) -> dict[int, list[bytes]]:
    """The values of each partition, in the order of their offsets."""
    with store.consumer(auto_offset_reset="earliest", max_poll_records=10_000) as consumer:
        consumer.assign([TopicPartition("t", number) for number in range(PARTITIONS)])
        found: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
        for record in consumer.poll(0):
            assert record.value is not None
            found[record.partition].append(record.value)
        return found


def until_done(call: object) -> None:
    """The same call again for as long as its time is up, as its error asks."""
    while True:
        try:
            call()  # type: ignore[operator]
            return
        except errors.RetriableError:
            continue


@given(
    faults=FAULTS,
    others=st.lists(st.booleans(), max_size=12),
    rows=st.lists(st.tuples(st.integers(0, PARTITIONS - 1), st.booleans()), min_size=1, max_size=12),
    max_block_ms=st.sampled_from([1, 50, 60_000]),
)
@examples(15)
def test_each_row_is_written_once_and_in_order_whatever_becomes_of_puts_and_answers(
    faults: list[Fault], others: list[bool], rows: list[tuple[int, bool]], max_block_ms: int
) -> None:
    world, store = world_with_topic()
    other = world.process()
    puts = Faults(store.object_store, faults)
    producer = store.producer(max_block_ms=max_block_ms, delivery_timeout_ms=10**9)
    expected: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
    futures: list[tuple[int, Future[RecordMetadata]]] = []
    for number, (partition, flushes) in enumerate(rows):
        value = b"%d" % number
        expected[partition].append(value)
        futures.append((partition, producer.send("t", value, partition=partition)))
        if others and others.pop():
            other.admin.create_topic(f"o{number}")
        if flushes:
            until_done(producer.flush)
            puts.land_late()

    until_done(producer.flush)
    puts.land_late()
    producer.close()

    assert rows_by_partition(world.process()) == expected
    for partition, sent in expected.items():
        offsets = [future.result(0).offset for place, future in futures if place == partition]
        assert offsets == list(range(len(sent)))


@given(
    faults=FAULTS,
    ends=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=6),
    staged=st.booleans(),
    max_block_ms=st.sampled_from([1, 50, 60_000]),
)
@examples(15)
def test_each_transaction_ends_once_as_asked_despite_lost_puts_and_answers(
    faults: list[Fault], ends: list[tuple[bool, bool]], staged: bool, max_block_ms: int
) -> None:
    world, store = world_with_topic()
    puts = Faults(store.object_store, faults)
    producer = store.producer(
        "tx", staged=staged, max_block_ms=max_block_ms, delivery_timeout_ms=10**9, transaction_timeout_ms=900_000
    )
    until_done(producer.init_transactions)
    expected = []
    for number, (commits, flushes) in enumerate(ends):
        value = b"%d" % number
        producer.begin_transaction()
        producer.send("t", value, partition=0)
        if flushes:
            until_done(producer.flush)
            puts.land_late()
        producer.send("t", value + b"'", partition=0)
        producer.send_offsets_to_transaction({TopicPartition("t", 1): number}, "g")
        until_done(producer.commit_transaction if commits else producer.abort_transaction)
        puts.land_late()
        if commits:
            expected += [value, value + b"'"]

    cold = world.process()
    assert rows_by_partition(cold)[0] == expected
    (committed,) = cold.consumer("g").committed([TopicPartition("t", 1)]).values()
    last = max((number for number, (commits, _) in enumerate(ends) if commits), default=None)
    assert (committed.offset if committed else None) == last
    assert not cold.admin.list_transactions(states=["Ongoing"])


# Threads


Sent = list[tuple[bytes, Future[RecordMetadata]]]


def send_numbered(producer: Producer, thread: int, count: int, sent: Sent, told: list[bytes]) -> None:
    """Send rows into a partition of the thread's, again and again while no transaction is open to take them."""
    for number in range(count):
        value = b"%d-%04d" % (thread, number)
        while True:
            try:
                future = producer.send("t", value, partition=thread % PARTITIONS)
            except errors.IllegalState:
                threading.Event().wait(0.0005)
            else:
                break
        future.add_done_callback(lambda done, value=value: told.append(value))  # type: ignore[misc]
        sent.append((value, future))


@pytest.mark.parametrize("transactional", [True, False])
def test_concurrent_sends_flushes_and_ends_keep_rows_exact_and_in_order(store: Store, transactional: bool) -> None:
    producer = store.producer("tx" if transactional else None)
    if transactional:
        producer.init_transactions()
    sent: list[Sent] = [[] for _ in range(4)]
    told: list[bytes] = []
    threads = [
        threading.Thread(target=send_numbered, args=(producer, index, 400, sent[index], told)) for index in range(4)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if transactional:
            producer.begin_transaction()
            threading.Event().wait(0.001)
            producer.commit_transaction()
        else:
            producer.flush()
    producer.close()

    rows = rows_by_partition(store)
    for index, rows_of_thread in enumerate(sent):
        own = [value for value in rows[index % PARTITIONS] if value.startswith(b"%d-" % index)]
        assert own == [value for value, _ in rows_of_thread]
        for _, future in rows_of_thread:
            assert future.result(0).partition == index % PARTITIONS
    assert sorted(told) == values(store)


def test_a_callback_is_called_once_though_its_row_was_sent_again(store: Store) -> None:
    puts = Faults(store.object_store, [Fault.NONE, Fault.ANSWER_LOST, Fault.REQUEST_LOST])
    producer = store.producer(max_block_ms=1)
    calls: list[RecordMetadata] = []
    future = producer.send("t", b"v", partition=0)
    future.add_done_callback(lambda done: calls.append(done.result()))

    until_done(producer.flush)
    producer.flush()
    producer.close()
    puts.land_late()

    assert calls == [("t", 0, 0)]


def test_a_callback_may_send_more(store: Store) -> None:
    producer = store.producer()
    producer.send("t", b"1", partition=0).add_done_callback(lambda done: producer.send("t", b"2", partition=0))

    producer.flush()
    producer.flush()

    assert values(store) == [b"1", b"2"]
