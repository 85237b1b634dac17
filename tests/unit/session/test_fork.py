"""A forked child that uses its parent's objects works on its own, or is told to open others.

The store goes on in the child, unless it lies in memory. Producers, consumers and futures are the parent's.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import copy
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import eoslog
from eoslog import errors
from eoslog.consumer.consumer import Consumer
from eoslog.maintenance.known_tables import KnownTables
from eoslog.producer.producer import Producer
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.s3.servers import S3Server
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import CALLS, values

FORK = multiprocessing.get_context("fork")
LONGEST_S = 60
PLACE = TopicPartition("t", 0)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with the topic ``t`` in a local directory."""
    return with_topic(eoslog.connect(tmp_path / "store", fsync=False))


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def each_store(request: pytest.FixtureRequest) -> Store:
    """A store with the topic ``t``: in a local directory, and on an S3 server."""
    if request.param == "local":
        local: Store = request.getfixturevalue("store")
        return local
    server: S3Server = request.getfixturevalue("any_s3_server")
    return with_topic(eoslog.connect(f"s3://{server.new_bucket()}/fork", **server.options()))


def with_topic(store: Store) -> Store:
    store.admin.create_topic("t")
    return store


@pytest.fixture
def memory(request: pytest.FixtureRequest) -> Store:
    return with_topic(eoslog.connect(f"memory://{request.node.name}"))


def in_child(work: Callable[[], Any]) -> Any:
    """Return or raise the outcome of ``work`` in a forked child, within a minute."""
    receiving, sending = FORK.Pipe(duplex=False)
    child = FORK.Process(target=_send_outcome, args=(sending, work))
    child.start()
    sending.close()
    try:
        assert receiving.poll(LONGEST_S), "the child hangs"
        outcome = receiving.recv()
    finally:
        child.kill()
        child.join()
    returned, error = outcome
    if error is not None:
        raise error
    return returned


def _send_outcome(sending: Any, work: Callable[[], Any]) -> None:
    try:
        sending.send((work(), None))
    except Exception as error:
        sending.send((None, error))


def produce(store: Store, value: bytes) -> int:
    with store.producer() as producer:
        future = producer.send("t", value)
    return future.result().offset


def test_a_child_goes_on_with_the_store_of_its_parent(each_store: Store) -> None:
    store = each_store
    assert produce(store, b"parent") == 0

    assert in_child(lambda: produce(store, b"child")) == 1

    assert produce(store, b"parent again") == 2
    assert values(store) == [b"child", b"parent", b"parent again"]


def test_a_child_reads_and_administers_through_the_store_of_its_parent(each_store: Store) -> None:
    store = each_store
    produce(store, b"v")

    assert in_child(lambda: values(store)) == [b"v"]
    assert in_child(lambda: sorted(store.admin.list_topics())) == ["t"]
    assert in_child(lambda: eoslog.Coordinator(store).abort_timed_out_transactions()) == []
    assert in_child(lambda: [commit.slot for commit in store.commits("t")]) != []


def test_a_child_publishes_with_a_publisher_of_its_own(each_store: Store) -> None:
    store = each_store
    store.admin.alter_topic("t", publish="delta")
    produce(store, b"parent")
    # Another thread of the parent may be reading the Delta log during the fork.
    lock, _ = KnownTables.of(store).lock_of("t", "delta")
    with lock:
        assert in_child(lambda: store.admin.publish("t")[0].version) == 0
        assert in_child(lambda: [each.version for each in eoslog.Coordinator(store).publish()]) == []
    produce(store, b"parent again")

    assert store.admin.publish("t")[0].version == 1
    assert in_child(lambda: store.admin.publish("t")[0].version) == 1


def test_children_of_a_child_go_on_with_the_store(store: Store) -> None:
    assert in_child(lambda: in_child(lambda: produce(store, b"grandchild"))) == 0


def test_a_child_ignores_a_lock_held_by_its_parents_thread(store: Store) -> None:
    produce(store, b"v")
    inside, leave = threading.Event(), threading.Event()

    def hold(state: Any, slot: int) -> None:
        inside.set()
        leave.wait(LONGEST_S)

    holder = threading.Thread(target=store.read, args=(hold,))
    holder.start()
    inside.wait(LONGEST_S)
    try:
        assert in_child(lambda: produce(store, b"child")) == 1
    finally:
        leave.set()
        holder.join()


