"""Batch writes with a version: each is written once, and other work under its version is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

import eoslog
from eoslog.errors import (
    CheckpointMismatch,
    InvalidOption,
)
from eoslog.format.checkpoint_codec import parts, restore
from pyspark_eoslog.options import Options
from pyspark_eoslog.worker import Worker, acting_as
from pyspark_eoslog.write.sink import EosLogWriter
from tests.unit.pyspark_eoslog.write.sink.sinks import (
    NUMBERS,
    OnlyTask,
    batch,
    batch_writer,
    new_process,
    numbers,
    told,
    uploads,
    written,
)


def test_a_repeated_version_uploads_and_reads_nothing_and_is_warned_of(
    store: eoslog.Store, caplog: pytest.LogCaptureFixture
) -> None:
    told(None)
    batch(store, 1, txnAppId="app", txnVersion="3")
    before = uploads(store)

    def must_not_run() -> Iterator[pa.RecordBatch]:
        raise AssertionError("rows of a replay were computed")
        yield

    planned = batch_writer(store, txnAppId="app", txnVersion="2")
    planned.commit([planned.write(must_not_run())])

    assert uploads(store) == before
    assert numbers(store) == [1]
    assert "version 2 of 'app' was committed before (largest: 3); nothing is written twice" in caplog.text


def test_a_version_of_a_deleted_checkpoint_is_refused_not_skipped(store: eoslog.Store) -> None:
    told("deleted", 3)
    batch(store, 1, txnAppId="app", txnVersion="3")
    told("fresh", 0)
    before = uploads(store)

    with pytest.raises(CheckpointMismatch, match=r"'app'.*neither committed nor skipped.*startAnewAfter='deleted:3'"):
        batch(store, 2, txnAppId="app", txnVersion="0")

    assert uploads(store) == before
    for _ in range(2):
        batch(store, 2, txnAppId="app", txnVersion="0", startAnewAfter="deleted:3")
    batch(store, 3, txnAppId="app", txnVersion="1")
    assert numbers(store) == [1, 2, 3]


def test_a_fresh_start_needs_a_version(store: eoslog.Store) -> None:
    with pytest.raises(InvalidOption, match=r"'startAnewAfter' is for streams, and for batch writes with.*txnVersion"):
        batch_writer(store, startAnewAfter="3")


@pytest.mark.parametrize("named", ["txnAppId", "transactionalId"])
@pytest.mark.parametrize("query", [None, "query"])
@pytest.mark.parametrize(("first", "second"), [((0, 1, 2, 3), (4, 5)), ((0, 1), (2, 3)), ((0,), ()), ((), (1,))])
def test_another_write_under_a_committed_version_is_refused(
    store: eoslog.Store, named: str, query: str | None, first: tuple[int, ...], second: tuple[int, ...]
) -> None:
    told(query)
    batch(store, *first, **{named: "app"}, txnVersion="0")
    before = uploads(store)

    for _ in range(2):
        with pytest.raises(CheckpointMismatch, match=r"'app': version 0.*another write.*give each write a txnAppId of"):
            batch(store, *second, **{named: "app"}, txnVersion="0")

    assert uploads(store) == before
    assert numbers(store) == list(first)
    batch(store, *second, **{named: "app-2"}, txnVersion="0")
    assert numbers(store) == sorted([*first, *second])


def test_another_write_is_refused_though_a_write_to_another_topic_came_between(store: eoslog.Store) -> None:
    told("query")
    batch(store, 1, 2, txnAppId="app", txnVersion="0")
    batch(store, 1, 2, txnAppId="app", txnVersion="0", topic="other")

    with pytest.raises(CheckpointMismatch, match="with 2 rows, and this write has 3"):
        batch(store, 3, 4, 5, txnAppId="app", txnVersion="0")


def test_a_repetition_may_have_other_values_in_some_columns_but_not_within_one_execution(store: eoslog.Store) -> None:
    store.admin.create_topic("two", schema={"n": "long", "arrived": "long"})
    columns = StructType([StructField("n", LongType()), StructField("arrived", LongType())])

    def write(invocation: str, *rows: tuple[int, int], version: str = "0") -> None:
        told("query")
        OnlyTask.properties |= {"spark.app.id": "app", "spark.sql.execution.root.id": invocation}
        options = {"path": store.url, "topic": "two", "txnAppId": "app", "txnVersion": version}
        planned = EosLogWriter(Options.of(options), columns, False)
        batches = pa.RecordBatch.from_pylist([{"n": n, "arrived": arrived} for n, arrived in rows])
        planned.commit([planned.write(iter([batches]))])

    write("1", (1, 100), (2, 100))
    write("1", (1, 100), (2, 100))
    write("2", (1, 200), (2, 200))
    with pytest.raises(CheckpointMismatch, match="other values in column 'arrived'"):
        write("1", (1, 200), (2, 200))
    with pytest.raises(CheckpointMismatch, match="other values in column 'n'"):
        write("1", (3, 100), (4, 100))
    with pytest.raises(CheckpointMismatch, match="other values"):
        write("2", (3, 300), (4, 300))

    assert store.scan("two").record_count == 2


def test_another_write_is_refused_by_a_process_that_did_not_know_the_topic(store: eoslog.Store) -> None:
    told("query")
    committing = Worker()
    with acting_as(committing):
        batch(store, 1, transactionalId="warm")
    eoslog.connect(store.url).admin.create_topic("new", schema=NUMBERS)
    new_process()
    planned = batch_writer(store, txnAppId="new", txnVersion="0", topic="new")
    messages = written(planned, 1)
    with acting_as(committing):
        planned.commit(messages)

    with pytest.raises(CheckpointMismatch, match="other values in column 'n'"):
        batch(store, 2, txnAppId="new", txnVersion="0", topic="new")


def test_a_repetition_with_other_rows_is_skipped_if_the_user_says_so(store: eoslog.Store) -> None:
    told("query")
    batch(store, 1, 2, txnAppId="app", txnVersion="0")

    batch(store, 3, txnAppId="app", txnVersion="0", failOnDataLoss="false")

    assert numbers(store) == [1, 2]


def test_work_is_compared_after_its_transactional_id_came_from_a_checkpoint(store: eoslog.Store) -> None:
    told("query")
    batch(store, 1, 2, txnAppId="app", txnVersion="0")
    state = store.read(lambda state, slot: restore({part.name: part.encode() for part in parts(state, slot)}))

    assert state.application_versions == store.read(lambda state, slot: dict(state.application_versions))
    assert {last.rows for last in state.application_versions.values()} == {2}
