"""The columnar scan: a topic's visible rows as Arrow, from one consistent state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from eoslog.read.planner import PartitionPlan
from eoslog.read.slices import read_slices
from eoslog.store.object_store import ObjectStore


class Scan:
    """A planned read. It can be run any number of times and gives the same rows each time."""

    def __init__(
        self, store: ObjectStore, plans: Sequence[PartitionPlan], stored: pa.Schema, columns: pa.Schema, slot: int
    ) -> None:
        self._store = store
        self._stored = stored
        self.plans = tuple(plans)
        self.schema = columns
        self.slot = slot
        """The slot of the log whose state was planned on."""

    @property
    def record_count(self) -> int:
        """The number of rows, known without reading any; at most so many where a range cuts a compacted batch."""
        return sum(plan.record_count for plan in self.plans)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, partition by partition and by offset within each.

        Raises:
            CorruptRecord: a file is missing, or not what its entry says.
            StoreUnavailable
        """
        for plan in self.plans:
            yield from read_slices(self._store, plan.topic, plan.partition, plan.slices, self._stored, self.schema)

    def to_table(self) -> pa.Table:
        """All rows at once, in the same order."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)
