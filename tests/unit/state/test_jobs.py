"""A job commits the transactions of its tasks together: once, and never after it was fenced."""

from __future__ import annotations

import pytest

from eoslog.errors import (
    ConcurrentTransactions,
    InvalidEntry,
    InvalidRequest,
    ProducerFenced,
    Replayed,
    TransactionalIdNotFound,
)
from eoslog.state.end_requests import EndTransaction, TransactionContent, end_request
from eoslog.state.entry_fields import LONGEST_STATISTICS
from eoslog.state.expiry import TRANSACTIONAL_ID_EXPIRATION_MS
from eoslog.state.jobs import CommitJob
from eoslog.state.producer_ids import IDS_OF_SLOT, LAST_USABLE_EPOCH, MAX_TASKS, ProducerIdentity
from eoslog.state.state_machine import decode_entry
from eoslog.state.transaction_entries import CommitSummary
from tests.unit.state.histories import TOPIC_ID, History, planned_expiry


def files(history: History) -> list[str]:
    return [batch.file.path for batch in history.partition().active if batch.file is not None]


def test_a_job_commits_all_tasks_in_one_slot() -> None:
    history = History()
    batches = [history.staged(3, task=0), history.staged(2, task=1), history.staged(4, partition=1, task=1)]

    identity = history.job("run", *batches, version=0)

    partition = history.partition()
    assert partition.next_offset == 6
    assert history.partition(1).next_offset == 5
    job = identity.producer_id
    assert [batch.producer_id for batch in partition.active] == [job + 1, job + 2, job]
    assert [batch.transactional_id for batch in partition.active] == ["job/0", "job/1", "job"]
    assert {batch.end_slot for batch in partition.active} == {history.slot}
    assert history.transaction("job").task_count == 2


def test_a_replay_commits_nothing_and_says_so() -> None:
    history = History()
    history.job("run", history.staged(task=0), version=7)

    for owner in ("run", "another run"):
        with pytest.raises(Replayed):
            history.job(owner, history.staged(task=0), version=7)
    with pytest.raises(Replayed):
        history.job("run", history.staged(task=0), version=3)
    history.job("run", history.staged(task=0), version=8)
    assert len(files(history)) == 2


def test_a_replay_is_known_after_the_job_expired() -> None:
    history = History()
    history.job("run", history.staged(task=0), version=7)
    history.now_ms += TRANSACTIONAL_ID_EXPIRATION_MS
    planned = planned_expiry(history.state, history.now_ms)
    assert planned is not None
    history.append(lambda draft: draft.append(planned))

    with pytest.raises(Replayed):
        history.job("new run", history.staged(task=0), version=7)


def test_a_run_that_was_fenced_never_commits_again() -> None:
    history = History()
    history.job("zombie", history.staged(task=0), version=0)
    history.job("run", history.staged(task=0), version=1)

    for take_over in (True, False):
        with pytest.raises(ProducerFenced):
            history.job("zombie", history.staged(task=0), version=2, take_over=take_over)
    history.job("run", history.staged(task=0), version=2)


def test_a_run_fenced_by_an_init_never_commits() -> None:
    """The epoch is not taken as it is now: that would fence nobody."""
    history = History()
    history.init("job", kind="job", owner="zombie")
    history.init("job", kind="job", owner="run")

    with pytest.raises(ProducerFenced):
        history.job("zombie", history.staged(task=0))
    history.job("run", history.staged(task=0))
    assert len(files(history)) == 1


def test_a_run_that_may_not_take_over_is_fenced() -> None:
    history = History()
    history.job("run", history.staged(task=0), version=0)

    with pytest.raises(ProducerFenced):
        history.job("unknown", history.staged(task=0), version=1, take_over=False)
    with pytest.raises(ProducerFenced):
        history.job("unknown", history.staged(task=0), job_id="new", take_over=False)


def test_a_plain_producer_that_takes_the_id_fences_the_run() -> None:
    history = History()
    history.job("run", history.staged(task=0), version=0)
    history.init("job")

    with pytest.raises(ProducerFenced):
        history.job("run", history.staged(task=0), version=1)


