"""The cache of record batches, which several consumers may fetch."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import NamedTuple

from eoslog.read.isolation import IsolationLevel
from eoslog.state.names import PartitionId

_ENTRY_BYTES = 512
"""About what a batch takes beside its bytes."""


class EncodedBatch(NamedTuple):
    """A record batch, and the offset at which the next one begins."""

    data: bytes
    end_offset: int


class PartitionVersion(NamedTuple):
    """A partition until the next entry that removes rows of it. Its batches are those of no later version."""

    partition_id: PartitionId
    snapshot_floor: int


class BatchCache:
    """Recent batches by the offset at which a fetch finds them. The least recently used ones are dropped."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.bytes = 0
        self._batches: OrderedDict[tuple[PartitionVersion, IsolationLevel | None, int], EncodedBatch] = OrderedDict()
        self._lock = Lock()
        self.hits = 0
        self.misses = 0

    def get(self, partition: PartitionVersion, isolation: IsolationLevel, offset: int) -> EncodedBatch | None:
        with self._lock:
            for level in (isolation, None):
                found = self._batches.get((partition, level, offset))
                if found is not None:
                    self._batches.move_to_end((partition, level, offset))
                    self.hits += 1
                    return found
            self.misses += 1
            return None

    def put(
        self, partition: PartitionVersion, isolation: IsolationLevel | None, offset: int, batch: EncodedBatch
    ) -> None:
        """Keep a batch.

        Args:
            isolation: the level whose consumers may see it; None: those of all levels.
        """
        with self._lock:
            before = self._batches.pop((partition, isolation, offset), None)
            self.bytes += _size(batch) - (0 if before is None else _size(before))
            self._batches[partition, isolation, offset] = batch
            while self.bytes > self.most_bytes:
                _, dropped = self._batches.popitem(last=False)
                self.bytes -= _size(dropped)


def _size(batch: EncodedBatch) -> int:
    return _ENTRY_BYTES + len(batch.data)
