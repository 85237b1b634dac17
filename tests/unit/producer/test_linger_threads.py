"""The thread of ``linger_ms`` in a process with threads, forks and an exit."""

from __future__ import annotations

import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import eoslog
from eoslog import errors
from eoslog.session.positions import RecordMetadata
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.programs import ran
from tests.unit.support.held import LONGEST_WAIT_S
from tests.unit.support.world import values

LONG_MS = 3_600_000


@pytest.fixture
def local(tmp_path: Path) -> Store:
    """A store on disk with the topic ``t``, in a process with threads."""
    store = eoslog.connect(tmp_path / "store", fsync=False)
    store.admin.create_topic("t", partitions=2)
    return store


def test_a_row_is_written_without_another_call(local: Store) -> None:
    producer = local.producer(linger_ms=1)

    future = producer.send("t", b"v", partition=1)

    assert future.result(LONGEST_WAIT_S) == RecordMetadata("t", 1, 0)
    assert values(local) == [b"v"]
    producer.close()


def test_a_table_is_written_without_another_call(local: Store) -> None:
    producer = local.producer(linger_ms=0)
    told = threading.Event()
    producer.send("t", b"v", on_delivery=lambda *_: told.set())
    producer.send_table("t", pa.table({"value": [b"w"]}))

    assert told.wait(LONGEST_WAIT_S)
    producer.close()
    assert values(local) == [b"v", b"w"]


@pytest.mark.usefixtures("hurried_threads")
def test_threads_that_send_and_flush_beside_it_keep_the_order(local: Store) -> None:
    producer = local.producer(linger_ms=1)
    count = 300

    def work(thread: int) -> None:
        flushes = random.Random(thread)
        for number in range(count):
            producer.send("t", b"%d %d" % (thread, number), partition=thread % 2)
            if flushes.random() < 0.02:
                producer.flush()

    with ThreadPoolExecutor(4) as threads:
        for each in [threads.submit(work, thread) for thread in range(4)]:
            each.result(LONGEST_WAIT_S)
    producer.close()

    consumer = local.consumer(auto_offset_reset="earliest", consumer_timeout_ms=0)
    consumer.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
    read = [tuple(map(int, record.value.split())) for record in consumer]
    for thread in range(4):
        assert [number for each, number in read if each == thread] == list(range(count))


def test_close_writes_the_rows_and_ends_the_thread(local: Store) -> None:
    before = set(threading.enumerate())
    producer = local.producer(linger_ms=LONG_MS)
    producer.send("t", b"v")
    started = set(threading.enumerate()) - before
    assert len(started) == 1

    producer.close()

    for thread in started:
        thread.join(LONGEST_WAIT_S)
        assert not thread.is_alive()
    assert values(local) == [b"v"]


def test_a_callback_may_close_the_producer(local: Store) -> None:
    producer = local.producer(linger_ms=1)
    closed = threading.Event()

    def close(*_: object) -> None:
        producer.close()
        closed.set()

    producer.send("t", b"v", on_delivery=close)

    assert closed.wait(LONGEST_WAIT_S)
    assert values(local) == [b"v"]


def test_a_callback_of_a_flush_may_close_the_producer_while_the_thread_waits(local: Store) -> None:
    producer = local.producer(linger_ms=LONG_MS)
    producer.send("t", b"v", on_delivery=lambda *_: producer.close())

    producer.flush()

    with pytest.raises(errors.IllegalState):
        producer.send("t", b"w")
    assert values(local) == [b"v"]


def test_the_thread_stays_in_the_parent(local: Store) -> None:
    producer = local.producer(linger_ms=LONG_MS)
    producer.send("t", b"parent")
    receiving, sending = os.pipe()

    child = os.fork()
    if child == 0:
        told = b"accepted"
        try:
            producer.send("t", b"child")
        except errors.OpenedBeforeFork:
            told = b"refused"
        producer.close()
        os.write(sending, told)
        os._exit(0)
    os.waitpid(child, 0)

    assert os.read(receiving, 100) == b"refused"
    producer.close()
    assert values(local) == [b"parent"]


def test_a_child_forked_by_a_callback_writes_nothing(local: Store) -> None:
    producer = local.producer(linger_ms=1)
    children: list[int] = []

    def fork(*_: object) -> None:
        child = os.fork()
        if child == 0:
            # The thread of the callback is the only one here. It must end without another flush.
            producer.close()
            os._exit(0)
        children.append(child)

    future = producer.send("t", b"1", on_delivery=fork)
    future.result(LONGEST_WAIT_S)
    producer.close()

    assert os.waitpid(children[0], 0)[1] == 0
    assert values(local) == [b"1"]


def test_the_exit_writes_the_rows_before_their_time(local: Store, tmp_path: Path) -> None:
    program = "import eoslog\neoslog.connect('store', fsync=False).producer(linger_ms=3_600_000).send('t', b'v')"

    assert ran(program, directory=tmp_path) == (0, "", "")

    assert values(local) == [b"v"]


def test_a_close_that_does_not_wait_writes_nothing_and_ends_the_thread(local: Store) -> None:
    before = set(threading.enumerate())
    producer = local.producer(linger_ms=LONG_MS)
    future = producer.send("t", b"v")
    (thread,) = (each for each in set(threading.enumerate()) - before if each.name == "eoslog-background")

    producer.close(timeout=0)

    thread.join(LONGEST_WAIT_S)
    assert not thread.is_alive()
    assert isinstance(future.exception(0), errors.TransactionAborted)
    assert values(local) == []


@pytest.mark.parametrize(
    ("transactional_id", "error"), [(None, errors.DeliveryTimedOut), ("tx", errors.RequestTimedOut)]
)
def test_a_close_that_cuts_the_background_flush_short_says_so(
    local: Store, monkeypatch: pytest.MonkeyPatch, transactional_id: str | None, error: type[Exception]
) -> None:
    before = set(threading.enumerate())
    producer = local.producer(transactional_id, linger_ms=0, max_block_ms=2_000)
    if transactional_id is not None:
        producer.init_transactions()
        producer.begin_transaction()
    asked, answered = threading.Event(), threading.Event()
    put_if_absent = local.object_store.put_if_absent

    def late(path: str, body: bytes) -> object:
        if "/slot/" not in path:
            return put_if_absent(path, body)
        asked.set()
        answered.wait(LONGEST_WAIT_S)
        raise errors.StoreUnavailable("no answer")

    monkeypatch.setattr(local.object_store, "put_if_absent", late)
    future = producer.send("t", b"v")
    (thread,) = (each for each in set(threading.enumerate()) - before if each.name == "eoslog-background")
    assert asked.wait(LONGEST_WAIT_S)

    try:
        with pytest.raises(error, match="was closed"):
            producer.close(timeout=0.01)
    finally:
        answered.set()

    thread.join(LONGEST_WAIT_S)
    assert isinstance(future.exception(0), errors.TransactionAborted)


def test_a_row_may_wait_for_longer_than_a_thread_can(local: Store) -> None:
    before = set(threading.enumerate())
    producer = local.producer(linger_ms=10**18)
    producer.send("t", b"v")
    (thread,) = (each for each in set(threading.enumerate()) - before if each.name == "eoslog-background")

    producer.close()

    thread.join(LONGEST_WAIT_S)
    assert values(local) == [b"v"]
