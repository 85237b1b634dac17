"""Rewriting data files: rows of several files go into one, which holds their offsets beside them.

Rows are streamed: one file that is read, and one that is written, are in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eoslog.rules.entry_fields import FileReference
from eoslog.rules.partition_state import Batch
from eoslog.segment.data_file import OFFSET_COLUMN, DataFileBuilder, crc32c, read_data_file
from eoslog.store.object_store import ObjectStore

TARGET_FILE_BYTES = 64 << 20
"""How large a rewritten file is meant to be: one task of a read fetches it whole."""


class SourceFile(NamedTuple):
    """A data file of a sealed segment, with its batches in the order of their rows."""

    file: FileReference
    batches: tuple[Batch, ...]

    @property
    def rows(self) -> int:
        return sum(batch.record_count for batch in self.batches)


def source_files(batches: Iterable[Batch]) -> list[SourceFile]:
    """The data files of a segment's batches, in the order of their offsets."""
    with_rows = (batch for batch in batches if batch.file is not None)
    found = []
    for _, group in groupby(with_rows, key=lambda batch: batch.file and batch.file.path):
        together = tuple(group)
        file = together[0].file
        assert file is not None
        found.append(SourceFile(file, together))
    return found


def row_offsets(source: SourceFile, body: bytes, stored: pa.Schema) -> npt.NDArray[np.int64]:
    """The offset of each row of a file. Only of batches with gaps they are read from the file.

    Raises:
        CorruptRecord
    """
    in_file = np.empty(0, np.int64)
    if any(batch.has_gaps for batch in source.batches):
        pieces = read_rows(source, body, stored, [OFFSET_COLUMN.name])
        in_file = np.concatenate([rows.column(0).to_numpy() for rows in pieces])
    return np.concatenate(
        [
            in_file[batch.first_row : batch.first_row + batch.record_count]
            if batch.has_gaps
            else np.arange(batch.base_offset, batch.base_offset + batch.record_count, dtype=np.int64)
            for batch in source.batches
        ]
    )


def read_rows(
    source: SourceFile, body: bytes, stored: pa.Schema, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """All rows of a file, with the topic's columns or these."""
    return read_data_file(
        body,
        stored if columns is None else stored.append(OFFSET_COLUMN),
        columns,
        first_row=0,
        row_count=None,
        expected_rows=source.rows,
        name=source.file.path,
    )


class RewrittenFile:
    """A data file that takes the rows of others."""

    def __init__(self, store: ObjectStore, path: str, stored: pa.Schema) -> None:
        self._store = store
        self._path = path
        self._stored = stored
        self._builder = DataFileBuilder(stored.append(OFFSET_COLUMN))

    @property
    def rows(self) -> int:
        return self._builder.rows

    def add(self, source: SourceFile, body: bytes, retained: npt.NDArray[np.bool_] | None = None) -> None:
        """Take the rows of a file, or those of them that are retained.

        Raises:
            CorruptRecord
        """
        offsets = row_offsets(source, body, self._stored)
        row = 0
        for rows in read_rows(source, body, self._stored):
            end = row + rows.num_rows
            placed = pa.Table.from_arrays(
                [*rows.columns, pa.array(offsets[row:end])], schema=self._stored.append(OFFSET_COLUMN)
            )
            self._builder.add(placed if retained is None else placed.filter(pa.array(retained[row:end])))
            row = end

    def upload(self) -> FileReference:
        """Write it to the store, where nobody sees it yet."""
        body = self._builder.finish()
        self._store.put_new([(self._path, body)])
        return FileReference(path=self._path, length=len(body), crc32c=crc32c(body))
