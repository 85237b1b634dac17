"""The writers, called as Spark calls them: planned by one process, run by a task, committed by another process."""

from __future__ import annotations

import logging
import sys

import pyarrow as pa
import pytest
from opentelemetry.trace import StatusCode

import eoslog
from eoslog.errors import (
    CheckpointMismatch,
    IllegalState,
    InvalidRequest,
    ProducerFenced,
    UnknownTopicOrPartition,
)
from pyspark_eoslog.options import Options
from pyspark_eoslog.write.sink import EosLogStreamWriter
from tests.unit.pyspark_eoslog.write.sink.sinks import (
    NUMBERS,
    SCHEMA,
    OnlyTask,
    batch_writer,
    new_process,
    numbers,
    stream,
    told,
    uploads,
    writer,
    written,
)
from tests.unit.support.recorded import Recorded, attributes


@pytest.mark.parametrize("complete", [False, True])
def test_rows_for_a_topic_that_was_created_again_are_refused_with_advice(store: eoslog.Store, complete: bool) -> None:
    messages = written(writer(store, complete=complete), 1)
    store.admin.delete_topic("out")
    store.admin.create_topic("out", schema=NUMBERS)
    with store.producer() as producer:
        producer.send_table("out", pa.table({"n": [7]}, schema=NUMBERS))

    with pytest.raises(UnknownTopicOrPartition, match=r"nothing was committed.*Start the query again"):
        writer(store, complete=complete).commit(messages, 0)

    assert numbers(store) == [7]
    new_process()
    again = writer(store, complete=complete)
    again.commit(written(again, 1), 0)
    assert numbers(store) == ([1] if complete else [1, 7])


