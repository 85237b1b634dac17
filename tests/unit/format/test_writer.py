"""The writer of data files: what it holds at a time is bounded, however much it is given and wherever the rows go."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from eoslog.format.file_writer import DataFileWriter, NewFile, Placement, TopicTarget, WrittenFile
from eoslog.format.partitioner import split_by_partition
from eoslog.storage.environment import Environment
from eoslog.storage.memory_store import MemoryStore

BUDGET = 1 << 20
ROWS = 1000
BATCHES = 40
"""Five times the budget."""
TARGET = TopicTarget("t", "a" * 32, (0,) * 1000)


class Counting(MemoryStore):
    """A store that forgets what is put, and knows how much was."""

    def __init__(self) -> None:
        super().__init__(Environment())
        self.put_bytes = 0

    def put_many(self, objects: list[tuple[str, bytes]]) -> None:  # type: ignore[override]
        self.put_bytes += sum(len(body) for _, body in objects)


@pytest.fixture
def writer() -> DataFileWriter:
    names = itertools.count()
    return DataFileWriter(Counting(), lambda: f"{next(names):032x}", buffer_bytes=BUDGET)


def batches(count: int) -> Iterator[pa.Table]:
    """Batches of 128 KB."""
    noise = np.random.default_rng(7)
    for _ in range(count):
        yield pa.table({f"c{column}": noise.integers(0, 1 << 62, ROWS) for column in range(16)})


def write(writer: DataFileWriter, count: int, places: Iterator[int]) -> tuple[list[WrittenFile], int, int]:
    """Deal batches out to partitions; the files, and the most bytes counted and held by Arrow after any of them."""
    files: list[WrittenFile] = []
    before = pa.total_allocated_bytes()
    counted = held = 0
    for table in batches(count):
        dealt = np.fromiter(itertools.islice(places, ROWS), np.int32, ROWS)
        for partition, rows in split_by_partition(table, dealt, 1000):
            writer.add(TARGET, partition, rows)
        del table, rows
        files += writer.make_room(0)
        counted = max(counted, writer.buffered_bytes)
        held = max(held, pa.total_allocated_bytes() - before)
    return [*files, *writer.flush(0)], counted, held


@pytest.mark.parametrize(
    "places",
    [
        pytest.param(itertools.repeat(3), id="one partition", marks=pytest.mark.slow),
        pytest.param(itertools.cycle(range(300)), id="a few rows of each batch to each of 300 partitions"),
        pytest.param(itertools.cycle([0] * 999 + [1]), id="nearly all to one partition"),
    ],
)
def test_the_writer_holds_a_bounded_number_of_bytes_and_loses_no_row(
    writer: DataFileWriter, places: Iterator[int]
) -> None:
    files, counted, held = write(writer, BATCHES, places)

    assert sum(file.record_count for file in files) == BATCHES * ROWS
    assert counted <= BUDGET
    # Twice the budget, and a batch with its dealt copy on the way.
    assert held < 3 * BUDGET
    assert writer.buffered_bytes == writer.buffered_rows == 0


def test_a_batch_larger_than_the_budget_is_uploaded_at_once(writer: DataFileWriter) -> None:
    table = pa.concat_tables(list(batches(20)))

    (file,) = writer.append(TARGET, 0, table, 0)

    assert file.record_count == 20 * ROWS
    assert writer.buffered_bytes == 0


def test_files_come_back_in_the_order_of_their_rows_wherever_they_go(writer: DataFileWriter) -> None:
    published = replace(TARGET, topic="p", topic_id="b" * 32, is_published=True)
    # One byte of noise per row: small, medium, large, medium, of a published topic, small.
    counts = [100, 20_000, 200_000, 21_000, 101, 102]
    targets = [TARGET, TARGET, TARGET, TARGET, published, TARGET]
    tables = [pa.table({"c": np.random.default_rng(7).integers(0, 256, count, np.uint8)}) for count in counts]
    placement = Placement(inline_bytes=10_000, room_bytes=20_000, shared_bytes=100_000)

    written = writer.write([NewFile(*each) for each in zip(targets, [0] * 6, tables, strict=True)], 0, placement)

    assert [file.record_count for file in written] == counts
    assert [file.content is not None for file in written] == [True, False, False, False, False, True]
    assert [file.shared is not None for file in written] == [False, True, False, True, False, False]
