"""The batches of a segment as columns. A segment index may name thousands of files, and an object for each is slow.

The content of an index is untrusted. This module checks whole columns at once, so that callers need not check rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eoslog.errors import CorruptRecord
from eoslog.format.partition_rows import BATCHES_SCHEMA, NULLABLE_IN_BATCHES
from eoslog.format.stored_columns import LARGEST_OFFSET, each_of, stored_batches
from eoslog.state.entry_fields import FileReference
from eoslog.state.partition_state import Batch, Control, Outcome

Numbers = npt.NDArray[np.int64]

NO_CONTROL = -1
"""The value in the column ``control`` of a batch that is not a control row."""

_ROWS_AT_ONCE = 128
_END_OF_TIMES_MS = 2**53
_OUTCOMES = tuple(Outcome)
_CODES = {outcome.value: code for code, outcome in enumerate(_OUTCOMES)}
_LONGEST_PATH = 2048
# As ``FileReference`` has it: printable ASCII without backslashes, and no part that is empty, "." or "..".
_OTHER = r"[\x20-\x2d\x30-\x5b\x5d-\x7e]"
_ANY = r"[\x20-\x2e\x30-\x5b\x5d-\x7e]"
_PART = rf"(?:{_OTHER}{_ANY}*|\.{_OTHER}{_ANY}*|\.\.{_ANY}+)"
_PATH = rf"\A{_PART}(?:/{_PART})*\z"
_FILE_FIELDS = ("path", "length", "crc32c")
_FOOTER_CRC32C = "footer_crc32c"
_ELSEWHERE = ("in_record", "shared")
"""The fields of a file that is not an object of its own."""


class BatchColumns:
    """The batches and control rows of a segment, in the order of their offsets. Each has one row in every column.

    The columns have the names and meanings of the fields of ``Batch``. Callers must not change their values.
    """

    def __init__(self, rows: pa.RecordBatch) -> None:
        """Check the rows of a segment index.

        Raises:
            CorruptRecord: the rows cannot be the batches of a segment.
        """
        rows.validate(full=True)
        self.base_offset = _numbers(rows, "base_offset")
        self.record_count = _numbers(rows, "record_count")
        self.last_offset_delta = _numbers(rows, "last_offset_delta")
        self.first_row = _numbers(rows, "first_row")
        self.control = _controls(_column(rows, "control"))
        """The type of a control row; ``NO_CONTROL`` for a batch."""
        self.slot = _numbers(rows, "slot")
        self.end_slot = _numbers(rows, "end_slot")
        self.end_time_ms = _numbers(rows, "end_time_ms")
        self.producer_id = _numbers(rows, "producer_id")
        self.producer_epoch = _numbers(rows, "producer_epoch")
        self.base_sequence = _numbers(rows, "base_sequence")
        self.min_timestamp = _numbers(rows, "min_timestamp")
        self.max_timestamp = _numbers(rows, "max_timestamp")
        self.delete_horizon_ms = _numbers(rows, "delete_horizon_ms")
        self.transactional: npt.NDArray[np.bool_] = _column(rows, "transactional").to_numpy(zero_copy_only=False)
        self.outcome = _outcomes(_column(rows, "outcome"))
        """The code of each row's outcome (``_CODES``)."""
        self.transactional_id = _text(_column(rows, "transactional_id"))
        self.statistics = _text(_column(rows, "statistics"))
        self.path, self.length, self.crc32c, self.footer_crc32c = _files(_column(rows, "file"))
        """The fields of the file. Without a file, the path is null and the numbers are -1."""
        self._check()
        self.end_offset: Numbers = self.base_offset + self.last_offset_delta + 1
        """The end of the batch's offsets (exclusive)."""

    def __len__(self) -> int:
        return len(self.base_offset)

    @property
    def bytes(self) -> int:
        """The approximate memory of the columns in bytes."""
        return sum(column.nbytes for column in vars(self).values() if column is not None)

    @cached_property
    def _file_numbers(self) -> npt.NDArray[np.int32] | None:
        """For each batch, a number of its file; None if each batch has a file of its own."""
        if not self.path.null_count and not self.first_row.any() and len(self.path.unique()) == len(self):
            return None
        codes = self.path.dictionary_encode()
        found: npt.NDArray[np.int32] = codes.indices.fill_null(len(codes.dictionary)).to_numpy(zero_copy_only=False)
        return found

    @cached_property
    def file_rows(self) -> Numbers:
        """For each batch, the number of rows of its whole file. All batches of a file are in one segment's index."""
        if self._file_numbers is None:
            return self.record_count
        rows = np.zeros(len(self), np.int64)
        np.add.at(rows, self._file_numbers, np.where(self.length >= 0, self.record_count, 0))
        found: Numbers = rows[self._file_numbers]
        return found

    @cached_property
    def file_base_offset(self) -> Numbers:
        """For each batch, the base offset of the first batch of its file."""
        if self._file_numbers is None:
            return self.base_offset
        bases = np.full(len(self), np.iinfo(np.int64).max)
        np.minimum.at(bases, self._file_numbers, self.base_offset)
        found: Numbers = bases[self._file_numbers]
        return found

    def file_number(self, rows: Numbers) -> npt.NDArray[np.integer[Any]]:
        """For each of these batches, return a number of its file. Batches of one file have the same number."""
        return rows if self._file_numbers is None else self._file_numbers[rows]

    def files(self, rows: Numbers) -> Iterator[FileReference | None]:
        """For each of these batches, yield its file; None for a control row, and for a batch without rows."""
        return _file_of_each(
            self.path.take(pa.array(rows)).to_pylist(),
            self.length[rows].tolist(),
            self.crc32c[rows].tolist(),
            self.footer_crc32c[rows].tolist(),
        )

    @property
    def is_committed(self) -> npt.NDArray[np.bool_]:
        """For each row, True if its transaction is committed."""
        found: npt.NDArray[np.bool_] = self.outcome == _CODES[Outcome.COMMITTED.value]
        return found

    def between(self, start: int, end: int) -> range:
        """Return the numbers of the rows that overlap the offsets from ``start`` to ``end`` (exclusive)."""
        first = int(np.searchsorted(self.end_offset, start, side="right"))
        return range(first, max(first, int(np.searchsorted(self.base_offset, end, side="left"))))

    def batches(self, rows: range | None = None) -> Iterator[Batch]:
        """Yield these rows as objects; None yields all. It makes few at a time, as a caller may need only a few."""
        rows = range(len(self)) if rows is None else rows
        for first in range(rows.start, rows.stop, _ROWS_AT_ONCE):
            yield from self.taken(np.arange(first, min(rows.stop, first + _ROWS_AT_ONCE)))

    def taken(self, rows: Numbers) -> Iterator[Batch]:
        """Return the rows with these numbers as objects."""
        taken = pa.array(rows)
        return each_of(
            Batch,
            base_offset=self.base_offset[rows].tolist(),
            record_count=self.record_count[rows].tolist(),
            last_offset_delta=self.last_offset_delta[rows].tolist(),
            file=self.files(rows),
            first_row=self.first_row[rows].tolist(),
            control=[None if each == NO_CONTROL else Control(each) for each in self.control[rows].tolist()],
            slot=self.slot[rows].tolist(),
            end_slot=self.end_slot[rows].tolist(),
            end_time_ms=self.end_time_ms[rows].tolist(),
            outcome=[_OUTCOMES[each] for each in self.outcome[rows].tolist()],
            transactional_id=self.transactional_id.take(taken).to_pylist(),
            producer_id=self.producer_id[rows].tolist(),
            producer_epoch=self.producer_epoch[rows].tolist(),
            base_sequence=self.base_sequence[rows].tolist(),
            min_timestamp=self.min_timestamp[rows].tolist(),
            max_timestamp=self.max_timestamp[rows].tolist(),
            transactional=self.transactional[rows].tolist(),
            delete_horizon_ms=self.delete_horizon_ms[rows].tolist(),
            statistics=self.statistics.take(taken).to_pylist(),
        )

    def _check(self) -> None:
        """Make the checks of ``check_batches`` for all rows at once."""
        has_file = self.length >= 0
        is_control = self.control != NO_CONTROL
        # No sum may overflow, so each check relies on the limits that the checks before it have established.
        self._refuse(self.base_offset < 0, "has a negative offset")
        self._refuse(
            (self.last_offset_delta < 0) | (self.last_offset_delta > LARGEST_OFFSET - 1 - self.base_offset),
            "ends before it begins, or beyond the last offset that there can be",
        )
        ends = self.base_offset + self.last_offset_delta
        self._refuse(np.append(False, ends[:-1] >= self.base_offset[1:]), "does not follow the batch before it")
        self._refuse(
            (self.record_count < 0) | (self.record_count - 1 > self.last_offset_delta),
            "has more rows than offsets, or a negative number of rows",
        )
        self._refuse(
            (self.first_row < 0) | (self.slot < -1) | (self.end_slot < -1) | (self.base_sequence < -1),
            "has a negative row, slot or sequence",
        )
        self._refuse(
            (self.end_time_ms < -1) | (self.end_time_ms >= _END_OF_TIMES_MS), "has a time that no store can have"
        )
        self._refuse(
            has_file != ((self.record_count > 0) & ~is_control), "has rows without a file, or a file without rows"
        )
        self._refuse(is_control & (self.last_offset_delta != 0), "is a control row of more than one offset")

    def _refuse(self, wrong: npt.NDArray[np.bool_], problem: str) -> None:
        if wrong.any():
            raise CorruptRecord(f"the batch at offset {self.base_offset[int(wrong.argmax())]} {problem}")


