"""Reading with a predicate: the same rows as without, filtered behind; what cannot have any is not fetched."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from eoslog import InvalidOption, Store, TopicConfig
from eoslog.format import checked_files, data_file
from eoslog.maintenance.file_compaction import compact_files
from eoslog.maintenance.key_compaction import compact_keys
from eoslog.maintenance.sealing import seal_segments
from eoslog.read import row_reader
from eoslog.state.entry_fields import LONGEST_STATISTICS
from eoslog.state.store_state import StoreState
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore
from tests.depth import sweep

SCHEMA = pa.schema([("carrier", pa.string()), ("miles", pa.int64()), ("seat", pa.int32())])
LOG_POLL = 1
COLUMNS = ["carrier", "miles", "_partition", "_offset", "_timestamp", "_sequence", "_control"]
COLUMNS += ["_slot", "_commit_timestamp"]
PREDICATES = {
    "miles >= 700": lambda row: row["miles"] is not None and row["miles"] >= 700,
    "miles < 300 OR carrier = 'B6'": lambda row: row["miles"] in range(300) or row["carrier"] == "B6",
    "carrier IS NULL": lambda row: row["carrier"] is None,
    "carrier LIKE 'U%' AND NOT miles = 501": lambda row: row["carrier"] == "UA" and row["miles"] not in (None, 501),
    "_offset BETWEEN 3 AND 9": lambda row: 3 <= row["_offset"] <= 9,
    "_partition = 0 AND _slot > 4": lambda row: row["_partition"] == 0 and row["_slot"] > 4,
    "_control = 'COMMIT' OR miles = 100": lambda row: row["_control"] == "COMMIT" or row["miles"] == 100,
    "_timestamp > '2100-01-01T00:00:00Z'": lambda row: False,
    "_commit_timestamp IS NULL": lambda row: row["_commit_timestamp"] is None,
    "_sequence IS NULL OR miles = 300": lambda row: row["_sequence"] is None or row["miles"] == 300,
}


@pytest.fixture
def store() -> Store:
    return Store(MemoryStore(Environment()), Environment())


def write(store: Store, *, batches: int = 10, **config: Any) -> None:
    """Batches of three rows each; their miles rise from batch to batch, and every fourth is aborted."""
    store.admin.create_topic("flights", partitions=1, schema=SCHEMA, key="seat", config=TopicConfig(**config))
    producer = store.producer("etl")
    producer.init_transactions()
    for number in range(batches):
        producer.begin_transaction()
        rows = {
            "carrier": ["UA", None, "B6" if number % 2 else "AA"],
            "miles": [100 * number, 100 * number + 1, None if number == 3 else 100 * number + 2],
            "seat": [number % 5, 7, 8],
        }
        producer.send_table("flights", pa.table(rows, schema=SCHEMA))
        if number % 4 == 3:
            producer.flush()
            producer.abort_transaction()
        else:
            producer.commit_transaction()


def seal(store: Store) -> None:
    seal_segments(store)


def shape(store: Store, form: str) -> None:
    if form != "active":
        seal(store)
    if form == "merged":
        compact_files(store)
    if form == "compacted":
        compact_keys(store, force=True)


@pytest.mark.parametrize("form", sweep(["active", "sealed", "merged", "compacted"], quick=["active", "compacted"]))
@pytest.mark.parametrize(
    "options", [{}, {"isolation_level": "read_uncommitted"}, {"include_control_rows": True}], ids=str
)
@pytest.mark.parametrize("as_large_files", [False, True], ids=["whole", "ranges"])
def test_the_rows_are_those_of_a_filter_behind_the_read(
    store: Store, form: str, options: dict[str, Any], as_large_files: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if as_large_files:
        monkeypatch.setattr(row_reader, "_LARGEST_WHOLE_BYTES", 0)
        monkeypatch.setattr(checked_files, "END_BYTES", 200)
        monkeypatch.setattr(data_file, "ROW_GROUP_ROWS", 3)
    write(store, segment_batches=6, cleanup_policy="compact" if form == "compacted" else "delete")
    shape(store, form)
    everything = store.scan("flights", columns=COLUMNS, **options).to_table()

    for predicate, wants in PREDICATES.items():
        scan = store.scan("flights", columns=COLUMNS, predicate=predicate, **options)
        found = scan.to_table()
        assert found.to_pylist() == [row for row in everything.to_pylist() if wants(row)], predicate
        assert found.schema == everything.schema
        assert found.num_rows <= scan.record_count <= everything.num_rows


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.parametrize("form", ["active", "sealed"])
def test_only_files_that_may_have_wanted_rows_are_fetched(store: Store, form: str) -> None:
    write(store, segment_batches=1000)
    shape(store, form)
    store.scan("flights")  # The index is held from here on.
    before = store.requests["GET"]

    found = store.scan("flights", predicate="miles IN (101, 202)", columns=["miles"]).to_table()

    assert found["miles"].to_pylist() == [101, 202]
    assert store.requests["GET"] - before == LOG_POLL + 2


def test_an_index_is_not_read_whose_segment_lies_elsewhere(store: Store) -> None:
    write(store, segment_batches=1)
    seal(store)
    log = Store(store.object_store, Environment())
    log.read(lambda state, slot: None)
    before = log.requests["GET"]

    found = log.scan("flights", predicate="_offset = 4 AND _partition = 0", columns=["miles"]).to_table()

    assert found["miles"].to_pylist() == [100]
    assert log.requests["GET"] - before <= LOG_POLL + 2
    assert log.scan("flights", predicate="_partition = 1").record_count == 0


def test_columns_of_the_predicate_alone_are_read_and_not_given(store: Store) -> None:
    write(store)

    found = store.scan("flights", columns=["carrier"], predicate="miles = 200").to_table()

    assert found.to_pylist() == [{"carrier": "UA"}]
    assert store.scan("flights", columns=[], predicate="miles = 200").to_table().num_rows == 1


def test_a_batch_that_lies_elsewhere_is_not_read(store: Store) -> None:
    write(store)

    assert store.scan("flights", predicate="_offset = 4").record_count == 3
    assert store.scan("flights", predicate="_offset = 4", starting_offsets={0: 5}).record_count == 0


@pytest.mark.parametrize("form", ["active", "sealed"])
def test_records_of_before_1970_are_found(store: Store, form: str) -> None:
    store.admin.create_topic("t", partitions=1, config=TopicConfig(segment_batches=1))
    with store.producer() as producer:
        for times in ([-5_000], [-5_000, 1_000]):
            timestamps = pa.array(times, pa.timestamp("ms", "UTC"))
            producer.send_table("t", pa.table({"value": [b"x"] * len(times), "timestamp": timestamps}))
            producer.flush()
    shape(store, form)

    found = store.scan("t", predicate="timestamp <= '1969-12-31T23:59:55Z'", columns=["offset"]).to_table()

    assert found["offset"].to_pylist() == [0, 1]


def test_of_kafka_records_place_and_time_are_compared(store: Store) -> None:
    store.admin.create_topic("t", partitions=2)
    with store.producer() as producer:
        for number, timestamp in enumerate((0, 1_000, 2_000, 3_000)):
            producer.send("t", b"%d" % number, partition=number % 2, timestamp=timestamp)
            producer.flush()
    before = store.requests["GET"]

    wanted = "timestamp >= '1970-01-01T00:00:02Z' AND partition = 0 OR offset > 100 OR `key` IS NOT NULL"
    found = store.scan("t", predicate=wanted, columns=["value"]).to_table()

    assert found["value"].to_pylist() == [b"2"]
    place_alone = store.scan("t", predicate="timestamp > '1970-01-01T00:00:02Z' AND topic = 't'")
    assert place_alone.to_table()["value"].to_pylist() == [b"3"]
    assert place_alone.record_count == 1
    assert store.scan("t", predicate="topic = 'u'").record_count == 0
    assert store.requests["GET"] - before <= 3 + 4 + 1


def test_files_from_before_a_column_was_added_are_read_for_it(store: Store) -> None:
    write(store, batches=1)
    store.admin.add_columns("flights", pa.schema([("gate", pa.string())]))
    with store.producer() as producer:
        producer.send_table("flights", pa.table({"carrier": ["UA"], "gate": ["B22"]}))

    without = store.scan("flights", predicate="gate IS NULL", columns=["carrier"]).to_table()
    found = store.scan("flights", predicate="gate = 'B22'", columns=["carrier"]).to_table()

    assert without.num_rows == 3
    assert found.to_pylist() == [{"carrier": "UA"}]


@pytest.mark.parametrize(
    "statistics", ["{}", "noise", '{"miles":[0,9,1]}', '{"miles":["x",1,2]}', "[" * LONGEST_STATISTICS]
)
def test_a_file_whose_statistics_make_no_sense_is_read(store: Store, statistics: str) -> None:
    write(store, batches=1)

    def spoil(state: StoreState, slot: int) -> None:
        (partition,) = state.partitions.values()
        partition.active[0] = partition.active[0]._replace(statistics=statistics)

    store.read(spoil)

    assert store.scan("flights", predicate="miles = 0").to_table().num_rows == 1


def test_a_predicate_that_cannot_be_understood_is_refused_before_anything_is_planned(store: Store) -> None:
    write(store, batches=1)

    with pytest.raises(InvalidOption, match="miles \\+ 1"):
        store.scan("flights", predicate="miles + 1 = 2")
