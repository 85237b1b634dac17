"""Schemas of topics: which can be stored and in what form, and which rows fit."""

from __future__ import annotations

import base64
import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.errors import CorruptRecord, SchemaMismatch, UnsupportedSchema
from eoslog.format.data_file import DataFile, encode_data_file
from eoslog.format.topic_schemas import (
    RECORDS_SCHEMA,
    check_storable,
    conform,
    decode_schema,
    encode_schema,
    normalize_schema,
)
from tests.unit.format.unsafe_arrays import not_utf_8

REQUIRED_INT = pa.field("element", pa.int64(), nullable=False)
REQUIRED_VALUES: Any = pa.field("value", pa.int64(), nullable=False)
STORED_TYPES: list[pa.DataType] = [
    pa.null(),
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.decimal128(38, 0),
    pa.decimal128(5, 5),
    pa.date32(),
    pa.time64("ns"),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.duration("us"),
]
NORMALISED: list[tuple[pa.DataType, pa.DataType]] = [
    (pa.large_string(), pa.string()),
    (pa.string_view(), pa.string()),
    (pa.large_binary(), pa.binary()),
    (pa.binary_view(), pa.binary()),
    (pa.binary(16), pa.binary()),
    (pa.uint8(), pa.int16()),
    (pa.uint16(), pa.int32()),
    (pa.uint32(), pa.int64()),
    (pa.float16(), pa.float32()),
    (pa.decimal256(38, 3), pa.decimal128(38, 3)),
    (pa.date64(), pa.date32()),
    (pa.time32("s"), pa.time64("ns")),
    (pa.timestamp("ns"), pa.timestamp("us")),
    (pa.timestamp("s", "Europe/Paris"), pa.timestamp("us", "UTC")),
    (pa.timestamp("us", "Etc/UTC"), pa.timestamp("us", "UTC")),
    (pa.duration("ms"), pa.duration("us")),
    (pa.large_list(pa.large_string()), pa.list_(pa.string())),
    (pa.list_view(pa.int8()), pa.list_(pa.int8())),
    (pa.dictionary(pa.int32(), pa.string_view()), pa.string()),
    (pa.run_end_encoded(pa.int32(), pa.large_string()), pa.string()),
    (pa.map_(pa.string(), pa.dictionary(pa.int32(), pa.string())), pa.map_(pa.string(), pa.string())),
    (pa.uuid(), pa.binary()),
    (pa.json_(pa.large_string()), pa.string()),
    (pa.list_(pa.bool8()), pa.list_(pa.bool_())),
    (pa.list_(pa.int8(), 3), pa.list_(pa.int8())),
    (
        pa.struct([pa.field("a", pa.timestamp("ms"), nullable=False)]),
        pa.struct([pa.field("a", pa.timestamp("us"), nullable=False)]),
    ),
    (pa.map_(pa.large_string(), pa.time32("ms"), True), pa.map_(pa.string(), pa.time64("ns"))),
]
REFUSED: list[tuple[pa.DataType, str]] = [
    (pa.struct([]), "struct without fields"),
    (pa.list_(pa.struct([])), "column 'x.element' is a struct without fields"),
    (pa.month_day_nano_interval(), "month_day_nano_interval cannot be stored"),
    (pa.dense_union([pa.field("a", pa.int32())]), "cannot be stored"),
    (pa.sparse_union([pa.field("a", pa.int32())]), "cannot be stored"),
    (pa.list_(pa.dictionary(pa.int32(), pa.uint64())), "column 'x.element': .*cast it to int64"),
    (pa.map_(pa.string(), pa.month_day_nano_interval()), "column 'x.value': .*cannot be stored.* cast it"),
    (pa.uint64(), "cast it to int64 or decimal128"),
    (pa.decimal256(39, 0), "cannot be stored"),
    (pa.decimal128(5, -1), "cannot be stored"),
    (pa.decimal128(3, 5), "cannot be stored"),
    (pa.struct([("a", pa.int8()), ("A", pa.int8())]), "fields of column 'x': 'a' and 'A' differ only in case"),
    (pa.struct([("a", pa.int8()), ("a", pa.int8())]), "fields of column 'x': 'a' and 'a'"),
]