def decode_batches(body: bytes) -> BatchColumns:
    """Decode the batches of a segment from the bytes of its index.

    Raises:
        CorruptRecord: the rows cannot come from an index.
        Exception: any error of Arrow if the bytes are not Parquet.
    """
    batches = list(stored_batches(body, BATCHES_SCHEMA, NULLABLE_IN_BATCHES, all_at_once=True))
    if not batches:
        return BatchColumns(pa.RecordBatch.from_pylist([], schema=BATCHES_SCHEMA))
    if len(batches) > 1:
        batches = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return BatchColumns(batches[0])


def _column(rows: pa.RecordBatch, name: str) -> Any:
    """Return a column. If an older version did not write it yet, it is all null."""
    index = rows.schema.get_field_index(name)
    if index >= 0:
        return rows.column(index)
    if name not in Batch._field_defaults:
        raise CorruptRecord(f"column {name} is missing")
    return pa.nulls(rows.num_rows, BATCHES_SCHEMA.field(name).type)


def _numbers(rows: pa.RecordBatch, name: str) -> Numbers:
    return _whole(_column(rows, name))


def _whole(column: Any) -> Numbers:
    """Return a column as integers, with -1 for null. Nullable columns never contain -1 as a value."""
    if column.null_count == len(column):
        return np.full(len(column), -1, np.int64)
    if column.null_count:
        column = column.fill_null(-1)
    if column.type == pa.uint64():
        column = column.cast(pa.int64())
    found: Numbers = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return found


