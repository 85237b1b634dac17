"""The columns of a topic of Kafka records."""

from __future__ import annotations

import pyarrow as pa

HEADERS_TYPE: pa.DataType = pa.list_(
    pa.field(
        "element",
        pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]),
    )
)

RECORDS_SCHEMA: pa.Schema = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC"), nullable=False),
    ]
)
"""The columns of Kafka records. A null value is a tombstone, as in Kafka. Null headers mean no headers."""
