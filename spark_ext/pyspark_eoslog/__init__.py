"""eoslog in Spark: ``format("eoslog")``, and topics as tables: ``EosLogTable``.

Spark finds this package by its name and registers ``DefaultSource``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_eoslog.pyspark_version import check_pyspark, is_planning

# Spark imports this package whenever it looks up any Python data source. An error in that import would also take away
# the formats of all other packages. There an older PySpark is refused only when ``DefaultSource`` is used.
if not is_planning():
    check_pyspark()

from pyspark_eoslog.data_source import DefaultSource

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from pyspark_eoslog.table import EosLogTable

__all__ = ["DefaultSource", "EosLogTable", "activate", "topic_schema"]


def __getattr__(name: str) -> Any:
    """The table is imported at its first use: Spark imports this package for every data source that it looks up."""
    if name != "EosLogTable":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pyspark_eoslog.table import EosLogTable

    return EosLogTable


def activate(spark: SparkSession) -> None:
    """Make the session known to the current thread. Call it in a thread of your own before it writes.

    Spark's JVM finds Python data sources through the active session of its thread. A new thread has none, and neither
    has a thread whose action was interrupted. A write there fails with ``DATA_SOURCE_NOT_FOUND``.
    """
    # Each release of PySpark sets the active session here. The call that does nothing else is not public.
    spark.createDataFrame([], "n long")


def topic_schema(schema: StructType) -> pa.Schema:
    """Return a DataFrame's schema in the Arrow types of a topic. ``create_topic`` takes ``df.schema`` itself, too.

    Raises:
        UnsupportedSchema: naming a column that a topic cannot hold.
    """
    from eoslog.format.spark_json import arrow_schema
    from eoslog.format.topic_schemas import normalize_schema

    return normalize_schema(arrow_schema(schema.json()))
