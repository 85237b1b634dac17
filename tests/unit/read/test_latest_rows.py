"""Scans of the newest row of each key: what compaction by key would leave, without the tombstones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from eoslog import InvalidOption, Store
from eoslog.format.partitioner import RowKeys
from eoslog.read import latest_rows
from tests.depth import sweep
from tests.unit.pyspark_eoslog.native.histories import TOPIC, TableHistory
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import World

SCHEMA = pa.schema([("id", pa.int64()), ("miles", pa.int64()), ("note", pa.string())])


def columns_topic(store: Store, **options: Any) -> Store:
    store.admin.create_topic("c", schema=SCHEMA, key="id", **options)
    return store


def write(store: Store, *rows: tuple[int | None, int | None, str | None], topic: str = "c") -> None:
    with store.producer() as producer:
        producer.send_table(topic, pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows]))


def latest(store: Store, topic: str = "c", **options: Any) -> list[tuple[Any, ...]]:
    table = store.scan(topic, latest_by_key=True, **options).to_table()
    return [tuple(row.values()) for row in table.to_pylist()]


def test_the_newest_row_of_each_key_is_read_and_no_deleted_key(store: Store) -> None:
    columns_topic(store)
    write(store, (1, 10, "a"), (2, 20, "b"), (3, 30, None), (1, 11, "c"))
    write(store, (2, None, None), (3, None, "kept"), (4, 40, None))

    assert latest(store) == [(1, 11, "c"), (3, None, "kept"), (4, 40, None)]


def test_a_predicate_chooses_among_the_newest_rows(store: Store) -> None:
    columns_topic(store)
    write(store, (1, 10, "a"), (2, 20, "b"))
    write(store, (1, 99, "a"))

    assert latest(store, predicate="miles < 50") == [(2, 20, "b")]
    assert latest(store, predicate="miles < 50", columns=["note"]) == [("b",)]


def test_rows_without_a_key_are_all_read_as_compaction_keeps_them(store: Store) -> None:
    columns_topic(store)
    write(store, (None, 1, "x"), (1, 1, "a"), (None, None, None), (1, 2, "b"))

    assert latest(store) == [(None, 1, "x"), (None, None, None), (1, 2, "b")]


def test_kafka_records_with_a_null_value_are_tombstones(store: Store) -> None:
    with store.producer() as producer:
        for key, value in ((b"a", b"1"), (b"b", b"2"), (b"a", None), (b"b", b"3"), (None, b"4")):
            producer.send("t", value, key=key, partition=0)

    assert latest(store, "t", columns=["key", "value"]) == [(b"b", b"3"), (None, b"4")]
    assert latest(store, "t", columns=["offset"]) == [(3,), (4,)]
    assert latest(store, "t", columns=["key"], ending_offsets={0: 2}) == [(b"a",), (b"b",)]


def test_a_topic_with_a_value_that_is_never_null_has_no_tombstones(store: Store) -> None:
    schema = pa.schema([("id", pa.int64()), pa.field("at", pa.int64(), nullable=False), ("note", pa.string())])
    store.admin.create_topic("kept", schema=schema, key="id")
    with store.producer() as producer:
        producer.send_table("kept", pa.table({"id": [1, 1], "at": [1, 2], "note": ["a", None]}, schema))

    assert RowKeys(store.admin.describe_topic("kept")).value_columns == ()
    assert latest(store, "kept") == [(1, 2, None)]


def test_keys_count_in_each_partition_for_itself_also_after_partitions_were_added(store: Store) -> None:
    columns_topic(store, partitions=1)
    write(store, (1, 10, "a"), (2, 20, "b"), (3, 30, "c"))
    store.admin.create_partitions("c", 3)
    write(store, (1, 11, "a"), (2, 21, "b"), (3, 31, "c"))

    found = latest(store, columns=["_partition", "id", "miles"])

    moved = {key for partition, key, _ in found if partition}
    assert moved
    assert {(key, miles) for _, key, miles in found} == {(key, key * 10 + 1) for key in (1, 2, 3)} | {
        (key, key * 10) for key in moved
    }


def test_only_rows_that_the_read_shows_count(store: Store) -> None:
    columns_topic(store)
    write(store, (1, 10, "a"))
    slot = store.read(lambda state, slot: slot)
    write(store, (1, 11, "b"))
    open_one = open_transaction(store, "open")
    open_one.send_table("c", pa.table({"id": [1], "miles": [12], "note": ["open"]}, SCHEMA))
    open_one.flush()

    assert latest(store, columns=["miles"]) == [(11,)]
    assert latest(store, columns=["miles"], isolation_level="read_uncommitted") == [(12,)]
    assert latest(store, columns=["miles"], slot=slot) == [(10,)]
    open_one.abort_transaction()
    assert latest(store, columns=["miles"]) == [(11,)]


def test_limits_progress_and_files(store: Store) -> None:
    columns_topic(store)
    write(store, (1, 10, "a"), (2, 20, "b"), (3, 30, "c"))
    write(store, (1, 11, "a"))
    scan = store.scan("c", latest_by_key=True)
    told: list[Any] = []

    assert scan.limit(2).to_table()["miles"].to_pylist() == [20, 30]
    assert scan.limit(2).limit(1).to_reader().read_all()["miles"].to_pylist() == [20]
    assert scan.record_count == 4
    scan.to_table(progress=told.append)
    assert (told[-1].rows, told[-1].total_rows, told[-1].files) == (4, 4, 2)
    with pytest.raises(InvalidOption, match="hold older rows too"):
        scan.files()


def test_a_topic_without_a_key_and_control_rows_are_refused(store: Store) -> None:
    store.admin.create_topic("plain", schema=SCHEMA)

    with pytest.raises(InvalidOption, match="topic plain has no key"):
        store.scan("plain", latest_by_key=True)
    with pytest.raises(InvalidOption, match="control rows have no key"):
        store.scan("t", latest_by_key=True, include_control_rows=True)


@pytest.mark.usefixtures("files_are_objects")
def test_a_file_without_a_newest_row_is_read_only_for_its_keys(world: World) -> None:
    store = columns_topic(world.process())
    write(store, (1, 10, "a"))
    write(store, (1, 11, "b"))
    scan = store.scan("c", latest_by_key=True)
    before = store.requests["GET"]

    scan.to_table()

    assert store.requests["GET"] == before + 3


@pytest.mark.parametrize(
    ("seed", "records", "compacted"),
    sweep([(1, False, False), (2, False, True), (3, True, True)], quick=[(2, False, True), (3, True, True)]),
)
def test_the_rows_are_those_of_a_plain_search_in_any_history(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    records: bool,
    compacted: bool,
) -> None:
    history = TableHistory(tmp_path, seed, records=records, compacted=compacted)
    history.run(60)
    topic = history.store.admin.describe_topic(TOPIC)
    place = ["partition", "offset"] if records else ["_partition", "_offset"]

    for isolation in ("read_committed", "read_uncommitted", "snapshot"):
        names = [*place, *history.store.scan(TOPIC).schema.names]
        every = history.store.scan(TOPIC, isolation_level=isolation, columns=list(dict.fromkeys(names)))
        newest: dict[tuple[int, bytes | None], dict[str, Any]] = {}
        for batch in every.to_batches():
            for key, row in zip(RowKeys(topic).keys(batch), batch.to_pylist(), strict=True):
                newest[row[place[0]], key] = row

        wanted = sorted(newest.values(), key=lambda row: (row[place[0]], row[place[1]]))
        assert 0 < len(wanted) < every.record_count
        for name, least in (("_ROWS_TOGETHER", 1), ("_SHORT_KEYS_BYTES", 0)):
            with monkeypatch.context() as patch:
                patch.setattr(latest_rows, name, least)
                found = history.store.scan(
                    TOPIC, isolation_level=isolation, columns=every.schema.names, latest_by_key=True
                )
                assert found.to_table().to_pylist() == wanted
