"""A topic is given more columns: rows so far have nulls there, whoever reads them, and every writer goes on."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pyarrow as pa
import pytest

from eoslog import errors
from eoslog.maintenance.sealing import seal_segments
from eoslog.state.entries import TopicConfig
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from eoslog.store import Store
from tests.unit.support.paused_processes import Died, Mortal
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import World

ROWS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("at", pa.struct([("x", pa.int64())]))])
NOTE = pa.schema([pa.field("note", pa.string(), nullable=False)])
Y = pa.schema([pa.field("at", pa.struct([("y", pa.int64())]))])


def row(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "at": {"x": number}} | more


def write(store: Store, *rows: dict[str, Any], topic: str = "c") -> None:
    with store.producer() as producer:
        producer.send_table(topic, pa.Table.from_pylist(list(rows)))


def read(store: Store, **options: Any) -> list[dict[str, Any]]:
    return sorted(store.scan("c", **options).to_table().to_pylist(), key=lambda each: int(each["id"]))


@pytest.fixture
def store(world: World) -> Store:
    store = world.process()
    config = TopicConfig(segment_batches=2, cleanup_policy="compact")
    store.admin.create_topic("c", schema=ROWS, key="id", config=config)
    write(store, row(1), row(2))
    return store


def widened(store: Store) -> None:
    store.admin.add_columns("c", pa.schema([*NOTE, *Y]))


OLD = [
    {"id": 1, "at": {"x": 1, "y": None}, "note": None},
    {"id": 2, "at": {"x": 2, "y": None}, "note": None},
]
NEW = {"id": 3, "at": {"x": 3, "y": 4}, "note": "n"}


def test_rows_so_far_have_nulls_in_new_columns_and_fields(store: Store) -> None:
    widened(store)
    write(store, NEW)

    assert read(store) == [*OLD, NEW]
    assert read(store, columns=["note", "id"]) == [
        {"note": None, "id": 1},
        {"note": None, "id": 2},
        {"note": "n", "id": 3},
    ]
    assert store.admin.describe_topic("c").schema_version == 2


def test_columns_that_are_there_are_not_added_again(store: Store) -> None:
    widened(store)
    before = store.read(lambda state, slot: slot)

    for _ in range(2):
        assert store.admin.add_columns("c", pa.schema([*NOTE, *Y])).schema_version == 2

    assert store.read(lambda state, slot: slot) == before


@pytest.mark.parametrize(
    ("topic", "columns", "error"),
    [
        ("t", NOTE, errors.InvalidTopic),
        ("nowhere", NOTE, errors.UnknownTopicOrPartition),
        ("c", pa.schema([("id", pa.string())]), errors.SchemaMismatch),
        ("c", pa.schema([("Id", pa.int64())]), errors.UnsupportedSchema),
        ("c", pa.schema([("_offset", pa.int64())]), errors.UnsupportedSchema),
        ("c", ["note"], errors.InvalidRequest),
    ],
)
def test_a_refused_addition_of_columns_changes_nothing(
    store: Store, topic: str, columns: Any, error: type[Exception]
) -> None:
    store.admin.create_topic("t")
    before = store.read(lambda state, slot: slot)

    with pytest.raises(error):
        store.admin.add_columns(topic, columns)

    assert store.read(lambda state, slot: slot) == before


def test_the_history_of_a_schema_outlives_the_slots(store: Store, world: World) -> None:
    made = store.admin.describe_topic("c").created_slot
    world.pass_time(1000)
    widened(store)
    slot = store.read(lambda state, newest: newest)
    store.log.checkpoint()

    first, second = world.process().admin.schema_history("c")

    assert (first.version, first.slot, first.schema, first.added) == (1, made, ROWS, ())
    assert (second.version, second.slot) == (2, slot)
    assert second.timestamp >= first.timestamp + 1000
    assert second.added == (("at", "y"), ("note",))
    assert second.schema.field("note").nullable


def test_an_earlier_slot_is_read_with_the_schema_of_now(store: Store) -> None:
    slot = store.read(lambda state, newest: newest)
    widened(store)
    write(store, NEW)

    assert read(store, slot=slot) == OLD


def test_commits_of_before_have_nulls_too(store: Store) -> None:
    widened(store)
    write(store, NEW)

    found = [commit.to_tables()["c"].to_pylist() for commit in store.commits("c")]

    assert found == [OLD, [NEW]]


def test_a_consumer_is_handed_new_columns_from_its_next_plan_on(store: Store, world: World) -> None:
    consumer = world.process().consumer(auto_offset_reset="earliest")
    consumer.subscribe("c")
    before = [record.value for record in consumer.poll(timeout=1)]
    widened(store)
    write(store, NEW)

    after = [record.value for record in consumer.poll(timeout=1)]

    assert (before, after) == ([row(1), row(2)], [NEW])


def test_a_writer_that_does_not_know_of_new_columns_goes_on(store: Store, world: World) -> None:
    other = world.process()
    producer = open_transaction(other, "tx")
    producer.send_table("c", pa.Table.from_pylist([row(4)]))
    widened(store)
    producer.send_table("c", pa.Table.from_pylist([row(5)]))
    producer.commit_transaction()

    assert [each["id"] for each in read(store)] == [1, 2, 4, 5]
    assert {each["note"] for each in read(store)} == {None}


@pytest.mark.parametrize("staged", [False, True])
def test_an_unknown_column_makes_a_producer_look_at_the_topic_again(store: Store, world: World, staged: bool) -> None:
    producer = open_transaction(world.process(), "tx", staged=staged)
    producer.send_table("c", pa.Table.from_pylist([row(4)]))
    with pytest.raises(errors.SchemaMismatch, match=r"'note'.*not in the topic"):
        producer.send_table("c", pa.Table.from_pylist([NEW]))
    widened(store)
    producer.send_table("c", pa.Table.from_pylist([NEW]))
    producer.send_table("c", pa.Table.from_pylist([row(5)]))
    producer.commit_transaction()

    assert read(store) == [
        *OLD,
        NEW,
        {"id": 4, "at": {"x": 4, "y": None}, "note": None},
        {"id": 5, "at": {"x": 5, "y": None}, "note": None},
    ]


def test_files_of_several_schemas_are_compacted_both_ways(store: Store) -> None:
    write(store, row(2))
    seal_segments(store)
    widened(store)
    write(store, NEW)
    write(store, NEW | {"note": "newer"}, {"id": 6, "at": None, "note": "only this"})
    # A tombstone: every column beside the key is null, those that came later too.
    write(store, {"id": 1, "at": None, "note": None})
    write(store, row(7))
    seal_segments(store)
    rows = read(store)

    (compacted,) = store.admin.compact_files("c").compacted
    assert (compacted.segments, read(store)) == (3, rows)

    store.admin.compact_keys("c")
    assert read(store) == [
        {"id": 1, "at": None, "note": None},
        OLD[1],
        NEW | {"note": "newer"},
        {"id": 6, "at": None, "note": "only this"},
        {"id": 7, "at": {"x": 7, "y": None}, "note": None},
    ]
    assert store.admin.restore_indexes("c") == []


def test_concurrent_writers_of_new_columns_keep_those_of_the_others(world: World, store: Store) -> None:
    names = [f"n{number}" for number in range(8)]
    others = [world.process() for _ in names]
    threads = [
        threading.Thread(target=other.admin.add_columns, args=("c", pa.schema([(name, pa.int8()), ("all", pa.int8())])))
        for other, name in zip(others, names, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    topic = store.admin.describe_topic("c")

    assert topic.schema_version == 9
    assert sorted(store.scan("c").schema.names) == sorted(["id", "at", "all", *names])


@pytest.mark.parametrize(("point", "version"), [("log.slot.before_put", 1), ("log.slot.claimed", 2)])
def test_a_process_that_dies_while_it_adds_columns_leaves_all_or_none(point: str, version: int) -> None:
    objects = MemoryStore(Environment())
    Store(objects, Environment()).admin.create_topic("c", schema=ROWS)
    with contextlib.suppress(Died):
        Store(objects, Mortal(point)).admin.add_columns("c", pa.schema([*NOTE, *Y]))

    survivor = Store(objects, Environment())

    assert survivor.admin.describe_topic("c").schema_version == version
    assert survivor.admin.add_columns("c", pa.schema([*NOTE, *Y])).schema_version == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[" * 100_000,
        '{"type":"struct"}',
        '{"type":"struct","fields":[1]}',
        '{"type":"struct","fields":[{"name":"z"}]}',
        '{"type":"struct","fields":[{"name":7,"type":"long"}]}',
        '{"type":"struct","fields":[{"name":"z","type":{"type":"array"}}]}',
        '{"type":"struct","fields":[{"name":"z","type":{"type":"map","keyType":"string"}}]}',
        '{"type":"struct","fields":[{"name":"z","type":{"type":"nonsense"}}]}',
        '{"type":"array","elementType":"long"}',
    ],
)
def test_a_description_that_is_no_spark_schema_is_never_stored(store: Store, text: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=r"the result of StructType\.json"):
        store.admin.add_columns("c", NOTE, spark_schema=text)
    with pytest.raises(errors.InvalidRequest, match=r"the result of StructType\.json"):
        store.admin.create_topic("d", schema=ROWS, spark_schema=text)

    described = '{"type":"struct","fields":[{"name":"note","type":"string","nullable":true,"metadata":{}}]}'
    store.admin.add_columns("c", NOTE, spark_schema=described)
    assert store.admin.describe_topic("c").schema_version == 2
