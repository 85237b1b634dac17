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
    from pyspark.sql.types import StructType

    from pyspark_eoslog.table import EosLogTable

__all__ = ["DefaultSource", "EosLogTable", "topic_schema"]


def __getattr__(name: str) -> Any:
    """The table is imported at its first use: Spark imports this package for every data source that it looks up."""
    if name != "EosLogTable":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pyspark_eoslog.table import EosLogTable

    return EosLogTable


def topic_schema(schema: StructType) -> pa.Schema:
    """Return a DataFrame's schema in the Arrow types of a topic. ``create_topic`` takes ``df.schema`` itself, too.

    Raises:
        UnsupportedSchema: naming a column that a topic cannot hold.
    """
    from pyspark_eoslog.spark_schemas import storable_schema

    return storable_schema(schema)
