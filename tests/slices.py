"""Slices of files, for tests to which not all of their fields matter."""

from __future__ import annotations

from typing import Any

from eoslog.read.planner import FileSlice

_ONE_ROW = {
    "length": 1,
    "crc32c": 0,
    "file_rows": 1,
    "first_row": 0,
    "record_count": 1,
    "base_offset": 0,
    "timestamp": 0,
}


def file_slice(path: str, **values: Any) -> FileSlice:
    """A slice with these values, else of the only row of a file."""
    return FileSlice(path=path, **_ONE_ROW | values)


def control_slice(offset: int, **values: Any) -> FileSlice:
    """A control row: an ABORT or a COMMIT marker."""
    return file_slice("", length=0, base_offset=offset, **{"control": 1} | values)