def field_of(name: str, data_type: pa.DataType, nullable: bool) -> pa.Field[Any]:
    return pa.field(name, data_type, nullable=nullable or data_type == pa.null())


def map_of(key: Any, value: Any) -> pa.DataType:
    data_type: pa.DataType = pa.map_(key, value)
    return data_type


def types() -> st.SearchStrategy[pa.DataType]:
    def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
        field = st.builds(lambda kind, null: field_of("element", kind, null), inner, st.booleans())
        key = inner.filter(lambda kind: kind != pa.null())
        return (
            st.builds(pa.list_, field)
            | st.builds(lambda kind, value: map_of(kind, value.with_name("value")), key, field)
            | st.lists(field, min_size=1, max_size=3).map(
                lambda fields: pa.struct([one.with_name(f"f{index}") for index, one in enumerate(fields)])
            )
        )

    return st.recursive(st.sampled_from(STORED_TYPES), nested, max_leaves=6)


def schema_of(data_type: pa.DataType, *, nullable: bool = True) -> pa.Schema:
    return pa.schema([pa.field("x", data_type, nullable=nullable)])


def one_column(values: Any, data_type: Any = None) -> pa.Table:
    return pa.table({"x": pa.array(values, data_type)})


@given(st.lists(st.tuples(types(), st.booleans()), min_size=1, max_size=4))
def test_a_stored_schema_is_read_back(columns: list[tuple[pa.DataType, bool]]) -> None:
    schema = pa.schema([field_of(f"c.{index}", kind, null) for index, (kind, null) in enumerate(columns)])

    assert normalize_schema(schema).equals(schema)
    assert decode_schema(encode_schema(schema)).equals(schema)


def test_metadata_is_not_stored() -> None:
    inner = pa.field("a", pa.int32(), metadata={"secret": "1"})
    schema = pa.schema([pa.field("x", pa.struct([inner]), metadata={"secret": "2"})], metadata={"secret": "3"})

    text = encode_schema(schema)

    assert b"secret" not in base64.b64decode(text)
    assert decode_schema(text).equals(schema)


@pytest.mark.parametrize(("found", "stored"), NORMALISED, ids=[str(found) for found, _ in NORMALISED])
def test_a_type_is_stored_in_one_form(found: pa.DataType, stored: pa.DataType) -> None:
    assert normalize_schema(schema_of(found)).field("x").type == stored
    assert decode_schema(encode_schema(schema_of(found, nullable=False))).equals(schema_of(stored, nullable=False))


@pytest.mark.parametrize(("data_type", "reason"), REFUSED, ids=[str(data_type) for data_type, _ in REFUSED])
def test_a_type_that_parquet_and_spark_cannot_hold_is_refused(data_type: pa.DataType, reason: str) -> None:
    for refuse in (check_storable, normalize_schema, encode_schema):
        with pytest.raises(UnsupportedSchema, match=reason) as error:
            refuse(schema_of(data_type))
        assert "'x" in str(error.value)


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["a", "a"], "columns 'a' and 'a' have the same name"),
        (["flight", "FLIGHT"], "columns 'flight' and 'FLIGHT' differ only in case"),
        ([""], "a name is empty"),
        ([], "at least one column"),
        (["_topic"], "column '_topic': this name is reserved"),
        (["_Partition"], "reserved"),
        (["_offset"], "reserved"),
        (["_timestamp"], "reserved"),
        (["_offset_delta"], "reserved"),
        (["_BASE_offset"], "reserved"),
    ],
)
def test_names_that_would_be_confused_are_refused(names: list[str], reason: str) -> None:
    with pytest.raises(UnsupportedSchema, match=reason):
        check_storable(pa.schema([(name, pa.int32()) for name in names]))


def test_other_names_are_free() -> None:
    check_storable(pa.schema([(name, pa.int32()) for name in ("_id", "a.b", "a b", "ä", "topic", "offset")]))


def test_nesting_is_bounded_by_what_can_be_read_back() -> None:
    data_type: Any = pa.int32()
    for _ in range(31):
        data_type = pa.list_(data_type)

    assert decode_schema(encode_schema(schema_of(data_type))).field("x").type == data_type
    with pytest.raises(UnsupportedSchema, match="nested deeper than 32"):
        check_storable(schema_of(pa.list_(data_type)))


