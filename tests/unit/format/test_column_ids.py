"""Column ids: each column of a topic, and each part of one, keeps one number in the entries and in the data files."""

from __future__ import annotations

import base64
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog import CorruptRecord, Store, TopicConfig
from eoslog.errors import UnsupportedSchema
from eoslog.format.column_ids import OFFSET_DELTA_ID, assigned_ids, field_with_id, ids_of, with_ids
from eoslog.format.data_file import encode_data_file
from eoslog.format.topic_schemas import (
    RECORDS_SCHEMA,
    decode_schema,
    encode_schema,
    file_schema,
    merged_schema,
    normalize_schema,
)
from eoslog.maintenance.file_compaction import compact_files
from eoslog.maintenance.sealing import seal_segments
from tests.unit.format.test_schema_json import field_of, types
from tests.unit.support.world import World

POINT = pa.struct([pa.field("x", pa.int64(), nullable=False)])
COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("point", POINT),
        pa.field("path", pa.list_(pa.field("element", POINT))),
        pa.field("places", pa.map_(pa.string(), pa.list_(pa.field("element", pa.int8())))),
    ]
)
IDS = {
    ("id",): 1,
    ("point",): 2,
    ("point", "x"): 3,
    ("path",): 4,
    ("path", "element"): 5,
    ("path", "element", "x"): 6,
    ("places",): 7,
    ("places", "key"): 8,
    ("places", "value"): 9,
    ("places", "value", "element"): 10,
}
ROW = {"id": 1, "point": {"x": 2}, "path": [{"x": 3}], "places": [("home", [4])]}


