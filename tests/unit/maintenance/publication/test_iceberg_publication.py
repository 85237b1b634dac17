"""Publication: a topic as an Iceberg table."""

from __future__ import annotations

import itertools
import math
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual, IsNull, LessThan
from pyiceberg.table import StaticTable

import eoslog
from eoslog import InvalidRequest, Store, TopicConfig, TopicPartition, UnsupportedSchema
from eoslog.iceberg import iceberg_log, next_manifests
from eoslog.maintenance.vacuum import vacuum
from tests.iceberg_tables import check_iceberg_versions, iceberg_versions, manifests, metadata_of, newest_version
from tests.unit.maintenance.publication.published_topics import compact, create, write
from tests.unit.support.delta_tables import rows_of_snapshot
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import World

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def store(world: World) -> Store:
    """A store with the topic ``t`` of columns, in one partition, which is published as an Iceberg table."""
    store = world.process()
    create(store, publish="iceberg")
    return store


def keys(store: Store) -> list[int]:
    return sorted(row[2] for row in newest_version(store.object_store, "t").rows("key"))


def static_table(root: Path) -> StaticTable:
    """Open a table by the path of its directory, as an engine does that knows nothing of eoslog."""
    return StaticTable.from_metadata(f"{root}/__iceberg/t")


def test_a_version_shows_the_snapshot_of_the_slot_that_it_names(world: World, store: Store) -> None:
    write(store, 1)
    write(store, 2, commit=False)
    open_one = open_transaction(store, "open")
    open_one.send_table("t", pa.table({"key": [9], "text": ["open"]}))
    open_one.flush()

    (found,) = store.admin.publish("t")

    table = newest_version(store.object_store, "t")
    assert (found.format, found.version, found.slot) == ("iceberg", 1, table.slot)
    assert table.snapshot["summary"]["eoslog.store"] == store.describe().store_id
    assert table.rows("key") == [row[:3] for row in rows_of_snapshot(store, "t", table.slot)]
    assert keys(store) == [1]


def test_nothing_new_gives_no_version(store: Store) -> None:
    write(store, 1)
    (first,) = store.admin.publish("t")
    before = store.requests.copy()

    (again,) = store.admin.publish("t")

    assert (again.version, again.files_added) == (first.version, 0)
    # The newest slot; the hint, the newest version, and the next one, which does not exist.
    assert store.requests - before == {"GET": 4}


def test_a_topic_may_be_published_in_both_formats(store: Store) -> None:
    store.admin.alter_topic("t", publish="iceberg,delta")
    write(store, 1)

    found = store.admin.publish("t")

    assert [(each.format, each.version, each.files_added) for each in found] == [("delta", 0, 1), ("iceberg", 1, 1)]
    assert len({each.slot for each in found}) == 1
    assert store.admin.describe_topic("t").config.publish == "delta,iceberg"


def test_a_damaged_delta_log_does_not_stop_the_publication_as_an_iceberg_table(store: Store) -> None:
    store.admin.alter_topic("t", publish="delta,iceberg")
    store.object_store.put(f"t/_delta_log/{0:020d}.json", b'{"add": {"path": 5}}')
    write(store, 1)

    with pytest.raises(eoslog.CorruptRecord, match="Delta log"):
        store.admin.publish("t")

    assert keys(store) == [1]


@pytest.mark.usefixtures("files_are_objects")
def test_compaction_is_a_replacement_that_streams_skip(store: Store) -> None:
    for key in range(4):
        write(store, key, commit=key != 1)
    store.admin.publish("t")
    compact(store)
    write(store, 7)

    store.admin.publish("t")

    assert [table.operation for table in iceberg_versions(store.object_store, "t")] == ["append", "replace", "append"]
    check_iceberg_versions(store.object_store, "t")
    assert keys(store) == [0, 2, 3, 7]


@pytest.mark.usefixtures("files_are_objects")
def test_rows_that_one_of_two_tables_lacks_are_not_compacted_yet(store: Store) -> None:
    for key in range(4):
        write(store, key)
    store.admin.publish("t")
    store.admin.alter_topic("t", publish="delta,iceberg")

    compact(store)
    store.admin.publish("t")
    before = [table.operation for table in iceberg_versions(store.object_store, "t")]
    compact(store)
    store.admin.publish("t")

    assert before == ["append"]
    assert [table.operation for table in iceberg_versions(store.object_store, "t")] == ["append", "replace"]


