"""The schema of a topic: it grows by nullable columns, and by nullable fields within them, and in no other way."""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa
import pytest

from eoslog.errors import InvalidEntry, InvalidTopic, UnknownTopicOrPartition, UnsupportedSchema
from eoslog.format.checkpoint_codec import parts, restore
from eoslog.format.column_ids import assigned_ids, with_ids
from eoslog.format.topic_schemas import added_columns, without_columns
from eoslog.state.entries import TopicCreated, TopicSchema, TopicSchemaChanged
from eoslog.state.store_state import SchemaVersion, Topic
from tests.unit.state.histories import NOW_MS, OTHER_TOPIC_ID, TOPIC_ID, History

POINT = pa.struct([pa.field("x", pa.int32(), nullable=False), pa.field("y", pa.int32())])
BEFORE = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("point", POINT),
        pa.field("path", pa.list_(pa.field("element", POINT, nullable=False))),
        pa.field("places", pa.map_(pa.string(), pa.struct([("x", pa.int32())]))),
    ]
)


def text(schema: pa.Schema, **changed_ids: int) -> str:
    """The schema as an entry has it, also if no topic could have it. The columns of ``BEFORE`` have the first ids."""
    ids = assigned_ids(schema, assigned_ids(BEFORE))
    ids = {path: changed_ids.get("_".join(path), column_id) for path, column_id in ids.items()}
    return base64.b64encode(with_ids(schema, ids).serialize().to_pybytes()).decode()


def appended(struct: Any, *fields: Any) -> Any:
    return pa.struct([*struct, *fields])


def with_column(name: str, field: Any) -> pa.Schema:
    return BEFORE.set(BEFORE.get_field_index(name), field)


GROWN = pa.schema(
    [
        BEFORE.field("id"),
        pa.field("point", appended(POINT, ("z", pa.int32()))),
        pa.field("path", pa.list_(pa.field("element", appended(POINT, ("z", pa.string())), nullable=False))),
        pa.field("places", pa.map_(pa.string(), pa.struct([("x", pa.int32()), ("deep", POINT)]))),
        pa.field("note", pa.string()),
    ]
)


def test_added_columns_and_fields_are_named_from_the_outside_in() -> None:
    assert added_columns(text(BEFORE), text(GROWN)) == (
        ("point", "z"),
        ("path", "element", "z"),
        ("places", "value", "deep"),
        ("note",),
    )


def test_without_what_was_added_a_schema_is_the_one_before() -> None:
    assert without_columns(GROWN, added_columns(text(BEFORE), text(GROWN))).equals(BEFORE)


@pytest.mark.parametrize(
    "after",
    [
        pa.schema(list(BEFORE)[:3]),
        pa.schema([BEFORE.field(1), BEFORE.field(0), *list(BEFORE)[2:]]),
        pa.schema([pa.field("new", pa.int8()), *BEFORE]),
        BEFORE.append(pa.field("new", pa.int8(), nullable=False)),
        BEFORE.append(pa.field("ID", pa.int8())),
        BEFORE.append(pa.field("new", pa.int8())).append(pa.field("New", pa.int8())),
        with_column("id", pa.field("id", pa.int64())),
        with_column("id", pa.field("id", pa.int32(), nullable=False)),
        with_column("id", pa.field("key", pa.int64(), nullable=False)),
        with_column("point", pa.field("point", POINT, nullable=False)),
        with_column("point", pa.field("point", pa.struct([POINT.field("x")]))),
        with_column("point", pa.field("point", pa.struct([POINT.field("y"), POINT.field("x")]))),
        with_column("point", pa.field("point", appended(POINT, pa.field("z", pa.int8(), nullable=False)))),
        with_column("point", pa.field("point", appended(POINT, pa.field("X", pa.int8())))),
        with_column("path", pa.field("path", pa.list_(pa.field("element", POINT)))),
        with_column("places", pa.field("places", pa.map_(pa.binary(), pa.struct([("x", pa.int32())])))),
        with_column("places", pa.field("places", pa.list_(pa.int8()))),
    ],
    ids=lambda schema: ", ".join(str(field) for field in schema),
)
def test_a_column_stays_as_it_is_and_where_it_is(after: pa.Schema) -> None:
    with pytest.raises(UnsupportedSchema):
        added_columns(text(BEFORE), text(after))


