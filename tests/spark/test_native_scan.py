"""EosLogTable.toDF: Spark's own Parquet reader gives the rows, offsets, names and types of ``format("eoslog")``."""

from __future__ import annotations

import io
import math
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import eoslog
import pyspark_eoslog
from eoslog.errors import InvalidOption, OffsetOutOfRange
from eoslog.format import file_writer, statistics
from eoslog.format.data_file import encode_data_file
from pyspark_eoslog import EosLogTable
from tests.spark.test_filters import found_by_filters
from tests.spark.test_types import VALUES
from tests.unit.pyspark_eoslog.native.histories import TOPIC, TableHistory
from tests.unit.pyspark_eoslog.native.test_lookup import reads, rows_by_scan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def store(tmp_path: Path) -> eoslog.Store:
    # Characters that a path's pattern and an URL take for more than themselves.
    root = tmp_path / "year=2026" / "a [b] {c,d} e%20f?*"
    root.mkdir(parents=True)
    return eoslog.connect(str(root / "store"), fsync=False)


def explained(frame: DataFrame) -> str:
    text = io.StringIO()
    with redirect_stdout(text):
        frame.explain()
    return text.getvalue()


def sent(spark: SparkSession, store: eoslog.Store, rows: DataFrame, topic: str = "flights") -> EosLogTable:
    store.admin.create_topic(topic, schema=pyspark_eoslog.topic_schema(rows.schema), spark_schema=rows.schema.json())
    rows.write.format("eoslog").option("topic", topic).mode("append").save(store.url)
    return EosLogTable.forPath(spark, store.url, topic)


@pytest.mark.parametrize(
    ("seed", "records", "compacted"),
    [
        pytest.param(1, False, False, marks=pytest.mark.slow),
        pytest.param(2, False, True, marks=pytest.mark.slow),
        (3, True, False),
        pytest.param(4, True, True, marks=pytest.mark.slow),
    ],
)
def test_rows_and_offsets_equal_those_of_scan_and_data_source(
    spark: SparkSession, tmp_path: Path, seed: int, records: bool, compacted: bool
) -> None:
    history = TableHistory(tmp_path, seed, records=records, compacted=compacted)
    history.run(40)
    table = EosLogTable.forPath(spark, history.store.url, TOPIC)
    names = ["partition", "offset", "timestamp", "value"] if records else ["_partition", "_offset", "_timestamp", "n"]
    partition, offset, time, number = names

    for given in reads(history):
        try:
            native = table.toDF(**given)
        except OffsetOutOfRange:
            continue  # Rows of an earlier slot were deleted since.

        found = native.selectExpr(partition, offset, f"unix_millis({time})", number).collect()

        scanned = history.store.scan(TOPIC, columns=names, **given)
        assert sorted(tuple(row) for row in found) == rows_by_scan(scanned, *names), given
        without_metadata = table.toDF(columns=[number], **given).collect()
        assert sorted(row[0] for row in without_metadata) == sorted(row[3] for row in found), given

    reader = spark.read.format("eoslog").option("topic", TOPIC).option("includeHeaders", "true")
    source, native = reader.load(history.store.url), table.toDF(include_headers=True)
    assert native.dtypes == source.dtypes
    assert sorted(map(repr, native.collect())) == sorted(map(repr, source.collect()))


@pytest.mark.pyspark("4.1")
def test_every_type_comes_back_from_any_path(spark: SparkSession, store: eoslog.Store) -> None:
    spark.conf.set("spark.sql.timeType.enabled", "true")
    columns = [f"if(id = 0, {value}, null) as {name}" for name, value in VALUES.items()]
    rows = spark.range(2).selectExpr("id", *columns)
    table = sent(spark, store, rows)

    with pytest.raises(
        InvalidOption, match=r"'time' is time\(6\), which Spark's Parquet reader does not support.*eoslog"
    ):
        table.toDF()
    found = table.toDF(columns=[name for name in rows.columns if name != "time"])

    wanted = rows.drop("time")
    assert found.dtypes == wanted.dtypes
    texts = [f"cast({name} as string) as {name}" for name in wanted.columns]
    assert found.selectExpr(*texts).orderBy("id").collect() == wanted.selectExpr(*texts).orderBy("id").collect()


