"""The writers, called as Spark calls them: planned by one process, run by a task, committed by another process."""

from __future__ import annotations

import json
import logging
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from opentelemetry.trace import StatusCode
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import LongType, StructField, StructType

import eoslog
from eoslog.errors import (
    CheckpointMismatch,
    IllegalState,
    InvalidOption,
    InvalidRequest,
    ProducerFenced,
    UnknownTopicOrPartition,
)
from eoslog.format.checkpoint_codec import parts, restore
from pyspark_eoslog.options import Options
from pyspark_eoslog.worker import Worker, acting_as, this_worker
from pyspark_eoslog.write import tasks
from pyspark_eoslog.write.sink import EosLogStreamWriter, EosLogWriter
from tests.unit.support.recorded import Recorded, attributes

NUMBERS = pa.schema([pa.field("n", pa.int64())])
SCHEMA = StructType([StructField("n", LongType())])
Messages = list[WriterCommitMessage | None]


class OnlyTask:
    """The context of a query's only task, and what Spark tells it."""

    properties: dict[str, str]

    @classmethod
    def get(cls) -> OnlyTask:
        return cls()

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return 0

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 - Spark's name
        return self.properties.get(name)


@pytest.fixture(autouse=True)
def in_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "TaskContext", OnlyTask)
    told("query")


def told(query_id: str | None, batch_id: int = 0, run_id: str = "run") -> None:
    """What Spark tells the task from here on; no query outside of streams."""
    OnlyTask.properties = {"spark.jobGroup.id": run_id}
    if query_id is not None:
        OnlyTask.properties |= {"sql.streaming.queryId": query_id, "streaming.sql.batchId": str(batch_id)}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[eoslog.Store]:
    store = eoslog.connect(str(tmp_path / "store"))
    store.admin.create_topic("out", schema=NUMBERS)
    store.admin.create_topic("other", schema=NUMBERS)
    yield store
    new_process()


def new_process() -> None:
    """What Spark's Python workers know is forgotten."""
    this_worker().forget_stores()


def writer(store: eoslog.Store, *, complete: bool = False, **options: str) -> EosLogStreamWriter:
    given = {"path": store.url, "topic": "out", "checkpointlocation": "/checkpoint"} | options
    return EosLogStreamWriter(Options.of(given), SCHEMA, complete)


def batch_writer(store: eoslog.Store, *, overwrite: bool = False, **options: str) -> EosLogWriter:
    return EosLogWriter(Options.of({"path": store.url, "topic": "out"} | options), SCHEMA, overwrite)


def written(planned: EosLogStreamWriter | EosLogWriter, *numbers: int) -> Messages:
    """What the only task reports."""
    return [planned.write(iter([pa.RecordBatch.from_pydict({"n": list(numbers)}, schema=NUMBERS)]))]


def stream(store: eoslog.Store, query_id: str, batch_id: int, *numbers: int, **options: str) -> None:
    """A micro-batch from its planning to its commit."""
    told(query_id, batch_id, options.pop("run", f"run of {query_id}"))
    messages = written(writer(store, **options), *numbers)
    writer(store, **options).commit(messages, batch_id)


def batch(store: eoslog.Store, *numbers: int, **options: str) -> None:
    """A batch write from its planning to its commit."""
    planned = batch_writer(store, **options)
    planned.commit(written(planned, *numbers))


def numbers(store: eoslog.Store, topic: str = "out") -> list[int]:
    return sorted(row["n"] for row in store.scan(topic).to_table().to_pylist())


def uploads(store: eoslog.Store) -> int:
    """How many data files were ever uploaded, committed or not."""
    return len(list(Path(store.url).rglob("*.parquet")))


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


def test_a_new_checkpoint_is_refused_before_anything_is_uploaded(store: eoslog.Store) -> None:
    stream(store, "deleted", 0, 1)
    stream(store, "deleted", 1, 2)
    new_process()
    before = uploads(store)

    with pytest.raises(CheckpointMismatch) as refused:
        stream(store, "fresh", 0, 1, 2)

    for part in ("version 1 of streaming query deleted", "restore it", "startAnewAfter='deleted:1'"):
        assert part in str(refused.value)
    assert uploads(store) == before
    assert numbers(store) == [1, 2]


def test_a_new_checkpoint_is_refused_also_after_planning_on_older_state(store: eoslog.Store) -> None:
    written(writer(store), 0)
    stream(store, "deleted", 0, 1)

    with pytest.raises(CheckpointMismatch):
        stream(store, "fresh", 0, 1)

    assert numbers(store) == [1]


def test_a_new_checkpoint_starts_anew_once_it_says_after_what(store: eoslog.Store) -> None:
    stream(store, "deleted", 0, 1)
    new_process()

    for batch_id in (0, 0, 1):
        stream(store, "fresh", batch_id, 2 + batch_id, startAnewAfter="deleted:0")
    new_process()

    with pytest.raises(CheckpointMismatch):
        stream(store, "third", 0, 9, startAnewAfter="deleted:0")
    assert numbers(store) == [1, 2, 3]


