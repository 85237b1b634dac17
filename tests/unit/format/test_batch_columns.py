"""Batches as columns: as they were written, and refused where no segment can hold them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from eoslog.errors import CorruptRecord
from eoslog.format.batch_columns import BatchColumns
from eoslog.format.partition_rows import BATCHES_SCHEMA, batch_row
from eoslog.format.segment_index import encode_segment_index, iterate_segment_index
from eoslog.format.stored_columns import LARGEST_OFFSET, check_batches
from eoslog.state.entry_fields import FileReference
from eoslog.state.partition_state import Batch, Control, Outcome

FILE = FileReference(path="00/t/0/a.parquet", length=100, crc32c=2**32 - 1, footer_crc32c=2**32 - 1)
OLDER_FILE = FileReference(path="00/t/0/b.parquet", length=100, crc32c=0)
ROWS = Batch(10, 3, 2, FILE, 4, None, 5, 6, 7, Outcome.COMMITTED, "writer", 8, 9, 10, 11, 12, True, 13, '{"n":[0,1,2]}')
MARKER = Batch(13, 1, 0, None, 0, Control.ABORT, 7, 7, 7, Outcome.ABORTED, None, 8, 9, -1, 11, 12, True)
EMPTY = Batch(14, 0, 5, None, 0, None, 8, -1, -1, Outcome.OPEN, None, 8, 9, 20, -1, -1, False)
OLDER = ROWS._replace(base_offset=20, file=OLDER_FILE)
BATCHES = [ROWS, MARKER, EMPTY, OLDER]


def columns_of(rows: list[dict[str, Any]], schema: pa.Schema = BATCHES_SCHEMA) -> BatchColumns:
    return BatchColumns(pa.RecordBatch.from_pylist(rows, schema=schema))


def test_batches_come_back_as_they_were() -> None:
    body = encode_segment_index(BATCHES, b"")

    assert list(iterate_segment_index(body, "index")) == BATCHES


def test_more_batches_than_are_handled_at_once_come_back_in_their_order() -> None:
    batches = [ROWS._replace(base_offset=3 * number) for number in range(5000)]
    body = encode_segment_index(batches, b"")

    assert list(iterate_segment_index(body, "index")) == batches


def test_a_batch_of_small_commits_takes_few_bytes_of_an_index() -> None:
    batches = [
        ROWS._replace(base_offset=4 * number, slot=number, end_slot=number, end_time_ms=10**12 + 13 * number)
        for number in range(5000)
    ]

    assert len(encode_segment_index(batches, b"")) < 2 * len(batches)


def test_an_index_without_batches_is_read() -> None:
    assert list(iterate_segment_index(encode_segment_index([], b""), "index")) == []


def test_the_rows_of_a_file_are_those_of_all_its_batches() -> None:
    rows = [ROWS, ROWS._replace(base_offset=20, first_row=7), MARKER._replace(base_offset=30)]

    columns = columns_of([batch_row(batch) for batch in rows])

    assert columns.file_rows.tolist() == [6, 6, 0]


def test_a_column_of_another_whole_number_type_is_read() -> None:
    schema = pa.schema(
        [pa.field(each.name, pa.uint64() if each.name == "slot" else each.type) for each in BATCHES_SCHEMA]
    )

    columns = columns_of([batch_row(batch) for batch in BATCHES], schema)

    assert list(columns.batches()) == BATCHES


WRONG: dict[str, list[dict[str, Any]]] = {
    "a negative offset": [{"base_offset": -1}],
    "offsets beyond the last": [{"base_offset": LARGEST_OFFSET}],
    "a length that overflows": [{"last_offset_delta": LARGEST_OFFSET}],
    "a negative length": [{"last_offset_delta": -1}],
    "an overlap": [{}, {"base_offset": 12}],
    "the wrong order": [{}, {"base_offset": 0}],
    "more rows than offsets": [{"record_count": 4}],
    "as many rows as there are numbers": [{"record_count": LARGEST_OFFSET}],
    "fewer rows than none": [{"record_count": -1}],
    "a negative row": [{"first_row": -1}],
    "a negative slot": [{"slot": -2}],
    "a negative end": [{"end_slot": -2}],
    "a negative time": [{"end_time_ms": -2}],
    "rows without a file": [{"file": None}],
    "a file without rows": [{"record_count": 0}],
    "a control row with a file": [{"control": 0}],
    "a long control row": [{"control": 0, "file": None, "record_count": 1}],
    "an unknown control row": [{"control": 2, "file": None, "record_count": 1, "last_offset_delta": 0}],
    "a control row of -1": [{"control": -1}],
    "an unknown outcome": [{"outcome": "maybe"}],
    "a negative file length": [{"file": {"path": "a", "length": -1, "crc32c": 0}}],
    "a large file length": [{"file": {"path": "a", "length": 2**53, "crc32c": 0}}],
    "a large checksum": [{"file": {"path": "a", "length": 0, "crc32c": 2**32}}],
    "a large checksum of a footer": [{"file": {"path": "a", "length": 0, "crc32c": 0, "footer_crc32c": 2**32}}],
    "a negative checksum of a footer": [{"file": {"path": "a", "length": 0, "crc32c": 0, "footer_crc32c": -2}}],
    "no path": [{"file": {"path": "", "length": 0, "crc32c": 0}}],
    "a long path": [{"file": {"path": "a" * 2049, "length": 0, "crc32c": 0}}],
}


@pytest.mark.parametrize("changes", WRONG.values(), ids=WRONG)
def test_batches_that_no_segment_can_hold_are_refused(changes: list[dict[str, Any]]) -> None:
    rows = [batch_row(ROWS) | change for change in changes]

    with pytest.raises(CorruptRecord):
        columns_of(rows)


def test_an_index_without_the_checksums_of_footers_is_read() -> None:
    file: Any = pa.struct([each for each in BATCHES_SCHEMA.field("file").type if each.name != "footer_crc32c"])
    schema = pa.schema([pa.field("file", file) if each.name == "file" else each for each in BATCHES_SCHEMA])

    columns = columns_of([batch_row(batch) for batch in [ROWS, OLDER]], schema)

    assert [batch.file and batch.file.footer_crc32c for batch in columns.batches()] == [None, None]


@pytest.mark.parametrize(
    "field", [*sorted(set(Batch._fields) - set(Batch._field_defaults)), "path", "length", "crc32c"]
)
def test_a_missing_column_is_refused(field: str) -> None:
    fields = [each for each in BATCHES_SCHEMA if each.name != field]
    if field not in Batch._fields:
        file: Any = pa.struct([each for each in BATCHES_SCHEMA.field("file").type if each.name != field])
        fields = [pa.field("file", file) if each.name == "file" else each for each in fields]

    with pytest.raises(CorruptRecord):
        columns_of([batch_row(batch) for batch in BATCHES], pa.schema(fields))


@pytest.mark.parametrize(
    "path",
    [
        "a",
        "a/b.parquet",
        ".a",
        "..a",
        "...",
        "a.",
        "a..",
        "a b/~",
        "a/.b/..c/d",
        "/a",
        "a/",
        "a//b",
        ".",
        "..",
        "a/.",
        "a/..",
        "./a",
        "../a",
        "a/./b",
        "a/../b",
        "s3://a",
        "a\\b",
        "a\x00b",
        "a\nb",
        "a\n",
        "a\x7f",
        "ä",
        "\U0001f600",
    ],
)
def test_paths_are_those_that_an_entry_may_name(path: str) -> None:
    file = {"path": path, "length": 1, "crc32c": 1}
    try:
        is_allowed = FileReference.model_validate(file) is not None
    except ValidationError:
        is_allowed = False

    try:
        columns_of([batch_row(ROWS) | {"file": file}])
        is_read = True
    except CorruptRecord:
        is_read = False

    assert is_read == is_allowed


@pytest.mark.parametrize("field", ["base_offset", "record_count", "last_offset_delta", "first_row", "slot"])
def test_columns_are_refused_as_objects_are(field: str) -> None:
    first = ROWS._replace(base_offset=0)
    refused = []
    for value in (-2, -1, 0, 1, 2, 3, 9, 10, 11, 12, 13):
        batch = ROWS._replace(**{field: value})
        try:
            check_batches([first, batch], 0, LARGEST_OFFSET)
            is_sound = True
        except CorruptRecord:
            is_sound = False
        try:
            columns_of([batch_row(first), batch_row(batch)])
        except CorruptRecord:
            refused.append(value)
        assert (value in refused) is not is_sound, value
    assert refused
