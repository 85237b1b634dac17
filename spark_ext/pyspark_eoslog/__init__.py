"""eoslog in Spark: ``format("eoslog")``. Spark finds this package by its name and registers ``DefaultSource``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_eoslog.data_source import DefaultSource

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource", "topic_schema"]


def topic_schema(schema: StructType) -> pa.Schema:
    """A DataFrame's schema as that of a topic, for ``create_topic(…, schema=…, spark_schema=schema.json())``.

    Raises:
        UnsupportedSchema: naming a column that a topic cannot hold.
    """
    from pyspark_eoslog.schemas import storable_schema

    return storable_schema(schema)
