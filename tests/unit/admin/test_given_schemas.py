"""``create_topic`` and ``add_columns`` take columns in the forms in which users have them."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType

from eoslog import InvalidRequest, Store, Topic, UnsupportedSchema
from eoslog.format.topic_schemas import stored_schema
from tests.programs import ran

WANTED = pa.schema([("carrier", pa.string()), ("miles", pa.int64()), ("fare", pa.decimal128(10, 2))])


def spark_fields() -> Any:
    from pyspark.sql.types import DecimalType, LongType, StringType, StructField, StructType

    return StructType(
        [
            StructField("carrier", StringType()),
            StructField("miles", LongType()),
            StructField("fare", DecimalType(10, 2)),
        ]
    )


class Exported:
    """An object of another library with Arrow's schema interface."""

    def __arrow_c_schema__(self) -> object:
        schema: Any = WANTED
        return schema.__arrow_c_schema__()


@pytest.mark.parametrize(
    "given",
    [
        WANTED,
        {"carrier": "string", "miles": "long", "fare": "decimal(10, 2)"},
        {"carrier": pa.large_string(), "miles": pa.int64(), "fare": pa.decimal128(10, 2)},
        {"carrier": "utf8", "miles": "int64", "fare": "DECIMAL(10,2)"},
        pl.DataFrame(schema={"carrier": pl.String, "miles": pl.Int64, "fare": pl.Decimal(10, 2)}).schema,
        Exported(),
        spark_fields(),
    ],
    ids=["arrow", "Spark names", "types", "Arrow names", "polars", "exported", "spark"],
)
def test_a_topic_is_created_and_extended_with_columns_in_any_form(store: Store, given: Any) -> None:
    created = store.admin.create_topic("c", schema=given, key="carrier")
    store.admin.create_topic("wider", schema={"id": "long"})

    extended = store.admin.add_columns("wider", given)

    assert stored_schema(created) == WANTED
    assert created.topic_schema.key == ("carrier",)
    assert stored_schema(extended) == pa.schema([("id", pa.int64()), *WANTED])


def test_the_schema_of_a_spark_dataframe_keeps_types_that_arrow_lacks_and_leaves_out_metadata(store: Store) -> None:
    from pyspark.sql.types import LongType, StringType, StructField, StructType, VariantType

    from pyspark_eoslog.options import Options
    from pyspark_eoslog.spark_schemas import default_schema

    given = StructType(
        [
            StructField("id", LongType(), False),
            StructField("text", StringType("UTF8_LCASE")),
            StructField("v", VariantType()),
        ]
    )
    read = StructType([*given.fields, StructField("_offset", LongType()), StructField("_topic", StringType())])

    topic: Topic = store.admin.create_topic("c", schema=read, key="id")

    options = Options.of({"path": "/store", "topic": "c", "metadataColumns": "false"})
    assert default_schema([topic], options) == given


def test_eoslog_imports_no_pyspark_for_other_forms() -> None:
    program = """
import sys, eoslog
store = eoslog.connect("memory://given")
store.admin.create_topic("c", schema={"carrier": "string"})
print([name for name in sys.modules if name.startswith("pyspark")])
"""
    assert ran(program) == (0, "[]\n", "")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"carrier": "text"}, "column 'carrier': 'text' is not a type.*string, binary.*int64"),
        ({"miles": "BIGINT"}, r"'BIGINT' is not a type\. Did you mean 'long'\?"),
        ({"carrier": "varchar(20)"}, r"Did you mean 'string'\?"),
        ({"fare": "double precision"}, r"Did you mean 'double'\?"),
        ({"carrier": "strnig"}, r"Did you mean 'string'\?"),
        ({"carrier": "nothing like it"}, r"is not a type\. Give a"),
        ({"carrier": 7}, "column 'carrier': 7 is not a type"),
        ({"fare": "decimal(99,2)"}, "'decimal\\(99,2\\)' is not a type"),
        ({"fare": "decimal(2,3)"}, "is not a type"),
    ],
)
def test_an_unknown_type_is_refused_by_name(store: Store, given: Any, message: str) -> None:
    with pytest.raises(UnsupportedSchema, match=f"topic c: .*{message}"):
        store.admin.create_topic("c", schema=given)


@pytest.mark.parametrize(
    "given", ["carrier string", 7, [("carrier", "string")], Exported, {7: "long"}, pa.int64(), LongType()]
)
def test_anything_else_is_refused_with_the_forms_there_are(store: Store, given: Any) -> None:
    store.admin.create_topic("wider", schema={"id": "long"})

    with pytest.raises(InvalidRequest, match=r"topic c: .*(cannot be a .*dict of column names|is a text|not a schema)"):
        store.admin.create_topic("c", schema=given)
    with pytest.raises(InvalidRequest, match="topic wider: "):
        store.admin.add_columns("wider", given)
