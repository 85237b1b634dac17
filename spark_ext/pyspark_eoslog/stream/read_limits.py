"""Spark's limits of a micro-batch (admission control). PySpark before 4.2 has none: a micro-batch reads all rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_eoslog.pyspark_version import is_at_least

if TYPE_CHECKING or is_at_least(4, 2):
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxFiles,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:

    class SupportsTriggerAvailableNow:
        """Earlier releases fix the end of an ``availableNow`` stream themselves."""

    class ReadLimit:
        """The limit of a micro-batch. Earlier releases pass none."""

    class ReadAllAvailable(ReadLimit):
        """No limit."""

    class _Refused(ReadLimit):
        """A limit that earlier releases do not know. The options for it are refused."""

    ReadMaxBytes = ReadMaxFiles = ReadMaxRows = ReadMinRows = _Refused

__all__ = [
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxFiles",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
]