def test_columns_keep_their_ids_and_new_ones_get_ids_that_were_never_used() -> None:
    last = max(assigned_ids(BEFORE).values())

    for unchanged in ({}, {"note": last + 100}):
        assert ("note",) in added_columns(text(BEFORE), text(GROWN, **unchanged))
    for column, column_id in (("id", 99), ("point_x", 99), ("path_element", 99), ("note", last), ("point_z", 1)):
        with pytest.raises((UnsupportedSchema, InvalidEntry), match="column id"):
            added_columns(text(BEFORE), text(GROWN, **{column: column_id}))
    with pytest.raises(InvalidEntry, match="no valid column id"):
        added_columns(text(BEFORE), base64.b64encode(GROWN.serialize().to_pybytes()).decode())


def created(key: tuple[str, ...] = ("id",)) -> TopicCreated:
    return TopicCreated(
        topic="c",
        topic_id=OTHER_TOPIC_ID,
        partitions=1,
        topic_schema=TopicSchema(kind="columns", arrow=text(BEFORE), key=key),
        time_ms=NOW_MS,
    )


def changed(schema: pa.Schema = GROWN, version: int = 2, **fields: Any) -> TopicSchemaChanged:
    return TopicSchemaChanged(
        **{
            "topic": "c",
            "topic_id": OTHER_TOPIC_ID,
            "topic_schema": TopicSchema(kind="columns", arrow=text(schema), key=("id",)),
            "schema_version": version,
            "time_ms": NOW_MS,
        }
        | fields
    )


@pytest.fixture
def history() -> History:
    history = History()
    history.append(lambda draft: draft.append(created()))
    return history


def topic(history: History) -> Topic:
    return history.state.topics[OTHER_TOPIC_ID]


def test_a_topic_keeps_all_versions_of_its_schema(history: History) -> None:
    made, history.now_ms = history.slot, NOW_MS + 5
    entry = changed(time_ms=history.now_ms)
    history.append(lambda draft: draft.append(entry))
    wider = GROWN.append(pa.field("more", pa.int8()))
    again = changed(wider, 3, time_ms=history.now_ms)
    history.append(lambda draft: draft.append(again))

    assert topic(history).topic_schema == again.topic_schema
    assert topic(history).schema_version == 3
    assert topic(history).schema_versions == (
        SchemaVersion(1, made, NOW_MS),
        SchemaVersion(2, made + 1, NOW_MS + 5, added_columns(text(BEFORE), text(GROWN))),
        SchemaVersion(3, made + 2, NOW_MS + 5, (("more",),)),
    )
    bodies = {part.name: part.encode() for part in parts(history.state, history.slot)}
    assert restore(bodies) == history.state


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        (changed(BEFORE), InvalidEntry),
        (changed(version=3), InvalidEntry),
        (changed(topic_schema=TopicSchema(kind="columns", arrow="AAAA", key=("id",))), InvalidEntry),
        (changed(topic_schema=TopicSchema(kind="columns", arrow=text(GROWN))), InvalidTopic),
        (changed(topic_schema=TopicSchema(kind="columns", key=("id",))), InvalidTopic),
        (changed(topic_schema=TopicSchema(kind="records")), InvalidTopic),
        (changed(BEFORE.append(pa.field("new", pa.int8(), nullable=False))), UnsupportedSchema),
        (changed(topic_id=TOPIC_ID), UnknownTopicOrPartition),
        (changed(topic="t", topic_id=TOPIC_ID), InvalidTopic),
    ],
)
def test_a_change_that_may_not_be_leaves_the_schema_as_it_was(
    history: History, entry: TopicSchemaChanged, error: type[Exception]
) -> None:
    assert isinstance(history.refused(lambda draft: draft.append(entry)), error)


def test_of_two_changes_of_one_version_the_second_is_refused(history: History) -> None:
    history.append(lambda draft: draft.append(changed()))

    other = changed(BEFORE.append(pa.field("other", pa.int8())))

    assert isinstance(history.refused(lambda draft: draft.append(other)), UnsupportedSchema)
