"""The newest row of each key in a native scan. Spark finds it in parallel, by an aggregation and a join.

eoslog compares keys by their bytes, so Spark must not treat keys with different bytes as equal. Floating-point numbers
are therefore grouped as text, because Spark treats -0.0 and 0.0 as equal. Collated text is grouped as bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import DataType, DoubleType, FloatType, StringType

from eoslog import Topic
from eoslog.read.latest_rows import latest_keys
from pyspark_eoslog.native.native_scan import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def newest_columns(topic: Topic) -> tuple[str, ...]:
    """Return the columns that ``newest_rows`` needs."""
    keys = latest_keys(topic)
    return (*_position_columns(topic), *keys.key_columns, *keys.value_columns)


def newest_rows(frame: DataFrame, topic: Topic) -> DataFrame:
    """Return the newest row of each key in each partition, without tombstones. A row without a key always stays.

    Args:
        frame: a scan with ``newest_columns``. Spark reads it twice: first the keys and offsets alone.
    """
    keys = latest_keys(topic)
    partition, offset = map(quoted, _position_columns(topic))
    has_no_key = _all_null(keys.key_columns)
    types = {field.name: field.dataType for field in frame.schema}
    grouped = [
        f"{partition} as newest_partition",
        *(f"{_comparable(name, types[name])} as key_{index}" for index, name in enumerate(keys.key_columns)),
        # Each row without a key forms its own group.
        f"if({has_no_key}, {offset}, null) as own_group",
        f"{offset} as any_offset",
    ]
    rows = frame.selectExpr(*grouped)
    newest = rows.groupBy(*rows.columns[:-1]).agg({"any_offset": "max"})
    newest = newest.selectExpr("newest_partition", "`max(any_offset)` as newest_offset")
    position = [frame[quoted(name)] for name in _position_columns(topic)]
    is_newest = (position[0] == newest["newest_partition"]) & (position[1] == newest["newest_offset"])
    found = frame.join(newest, is_newest, "left_semi")
    if not keys.value_columns:
        return found
    return found.where(f"({has_no_key}) or not ({_all_null(keys.value_columns)})")


def _position_columns(topic: Topic) -> tuple[str, str]:
    return ("partition", "offset") if topic.topic_schema.kind == "records" else ("_partition", "_offset")


def _all_null(names: tuple[str, ...]) -> str:
    return " and ".join(f"{quoted(name)} is null" for name in names)


def _comparable(name: str, data_type: DataType) -> str:
    if isinstance(data_type, (FloatType, DoubleType)):
        return f"cast({quoted(name)} as string)"
    if isinstance(data_type, StringType) and data_type != StringType():
        return f"cast({quoted(name)} as binary)"
    return quoted(name)
