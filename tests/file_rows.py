"""Planned rows of files, for tests to which not all of their fields matter."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from eoslog.format.batch_columns import NO_CONTROL
from eoslog.read.file_rows import BatchRows, FileRows
from eoslog.state.entry_fields import FileReference

_ONE_ROW = {
    "first_row": 0,
    "record_count": 1,
    "base_offset": 0,
    "has_gaps": False,
    "control": NO_CONTROL,
    "timestamp": 0,
    "transactional_id": None,
    "producer_id": -1,
    "producer_epoch": -1,
    "base_sequence": -1,
    "slot": -1,
    "commit_time_ms": -1,
}


def batch(**values: Any) -> BatchRows:
    """A batch with these values, else of one row. With ``end_offset`` it has gaps."""
    row = _ONE_ROW | {"has_gaps": "end_offset" in values} | values
    row.setdefault("end_offset", row["base_offset"] + row["record_count"])
    return BatchRows(**{name: np.array([value]) for name, value in row.items()})


def control(offset: int, **values: Any) -> BatchRows:
    """A control row: an ABORT or a COMMIT marker."""
    return batch(base_offset=offset, **{"control": 1} | values)


def file_rows(path: str, *batches: BatchRows, length: int = 1, crc32c: int = 0, file_rows: int = 1) -> FileRows:
    names = [field.name for field in fields(BatchRows)]
    together = BatchRows(**{name: np.concatenate([getattr(each, name) for each in batches]) for name in names})
    return FileRows(together, FileReference(path=path, length=length, crc32c=crc32c), file_rows=file_rows)
