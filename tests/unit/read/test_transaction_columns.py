"""The writer of a row and the outcome of its transaction as columns; control rows as rows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from eoslog import Store, TopicConfig, UnsupportedSchema
from eoslog.format.checked_files import crc32c
from eoslog.format.data_file import OFFSET_DELTA_COLUMN, encode_data_file
from eoslog.maintenance.sealing import seal_segments
from eoslog.read.columns import TRANSACTION_COLUMNS
from eoslog.read.file_rows import FileRows
from eoslog.read.row_reader import PartitionRead, read_rows
from eoslog.storage.environment import Environment
from eoslog.storage.object_store import ObjectStore
from tests.file_rows import batch, control, file_rows
from tests.unit.support.transactions import open_transaction

COLUMNS = TRANSACTION_COLUMNS.names


@pytest.fixture
def store(memory_store: ObjectStore, environment: Environment) -> Store:
    store = Store(memory_store, environment)
    store.admin.create_topic("t")
    store.admin.create_topic("flights", schema=pa.schema([pa.field("miles", pa.int64(), nullable=False)]))
    return store


def rows(store: Store, topic: str = "t", *, own: tuple[str, ...] = (), **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = store.scan(topic, columns=[*own, *COLUMNS], **options).to_table().to_pylist()
    return found


def slot(store: Store) -> int:
    return store.read(lambda state, newest: newest)


def log_time(store: Store) -> datetime:
    return datetime.fromtimestamp(store.read(lambda state, newest: state.time_ms) / 1000, UTC)


def test_a_committed_row_tells_its_transaction_and_the_slot_that_ended_it(store: Store) -> None:
    producer = store.producer("etl")
    producer.init_transactions()
    identity = (producer.producer_id, producer.producer_epoch)
    producer.begin_transaction()
    producer.send("t", b"1")
    producer.send("t", b"2")
    producer.flush()
    producer.send("t", b"3")
    producer.commit_transaction()

    found = rows(store, own=("value",))

    assert [(row["value"], row["_sequence"]) for row in found] == [(b"1", 0), (b"2", 1), (b"3", 2)]
    for row in found:
        assert (row["_transactional_id"], row["_producer_id"], row["_producer_epoch"]) == ("etl", *identity)
        assert (row["_control"], row["_slot"], row["_commit_timestamp"]) == (None, slot(store), log_time(store))


def test_a_row_without_a_transaction_is_committed_by_its_own_slot(store: Store) -> None:
    with store.producer() as producer:
        producer.send_table("flights", pa.table({"miles": [5]}))

    (row,) = rows(store, "flights")

    assert row["_transactional_id"] is None
    assert (row["_sequence"], row["_slot"], row["_commit_timestamp"]) == (0, slot(store), log_time(store))


def test_a_staged_row_has_no_sequence(store: Store) -> None:
    producer = open_transaction(store, "etl", staged=True)
    producer.send("t", b"1")
    producer.commit_transaction()

    (row,) = rows(store)

    assert (row["_transactional_id"], row["_sequence"], row["_slot"]) == ("etl", None, slot(store))


def test_open_rows_have_no_slot_and_aborted_ones_no_commit_time(store: Store) -> None:
    producer = open_transaction(store, "etl")
    producer.send("t", b"aborted")
    producer.flush()
    producer.abort_transaction()
    aborted = slot(store)
    producer.begin_transaction()
    producer.send("t", b"open")
    producer.flush()

    found = rows(store, own=("value",), isolation_level="read_uncommitted")

    assert [(row["value"], row["_slot"], row["_commit_timestamp"]) for row in found] == [
        (b"aborted", aborted, None),
        (b"open", None, None),
    ]


def test_control_rows_are_rows_with_nulls_at_their_offsets(store: Store) -> None:
    producer = store.producer("etl")
    producer.init_transactions()
    for end in ("commit", "abort"):
        producer.begin_transaction()
        producer.send("t", b"x", key=b"k")
        producer.flush()
        getattr(producer, f"{end}_transaction")()

    scan = store.scan("t", isolation_level="read_uncommitted", include_control_rows=True)
    found = scan.to_table().to_pylist()

    assert scan.record_count == len(found) == 4
    assert scan.schema.names[-len(COLUMNS) :] == COLUMNS
    assert [(row["offset"], row["key"], row["value"], row["_control"]) for row in found] == [
        (0, b"k", b"x", None),
        (1, None, None, "COMMIT"),
        (2, b"k", b"x", None),
        (3, None, None, "ABORT"),
    ]
    assert [row["_producer_epoch"] for row in found] == [0, 1, 1, 2]
    assert all(row["timestamp"] is not None for row in found)


def test_control_rows_are_shown_as_the_rows_that_they_end(store: Store) -> None:
    producer = store.producer("etl")
    producer.init_transactions()
    for end in ("commit", "abort"):
        producer.begin_transaction()
        producer.send_table("flights", pa.table({"miles": [1]}))
        producer.flush()
        getattr(producer, f"{end}_transaction")()

    scan = store.scan("flights", columns=["miles", "_offset", "_control"], include_control_rows=True)

    assert scan.schema.field("miles").nullable
    assert scan.to_table().to_pylist() == [
        {"miles": 1, "_offset": 0, "_control": None},
        {"miles": None, "_offset": 1, "_control": "COMMIT"},
    ]


def test_transaction_columns_alone_cost_no_file(store: Store) -> None:
    with store.producer() as producer:
        producer.send("t", b"1")
    scan = store.scan("t", columns=COLUMNS, include_control_rows=True)
    before = store.requests["GET"]

    assert scan.to_table().num_rows == 1
    assert store.requests["GET"] == before


def test_the_columns_are_the_same_once_a_segment_is_sealed(memory_store: ObjectStore, environment: Environment) -> None:
    store = Store(memory_store, environment)
    store.admin.create_topic("t", config=TopicConfig(segment_batches=2))
    producer = store.producer("etl")
    producer.init_transactions()
    for end in ("commit", "abort", "commit"):
        producer.begin_transaction()
        producer.send("t", b"1")
        producer.flush()
        producer.send("t", b"2")
        producer.flush()
        getattr(producer, f"{end}_transaction")()
    before = rows(store, isolation_level="read_uncommitted", include_control_rows=True)

    assert seal_segments(store)

    assert rows(store, isolation_level="read_uncommitted", include_control_rows=True) == before


def test_a_slice_within_a_batch_counts_its_sequences_from_there(store: Store) -> None:
    with store.producer() as producer:
        for number in range(5):
            producer.send("t", b"%d" % number)

    found = rows(store, own=("offset",), starting_offsets={0: 3})

    assert [(row["offset"], row["_sequence"]) for row in found] == [(3, 3), (4, 4)]


def placed(store: ObjectStore, rows: FileRows, stored: pa.Schema, wanted: pa.Schema) -> PartitionRead:
    return PartitionRead(store=store, topic="t", partition=0, files=[rows], stored=stored, wanted=wanted)


def test_sequences_wrap_around(memory_store: ObjectStore) -> None:
    rows = file_rows("f", batch(record_count=3, base_offset=10, base_sequence=2**31 - 2))
    wanted = pa.schema([pa.field("offset", pa.int64()), TRANSACTION_COLUMNS.field("_sequence")])

    (found,) = read_rows(placed(memory_store, rows, pa.schema([]), wanted))

    assert found.to_pydict() == {"offset": [10, 11, 12], "_sequence": [2**31 - 2, 2**31 - 1, 0]}


def test_a_compacted_file_has_control_rows_and_sequences_across_its_gaps(
    memory_store: ObjectStore,
) -> None:
    stored = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    table = pa.table({"n": [0, 2, 5, 6], "_offset_delta": [0, 2, 5, 6]}, schema=stored.append(OFFSET_DELTA_COLUMN))
    body = encode_data_file(table)
    memory_store.put("t/compacted", body)
    rows = file_rows(
        "t/compacted",
        batch(record_count=2, end_offset=3, transactional_id="a", base_sequence=10),
        control(3, transactional_id="a"),
        batch(first_row=2, record_count=2, base_offset=5, end_offset=7, transactional_id="b", base_sequence=0),
        control(7, transactional_id="b"),
        length=len(body),
        crc32c=crc32c(body),
        file_rows=4,
    )
    wanted = pa.schema([stored.field("n").with_nullable(True), pa.field("_offset", pa.int64()), *TRANSACTION_COLUMNS])
    before = memory_store.requests["GET"]

    (found,) = read_rows(placed(memory_store, rows, stored, wanted))

    assert memory_store.requests["GET"] - before == 1
    assert found.select(["n", "_offset", "_sequence", "_control", "_transactional_id"]).to_pydict() == {
        "n": [0, 2, None, 5, 6, None],
        "_offset": [0, 2, 3, 5, 6, 7],
        "_sequence": [10, 12, None, 0, 1, None],
        "_control": [None, None, "COMMIT", None, None, "COMMIT"],
        "_transactional_id": ["a", "a", "a", "b", "b", "b"],
    }


@pytest.mark.parametrize("name", [*COLUMNS, "_Slot"])
def test_a_topic_has_no_column_of_such_a_name(store: Store, name: str) -> None:
    with pytest.raises(UnsupportedSchema, match="this name is reserved"):
        store.admin.create_topic("other", schema=pa.schema([(name, pa.int64())]))