def test_a_take_over_aborts_what_is_open_under_the_id() -> None:
    history = History()
    identity = history.init("job")
    history.send(identity, 0, 3, transactional_id="job")

    history.job("run", history.staged(2, task=0), version=0)

    assert [txn.last_offset for txn in history.partition().aborted] == [3]
    assert history.partition().last_stable_offset == history.partition().high_watermark == 7


def test_without_an_application_version_a_run_commits_once_however_often_it_asks() -> None:
    history = History()
    staged = history.staged(task=0)
    first = history.job("run", staged)

    assert history.job("run", staged) == first
    assert len(files(history)) == 1
    history.job("next run", history.staged(task=0))
    assert len(files(history)) == 2


@pytest.mark.parametrize("producer_epoch", [LAST_USABLE_EPOCH - 1, LAST_USABLE_EPOCH])
@pytest.mark.parametrize("owner", ["run", "another"])
def test_a_job_rolls_its_producer_id_over_and_its_tasks_with_it(producer_epoch: int, owner: str) -> None:
    history = History()
    history.job("run", history.staged(task=0), version=0)
    before = history.at_epoch(producer_epoch, "job")

    after = history.job(owner, history.staged(task=0), version=1)
    last = history.job(owner, history.staged(task=0), version=2)

    assert after.producer_id in (before.producer_id, history.slot - 1 << 20)
    assert last.producer_id > before.producer_id
    assert history.partition().next_offset == 6


def test_a_batch_of_a_task_that_the_job_does_not_have_is_invalid() -> None:
    history = History()

    with pytest.raises(InvalidEntry):
        history.job("run", history.staged(task=2), tasks=2)


def test_a_task_may_not_take_the_id_of_a_producer() -> None:
    history = History()
    history.init("job/0")

    with pytest.raises(InvalidRequest):
        history.job("run", history.staged(task=0))


def test_an_empty_batch_writes_its_application_version_too() -> None:
    history = History()
    history.job("run", version=4)

    with pytest.raises(Replayed):
        history.job("run", version=4)


@pytest.mark.parametrize("replaces", [None, TOPIC_ID])
def test_a_job_without_rows_and_without_an_application_version_is_committed_once(replaces: str | None) -> None:
    history = History()
    history.job("earlier", history.staged(task=0))

    first = history.job("run", replaces=replaces)
    later = history.job("later", history.staged(task=0), job_id="other")

    assert history.job("run", replaces=replaces) == first
    assert later != first
    assert history.partition().log_start_offset == (0 if replaces is None else 2)
    assert history.partition().next_offset == 4


def test_rows_are_not_replaced_while_a_transaction_is_open_in_the_topic() -> None:
    history = History()
    identity = history.init("open")
    history.send(identity, 0, 3, transactional_id="open")

    with pytest.raises(ConcurrentTransactions, match="that of transactional id 'open' in partition 0"):
        history.job("run", history.staged(2, task=0), replaces=TOPIC_ID)
    history.end(identity, "commit", "open")
    history.job("run", history.staged(2, task=0), replaces=TOPIC_ID)

    assert history.partition().log_start_offset == 4
    assert history.partition().last_stable_offset == 7


def test_an_overwrite_that_a_prepared_transaction_holds_up_names_it_and_how_it_ends() -> None:
    """It may wait for days: to be told to run again later would not help."""
    history = History()
    identity = history.init("two phases")
    history.send(identity, transactional_id="two phases")
    history.send(history.init("a"), transactional_id="a")
    history.prepare(identity, "two phases")

    with pytest.raises(ConcurrentTransactions) as refused:
        history.job("run", history.staged(2, task=0), replaces=TOPIC_ID)

    for part in ("'two phases'", "is prepared", "complete_transaction", "eoslog transactions force-terminate"):
        assert part in str(refused.value)
    history.force_terminate("two phases")
    with pytest.raises(ConcurrentTransactions, match=r"'a' in partition 0\. Run this again when it has ended"):
        history.job("run", history.staged(2, task=0), replaces=TOPIC_ID)


