"""Rows of every Arrow type and layout are stored as they are, or refused with the column and the remedy."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.errors import SchemaMismatch
from eoslog.format.column_casts import cast_losslessly
from eoslog.format.column_types import stored_type
from eoslog.format.data_file import encode_data_file, read_data_file
from eoslog.format.topic_schemas import conform, normalize_schema
from tests.unit.format.arrow_arrays import array_of, types, values_of


@given(types(), st.data())
def test_rows_of_every_type_and_layout_are_stored_as_they_are(data_type: Any, data: st.DataObject) -> None:
    values = data.draw(st.lists(values_of(data_type), max_size=6))
    cut = data.draw(st.integers(0, len(values)))
    chunks = [array_of(data_type, part, data.draw) for part in (values[:cut], values[cut:])]
    column = pa.chunked_array(chunks, type=data_type)
    column.validate(full=True)
    topic = normalize_schema(pa.schema([("x", data_type)]))

    conformed = conform(pa.table({"x": column}), topic)

    conformed.validate(full=True)
    expected = pa.array(values, topic.field("x").type).to_pylist()
    assert conformed["x"].to_pylist() == expected
    rows = read_data_file(encode_data_file(conformed), topic, None, 0, None, len(values), "x.parquet")
    assert [row["x"] for batch in rows for row in batch.to_pylist()] == expected
