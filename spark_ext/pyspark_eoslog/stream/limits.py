"""Limits of a micro-batch, by offsets, bytes and files, alone or together: the Kafka connector's and Delta's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    ReadMinRows,
)

from eoslog.state.names import TopicPartition


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a micro-batch. None means no limit.

    The first file (with ``snapshot``: the first commit) is always taken, so that a stream never stops. Later ones are
    taken only if they fit.
    """

    max_offsets: int | None = None
    """Kafka's ``maxOffsetsPerTrigger``: offsets over all partitions; with ``snapshot``: rows."""
    max_bytes: int | None = None
    """Delta's ``maxBytesPerTrigger``: bytes of files. A file counts in proportion to the rows that are taken of it."""
    max_files: int | None = None
    """Delta's ``maxFilesPerTrigger``: data files."""
    min_offsets: int | None = None
    """Kafka's ``minOffsetsPerTrigger``: offsets to wait for; with ``snapshot``: rows."""

    @property
    def are_none(self) -> bool:
        return self.max_offsets is None and not self.count_files

    @property
    def count_files(self) -> bool:
        """True if a limit counts bytes or files, so that file metadata is needed."""
        return self.max_bytes is not None or self.max_files is not None

    def times(self, factor: int) -> Limits:
        """Return these limits, multiplied by a factor."""
        limits = (self.max_offsets, self.max_bytes, self.max_files)
        return Limits(*(None if each is None else each * factor for each in limits))

    def default_read_limit(self) -> ReadLimit:
        """Return one of the limits: Spark accepts only one. It passes it back, unless its trigger reads everything."""
        if self.max_offsets is not None:
            return ReadMaxRows(self.max_offsets)
        if self.max_bytes is not None:
            return ReadMaxBytes(self.max_bytes)
        if self.max_files is not None:
            return ReadMaxFiles(self.max_files)
        return ReadAllAvailable() if self.min_offsets is None else ReadMinRows(self.min_offsets)

    def asked_for(self, limit: ReadLimit) -> Limits:
        """Return these limits with the one that Spark passes; no limits if its trigger reads everything (``Once``)."""
        if isinstance(limit, ReadMaxRows):
            return replace(self, max_offsets=limit.max_rows)
        if isinstance(limit, ReadMaxBytes):
            return replace(self, max_bytes=limit.max_bytes)
        if isinstance(limit, ReadMaxFiles):
            return replace(self, max_files=limit.max_files)
        if isinstance(limit, ReadMinRows):
            return replace(self, min_offsets=limit.min_rows)
        return Limits()


class Budget:
    """The remaining limits while a micro-batch is filled."""

    def __init__(self, max_rows: int | None, max_bytes: int | None, max_files: int | None) -> None:
        self._rows_left: float = math.inf if max_rows is None else max_rows
        self._bytes_left: float = math.inf if max_bytes is None else max_bytes
        self._files_left: float = math.inf if max_files is None else max_files
        self._paths: set[str] = set()
        self._is_empty = True

    @property
    def is_spent(self) -> bool:
        return not self._is_empty and min(self._rows_left, self._bytes_left, self._files_left) <= 0

    def take(self, rows: int, size: int, paths: set[str]) -> bool:
        """Take rows of these files if they fit, or if they are the first. Return True if they were taken."""
        new = paths - self._paths
        fits = rows <= self._rows_left and size <= self._bytes_left and len(new) <= self._files_left
        if not fits and not self._is_empty:
            return False
        self._rows_left -= rows
        self._bytes_left -= size
        self._files_left -= len(new)
        self._paths |= new
        self._is_empty = self._is_empty and not rows
        return True


def limit_offsets(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], max_offsets: int
) -> dict[TopicPartition, int]:
    """Limit the ends to about ``max_offsets`` offsets, in proportion to the size of each partition, as in Kafka.

    Every partition with new rows and a share moves by at least one offset.
    """
    sizes = {key: max(0, end[key] - start.get(key, 0)) for key in end}
    total = sum(sizes.values())
    if total <= max_offsets:
        return dict(end)
    limited = {}
    for key, size in sizes.items():
        share = max_offsets * size / total
        step = math.ceil(share) if share < 1 else math.floor(share)
        limited[key] = min(start.get(key, 0) + step, end[key])
    return limited