def test_a_job_that_replaces_rows_aborts_open_transactions_past_their_time_out() -> None:
    history = History()
    history.send(history.init("dead", timeout_ms=1000), 0, 3, transactional_id="dead")
    history.now_ms += 1001

    history.job("run", history.staged(2, task=0), replaces=TOPIC_ID)

    assert history.partition().log_start_offset == 4
    assert history.partition().last_stable_offset == 7


def test_a_job_id_that_does_not_exist_cannot_be_aborted() -> None:
    with pytest.raises(TransactionalIdNotFound):
        History().abort_by_admin("nobody")


@pytest.mark.parametrize("owner", [None, "zombie"])
def test_another_runs_end_is_fenced_at_the_current_epoch_too(owner: str | None) -> None:
    history = History()
    identity = history.init("job", kind="job", owner="run")

    with pytest.raises(ProducerFenced):
        history.end(identity, "abort", "job", owner=owner)
    history.end(identity, "abort", "job", owner="run")


def test_statistics_too_large_for_an_entry_are_dropped_files_are_not() -> None:
    history = History()
    longest = '{"a":[0,"' + "x" * (LONGEST_STATISTICS - 15) + '",9]}'
    batch = history.staged(task=0).model_copy(update={"statistics": longest[:LONGEST_STATISTICS]})
    room = (16 << 20) // len(longest)

    content = TransactionContent(batches=[batch] * (room + 10))
    request = end_request("job", ProducerIdentity(1, 0), "commit", content=content, time_ms=0)

    assert [each.statistics is not None for each in request.batches] == [True] * room + [False] * 10


@pytest.mark.parametrize("task", [0, MAX_TASKS - 2, MAX_TASKS - 1])
def test_the_largest_job_has_a_producer_id_for_itself_and_for_each_task(task: int) -> None:
    history = History()

    job = history.job("run", history.staged(2, task=task), tasks=MAX_TASKS, version=0)

    rows, marker = history.partition().active
    assert (rows.producer_id, rows.transactional_id) == (job.producer_id + task + 1, f"job/{task}")
    assert marker.producer_id == job.producer_id
    assert rows.producer_id // IDS_OF_SLOT == job.producer_id // IDS_OF_SLOT == history.slot
    assert history.transaction("job").task_count == MAX_TASKS
    assert history.init(None).producer_id > rows.producer_id


def test_a_job_with_more_tasks_than_producer_ids_is_refused() -> None:
    history = History()
    before = history.state.frozen_copy()

    with pytest.raises(InvalidRequest, match=f"at most {MAX_TASKS} tasks, but this one has {MAX_TASKS + 1} or more"):
        history.job("run", history.staged(task=0), tasks=MAX_TASKS + 1)

    assert history.state == before


@pytest.mark.parametrize("task", [0, None])
def test_an_end_with_tasks_under_the_id_of_a_producer_is_invalid(task: int | None) -> None:
    """The producer ids after that of a producer belong to other producers."""
    history = History()
    producer = history.init()
    batches = [history.staged(task=task)]
    content = TransactionContent(batches=batches, task_count=1, upload_ms=history.now_ms)
    end = end_request("tx", producer, "commit", content=content, time_ms=0)

    assert "is not a job" in str(history.refused(EndTransaction(end).apply))


def test_an_entry_with_more_tasks_than_producer_ids_is_invalid() -> None:
    history = History()
    history.job("run", history.staged(task=MAX_TASKS - 1), tasks=MAX_TASKS)
    *_, end = history.records[-1]
    (batch,) = end["batches"]

    assert decode_entry(end)
    for beyond in (end | {"task_count": MAX_TASKS + 1}, end | {"batches": [batch | {"task": MAX_TASKS}]}):
        with pytest.raises(InvalidEntry, match="malformed entry"):
            decode_entry(beyond)


def test_a_repeated_commit_without_an_application_version_is_answered_with_its_slot() -> None:
    history = History()
    history.job("run", history.staged(task=0))
    slot = history.slot
    history.delete_topic()
    request = CommitJob(
        job_id="job",
        owner="run",
        take_over=True,
        content=TransactionContent(task_count=2, summary=CommitSummary()),
        time_ms=history.now_ms,
    )

    assert history.append(request.apply) == slot
    assert history.slot == slot + 1
