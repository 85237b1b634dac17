"""The rows of a predicate are those of which it is true, as SQL has it; what is passed over by statistics has none."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.format import data_file
from eoslog.format.data_file import DataFile, encode_data_file
from eoslog.format.statistics import UNKNOWN, encode_statistics
from eoslog.format.topic_schemas import encode_schema
from eoslog.read.planner import may_be_wanted
from eoslog.read.predicate import Predicate
from eoslog.read.predicate_rows import is_wanted
from eoslog.read.predicate_text import compile_predicate
from eoslog.state.entries import TopicConfig, TopicSchema
from eoslog.state.entry_fields import FileReference
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import Batch, Outcome
from eoslog.state.store_state import Topic
from tests.unit.read.sql_conditions import COLUMNS, SCHEMA, SIMPLE, Row, SqlCondition, conditions, rows

TOPIC = Topic("t", "0" * 32, 1, TopicSchema(kind="columns", arrow=encode_schema(SCHEMA)), TopicConfig(), 1, ())
PLACE = PartitionId(TOPIC.topic_id, 0)
FILE = FileReference(path="t/x", length=1, crc32c=1)


@cache
def compiled(text: str) -> Predicate:
    return compile_predicate(text, TOPIC)


def table_of(found: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(found, schema=SCHEMA)


def batch_of(table: pa.Table, most_columns: int = 32) -> Batch:
    """The rows of a file, as the log has them."""
    statistics = encode_statistics(encode_data_file(table), table, most_columns)
    count = table.num_rows
    origin = (None, 7, 0, 0, 1000, 1000, False)
    return Batch(0, count, count - 1, FILE, 0, None, 5, 5, 99, Outcome.COMMITTED, *origin, statistics=statistics)


def is_read(predicate: Predicate, batch: Batch) -> bool:
    return may_be_wanted(predicate, "t", PLACE, batch=batch, start=0, end=batch.end_offset)


def rows_with(name: str, values: list[Any]) -> list[Row]:
    return [dict.fromkeys(COLUMNS) | {name: value} for value in values]


@pytest.mark.parametrize("name", list(COLUMNS))
def test_each_value_of_a_column_is_wanted_as_sql_says(name: str) -> None:
    (batch,) = table_of(rows_with(name, [*COLUMNS[name].values, None])).to_batches()
    found = batch.to_pylist()

    for condition in SIMPLE[name]:
        wanted = is_wanted(compiled(condition.text), batch).to_pylist()
        assert wanted == [condition.of(row) for row in found], condition.text


@pytest.mark.parametrize("name", list(COLUMNS))
def test_statistics_skip_a_file_of_few_values_exactly_when_none_matches(
    name: str,
) -> None:
    values_and_null = [*COLUMNS[name].values, None]
    files = []
    for values in [*((each,) for each in values_and_null), *pairwise(values_and_null)]:
        table = table_of(rows_with(name, list(values)))
        files.append((batch_of(table), table.to_pylist()))

    for condition in SIMPLE[name]:
        predicate = compiled(condition.text)
        for batch, found in files:
            is_wanted_one = any(condition.of(row) for row in found)
            if is_wanted_one:
                assert is_read(predicate, batch), (condition.text, batch.statistics)
            elif len(found) == 1 and name != "bytes" and len(str(found[0][name])) <= 32:
                assert not is_read(predicate, batch), (condition.text, batch.statistics)


@given(st.lists(conditions(), min_size=1, max_size=5), st.lists(rows(), min_size=1, max_size=8))
def test_each_row_is_wanted_as_sql_says(several: list[SqlCondition], found: list[Row]) -> None:
    (batch,) = table_of(found).to_batches()

    for condition in several:
        wanted = is_wanted(compiled(condition.text), batch).to_pylist()
        assert wanted == [condition.of(row) for row in batch.to_pylist()]


@given(
    st.lists(conditions(), min_size=1, max_size=5),
    st.lists(rows(), min_size=1, max_size=4),
    st.sampled_from([0, 3, 32]),
    st.data(),
)
def test_no_wanted_row_is_in_a_skipped_file_even_after_compaction(
    several: list[SqlCondition], found: list[Row], most_columns: int, data: st.DataObject
) -> None:
    table = table_of(found)
    left = data.draw(st.lists(st.sampled_from(table.to_pylist()), min_size=1, max_size=len(found)))
    batch = batch_of(table, most_columns)._replace(record_count=len(left))

    for condition in several:
        if any(condition.of(row) for row in left):
            assert is_read(compiled(condition.text), batch)


@given(st.lists(conditions(), min_size=1, max_size=5), rows())
def test_the_statistics_of_a_single_row_tell_all_but_long_texts(several: list[SqlCondition], row: Row) -> None:
    table = table_of([row | {"name": None if row["name"] is None else row["name"][:20]}])

    for condition in several:
        if "bytes" not in condition.text:
            is_one = condition.of(table.to_pylist()[0]) is True
            assert is_read(compiled(condition.text), batch_of(table)) == is_one


def file_of(table: pa.Table, group_rows: int) -> DataFile:
    """A data file with row groups of so many rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_file, "ROW_GROUP_ROWS", group_rows)
        return DataFile(encode_data_file(table), SCHEMA, table.num_rows, name="t/x")


