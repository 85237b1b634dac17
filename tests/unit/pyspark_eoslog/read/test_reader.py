"""The batch reader, called as Spark calls it: which rows and columns its options give."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

import eoslog
from eoslog.errors import InvalidOption, OffsetOutOfRange, SchemaMismatch, UnknownTopicOrPartition
from eoslog.read.columns import TRANSACTION_COLUMNS
from eoslog.read.topics_snapshot import topics_snapshot
from eoslog.state.entry_fields import FileReference
from eoslog.state.jobs import replace_rows
from eoslog.state.partition_state import Partition
from pyspark_eoslog import worker
from pyspark_eoslog.options import Options
from pyspark_eoslog.read import batch_reader
from pyspark_eoslog.read.batch_reader import EosLogReader
from pyspark_eoslog.spark_schemas import default_schema
from pyspark_eoslog.worker import this_worker
from tests.requests import Applying
from tests.unit.support.transactions import open_transaction

NUMBERS = pa.schema([pa.field("n", pa.int64(), nullable=False)])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[eoslog.Store]:
    store = eoslog.connect(str(tmp_path / "store"))
    store.admin.create_topic("in", schema=NUMBERS)
    yield store
    this_worker().forget_stores()


def produce(store: eoslog.Store, *numbers: int, topic: str = "in", end: str = "commit") -> None:
    with open_transaction(store, "generator") as producer:
        producer.send_table(topic, pa.table({"n": list(numbers)}, schema=NUMBERS))
        producer.flush()
        getattr(producer, f"{end}_transaction")()


def newest_slot(store: eoslog.Store) -> int:
    return store.read(lambda state, slot: slot)


def options(store: eoslog.Store, **given: Any) -> Options:
    return Options.of({"path": store.url, "topic": "in", **{name: str(value) for name, value in given.items()}})


def rows(store: eoslog.Store, schema: StructType | None = None, **given: Any) -> list[dict[str, Any]]:
    return read(options(store, **given), schema)


def records(store: eoslog.Store, **given: Any) -> list[tuple[str, int, int]]:
    """The places of the rows that are read when ``given`` says which topics."""
    found = read(Options.of({"path": store.url, **{name: str(value) for name, value in given.items()}}))
    return sorted((row["topic"], row["partition"], row["offset"]) for row in found)


def read(chosen: Options, schema: StructType | None = None) -> list[dict[str, Any]]:
    if schema is None:
        snapshot = topics_snapshot(worker.verified_store(chosen.location), chosen.topics_to_read())
        schema = default_schema([replica.topic for replica in snapshot.topics], chosen)
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


def test_a_version_before_the_topics_creation_is_refused(store: eoslog.Store) -> None:
    before = store.read(lambda state, slot: slot)
    created = store.admin.create_topic("later").created_slot

    with pytest.raises(OffsetOutOfRange, match=f"topic later did not exist at slot {before}. It was created at slot"):
        records(store, topic="later", versionAsOf=before)
    assert records(store, topic="later", versionAsOf=created) == []
    assert records(store, subscribePattern="later", versionAsOf=before) == []


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
    slow = open_transaction(store, "slow")
    slow.send_table("more", pa.table({"n": [0]}, schema=NUMBERS))
    slow.flush()
    produce(store, 1)
    with open_transaction(store, "both") as both:
        for topic in ("in", "more"):
            both.send_table(topic, pa.table({"n": [2]}, schema=NUMBERS))
        both.commit_transaction()

    def numbers(**given: Any) -> list[int]:
        chosen = Options.of({"path": store.url, "subscribe": "in,more", **given})
        reader = EosLogReader(chosen, StructType([StructField("n", LongType())]))
        return [row["n"] for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]

    assert numbers() == [1, 2]
    assert numbers(transactionConsistent="true") == [1]


@pytest.fixture
def timed(store: eoslog.Store) -> eoslog.Store:
    """Topics of Kafka records of two partitions; the timestamp of each row is 1000 ms and ten times its offset."""
    for topic in ("a1", "a2", "b"):
        store.admin.create_topic(topic, partitions=2)
        for first in (0, 3):
            with store.producer() as producer:
                for offset in range(first, first + 3):
                    for partition in (0, 1):
                        producer.send(topic, b"x", partition=partition, timestamp=1000 + 10 * offset)
    return store


def test_a_pattern_matches_whole_names(timed: eoslog.Store) -> None:
    assert {topic for topic, _, _ in records(timed, subscribePattern="a.")} == {"a1", "a2"}
    assert {topic for topic, _, _ in records(timed, subscribePattern="b|a1")} == {"a1", "b"}


def test_a_pattern_without_matches_has_only_the_given_columns(timed: eoslog.Store) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="no topic matches option 'subscribePattern', 'c'"):
        records(timed, subscribePattern="c")

    chosen = Options.of({"path": timed.url, "subscribePattern": "c"})
    assert read(chosen, StructType([StructField("offset", LongType())])) == []


def test_only_assigned_partitions_are_read(timed: eoslog.Store) -> None:
    found = records(
        timed, assign='{"a1": [1], "b": [0, 1]}', startingOffsets='{"a1": {"1": 4}, "b": {"0": 5, "1": -2}}'
    )

    assert found == [("a1", 1, 4), ("a1", 1, 5), ("b", 0, 5), *(("b", 1, offset) for offset in range(6))]


def test_an_assigned_partition_that_is_not_there_is_told(timed: eoslog.Store) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="topic a1 has partitions 0 to 1, not 2"):
        records(timed, assign='{"a1": [0, 2]}')


def test_a_batch_goes_from_a_time_to_another(timed: eoslog.Store) -> None:
    found = records(timed, topic="a1", startingTimestamp=1011, endingTimestamp=1040)

    assert found == [("a1", partition, offset) for partition in (0, 1) for offset in (2, 3)]


def test_each_partition_may_have_its_own_times(timed: eoslog.Store) -> None:
    found = records(
        timed,
        topic="a1",
        startingOffsetsByTimestamp='{"a1": {"0": 1050, "1": 0}}',
        endingOffsetsByTimestamp='{"a1": {"0": 9999, "1": 1010}}',
        startingOffsets="earliest",
    )

    assert found == [("a1", 0, 5), ("a1", 1, 0)]
    with pytest.raises(InvalidOption, match="option 'startingOffsetsByTimestamp' lacks a1-1"):
        records(timed, topic="a1", startingOffsetsByTimestamp='{"a1": {"0": 1050}}')


def test_a_start_later_than_all_rows_is_an_error_unless_accepted(timed: eoslog.Store) -> None:
    with pytest.raises(OffsetOutOfRange, match="a1-0 has no row with a timestamp of 1051 or later"):
        records(timed, topic="a1", startingTimestamp=1051)

    assert records(timed, topic="a1", startingTimestamp=1051, startingOffsetsByTimestampStrategy="latest") == []


def test_a_partition_without_rows_has_no_earlier_time_to_begin_at(timed: eoslog.Store) -> None:
    timed.admin.create_topic("empty")

    with pytest.raises(OffsetOutOfRange, match=r"empty-0 has no rows yet\. Begin at its end with option"):
        records(timed, topic="empty", startingTimestamp=0)


@pytest.mark.parametrize(
    ("given", "instead"),
    [
        ({"startingOffsets": "latest"}, "earliest"),
        ({"startingOffsets": '{"in": {"0": -1}}'}, "earliest"),
        ({"endingOffsets": "earliest"}, "latest"),
        ({"endingOffsets": '{"in": {"0": -2}}'}, "latest"),
    ],
)
def test_a_batch_that_would_read_nothing_is_refused(store: eoslog.Store, given: dict[str, Any], instead: str) -> None:
    with pytest.raises(InvalidOption, match=f"a batch would read nothing. Use '{instead}'"):
        rows(store, **given)


def test_options_of_streams_are_named_and_ignored(store: eoslog.Store, caplog: pytest.LogCaptureFixture) -> None:
    produce(store, 1)

    assert len(rows(store, maxOffsetsPerTrigger=1, maxTriggerDelay="1s")) == 1
    assert "ignored, as they are for readStream: maxOffsetsPerTrigger, maxTriggerDelay" in caplog.text


def test_a_large_read_of_everything_names_the_faster_ways(
    store: eoslog.Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(store, 7)
    rows(store)
    assert "EosLogTable" not in caplog.text
    monkeypatch.setattr("pyspark_eoslog.read.batch_reader._LARGE_BYTES", 1)

    rows(store, predicate="n > 1")
    rows(store, columns="_offset")
    assert "EosLogTable" not in caplog.text
    rows(store)

    (warning,) = caplog.messages
    assert all(each in warning for each in ("EosLogTable.forPath", "columns=", "predicate=", "rows of in (0 MiB)"))


def test_columns_are_chosen_by_name_in_any_order_and_case(store: eoslog.Store) -> None:
    produce(store, 7)

    (row,) = rows(store, columns="_offset, N, _transactional_id")

    assert list(row.items()) == [("_offset", 0), ("N", 7), ("_transactional_id", "generator")]


def test_topics_of_different_columns_are_read_together_by_columns_that_they_share(store: eoslog.Store) -> None:
    store.admin.create_topic("wide", schema=pa.schema([*NUMBERS, pa.field("more", pa.string())]))
    produce(store, 7)

    with pytest.raises(InvalidOption, match="different columns"):
        records(store, subscribe="in,wide")
    found = read(Options.of({"path": store.url, "subscribe": "in,wide", "columns": "n"}))

    assert found == [{"n": 7}]


def test_a_column_that_is_not_there_is_told_with_those_that_are(store: eoslog.Store) -> None:
    with pytest.raises(InvalidOption, match=r"option 'columns': topic in has no column 'm'\. Its columns are: n, "):
        rows(store, columns="n,m")


def test_columns_and_a_schema_must_agree(store: eoslog.Store) -> None:
    produce(store, 7)
    schema = StructType([StructField("n", LongType()), StructField("_offset", LongType())])

    assert rows(store, schema, columns="N,_offset") == [{"n": 7, "_offset": 0}]
    with pytest.raises(InvalidOption, match="option 'columns' is _offset, n, but the schema has n, _offset"):
        rows(store, schema, columns="_offset,n")


def test_with_control_rows_chosen_columns_may_be_null(store: eoslog.Store) -> None:
    produce(store, 7)

    assert rows(store, columns="n,_control", includeControlRows=True) == [
        {"n": 7, "_control": None},
        {"n": None, "_control": "COMMIT"},
    ]


@pytest.mark.usefixtures("files_are_objects")
def test_columns_that_the_log_knows_cost_no_fetch(store: eoslog.Store) -> None:
    produce(store, 7, 8)
    chosen = options(store, columns="_offset")
    snapshot = topics_snapshot(worker.verified_store(chosen.location), chosen.topics_to_read())
    schema = default_schema([replica.topic for replica in snapshot.topics], chosen)
    files = [piece.path for replica in snapshot.topics for each in replica.partitions for piece in _files(each)]
    for path in files:
        (Path(store.url) / path).unlink()

    assert files
    assert read(chosen, schema) == [{"_offset": 0}, {"_offset": 1}]


def _files(partition: Partition) -> list[FileReference]:
    return [batch.file for batch in partition.active if batch.file is not None]


def test_limits_of_rows_and_partitions_hold_within_one_file(store: eoslog.Store) -> None:
    produce(store, *range(10))

    def sizes(**given: Any) -> list[list[int]]:
        reader = EosLogReader(options(store, **given), StructType([StructField("n", LongType())]))
        return [[row["n"] for batch in reader.read(part) for row in batch.to_pylist()] for part in reader.partitions()]

    assert sizes() == [list(range(10))]
    assert sizes(maxRecordsPerPartition=4) == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert sizes(minPartitions=5) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]


def test_reading_deleted_rows_is_an_error_that_names_the_first_left(store: eoslog.Store) -> None:
    produce(store, 1, 2)
    topic_id = store.admin.describe_topic("in").topic_id
    store.append(Applying(lambda draft: replace_rows(draft, topic_id)))
    produce(store, 3)

    with pytest.raises(OffsetOutOfRange, match=r"partition in-0 begins at offset 3: 3 offsets from 0 on.*Begin at 3"):
        rows(store, startingOffsets='{"in": {"0": 0}}')
    assert [row["n"] for row in rows(store, startingOffsets='{"in": {"0": 0}}', failOnDataLoss=False)] == [3]
    gone = {"startingOffsets": '{"in": {"0": 0}}', "endingOffsets": '{"in": {"0": 2}}', "failOnDataLoss": False}
    assert rows(store, **gone) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffsets": '{"in": {"0": 4}}'}, r"begins partition in-0 at offset 4, but it ends at 3. Begin at 0"),
        ({"endingOffsets": '{"in": {"0": 4}}'}, r"ends partition in-0 at offset 4, but it ends at 3. End there"),
        (
            {"startingOffsets": '{"in": {"0": 2}}', "endingOffsets": '{"in": {"0": 1}}'},
            r"in-0 is to end at offset 1, before its start 2",
        ),
    ],
)
def test_offsets_that_a_partition_has_not_are_told(store: eoslog.Store, given: dict[str, Any], message: str) -> None:
    produce(store, 1, 2)

    with pytest.raises(OffsetOutOfRange, match=message):
        rows(store, **given)


def test_up_to_a_lost_end_the_rest_is_read_if_accepted(store: eoslog.Store) -> None:
    produce(store, 1, 2)

    assert len(rows(store, endingOffsets='{"in": {"0": 9}}', failOnDataLoss=False)) == 2


def test_a_start_behind_an_open_transaction_gives_nothing_yet(store: eoslog.Store) -> None:
    open_one = open_transaction(store, "slow")
    open_one.send_table("in", pa.table({"n": [0]}, schema=NUMBERS))
    open_one.flush()
    produce(store, 1)

    assert rows(store, startingOffsets='{"in": {"0": 1}}') == []
    assert rows(store, startingOffsets='{"in": {"0": 1}}', endingOffsets='{"in": {"0": -1}}') == []
    assert len(rows(store, startingOffsets='{"in": {"0": 1}}', isolationLevel="read_uncommitted")) == 1


def test_the_first_batch_read_of_several_files_names_the_ways_to_a_faster_one(
    store: eoslog.Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(batch_reader, "_hinted", threading.Event())
    caplog.set_level(logging.INFO, logger="pyspark_eoslog")
    for number in range(4):
        produce(store, number)

    rows(store)
    assert caplog.records == []  # A read of so few files needs no hint.
    produce(store, 4)
    for _ in range(2):
        rows(store)

    (told,) = caplog.records
    assert told.levelno == logging.INFO
    assert told.message == (
        'format("eoslog") reads 5 files of in. Spark passes neither columns nor filters to a Python data source. What '
        "makes the read faster: option columns= reads only the columns that it names; option predicate= skips files "
        "and rows; EosLogTable.forPath(spark, root, topic).toDF() does both by itself."
    )


@pytest.mark.parametrize(
    ("given", "ways"),
    [
        ({"columns": "_offset"}, {"predicate=", "toDF()"}),
        ({"predicate": "n >= 0"}, {"columns=", "toDF()"}),
        ({"includeTransactionColumns": True}, {"columns=", "predicate="}),
        ({"columns": "_offset", "predicate": "n >= 0", "includeControlRows": True}, set()),
    ],
    ids=["one column", "a predicate", "columns of transactions", "all of them"],
)
def test_the_hint_names_only_what_would_help(
    store: eoslog.Store,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    given: dict[str, Any],
    ways: set[str],
) -> None:
    monkeypatch.setattr(batch_reader, "_hinted", threading.Event())
    caplog.set_level(logging.INFO, logger="pyspark_eoslog")
    for number in range(5):
        produce(store, number)

    rows(store, **given)

    assert {way for way in ("columns=", "predicate=", "toDF()") if way in caplog.text} == ways
    assert len(caplog.records) == bool(ways)