def test_a_child_ignores_a_change_of_its_parents_cache_of_indexes(store: Store) -> None:
    store.admin.create_topic("sealed", config=eoslog.TopicConfig(segment_batches=1))
    with store.producer() as producer:
        producer.send("sealed", b"v")
    assert len(eoslog.Coordinator(store).seal()) == 1

    store.indexes._kept._is_changing = True

    assert in_child(lambda: store.scan("sealed").to_table()["value"].to_pylist()) == [b"v"]


def test_a_child_ignores_a_change_of_its_parents_cache_of_records(store: Store) -> None:
    produce(store, b"v")

    with store.object_store.recent._own().lock:
        assert in_child(lambda: values(store, "t")) == [b"v"]


def opened(store: Store, transactional_id: str | None) -> Producer:
    """A producer with a row that is not written yet."""
    producer = store.producer(transactional_id)
    if transactional_id is not None:
        producer.init_transactions()
        producer.begin_transaction()
    producer.send("t", b"parent")
    return producer


PRODUCER_CALLS = {name: call for name, call in CALLS.items() if name != "close"} | {"flush": Producer.flush}


@pytest.mark.parametrize("transactional_id", [None, "tx"])
@pytest.mark.parametrize("call", PRODUCER_CALLS)
def test_a_producer_of_the_parent_refuses_each_call(store: Store, transactional_id: str | None, call: str) -> None:
    producer = opened(store, transactional_id)

    with pytest.raises(errors.OpenedBeforeFork, match="Open another producer in this process"):
        in_child(lambda: PRODUCER_CALLS[call](producer))


@pytest.mark.parametrize("transactional_id", [None, "tx"])
def test_closing_a_producer_of_the_parent_leaves_its_rows_and_transaction_alone(
    store: Store, transactional_id: str | None
) -> None:
    producer = opened(store, transactional_id)

    assert in_child(producer.close) is None

    assert values(store) == []
    if transactional_id is not None:
        producer.commit_transaction()
    producer.close()
    assert values(store) == [b"parent"]


@pytest.mark.parametrize("call", ["send", "table"])
def test_a_child_forked_while_room_is_made_cannot_hand_over_rows(store: Store, call: str) -> None:
    producer = store.producer(buffer_bytes=100)
    children: list[int] = []
    receiving, sending = os.pipe()
    producer.send("t", b"v" * 200).add_done_callback(lambda future: children.append(os.fork()))
    outcome = b"taken in"
    try:
        CALLS[call](producer)
    except errors.OpenedBeforeFork:
        outcome = b"refused"
    if children == [0]:
        os.write(sending, outcome)
        os._exit(0)
    os.waitpid(children[0], 0)

    assert (outcome, os.read(receiving, 100)) == (b"taken in", b"refused")


def test_a_child_forked_by_a_rebalance_listener_gets_no_records(store: Store) -> None:
    produce(store, b"v")
    children: list[int] = []
    receiving, sending = os.pipe()
    with store.consumer(auto_offset_reset="earliest") as consumer:
        consumer.subscribe("t", on_assigned=lambda partitions: children.append(os.fork()))
        outcome = b"refused"
        with contextlib.suppress(errors.OpenedBeforeFork):
            outcome = b"%d records" % len(consumer.poll(0))
        if children == [0]:
            os.write(sending, outcome)
            os._exit(0)
        os.waitpid(children[0], 0)

        assert (outcome, os.read(receiving, 100)) == (b"1 records", b"refused")


