"""Facts about a data file that only the log knows: which rows to read, and their offsets and timestamps.

A native scan lets Spark read the files. A plan becomes one ``PlannedFile`` for each file. Its rows are counted from 0
in the file, as Spark counts them in ``_metadata.row_index``.

``file_expressions`` is the SQL by which Spark looks these facts up for each row. The name of the row's file is the key
of a literal, which Spark parses once, when it plans. Spark searches a map from its beginning. So the literal for many
files is an array of small maps, and a hash of the name chooses one. For few files it is one map, because Spark spends
about as long on the analysis of the longer expression as on the rest of a small query.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple
from zlib import crc32

import pyarrow as pa

from eoslog.errors import CorruptRecord
from eoslog.format.data_file import OFFSET_DELTA_COLUMN
from eoslog.format.statistics import may_hold_nan
from eoslog.read.embedded_files import EmbeddedFile, embedded_file_of
from eoslog.read.file_rows import FileRows
from eoslog.read.planner import PartitionPlan

_PLAIN_NAME = re.compile(r"[A-Za-z0-9-]+\.parquet")
Interval = tuple[int, int, int]
"""First row, end row (exclusive), and a number that belongs to these rows."""
_FEW_FILES = 16
"""The largest number of files whose names are searched without a hash."""
_NONE: frozenset[str] = frozenset()
_ROW_INDEX = "_metadata.row_index"
_BLOCKS = "size:bigint,blocks:array<array<array<bigint>>>"


class RowInterval(NamedTuple):
    """Consecutive rows of a file."""

    first_row: int
    end_row: int
    """The end row (exclusive)."""


class TimedRows(NamedTuple):
    """Rows of batches with one timestamp."""

    rows: RowInterval
    timestamp: int
    """The batches' largest timestamp (ms)."""


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """The facts about one data file of a plan that Spark's Parquet reader does not find in the file."""

    path: str
    """The path below the store's root."""
    length: int
    partition: int
    first_offset: int | None
    """The offset of row 0, if the rows have consecutive offsets; None if rows were removed between them."""
    base_offset: int
    """The offset from which the file's column ``_offset_delta`` counts."""
    hidden_rows: bool
    """True if some rows of the file must not be read."""
    visible: tuple[RowInterval, ...]
    offsets: tuple[int, int] | None
    """If a batch with gaps is read only in part: the first offset to read, and the end (exclusive)."""
    times: tuple[TimedRows, ...]
    may_hold_nan: frozenset[str] = frozenset()
    """The floating-point columns that are read and may hold NaN, by the statistics in the log."""
    embedded_file: EmbeddedFile | None = None
    """The file in its record or shared object; None if it is an object of its own."""

    @property
    def name(self) -> str:
        """The name without directories; it holds 128 random bits."""
        return self.path.rsplit("/", 1)[-1]


def planned_files(
    plans: Iterable[PartitionPlan], floats: Mapping[str, pa.DataType] = MappingProxyType({})
) -> list[PlannedFile]:
    """Return the data files of a read of one topic, each once. Control rows are in no file.

    Args:
        floats: the floating-point columns that are read, with their types.
    """
    found = []
    for plan in plans:
        with_nan = _may_hold_nan(plan, floats)
        found += [_planned_file(plan, rows, with_nan) for rows in plan.rows if rows.file is not None]
    return found


def _may_hold_nan(plan: PartitionPlan, floats: Mapping[str, pa.DataType]) -> dict[str, frozenset[str]]:
    """Return the floating-point columns that may hold NaN, by the path of the file."""
    found: dict[str, frozenset[str]] = {}
    if not floats:
        return found
    for path, statistics in plan.rows.statistics():
        found[path] = found.get(path, _NONE) | may_hold_nan(statistics, floats)
    return found


def _planned_file(plan: PartitionPlan, rows: FileRows, with_nan: Mapping[str, frozenset[str]]) -> PlannedFile:
    assert rows.file is not None
    batches = rows.in_file
    ends = batches.first_row + batches.record_count
    ranges = list(map(RowInterval, batches.first_row.tolist(), ends.tolist()))
    first_offsets = batches.base_offset - batches.first_row
    is_consecutive = not rows.has_gaps and (first_offsets == first_offsets[0]).all()
    visible = tuple(each for each, _ in _joined((each, 0) for each in ranges))
    offsets = _cut(plan, rows)
    return PlannedFile(
        path=rows.file.path,
        length=rows.file.length,
        partition=plan.partition,
        first_offset=int(first_offsets[0]) if is_consecutive else None,
        base_offset=rows.file_base_offset,
        hidden_rows=visible != (RowInterval(0, rows.file_rows),) or offsets is not None,
        visible=visible,
        offsets=offsets,
        times=tuple(TimedRows(*each) for each in _joined(zip(ranges, batches.timestamp.tolist(), strict=True))),
        may_hold_nan=with_nan.get(rows.file.path, _NONE),
        embedded_file=embedded_file_of(rows),
    )