def test_removed_rows_have_a_version_before_that_of_new_rows(store: Store) -> None:
    write(store, 1, 2)
    write(store, 3)
    store.admin.publish("t")
    store.admin.delete_records({TopicPartition("t", 0): 2})
    write(store, 4)

    store.admin.publish("t")

    assert [table.operation for table in iceberg_versions(store.object_store, "t")] == ["append", "delete", "append"]
    check_iceberg_versions(store.object_store, "t")
    assert keys(store) == [3, 4]


def test_new_columns_are_a_new_schema_and_earlier_snapshots_keep_theirs(tmp_path: Path) -> None:
    store = eoslog.connect(str(tmp_path), fsync=False)
    create(store, publish="iceberg")
    write(store, 1)
    store.admin.publish("t")

    store.admin.add_columns("t", pa.schema([("more", pa.struct([("x", pa.int32())]))]))
    store.admin.publish("t")

    table = static_table(tmp_path)
    assert [field.name for field in table.schema().fields][:3] == ["key", "text", "more"]
    assert table.scan().to_arrow()["more"].to_pylist() == [None]
    first = table.scan(snapshot_id=table.snapshots()[0].snapshot_id).to_arrow()
    assert first.column_names[:3] == ["key", "text", "_offset_delta"]


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (pa.schema([("key", pa.int64()), ("took", pa.duration("us"))]), "took"),
        (pa.schema([("key", pa.int64()), ("s", pa.struct([("t", pa.time64("us"))]))]), "s.t"),
        (pa.schema([("key", pa.int64()), ("_pos", pa.int64())]), "_pos"),
        (pa.schema([("key", pa.int64()), ("_Topic_Partition", pa.int64())]), "_Topic_Partition"),
    ],
)
def test_a_schema_that_iceberg_lacks_is_refused(world: World, schema: pa.Schema, problem: str) -> None:
    store = world.process()

    with pytest.raises(UnsupportedSchema, match=f"{problem}.* Use another (type|name), or do not publish the topic"):
        create(store, schema=schema, publish="iceberg")
    create(store, schema=schema, publish="none")
    with pytest.raises(UnsupportedSchema, match=problem):
        store.admin.alter_topic("t", publish="delta,iceberg")


def test_a_missing_library_is_named_with_the_command_that_installs_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = world.process()
    monkeypatch.setitem(sys.modules, "fastavro", None)

    with pytest.raises(InvalidRequest, match=r"pip install 'eoslog\[iceberg\]'"):
        create(store, publish="iceberg")