def decoded(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def encoded(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def columns_of(body: bytes) -> pa.Schema:
    """The columns of a Parquet file as pyarrow shows them, with the field ids as metadata."""
    return pq.ParquetFile(pa.BufferReader(body)).schema_arrow


@pytest.fixture
def store(world: World) -> Store:
    return world.process()


def data_files(store: Store, topic: str) -> list[bytes]:
    """The data files of a topic's plan, in the order of their offsets."""
    return [store.object_store.get(file.path).body for file in store.scan(topic).planned_files()]


def has_metadata(found: Any) -> bool:
    parts = [found.field(index) for index in range(found.num_fields)] if isinstance(found, pa.DataType) else found
    return any(field.metadata or has_metadata(field.type) for field in parts)


def test_ids_count_from_1_in_the_order_of_columns_and_their_parts() -> None:
    assert ids_of(decoded(encode_schema(COLUMNS))) == IDS


def test_the_columns_of_kafka_records_have_fixed_ids() -> None:
    assert ids_of(pa.schema(list(file_schema(RECORDS_SCHEMA, None))[:-1])) == {
        ("key",): 1,
        ("value",): 2,
        ("headers",): 3,
        ("headers", "element"): 4,
        ("headers", "element", "key"): 5,
        ("headers", "element", "value"): 6,
        ("timestamp",): 7,
    }


def test_ids_of_a_users_schema_do_not_count() -> None:
    theirs = with_ids(COLUMNS, {path: 99 - number for path, number in IDS.items()})

    assert encode_schema(theirs) == encode_schema(COLUMNS)


columns = st.lists(st.tuples(types(), st.booleans()), min_size=1, max_size=4)


@given(columns, columns, columns)
def test_added_columns_and_fields_get_the_next_ids(first: Any, fields: Any, more: Any) -> None:
    def named(prefix: str, found: Any) -> list[pa.Field[Any]]:
        return [field_of(f"{prefix}{index}", kind, null) for index, (kind, null) in enumerate(found)]

    def with_struct(*inside: pa.Field[Any]) -> pa.Schema:
        return pa.schema([pa.field("s", pa.list_(pa.struct([pa.field("x", pa.int8()), *inside])))])

    topic = normalize_schema(pa.schema([*named("c", first), *with_struct()]))
    texts = [encode_schema(topic)]
    for rows in (with_struct(*named("f", fields)), pa.schema(named("new", more))):
        try:
            topic = merged_schema(topic, rows)
        except UnsupportedSchema:
            return
        texts.append(encode_schema(topic, texts[-1]))

    ids = [ids_of(decoded(text)) for text in texts]
    for before, after in pairwise(ids):
        added = [number for path, number in after.items() if path not in before]
        assert before.items() <= after.items()
        assert added == list(range(len(before) + 1, len(after) + 1))
    body = encode_data_file(topic.empty_table(), with_ids(topic, ids[-1]))
    assert ids_of(columns_of(body)) == ids[-1]
    assert decode_schema(texts[-1]).equals(topic, check_metadata=True)


@pytest.mark.parametrize(
    "ids",
    [
        IDS | {("id",): 0},
        IDS | {("id",): -1},
        IDS | {("id",): 2},
        IDS | {("places", "key"): 10},
        IDS | {("id",): OFFSET_DELTA_ID},
        IDS | {("id",): 10**20},
    ],
    ids=lambda ids: str(set(ids.items()) - set(IDS.items())),
)
def test_an_entry_with_impossible_ids_is_corrupt(ids: Any) -> None:
    with pytest.raises(CorruptRecord, match="column id"):
        decode_schema(encoded(with_ids(COLUMNS, ids)))


def test_an_entry_without_ids_or_with_other_metadata_is_corrupt() -> None:
    numbered = with_ids(COLUMNS, IDS)

    for schema in (COLUMNS, numbered.with_metadata({"a": "b"})):
        with pytest.raises(CorruptRecord):
            decode_schema(encoded(schema))


@pytest.mark.usefixtures("files_are_objects")
def test_data_files_have_the_ids_of_their_columns_and_readers_do_not_show_them(store: Store) -> None:
    theirs = with_ids(COLUMNS, {path: 99 - number for path, number in IDS.items()})
    store.admin.create_topic("t", schema=theirs)
    rows = pa.Table.from_pylist([ROW], schema=theirs)

    with store.producer() as producer:
        producer.send_table("t", rows)

    (body,) = data_files(store, "t")
    *found, deltas = columns_of(body)
    assert ids_of(pa.schema(found)) == IDS
    assert deltas.equals(field_with_id(pa.field("_offset_delta", pa.int64(), nullable=False), OFFSET_DELTA_ID), True)
    scan = store.scan("t")
    read = scan.to_table()
    assert read.to_pylist() == [ROW]
    assert scan.schema.equals(COLUMNS, check_metadata=True)
    assert read.schema.equals(COLUMNS, check_metadata=True)
    assert not any(has_metadata(column.type) for column in read.columns)
    assert store.admin.schema_history("t")[0].schema.equals(COLUMNS, check_metadata=True)


@pytest.mark.usefixtures("files_are_objects")
def test_files_after_an_addition_and_after_compaction_continue_the_ids(store: Store) -> None:
    store.admin.create_topic("t", schema=COLUMNS, config=TopicConfig(segment_batches=2))
    more = pa.schema([pa.field("point", pa.struct([("y", pa.int64())])), pa.field("note", pa.string())])
    wider = COLUMNS.append(more.field("note"))
    with store.producer() as producer:
        producer.send_table("t", pa.Table.from_pylist([ROW], schema=COLUMNS))
        producer.flush()
        store.admin.add_columns("t", more)
        for number in range(3):
            producer.send_table("t", pa.Table.from_pylist([ROW | {"id": number, "note": "n"}], schema=wider))
            producer.flush()
    grown = IDS | {("point", "y"): 11, ("note",): 12}

    found = [ids_of(pa.schema(list(columns_of(body))[:-1])) for body in data_files(store, "t")]
    seal_segments(store)
    compact_files(store)
    compacted = columns_of(data_files(store, "t")[0])

    assert found[0] == IDS
    assert found[-1] == grown
    assert ids_of(pa.schema(list(compacted)[:-1])) == grown
    assert compacted.field("_offset_delta").metadata == {b"PARQUET:field_id": str(OFFSET_DELTA_ID).encode()}
    assert [row["id"] for row in store.scan("t").to_table().to_pylist()] == [1, 0, 1, 2]


@pytest.mark.usefixtures("files_are_objects")
def test_a_file_of_rows_from_before_and_after_an_addition_has_the_new_ids(store: Store) -> None:
    store.admin.create_topic("t", schema=COLUMNS)
    more = pa.schema([pa.field("note", pa.string())])
    with store.producer() as producer:
        producer.send_table("t", pa.Table.from_pylist([ROW], schema=COLUMNS))
        store.admin.add_columns("t", more)
        producer.send_table("t", pa.Table.from_pylist([ROW | {"note": "n"}], schema=COLUMNS.append(more.field(0))))

    (body,) = data_files(store, "t")

    assert ids_of(pa.schema(list(columns_of(body))[:-1])) == IDS | {("note",): 11}


def test_ids_are_kept_by_an_equal_schema() -> None:
    text = encode_schema(COLUMNS)

    assert encode_schema(merged_schema(COLUMNS, COLUMNS), text) == text
    assert assigned_ids(COLUMNS, IDS) == IDS
