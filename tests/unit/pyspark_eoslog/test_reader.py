"""The batch reader, called as Spark calls it: which rows and columns its options give."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

import eoslog
from eoslog.errors import InvalidOption, SchemaMismatch
from eoslog.read.columns import TRANSACTION_COLUMNS
from pyspark_eoslog import stores
from pyspark_eoslog.options import Options
from pyspark_eoslog.reader import EosLogReader
from pyspark_eoslog.schemas import default_schema

NUMBERS = pa.schema([pa.field("n", pa.int64(), nullable=False)])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[eoslog.Store]:
    store = eoslog.connect(str(tmp_path / "store"))
    store.admin.create_topic("in", schema=NUMBERS)
    yield store
    stores._stores.clear()
    stores._object_stores.clear()


def produce(store: eoslog.Store, *numbers: int, topic: str = "in", end: str = "commit") -> None:
    with store.producer("generator") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_table(topic, pa.table({"n": list(numbers)}, schema=NUMBERS))
        producer.flush()
        getattr(producer, f"{end}_transaction")()


def newest_slot(store: eoslog.Store) -> int:
    return store.read(lambda state, slot: slot)


def options(store: eoslog.Store, **given: Any) -> Options:
    return Options.of({"path": store.url, "topic": "in", **{name: str(value) for name, value in given.items()}})


def rows(store: eoslog.Store, schema: StructType | None = None, **given: Any) -> list[dict[str, Any]]:
    chosen = options(store, **given)
    if schema is None:
        schema = default_schema([store.admin.describe_topic(topic) for topic in chosen.topics], chosen)
    reader = EosLogReader(chosen, schema)
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_transaction_columns_come_on_request_behind_the_others(store: eoslog.Store) -> None:
    produce(store, 7)

    (plain,) = rows(store)
    (told,) = rows(store, includeTransactionColumns=True, metadataColumns=False)

    assert not set(TRANSACTION_COLUMNS.names) & plain.keys()
    assert list(told) == ["n", *TRANSACTION_COLUMNS.names]
    assert (told["_transactional_id"], told["_sequence"], told["_control"]) == ("generator", 0, None)
    assert told["_slot"] == newest_slot(store)


def test_kafka_records_have_them_too(store: eoslog.Store) -> None:
    store.admin.create_topic("records")
    with store.producer() as producer:
        producer.send("records", b"1")

    (row,) = rows(store, topic="records", includeTransactionColumns=True)

    assert list(row)[-len(TRANSACTION_COLUMNS.names) :] == TRANSACTION_COLUMNS.names
    assert row["_transactional_id"] is None


def test_a_schema_may_name_some_of_them_and_widen_them(store: eoslog.Store) -> None:
    produce(store, 7)
    schema = StructType(
        [
            StructField("_slot", LongType()),
            StructField("_producer_epoch", IntegerType()),
            StructField("_control", StringType()),
        ]
    )

    assert rows(store, schema) == [{"_slot": newest_slot(store), "_producer_epoch": 0, "_control": None}]


def test_a_schema_cannot_say_that_they_are_never_null(store: eoslog.Store) -> None:
    with pytest.raises(SchemaMismatch, match="'_slot' may be null"):
        rows(store, StructType([StructField("_slot", LongType(), nullable=False)]))


def test_control_rows_are_rows_on_request(store: eoslog.Store) -> None:
    produce(store, 1)
    produce(store, 2, end="abort")

    committed = rows(store, includeControlRows=True)
    everything = rows(store, includeControlRows=True, isolationLevel="read_uncommitted")

    assert [(row["n"], row["_control"]) for row in committed] == [(1, None), (None, "COMMIT")]
    assert [(row["n"], row["_control"]) for row in everything] == [
        (1, None),
        (None, "COMMIT"),
        (2, None),
        (None, "ABORT"),
    ]
    assert [row["_offset"] for row in everything] == [0, 1, 2, 3]


def test_with_control_rows_every_column_of_the_topic_may_be_null(store: eoslog.Store) -> None:
    produce(store, 1)
    never_null = StructType([StructField("n", LongType(), nullable=False)])

    assert rows(store, never_null) == [{"n": 1}]
    with pytest.raises(SchemaMismatch, match="'n' may be null"):
        rows(store, never_null, includeControlRows=True)


def test_versions_and_timestamps_are_snapshots_in_deltas_spelling(store: eoslog.Store) -> None:
    produce(store, 1)
    slot, time_ms = store.read(lambda state, slot: (slot, state.time_ms))
    while store.now_ms() <= time_ms:
        produce(store, 0, end="abort")
    produce(store, 2)
    written = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()

    def numbers(**given: Any) -> list[int]:
        return [row["n"] for row in rows(store, **given)]

    assert numbers(versionAsOf=slot) == numbers(slot=slot, isolationLevel="snapshot") == [1]
    assert numbers(timestampAsOf=written) == numbers(timestampAsOf=time_ms) == [1]
    assert numbers(isolationLevel="snapshot") == [1, 2]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"versionAsOf": 1, "slot": 1}, "not both"),
        ({"versionAsOf": 1, "timestampAsOf": 1}, "not both"),
        ({"versionAsOf": 99}, "slot 99 is not there"),
        ({"timestampAsOf": "2026-01-31"}, "has no time zone"),
        ({"timestampAsOf": "yesterday"}, "is not a point in time"),
        ({"timestampAsOf": "9999-01-01T00:00:00Z"}, "lies in the future"),
        ({"timestampAsOf": 1, "isolationLevel": "read_committed"}, "need option 'isolationLevel' to be 'snapshot'"),
    ],
)
def test_a_version_or_a_time_that_cannot_be_read_is_refused(
    store: eoslog.Store, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidOption, match=message):
        rows(store, **given)


def test_a_transaction_consistent_batch_leaves_out_what_it_would_show_in_part(store: eoslog.Store) -> None:
    store.admin.create_topic("more", schema=NUMBERS)
    slow = store.producer("slow")
    slow.init_transactions()
    slow.begin_transaction()
    slow.send_table("more", pa.table({"n": [0]}, schema=NUMBERS))
    slow.flush()
    produce(store, 1)
    with store.producer("both") as both:
        both.init_transactions()
        both.begin_transaction()
        for topic in ("in", "more"):
            both.send_table(topic, pa.table({"n": [2]}, schema=NUMBERS))
        both.commit_transaction()

    def numbers(**given: Any) -> list[int]:
        chosen = Options.of({"path": store.url, "subscribe": "in,more", **given})
        reader = EosLogReader(chosen, StructType([StructField("n", LongType())]))
        return [row["n"] for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]

    assert numbers() == [1, 2]
    assert numbers(transactionConsistent="true") == [1]
