"""Option ``predicate``: batches and streams read the rows of which it is true, and fetch no file without such rows."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

import eoslog
from eoslog import InvalidOption
from pyspark_eoslog.options import Options
from pyspark_eoslog.read.batch_reader import EosLogReader, ReadPartition
from tests.unit.pyspark_eoslog.stream.world import SCHEMA, drain, produce, reader, rows, step


def batch_reader(store: eoslog.Store, schema: StructType = SCHEMA, **options: Any) -> EosLogReader:
    given = {"path": store.url, "topic": "in", **options}
    return EosLogReader(Options.of({name: str(value) for name, value in given.items()}), schema)


def numbers(source: EosLogReader) -> list[int]:
    parts = pickle.loads(pickle.dumps(source.partitions()))
    return sorted(row["n"] for part in parts for batch in source.read(part) for row in batch.to_pylist())


def test_a_batch_reads_the_rows_of_which_it_is_true(store: eoslog.Store) -> None:
    produce(store, 1, 2, 3)
    produce(store, 10, 20)

    assert numbers(batch_reader(store, predicate="n > 2 AND NOT N IN (10)")) == [3, 20]
    assert numbers(batch_reader(store, predicate="n > 99")) == []


def test_files_without_such_rows_are_not_planned(store: eoslog.Store) -> None:
    produce(store, 1, 2, 3)
    produce(store, 10, 20)

    parts = batch_reader(store, predicate="n BETWEEN 4 AND 12").partitions()

    files = [
        each for part in parts if isinstance(part, ReadPartition) for piece, _ in part.pieces for each in piece.files
    ]
    assert [each.record_count for each in files] == [2]


def test_a_column_that_is_not_read_may_stand_in_it(store: eoslog.Store) -> None:
    produce(store, 1, 2, 3)
    offsets = StructType([StructField("_offset", LongType())])
    source = batch_reader(store, offsets, predicate="n >= 2")

    found = [batch for part in source.partitions() for batch in source.read(part)]

    assert [row for batch in found for row in batch.to_pylist()] == [{"_offset": 1}, {"_offset": 2}]


@pytest.mark.parametrize("isolation", ["read_committed", "snapshot"])
def test_a_stream_reads_matching_rows_and_goes_on_behind_the_others(store: eoslog.Store, isolation: str) -> None:
    stream = reader(store, predicate="n >= 10", isolationLevel=isolation)
    start = stream.initialOffset()
    produce(store, 1, 2)
    first = step(stream, start)
    produce(store, 3, 30)

    assert rows(stream, start, first) == []
    assert drain(stream, first)[0] == [[30]]


def test_a_stream_fetches_no_file_without_such_rows(store: eoslog.Store) -> None:
    produce(store, 1, 2)
    stream = reader(store, predicate="n >= 10")
    start = stream.initialOffset()
    end = step(stream, start)

    assert end != start
    assert stream.partitions(start, end) == []


def test_a_wrong_predicate_is_refused_before_anything_is_read(store: eoslog.Store) -> None:
    with pytest.raises(InvalidOption, match="no column 'm'"):
        batch_reader(store, predicate="m = 1").partitions()
    with pytest.raises(InvalidOption, match="compared with a number"):
        reader(store, predicate="n = 'x'").initialOffset()