@pytest.mark.parametrize(
    ("seed", "records", "compacted"), [pytest.param(5, False, False, marks=pytest.mark.slow), (6, True, True)]
)
def test_the_newest_rows_are_those_of_scan_and_data_source(
    spark: SparkSession, tmp_path: Path, seed: int, records: bool, compacted: bool
) -> None:
    history = TableHistory(tmp_path, seed, records=records, compacted=compacted)
    history.run(40)
    table = EosLogTable.forPath(spark, history.store.url, TOPIC)
    names = ["partition", "offset", "value"] if records else ["_partition", "_offset", "n"]
    predicate = "partition >= 1" if records else "n > 40"

    for given in ({}, {"predicate": predicate}, {"isolation_level": "read_uncommitted"}):
        scanned = history.store.scan(TOPIC, columns=names, latest_by_key=True, **given).to_table()
        wanted = sorted(tuple(row.values()) for row in scanned.to_pylist())

        native = table.toDF(latest_by_key=True, **given)

        assert sorted(tuple(row) for row in native.select(*names).collect()) == wanted, given
        assert wanted
    reader = spark.read.format("eoslog").options(topic=TOPIC, latestByKey="true", predicate=predicate)
    found = reader.load(history.store.url).select(*names)
    native = table.toDF(latest_by_key=True, predicate=predicate, columns=names)
    assert sorted(map(tuple, found.collect())) == sorted(map(tuple, native.collect()))


def test_keys_that_spark_takes_for_equal_are_compared_by_their_bytes(spark: SparkSession, store: eoslog.Store) -> None:
    rows = spark.sql(
        "SELECT * FROM VALUES (1, 0.0D, 'a'), (2, -0.0D, 'a'), (3, double('NaN'), 'a'), (4, double('NaN'), 'a'), "
        "(5, null, null), (6, null, null), (7, null, 'a'), (8, null, 'a'), (9, 0.0D, 'A') AS t(n, x, name)"
    ).selectExpr("n", "x", "collate(name, 'UTF8_LCASE') as name")
    store.admin.create_topic(
        "flights", schema=pyspark_eoslog.topic_schema(rows.schema), key=["x", "name"], spark_schema=rows.schema.json()
    )
    rows.coalesce(1).write.format("eoslog").option("topic", "flights").mode("append").save(store.url)

    found = EosLogTable.forPath(spark, store.url, "flights").toDF(latest_by_key=True)

    wanted = store.scan("flights", latest_by_key=True).to_table()["n"].to_pylist()
    assert sorted(row.n for row in found.collect()) == sorted(wanted) == [1, 2, 4, 5, 6, 8, 9]


def test_filters_and_columns_are_pushed_into_the_parquet_reader(spark: SparkSession, store: eoslog.Store) -> None:
    table = sent(spark, store, spark.range(100).selectExpr("id", "cast(id as string) as text", "id * 2 as twice"))

    plan = explained(table.toDF().where("id > 90").select("text"))

    assert "PushedFilters: [IsNotNull(id), GreaterThan(id,90)]" in plan
    assert "Batched: true" in plan
    assert "twice" not in plan
    assert "from_json" not in plan  # Folded when it was planned.
    assert ".parquet," not in plan.split("FileScan")[0]  # Nothing is looked up that nobody asks for.


def test_a_read_without_metadata_columns_is_a_plain_scan_of_parquet(spark: SparkSession, store: eoslog.Store) -> None:
    table = sent(spark, store, spark.range(100).selectExpr("id", "cast(id as string) as text").coalesce(1))
    more = spark.range(100, 110).selectExpr("id", "cast(id as string) as text").coalesce(1)
    more.write.format("eoslog").option("topic", "flights").mode("append").save(store.url)

    found = table.toDF(metadata_columns=False)

    # Spark optimizes each expression of this plan again for each action, although no action uses it.
    (only,) = found._jdf.queryExecution().analyzed().toString().strip().splitlines()
    assert only.startswith("Relation [id#")
    assert only.endswith("] parquet")
    assert found.count() == 110
    assert table.toDF(columns=["text", "id"]).where("id >= 100").select("text").first() == ("100",)


