"""The columns that simulated streaming queries read and write."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from eoslog.format.partitioner import partitions_for_key_columns

SOURCE = StructType(
    [StructField("value", BinaryType()), StructField("partition", IntegerType()), StructField("offset", LongType())]
)
RECORDS = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
ROUTED = StructType([StructField("topic", StringType()), *RECORDS.fields])
"""Rows that name their topics."""
ARROW = {"topic": pa.string(), "key": pa.binary(), "value": pa.binary()}
_SOME_KEYS = [b"%d" % number for number in range(20)]
_PLACES = list(partitions_for_key_columns([pa.array(_SOME_KEYS, pa.binary())], 2))
KEY_OF = [_SOME_KEYS[_PLACES.index(partition)] for partition in range(2)]
"""A key whose rows go to each partition of a topic of two."""
