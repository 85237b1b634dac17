"""A data file, row by row: it is what the log says of its rows, columns, offsets, timestamps and statistics.

One file is in memory, and of its rows a row group at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Context, Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eoslog.errors import CorruptRecord, without_code
from eoslog.rules.partition_state import Batch
from eoslog.rules.state import Topic
from eoslog.segment.data_file import OFFSET_COLUMN, check_file, encode_data_file, open_data_file, read_data_file
from eoslog.segment.rewriting import SourceFile
from eoslog.segment.statistics import ColumnBounds, Value, decode_statistics, order
from eoslog.segment.stored_schema import stored_schema

_TIMESTAMP = "timestamp"
_EXACT = Context(prec=38)


class Fault(NamedTuple):
    kind: str
    problem: str
    offsets: tuple[int, int] | None = None


def faults_in_data_file(topic: Topic, source: SourceFile, body: bytes) -> Iterator[Fault]:
    """What of a file is not what the log says of it; no more than its first faults of each kind."""
    try:
        check_file(body, source.file.length, source.file.crc32c, source.file.path)
    except CorruptRecord as error:
        yield Fault("data-damaged", without_code(error))
        return
    try:
        file = open_data_file(pa.BufferReader(body), source.file.path)
        found, rows = file.schema_arrow, file.metadata.num_rows
    except CorruptRecord as error:
        yield Fault("data-unreadable", without_code(error))
        return
    if rows != source.rows:
        yield Fault("data-rows-differ", f"it has {rows} rows, its entries say {source.rows}")
        return
    declared = stored_schema(topic)
    unlike = next(_unlike(found, _as_stored(declared)), None)
    if unlike is not None:
        yield Fault("data-schema-differs", unlike)
        return
    try:
        yield from _in_rows(topic, source, body, declared, has_offsets=OFFSET_COLUMN.name in found.names)
    except CorruptRecord as error:
        yield Fault("data-unreadable", without_code(error))


def _as_stored(declared: pa.Schema) -> pa.Schema:
    """The declared columns as Parquet gives them back: it does not keep every type of Arrow's."""
    empty = encode_data_file(declared.empty_table())
    return open_data_file(pa.BufferReader(empty), "the declared columns").schema_arrow.append(OFFSET_COLUMN)


def _unlike(found: pa.Schema, declared: pa.Schema) -> Iterator[str]:
    for field in found:
        if field.name not in declared.names:
            yield f"its column {field.name!r} is not the topic's"
        elif not _is_part(field.type, declared.field(field.name).type):
            yield f"its column {field.name!r} is {field.type}, the topic says {declared.field(field.name).type}"
    for field in declared:
        if not field.nullable and field.name not in found.names and field.name != OFFSET_COLUMN.name:
            yield f"it lacks the column {field.name!r}, which may not be null"


def _is_part(found: pa.DataType, declared: pa.DataType) -> bool:
    """Whether a type is the declared one, or one from before fields were added to it."""
    types = pa.types
    if types.is_struct(found) and types.is_struct(declared):
        known = {field.name: field.type for field in declared}
        return all(field.name in known and _is_part(field.type, known[field.name]) for field in found)
    if types.is_list(found) and types.is_list(declared):
        return _is_part(found.value_type, declared.value_type)
    if types.is_map(found) and types.is_map(declared):
        return _is_part(found.key_type, declared.key_type) and _is_part(found.item_type, declared.item_type)
    return bool(found == declared)


def _in_rows(
    topic: Topic, source: SourceFile, body: bytes, declared: pa.Schema, *, has_offsets: bool
) -> Iterator[Fault]:
    checks = [_BatchCheck(topic, batch, declared) for batch in source.batches]
    if not has_offsets and any(batch.has_gaps for batch in source.batches):
        yield Fault("data-offsets-differ", "rows were removed from it, and it does not tell the offsets of the others")
        return
    schema = declared.append(OFFSET_COLUMN) if has_offsets else declared
    begin, current = 0, 0
    for rows in read_data_file(
        body, schema, None, first_row=0, row_count=None, expected_rows=source.rows, name=source.file.path
    ):
        end = begin + rows.num_rows
        while current < len(checks):
            batch = checks[current].batch
            first, last = max(begin, batch.first_row), min(end, batch.first_row + batch.record_count)
            if first < last:
                yield from checks[current].add(rows.slice(first - begin, last - first))
            if batch.first_row + batch.record_count > end:
                break
            current += 1
        begin = end


