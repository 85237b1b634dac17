"""``mergeSchema``: what rows bring joins their topic in the slot of their commit, or nothing does."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
    UserDefinedType,
    VariantType,
)

import eoslog
from eoslog.errors import EosLogError, InvalidOption, SchemaMismatch, UnsupportedSchema
from eoslog.format.column_ids import OFFSET_DELTA_ID
from eoslog.format.spark_json import arrow_schema
from pyspark_eoslog.options import Options
from pyspark_eoslog.spark_schemas import default_schema
from pyspark_eoslog.worker import this_worker
from pyspark_eoslog.write import tasks
from pyspark_eoslog.write.sink import EosLogStreamWriter, EosLogWriter
from pyspark_eoslog.write.tasks import TaskCommit
from tests.unit.pyspark_eoslog.write.sink.sinks import OnlyTask, told
from tests.unit.support.paused_processes import Died

KNOWN = StructType(
    [StructField("id", LongType(), False), StructField("at", StructType([StructField("x", LongType())]))]
)
NOTE = StructField("note", StringType(), False)
AT_Y = StructField("at", StructType([StructField("x", LongType()), StructField("y", StringType())]))
WIDER = StructType([KNOWN["id"], AT_Y, NOTE])


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[eoslog.Store]:
    monkeypatch.setattr(tasks, "TaskContext", OnlyTask)
    told("query")
    store = eoslog.connect(str(tmp_path / "store"))
    store.admin.create_topic("out", schema=arrow_schema(KNOWN.json()), spark_schema=KNOWN.json(), key="id")
    yield store
    this_worker().forget_stores()


def options(store: eoslog.Store, **more: Any) -> Options:
    return Options.of({"path": store.url, "topic": "out", "mergeSchema": "true"} | more)


Writer = EosLogWriter | EosLogStreamWriter


def writer(store: eoslog.Store, schema: StructType, *, stream: bool = False, **more: Any) -> Writer:
    return (EosLogStreamWriter if stream else EosLogWriter)(options(store, **more), schema, False)


def written(planned: Writer, schema: StructType, *rows: dict[str, Any]) -> list[Any]:
    """What the only task reports."""
    return [planned.write(iter(pa.Table.from_pylist(list(rows), schema=arrow_schema(schema.json())).to_batches()))]


def commit(planned: Writer, messages: list[Any], batch_id: int = 0) -> None:
    if isinstance(planned, EosLogStreamWriter):
        planned.commit(messages, batch_id)
    else:
        planned.commit(messages)


def write(store: eoslog.Store, schema: StructType, *rows: dict[str, Any], **more: Any) -> None:
    planned = writer(store, schema, **more)
    commit(planned, written(planned, schema, *rows))


def read(store: eoslog.Store) -> list[dict[str, Any]]:
    return sorted(store.scan("out").to_table().to_pylist(), key=lambda row: int(row["id"]))


def newest_slot(store: eoslog.Store) -> int:
    return store.read(lambda state, slot: slot)


OLD = {"id": 1, "at": {"x": 1}}
NEW = {"id": 2, "at": {"x": 2, "y": "y"}, "note": "n"}


@pytest.mark.parametrize("stream", [False, True])
def test_columns_join_in_the_slot_of_the_rows_that_brought_them(store: eoslog.Store, stream: bool) -> None:
    write(store, KNOWN, OLD)
    before = newest_slot(store)

    write(store, WIDER, NEW, stream=stream)

    assert read(store) == [OLD | {"at": {"x": 1, "y": None}, "note": None}, NEW]
    assert newest_slot(store) == before + 1
    first, second = store.admin.schema_history("out")
    assert (second.slot, second.added) == (before + 1, (("at", "y"), ("note",)))
    assert first.schema == arrow_schema(KNOWN.json())
    assert [each.operation for each in store.history("out", limit=2)] == ["topic_schema", "append"]


def test_rows_without_the_new_columns_change_no_schema(store: eoslog.Store) -> None:
    write(store, WIDER, NEW)
    write(store, KNOWN, OLD)

    assert read(store) == [OLD | {"at": {"x": 1, "y": None}, "note": None}, NEW]
    assert store.admin.describe_topic("out").schema_version == 2


def test_without_the_option_an_unknown_column_is_refused_by_name(store: eoslog.Store) -> None:
    with pytest.raises(SchemaMismatch, match=r"no column 'at.y', 'note'.*id, at\. Option mergeSchema=true"):
        writer(store, WIDER, mergeSchema="false")


@pytest.mark.parametrize(
    ("fields", "error", "reason"),
    [
        ([KNOWN["id"], StructField("at", StringType())], SchemaMismatch, r"'at' is struct.*never changes"),
        ([StructField("id", StringType())], SchemaMismatch, r"'id' is int64.*never changes"),
        ([*KNOWN, StructField("ID", LongType())], UnsupportedSchema, "differ only in case"),
        ([*KNOWN, StructField("_SLOT", LongType())], UnsupportedSchema, "reserved"),
        ([*KNOWN, StructField("new", NullType())], UnsupportedSchema, "nothing but nulls"),
        ([*KNOWN, StructField("new", StructType([]))], UnsupportedSchema, "without fields"),
        ([NOTE], SchemaMismatch, "'id' is missing"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_columns_that_do_not_fit_are_refused_before_anything_is_uploaded(
    store: eoslog.Store, fields: list[StructField], error: type[EosLogError], reason: str, stream: bool
) -> None:
    with pytest.raises(error, match=reason):
        writer(store, StructType(fields), stream=stream)


@pytest.mark.parametrize("named", [True, False])
def test_kafka_records_have_their_columns(store: eoslog.Store, named: bool) -> None:
    store.admin.create_topic("records")
    given = Options.of({"path": store.url, "mergeSchema": "true"} | ({"topic": "records"} if named else {}))
    schema = StructType([StructField("value", StringType()), StructField("topic", StringType())])

    with pytest.raises(InvalidOption, match="mergeSchema"):
        EosLogWriter(given, schema, False)


@pytest.mark.parametrize("stream", [False, True])
def test_concurrent_jobs_may_add_the_same_column_and_others_beside_it(store: eoslog.Store, stream: bool) -> None:
    other = StructType([*KNOWN, StructField("other", IntegerType()), NOTE])
    mine, theirs = writer(store, WIDER, stream=stream), writer(store, other)
    messages = written(mine, WIDER, NEW)

    commit(theirs, written(theirs, other, OLD | {"other": 7, "note": "o"}))
    commit(mine, messages)

    assert read(store) == [
        {"id": 1, "at": {"x": 1, "y": None}, "other": 7, "note": "o"},
        {"id": 2, "at": {"x": 2, "y": "y"}, "other": None, "note": "n"},
    ]


@pytest.mark.usefixtures("files_are_objects")
def test_files_of_a_job_that_adds_columns_have_no_column_ids_because_the_commit_assigns_them(
    store: eoslog.Store,
) -> None:
    write(store, KNOWN, OLD)
    write(store, WIDER, NEW)
    write(store, WIDER, NEW | {"id": 3})

    ids = []
    for file in store.scan("out").planned_files():
        columns = pq.ParquetFile(pa.BufferReader(store.object_store.get(file.path).body)).schema_arrow
        ids.append([(field.metadata or {}).get(b"PARQUET:field_id") for field in columns])

    offset_deltas = str(OFFSET_DELTA_ID).encode()
    assert ids == [
        [b"1", b"2", offset_deltas],
        [None, None, None, None],
        [b"1", b"2", b"5", offset_deltas],
    ]


@pytest.mark.parametrize("other_type", [IntegerType(), LongType(), ArrayType(IntegerType(), False)])
@pytest.mark.parametrize("stream", [False, True])
def test_of_two_jobs_with_conflicting_column_types_the_later_commits_nothing(
    store: eoslog.Store, other_type: Any, stream: bool
) -> None:
    mine = {IntegerType(): StringType(), LongType(): IntegerType()}.get(other_type, ArrayType(IntegerType()))
    first, second = (StructType([*KNOWN, StructField("new", each)]) for each in (other_type, mine))
    late = writer(store, second, stream=stream)
    messages = written(late, second, {"id": 2, "at": None, "new": None})
    write(store, first, OLD | {"new": None})
    before = newest_slot(store)

    with pytest.raises(SchemaMismatch, match="'new'"):
        commit(late, messages)

    assert newest_slot(store) == before
    assert [row["id"] for row in read(store)] == [1]


def test_a_job_that_was_planned_before_goes_on_without_the_new_column(store: eoslog.Store) -> None:
    planned = writer(store, KNOWN)
    messages = written(planned, KNOWN, OLD)
    write(store, WIDER, NEW)

    commit(planned, messages)

    assert read(store) == [OLD | {"at": {"x": 1, "y": None}, "note": None}, NEW]


@pytest.mark.parametrize("merge", ["true", "false"])
def test_a_stream_looks_at_its_topic_again_for_an_unknown_column(store: eoslog.Store, merge: str) -> None:
    write(store, KNOWN, OLD, stream=True)
    eoslog.connect(store.url).admin.add_columns("out", arrow_schema(WIDER.json()))

    planned = writer(store, WIDER, stream=True, mergeSchema=merge)
    commit(planned, written(planned, WIDER, NEW), 1)

    assert read(store)[1] == NEW
    assert store.admin.describe_topic("out").schema_version == 2


def test_a_stream_with_another_type_for_a_new_column_never_starts(
    store: eoslog.Store,
) -> None:
    write(store, KNOWN, OLD, stream=True)
    eoslog.connect(store.url).admin.add_columns("out", pa.schema([("note", pa.int64())]))

    with pytest.raises(SchemaMismatch, match="'note' is int64 in the topic and string in the rows"):
        writer(store, WIDER, stream=True)


def test_a_micro_batch_that_is_committed_again_adds_nothing(store: eoslog.Store) -> None:
    planned = writer(store, WIDER, stream=True)
    messages = written(planned, WIDER, NEW)
    commit(planned, messages)
    before = newest_slot(store)

    commit(writer(store, WIDER, stream=True), messages)

    assert newest_slot(store) == before


def test_a_job_without_rows_adds_its_columns_all_the_same(store: eoslog.Store) -> None:
    write(store, WIDER)

    assert store.admin.describe_topic("out").schema_version == 2


@pytest.mark.parametrize(("point", "version"), [("log.slot.before_put", 1), ("log.slot.claimed", 2)])
@pytest.mark.parametrize("stream", [False, True])
def test_a_driver_that_dies_leaves_columns_and_rows_or_neither(
    store: eoslog.Store, monkeypatch: pytest.MonkeyPatch, point: str, version: int, stream: bool
) -> None:
    planned = writer(store, WIDER, stream=stream, transactionalId="job", **({} if stream else {"txnVersion": "0"}))
    messages = written(planned, WIDER, NEW)

    def reached(crash_point: str) -> None:
        if crash_point == point:
            raise Died

    for held in this_worker().stores.values():
        monkeypatch.setattr(held.store.environment, "reached", reached)
    with contextlib.suppress(Died):
        commit(planned, messages)
    monkeypatch.undo()
    monkeypatch.setattr(tasks, "TaskContext", OnlyTask)
    told("query")
    this_worker().forget_stores()
    survivor = eoslog.connect(store.url)

    assert survivor.admin.describe_topic("out").schema_version == version
    assert len(read(survivor)) == version - 1
    again = writer(store, WIDER, stream=stream, transactionalId="job", **({} if stream else {"txnVersion": "0"}))
    commit(again, written(again, WIDER, NEW))
    assert read(survivor) == [NEW]
    assert survivor.admin.describe_topic("out").schema_version == 2


def test_a_variant_stays_one_also_within_a_struct_that_has_grown(store: eoslog.Store) -> None:
    at = StructType([StructField("x", LongType()), StructField("v", VariantType())])
    schema = StructType([KNOWN["id"], StructField("at", at), StructField("w", VariantType())])

    write(store, schema)

    topic = store.admin.describe_topic("out")
    found = default_schema([topic], Options.of({"path": store.url, "topic": "out", "metadataColumns": "false"}))
    assert found == schema
    again = StructType([KNOWN["id"], StructField("w", StructType([StructField("value", BinaryType())]))])
    with pytest.raises(SchemaMismatch, match="column 'w': only one of the topic and the rows has a variant"):
        writer(store, again)


class Point(UserDefinedType):
    """A type of the user's own, made of a struct."""

    @classmethod
    def sqlType(cls) -> StructType:  # noqa: N802 - Spark's name
        return StructType([StructField("x", LongType())])

    @classmethod
    def module(cls) -> str:
        return "os"

    @classmethod
    def scalaUDT(cls) -> str:  # noqa: N802 - Spark's name
        return ""


def test_a_users_own_type_is_read_as_plain_data(store: eoslog.Store) -> None:
    write(store, StructType([*KNOWN, StructField("own", Point())]))
    hostile = {"type": "udt", "pyClass": "os.abort", "class": None, "sqlType": Point.sqlType().jsonValue()}
    described = {"type": "struct", "fields": [{"name": "p", "type": hostile, "nullable": True, "metadata": {}}]}
    store.admin.create_topic(
        "own",
        schema=arrow_schema(StructType([StructField("p", Point.sqlType())]).json()),
        spark_schema=json.dumps(described),
    )

    for name, column in (("out", "own"), ("own", "p")):
        topic = store.admin.describe_topic(name)
        found = default_schema([topic], Options.of({"path": store.url, "topic": name}))
        assert found[column].dataType == Point.sqlType()


def test_messages_tell_the_new_columns_only_where_there_are_any(store: eoslog.Store) -> None:
    (message,) = written(writer(store, KNOWN), KNOWN, OLD)
    assert isinstance(message, TaskCommit)
    assert message.new_columns is None
