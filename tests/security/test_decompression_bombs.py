"""Parquet files of some kilobytes that expand to far more are refused by what they claim, before it is decoded."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eoslog.errors import CorruptRecord
from eoslog.format.checkpoint_codec import restore
from eoslog.format.data_file import DataFile
from eoslog.format.segment_index import iterate_segment_index
from tests.fuzz.samples import checkpoint_parts
from tests.processes import PROCESSES

SMALL_BYTES = 64 << 10
MOST_MEMORY_BYTES = 8 << 20
MANY_ROWS = 16 << 20


def parquet(column: str, values: Any) -> bytes:
    """A file of one row group and one column, that says truly what it holds."""
    sink = io.BytesIO()
    pq.write_table(
        pa.table({column: values}),
        sink,
        compression="zstd",
        compression_level=19,
        use_dictionary=False,
        store_schema=False,
        row_group_size=len(values),
    )
    return sink.getvalue()


@pytest.fixture(scope="module")
def many_rows() -> bytes:
    """16 million rows: of numbers they would be 128 MiB."""
    bits = pa.py_buffer(bytes(MANY_ROWS // 8))
    return parquet("slot", pa.BooleanArray.from_buffers(pa.bool_(), MANY_ROWS, [None, bits]))


@pytest.fixture(scope="module")
def many_bytes() -> bytes:
    """A thousand rows of 128 KiB: 125 MiB."""
    return parquet("transactional_id", pa.array(["x" * (128 << 10)] * 1000))


def read_as_checkpoint_part(body: bytes) -> None:
    restore({**checkpoint_parts(), "transactions": body})


def read_as_segment_index(body: bytes) -> None:
    list(iterate_segment_index(body, "some/index"))


def read_as_data_file(body: bytes) -> None:
    list(DataFile(body, pa.schema([("slot", pa.int64())]), MANY_ROWS, name="some/file").batches())


def read_unchecked(body: bytes) -> None:
    pq.read_table(io.BytesIO(body))


class Refusal(NamedTuple):
    """How a read ended, and the most that Arrow held meanwhile (bytes)."""

    reason: str
    memory_bytes: int


def _refusal(read: Callable[[bytes], None], body: bytes) -> Refusal:
    reason = ""
    try:
        read(body)
    except CorruptRecord as error:
        reason = str(error)
    return Refusal(reason, pa.default_memory_pool().max_memory() or 0)


def refusal(read: Callable[[bytes], None], body: bytes) -> Refusal:
    """Read in a process of its own, whose memory has held nothing else."""
    with ProcessPoolExecutor(1, mp_context=PROCESSES) as processes:
        return processes.submit(_refusal, read, body).result()


def test_a_refusal_is_measured_against_the_memory_that_decoding_would_take(many_bytes: bytes) -> None:
    assert refusal(read_unchecked, many_bytes).memory_bytes > MOST_MEMORY_BYTES


def test_a_data_file_with_more_rows_than_allowed_is_not_decoded(many_rows: bytes) -> None:
    assert len(many_rows) < SMALL_BYTES

    reason, memory_bytes = refusal(read_as_data_file, many_rows)

    assert f"row group 0 claims {MANY_ROWS} rows" in reason
    assert memory_bytes < MOST_MEMORY_BYTES


@pytest.mark.parametrize("read", [read_as_checkpoint_part, read_as_segment_index])
def test_a_part_or_index_with_impossibly_many_rows_is_not_decoded(
    many_rows: bytes, read: Callable[[bytes], None]
) -> None:
    reason, memory_bytes = refusal(read, many_rows)

    assert f"{len(many_rows)} bytes claim to hold {MANY_ROWS} rows" in reason
    assert memory_bytes < MOST_MEMORY_BYTES


@pytest.mark.parametrize("read", [read_as_checkpoint_part, read_as_segment_index])
def test_a_part_or_index_that_expands_a_thousandfold_is_not_decoded(
    many_bytes: bytes, read: Callable[[bytes], None]
) -> None:
    assert len(many_bytes) < SMALL_BYTES

    reason, memory_bytes = refusal(read, many_bytes)

    assert re.search(rf"{len(many_bytes)} bytes claim to hold 1\d{{8}}", reason)
    assert memory_bytes < MOST_MEMORY_BYTES
