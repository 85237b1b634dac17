"""Spark's JSON of a topic's columns comes from a store: it gives types, or is corrupt, whatever it holds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType, VariantType

from eoslog.errors import CorruptRecord
from pyspark_eoslog.spark_schemas import as_described

STORED = StructType([StructField("id", LongType()), StructField("raw", StringType())])


def field(name: Any, kind: Any = "string", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}, **more}


def described(*fields: Any) -> str:
    return json.dumps({"type": "struct", "fields": list(fields)})


def test_a_described_type_replaces_the_stored_one_under_its_name() -> None:
    found = as_described(STORED, described(field("other"), field("raw", "variant")), "t")

    assert found == StructType([StructField("id", LongType()), StructField("raw", VariantType())])


@pytest.mark.parametrize(
    "text",
    [
        described(field(-1)),
        described(field(True)),
        described(field("raw", metadata={"__COLLATIONS": {"raw": "no provider"}})),
        described(field("raw", "nothing that there is")),
        described("raw"),
        "[" * 100_000,
    ],
    ids=["name is a number", "name is a boolean", "collation", "type", "field", "nested"],
)
def test_a_description_that_spark_does_not_take_is_corrupt(text: str) -> None:
    with pytest.raises(CorruptRecord, match="topic t: its schema in Spark's JSON cannot be read"):
        as_described(STORED, text, "t")