def test_columns_and_fields_that_were_added_are_null_in_files_from_before(
    spark: SparkSession, store: eoslog.Store
) -> None:
    before = spark.range(3).selectExpr("id", "named_struct('x', id) as point").coalesce(1)
    table = sent(spark, store, before)
    more = spark.range(3, 5).selectExpr("id", "named_struct('x', id, 'y', 'new') as point", "true as late").coalesce(1)
    writer = more.write.format("eoslog").option("topic", "flights").option("mergeSchema", "true")
    writer.mode("append").save(store.url)

    found = table.toDF(metadata_columns=False)

    source = spark.read.format("eoslog").option("topic", "flights").option("metadataColumns", "false").load(store.url)
    assert found.columns == ["id", "point", "late"]
    assert found.dtypes == source.dtypes
    assert sorted(map(repr, found.collect())) == sorted(map(repr, source.collect()))


def test_a_predicate_leaves_files_out_and_filters_the_rest(spark: SparkSession, store: eoslog.Store) -> None:
    table = sent(spark, store, spark.range(10).selectExpr("id", "cast(id as string) as text").coalesce(1))
    more = spark.range(10, 20).selectExpr("id", "cast(id as string) as text").coalesce(1)
    more.write.format("eoslog").option("topic", "flights").mode("append").save(store.url)

    found = table.toDF(predicate="id > 17 and _offset < 20 -- the last ones", columns=["text"])

    assert found.columns == ["text"]
    assert sorted(row.text for row in found.collect()) == ["18"]
    assert "InMemoryFileIndex(1 paths)" in explained(found)
    assert table.toDF(predicate="id > 99").count() == 0


NAN_CONDITIONS = [
    "d > 1",
    "d >= 2",
    "d <> 1",
    "not (d = 1)",
    "not (d <=> 1)",
    "d = double('NaN')",
    "d <=> double('NaN')",
    "d > double('Infinity')",
    "d in (5.0, double('NaN'))",
    "d between 2 and double('NaN')",
    "f > 1",
    "f = float('NaN')",
    "not (f <= 1) and id > 0",
    "s.x > 1",
]


def of_an_earlier_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write data files as an earlier version did: their bounds leave NaN out, and the log's statistics name NaN."""

    def encode(table: pa.Table, schema: pa.Schema) -> bytes:
        sink = pa.BufferOutputStream()
        bounded = [field.name for field in schema if not pa.types.is_nested(field.type)]
        pq.write_table(table.cast(schema), sink, store_schema=False, write_statistics=bounded)
        return sink.getvalue().to_pybytes()

    def encode_statistics(body: bytes, table: pa.Table, most_columns: int) -> str | None:
        return statistics.encode_statistics(encode_data_file(table), table, most_columns)

    monkeypatch.setattr(file_writer, "encode_data_file", encode)
    monkeypatch.setattr(file_writer, "encode_statistics", encode_statistics)


NAN_COLUMNS = pa.schema(
    [("id", pa.int32()), ("d", pa.float64()), ("f", pa.float32()), ("s", pa.struct([("x", pa.float64())]))]
)


def send_nan(store: eoslog.Store, statistics_columns: int = 16) -> None:
    """Send one file with NaN, and one without."""
    config = eoslog.TopicConfig(statistics_columns=statistics_columns)
    store.admin.create_topic("numbers", schema=NAN_COLUMNS, config=config)
    with store.producer() as producer:
        for first, values in ((0, [1.0, math.nan]), (2, [1.0, 1.0])):
            rows = [{"id": first + at, "d": value, "f": value, "s": {"x": value}} for at, value in enumerate(values, 1)]
            producer.send_table("numbers", pa.Table.from_pylist(rows, NAN_COLUMNS))
            producer.flush()


