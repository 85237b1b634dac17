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
    """A planned read. Run it any number of times, also from several threads: each run gives the same rows."""

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
        """The slot of the log whose state was planned on."""

    @property
    def record_count(self) -> int:
        """The number of rows, known without reading any; at most so many with a predicate, or where a range cuts a
        compacted batch."""
        return sum(plan.record_count for plan in self.plans)

    def to_batches(self, *, progress: Callable[[Progress], object] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows, partition by partition and by offset within each. The iterator belongs to one thread at a time.

        Args:
            progress: is told, before each batch is handed over and when a file is done, how far the read has come.

        Raises:
            CorruptRecord: a file is missing, or not what its entry says.
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
        """All rows at once, in the same order. ``progress`` is that of ``to_batches``."""
        return pa.Table.from_batches(self.to_batches(progress=progress), schema=self.schema)


class _Told:
    """Tells somebody of each step, if there is somebody."""

    def __init__(self, progress: Callable[[Progress], object] | None, plans: Sequence[PartitionPlan]) -> None:
        self._tell = progress
        self._so_far = None if progress is None else not_begun(plans)

    def step(self, count: Callable[[Progress, Any], Progress], done: Any) -> None:
        if self._tell is None or self._so_far is None:
            return
        self._so_far = count(self._so_far, done)
        self._tell(self._so_far)