def _controls(column: Any) -> Numbers:
    found = _whole(column)
    known = np.isin(found, [control.value for control in Control])
    if np.count_nonzero(known) < len(column) - column.null_count:
        raise CorruptRecord("a control row has an unknown type")
    return found


def _text(column: Any) -> Any:
    return column.cast(pa.string()) if pa.types.is_null(column.type) else column


def _outcomes(column: Any) -> npt.NDArray[np.int8]:
    encoded = column.dictionary_encode()
    try:
        codes = np.array([_CODES[each] for each in encoded.dictionary.to_pylist()], np.int8)
    except KeyError as error:
        raise CorruptRecord(f"a transaction cannot have the outcome {error}") from None
    found: npt.NDArray[np.int8] = codes[encoded.indices.to_numpy(zero_copy_only=False)]
    return found


def _files(column: Any) -> tuple[Any, Numbers, Numbers, Numbers]:
    if pa.types.is_null(column.type):
        return _text(column), _whole(column), _whole(column), _whole(column)
    fields = dict(zip((field.name for field in column.type), column.flatten(), strict=True))
    if not fields.keys() >= set(_FILE_FIELDS):
        raise CorruptRecord("column file does not have the fields of a file")
    path, lengths, checksums = _text(fields["path"]), _whole(fields["length"]), _whole(fields["crc32c"])
    count = len(column) - column.null_count
    for name, numbers, end in (("length", lengths, 2**53), ("crc32c", checksums, 2**32)):
        if np.count_nonzero((numbers >= 0) & (numbers < end)) != count:
            raise CorruptRecord(f"a file's {name} is not a number from 0 to {end - 1}")
    # After a seal, thousands of batches share a file.
    paths = path.unique().drop_null()
    sound = pc.match_substring_regex(paths, pattern=_PATH).to_numpy(zero_copy_only=False)
    if not sound.all() or (pc.binary_length(paths).to_numpy() > _LONGEST_PATH).any():
        raise CorruptRecord(
            "a file's path is not a path within a store, or has characters that are not printable ASCII"
        )
    if any(fields[name].null_count < len(column) for name in _ELSEWHERE if name in fields):
        raise CorruptRecord("a file of a sealed segment is not an object of its own")
    footers = _whole(fields[_FOOTER_CRC32C]) if _FOOTER_CRC32C in fields else np.full(len(column), -1, np.int64)
    if ((footers < -1) | (footers >= 2**32)).any():
        raise CorruptRecord(f"a file's {_FOOTER_CRC32C} is not a number from 0 to {2**32 - 1}")
    return path, lengths, checksums, footers


def _file_of_each(*columns: list[Any]) -> Iterator[FileReference | None]:
    """Yield the file of each row. Neighboring rows of one file have the same object, because making one is slow."""
    before: tuple[Any, ...] = ()
    file: FileReference | None = None
    for row in zip(*columns, strict=True):
        if row != before:
            before, file = row, _file(*row)
        yield file


def _file(path: str | None, length: int, crc32c: int, footer: int) -> FileReference | None:
    # The columns have been checked as a whole. Validating each file again would take most of a plan's time.
    if path is None:
        return None
    return FileReference.model_construct(
        path=path, length=length, crc32c=crc32c, footer_crc32c=None if footer < 0 else footer
    )