@pytest.mark.parametrize(
    ("version", "compacted", "statistics_columns"),
    [
        pytest.param("this", False, 16, marks=pytest.mark.slow),
        ("this", True, 16),
        ("an earlier", False, 16),
        pytest.param("an earlier", False, 0, marks=pytest.mark.slow),
    ],
)
def test_a_filter_finds_rows_with_nan(
    spark: SparkSession,
    store: eoslog.Store,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    compacted: bool,
    statistics_columns: int,
) -> None:
    if version == "an earlier":
        of_an_earlier_version(monkeypatch)
    send_nan(store, statistics_columns)
    if compacted:
        store.admin.compact_files("numbers", now=True)
    table = EosLogTable.forPath(spark, store.url, "numbers")

    for frame in (table.toDF(), table.toDF(metadata_columns=False)):
        found = frame.selectExpr("id", *(f"{each} as c{at}" for at, each in enumerate(NAN_CONDITIONS)))
        assert {tuple(row)[1:] for row in found.collect() if row.id == 2} == {(True,) * len(NAN_CONDITIONS)}
        assert found_by_filters(frame, NAN_CONDITIONS) == [{2}] * len(NAN_CONDITIONS)
    for condition in ("d > 1", "d <> 1", "d = 'NaN'", "d IN (5.0, double('NaN'))"):
        given = condition.replace("double('NaN')", "'NaN'")
        assert [row.id for row in table.toDF(predicate=given).collect()] == [2], condition


def test_filters_on_floats_are_pushed_into_files_without_nan(spark: SparkSession, store: eoslog.Store) -> None:
    send_nan(store)

    plan = explained(EosLogTable.forPath(spark, store.url, "numbers").toDF().where("d > 1 and id > 0"))

    assert sorted(re.findall(r"PushedFilters: \[.*?\]", plan)) == [
        "PushedFilters: [IsNotNull(d), IsNotNull(id), GreaterThan(d,1.0), GreaterThan(id,0)]",
        "PushedFilters: [IsNotNull(id), GreaterThan(id,0)]",
    ]


@pytest.mark.parametrize("version", ["this", "an earlier"])
def test_minima_maxima_and_counts_are_right_whatever_the_session_pushes(
    spark: SparkSession, store: eoslog.Store, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    if version == "an earlier":
        of_an_earlier_version(monkeypatch)
    send_nan(store)
    table = EosLogTable.forPath(spark, store.url, "numbers")
    settings = {"spark.sql.sources.useV1SourceList": "", "spark.sql.parquet.aggregatePushdown": "true"}
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)

        frame = table.toDF(columns=["d", "f", "id"])
        (told,) = frame.selectExpr("max(id)", "min(d)", "isnan(max(d))", "isnan(max(f))", "count(f)").collect()
        (offsets,) = table.toDF().selectExpr("min(_offset)", "max(_offset)", "count(*)").collect()
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)

    assert tuple(told) == (4, 1.0, True, True, 4)
    assert tuple(offsets) == (0, 3, 4)


def test_only_a_cut_file_needs_a_condition_and_its_own_scan(spark: SparkSession, store: eoslog.Store) -> None:
    table = sent(spark, store, spark.range(10).coalesce(1))
    spark.range(10, 20).coalesce(1).write.format("eoslog").option("topic", "flights").mode("append").save(store.url)

    assert explained(table.toDF()).count("FileScan") == 1
    assert "Filter (" not in explained(table.toDF())
    cut = table.toDF(starting_offsets={0: 5})
    assert explained(cut).count("FileScan") == 2
    assert sorted(row.id for row in cut.collect()) == list(range(5, 20))