def test_an_older_copy_of_the_checkpoint_is_refused_before_anything_is_uploaded(store: eoslog.Store) -> None:
    for batch_id in range(3):
        stream(store, "query", batch_id, batch_id)
    new_process()
    before = uploads(store)

    with pytest.raises(CheckpointMismatch, match=r"micro-batch 1 comes after micro-batch 2.*startAnewAfter='query:2'"):
        stream(store, "query", 1, 1)

    assert uploads(store) == before
    stream(store, "query", 1, 1, startAnewAfter="query:2")
    assert numbers(store) == [0, 1, 1, 2]


def test_a_checkpoint_that_was_moved_goes_on(store: eoslog.Store) -> None:
    stream(store, "query", 4, 1)

    for batch_id in (4, 5):
        stream(store, "query", batch_id, 2, checkpointlocation="/moved")

    assert numbers(store) == [1, 2]


def checkpoint_at(path: Path, query_id: str) -> str:
    """Make the checkpoint of a query, as Spark does before the first micro-batch."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "metadata").write_text(json.dumps({"id": query_id}))
    return str(path)


@pytest.mark.parametrize("location", ["checkpoint", "/checkpoint", "hdfs:///checkpoint", "s3a://bucket/checkpoint"])
def test_queries_whose_checkpoints_have_one_name_do_not_fence_each_other(store: eoslog.Store, location: str) -> None:
    for batch_id in range(3):
        stream(store, "a", batch_id, batch_id, checkpointlocation=location)
        stream(store, "b", batch_id, 10 + batch_id, checkpointlocation=location, topic="other")

    assert (numbers(store), numbers(store, "other")) == ([0, 1, 2], [10, 11, 12])


def test_queries_in_two_working_directories_write_to_one_topic(
    store: eoslog.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch_id in range(2):
        for number, query in enumerate("ab"):
            checkpoint_at(tmp_path / query / "checkpoint", query)
            monkeypatch.chdir(tmp_path / query)
            new_process()
            stream(store, query, batch_id, 10 * number + batch_id, checkpointlocation="checkpoint")

    assert numbers(store) == [0, 1, 10, 11]


def test_queries_on_two_hosts_write_to_one_topic_with_a_warning(
    store: eoslog.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    location = tmp_path / "checkpoint"
    for batch_id in range(2):
        for number, query in enumerate("ab"):
            checkpoint_at(location, query)
            monkeypatch.setattr(socket, "gethostname", lambda query=query: f"pod-{query}")
            new_process()
            stream(store, query, batch_id, 10 * number + batch_id, checkpointlocation=str(location))

    assert numbers(store) == [0, 1, 10, 11]
    (warning,) = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert "query b begins to write to out. Its checkpoint has the same path as that of a on another host" in warning


@pytest.mark.parametrize(
    "spelling", ["{}", "{}/", "{}/.", "file:{}", "file://{}/", "FILE:{}", "checkpoint", "./checkpoint/"]
)
def test_a_deleted_checkpoint_is_refused_in_any_spelling(
    store: eoslog.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    monkeypatch.chdir(tmp_path)
    location = checkpoint_at(tmp_path / "checkpoint", "deleted")
    stream(store, "deleted", 0, 1, checkpointlocation=location)
    checkpoint_at(tmp_path / "checkpoint", "fresh")
    new_process()
    before = uploads(store)

    with pytest.raises(CheckpointMismatch, match=r"from the same checkpoint location.*startAnewAfter='deleted:0'"):
        stream(store, "fresh", 0, 2, checkpointlocation=spelling.format(location))

    assert uploads(store) == before
    stream(store, "fresh", 0, 2, checkpointlocation=spelling.format(location), startAnewAfter="deleted:0")
    assert numbers(store) == [1, 2]


@pytest.mark.parametrize("spelling", ["{}/", "file:{}", "checkpoint"])
def test_a_query_is_known_in_any_spelling_of_its_checkpoint(
    store: eoslog.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    monkeypatch.chdir(tmp_path)
    location = checkpoint_at(tmp_path / "checkpoint", "query")
    stream(store, "query", 0, 1, checkpointlocation=location)
    new_process()
    before = uploads(store)

    stream(store, "query", 0, 1, checkpointlocation=spelling.format(location), run="another run")

    assert uploads(store) == before
    assert numbers(store) == [1]


def test_a_checkpoint_that_was_moved_to_the_place_of_another_goes_on(store: eoslog.Store) -> None:
    stream(store, "ended", 5, 1, checkpointlocation="/a")
    stream(store, "query", 2, 2, checkpointlocation="/b")
    new_process()

    for batch_id in (2, 3):
        stream(store, "query", batch_id, batch_id, checkpointlocation="/a", run="moved")

    assert numbers(store) == [1, 2, 3]


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

    with pytest.raises(InvalidRequest, match="use another trigger"):
        written(writer(store), 1)


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


def test_a_version_counts_for_each_topic(store: eoslog.Store) -> None:
    told("query", 7)
    for _ in range(2):
        batch(store, 1, txnAppId="app", txnVersion="7")
        batch(store, 1, txnAppId="app", txnVersion="7", topic="other")

    assert (numbers(store), numbers(store, "other")) == ([1], [1])


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


def test_a_stream_goes_on_where_a_batch_write_counted_below(store: eoslog.Store) -> None:
    told(None)
    batch(store, 1, transactionalId="shared", txnVersion="3")

    new_process()
    stream(store, "query", 10, 2, transactionalId="shared")

    assert numbers(store) == [1, 2]


def test_a_stream_back_at_its_old_name_gets_advice(store: eoslog.Store) -> None:
    stream(store, "query", 9, 1, transactionalId="first")
    stream(store, "query", 3, 2, transactionalId="second", startAnewAfter="query:9")
    new_process()

    with pytest.raises(CheckpointMismatch, match="startAnewAfter='query:9'"):
        stream(store, "query", 4, 3, transactionalId="first", run="third")
    stream(store, "query", 4, 3, transactionalId="first", startAnewAfter="query:9", run="third")

    assert numbers(store) == [1, 2, 3]


def copied(store: eoslog.Store, *, new_identity: bool = False) -> eoslog.Store:
    target = eoslog.connect(f"{store.url}-copy", fsync=False)
    store.admin.copy(target, new_identity=new_identity)
    new_process()
    return target


def test_a_query_continues_on_a_copy_with_the_same_identity(store: eoslog.Store) -> None:
    stream(store, "q", 0, 1)

    target = copied(store)
    stream(target, "q", 0, 1)
    stream(target, "q", 1, 2)

    assert numbers(target) == [1, 2]


def test_a_copy_lacks_the_micro_batches_after_it(store: eoslog.Store) -> None:
    stream(store, "q", 0, 1)
    target = copied(store)
    new_process()
    stream(store, "q", 1, 2)

    new_process()
    stream(target, "q", 2, 3)

    assert numbers(target) == [1, 3]


def test_a_query_of_the_source_is_refused_by_a_copy_with_a_new_identity(store: eoslog.Store) -> None:
    source_id = store.describe().store_id
    stream(store, "q", 0, 1)

    target = copied(store, new_identity=True)
    for batch_id in (0, 1):
        with pytest.raises(CheckpointMismatch, match=f"startAnewAfter='q@{source_id}:0'"):
            stream(target, "q", batch_id, 2)

    assert numbers(target) == [1]
    for batch_id in (1, 2):
        stream(target, "q", batch_id, batch_id + 1, startanewafter=f"q@{source_id}:0", run="new run")
    assert numbers(target) == [1, 2, 3]
    new_process()
    stream(store, "q", 1, 2)
    assert numbers(store) == [1, 2]


def test_a_copied_checkpoint_repeats_nothing_on_a_copy_with_a_new_identity(store: eoslog.Store) -> None:
    stream(store, "q", 0, 1)

    target = copied(store, new_identity=True)
    stream(target, "q", 0, 1, checkpointlocation="/copied")
    stream(target, "q", 1, 2, checkpointlocation="/copied")

    assert numbers(target) == [1, 2]


def test_a_copied_checkpoint_repeats_nothing_on_the_second_copy_of_a_copy(store: eoslog.Store) -> None:
    source_id = store.describe().store_id
    stream(store, "q", 0, 1)
    first = copied(store, new_identity=True)
    stream(first, "q", 1, 2, startanewafter=f"q@{source_id}:0", run="new run")

    second = copied(first, new_identity=True)
    stream(second, "q", 1, 2, checkpointlocation="/copied")

    assert numbers(second) == [1, 2]


def test_copied_checkpoints_of_queries_with_similar_ids_repeat_nothing(store: eoslog.Store) -> None:
    ids = {"q": "etl@eu", "r": "etl@us"}
    for number, (query, named) in enumerate(ids.items()):
        stream(store, query, 0, number, transactionalid=named)

    target = copied(store, new_identity=True)
    for number, (query, named) in enumerate(ids.items()):
        stream(target, query, 0, number, transactionalid=f"{named}-copied")

    assert numbers(target) == [0, 1]


def test_a_foreach_batch_of_the_source_is_refused_by_a_copy_with_a_new_identity(store: eoslog.Store) -> None:
    batch(store, 1, txnappid="etl", txnversion="0")

    target = copied(store, new_identity=True)

    with pytest.raises(CheckpointMismatch, match="other work"):
        batch(target, 2, txnappid="etl", txnversion="1")
    assert numbers(target) == [1]


def test_numbered_work_outside_of_streams_continues_on_any_copy(store: eoslog.Store) -> None:
    told(None)
    batch(store, 1, txnappid="etl", txnversion="0")

    target = copied(store, new_identity=True)
    batch(target, 1, txnappid="etl", txnversion="0")
    batch(target, 2, txnappid="etl", txnversion="1")

    assert numbers(target) == [1, 2]


def test_the_second_copy_of_a_copy_refuses_the_queries_of_both(store: eoslog.Store) -> None:
    stream(store, "q", 0, 1)
    first = copied(store, new_identity=True)
    first_id = first.describe().store_id

    second = copied(first, new_identity=True)

    with pytest.raises(CheckpointMismatch, match=f"startAnewAfter='q@{first_id}:0'"):
        stream(second, "q", 1, 2)


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
