"""Limits of a micro-batch, by offsets, bytes and files, alone or together: the Kafka connector's and Delta's."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    ReadMinRows,
)

from eoslog.read.admission import ReadLimits


@dataclass(frozen=True, slots=True)
class Limits(ReadLimits):
    """The limits of a micro-batch, and the number of rows for which a stream waits."""

    min_offsets: int | None = None
    """Kafka's ``minOffsetsPerTrigger``: offsets to wait for; with ``snapshot``: rows."""

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
