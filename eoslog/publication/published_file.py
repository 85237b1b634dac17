"""Data files as tables name them."""

from __future__ import annotations

from dataclasses import dataclass

from eoslog.publication.file_statistics import FileStatistics


@dataclass(frozen=True, slots=True)
class FileRange:
    """The rows of a file that a version of a table names."""

    partition: int
    base_offset: int
    """The offset from which the file's stored offset deltas count."""
    end_offset: int
    rows: int


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A data file that contains only committed rows."""

    path: str
    """The path relative to the topic's directory."""
    range: FileRange
    size: int
    """The length of the file (bytes)."""
    end_slot: int
    """The last slot that committed rows of the file."""
    end_time_ms: int
    """The log's time at this slot (ms)."""
    transactional_id: str | None
    """The transactional id of this commit."""
    statistics: FileStatistics
