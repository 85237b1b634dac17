"""The text of a predicate: what is understood, and what is refused with the part and the reason."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import pyarrow as pa
import pytest

from eoslog import InvalidOption
from eoslog.format.topic_schemas import encode_schema
from eoslog.read.predicate import AllOf, AnyOf, Below, Constant, IsNull, Not, OneOf, StartsWith
from eoslog.read.predicate_text import compile_predicate
from eoslog.state.entries import TopicConfig, TopicSchema
from eoslog.state.store_state import Topic

SCHEMA = pa.schema(
    [
        ("miles", pa.int64()),
        ("carrier", pa.string()),
        ("price", pa.decimal128(6, 2)),
        ("rate", pa.float64()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("clock", pa.time64("ns")),
        ("departure", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("a.b", pa.int64()),
        ("seats", pa.list_(pa.int32())),
        ("bytes", pa.binary()),
        ("comment", pa.string()),
    ]
)
TOPIC = Topic("t", "0" * 32, 1, TopicSchema(kind="columns", arrow=encode_schema(SCHEMA)), TopicConfig(), 1, ())
RECORDS = Topic("r", "1" * 32, 1, TopicSchema(kind="records"), TopicConfig(), 1, ())


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("miles = 5", OneOf("miles", (5,))),
        ("MILES == 5 -- a comment", OneOf("miles", (5,))),
        ("(5) < (miles)", Not(Below("miles", 5, inclusive=True))),
        ("miles >= 5.5", Not(Below("miles", 5, inclusive=True))),
        ("miles = 5.5", OneOf("miles", ())),
        ("miles <> 9223372036854775808", Not(OneOf("miles", ()))),
        ("price < 10000", Not(OneOf("price", ()))),
        ("miles IN (3, 1, 3, 2.0)", OneOf("miles", (1, 2, 3))),
        ("miles <=> NULL", IsNull("miles")),
        ("miles = NULL", Constant(None)),
        ("price <= 1.255", Below("price", 125, inclusive=True)),
        ("carrier LIKE 'U%'", StartsWith("carrier", "U")),
        ("carrier LIKE 'UA'", OneOf("carrier", ("UA",))),
        ("carrier = 'it\\'s \\u00e9\\n'", OneOf("carrier", ("it's é\n",))),
        ('carrier = "UA"', OneOf("carrier", ("UA",))),
        ("comment = 'x'", OneOf("comment", ("x",))),
        ("flag", OneOf("flag", (True,))),
        ("`a.b` = 1", OneOf("a.b", (1,))),
        ("bytes IS NULL", IsNull("bytes")),
        ("seats IS NOT NULL", Not(IsNull("seats"))),
        ("day = DATE '1970-01-02'", OneOf("day", (1,))),
        ("clock = '00:00:01.5'", OneOf("clock", (1_500_000_000,))),
        ("departure = '1970-01-01T01:00:00+01:00'", OneOf("departure", (0,))),
        ("local = TIMESTAMP_NTZ '1970-01-01 00:00:00.000001'", OneOf("local", (1,))),
        ("_offset = 1 AND _partition = 0", AllOf((OneOf("_offset", (1,)), OneOf("_partition", (0,))))),
        (
            "flag OR NOT flag OR _control IS NULL",
            AnyOf((OneOf("flag", (True,)), Not(OneOf("flag", (True,))), IsNull("_control"))),
        ),
    ],
)
def test_a_text_is_a_condition_over_the_columns_own_values(text: str, condition: object) -> None:
    predicate = compile_predicate(text, TOPIC)

    assert predicate.condition == condition
    assert pickle.loads(pickle.dumps(predicate)) == predicate


def test_the_columns_are_those_that_it_names_with_their_types() -> None:
    predicate = compile_predicate("_offset > 3 AND MILES = 1 OR miles = 2", TOPIC)

    assert predicate.columns == pa.schema([("_offset", pa.int64()), ("miles", pa.int64())])


def test_kafka_records_have_columns_without_underscores() -> None:
    predicate = compile_predicate("offset > 3 AND partition = 1 AND topic = 'r' AND timestampType = 0", RECORDS)

    assert predicate.of_records
    assert predicate.columns.names == ["offset", "partition", "topic", "timestampType"]
    with pytest.raises(InvalidOption, match="no column '_offset'"):
        compile_predicate("_offset > 3", RECORDS)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "a predicate is a text"),
        ("  ", "a predicate is a text"),
        ("speed = 1", "topic t has no column 'speed'. Its columns are: miles"),
        ("miles =", "cannot be parsed"),
        ("miles = 1 AND", "cannot be parsed"),
        ("miles = 1) OR (miles = 2", "is not one condition"),
        ("miles = 1; DROP TABLE t", "cannot be parsed"),
        ("miles, carrier", "is not one condition"),
        ("SELECT 1", "is not one condition"),
        ("miles + 1 = 2", "'miles \\+ 1' is not supported: a column is compared with a literal"),
        ("miles = price", "not with another column"),
        ("miles < 9223372036854775808", "outside the range of integers"),
        ("miles NOT BETWEEN -9223372036854775809 AND 5", "outside the range of integers"),
        ("1 = 1", "is not supported"),
        ("upper(carrier) = 'UA'", "'UPPER\\(carrier\\)' is not supported"),
        ("miles IN (SELECT 1)", "is not supported"),
        ("EXISTS (SELECT 1)", "is not supported"),
        ("miles = :x", "is not supported"),
        ("CASE WHEN flag THEN flag END", "is not supported"),
        ("carrier RLIKE 'U.*'", "is not supported"),
        ("carrier ILIKE 'u%'", "is not supported"),
        ("carrier LIKE '%A'", "only a prefix pattern such as 'abc%' is supported"),
        ("carrier LIKE 'U_'", "only a prefix pattern such as 'abc%' is supported"),
        ("carrier LIKE 'U%A'", "only a prefix pattern such as 'abc%' is supported"),
        ("carrier LIKE 'U/%' ESCAPE '/'", "is not supported"),
        ("miles LIKE '1%'", "LIKE compares text"),
        ("carrier = 'it''s'", "Write a quote within a text as"),
        ("carrier = 'a\\x'", "only the escapes"),
        ("carrier = r'a\\n'", "is not supported"),
        ("carrier COLLATE utf8_lcase = 'ua'", "is not supported"),
        ("carrier = 5", "it is text, which is compared with a text, not with a number"),
        ("miles = '5'", "^[^:]+: column 'miles': it is an integer, which is compared with a number, not with a text"),
        ("flag AND miles='5'", "'\": \"miles = '5'\": column 'miles'"),
        ("miles = 1e3", "not with a double"),
        ("miles = TRUE", "not with TRUE or FALSE"),
        ("miles", "Only a boolean column is a condition"),
        ("miles IS TRUE", "not with TRUE or FALSE"),
        ("price = 1D", "not with a double"),
        ("price = 0.1234567890123456789012345678901234567890", "more digits"),
        ("rate = 'fast'", "it is a float"),
        ("rate = CAST('1' AS FLOAT)", "this cast is unknown"),
        ("flag > FALSE", "a boolean is compared with = or <>"),
        ("flag = 1", "not with a number"),
        ("day = '2026-02-30'", "is not a date"),
        ("day = '26-2-3'", "is not a date"),
        ("day = TIMESTAMP '2026-01-31T00:00:00Z'", "not with a TIMESTAMP"),
        ("clock = '25:00'", "is not a time"),
        ("departure = '2026-01-31T12:00:00'", "has no time zone"),
        ("departure = '2026-01-31'", "is not a timestamp"),
        ("departure = '2026-01-31T12:00:00.1234567Z'", "is not a timestamp"),
        ("departure = TIMESTAMP_NTZ '2026-01-31 12:00:00'", "not with a TIMESTAMP_NTZ"),
        ("departure = 5", "not with a number"),
        ("local = '2026-01-31T12:00:00Z'", "has a time zone"),
        ("local = TIMESTAMP '2026-01-31 12:00:00'", "not with a TIMESTAMP"),
        ("bytes = X'00'", "is not supported"),
        ("bytes = 'a'", "only IS NULL"),
        ("seats = 1", "only IS NULL"),
        ("seats[0] = 1", "is not supported"),
        ("a.b = 1", "fields of structs cannot be compared"),
        ("(" * 5000 + "flag" + ")" * 5000, "nested too deeply"),
        ("x" * 2_000_000, "characters"),
    ],
    ids=lambda text: text[:40],
)
def test_an_unsupported_predicate_is_refused_with_the_part_and_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidOption, match=reason):
        compile_predicate(text, TOPIC)


def test_a_long_list_and_a_long_chain_are_understood() -> None:
    listed = compile_predicate(f"miles IN ({', '.join(map(str, range(20_000)))})", TOPIC)
    chained = compile_predicate(" OR ".join(f"miles = {each}" for each in range(2_000)), TOPIC)

    assert listed.condition == OneOf("miles", tuple(range(20_000)))
    assert isinstance(chained.condition, AnyOf)
    assert len(chained.condition.parts) == 2_000


def test_text_with_a_spark_collation_is_not_compared_by_its_bytes() -> None:
    fields = [{"name": "carrier", "type": "string", "nullable": True, "metadata": {"__COLLATIONS": {"carrier": "x"}}}]
    spark = json.dumps({"type": "struct", "fields": fields})
    topic = replace(TOPIC, topic_schema=TOPIC.topic_schema.model_copy(update={"spark": spark}))

    for text in ("carrier = 'UA'", "carrier LIKE 'U%'"):
        with pytest.raises(InvalidOption, match="collation"):
            compile_predicate(text, topic)
    assert compile_predicate("carrier IS NULL", topic).condition == IsNull("carrier")
