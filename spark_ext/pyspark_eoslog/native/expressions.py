"""SQL that tells Spark, row by row, what the log knows of a data file and the file does not.

The file's name finds an entry in a literal, which Spark parses once, when it plans. A map is searched from its
beginning, so the literal is an array of small maps, chosen by a hash of the name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from eoslog.errors import CorruptRecord
from eoslog.format.data_file import OFFSET_COLUMN
from pyspark_eoslog.native.lookup import PlannedFile

_PLAIN_NAME = re.compile(r"[A-Za-z0-9-]+\.parquet")
Interval = tuple[int, int, int]
"""First row, end row (exclusive), and a number that belongs to these rows."""
_BLOCKS = "size:bigint,blocks:array<array<array<bigint>>>"


def by_file_name(values: Mapping[str, Any], value_type: str) -> str:
    """SQL for the value that belongs to the file of a row.

    Args:
        values: by the name of each file that is read; JSON can hold them.
        value_type: their type, as Spark names it.
    """
    buckets: list[dict[str, Any]] = [{} for _ in values]
    for name, value in values.items():
        buckets[crc32(name.encode()) % len(buckets)][name] = value
    literal = json.dumps(buckets, separators=(",", ":"))
    name = "_metadata.file_name"
    bucket = f"cast(pmod(crc32(cast({name} as binary)), {len(buckets)}L) as int)"
    return f"try_element_at(get(from_json('{literal}', 'array<map<string,{value_type}>>'), {bucket}), {name})"


def in_blocks(intervals: Sequence[Interval]) -> dict[str, Any]:
    """Intervals of rows so that the one of a row is found at once: those that reach into each block of so many rows.

    There are as many blocks as intervals, so that all rows together meet few intervals that are not theirs.
    """
    end = intervals[-1][1]
    size = -(-end // len(intervals))
    blocks: list[list[Interval]] = [[] for _ in range(-(-end // size))]
    for interval in intervals:
        for block in range(interval[0] // size, (interval[1] - 1) // size + 1):
            blocks[block].append(interval)
    return {"size": size, "blocks": blocks}


@dataclass(frozen=True, slots=True)
class FileExpressions:
    """SQL for what the log knows of a row."""

    columns: tuple[str, ...]
    """Helping columns: the others refer to them."""
    condition: str | None
    """Which rows are read; None if all are."""
    partition: str
    offset: str
    timestamp: str


def file_expressions(files: Sequence[PlannedFile], taken: Iterable[str]) -> FileExpressions:
    """The SQL for rows of these files.

    Args:
        taken: names of other columns, which helping columns do not get.

    Raises:
        CorruptRecord: a file has a name that no writer gives.
    """
    for file in files:
        if not _PLAIN_NAME.fullmatch(file.name):
            raise CorruptRecord(f"data file {file.path!r} has a name that no writer gives")
    others = {name.lower() for name in taken}
    known, row, times, visible = (_unused(name, others) for name in ("file", "row", "times", "visible"))
    columns = [
        f"_metadata.row_index as {row}",
        _column(
            known, "array<bigint>", {each: [each.partition, each.first_offset, _only_time(each)] for each in files}
        ),
    ]
    offset = f"({known}[1] + {row})"
    if any(each.first_offset is None for each in files):
        offset = f"coalesce({offset}, {OFFSET_COLUMN.name})"
    timestamp = f"{known}[2]"
    if mixed := [each for each in files if _only_time(each) is None]:
        blocks = {each: in_blocks([(*rows, time) for rows, time in each.times]) for each in mixed}
        columns.append(_column(times, f"struct<{_BLOCKS}>", blocks))
        timestamp = f"coalesce({timestamp}, filter({_block(times, row)}, each -> {_holds('each', row)})[0][2])"
    condition = None
    if any(each.hidden_rows for each in files):
        columns.append(
            _column(
                visible,
                f"struct<rows:array<bigint>,offsets:array<bigint>,{_BLOCKS}>",
                {each: _visible(each) for each in files},
            )
        )
        condition = " and ".join(
            (
                _holds(f"{visible}.rows", row),
                f"({visible}.offsets is null or {_holds(f'{visible}.offsets', offset)})",
                f"({visible}.blocks is null or exists({_block(visible, row)}, each -> {_holds('each', row)}))",
            )
        )
    return FileExpressions(
        tuple(columns), condition, f"cast({known}[0] as int)", offset, f"timestamp_millis({timestamp})"
    )


def _only_time(file: PlannedFile) -> int | None:
    return file.times[0].timestamp if len({each.timestamp for each in file.times}) == 1 else None


def _visible(file: PlannedFile) -> dict[str, Any]:
    found: dict[str, Any] = {"rows": (file.visible[0].first_row, file.visible[-1].end_row)}
    if file.offsets is not None:
        found["offsets"] = file.offsets
    if len(file.visible) > 1:
        found |= in_blocks([(*rows, 1) for rows in file.visible])
    return found


def _column(name: str, value_type: str, values: Mapping[PlannedFile, Any]) -> str:
    return f"{by_file_name({file.name: value for file, value in values.items()}, value_type)} as {name}"


def _block(blocks: str, row: str) -> str:
    return f"get({blocks}.blocks, cast({row} div {blocks}.size as int))"


def _holds(interval: str, number: str) -> str:
    return f"{number} >= {interval}[0] and {number} < {interval}[1]"


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name
