"""The keys of rows for compaction, and the detection of tombstones."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eoslog.format.partitioner import key_bytes
from eoslog.format.topic_schema_json import stored_schema
from eoslog.state.store_state import Topic


class RowKeys:
    """The keys of a topic's rows: the key of a Kafka record, or the key columns of a row of columns."""

    def __init__(self, topic: Topic) -> None:
        records = topic.topic_schema.kind == "records"
        names = stored_schema(topic).names
        self.key_columns: tuple[str, ...] = ("key",) if records else topic.topic_schema.key
        self.value_columns: tuple[str, ...] = (
            ("value",) if records else tuple(name for name in names if name not in topic.topic_schema.key)
        )
        """A row is a tombstone if all of these columns are null. Without such columns there are no tombstones."""

    def keys(self, rows: pa.RecordBatch) -> list[bytes | None]:
        """Return the key of each row; None for a row without a key."""
        return key_bytes([rows.column(name) for name in self.key_columns])

    def tombstones(self, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """For each row, return True if it is a tombstone."""
        if not self.value_columns:
            return np.zeros(rows.num_rows, np.bool_)
        found = np.ones(rows.num_rows, np.bool_)
        for name in self.value_columns:
            found &= np.asarray(rows.column(name).is_null())
        return found