def test_a_process_without_the_library_seals_and_compacts_what_others_publish(
    world: World, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in range(4):
        write(store, key)
    store.admin.publish("t")
    monkeypatch.setitem(sys.modules, "fastavro", None)
    other = world.process()

    compact(other)
    vacuum(other)
    assert other.metrics().publication_lag_ms == {"t": 0}
    monkeypatch.undo()
    store.admin.publish("t")

    assert [table.operation for table in iceberg_versions(store.object_store, "t")] == ["append", "replace"]


def test_the_files_of_the_log_are_nothing_unexpected_and_files_of_other_writers_are_deleted_after_a_week(
    world: World, store: Store
) -> None:
    write(store, 1)
    store.admin.publish("t")
    assert list(store.admin.verify()) == []

    store.object_store.put("__iceberg/t/data/00000-0.parquet", b"of another writer")
    (found,) = store.admin.verify()
    assert (found.path, found.topic) == ("__iceberg/t/", "t")
    vacuum(store)
    assert "__iceberg/t/data/00000-0.parquet" in {info.path for info in store.object_store.list("__iceberg/")}
    world.pass_time(8 * DAY_MS)
    vacuum(store)

    assert list(store.admin.verify()) == []


@pytest.mark.usefixtures("files_are_objects")
def test_snapshots_and_their_objects_go_after_a_day(world: World, store: Store) -> None:
    for key in range(3):
        write(store, key)
        store.admin.publish("t")
    world.pass_time(DAY_MS + 3_600_000)
    write(store, 3)
    store.admin.publish("t")
    early = len(list(store.object_store.list("__iceberg/t/metadata/")))
    vacuum(store)

    table = newest_version(store.object_store, "t")
    # The last snapshot of the day before was the newest one until now.
    assert len(table.metadata["snapshots"]) == 2
    assert len(list(store.object_store.list("__iceberg/t/metadata/"))) < early
    assert list(metadata_of(store.object_store, "t")) == [4]
    assert keys(store) == [0, 1, 2, 3]
    for snapshot in table.metadata["snapshots"]:
        assert manifests(store.object_store, snapshot)


@pytest.mark.usefixtures("files_are_objects")
def test_the_last_snapshot_with_new_rows_stays_for_streams_that_have_read_them(world: World, store: Store) -> None:
    for key in range(4):
        write(store, key)
        store.admin.publish("t")
    compact(store)
    store.admin.publish("t")
    world.pass_time(30 * DAY_MS)
    write(store, 7)
    store.admin.publish("t")

    listed = newest_version(store.object_store, "t").metadata["snapshots"]

    assert [each["summary"]["operation"] for each in listed] == ["append", "replace", "append"]
    for earlier, later in itertools.pairwise(listed):
        assert later["parent-snapshot-id"] == earlier["snapshot-id"]


def test_metadata_stays_bounded_over_many_versions(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_manifests, "MOST_MANIFESTS", 5)
    monkeypatch.setattr(next_manifests, "FULL_MANIFEST", 12)
    monkeypatch.setattr(iceberg_log, "MOST_SNAPSHOTS", 7)
    for key in range(40):
        write(store, key)
        store.admin.publish("t")

    table = newest_version(store.object_store, "t")
    assert len(table.metadata["snapshots"]) == len(table.metadata["snapshot-log"]) == 7
    # Three full manifests, and fewer than five small ones beside a merged one.
    assert len(manifests(store.object_store, table.snapshot)) <= 3 + 5 + 1
    assert keys(store) == list(range(40))
    check_iceberg_versions(store.object_store, "t")


EVERY_TYPE: dict[str, tuple[Any, list[Any]]] = {
    "byte": (pa.int8(), [-128, 127]),
    "short": (pa.int16(), [-32768, 32767]),
    "integer": (pa.int32(), [-(2**31), 2**31 - 1]),
    "long": (pa.int64(), [-(2**63), 2**63 - 1]),
    "float": (pa.float32(), [-1.5, 1.5]),
    "double": (pa.float64(), [float("-inf"), -0.0]),
    "boolean": (pa.bool_(), [False, True]),
    "text": (pa.string(), ["ä" * 40, "\U0001f600" * 40]),
    "bytes": (pa.binary(), [b"", b"\x00\xff"]),
    "day": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31)]),
    "at": (
        pa.timestamp("us", "UTC"),
        [datetime(1, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 1, 2, 3, 456789, tzinfo=UTC)],
    ),
    "local": (pa.timestamp("us"), [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)]),
    "short_decimal": (pa.decimal128(9, 2), [Decimal("-9999999.99"), Decimal("9999999.99")]),
    "long_decimal": (pa.decimal128(38, 10), [Decimal("-" + "9" * 28 + "." + "9" * 10), Decimal("0E-10")]),
    "whole_decimal": (pa.decimal128(38, 0), [Decimal(-(10**38) + 1), Decimal(10**38 - 1)]),
    "struct": (
        pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))]),
        [{"x": 1, "y": ["a", None]}, {"x": None, "y": None}],
    ),
    "map": (pa.map_(pa.string(), pa.int32()), [[("a", 1), ("b", None)], []]),
}