def test_a_stored_schema_cut_off_anywhere_is_corrupt() -> None:
    body = base64.b64decode(
        encode_schema(pa.schema([pa.field("a", pa.list_(pa.string())), pa.field("b", pa.timestamp("us", "UTC"))]))
    )

    for length in range(len(body)):
        with pytest.raises(CorruptRecord):
            decode_schema(base64.b64encode(body[:length]).decode())


@given(st.data())
def test_a_damaged_schema_is_corrupt_or_another_schema_that_could_be_stored(data: st.DataObject) -> None:
    body = bytearray(base64.b64decode(encode_schema(pa.schema([("a", pa.list_(pa.string())), ("b", pa.time64("ns"))]))))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))

    try:
        schema = decode_schema(base64.b64encode(body).decode())
    except CorruptRecord:
        return
    check_storable(schema)


@pytest.mark.parametrize("text", ["", "no base64!", "ä", "AAAA", base64.b64encode(bytes(200)).decode()])
def test_text_that_is_no_schema_is_corrupt(text: str) -> None:
    with pytest.raises(CorruptRecord):
        decode_schema(text)


@pytest.mark.parametrize(
    "schema",
    [schema_of(pa.large_string()), schema_of(pa.uint64()), schema_of(pa.uuid()), pa.schema([("_topic", pa.int32())])],
)
def test_a_schema_that_could_never_have_been_stored_is_corrupt(schema: pa.Schema) -> None:
    with pytest.raises(CorruptRecord):
        decode_schema(base64.b64encode(schema.serialize().to_pybytes()).decode())


def test_columns_are_brought_into_the_topics_order() -> None:
    columns: list[pa.Field[Any]] = [pa.field("a", pa.int64()), pa.field("b", pa.string())]
    schema = pa.schema(columns)

    found = conform(pa.table({"b": ["x"], "a": [1]}), schema)

    assert found.schema.equals(schema)
    assert found.to_pydict() == {"a": [1], "b": ["x"]}


def test_a_record_batch_is_taken_too() -> None:
    assert conform(pa.RecordBatch.from_pydict({"x": [1]}), schema_of(pa.int64())).to_pydict() == {"x": [1]}


def test_metadata_of_the_rows_is_dropped() -> None:
    table = one_column([1]).replace_schema_metadata({"pandas": "{}"})

    assert conform(table, schema_of(pa.int64())).schema.equals(schema_of(pa.int64()), check_metadata=True)


UTC = datetime.UTC
LOOSE = pa.list_(pa.struct([("a", pa.list_(pa.int64()))]))
STRICT = pa.list_(pa.struct([pa.field("a", pa.list_(REQUIRED_INT), nullable=False)]))
MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000)