class _BatchCheck:
    """Looks at the rows of one batch, piece by piece."""

    def __init__(self, topic: Topic, batch: Batch, declared: pa.Schema) -> None:
        self.batch = batch
        self._here = (batch.base_offset, batch.end_offset)
        self._next_offset = batch.base_offset
        self._is_records = topic.topic_schema.kind == "records"
        types: Mapping[str, Any] = {field.name: field.type for field in declared}
        self._bounds = {} if self._is_records else decode_statistics(batch.statistics, types)
        self._told: set[str] = set()

    def add(self, rows: pa.RecordBatch) -> Iterator[Fault]:
        for fault in self._faults(rows):
            if fault.kind not in self._told:
                self._told.add(fault.kind)
                yield fault

    def _faults(self, rows: pa.RecordBatch) -> Iterator[Fault]:
        if OFFSET_COLUMN.name in rows.schema.names:
            offsets = rows.column(OFFSET_COLUMN.name).to_numpy()
            steps = np.diff(offsets, prepend=self._next_offset - 1)
            if (steps < 1).any() or offsets[-1] >= self.batch.end_offset:
                yield Fault("data-offsets-differ", "its offsets do not rise within those of the batch", self._here)
            elif not self.batch.has_gaps and (steps != 1).any():
                yield Fault("data-offsets-differ", "its offsets leave some out, though no row was removed", self._here)
            self._next_offset = int(offsets[-1]) + 1
        if self._is_records:
            least, greatest = _ends(rows.column(_TIMESTAMP).cast(pa.int64()))
            if not self.batch.min_timestamp <= max(-1, least) <= max(-1, greatest) <= self.batch.max_timestamp:
                problem = (
                    f"its timestamps are {least} to {greatest} ms, its entry says "
                    f"{self.batch.min_timestamp} to {self.batch.max_timestamp}"
                )
                yield Fault("data-timestamps-differ", problem, self._here)
        for name, bounds in self._bounds.items():
            if name in rows.schema.names and not _holds(rows.column(name), bounds):
                yield Fault(
                    "data-statistics-false", f"column {name!r} has values beyond what is said of it", self._here
                )


def _ends(values: Any) -> tuple[Any, Any]:
    found = pc.min_max(values)
    return found["min"].as_py(), found["max"].as_py()


def _holds(values: Any, bounds: ColumnBounds) -> bool:
    if values.null_count and not bounds.has_nulls:
        return False
    values = values.drop_null()
    if not len(values):
        return True
    if not bounds.has_values:
        return False
    least, greatest = _least_and_greatest(values)
    return (bounds.least is None or order(bounds.least) <= order(least)) and (
        bounds.greatest is None or order(greatest) <= order(bounds.greatest)
    )


def _least_and_greatest(values: Any) -> tuple[Value, Value]:
    """As statistics have them: decimals as whole numbers of their last digit, times as their unit."""
    types = pa.types
    if types.is_floating(values.type):
        numbers = values.to_numpy(zero_copy_only=False).astype(np.float64)
        is_nan = np.isnan(numbers)
        ends = (float("nan"),) * 2 if is_nan.all() else (float(np.nanmin(numbers)), float(np.nanmax(numbers)))
        return ends[0], float("nan") if is_nan.any() else ends[1]
    if types.is_date32(values.type):
        values = values.cast(pa.int32())
    elif types.is_time64(values.type) or types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    least, greatest = _ends(values)
    if isinstance(least, Decimal):
        scale = values.type.scale
        return int(least.scaleb(scale, _EXACT)), int(greatest.scaleb(scale, _EXACT))
    return least, greatest