def test_every_type_comes_back_and_every_bound_finds_its_rows(tmp_path: Path) -> None:
    """Each row has a file of its own, so a filter finds it only if its bounds are right."""
    store = eoslog.connect(str(tmp_path), fsync=False)
    schema = pa.schema([(name, data_type) for name, (data_type, _) in EVERY_TYPE.items()])
    store.admin.create_topic(
        "t", schema=schema, config=TopicConfig(publish="iceberg", statistics_columns=len(EVERY_TYPE))
    )
    rows: list[dict[str, Any]] = [
        {name: values[number] for name, (_, values) in EVERY_TYPE.items()} for number in (0, 1)
    ]
    rows.append(dict.fromkeys(EVERY_TYPE))
    for row in rows:
        with store.producer() as producer:
            producer.send_table("t", pa.Table.from_pylist([row], schema=schema))
    store.admin.publish("t")

    table = static_table(tmp_path)

    found = table.scan().to_arrow().select(list(EVERY_TYPE)).to_pylist()
    assert sorted(found, key=repr) == sorted(rows, key=repr)
    for name, (data_type, values) in EVERY_TYPE.items():
        if not pa.types.is_nested(data_type):
            for value in values:
                given = value if not isinstance(value, date) else value.isoformat()
                taken = table.scan(row_filter=EqualTo(name, given)).to_arrow()[name].to_pylist()
                assert taken == [value], name
            assert table.scan(row_filter=IsNull(name)).to_arrow().num_rows == 1


def test_a_file_with_nan_is_never_skipped(tmp_path: Path) -> None:
    store = eoslog.connect(str(tmp_path), fsync=False)
    store.admin.create_topic("t", schema=pa.schema([("x", pa.float64())]), config=TopicConfig(publish="iceberg"))
    for values in ([math.nan, 1.0], [0.0], [-0.0], [math.nan]):
        with store.producer() as producer:
            producer.send_table("t", pa.table({"x": values}))
    store.admin.publish("t")

    table = static_table(tmp_path)

    assert table.scan(row_filter=EqualTo("x", 1.0)).to_arrow()["x"].to_pylist() == [1.0]
    assert table.scan(row_filter=LessThan("x", 0.5)).to_arrow().num_rows == 2
    assert table.scan(row_filter=GreaterThanOrEqual("x", 0.0)).to_arrow().num_rows >= 3
    assert table.scan(row_filter="x is nan").to_arrow().num_rows == 2


def test_kafka_records_are_published_with_their_timestamps(tmp_path: Path) -> None:
    store = eoslog.connect(str(tmp_path), fsync=False)
    store.admin.create_topic("t", config=TopicConfig(publish="iceberg"))
    with store.producer() as producer:
        producer.send("t", b"v", key=b"k", headers=[("h", b"x")], timestamp=1_700_000_000_123)
    store.admin.publish("t")

    (row,) = (
        static_table(tmp_path).scan(row_filter="timestamp >= '2023-11-14T22:13:20.123+00:00'").to_arrow().to_pylist()
    )

    assert (row["key"], row["value"], row["headers"]) == (b"k", b"v", [{"key": "h", "value": b"x"}])
    assert row["timestamp"] == datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
    assert (row["_topic_partition"], row["_base_offset"], row["_offset_delta"]) == (0, 0, 0)


def test_files_are_skipped_by_their_partition_and_by_bounds(tmp_path: Path) -> None:
    store = eoslog.connect(str(tmp_path), fsync=False)
    create(store, publish="iceberg")
    for key in range(4):
        write(store, 10 * key, 10 * key + 1)
    store.admin.publish("t")
    table = static_table(tmp_path)

    assert len(list(table.scan(row_filter="key = 21").plan_files())) == 1
    assert len(list(table.scan(row_filter="text = '21'").plan_files())) == 1
    assert len(list(table.scan(row_filter="_base_offset >= 3").plan_files())) == 3
    assert table.scan(row_filter="key = 21").to_arrow()["text"].to_pylist() == ["21"]


def test_times_beyond_the_year_9999_come_back_and_their_bounds_find_them(tmp_path: Path) -> None:
    store = eoslog.connect(str(tmp_path), fsync=False)
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("day", pa.date32())])
    store.admin.create_topic("t", schema=schema, config=TopicConfig(publish="iceberg"))
    at, day = 2**62, 2**30
    columns = [pa.array([at]).cast(schema.field("at").type), pa.array([day], pa.int32()).cast(pa.date32())]
    with store.producer() as producer:
        producer.send_table("t", pa.table(columns, schema=schema))
    store.admin.publish("t")

    # A filter finds the row only if the bounds of its file are right.
    found = static_table(tmp_path).scan(row_filter=GreaterThanOrEqual("at", "9999-12-31T00:00:00+00:00")).to_arrow()

    assert found["at"].cast(pa.int64()).to_pylist() == [at]
    assert found["day"].cast(pa.int32()).to_pylist() == [day]