def test_the_driver_lists_many_files_and_restores_the_session_setting(spark: SparkSession, store: eoslog.Store) -> None:
    store.admin.create_topic("records")
    with store.producer() as producer:
        for number in range(50):
            producer.send("records", b"%d" % number)
            producer.flush()
    threshold = spark.conf.get("spark.sql.sources.parallelPartitionDiscovery.threshold")

    found = EosLogTable.forPath(spark, store.url, "records").toDF()

    assert [row.offset for row in found.orderBy("offset").collect()] == list(range(50))
    assert spark.conf.get("spark.sql.sources.parallelPartitionDiscovery.threshold") == threshold


def test_no_rows_have_the_columns_of_some(spark: SparkSession, store: eoslog.Store) -> None:
    table = sent(spark, store, spark.range(3).selectExpr("id", "array(1) as numbers"))
    some = table.toDF()
    none = table.toDF(starting_offsets={0: 3}, ending_offsets={0: 3})

    assert none.schema == some.schema
    assert none.count() == 0


def test_a_file_that_is_gone_is_an_error_whatever_the_session_ignores(spark: SparkSession, store: eoslog.Store) -> None:
    table = sent(spark, store, spark.range(3).coalesce(1))
    (path,) = {each.path for each in store.scan("flights").planned_files()}
    planned = table.toDF()
    (Path(store.url) / path).unlink()
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        with pytest.raises(Exception, match=r"FAILED_READ_FILE|does not exist"):
            planned.collect()
        with pytest.raises(Exception, match="PATH_NOT_FOUND"):
            table.toDF().collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


def test_a_view_answers_sql(spark: SparkSession, store: eoslog.Store) -> None:
    table = sent(spark, store, spark.range(10).coalesce(1))

    table.createOrReplaceTempView("flights_now", starting_offsets={0: 4})

    (row,) = spark.sql("select count(*) as rows, min(_offset) as first from flights_now where id < 8").collect()
    assert (row.rows, row["first"]) == (4, 4)


@pytest.mark.usefixtures("files_are_objects")
def test_a_table_tells_of_itself(spark: SparkSession, store: eoslog.Store) -> None:
    table = sent(spark, store, spark.range(10).coalesce(1))

    newest, created = table.history().collect()
    assert (newest.operation, newest.rows, newest.files, created.operation) == ("append", 10, 1, "create_topic")
    assert [row.operation for row in table.history(1).collect()] == ["append"]
    (detail,) = table.detail().collect()
    assert (detail.topic, detail.numRows, detail.numFiles, detail.numPartitions) == ("flights", 10, 1, 1)
    assert detail.properties["cleanup_policy"] == "delete"
    (place,) = table.offsets().collect()
    assert (place.logStartOffset, place.lastStableOffset, place.highWatermark) == (0, 11, 11)
    assert {row.transactionState for row in table.transactions().collect()} == {"COMPLETE_COMMIT"}


def test_maintenance_returns_its_numbers(spark: SparkSession, store: eoslog.Store) -> None:
    store.admin.create_topic("records", config=eoslog.TopicConfig(segment_batches=2, cleanup_policy="compact"))
    with store.producer() as producer:
        for number in range(8):
            producer.send("records", b"%d" % number, key=b"k")
            producer.flush()
    eoslog.Coordinator(store).seal()
    table = EosLogTable.forPath(spark, store.url, "records")

    done = table.optimize().collect()
    looked = table.vacuum(dry_run=True).collect()

    assert [(row.rowsRemoved, row.endOffset) for row in done if row.operation == "compact_keys"] == [(7, 8)]
    assert [(row.dryRun, row.numFiles) for row in looked] == [(True, 0)]


@pytest.mark.usefixtures("files_are_objects")
def test_a_new_table_is_optimized_now(spark: SparkSession, store: eoslog.Store) -> None:
    table = sent(spark, store, spark.range(10).repartition(3))
    assert table.optimize().count() == 0

    (done,) = table.optimize(now=True).collect()

    assert (done.operation, done.filesBefore, done.filesAfter) == ("compact_files", 3, 1)
    assert done.bytesBefore > done.bytesAfter > 0
    assert done.rowsRemoved == 0
    assert sorted(row.id for row in table.toDF().collect()) == list(range(10))
