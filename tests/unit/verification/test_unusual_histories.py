"""A store that nobody damaged is sound, however unusual what was done to it: not even a note is told of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest

from eoslog import Store, TopicConfig, TopicPartition
from eoslog.log.slot_deletion import delete_old_slots
from eoslog.maintenance.coordinator import Coordinator
from tests.unit.support.groups import coordinate
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import World, at_last_epoch
from tests.unit.verification.histories import seal, small_history

DAY_MS = 24 * 3600 * 1000


def transactions(store: Store, outcomes: str, *, transactional_id: str = "etl", rows: int = 1) -> None:
    """A transaction per letter: ``c`` is committed, ``a`` aborted."""
    producer = store.producer(transactional_id)
    producer.init_transactions()
    for number, outcome in enumerate(outcomes):
        producer.begin_transaction()
        for _ in range(rows):
            producer.send("t", b"%d" % number, key=b"k%d" % (number % 3))
            producer.flush()
        if outcome == "c":
            producer.commit_transaction()
        else:
            producer.abort_transaction()


def maintain(store: Store, world: World, *, days: int) -> None:
    world.pass_time(days * DAY_MS)
    Coordinator(store).run_once()


def forget_old_slots(store: Store, world: World) -> None:
    world.pass_time(3 * DAY_MS)
    store.log.checkpoint()
    store.log.checkpoint()
    assert delete_old_slots(store.log)


def values_at_the_ends_of_their_types(store: Store, world: World) -> None:
    ends: dict[str, tuple[pa.DataType, list[object]]] = {
        "text": (pa.string(), ["", "\U0010ffff" * 40]),
        "double": (pa.float64(), [float("-inf"), float("nan")]),
        "single": (pa.float32(), [-0.0, float("inf")]),
        "number": (pa.int64(), [-(2**63), 2**63 - 1]),
        "price": (pa.decimal128(38, 10), [Decimal("-" + "9" * 28 + ".9999999999"), Decimal("0.0000000001")]),
        "day": (pa.date32(), [date.min, date.max]),
        "hour": (pa.time64("us"), [time.min, time.max]),
        "at": (pa.timestamp("us"), [datetime.min, datetime.max]),
    }
    schema = pa.schema([(name, kind) for name, (kind, _) in ends.items()])
    store.admin.create_topic("c", schema=schema, config=TopicConfig(segment_batches=2))
    producer = store.producer()
    for row in range(2):
        rows = [{name: values[row] for name, (_, values) in ends.items()}, dict.fromkeys(ends)]
        producer.send_table("c", pa.Table.from_pylist(rows, schema=schema))
        producer.flush()
    seal(store)


def aborted_rows_compacted_both_ways_and_vacuumed(store: Store, world: World) -> None:
    store.admin.create_topic("t", config=TopicConfig(segment_batches=2, cleanup_policy="compact"))
    for transactional_id in ("one", "two"):
        transactions(store, "acacaacc", transactional_id=transactional_id)
        seal(store)
        store.admin.compact_keys("t")
        world.pass_time(3 * DAY_MS)
    store.admin.compact_files()
    for _ in range(2):
        maintain(store, world, days=9)
    store.admin.alter_topic("t", cleanup_policy="delete")
    transactions(store, "ac", transactional_id="three")
    seal(store)


def transactions_that_end_in_other_segments(store: Store, world: World) -> None:
    store.admin.create_topic("t", partitions=2, config=TopicConfig(segment_batches=3))
    producers = [store.producer(f"etl-{number}") for number in range(4)]
    for producer in producers:
        producer.init_transactions()
        producer.begin_transaction()
    for row in range(3):
        for number, producer in enumerate(producers):
            producer.send("t", b"x", key=b"%d" % (row * number))
            producer.flush()
    producers[2].abort_transaction()
    producers[0].commit_transaction()
    seal(store)
    producers[3].abort_transaction()
    seal(store)
    producers[1].abort_transaction()
    seal(store)
    store.admin.compact_files()
    store.admin.delete_records({TopicPartition("t", 0): 3})


def epochs_that_rolled_over(store: Store, world: World) -> None:
    store.admin.create_topic("t", config=TopicConfig(segment_batches=2))
    producer = store.producer("etl")
    producer.init_transactions()
    at_last_epoch(store, producer)
    for _ in range(2):
        producer.begin_transaction()
        producer.send("t", b"x")
        producer.flush()
        producer.abort_transaction()
    # The state was moved to the last epoch by hand: what the slots before lead to is another.
    forget_old_slots(store, world)
    transactions(store, "ca")
    seal(store)


def partitions_added_within_a_transaction(store: Store, world: World) -> None:
    store.admin.create_topic("t")
    producer = open_transaction(store, "open")
    for partitions in (3, 7):
        producer.send("t", b"x")
        producer.flush()
        store.admin.create_partitions("t", partitions)
        transactions(store, "ca")
    store.log.checkpoint()


def prepared_transactions_of_a_deleted_topic(store: Store, world: World) -> None:
    for topic in ("t", "u"):
        store.admin.create_topic(topic)
    for is_staged in (False, True):
        producer = open_transaction(store, f"two-{is_staged}", staged=is_staged)
        for topic in ("t", "u"):
            producer.send(topic, b"x")
        producer.send_offsets_to_transaction({TopicPartition(topic, 0): 1 for topic in ("t", "u")}, "g")
        producer.prepare_transaction()
    store.admin.delete_topic("t")
    maintain(store, world, days=3)
    store.admin.create_topic("t")
    for name in ("two-False", "two-True"):
        store.admin.force_terminate_transaction(name)
    for _ in range(2):
        maintain(store, world, days=9)


def groups_and_ids_that_expired_and_came_back(store: Store, world: World) -> None:
    small_history(store)
    for _ in range(2):
        with store.consumer("readers", auto_offset_reset="earliest") as consumer:
            consumer.subscribe("t")
            consumer.poll(timeout=0.1)
            consumer.commit()
        maintain(store, world, days=20)
        transactions(store, "ca")
    forget_old_slots(store, world)
    maintain(store, world, days=9)


def groups_whose_gateways_died_and_came_back(store: Store, world: World) -> None:
    small_history(store)
    for gateway in ("k1", "k2"):
        for _ in range(2):
            coordinate(store, gateway)
        maintain(store, world, days=1)
    coordinate(store, "k3")
    coordinate(store, "k4", left=["k3"])
    store.log.checkpoint()


def topics_of_one_name_again_and_again(store: Store, world: World) -> None:
    for number in range(4):
        store.admin.create_topic("t", partitions=number + 1, config=TopicConfig(segment_batches=2))
        transactions(store, "caca", transactional_id=f"etl-{number}")
        seal(store)
        store.admin.delete_topic("t")
        maintain(store, world, days=5)


def transactions_that_timed_out(store: Store, world: World) -> None:
    store.admin.create_topic("t", config=TopicConfig(segment_batches=2))
    producer = open_transaction(store, "asleep")
    producer.send("t", b"x")
    producer.flush()
    transactions(store, "cac", rows=2)
    maintain(store, world, days=1)
    seal(store)


HISTORIES: list[Callable[[Store, World], None]] = [
    values_at_the_ends_of_their_types,
    aborted_rows_compacted_both_ways_and_vacuumed,
    transactions_that_end_in_other_segments,
    epochs_that_rolled_over,
    partitions_added_within_a_transaction,
    prepared_transactions_of_a_deleted_topic,
    groups_and_ids_that_expired_and_came_back,
    groups_whose_gateways_died_and_came_back,
    topics_of_one_name_again_and_again,
    transactions_that_timed_out,
]


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.__name__)
def test_nothing_is_told_of_a_store_that_nobody_damaged(history: Callable[[Store, World], None]) -> None:
    world = World()
    store = world.process()
    history(store, world)

    assert list(world.process().admin.verify(data=True)) == []
