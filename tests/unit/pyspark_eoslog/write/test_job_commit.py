"""Committing a job: once, in one slot, whatever the store answers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import eoslog
from eoslog.admin.transaction_descriptions import count_transactional_ids
from eoslog.errors import (
    CommitStateUnknown,
    ConcurrentTransactions,
    IllegalState,
    InvalidRequest,
    NotAStore,
    ProducerFenced,
)
from eoslog.format.file_writer import DataFileWriter, TopicTarget, WrittenFile
from eoslog.log import next_record
from eoslog.log.append_queue import InFlight
from eoslog.producer.job import Job, JobCommit
from eoslog.store import Store
from pyspark_eoslog.options import StoreLocation
from pyspark_eoslog.worker import this_worker
from pyspark_eoslog.write.sink import commit_tasks, same_for_all
from pyspark_eoslog.write.tasks import TaskCommit

NUMBERS = pa.schema([pa.field("n", pa.int64())])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = eoslog.connect(str(tmp_path / "store"))
    store.admin.create_topic("out", schema=NUMBERS)
    yield store
    this_worker().forget_stores()


def task(store: Store, number: int, *rows: int, **changes: Any) -> TaskCommit:
    """What a task reports that uploaded rows."""
    topic = store.admin.describe_topic("out")
    target = store.read(lambda state, slot: TopicTarget.of(state, topic))
    upload_ms = store.object_store.clock.last_date_ms
    writer = DataFileWriter(store.object_store, store.environment.new_id)
    writer.append(target, 0, pa.table({"n": list(rows)}, schema=NUMBERS), store.now_ms())
    values = {
        "task": number,
        "files": tuple(writer.flush(store.now_ms())),
        "store_id": store.describe().store_id,
        "sink": f"out:{topic.topic_id}",
        "upload_ms": upload_ms,
        "planned_ms": upload_ms,
        "run_id": None,
        "query_id": None,
        "batch_id": None,
    }
    return TaskCommit(**{**values, **changes})


def commit(store: Store, *messages: TaskCommit, owner: str = "run", version: int | None = None) -> None:
    job = Job(job_id="job", sink=messages[0].sink, version=version, application_id="app")
    commit_tasks(StoreLocation(store.url), messages, JobCommit(job=job, owner=owner, take_over=True))


def numbers(store: Store) -> list[int]:
    return sorted(store.scan("out").to_table()["n"].to_pylist())


def test_all_tasks_are_committed_in_one_slot(store: Store) -> None:
    messages = [task(store, 0, 1, 2), task(store, 2, 3), task(store, 1)]
    before = store.read(lambda state, slot: slot)

    commit(store, *messages)

    assert store.read(lambda state, slot: slot) == before + 1
    assert numbers(store) == [1, 2, 3]
    kinds = {each.transactional_id: each.kind for each in store.admin.list_transactions()}
    assert kinds == {"job": "job", "job/0": "task", "job/1": "task", "job/2": "task"}
    assert store.read(lambda state, slot: count_transactional_ids(state)) == len(kinds)


def test_a_version_is_committed_once(store: Store) -> None:
    commit(store, task(store, 0, 1), version=4)
    commit(store, task(store, 0, 1), owner="restarted", version=4)

    assert numbers(store) == [1]


def test_a_skipped_duplicate_is_warned_of_and_a_commit_is_logged(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="pyspark_eoslog")
    commit(store, task(store, 0, 1, 2), version=4)
    slot = store.read(lambda state, newest: newest)

    commit(store, task(store, 0, 1, 2), owner="restarted", version=4)

    done, skipped = caplog.records
    assert done.levelno == logging.INFO
    assert f"committed 2 rows in 1 file of {next(store.history('out')).bytes} bytes at slot {slot}" in done.message
    assert skipped.levelno == logging.WARNING
    assert skipped.message.startswith("[EOSLOG_REPLAYED]")
    assert "version 4 of 'app' was committed before (largest: 4)" in skipped.message
    assert "left to vacuum: 1 file uploaded again" in skipped.message


def test_a_job_that_replaces_a_topics_rows_is_one_operation(store: Store) -> None:
    commit(store, task(store, 0, 1))
    location, topic_id = StoreLocation(store.url), store.admin.describe_topic("out").topic_id

    for rows in ((2, 3), ()):
        job = Job(job_id="job", sink=f"out:{topic_id}", version=2 - len(rows), application_id="a")
        planned = JobCommit(job=job, owner="other", take_over=True, replaces=topic_id, operation="overwrite")
        commit_tasks(location, [task(store, 0, *rows)], planned)

    assert [(each.operation, each.topics, each.rows) for each in store.history("out")] == [
        ("overwrite", ("out",), 0),
        ("overwrite", ("out",), 2),
        ("append", ("out",), 1),
        ("create_topic", ("out",), None),
    ]


def test_a_run_that_was_fenced_is_refused_for_ever(store: Store) -> None:
    commit(store, task(store, 0, 1), owner="first")
    commit(store, task(store, 0, 2), owner="second")

    for _ in range(2):
        with pytest.raises(ProducerFenced, match="another run has taken this job over"):
            commit(store, task(store, 0, 3), owner="first")
    assert numbers(store) == [1, 2]


def test_a_job_that_is_taken_over_learns_whether_its_work_was_done(store: Store) -> None:
    job = Job(job_id="job", sink=task(store, 0).sink, version=1, application_id="app")
    assert job.take_over(store, "run")
    commit(store, task(store, 0, 1), version=1)
    before = store.read(lambda state, slot: slot)

    assert not job.take_over(store, "again")

    assert store.read(lambda state, slot: slot) == before


@pytest.mark.parametrize("version", [None, 1])
@pytest.mark.parametrize("lands", [True, False])
def test_a_commit_without_answer_is_made_again_and_done_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, lands: bool, version: int | None
) -> None:
    message = task(store, 0, 1)
    append, calls = Store.append, []

    def unanswered(self: Store, request: Any, **options: Any) -> Any:
        calls.append(request)
        if len(calls) > 1:
            return append(self, request, **options)
        slot = self.read(lambda state, newest: newest) + 1
        append_id = "0" * 32
        if lands:
            append(self, request)
            append_id = self.log.replica.append_id
        options["attempts"].puts[InFlight(slot, append_id)] = slot
        raise CommitStateUnknown("no answer", slot=slot, append_id=append_id)

    monkeypatch.setattr(Store, "append", unanswered)

    commit(store, message, version=version)

    assert len(calls) == 2
    assert numbers(store) == [1]
    assert "committed before" not in caplog.text


def test_a_commit_that_landed_in_the_last_attempt_is_found(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    message = task(store, 0, 1)
    append, calls = Store.append, []

    def unanswered(self: Store, request: Any, **options: Any) -> Any:
        calls.append(request)
        slot = self.read(lambda state, newest: newest) + 1
        append_id = "0" * 32
        if len(calls) == 3:
            append(self, request)
            append_id = self.log.replica.append_id
        options["attempts"].puts[InFlight(slot, append_id)] = slot
        raise CommitStateUnknown("no answer", slot=slot, append_id=append_id)

    monkeypatch.setattr(Store, "append", unanswered)

    commit(store, message)

    assert len(calls) == 3
    assert numbers(store) == [1]


def test_a_retriable_refusal_is_told_when_no_attempt_has_landed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    message = task(store, 0, 1)
    append, calls = Store.append, []

    def refused_after_no_answer(self: Store, request: Any, **options: Any) -> Any:
        calls.append(request)
        if len(calls) > 1:
            raise ConcurrentTransactions("a transaction is open in the topic")
        slot = self.read(lambda state, newest: newest) + 1
        options["attempts"].puts[InFlight(slot, "0" * 32)] = slot
        raise CommitStateUnknown("no answer", slot=slot, append_id="0" * 32)

    monkeypatch.setattr(Store, "append", refused_after_no_answer)

    with pytest.raises(ConcurrentTransactions):
        commit(store, message)
    monkeypatch.setattr(Store, "append", append)
    assert numbers(store) == []


def test_files_for_another_store_are_not_committed(store: Store) -> None:
    with pytest.raises(NotAStore, match="replaced by another"):
        commit(store, task(store, 0, 1, store_id="f" * 32))


def test_a_job_without_all_its_messages_is_not_committed(store: Store) -> None:
    with pytest.raises(IllegalState):
        same_for_all([task(store, 0, 1), None])
    with pytest.raises(IllegalState):
        same_for_all([])
    with pytest.raises(IllegalState, match="different values of run_id"):
        same_for_all([task(store, 0, 1, run_id="a"), task(store, 1, 1, run_id="b")], of_stream=True)


def test_the_log_tells_of_a_commit_what_people_ask(store: Store) -> None:
    messages = [task(store, number, number, query_id="q", batch_id=7) for number in range(2)]
    location = StoreLocation(store.url)

    job = Job(job_id="job", sink=messages[0].sink)
    planned = JobCommit(job=job, owner="run", take_over=True, operation="complete", query_name="n")
    commit_tasks(location, messages, planned)

    (commit,) = store.history("out", transactional_id="job")
    assert (commit.operation, commit.rows, commit.files, commit.task_count) == ("complete", 2, 2, 2)
    assert (commit.query_id, commit.query_name, commit.batch_id) == ("q", "n", 7)
    assert (commit.engine or "").startswith("spark-")
    assert commit.bytes == sum(file.length for message in messages for file in message.files)


def test_tasks_that_do_not_agree_on_their_query_are_committed_without_one(store: Store) -> None:
    commit(store, task(store, 0, 1, query_id="q"), task(store, 1, 2))

    assert [each.query_id for each in store.history("out", transactional_id="job")] == [None]


def test_a_name_of_any_length_hinders_no_commit(store: Store) -> None:
    message = task(store, 0, 1)
    job = Job(job_id="j", sink=message.sink)
    planned = JobCommit(job=job, owner="r", take_over=True, query_name="x" * 5000)

    commit_tasks(StoreLocation(store.url), [message], planned)

    assert numbers(store) == [1]


def of_many_files(store: Store, count: int, tasks: int) -> list[TaskCommit]:
    """What tasks report that uploaded small files, as far as the log looks at them."""
    topic = store.admin.describe_topic("out")
    now_ms = store.now_ms()
    directory = f"out/{topic.topic_id}/0/{0:020d}"
    files = [
        WrittenFile(topic.topic_id, 0, f"{directory}/{number:032x}.parquet", 900, 7, 8, 10, now_ms, now_ms)
        for number in range(count)
    ]
    each = count // tasks
    template = task(store, 0)
    return [replace(template, task=n, files=tuple(files[n * each : (n + 1) * each])) for n in range(tasks)]


def test_thousands_of_files_are_committed_in_one_slot(store: Store) -> None:
    before = store.read(lambda state, slot: slot)

    commit(store, *of_many_files(store, 3000, tasks=300))

    assert store.read(lambda state, slot: slot) == before + 1
    assert store.scan("out").record_count == 30_000


def test_more_files_than_a_record_holds_are_refused_and_leave_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = of_many_files(store, 300, tasks=3)
    monkeypatch.setattr(next_record, "LARGEST_RECORD_BYTES", 50_000)
    before = store.read(lambda state, slot: (slot, state.frozen_copy()))

    with pytest.raises(InvalidRequest, match="Commit fewer files in one call"):
        commit(store, *messages)

    assert store.read(lambda state, slot: (slot, state.frozen_copy())) == before
    commit(store, *messages[:1])