def rows_read(predicate: Predicate, file: DataFile, found: list[Row]) -> tuple[list[Row], list[Row]]:
    """The rows of the row groups that are read, and those of the others."""
    numbers = {row for group in file.row_groups(predicate.may_match) for row in group.rows}
    return (
        [row for number, row in enumerate(found) if number in numbers],
        [row for number, row in enumerate(found) if number not in numbers],
    )


@given(
    st.lists(conditions(), min_size=1, max_size=8),
    st.lists(rows(), min_size=1, max_size=12),
    st.sampled_from([1, 2, 5]),
)
def test_no_wanted_row_is_in_a_skipped_row_group(
    several: list[SqlCondition], drawn: list[Row], group_rows: int
) -> None:
    table = table_of(drawn)
    file, found = file_of(table, group_rows), table.to_pylist()

    for condition in several:
        _, skipped = rows_read(compiled(condition.text), file, found)
        assert not any(condition.of(row) for row in skipped), condition.text


@pytest.mark.parametrize("name", list(COLUMNS))
def test_row_groups_of_one_value_are_skipped_unless_it_matches(name: str) -> None:
    """A file has no statistics of a floating-point column with NaN, so all its row groups are read."""
    table = table_of(rows_with(name, [*COLUMNS[name].values, None]))
    file, found = file_of(table, 1), table.to_pylist()

    for condition in SIMPLE[name]:
        read, skipped = rows_read(compiled(condition.text), file, found)
        assert not any(condition.of(row) for row in skipped), condition.text
        if name not in ("bytes", "double", "single"):
            assert all(condition.of(row) or len(str(row[name])) > 32 for row in read), condition.text
    if name not in ("bytes", "double", "single"):
        assert rows_read(compile_predicate(f"{name} IS NULL", TOPIC), file, found)[0] == found[-1:]


@pytest.mark.parametrize("name", ["double", "single"])
def test_row_groups_of_floats_without_nan_are_skipped_below_and_by_nulls(name: str) -> None:
    """A file of an earlier version has bounds that leave NaN out. So no greatest value is known."""
    file = file_of(table_of(rows_with(name, [-2.0, -0.0, 1.5, None])), 1)

    def groups_read(text: str) -> list[int]:
        return [group.rows.start for group in file.row_groups(compile_predicate(text, TOPIC).may_match)]

    assert groups_read(f"{name} < 0") == [0]
    assert groups_read(f"{name} <= 0") == [0, 1]
    assert groups_read(f"{name} > 1") == [0, 1, 2]
    assert groups_read(f"{name} IS NULL") == [3]


def test_a_column_of_another_type_in_the_file_is_not_trusted() -> None:
    whole = pa.table({"whole": pa.array([1, 2], pa.int32())})
    stored = pa.schema([("whole", pa.string())])
    file = DataFile(encode_data_file(whole), stored, 2, name="t/x")

    assert len(file.row_groups(lambda bounds: bounds("whole").least is not None)) == 0
    assert len(file.row_groups(lambda bounds: bounds("other").least is not None)) == 0


def test_a_column_whose_name_is_the_path_of_another_is_not_trusted() -> None:
    """Parquet's footer names columns by their dotted paths."""
    place: Any = pa.struct([("b", pa.int64())])
    schema = pa.schema([pa.field("a", place), pa.field("a.b", pa.int64())])
    table = pa.Table.from_pylist([{"a": {"b": 1}, "a.b": 7}], schema=schema)
    file = DataFile(encode_data_file(table), schema, 1, name="t/x")

    assert len(file.row_groups(lambda bounds: bounds("a.b") == UNKNOWN)) == 1