def test_the_committing_process_plans_nothing_and_shows_its_commits_error(
    store: eoslog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = written(writer(store), 1)
    store.admin.delete_topic("out")
    new_process()
    monkeypatch.setitem(sys.modules, "pyspark.sql.worker.python_streaming_sink_runner", sys)

    with pytest.raises(UnknownTopicOrPartition, match="Start the query again"):
        writer(store).commit(messages, 0)
    writer(store).abort(messages, 0)


def test_a_micro_batch_of_complete_mode_that_is_committed_again_replaces_nothing(store: eoslog.Store) -> None:
    messages = written(writer(store, complete=True), 1, 2)
    writer(store, complete=True).commit(messages, 0)
    with store.producer() as producer:
        producer.send_table("out", pa.table({"n": [7]}, schema=NUMBERS))

    writer(store, complete=True).commit(messages, 0)

    assert numbers(store) == [1, 2, 7]


def test_a_replayed_micro_batch_uploads_nothing_and_is_warned_of(
    store: eoslog.Store, caplog: pytest.LogCaptureFixture
) -> None:
    stream(store, "query", 0, 1, 2)
    new_process()
    before = uploads(store)

    stream(store, "query", 0, 1, 2)

    assert uploads(store) == before
    assert numbers(store) == [1, 2]
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "version 0 of 'spark-" in warning.message
    assert "nothing is written twice" in warning.message


@pytest.mark.usefixtures("files_are_objects")
def test_processes_with_a_tracer_provider_record_uploads_and_commits(store: eoslog.Store, recorded: Recorded) -> None:
    stream(store, "query", 0, 1, 2)

    assert recorded.paths("PUT data") == [["PUT data", "upload"]]
    assert attributes(recorded.the("upload"))["messaging.destination.name"] == "out"
    assert attributes(recorded.the("upload"))["messaging.batch.message_count"] == 2
    assert recorded.paths("PUT slot")[-1] == ["PUT slot", "append commit"]

    new_process()
    stream(store, "query", 0, 1, 2)
    assert {span.status.status_code for span in recorded.spans} == {StatusCode.UNSET}


@pytest.mark.parametrize("planned_anew", [True, False])
def test_a_replay_with_another_row_count_is_warned_of_if_accepted(
    store: eoslog.Store, caplog: pytest.LogCaptureFixture, planned_anew: bool
) -> None:
    stream(store, "query", 0, 1, 2)
    if planned_anew:
        new_process()

    stream(store, "query", 0, 1, 2, 3, failOnDataLoss="false")

    assert numbers(store) == [1, 2]
    assert "was committed with 2 rows, but has 3 now" in caplog.text


@pytest.mark.parametrize("planned_anew", [True, False])
@pytest.mark.parametrize("rows", [(), (1,), (1, 2, 3)])
def test_a_micro_batch_unlike_the_committed_one_is_refused(
    store: eoslog.Store, planned_anew: bool, rows: tuple[int, ...]
) -> None:
    """As that of a checkpoint whose newest entry was lost, which Spark plans up to a later end."""
    stream(store, "query", 0, 1, 2)
    if planned_anew:
        new_process()

    with pytest.raises(CheckpointMismatch, match=r"with 2 rows, and has \d now.*startAnewAfter='query:0'.*failOnData"):
        stream(store, "query", 0, *rows)
    assert numbers(store) == [1, 2]
    stream(store, "query", 0, *rows, startAnewAfter="query:0")

    assert numbers(store) == sorted([1, 2, *rows])


def test_a_write_whose_tasks_held_back_their_rows_is_never_committed(store: eoslog.Store) -> None:
    for batch_id in range(3):
        stream(store, "query", batch_id, batch_id)
    new_process()
    told("query", 1, "run of query")
    held_back = written(writer(store), 1)
    new_process()
    stream(store, "query", 0, 0, startAnewAfter="query:2")

    with pytest.raises(IllegalState, match="nothing was committed"):
        writer(store).commit(held_back, 1)

    assert numbers(store) == [0, 0, 1, 2]


def test_queries_with_one_transactional_id_fence_each_other_across_topics(store: eoslog.Store) -> None:
    stream(store, "a", 0, 1, transactionalId="shared", checkpointlocation="/a")
    stream(store, "b", 0, 2, transactionalId="shared", checkpointlocation="/b", topic="other")

    with pytest.raises(ProducerFenced, match=r"'shared': another run.*give each its own transactionalId"):
        stream(store, "a", 1, 3, transactionalId="shared", checkpointlocation="/a")

    assert (numbers(store), numbers(store, "other")) == ([1], [2])


def test_a_stream_without_checkpoint_location_is_named_after_its_query(store: eoslog.Store) -> None:
    planned = EosLogStreamWriter(Options.of({"path": store.url, "topic": "out"}), SCHEMA, False)
    for _ in range(2):
        planned.commit(written(planned, 1), 0)

    assert numbers(store) == [1]


def test_continuous_processing_is_refused(store: eoslog.Store) -> None:
    OnlyTask.properties["__is_continuous_processing"] = "true"

    with pytest.raises(InvalidRequest, match="Use another trigger"):
        written(writer(store), 1)


def test_a_run_fenced_long_ago_never_takes_its_id_back(
    store: eoslog.Store,
) -> None:
    told(None)
    first = batch_writer(store, transactionalId="job")
    messages = written(first, 1)
    for _ in range(20):  # more runs than the log remembers
        batch_writer(store, transactionalId="job")

    with pytest.raises(ProducerFenced, match="'job'"):
        first.commit(messages)

    assert numbers(store) == []


@pytest.mark.usefixtures("files_are_objects")
def test_an_abort_deletes_nothing_whenever_it_comes(store: eoslog.Store) -> None:
    told("query", 0)
    messages = written(writer(store), 1)
    writer(store).abort(messages, 0)
    writer(store).commit(messages, 0)
    writer(store).abort(messages, 0)
    planned = batch_writer(store)
    of_batch = written(planned, 2)
    planned.abort(of_batch)
    planned.commit(of_batch)
    planned.abort([*of_batch, None])

    assert numbers(store) == [1, 2]
    assert uploads(store) == 2