@pytest.mark.parametrize(
    ("values", "found", "expected"),
    [
        ([1, None], pa.int32(), pa.int64()),
        ([255], pa.uint8(), pa.int16()),
        ([1], pa.int32(), pa.float64()),
        ([1], pa.int16(), pa.float32()),
        ([7], pa.int32(), pa.decimal128(12, 2)),
        ([7], pa.uint64(), pa.decimal128(20, 0)),
        ([1.5, None], pa.float32(), pa.float64()),
        ([decimal.Decimal("1.5")], pa.decimal128(3, 1), pa.decimal128(10, 4)),
        ([None, None], pa.null(), pa.map_(pa.string(), pa.int32())),
        ([None], pa.null(), pa.decimal128(3, 1)),
        (["a", None], pa.large_string(), pa.string()),
        (["a", "b", "a"], pa.dictionary(pa.int8(), pa.string()), pa.string()),
        ([b"ab"], pa.binary(2), pa.binary()),
        ([MOMENT], pa.timestamp("ns"), pa.timestamp("us")),
        ([MOMENT.replace(tzinfo=UTC)], pa.timestamp("ms", "Europe/Paris"), pa.timestamp("us", "UTC")),
        ([MOMENT.replace(tzinfo=UTC)], pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC")),
        ([datetime.timedelta(1)], pa.duration("s"), pa.duration("us")),
        ([datetime.date(2026, 1, 2)], pa.date64(), pa.date32()),
        ([[1, None], None, []], pa.large_list(pa.int32()), pa.list_(pa.int64())),
        ([[1, 2]], pa.list_(pa.int32()), pa.list_(REQUIRED_INT)),
        ([[1, 2]], pa.list_(REQUIRED_INT), pa.list_(pa.int64())),
        ([{"a": 1}, None], pa.struct([("a", pa.int32())]), pa.struct([pa.field("a", pa.int64(), nullable=False)])),
        ([[("k", 1)], None], pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), REQUIRED_VALUES)),
        ([None, [{"a": [1]}, None]], LOOSE, STRICT),
    ],
)
def test_values_are_cast_where_nothing_is_lost(values: list[Any], found: pa.DataType, expected: pa.DataType) -> None:
    table = one_column(values, found)
    topic = schema_of(expected)

    conformed = conform(table, topic)

    assert conformed.schema.equals(topic)
    conformed.validate(full=True)
    assert conformed["x"].to_pylist() == one_column(values, expected)["x"].to_pylist()
    rows = DataFile(encode_data_file(conformed), topic, len(values), name="x.parquet").batches()
    assert pa.Table.from_batches(rows).equals(conformed)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (pa.int64(), pa.int32()),
        (pa.uint32(), pa.int32()),
        (pa.int64(), pa.float64()),
        (pa.int32(), pa.float32()),
        (pa.int64(), pa.decimal128(18, 0)),
        (pa.float64(), pa.float32()),
        (pa.float64(), pa.int64()),
        (pa.float64(), pa.decimal128(38, 10)),
        (pa.decimal128(5, 2), pa.decimal128(5, 3)),
        (pa.decimal128(5, 2), pa.decimal128(6, 1)),
        (pa.string(), pa.int64()),
        (pa.int64(), pa.string()),
        (pa.string(), pa.binary()),
        (pa.binary(), pa.string()),
        (pa.bool_(), pa.int32()),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.timestamp("us", "UTC"), pa.timestamp("us")),
        (pa.date32(), pa.timestamp("us")),
        (pa.timestamp("us"), pa.date32()),
        (pa.timestamp("us"), pa.int64()),
        (pa.int64(), pa.timestamp("us")),
        (pa.int64(), pa.null()),
        (pa.list_(pa.int64()), pa.list_(pa.int32())),
        (pa.int32(), pa.list_(pa.int32())),
        (pa.list_(pa.int32()), pa.int32()),
        (pa.struct([("a", pa.int32())]), pa.struct([("b", pa.int32())])),
        (pa.struct([("a", pa.int32()), ("b", pa.int32())]), pa.struct([("a", pa.int32())])),
        (pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int32()), pa.field("b", pa.int32(), nullable=False)])),
        (pa.struct([("a", pa.string())]), pa.struct([("a", pa.int32())])),
        (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int32())),
        (pa.map_(pa.string(), pa.int64()), pa.list_(pa.struct([("key", pa.string()), ("value", pa.int64())]))),
        (pa.uuid(), pa.string()),
        (pa.month_day_nano_interval(), pa.duration("us")),
    ],
)
def test_other_types_do_not_fit(found: pa.DataType, expected: pa.DataType) -> None:
    with pytest.raises(SchemaMismatch) as error:
        conform(pa.Table.from_batches([], schema_of(found)), schema_of(expected))

    assert str(error.value) == (
        f"[EOSLOG_SCHEMA_MISMATCH] column 'x': expected {expected}, found {found}. Cast it to {expected} first"
    )


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1], pa.timestamp("ns")), pa.timestamp("us")),
        (pa.array([2**62], pa.timestamp("s")), pa.timestamp("us")),
        (pa.array([1], pa.duration("ns")), pa.duration("us")),
        (pa.array([[1]], pa.list_(pa.timestamp("ns"))), pa.list_(pa.timestamp("us"))),
    ],
)
def test_a_value_that_would_change_is_refused(column: Any, expected: pa.DataType) -> None:
    with pytest.raises(SchemaMismatch, match=r"column 'x': expected .*, found .*: .*"):
        conform(pa.table({"x": column}), schema_of(expected))


