"""SQL for what the log knows of a file: short to search, and of no name that could end the literal."""

from __future__ import annotations

import json
import re
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.errors import CorruptRecord
from pyspark_eoslog.native.lookup import PlannedFile, RowInterval, TimedRows, by_file_name, file_expressions, in_blocks


def planned(name: str = "0a.parquet", times: tuple[int, ...] = (5,)) -> PlannedFile:
    timed = tuple(TimedRows(RowInterval(row, row + 1), time) for row, time in enumerate(times))
    return PlannedFile(f"t/0/{name}", 10, 3, 7, 7, False, (RowInterval(0, len(times)),), None, timed)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=1, max_size=40))
def test_the_interval_of_a_row_is_found_in_its_block(gaps_and_lengths: list[tuple[int, int]]) -> None:
    intervals = []
    end = 0
    for number, (gap, length) in enumerate(gaps_and_lengths):
        intervals.append((end + gap, end + gap + length, number))
        end += gap + length

    found = in_blocks(intervals)

    assert len(found["blocks"]) <= len(intervals)
    assert sum(map(len, found["blocks"])) <= 2 * len(intervals)
    for row in range(end):
        block = found["blocks"][row // found["size"]]
        assert [each for each in block if each[0] <= row < each[1]] == [
            each for each in intervals if each[0] <= row < each[1]
        ]


def test_ten_thousand_files_are_found_in_small_maps() -> None:
    names = [f"{number:032x}.parquet" for number in range(10_000)]

    sql = by_file_name({name: number for number, name in enumerate(names)}, "bigint")

    literal = re.search("from_json\\('(.*?)'", sql)
    assert literal is not None
    buckets = json.loads(literal[1])
    assert all(buckets[crc32(name.encode()) % 10_000][name] == number for number, name in enumerate(names))
    assert max(map(len, buckets)) < 12


@pytest.mark.parametrize(("files", "hashed"), [(1, False), (16, False), (17, True)])
def test_few_files_are_found_without_a_hash(files: int, hashed: bool) -> None:
    sql = by_file_name({f"{number}.parquet": number for number in range(files)}, "bigint")

    assert ("crc32" in sql) == hashed
    assert sql.count("_metadata.file_name") == 1 + hashed


def test_helping_columns_take_nobodys_name() -> None:
    told = file_expressions([planned(times=(5, 6))], ["FILE", "file_", "row"])

    assert [column.rsplit(" as ", 1)[-1] for column in told.columns] == ["row_", "file__", "times"]
    assert told.offset == "(file__[1] + row_)"


def test_few_files_that_are_read_whole_need_no_helping_columns() -> None:
    """Spark analyzes one projection less."""
    assert not file_expressions([planned()] * 16, []).columns
    assert file_expressions([planned(f"{number}.parquet") for number in range(17)], []).columns


def test_a_file_whose_batches_have_one_time_is_not_searched_for_it() -> None:
    assert "filter(" not in file_expressions([planned(times=(5, 5))], []).timestamp
    assert "filter(" in file_expressions([planned(times=(5, 6))], []).timestamp


@pytest.mark.parametrize("name", ["it's.parquet", "x%20y.parquet", "_a.parquet", "a.parquet.crc"])
def test_a_name_that_no_writer_gives_is_refused(name: str) -> None:
    with pytest.raises(CorruptRecord, match="a name that no writer gives"):
        file_expressions([planned(name)], [])
