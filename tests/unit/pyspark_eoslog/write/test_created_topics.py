"""``createTopic``: a write creates its topic and its store when it is planned, once, from the columns of its rows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

import eoslog
from eoslog.admin.admin import Admin
from eoslog.errors import (
    InvalidOption,
    InvalidTopic,
    NotAStore,
    SchemaMismatch,
    UnknownTopicOrPartition,
    UnsupportedSchema,
)
from eoslog.format.topic_schemas import stored_schema
from pyspark_eoslog.data_source import DefaultSource
from pyspark_eoslog.options import Options
from pyspark_eoslog.worker import Worker, acting_as, this_worker
from pyspark_eoslog.write import tasks
from pyspark_eoslog.write.sink import EosLogStreamWriter, EosLogWriter
from tests.unit.pyspark_eoslog.write.sink.sinks import OnlyTask, told
from tests.unit.support.paused_processes import Died, Mortal

ROWS = StructType([StructField("carrier", StringType()), StructField("miles", LongType())])


@pytest.fixture
def root(tmp_path: Path) -> Iterator[str]:
    yield str(tmp_path / "store")
    this_worker().forget_stores()


def options(root: str, **given: str) -> Options:
    return Options.of({"path": root, "topic": "trips", "createTopic": "true", **given})


def planned(root: str, schema: StructType = ROWS, **given: str) -> EosLogWriter:
    return EosLogWriter(options(root, **given), schema, overwrite=False)


def topic(root: str) -> Any:
    return eoslog.connect(root).admin.describe_topic("trips")


def test_a_batch_creates_the_store_and_the_topic_once(root: str) -> None:
    planned(root, partitions="3", key="carrier, miles")
    first = topic(root)
    planned(root, partitions="3", key="carrier, miles")

    assert (first.partitions, first.topic_schema.key) == (3, ("carrier", "miles"))
    assert stored_schema(first) == pa.schema([("carrier", pa.string()), ("miles", pa.int64())])
    assert topic(root).topic_id == first.topic_id


def test_a_stream_creates_them_too(root: str) -> None:
    EosLogStreamWriter(options(root, checkpointlocation="/checkpoint"), ROWS, overwrite=False)
    first = topic(root)
    EosLogStreamWriter(options(root, checkpointlocation="/checkpoint"), ROWS, overwrite=False)

    assert (first.partitions, first.topic_schema.key) == (1, ())
    assert topic(root).topic_id == first.topic_id


def test_columns_that_a_read_added_are_no_columns_of_the_topic_and_spark_types_stay(root: str) -> None:
    fields: list[tuple[str, DataType]] = [("v", VariantType()), ("_offset", LongType()), ("_topic", StringType())]

    planned(root, StructType([StructField(name, kind) for name, kind in fields]))

    assert stored_schema(topic(root)).names == ["v"]
    assert '"variant"' in topic(root).topic_schema.spark


def test_all_columns_are_nullable_with_all_that_is_within_them(root: str) -> None:
    inner = StructType([StructField("a", LongType(), nullable=False)])
    types: dict[str, DataType] = {
        "carrier": StringType(),
        "legs": ArrayType(inner, containsNull=False),
        "tags": MapType(StringType(), inner, valueContainsNull=False),
    }

    planned(root, StructType([StructField(name, kind, nullable=False) for name, kind in types.items()]), key="carrier")

    leg = pa.struct([("a", pa.int64())])
    assert stored_schema(topic(root)) == pa.schema(
        [("carrier", pa.string()), ("legs", pa.list_(leg)), ("tags", pa.map_(pa.string(), leg))]
    )


def test_without_the_option_an_unknown_topic_or_store_is_refused_and_the_option_is_named(root: str) -> None:
    with pytest.raises(NotAStore):
        planned(root, createTopic="false")
    eoslog.connect(root).ensure_created()

    with pytest.raises(UnknownTopicOrPartition, match=r"no topic is named 'trips'.*createTopic=true"):
        planned(root, createTopic="false")
    for name in ("partitions", "key"):
        with pytest.raises(InvalidOption, match=f"option '{name}' is for the creation of a topic"):
            planned(root, createTopic="false", **{name: "1"})
    assert eoslog.connect(root).admin.list_topics() == []


def test_a_write_that_no_topic_can_hold_creates_nothing(root: str) -> None:
    with pytest.raises(InvalidOption, match="name it with option 'topic'"):
        EosLogWriter(Options.of({"path": root, "createTopic": "true"}), ROWS, overwrite=False)
    with pytest.raises(InvalidTopic, match="key column 'tail'"):
        planned(root, key="tail")
    with pytest.raises(InvalidTopic, match="number of partitions"):
        planned(root, partitions="20000")
    with pytest.raises(UnsupportedSchema, match="at least one column"):
        planned(root, StructType([StructField("_offset", LongType())]))

    assert not Path(root).exists()


@pytest.mark.parametrize(
    ("column", "path"),
    [
        (NullType(), "v"),
        (StructType([StructField("a", LongType()), StructField("x", NullType())]), "v.x"),
        (ArrayType(NullType()), "v.element"),
        (MapType(StringType(), NullType()), "v.value"),
        (ArrayType(StructType([StructField("x", ArrayType(NullType()))])), "v.element.x.element"),
    ],
)
def test_a_column_that_could_never_hold_a_value_is_refused(root: str, column: DataType, path: str) -> None:
    with pytest.raises(UnsupportedSchema, match=f"column '{path}' has type void.*CAST"):
        planned(root, StructType([StructField("n", LongType()), StructField("v", column)]))

    assert not Path(root).exists()
    planned(root)
    planned(root, StructType([StructField("carrier", StringType()), StructField("miles", NullType())]))


@pytest.mark.parametrize(
    ("name", "kind", "others"),
    [
        ("_timestamp", TimestampType(), []),
        ("_timestamp", StringType(), ["_offset"]),
        ("_topic", LongType(), []),
        ("_slot", StringType(), []),
    ],
)
def test_a_users_column_with_a_reserved_name_is_refused(
    root: str, name: str, kind: DataType, others: list[str]
) -> None:
    fields = [
        StructField("n", LongType()),
        StructField(name, kind),
        *(StructField(each, LongType()) for each in others),
    ]

    with pytest.raises(UnsupportedSchema, match=rf"column '{name}' has a name that is reserved.*df\.drop"):
        planned(root, StructType(fields))

    assert not Path(root).exists()


@pytest.mark.parametrize(("key", "columns"), [('["a,b", " c"]', ("a,b", " c")), ("n , n,", ("n",))])
def test_key_columns_may_have_any_name(root: str, key: str, columns: tuple[str, ...]) -> None:
    planned(root, StructType([StructField(name, LongType()) for name in columns]), key=key)

    assert topic(root).topic_schema.key == columns


def commits_a_row(root: str, writer: Any) -> None:
    rows = pa.RecordBatch.from_pydict({"carrier": ["UA"], "miles": [1]})
    written = [writer.write(iter([rows]))]
    if isinstance(writer, EosLogStreamWriter):
        writer.commit(written, 0)
    else:
        writer.commit(written)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("fails_before", [False, True])
def test_a_store_that_was_removed_is_created_again_at_once(
    root: str, monkeypatch: pytest.MonkeyPatch, overwrite: bool, fails_before: bool
) -> None:
    monkeypatch.setattr(tasks, "TaskContext", OnlyTask)
    told("query")
    for _ in range(3):
        commits_a_row(root, EosLogWriter(options(root), ROWS, overwrite))
        assert eoslog.connect(root).scan("trips").record_count == 1
        shutil.rmtree(root)
        if fails_before:
            for _ in range(2):
                with pytest.raises(NotAStore):
                    planned(root, createTopic="false")
                with pytest.raises(NotAStore):
                    DefaultSource({"path": root, "topic": "trips"}).schema()


def test_a_stream_creates_a_store_that_was_removed_again(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "TaskContext", OnlyTask)
    told("query")
    for number in range(3):
        told(f"query-{number}")
        writer = EosLogStreamWriter(options(root, checkpointlocation=f"/checkpoint-{number}"), ROWS, overwrite=False)
        commits_a_row(root, writer)
        assert eoslog.connect(root).scan("trips").record_count == 1
        shutil.rmtree(root)


def test_an_existing_topic_may_have_other_partitions_but_no_other_key(root: str) -> None:
    admin = eoslog.connect(root).admin
    admin.create_topic("trips", partitions=4, schema=ROWS, key="carrier")
    admin.create_topic("records")

    planned(root, partitions="2", key="carrier")
    planned(root)

    assert topic(root).partitions == 4
    with pytest.raises(InvalidOption, match="option 'key' is 'miles', but topic trips exists and has the key carrier"):
        planned(root, key="miles")
    with pytest.raises(InvalidOption, match="topic records exists and has Kafka records"):
        planned(root, StructType([StructField("value", StringType())]), topic="records", key="value")


@pytest.mark.parametrize("fits", [True, False])
def test_of_two_creators_one_wins_and_the_rows_of_the_other_must_fit(
    root: str, monkeypatch: pytest.MonkeyPatch, fits: bool
) -> None:
    others = {"carrier": "string", "miles": "long" if fits else "string"}
    create = Admin.create_topic

    def overtaken(self: Admin, name: str, **given: Any) -> Any:
        monkeypatch.setattr(Admin, "create_topic", create)
        eoslog.connect(root).admin.create_topic(name, schema=others)
        return create(self, name, **given)

    monkeypatch.setattr(Admin, "create_topic", overtaken)

    if fits:
        planned(root)
    else:
        with pytest.raises(SchemaMismatch, match="column 'miles'"):
            planned(root)
    assert stored_schema(topic(root)).field("miles").type == (pa.int64() if fits else pa.string())


def test_a_writer_that_dies_after_the_creation_leaves_a_topic_for_the_next(root: str) -> None:
    class MortalWorker(Worker):
        def connect(self, location: Any) -> eoslog.Store:
            store = super().connect(location)
            store.environment = Mortal("spark.topic.created")
            return store

    with acting_as(MortalWorker()), pytest.raises(Died):
        planned(root)
    left = topic(root)

    planned(root)

    assert topic(root).topic_id == left.topic_id
