"""Statistics in a Delta log: all bounds of the listed columns, or none."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from eoslog import Store, TopicConfig, TopicPartition
from eoslog.delta import delta_log
from eoslog.maintenance.key_compaction import compact_keys
from eoslog.maintenance.sealing import seal_segments
from tests.delta_logs import versions
from tests.unit.support.delta_tables import copy_to
from tests.unit.support.overwriting import overwrite
from tests.unit.support.world import World

LISTED = "delta.dataSkippingStatsColumns"
NUMBERS = pa.schema([("key", pa.int64()), ("number", pa.float64()), ("flag", pa.bool_())])
field: Any = ds.field


@pytest.fixture
def store(world: World) -> Store:
    return world.process()


def create(store: Store, schema: pa.Schema = NUMBERS, **config: Any) -> None:
    settings = TopicConfig(**({"publish": "delta", "segment_batches": 1} | config))
    store.admin.create_topic("t", schema=schema, key=schema.names[0], config=settings)


def write(store: Store, rows: pa.Table) -> None:
    with store.producer() as producer:
        producer.send_table("t", rows)


def numbers(*values: float | None, key: int = 1) -> pa.Table:
    count = len(values)
    return pa.table({"key": [key] * count, "number": values, "flag": [True] * count}, schema=NUMBERS)


def newest(store: Store, kind: str) -> list[Any]:
    actions = list(versions(store.object_store, "t"))[-1]
    return [action[kind] for action in actions if kind in action]


def statistics(store: Store) -> list[dict[str, Any]]:
    """Return the statistics of the files that the newest version adds."""
    return [json.loads(each["stats"]) for each in newest(store, "add")]


def listed(store: Store) -> list[str]:
    names: list[str] = newest(store, "metaData")[-1]["configuration"][LISTED].split(",")
    return names


def found(store: Store, tmp_path: Path, condition: Any) -> int:
    """Return the number of rows that delta-rs finds. It skips files by their statistics."""
    table = DeltaTable(copy_to(tmp_path, store.object_store, "t"))
    return table.to_pyarrow_dataset().to_table(filter=condition).num_rows


def test_a_table_lists_its_columns_with_bounds(store: Store, tmp_path: Path) -> None:
    columns = {f"c{number:02d}": pa.array([1, 2, 3]) for number in range(20)}
    rows = pa.table({"flag": [True, False, True], "odd-`name": ["a", "b", "c"], **columns})
    create(store, rows.schema, statistics_columns=4)
    write(store, rows)

    store.admin.publish("t")

    assert listed(store) == ["`odd-``name`", "`c00`", "`c01`", "`_offset_delta`"]
    for name in ("c00", "c03", "c19"):
        assert found(store, tmp_path, field(name) < 3) == 2
    assert found(store, tmp_path, field("flag") == True) == 2  # noqa: E712 - an expression
    assert found(store, tmp_path, field("odd-`name") > "a") == 2


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_file_without_a_bound_of_a_listed_column_has_only_its_number_of_rows(
    store: Store, tmp_path: Path, value: float
) -> None:
    create(store)
    write(store, numbers(1.0, value, 5.0))

    store.admin.publish("t")

    assert statistics(store) == [{"numRecords": 3}]
    assert found(store, tmp_path, field("number") == 5.0) == 1
    assert found(store, tmp_path, field("key") == 1) == 3


def test_a_timestamp_whose_bound_lies_beyond_the_year_9999_leaves_no_bounds(store: Store, tmp_path: Path) -> None:
    last = 253_402_300_799_999_999
    rows = pa.table({"at": pa.array([0, last], pa.timestamp("us", "UTC"))})
    create(store, rows.schema)
    write(store, rows)

    store.admin.publish("t")

    assert statistics(store) == [{"numRecords": 2}]
    assert found(store, tmp_path, field("at") > pa.scalar(5, pa.timestamp("us", "UTC"))) == 1


def test_a_column_of_nulls_leaves_the_other_bounds(store: Store, tmp_path: Path) -> None:
    create(store)
    write(store, numbers(None, None))

    store.admin.publish("t")

    (only,) = statistics(store)
    assert only["nullCount"] == {"key": 0, "number": 2, "flag": 0, "_offset_delta": 0}
    assert set(only["minValues"]) == {"key", "_offset_delta"}
    assert found(store, tmp_path, field("number").is_null()) == 2


def test_nulls_are_found_after_compaction_by_key(store: Store, tmp_path: Path) -> None:
    create(store, cleanup_policy="compact")
    write(store, numbers(None, 1.0, key=1))
    write(store, numbers(2.0, None, key=2))
    write(store, numbers(None, 3.0, key=2))
    write(store, numbers(4.0, None, 4.0, key=1))
    seal_segments(store)
    compact_keys(store, force=True)

    store.admin.publish("t")

    rows = store.scan("t").to_table().num_rows
    nulls = store.scan("t", predicate="number IS NULL").to_table().num_rows
    assert found(store, tmp_path, field("number").is_null()) == nulls
    assert found(store, tmp_path, field("number").is_valid()) == rows - nulls
    assert found(store, tmp_path, field("key") >= 1) == rows


def test_a_column_that_was_added_later_is_not_listed_as_long_as_older_files_stay(store: Store, tmp_path: Path) -> None:
    create(store)
    write(store, numbers(1.0))
    store.admin.publish("t")
    store.admin.add_columns("t", pa.schema([("more", pa.int64())]))
    rows = numbers(2.0).append_column("more", pa.array([7]))
    write(store, rows)

    store.admin.publish("t")

    assert "`more`" not in listed(store)
    assert [set(each) for each in statistics(store)] != [{"numRecords"}]
    assert found(store, tmp_path, field("more").is_null()) == 1
    assert found(store, tmp_path, field("more") == 7) == 1


def test_fewer_columns_with_statistics_leave_the_list(store: Store, tmp_path: Path) -> None:
    create(store)
    write(store, numbers(1.0))
    store.admin.publish("t")
    store.admin.alter_topic("t", statistics_columns=1)
    write(store, numbers(2.0))
    store.admin.publish("t")
    fewer = listed(store)
    store.admin.alter_topic("t", statistics_columns=16)
    write(store, numbers(3.0))
    store.admin.publish("t")

    assert fewer == ["`key`", "`_offset_delta`"]
    assert newest(store, "metaData") == []
    assert found(store, tmp_path, field("number") >= 2.0) == 2


def test_files_without_bounds_are_still_moved_without_changing_data(world: World) -> None:
    store = world.process()
    create(store, segment_batches=2)
    for value in (math.nan, math.inf, 1.0, math.nan):
        write(store, numbers(value))
        store.admin.publish("t")

    seal_segments(store)
    store.admin.compact_files("t")
    other = world.process()
    other.admin.publish("t")

    assert {each["dataChange"] for kind in ("add", "remove") for each in newest(other, kind)} == {False}


def test_offsets_of_files_outlive_a_checkpoint(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_log, "CHECKPOINT_VERSIONS", 10)
    store = world.process()
    create(store, segment_batches=1000)
    for _ in range(11):
        write(store, numbers(math.nan))
        store.admin.publish("t")
    store.admin.alter_topic("t", segment_batches=1)
    other = world.process()
    seal_segments(other)

    other.admin.compact_files("t")
    other.admin.publish("t")

    assert {each["dataChange"] for kind in ("add", "remove") for each in newest(other, kind)} == {False}


def test_a_table_without_files_lists_all_its_columns_again(store: Store) -> None:
    create(store)
    write(store, numbers(1.0))
    store.admin.publish("t")
    store.admin.delete_records({TopicPartition("t", 0): 1})
    store.admin.publish("t")
    store.admin.add_columns("t", pa.schema([("more", pa.int64())]))
    overwrite(store, "t", numbers(2.0).append_column("more", pa.array([7])))

    store.admin.publish("t")

    assert "`more`" in listed(store)
