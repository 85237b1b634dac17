"""The rows of a predicate are those of which it is true, as SQL has it; what is passed over by statistics has none."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.format.data_file import encode_data_file
from eoslog.format.statistics import encode_statistics
from eoslog.format.topic_schemas import encode_schema
from eoslog.read.batch_bounds import may_be_wanted
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


def table_of(found: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(found, schema=SCHEMA)


def batch_of(table: pa.Table, most_columns: int = 32) -> Batch:
    """The rows of a file, as the log has them."""
    statistics = encode_statistics(encode_data_file(table), table, most_columns)
    count = table.num_rows
    origin = (None, 7, 0, 0, 1000, 1000, False)
    return Batch(0, count, count - 1, FILE, 0, None, 5, 5, 99, Outcome.COMMITTED, *origin, statistics=statistics)


def is_read(predicate: Predicate, batch: Batch) -> bool:
    return may_be_wanted(predicate, "t", PLACE, batch, 0, batch.end_offset)


def rows_with(name: str, values: list[Any]) -> list[Row]:
    return [dict.fromkeys(COLUMNS) | {name: value} for value in values]


@pytest.mark.parametrize("name", list(COLUMNS))
def test_each_value_of_a_column_is_wanted_as_sql_says(name: str) -> None:
    (batch,) = table_of(rows_with(name, [*COLUMNS[name].values, None])).to_batches()
    found = batch.to_pylist()

    for condition in SIMPLE[name]:
        wanted = is_wanted(compile_predicate(condition.text, TOPIC), batch).to_pylist()
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
        predicate = compile_predicate(condition.text, TOPIC)
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
        wanted = is_wanted(compile_predicate(condition.text, TOPIC), batch).to_pylist()
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
            assert is_read(compile_predicate(condition.text, TOPIC), batch)


@given(st.lists(conditions(), min_size=1, max_size=5), rows())
def test_the_statistics_of_a_single_row_tell_all_but_long_texts(several: list[SqlCondition], row: Row) -> None:
    table = table_of([row | {"name": None if row["name"] is None else row["name"][:20]}])

    for condition in several:
        if "bytes" not in condition.text:
            is_one = condition.of(table.to_pylist()[0]) is True
            assert is_read(compile_predicate(condition.text, TOPIC), batch_of(table)) == is_one
