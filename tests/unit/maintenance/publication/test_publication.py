"""Publication: a topic as a Delta table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from eoslog import InvalidTopic, Store, TopicConfig, TopicPartition, UnsupportedSchema
from eoslog.maintenance.key_compaction import compact_keys
from tests.delta_logs import rows_by_stream, slot_of
from tests.unit.maintenance.publication.published_topics import (
    changes,
    compact,
    create,
    keys,
    newest,
    seal,
    send,
    write,
)
from tests.unit.support.delta_tables import copy_to, rows_by_delta, rows_of_snapshot
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import World


def test_open_and_aborted_transactions_are_not_in_the_table(store: Store, tmp_path: Path) -> None:
    late = open_transaction(store, "late")
    send(late, 100)
    write(store, 1)
    write(store, 2, commit=False)
    write(store, 3)

    store.admin.publish("t")
    late.commit_transaction()
    store.admin.publish("t")

    assert keys(store, tmp_path, 0) == [1, 3]
    assert keys(store, tmp_path, 1) == [1, 3, 100]


def test_a_version_tells_its_slot_and_its_commits(store: Store) -> None:
    write(store, 1, name="etl", version=7)
    slot = store.read(lambda state, slot: slot)

    store.admin.publish("t")

    info = newest(store)[0]["commitInfo"]
    assert info["slot"] == slot_of(newest(store)) == slot
    commit = {"slot": slot, "transactionalId": "etl", "applicationId": "etl", "applicationVersion": 7}
    assert info["commits"] == [commit]


def test_the_table_has_the_widest_protocol_that_keeps_writers_away(store: Store, tmp_path: Path) -> None:
    write(store, 1)
    store.admin.publish("t")
    root = copy_to(tmp_path, store.object_store, "t")

    with pytest.raises(DeltaError, match="eoslog"):
        write_deltalake(root, pa.table({"key": [5], "text": ["x"]}), mode="append", schema_mode="merge")
    with pytest.raises(DeltaError, match="append-only"):
        DeltaTable(root).delete()
    assert DeltaTable(root).protocol().min_reader_version == 1
    assert DeltaTable(root).vacuum(dry_run=True, full=True) == []


def test_a_local_timestamp_needs_a_feature_of_readers(world: World, tmp_path: Path) -> None:
    store = world.process()
    create(store, schema=pa.schema([("key", pa.int64()), ("at", pa.timestamp("us"))]))

    store.admin.publish("t")

    protocol = DeltaTable(copy_to(tmp_path, store.object_store, "t")).protocol()
    assert (protocol.min_reader_version, protocol.reader_features) == (3, ["timestampNtz"])


def test_a_topic_that_only_grows_says_so(store: Store) -> None:
    def append_only() -> str:
        (metadata,) = [action["metaData"] for action in newest(store) if "metaData" in action]
        return str(metadata["configuration"]["delta.appendOnly"])

    write(store, 1, 2)
    store.admin.publish("t")
    before = append_only()
    store.admin.delete_records({TopicPartition("t", 0): 1})
    store.admin.publish("t")

    assert (before, append_only()) == ("true", "false")


def test_nothing_new_gives_no_version_and_costs_three_requests(store: Store) -> None:
    write(store, 1)
    (first,) = store.admin.publish("t")
    before = store.requests.copy()

    (again,) = store.admin.publish("t")

    assert (again.version, again.slot, again.files_added) == (first.version, first.slot, 0)
    assert store.requests - before == {"GET": 3}


def test_metrics_tell_how_old_a_table_is_that_lacks_rows(world: World, store: Store) -> None:
    def lag_ms() -> int:
        return store.metrics().publication_lag_ms["t"]

    before = lag_ms()
    write(store, 1)
    world.pass_time(5_000)
    unpublished = lag_ms()
    store.admin.publish("t")
    write(store, 2, commit=False)
    published = lag_ms()
    write(store, 3)
    world.pass_time(7_000)

    assert (before, published) == (0, 0)
    assert unpublished >= 5_000
    assert 7_000 <= lag_ms() < 60_000


def test_compaction_moves_rows_without_changing_data(store: Store, tmp_path: Path) -> None:
    for key in range(4):
        write(store, key, commit=key != 1)
    store.admin.publish("t")

    compact(store)
    store.admin.publish("t")

    assert changes(newest(store)) == {"add": {False}, "remove": {False}}
    assert newest(store)[0]["commitInfo"]["operation"] == "OPTIMIZE"
    assert rows_by_stream(store.object_store, "t") == [(0, 0), (0, 4), (0, 6)]
    assert keys(store, tmp_path) == [0, 2, 3]


@pytest.mark.usefixtures("files_are_objects")
def test_rows_that_are_not_published_are_not_compacted_yet(store: Store) -> None:
    write(store, 0)
    store.admin.publish("t")
    for key in range(1, 4):
        write(store, key)

    compact(store)
    store.admin.publish("t")
    published = changes(newest(store))
    compact(store)
    store.admin.publish("t")

    assert published == {"add": {True}}
    assert changes(newest(store)) == {"add": {False}, "remove": {False}}
    assert rows_by_stream(store.object_store, "t") == [(0, offset) for offset in (0, 2, 4, 6)]


def test_nothing_is_compacted_before_the_first_version(store: Store) -> None:
    """A publisher may be about to put the first version, at a slot before some of the rows."""
    for key in range(4):
        write(store, key)
    seal(store)

    before = store.admin.compact_files("t").compacted
    store.admin.publish("t")
    after = store.admin.compact_files("t").compacted

    assert (before, len(after)) == ([], 1)


@pytest.mark.usefixtures("files_are_objects")
def test_compaction_by_key_and_deletion_change_data(world: World, tmp_path: Path) -> None:
    store = world.process()
    create(store, cleanup_policy="compact,delete")
    for key in (1, 2, 1, 3):
        write(store, key, 10 + key)
    store.admin.publish("t")

    seal(store)
    compact_keys(store, force=True)
    store.admin.publish("t")
    compacted = changes(newest(store))
    after = keys(store, tmp_path)
    store.admin.delete_records({TopicPartition("t", 0): 4})
    store.admin.publish("t")

    assert compacted["remove"] == {True}
    assert after == [1, 2, 3, 11, 12, 13]
    assert True in changes(newest(store))["remove"]
    assert rows_by_stream(store.object_store, "t") is None


def test_a_file_truncated_in_part_is_rewritten(store: Store, tmp_path: Path) -> None:
    write(store, 0, 1, 2, 3)
    store.admin.publish("t")

    store.admin.delete_records({TopicPartition("t", 0): 2})
    store.admin.publish("t")

    assert keys(store, tmp_path) == [2, 3]
    assert rows_by_delta(copy_to(tmp_path, store.object_store, "t")) == rows_of_snapshot(
        store, "t", slot_of(newest(store))
    )
    assert changes(newest(store)) == {"add": {True}, "remove": {True}}


def test_files_that_were_compacted_before_the_first_publication_lose_their_hidden_rows(
    world: World, tmp_path: Path
) -> None:
    store = world.process()
    create(store, publish="none")
    for key in range(4):
        write(store, key, commit=key != 1)
    compact(store)
    assert store.scan("t", isolation_level="read_uncommitted").to_table().num_rows == 4

    store.admin.alter_topic("t", publish="delta")
    store.admin.publish("t")

    assert keys(store, tmp_path) == [0, 2, 3]


def test_new_columns_are_new_metadata(store: Store, tmp_path: Path) -> None:
    write(store, 1)
    store.admin.publish("t")

    store.admin.add_columns("t", pa.schema([("more", pa.int32())]))
    store.admin.publish("t")

    table = DeltaTable(copy_to(tmp_path, store.object_store, "t"))
    assert [field.name for field in table.schema().fields][:3] == ["key", "text", "more"]
    assert table.to_pyarrow_table()["more"].to_pylist() == [None]


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (pa.schema([("key", pa.int64()), ("took", pa.duration("us"))]), "took"),
        (pa.schema([("key", pa.int64()), ("s", pa.struct([("t", pa.time64("us"))]))]), "s.t"),
        (pa.schema([("key", pa.int64()), ("two words", pa.int64())]), "two words"),
    ],
)
def test_a_schema_that_delta_lacks_is_refused_and_the_topic_works_unpublished(
    world: World, schema: pa.Schema, problem: str
) -> None:
    store = world.process()

    with pytest.raises(UnsupportedSchema, match=f"{problem}.* Use another (type|name), or do not publish the topic"):
        create(store, schema=schema)
    create(store, schema=schema, publish="none")
    with pytest.raises(UnsupportedSchema, match=problem):
        store.admin.alter_topic("t", publish="delta")
    with store.producer() as producer:
        producer.send_table("t", pa.table({"key": [1]}))

    assert store.scan("t").to_table()["key"].to_pylist() == [1]


@pytest.mark.parametrize(
    "column", [pa.field("took", pa.duration("us")), pa.field("two words", pa.int64()), pa.field("n", pa.null())]
)
def test_a_published_topic_gets_no_column_that_delta_lacks(store: Store, column: pa.Field[Any]) -> None:
    before = store.admin.describe_topic("t")

    with pytest.raises(UnsupportedSchema, match=column.name):
        store.admin.add_columns("t", pa.schema([column]))

    assert store.admin.describe_topic("t") == before
    assert store.admin.publish("t")[0].version == 0


def test_only_a_topic_with_the_setting_is_published(world: World) -> None:
    store = world.process()
    create(store, publish="none")

    with pytest.raises(InvalidTopic, match="Set its setting publish to"):
        store.admin.publish("t")


def test_a_delta_log_is_nothing_unexpected(store: Store) -> None:
    write(store, 1)
    store.admin.publish("t")

    assert list(store.admin.verify()) == []


def test_kafka_records_are_published_with_their_timestamps(world: World, tmp_path: Path) -> None:
    store = world.process()
    store.admin.create_topic("t", config=TopicConfig(publish="delta"))
    with store.producer() as producer:
        producer.send("t", b"v", key=b"k", headers=[("h", b"x")], timestamp=1_700_000_000_123)

    store.admin.publish("t")

    root = copy_to(tmp_path, store.object_store, "t")
    assert rows_by_delta(root) == rows_of_snapshot(store, "t", slot_of(newest(store)))
    (add,) = [action["add"] for action in newest(store) if "add" in action]
    assert json.loads(add["stats"])["minValues"]["timestamp"] == "2023-11-14T22:13:20.123Z"