@pytest.mark.parametrize(
    ("values", "expected", "path"),
    [
        ([[1, None]], pa.list_(REQUIRED_INT), "element"),
        ([{"a": None}], pa.struct([pa.field("a", pa.int64(), nullable=False)]), "a"),
        ([[("k", None)]], pa.map_(pa.string(), REQUIRED_VALUES), "value"),
        ([None, [{"a": [None]}]], pa.list_(pa.struct([pa.field("a", pa.list_(REQUIRED_INT))])), "element.a.element"),
    ],
)
def test_a_null_within_a_value_where_the_topic_allows_none_is_refused(
    values: list[Any], expected: pa.DataType, path: str
) -> None:
    loose: dict[str, pa.DataType] = {
        "element": pa.list_(pa.int64()),
        "a": pa.struct([("a", pa.int64())]),
        "value": pa.map_(pa.string(), pa.int64()),
        "element.a.element": LOOSE,
    }

    with pytest.raises(SchemaMismatch, match=f"column 'x'.*: {path} holds a null"):
        conform(one_column(values, loose[path]), schema_of(expected))


def test_nulls_that_a_slice_left_behind_do_not_count() -> None:
    table = one_column([[None], [1], [None]], pa.list_(pa.int64())).slice(1, 1)

    assert conform(table, schema_of(pa.list_(REQUIRED_INT)))["x"].to_pylist() == [[1]]


def test_a_null_in_a_column_that_allows_none_is_refused() -> None:
    with pytest.raises(SchemaMismatch, match="column 'x' has 1 nulls, but the topic allows none"):
        conform(one_column([1, None]), schema_of(pa.int64(), nullable=False))


def test_a_missing_column_is_null_if_it_may_be() -> None:
    schema = pa.schema([pa.field("x", pa.int64()), pa.field("y", pa.list_(pa.string()))])

    assert conform(one_column([1, 2]), schema)["y"].to_pylist() == [None, None]


def test_a_missing_column_that_may_not_be_null_is_refused() -> None:
    columns: list[pa.Field[Any]] = [pa.field("x", pa.int64()), pa.field("y", pa.string(), nullable=False)]
    schema = pa.schema(columns)

    with pytest.raises(SchemaMismatch, match="column 'y' is missing, but its string may not be null"):
        conform(one_column([1]), schema)


@pytest.mark.parametrize(
    ("name", "hint"), [("extra", "Its columns are: x, y"), ("X", "Did you mean 'x'?")], ids=["unknown", "other case"]
)
def test_a_column_that_the_topic_lacks_is_refused(name: str, hint: str) -> None:
    schema = pa.schema([("x", pa.int64()), ("y", pa.int64())])

    with pytest.raises(SchemaMismatch) as error:
        conform(pa.table({name: [1]}), schema)

    assert str(error.value) == f"[EOSLOG_SCHEMA_MISMATCH] column {name!r} (int64) is not in the topic. {hint}"


def test_a_column_given_twice_is_refused() -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])

    with pytest.raises(SchemaMismatch, match="column 'x' is given more than once"):
        conform(table, schema_of(pa.int64()))


def test_no_rows_conform_too() -> None:
    empty = pa.Table.from_batches([], pa.schema([("x", pa.int32())]))

    assert conform(empty, schema_of(pa.int64())).schema.equals(schema_of(pa.int64()))
    assert conform(empty, schema_of(pa.int64())).num_rows == 0


def test_kafka_headers_as_spark_gives_them_fit() -> None:
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    table = pa.table(
        {
            "key": pa.array([b"k"]),
            "value": pa.array([b"v"]),
            "headers": pa.array([[{"key": "h", "value": None}]], headers),
            "timestamp": pa.array([1], pa.timestamp("ms", "UTC")),
        }
    )

    assert conform(table, RECORDS_SCHEMA).schema.equals(RECORDS_SCHEMA)


@pytest.mark.parametrize("wrapped", [False, True])
def test_text_that_is_not_utf_8_is_refused_with_its_column(wrapped: bool) -> None:
    text = not_utf_8()
    column = pa.StructArray.from_arrays([text], names=["name"]) if wrapped else text
    schema: Any = pa.schema([("carrier", column.type)])

    with pytest.raises(SchemaMismatch, match="column 'carrier' holds text that is not UTF-8"):
        conform(pa.table({"carrier": column}), schema)


def test_bytes_of_any_kind_are_no_text() -> None:
    table = pa.table({"value": pa.array([b"\xff\xfe"])})

    assert conform(table, table.schema).equals(table)
