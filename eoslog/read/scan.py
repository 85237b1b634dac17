"""The columnar scan: a topic's visible rows as Arrow, from one consistent state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from eoslog.read.planner import PartitionPlan
from eoslog.read.predicate import Predicate
from eoslog.read.predicate_rows import read_wanted
from eoslog.read.scan_progress import Progress, not_begun, with_file, with_rows
from eoslog.storage.exclusive import ExclusiveIterator
from eoslog.storage.object_store import ObjectStore


class Scan:
    """A planned read. Each run yields the same rows. Several threads may run it at once."""

    def __init__(
        self,
        store: ObjectStore,
        plans: Sequence[PartitionPlan],
        stored: pa.Schema,
        columns: pa.Schema,
        slot: int,
        predicate: Predicate | None = None,
    ) -> None:
        self._store = store
        self._stored = stored
        self._predicate = predicate
        self.plans = tuple(plans)
        self.schema = columns
        self.slot = slot
        """The slot of the log whose state the plan used."""

    @property
    def record_count(self) -> int:
        """The number of rows. It is known without reading files. It is an upper bound if the scan has a predicate, or
        if its range cuts a compacted batch."""
        return sum(plan.record_count for plan in self.plans)

    def to_batches(self, *, progress: Callable[[Progress], object] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows by partition, and by offset within a partition. Only one thread at a time may iterate.

        Args:
            progress: called with the progress of the read before each batch and after each file.

        Raises:
            CorruptRecord: a file is missing or differs from its entry.
            StoreUnavailable
            ConcurrentAccess: another thread advances the iterator.
        """
        return ExclusiveIterator(self._batches(progress))

    def _batches(self, progress: Callable[[Progress], object] | None) -> Iterator[pa.RecordBatch]:
        told = _Told(progress, self.plans)
        for plan in self.plans:
            yield from read_wanted(
                self._store,
                plan.topic,
                plan.partition,
                plan.slices,
                self._stored,
                self.schema,
                self._predicate,
                rows_read=lambda rows: told.step(with_rows, rows),
                file_done=lambda pieces: told.step(with_file, pieces),
            )

    def to_table(self, *, progress: Callable[[Progress], object] | None = None) -> pa.Table:
        """Return all rows in the order of ``to_batches``. ``progress`` is called as there."""
        return pa.Table.from_batches(self.to_batches(progress=progress), schema=self.schema)


class _Told:
    """Reports progress to a caller's function, if there is one."""

    def __init__(self, progress: Callable[[Progress], object] | None, plans: Sequence[PartitionPlan]) -> None:
        self._tell = progress
        self._so_far = None if progress is None else not_begun(plans)

    def step(self, count: Callable[[Progress, Any], Progress], done: Any) -> None:
        if self._tell is None or self._so_far is None:
            return
        self._so_far = count(self._so_far, done)
        self._tell(self._so_far)