@pytest.mark.parametrize("place", ["'store', fsync=False", "'s3://bucket/prefix'"])
def test_the_use_of_a_store_imports_no_module_of_eoslog(place: str, tmp_path: Path) -> None:
    """A fork in the middle of an import of another thread would leave the child waiting for ever."""
    program = f"""
import sys
import eoslog
store = eoslog.connect({place})
before = set(sys.modules)
store.admin, store.producer(), store.consumer(), eoslog.Coordinator(store)
if hasattr(store.object_store, "_new_transport"):
    store.object_store._new_transport()._connect()
else:
    store.admin.create_topic("t")
    store.producer().send("t", b"v")
    store.scan("t").to_table()
print(sorted(name for name in set(sys.modules) - before if name.startswith("eoslog")))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_an_iterator_of_the_parent_is_refused_in_a_child(store: Store) -> None:
    produce(store, b"v")
    batches = store.scan("t").to_batches()

    with pytest.raises(errors.OpenedBeforeFork, match="Open another iterator"):
        in_child(lambda: next(batches))
    assert next(batches).num_rows == 1


CONSUMER_CALLS: dict[str, Callable[[Consumer], object]] = {
    "poll": lambda consumer: consumer.poll(0),
    "commit": lambda consumer: consumer.commit({PLACE: 0}),
    "committed": lambda consumer: consumer.committed([PLACE]),
    "seek": lambda consumer: consumer.seek(PLACE, 0),
    "unsubscribe": Consumer.unsubscribe,
    "group_metadata": Consumer.group_metadata,
    "wakeup": Consumer.wakeup,
}


@pytest.mark.parametrize("call", CONSUMER_CALLS)
def test_a_consumer_of_the_parent_refuses_each_call(store: Store, call: str) -> None:
    with store.consumer("g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe("t")
        consumer.poll(0)

        with pytest.raises(errors.OpenedBeforeFork, match="Open another consumer in this process"):
            in_child(lambda: CONSUMER_CALLS[call](consumer))


def test_closing_a_consumer_of_the_parent_leaves_the_group_alone(store: Store) -> None:
    with store.consumer("g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe("t")
        consumer.poll(0)

        assert in_child(consumer.close) is None

        assert len(store.admin.describe_consumer_group("g").members) == 1
        produce(store, b"v")
        assert [record.value for record in consumer.poll(5)] == [b"v"]


def poll_until_woken(consumer: Consumer) -> None:
    with pytest.raises(errors.Wakeup):
        consumer.poll(LONGEST_S)


def test_a_child_is_refused_while_a_thread_of_its_parent_polls(store: Store) -> None:
    with store.consumer() as consumer:
        consumer.assign([PLACE])
        polling = threading.Thread(target=poll_until_woken, args=(consumer,))
        polling.start()
        try:
            with pytest.raises(errors.OpenedBeforeFork):
                in_child(lambda: consumer.poll(0))
            assert in_child(consumer.close) is None
        finally:
            consumer.wakeup()
            polling.join()


def test_rows_of_forked_children_are_not_mistaken_for_retries(each_store: Store) -> None:
    """Children that share the parent's sequences would be told offsets of rows that do not exist."""
    store = each_store
    producer = store.producer()
    producer.send("t", b"parent")
    producer.flush()

    def job(number: int) -> bytes:
        value = b"job %d" % number
        try:
            producer.send("t", value)
            producer.flush()
        except errors.OpenedBeforeFork:
            produce(store, value)
        return value

    global work
    work = job
    with FORK.Pool(4) as pool:
        told = pool.map(run_work, range(20), chunksize=1)

    assert values(store) == sorted([b"parent", *told])


def test_an_error_in_a_pool_worker_arrives_unchanged(store: Store) -> None:
    producer = store.producer()
    global work
    work = lambda number: producer.send("t", b"v")  # noqa: E731 - found by name in the child

    with (
        ProcessPoolExecutor(1, mp_context=FORK) as pool,
        pytest.raises(errors.OpenedBeforeFork, match=r"^\[EOSLOG_OPENED_BEFORE_FORK\] send\(\): "),
    ):
        pool.submit(run_work, 0).result(LONGEST_S)


work: Callable[[int], Any] = lambda number: None  # noqa: E731 - replaced by tests before they fork


def run_work(number: int) -> Any:
    return work(number)


def waited(future: Any) -> BaseException | None:
    done, _ = concurrent.futures.wait([future], timeout=LONGEST_S)
    return done.pop().exception() if done else None


def completed(future: Any) -> BaseException | None:
    return next(concurrent.futures.as_completed([future], timeout=LONGEST_S)).exception()


def awaited(future: Any) -> BaseException | None:
    async def wait() -> BaseException | None:
        try:
            await asyncio.wait_for(asyncio.wrap_future(future), LONGEST_S)
        except errors.OpenedBeforeFork as error:
            return error
        return None

    return asyncio.run(wait())


def called_back(future: Any) -> BaseException | None:
    told: list[BaseException | None] = []
    future.add_done_callback(lambda done: told.append(done.exception()))
    return told[0] if told else None


@pytest.mark.parametrize("wait", [lambda future: future.exception(), waited, completed, awaited, called_back])
def test_a_child_does_not_wait_for_a_record_that_its_parent_sent(store: Store, wait: Callable[[Any], Any]) -> None:
    producer = store.producer()
    future = producer.send("t", b"parent")

    assert isinstance(in_child(lambda: wait(future)), errors.OpenedBeforeFork)
    with pytest.raises(errors.OpenedBeforeFork):
        in_child(lambda: future.result().offset)

    producer.flush()
    assert future.result(0).offset == 0


