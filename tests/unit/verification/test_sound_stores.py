"""A store that nobody damaged is sound, whatever history made it, and also while others are at work in it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

from eoslog import Store, TopicConfig, TopicPartition
from eoslog.errors import EosLogError
from eoslog.log.replica import LogConfig
from eoslog.log.slot_deletion import delete_old_slots
from eoslog.maintenance.coordinator import Coordinator
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from eoslog.storage.object_store import ObjectStore
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import World
from tests.unit.verification.histories import COLUMNS, commit_staged, faults, rows, seal, small_history

DAY_MS = 24 * 3600 * 1000


def send(store: Store, topic: str, count: int, *, keys: int = 2) -> None:
    producer = store.producer()
    for number in range(count):
        producer.send(topic, b"%d" % number, key=b"k%d" % (number % keys))
        producer.flush()


def empty_store(store: Store, world: World) -> None:
    store.create()


def topics_without_rows(store: Store, world: World) -> None:
    store.admin.create_topic("t", partitions=3)
    store.log.checkpoint()


def compacted(store: Store, world: World) -> None:
    store.admin.create_topic("t", config=TopicConfig(segment_batches=2, cleanup_policy="compact"))
    send(store, "t", 9)
    seal(store)
    store.admin.compact_keys("t")
    world.pass_time(3 * DAY_MS)
    send(store, "t", 5)
    seal(store)
    store.admin.compact_keys("t")
    store.log.checkpoint()


def merged(store: Store, world: World) -> None:
    small_history(store)
    seal(store)
    assert store.admin.compact_files().compacted


def staged(store: Store, world: World) -> None:
    store.admin.create_topic("c", schema=COLUMNS, config=TopicConfig(segment_batches=3))
    for version in range(5):
        commit_staged(store, "c", version)
    seal(store)


def deleted_topic(store: Store, world: World) -> None:
    small_history(store)
    with open_transaction(store, "open") as producer:
        producer.send("t", b"x")
        producer.flush()
        store.admin.delete_topic("t")
        producer.abort_transaction()
    store.admin.create_topic("t")
    send(store, "t", 2)


def open_transactions(store: Store, world: World) -> None:
    store.admin.create_topic("t", config=TopicConfig(segment_batches=2))
    for number in range(3):
        producer = open_transaction(store, f"open-{number}")
        producer.send("t", b"%d" % number)
        producer.flush()
        send(store, "t", 2)
    store.log.checkpoint()


def prepared(store: Store, world: World) -> None:
    store.admin.create_topic("t")
    for staged_too in (False, True):
        producer = open_transaction(store, f"two-{staged_too}", staged=staged_too)
        producer.send("t", b"x")
        producer.send_offsets_to_transaction({TopicPartition("t", 0): 1}, "g")
        producer.prepare_transaction()


def fenced(store: Store, world: World) -> None:
    store.admin.create_topic("t")
    for _ in range(3):
        producer = open_transaction(store, "etl")
        producer.send("t", b"x")
        producer.flush()


def more_columns(store: Store, world: World) -> None:
    first = pa.schema([("n", pa.int64()), ("at", pa.struct([("x", pa.int32())]))])
    store.admin.create_topic("c", schema=first, config=TopicConfig(segment_batches=2))
    producer = store.producer()
    producer.send_table("c", pa.table({"n": [1], "at": [{"x": 1}]}, schema=first))
    producer.flush()
    store.admin.add_columns("c", pa.schema([("at", pa.struct([("y", pa.string())])), ("m", pa.list_(pa.int64()))]))
    producer.send_table("c", pa.table({"n": [2, None], "m": [[1], None]}))
    producer.flush()
    seal(store)


def expired_and_vacuumed(store: Store, world: World) -> None:
    small_history(store)
    world.pass_time(30 * DAY_MS)
    for _ in range(2):
        Coordinator(store).run_once()
        world.pass_time(9 * DAY_MS)
    send(store, "t", 3)


def retained_and_cut(store: Store, world: World) -> None:
    small_history(store)
    seal(store)
    store.admin.delete_records({TopicPartition("t", 0): 2})
    store.admin.delete_records({TopicPartition("t", 0): 8})
    store.admin.alter_topic("c", retention_ms=1)
    world.pass_time(DAY_MS)
    Coordinator(store).apply_retention()
    send(store, "t", 2)


def without_old_slots(store: Store, world: World) -> None:
    small_history(store)
    world.pass_time(3 * DAY_MS)
    store.log.checkpoint()
    store.log.checkpoint()
    assert delete_old_slots(store.log) > 10


HISTORIES: dict[str, Callable[[Store, World], None]] = {
    "empty store": empty_store,
    "topics without rows": topics_without_rows,
    "of everything a little": lambda store, world: small_history(store) and None,
    "compacted": compacted,
    "merged": merged,
    "staged commits of a job": staged,
    "a topic deleted and made anew": deleted_topic,
    "open transactions": open_transactions,
    "prepared transactions": prepared,
    "producers that fence each other": fenced,
    "columns that were added": more_columns,
    "ids that expired, files that were vacuumed": expired_and_vacuumed,
    "records deleted, and retention": retained_and_cut,
    "slots that were deleted": without_old_slots,
}


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.parametrize("history", HISTORIES)
def test_nothing_is_wrong_with_a_store_that_nobody_damaged(history: str, world: World) -> None:
    store = world.process()
    HISTORIES[history](store, world)

    assert faults(store) == []


@pytest.fixture
def world() -> World:
    return World()


def test_a_transaction_past_its_time_out_is_a_warning(world: World) -> None:
    store = world.process()
    open_transactions(store, world)
    world.pass_time(DAY_MS)

    assert [each.kind for each in faults(store)] == ["transaction-overdue"] * 3


def test_an_offset_beyond_the_end_is_a_warning(world: World) -> None:
    store = world.process()
    store.admin.create_topic("t")
    consumer = store.consumer("g")
    consumer.assign([TopicPartition("t", 0)])
    consumer.commit({TopicPartition("t", 0): 17})

    (found,) = faults(store)

    assert (found.kind, found.topic, found.partition) == ("group-offset-beyond-end", "t", 0)
    assert "17" in found.problem


def test_a_store_whose_making_was_interrupted_has_no_log(memory_store: ObjectStore, environment: Environment) -> None:
    store = Store(memory_store, environment)
    store.create()
    memory_store.delete([info.path for info in memory_store.list("__transaction_state/")])

    assert [each.kind for each in faults(Store(memory_store, environment))] == ["log-missing"]


@pytest.mark.s3
def test_a_store_on_s3_is_sound_and_its_damages_are_found(s3_store: ObjectStore, environment: Environment) -> None:
    store = small_history(Store(s3_store, environment))
    assert list(store.admin.verify(data=True)) == []

    listed = [info.path for info in s3_store.list("t/")]
    lost = next(path for path in listed if path.endswith(".parquet") and ".index." not in path)
    s3_store.delete([lost])
    assert [(each.kind, each.path) for each in faults(store)] == [("data-missing", lost)]


@pytest.mark.s3
def test_on_s3_a_record_that_others_repeat_otherwise_is_found(s3_store: ObjectStore, environment: Environment) -> None:
    store = small_history(Store(s3_store, environment))
    producer = store.producer()
    for _ in range(2):
        producer.send("t", b"x", key=b"kkkk")
        producer.flush()
    newest = store.read(lambda state, slot: slot)
    path = f"__transaction_state/slot/9999999999/{newest - 1:020d}.json"
    body = s3_store.get(path).body
    at = body.index(b'"time_ms":') + len(b'"time_ms":') + 5
    s3_store.put(path, body[:at] + (b"1" if body[at : at + 1] != b"1" else b"2") + body[at + 1 :])

    assert [(each.kind, each.slot) for each in faults(store)] == [("slot-tail-differs", newest)]


def test_while_others_write_compact_and_vacuum_nothing_is_wrong(environment: Environment) -> None:
    name = environment.new_id()

    def process() -> Store:
        config = LogConfig(checkpoint_slots=5)
        return Store(MemoryStore(environment, name), environment, config)

    store = process()
    store.create()
    store.admin.create_topic("t", config=TopicConfig(segment_batches=3, retention_bytes=20_000))
    store.admin.create_topic("c", config=TopicConfig(segment_batches=3, cleanup_policy="compact"))
    stopped = threading.Event()

    def work(step: Callable[[Store], object]) -> None:
        mine = process()
        while not stopped.wait(0.05):
            # Files of writers that take longer than the short ages below are gone when they are named.
            with contextlib.suppress(EosLogError):
                step(mine)

    def maintain(mine: Store) -> None:
        mine.admin.compact_files()
        mine.admin.compact_keys("c")
        Coordinator(mine, staged_max_age_ms=200, deleted_file_retention_ms=100).run_once()

    threads = [
        threading.Thread(target=work, args=(step,))
        for step in (lambda mine: send(mine, "t", 3), lambda mine: send(mine, "c", 3), maintain)
    ]
    for thread in threads:
        thread.start()
    try:
        found = [each for _ in range(4) for each in faults(process())]
    finally:
        stopped.set()
        for thread in threads:
            thread.join()

    assert found == []
    assert faults(process()) == []


def test_rows_of_columns_are_looked_at_with_their_statistics(world: World) -> None:
    store = world.process()
    store.admin.create_topic("c", schema=COLUMNS)
    producer = store.producer()
    producer.send_table("c", rows(1, count=100))
    producer.flush()

    assert faults(store) == []