def _cut(plan: PartitionPlan, rows: FileRows) -> tuple[int, int] | None:
    """Return the offsets to read if the plan begins or ends within a batch with gaps. Other batches are cut by rows."""
    batches = rows.in_file
    start, end = int(batches.base_offset[0]), int(batches.end_offset[-1])
    begins_within = batches.has_gaps[0] and start == plan.start_offset
    ends_within = batches.has_gaps[-1] and end == plan.end_offset
    return (start, end) if begins_within or ends_within else None


def _joined(pieces: Iterable[tuple[RowInterval, int]]) -> list[tuple[RowInterval, int]]:
    """Join neighboring ranges of rows that have the same number."""
    joined: list[tuple[RowInterval, int]] = []
    for rows, number in pieces:
        if joined and joined[-1] == (RowInterval(joined[-1][0].first_row, rows.first_row), number):
            joined[-1] = (RowInterval(joined[-1][0].first_row, rows.end_row), number)
        else:
            joined.append((rows, number))
    return joined


def by_file_name(values: Mapping[str, Any], value_type: str) -> str:
    """Return SQL for the value that belongs to the file of a row.

    Args:
        values: the values by the name of the file, for each file that is read. JSON can hold them.
        value_type: the type of the values, as Spark names it.
    """
    file_name = "_metadata.file_name"
    if len(values) <= _FEW_FILES:
        literal = json.dumps(dict(values), separators=(",", ":"))
        return f"try_element_at(from_json('{literal}', 'map<string,{value_type}>'), {file_name})"
    buckets: list[dict[str, Any]] = [{} for _ in values]
    for name, value in values.items():
        buckets[crc32(name.encode()) % len(buckets)][name] = value
    literal = json.dumps(buckets, separators=(",", ":"))
    bucket = f"cast(pmod(crc32(cast({file_name} as binary)), {len(buckets)}L) as int)"
    return f"try_element_at(get(from_json('{literal}', 'array<map<string,{value_type}>>'), {bucket}), {file_name})"


def in_blocks(intervals: Sequence[Interval]) -> dict[str, Any]:
    """Return an index of intervals of rows, so that SQL finds the interval of a row without a search.

    The rows are divided into blocks of equal size. Each block lists the intervals that overlap it. There are about as
    many blocks as intervals, so a block lists few intervals.
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
    """SQL expressions for the facts that the log knows of a row."""

    columns: tuple[str, ...]
    """Auxiliary columns, to which the other expressions refer. Without them the other expressions stand alone."""
    condition: str | None
    """The condition for the rows to read; None if all rows are read."""
    partition: str
    offset: str
    timestamp: str


def check_names(files: Iterable[PlannedFile]) -> None:
    """Check the names that Spark gets. A log is hostile input.

    Raises:
        CorruptRecord: a file has a name that no writer gives.
    """
    for file in files:
        if not _PLAIN_NAME.fullmatch(file.name):
            raise CorruptRecord(f"data file {file.path!r} has a name that no writer gives")


def file_expressions(files: Sequence[PlannedFile], taken: Iterable[str]) -> FileExpressions:
    """Return the SQL for rows of these files.

    Args:
        taken: the names of other columns. No auxiliary column gets one of them.

    Raises:
        CorruptRecord: a file has a name that no writer gives.
    """
    check_names(files)
    others = {name.lower() for name in taken}
    known, row, times, visible = (_unused(name, others) for name in ("file", "row", "times", "visible"))
    mixed = [each for each in files if _only_time(each) is None]
    facts = {each: [each.partition, each.first_offset, _only_time(each), each.base_offset] for each in files}
    columns: list[str] = []
    if len(files) <= _FEW_FILES and not mixed and not any(each.hidden_rows for each in files):
        # Spark takes longer to analyze one more projection than to parse a short literal for each fact.
        row = _ROW_INDEX
        partition, first_offset, timestamp, base_offset = (
            _fact({file.name: found[number] for file, found in facts.items()}) for number in range(4)
        )
    else:
        columns = [f"{_ROW_INDEX} as {row}", _column(known, "array<bigint>", facts)]
        partition, first_offset, timestamp, base_offset = (f"{known}[{number}]" for number in range(4))
    offset = f"({first_offset} + {row})"
    if any(each.first_offset is None for each in files):
        offset = f"coalesce({offset}, {base_offset} + {OFFSET_DELTA_COLUMN.name})"
    if mixed:
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
        columns=tuple(columns),
        condition=condition,
        partition=f"cast({partition} as int)",
        offset=offset,
        timestamp=f"timestamp_millis({timestamp})",
    )


def _fact(values: Mapping[str, int | None]) -> str:
    """Return nullable SQL for the number that belongs to the file of a row."""
    if len(only := set(values.values())) == 1 and (value := only.pop()) is not None:
        return f"nullif({value}L, {~value}L)"
    return by_file_name(values, "bigint")


def _only_time(file: PlannedFile) -> int | None:
    """Return the timestamp of all rows of a file (ms); None if the rows have several."""
    return file.times[0].timestamp if len({each.timestamp for each in file.times}) == 1 else None


def _visible(file: PlannedFile) -> dict[str, Any]:
    """Return the facts that tell the visible rows of a file, as JSON holds them."""
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