def test_a_child_knows_the_offset_of_a_record_written_before_forking(store: Store) -> None:
    producer = store.producer()
    future = producer.send("t", b"parent")
    producer.flush()

    assert in_child(lambda: (future.done(), future.result().offset)) == (True, 0)


def test_a_child_forked_by_a_callback_cannot_commit_its_parents_transaction(store: Store) -> None:
    producer = open_transaction(store, "tx")
    outcome: list[str] = []
    children: list[int] = []
    receiving, sending = os.pipe()

    def fork(future: Any) -> None:
        children.append(os.fork())

    producer.send("t", b"v").add_done_callback(fork)
    try:
        producer.commit_transaction()
        outcome.append("committed")
    except errors.OpenedBeforeFork:
        outcome.append("refused")
    if children == [0]:
        os.write(sending, outcome[0].encode())
        os._exit(0)
    os.waitpid(children[0], 0)

    assert (outcome, os.read(receiving, 100)) == (["committed"], b"refused")
    assert values(store) == [b"v"]


def test_a_memory_store_is_refused_in_a_child(memory: Store) -> None:
    for use in (lambda: produce(memory, b"child"), lambda: values(memory), memory.admin.list_topics):
        with pytest.raises(errors.OpenedBeforeFork, match="Use a local directory or S3"):
            in_child(use)
    assert values(memory) == []


def test_a_child_that_opens_a_memory_store_by_name_finds_none(memory: Store) -> None:
    with pytest.raises(errors.NotAStore):
        in_child(lambda: values(eoslog.connect(memory.url)))


@pytest.fixture
def held(store: Store) -> Iterator[dict[str, object]]:
    produce(store, b"v")
    with store.producer() as producer, store.consumer("g") as consumer:
        yield {
            "store": store,
            "producer": producer,
            "consumer": consumer,
            "admin": store.admin,
            "coordinator": eoslog.Coordinator(store),
            "scan": store.scan("t"),
            "batches": store.scan("t").to_batches(),
            "history": store.history(),
        }


@pytest.mark.parametrize(
    "name", ["store", "producer", "consumer", "admin", "coordinator", "scan", "batches", "history"]
)
def test_pickling_a_client_fails_and_says_what_to_hand_over(held: dict[str, object], name: str) -> None:
    for pickled in (lambda: pickle.dumps(held[name]), lambda: copy.deepcopy(held[name])):
        with pytest.raises(errors.InvalidRequest, match=r"cannot be pickled: pass on .* URL"):
            pickled()


@pytest.mark.parametrize("name", sorted(name for name in dir(errors) if isinstance(getattr(errors, name), type)))
def test_errors_survive_pickling(name: str) -> None:
    kind = getattr(errors, name)
    if not issubclass(kind, errors.EosLogError):
        return
    error = kind("what is wrong, and what to do")

    again = pickle.loads(pickle.dumps(error))

    assert (type(again), str(again), vars(again)) == (kind, str(error), vars(error))


FIRST_CONVERSION = """
import os, signal, sys, threading, time
sys.path.insert(0, sys.argv[1])
import eoslog
store = eoslog.connect(sys.argv[2])
store.admin.create_topic("t")
producer = store.producer()
producer.send("t", b"parent")
assert "pandas" not in sys.modules
flush = threading.Thread(target=producer.flush)
flush.start()
while "pandas" not in sys.modules:
    time.sleep(0.01)
child = os.fork()
signal.alarm(50)
with store.producer() as producer:
    producer.send("t", b"child" if child == 0 else b"parent")
if child == 0:
    os._exit(0)
flush.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_that_is_forked_during_the_first_conversion_of_another_thread_works(tmp_path: Path) -> None:
    # A pandas whose import takes long, and which is then missing.
    (tmp_path / "pandas.py").write_text("import time\ntime.sleep(1)\nraise ImportError\n")
    url = tmp_path / "store"

    done = subprocess.run([sys.executable, "-c", FIRST_CONVERSION, tmp_path, url], timeout=LONGEST_S, check=False)

    assert done.returncode == 0
    assert values(eoslog.connect(url)) == [b"child", b"parent", b"parent"]
