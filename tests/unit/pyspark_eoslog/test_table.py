"""EosLogTable before it needs a session: what it finds, and what it refuses when it plans."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

import eoslog
from eoslog.errors import InvalidOption, NotAStore, OffsetOutOfRange, UnknownTopicOrPartition
from pyspark_eoslog import EosLogTable
from pyspark_eoslog.worker import this_worker

NO_SESSION = cast(Any, None)
SCHEMA = pa.schema([pa.field("n", pa.int64()), pa.field("_metadata", pa.string()), pa.field("at", pa.time64("us"))])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[eoslog.Store]:
    yield eoslog.connect(str(tmp_path / "store"), fsync=False)
    this_worker().forget_stores()


@pytest.fixture
def table(store: eoslog.Store) -> EosLogTable:
    store.admin.create_topic("t", schema=SCHEMA)
    return EosLogTable.forPath(NO_SESSION, store.url, "t", fsync=False)


def test_tables_are_found_or_not(store: eoslog.Store) -> None:
    assert not EosLogTable.isEosLogTable(NO_SESSION, store.url)
    with pytest.raises(NotAStore):
        EosLogTable.forPath(NO_SESSION, store.url, "t")

    store.admin.create_topic("t")

    assert EosLogTable.isEosLogTable(NO_SESSION, store.url)
    assert EosLogTable.isEosLogTable(NO_SESSION, Path(store.url), "t")
    assert not EosLogTable.isEosLogTable(NO_SESSION, store.url, "u")
    with pytest.raises(UnknownTopicOrPartition):
        EosLogTable.forPath(NO_SESSION, store.url, "u")


def test_a_store_that_only_this_process_sees_is_refused() -> None:
    with pytest.raises(InvalidOption, match="lives within one process"):
        EosLogTable.forPath(NO_SESSION, "memory://x", "t")


@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("merge", "toDF(latest_by_key=True)"),
        ("update", "toDF(latest_by_key=True)"),
        ("delete", "toDF(latest_by_key=True)"),
        ("alias", "toDF().alias(name)"),
        ("restoreToVersion", "toDF(slot=…, metadata_columns=False)"),
        ("restoreToTimestamp", "toDF(timestamp=…, metadata_columns=False)"),
    ],
)
def test_the_error_of_a_missing_method_of_delta_names_the_way(table: EosLogTable, method: str, call: str) -> None:
    with pytest.raises(AttributeError) as refused:
        getattr(table, method)

    assert call in str(refused.value)


def test_options_of_the_store_are_not_printed() -> None:
    with pytest.raises(InvalidOption) as refused:
        EosLogTable.forPath(NO_SESSION, "s3://bucket", "t", key="geheim")

    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"columns": ["_slot"]}, "'_slot' comes from the log, not from files.*includeTransactionColumns"),
        pytest.param(
            {"columns": ["n", "at"]},
            "'at' is time.*Spark's Parquet reader does not support.*columns=.*format",
            marks=pytest.mark.pyspark("4.1"),
        ),
        ({"columns": ["_metadata"]}, "'_metadata' has a name that Spark reserves"),
        pytest.param({}, "'_metadata' has a name that Spark reserves", marks=pytest.mark.pyspark("4.1")),
        ({"columns": ["m"]}, "topic t has no column 'm'"),
        ({"predicate": "m = 1"}, "'m'"),
        ({"starting_offsets": "latest"}, "starting_offsets is 'latest'. Give 'earliest' or offsets by partition"),
        ({"ending_offsets": "earliest"}, "ending_offsets is 'earliest'. Give 'latest' or offsets by partition"),
        ({"slot": 1, "isolation_level": "read_committed"}, "snapshot"),
    ],
)
def test_a_read_that_is_not_possible_is_refused_by_name(
    table: EosLogTable, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidOption, match=message):
        table.toDF(**given)


def test_offsets_beyond_what_is_there_are_refused(table: EosLogTable) -> None:
    with pytest.raises(OffsetOutOfRange):
        table.toDF(starting_offsets={0: 1})
