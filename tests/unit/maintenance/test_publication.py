"""Publication: a topic as a Delta table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from eoslog import CorruptRecord, InvalidTopic, Store, TopicConfig, TopicPartition, UnsupportedSchema
from eoslog.delta.delta_log import DeltaLog
from eoslog.errors import StoreUnavailable
from eoslog.maintenance.file_compaction import compact_files
from eoslog.maintenance.key_compaction import compact_keys
from eoslog.maintenance.publication import Publisher
from eoslog.maintenance.sealing import seal_segments
from eoslog.maintenance.vacuum import vacuum
from eoslog.producer.producer import Producer
from eoslog.storage.object_store import PutOutcome
from tests.delta_logs import rows_by_stream, slot_of, versions
from tests.unit.support.delta_tables import copy_to, rows_by_delta, rows_of_snapshot
from tests.unit.support.overwriting import overwrite
from tests.unit.support.paused_processes import Died, asleep_at, dies_at
from tests.unit.support.world import World, faulty

COLUMNS = pa.schema([("key", pa.int64()), ("text", pa.string())])


@pytest.fixture
def store(world: World) -> Store:
    """A store with the published topic ``t`` of columns, in one partition."""
    store = world.process()
    create(store)
    return store


def create(store: Store, topic: str = "t", schema: pa.Schema = COLUMNS, **config: Any) -> None:
    settings = {"publish": "delta", "segment_batches": 2} | config
    store.admin.create_topic(topic, schema=schema, key=schema.names[0], config=TopicConfig(**settings))


def send(producer: Producer, *keys: int, topic: str = "t") -> None:
    producer.send_table(topic, pa.table({"key": keys, "text": [str(key) for key in keys]}, schema=COLUMNS))
    producer.flush()


def write(store: Store, *keys: int, commit: bool = True, name: str = "p", version: int | None = None) -> None:
    producer = store.producer(name)
    producer.init_transactions()
    producer.begin_transaction()
    send(producer, *keys)
    if commit:
        producer.commit_transaction(version=version)
    else:
        producer.abort_transaction()


def seal(store: Store) -> None:
    seal_segments(store)


def compact(store: Store) -> None:
    seal(store)
    compact_files(store)


def newest(store: Store) -> list[dict[str, Any]]:
    return list(versions(store.object_store, "t"))[-1]


def changes(actions: list[dict[str, Any]]) -> dict[str, set[bool]]:
    """Return whether the files that a version adds and removes change data."""
    return {
        name: {action[name]["dataChange"] for action in actions if name in action}
        for name in ("add", "remove")
        if any(name in action for action in actions)
    }


def keys(store: Store, directory: Path, version: int | None = None) -> list[int]:
    rows = rows_by_delta(copy_to(directory, store.object_store, "t"), version)
    return sorted(row[2] for row in rows)


def test_open_and_aborted_transactions_are_not_in_the_table(store: Store, tmp_path: Path) -> None:
    late = store.producer("late")
    late.init_transactions()
    late.begin_transaction()
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
    first = store.admin.publish("t")
    before = store.requests.copy()

    again = store.admin.publish("t")

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


def described(store: Store, since: int) -> list[tuple[str, int, dict[str, set[bool]]]]:
    """Return operation, slot and changes of the versions after a version."""
    return [
        (actions[0]["commitInfo"]["operation"], slot_of(actions), changes(actions))
        for actions in list(versions(store.object_store, "t"))[since + 1 :]
    ]


def stream(store: Store) -> list[int]:
    """Return the offsets that a Delta stream with skipChangeCommits takes from the one partition."""
    return [offset for _, offset in rows_by_stream(store.object_store, "t", skip_change_commits=True) or []]


def test_a_version_that_only_deletes_records_is_a_delete(store: Store) -> None:
    write(store, 0, 1, 2)
    before = store.admin.publish("t")

    store.admin.delete_records({TopicPartition("t", 0): 2})
    after = store.admin.publish("t")

    assert described(store, before.version) == [("DELETE", after.slot, {"add": {True}, "remove": {True}})]


def test_removed_rows_and_new_rows_have_a_version_each(store: Store, tmp_path: Path) -> None:
    write(store, 0, 1, 2)
    before = store.admin.publish("t")
    write(store, 3, 4)
    store.admin.delete_records({TopicPartition("t", 0): 2})

    after = store.admin.publish("t")

    assert described(store, before.version) == [
        ("DELETE", before.slot, {"add": {True}, "remove": {True}}),
        ("WRITE", after.slot, {"add": {True}}),
    ]
    assert (after.version, after.files_added, after.files_removed) == (before.version + 2, 2, 1)
    assert keys(store, tmp_path, before.version + 1) == [2]
    assert keys(store, tmp_path) == [2, 3, 4]
    assert stream(store) == [0, 1, 2, 4, 5]


def test_rows_compacted_by_key_and_new_rows_have_a_version_each(world: World, tmp_path: Path) -> None:
    store = world.process()
    create(store, cleanup_policy="compact")
    for key in (1, 2, 1, 2):
        write(store, key)
    before = store.admin.publish("t")
    seal(store)
    compact_keys(store, force=True)
    write(store, 3)

    after = store.admin.publish("t")

    assert [each[:2] for each in described(store, before.version)] == [("DELETE", before.slot), ("WRITE", after.slot)]
    assert keys(store, tmp_path, before.version + 1) == [1, 2]
    assert stream(store) == [0, 2, 4, 6, 8]


def test_a_publisher_that_dies_between_removals_and_new_rows_leaves_a_whole_table(
    world: World, store: Store, tmp_path: Path
) -> None:
    write(store, 0, 1, 2)
    before = store.admin.publish("t")
    write(store, 3)
    store.admin.delete_records({TopicPartition("t", 0): 3})
    dying = world.process()
    dies_at(dying, "delta.version.put")

    with pytest.raises(Died):
        dying.admin.publish("t")
    left = keys(store, tmp_path)
    write(store, 4)
    store.admin.publish("t")

    assert left == []
    assert keys(store, tmp_path) == [3, 4]
    assert stream(store) == [0, 1, 2, 4, 6]
    assert [each[:1] for each in described(store, before.version)] == [("DELETE",), ("WRITE",)]


def test_another_publisher_between_removals_and_new_rows_puts_the_new_rows_once(
    world: World, store: Store, tmp_path: Path
) -> None:
    write(store, 0)
    store.admin.publish("t")
    write(store, 1)
    store.admin.delete_records({TopicPartition("t", 0): 1})
    slow = world.process()
    asleep_at(slow, "delta.version.put", lambda: store.admin.publish("t"))

    found = slow.admin.publish("t")

    assert (found.version, found.files_added, found.files_removed) == (2, 0, 1)
    assert keys(store, tmp_path) == [1]
    assert stream(store) == [0, 2]


def test_an_overwrite_is_one_version_and_later_rows_have_their_own(store: Store, tmp_path: Path) -> None:
    write(store, 0, 1)
    before = store.admin.publish("t")
    slot = overwrite(store, "t", pa.table({"key": [5, 6], "text": ["5", "6"]}, schema=COLUMNS))
    write(store, 7)

    after = store.admin.publish("t")

    assert described(store, before.version) == [
        ("WRITE", slot, {"add": {True}, "remove": {True}}),
        ("WRITE", after.slot, {"add": {True}}),
    ]
    assert keys(store, tmp_path, before.version + 1) == [5, 6]
    assert keys(store, tmp_path) == [5, 6, 7]


def test_an_overwrite_without_rows_removes_rows(store: Store, tmp_path: Path) -> None:
    write(store, 0, 1)
    before = store.admin.publish("t")
    overwrite(store, "t", COLUMNS.empty_table())
    write(store, 7)

    store.admin.publish("t")

    assert [each[0] for each in described(store, before.version)] == ["DELETE", "WRITE"]
    assert keys(store, tmp_path) == [7]


def test_a_file_of_old_and_new_rows_keeps_removed_and_added_rows_in_one_version(store: Store, tmp_path: Path) -> None:
    write(store, 0)
    before = store.admin.publish("t")
    store.admin.alter_topic("t", publish="none")
    write(store, 1)
    compact(store)
    store.admin.alter_topic("t", publish="delta")

    after = store.admin.publish("t")

    assert described(store, before.version) == [("WRITE", after.slot, {"add": {True}, "remove": {True}})]
    assert keys(store, tmp_path) == [0, 1]


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


@pytest.mark.parametrize("point", ["delta.version.planned", "delta.version.put", "delta.checkpoint.written"])
def test_a_publisher_that_dies_leaves_a_whole_table(world: World, tmp_path: Path, point: str) -> None:
    store, dying = world.process(), world.process()
    create(store)
    for key in range(100):
        write(store, key)
        store.admin.publish("t")
    write(store, 100)
    dies_at(dying, point)

    with pytest.raises(Died):
        dying.admin.publish("t")
    write(store, 101)
    found = store.admin.publish("t")

    assert keys(store, tmp_path) == list(range(102))
    assert rows_by_stream(store.object_store, "t") == [(0, 2 * key) for key in range(102)]
    assert found.version == (100 if point == "delta.version.planned" else 101)


def test_a_publisher_that_dies_while_it_rewrites_a_truncated_file_leaves_it_to_the_next(
    world: World, store: Store, tmp_path: Path
) -> None:
    write(store, 0, 1, 2)
    store.admin.publish("t")
    store.admin.delete_records({TopicPartition("t", 0): 2})
    for point in (
        "segment.hidden_rows.sealed",
        "segment.compact_files.files_written",
        "segment.compact_files.replaced",
    ):
        dying = world.process()
        dies_at(dying, point)
        with pytest.raises(Died):
            dying.admin.publish("t")
        assert keys(store, tmp_path) == [0, 1, 2]

    store.admin.publish("t")

    assert keys(store, tmp_path) == [2]


def test_of_two_publishers_at_once_each_version_has_one(world: World, store: Store, tmp_path: Path) -> None:
    slow = world.process()
    write(store, 1)

    def meanwhile() -> None:
        store.admin.publish("t")
        write(store, 2)

    asleep_at(slow, "delta.version.planned", meanwhile)
    found = slow.admin.publish("t")

    assert found.version == 1
    assert keys(store, tmp_path, 0) == [1]
    assert keys(store, tmp_path, 1) == [1, 2]


def test_a_publisher_that_dies_when_another_was_faster_leaves_its_rows_to_the_next(
    world: World, store: Store, tmp_path: Path
) -> None:
    dying = world.process()
    write(store, 1)

    def meanwhile() -> None:
        store.admin.publish("t")
        write(store, 2)

    asleep_at(dying, "delta.version.planned", meanwhile)
    dies_at(dying, "delta.version.overtaken")
    with pytest.raises(Died):
        dying.admin.publish("t")
    left = keys(store, tmp_path)
    store.admin.publish("t")

    assert left == [1]
    assert keys(store, tmp_path) == [1, 2]


@pytest.mark.parametrize("lands", [True, False])
def test_a_version_whose_put_got_no_answer_is_published_once(store: Store, tmp_path: Path, lands: bool) -> None:
    write(store, 1)
    faulty(store).lose_one_answer("t/_delta_log/", lands=lands)

    found = store.admin.publish("t")

    assert (found.version, found.files_added) == (0, 1)
    assert len(list(versions(store.object_store, "t"))) == 1
    assert keys(store, tmp_path) == [1]


@pytest.mark.parametrize("lands", [True, False])
def test_a_version_whose_outcome_is_unknown_is_published_once(store: Store, tmp_path: Path, lands: bool) -> None:
    write(store, 1)
    faulty(store).lose_answers("t/_delta_log/", lands=lands)

    with pytest.raises(StoreUnavailable):
        store.admin.publish("t")
    faulty(store).heal()
    store.admin.publish("t")

    assert len(list(versions(store.object_store, "t"))) == 1
    assert keys(store, tmp_path) == [1]


def test_two_publishers_of_the_same_rows_are_told_apart(world: World, store: Store) -> None:
    """A put that finds the version of another publisher is no own put without an answer."""
    write(store, 1)
    slow = world.process()
    asleep_at(slow, "delta.version.planned", lambda: store.admin.publish("t"))

    found = slow.admin.publish("t")

    assert (found.version, found.files_added) == (0, 0)


@pytest.mark.usefixtures("files_are_objects")
def test_a_checkpoint_opens_a_long_log_with_few_requests(world: World, tmp_path: Path) -> None:
    store = world.process()
    create(store, segment_batches=1000)
    for key in range(120):
        write(store, key)
        store.admin.publish("t")
    other = world.process()
    other.read(lambda state, slot: slot)
    before = other.requests.copy()

    found = other.admin.publish("t")

    assert found.version == 119
    sent = other.requests - before
    assert sent["LIST"] == 1
    assert sent["GET"] < 30
    root = Path(copy_to(tmp_path, store.object_store, "t"))
    for version in range(100):
        (root / "_delta_log" / f"{version:020d}.json").unlink()
    assert len(rows_by_delta(str(root))) == 120


def test_old_versions_are_deleted_after_a_month(world: World, tmp_path: Path) -> None:
    store = world.process()
    create(store, segment_batches=1000)
    for key in range(120):
        write(store, key)
        store.admin.publish("t")
    world.pass_time(31 * 24 * 3600 * 1000)

    vacuum(store)

    left = sorted(info.path.rpartition("/")[2] for info in store.object_store.list("t/_delta_log/"))
    assert next(name for name in left if name.endswith(".json")) == f"{100:020d}.json"
    write(store, 120)
    assert store.admin.publish("t").version == 120
    root = copy_to(tmp_path, store.object_store, "t")
    assert len(rows_by_delta(root)) == 121
    assert len(rows_by_delta(root, 105)) == 106


def test_a_topic_that_is_created_again_is_another_table(store: Store, tmp_path: Path) -> None:
    write(store, 1)
    store.admin.publish("t")
    first = DeltaTable(copy_to(tmp_path, store.object_store, "t")).metadata().id
    store.admin.delete_topic("t")
    create(store)
    write(store, 2, name="q")

    store.admin.publish("t")

    table = DeltaTable(copy_to(tmp_path, store.object_store, "t"))
    assert table.metadata().id != first
    assert keys(store, tmp_path) == [2]


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.parametrize("end", ["delete", "unpublish"])
def test_a_table_whose_files_go_becomes_empty_first(store: Store, tmp_path: Path, end: str) -> None:
    write(store, 1, 2)
    store.admin.publish("t")
    if end == "delete":
        store.admin.delete_topic("t")
    else:
        store.admin.alter_topic("t", publish="none")
        store.admin.delete_records({TopicPartition("t", 0): 2})

    vacuum(store, deleted_file_retention_ms=0)

    assert keys(store, tmp_path) == []


@pytest.mark.usefixtures("files_are_objects")
def test_vacuum_keeps_the_files_of_a_table_that_cannot_be_changed(store: Store, tmp_path: Path) -> None:
    write(store, 1, 2)
    store.admin.publish("t")
    store.admin.delete_records({TopicPartition("t", 0): 2})
    faulty(store).deny("t/_delta_log/")

    vacuum(store, deleted_file_retention_ms=0)
    kept = keys(store, tmp_path)
    faulty(store).heal()
    vacuum(store, deleted_file_retention_ms=0)

    assert kept == [1, 2]
    assert keys(store, tmp_path) == []
    assert len([info for info in store.object_store.list("t/") if info.path.endswith("0.parquet")]) == 0


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
    assert store.admin.publish("t").version == 0


def test_only_a_topic_with_the_setting_is_published(world: World) -> None:
    store = world.process()
    create(store, publish="none")

    with pytest.raises(InvalidTopic, match="Set its setting publish to delta"):
        store.admin.publish("t")


@pytest.mark.parametrize("path", ["00000000000000000000.json", "_last_checkpoint"])
def test_a_damaged_delta_log_is_reported_and_does_not_touch_the_topic(world: World, store: Store, path: str) -> None:
    write(store, 1)
    store.admin.publish("t")
    store.object_store.put(f"t/_delta_log/{path}", b'{"add": {"path": 5}}')

    with pytest.raises(CorruptRecord, match="Delete the directory _delta_log"):
        world.process().admin.publish("t")

    assert store.scan("t").to_table()["key"].to_pylist() == [1]


@pytest.mark.parametrize(
    "damaged",
    [b"", b"PAR1", b'{"version": 1e999}', b"[" * 100_000, b'{"version": 5}', b'{"version": -1}', b"page", b"columns"],
)
def test_a_damaged_checkpoint_stops_the_publication_of_no_other_topic(world: World, damaged: bytes) -> None:
    store = world.process()
    create(store, segment_batches=1000)
    for key in range(101):
        write(store, key)
        store.admin.publish("t")
    write(store, 101)
    store.admin.create_topic("u", config=TopicConfig(publish="delta"))
    checkpoint, last = f"t/_delta_log/{100:020d}.checkpoint.parquet", "t/_delta_log/_last_checkpoint"
    if damaged == b"page":
        body = store.object_store.get(checkpoint).body
        store.object_store.put(checkpoint, body[:4] + bytes(100) + body[104:])
    elif damaged == b"columns":
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({name: [1] for name in ("txn", "add", "remove", "metaData", "protocol")}), sink)
        store.object_store.put(checkpoint, bytes(sink.getvalue()))
    else:
        store.object_store.put(last if damaged[:1] in (b"{", b"[") else checkpoint, damaged)
    other = world.process()

    with pytest.raises(CorruptRecord, match="Delete the directory _delta_log"):
        Publisher.of(other).publish_all()

    assert len(list(versions(store.object_store, "u"))) == 1


def test_a_checkpoint_that_another_process_is_putting_is_not_named_before_it_is_there(store: Store) -> None:
    put_if_absent = store.object_store.put_if_absent

    def conflict(path: str, body: bytes) -> PutOutcome:
        return PutOutcome.CONFLICT if path.endswith(".checkpoint.parquet") else put_if_absent(path, body)

    store.object_store.put_if_absent = conflict  # type: ignore[method-assign]
    for key in range(101):
        write(store, key)
        store.admin.publish("t")
    assert not [each.path for each in store.object_store.list("t/_delta_log/_last_checkpoint")]
    store.object_store.put_if_absent = put_if_absent  # type: ignore[method-assign]
    write(store, 101)
    store.admin.publish("t")

    assert json.loads(store.object_store.get("t/_delta_log/_last_checkpoint").body)["version"] == 101


def test_a_checkpoint_stays_while_readers_start_there(world: World) -> None:
    """A process that was paused while it wrote the checkpoint of version 100 named it after that of 101."""
    store = world.process()
    create(store, segment_batches=1000)
    for key in range(101):
        write(store, key)
        store.admin.publish("t")
    named = store.object_store.get("t/_delta_log/_last_checkpoint").body
    other = DeltaLog(store.object_store, store.environment, "t/")
    other.refresh()
    write(store, 101)
    store.admin.publish("t")
    other.refresh()
    other.write_checkpoint()
    store.object_store.put("t/_delta_log/_last_checkpoint", named)
    world.pass_time(31 * 24 * 3600 * 1000)

    vacuum(store)

    left = [info.path.rpartition("/")[2] for info in store.object_store.list("t/_delta_log/")]
    assert min(left) == f"{100:020d}.checkpoint.parquet"
    write(store, 102)
    assert world.process().admin.publish("t").version == 102


def test_vacuum_keeps_a_damaged_delta_log_and_fails_for_no_other(world: World) -> None:
    store = world.process()
    create(store, segment_batches=1000)
    for key in range(101):
        write(store, key)
        store.admin.publish("t")
    store.object_store.put("t/_delta_log/_last_checkpoint", b"damaged")
    before = [info.path for info in store.object_store.list("t/_delta_log/")]
    world.pass_time(31 * 24 * 3600 * 1000)

    vacuum(store)

    assert [info.path for info in store.object_store.list("t/_delta_log/")] == before


def test_a_delta_log_with_a_gap_is_reported_each_time(world: World, store: Store) -> None:
    for key in range(3):
        write(store, key)
        store.admin.publish("t")
    store.object_store.delete([f"t/_delta_log/{1:020d}.json"])
    other = world.process()

    for _ in range(2):
        with pytest.raises(CorruptRecord, match="is missing"):
            other.admin.publish("t")


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
