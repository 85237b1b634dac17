"""The commit of a Spark job: the transactions of all its tasks end in one slot, or none does."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from pyspark import __version__ as pyspark_version

from eoslog.errors import CommitStateUnknown, IllegalState, Replayed
from eoslog.session.idempotent_append import IdempotentAppend, RepeatableRequest
from eoslog.state.application_versions import committed_rows
from eoslog.state.draft import Draft
from eoslog.state.jobs import CommitJob
from eoslog.state.transaction_entries import ApplicationToken, CommitSummary
from eoslog.storage.process import HomeProcess
from eoslog.store import Store
from pyspark_eoslog.options import StoreLocation
from pyspark_eoslog.stores import mark_current, store_with_id
from pyspark_eoslog.write.new_columns import NewColumns, append_new_columns
from pyspark_eoslog.write.tasks import TaskCommit

T = TypeVar("T")
_logger = logging.getLogger(__name__)
_ATTEMPTS = 3
_LONGEST_NAME = 200


@dataclass(frozen=True)
class CommitTasks:
    """Commit a job, and add the columns of its rows that the topic lacks. The answer is the slot."""

    job: CommitJob
    new_columns: NewColumns | None
    name: ClassVar = CommitJob.name
    is_final: ClassVar = CommitJob.is_final

    def apply(self, draft: Draft) -> int:
        """Raises: SchemaMismatch, and the errors of ``CommitJob.apply``"""
        slot = self.job.apply(draft)
        if self.new_columns is not None:
            append_new_columns(draft, self.new_columns, self.job.time_ms)
        return slot


@dataclass(frozen=True)
class CheckReplay:
    """Check that the work of a job was committed before. Its tasks uploaded nothing, so there is nothing to commit."""

    job: CommitJob
    name: ClassVar = "check"
    is_final: ClassVar = False

    def apply(self, draft: Draft) -> int:
        """
        Raises:
            Replayed: the work was committed before.
            IllegalState: it was not.
        """
        self.job.check_token(draft)
        raise IllegalState(
            f"job {self.job.job_id}: another run has committed since, so nothing was committed; run this job again"
        )


def commit_tasks(
    location: StoreLocation,
    messages: Sequence[TaskCommit],
    *,
    job_id: str,
    owner: str,
    take_over: bool,
    token: ApplicationToken | None,
    replaces: str | None = None,
    micro_batch: bool = False,
    fail_on_data_loss: bool = True,
    operation: str = "append",
    query_name: str | None = None,
) -> None:
    """Commit the files that the tasks uploaded. If the version of ``token`` was committed before, this is a no-op.

    Args:
        job_id: the transactional id of the job.
        owner: the run of the job. Its first commit fences earlier runs.
        take_over: fence an earlier run with this commit.
        token: the application version of this work; None if it has none.
        replaces: the id of a topic whose existing rows are deleted in the same step.
        micro_batch: True if ``token`` belongs to a streaming sink.
        fail_on_data_loss: refuse a replayed micro-batch that was committed with another number of rows.
        operation: the operation that the history shows.
        query_name: the name of the query that the history shows.

    Raises:
        CheckpointMismatch: the token does not follow the last committed version.
        IllegalState: the tasks uploaded nothing because of a replay, but the work was not committed before.
        ProducerFenced: another run has taken over the job.
        SchemaMismatch: another job has added a column of this job with another type in the meantime.
        CommitStateUnknown: the store did not answer, so the outcome of the commit is unknown.
        OutcomeLost: the slot was deleted in the meantime, so the outcome can no longer be read.
    """
    store = store_with_id(location, messages[0].store_id)
    staged = [file.staged(message.task) for message in messages for file in message.files]
    rows = sum(message.rows for message in messages)
    now_ms = store.now_ms()
    summary = CommitSummary(
        rows=sum(batch.record_count for batch in staged),
        files=len(staged),
        bytes=sum(batch.file.length for batch in staged),
        duration_ms=max(0, now_ms - min(message.planned_ms for message in messages)),
        operation=operation,
        query_id=common(message.query_id for message in messages),
        query_name=None if query_name is None else query_name[:_LONGEST_NAME],
        batch_id=common(message.batch_id for message in messages),
        engine=f"spark-{pyspark_version}",
    )

    job = CommitJob(
        job_id=job_id,
        owner=owner,
        take_over=take_over,
        batches=staged,
        upload_ms=min(message.upload_ms for message in messages),
        token=token,
        task_count=max(message.task for message in messages) + 1,
        summary=summary,
        time_ms=now_ms,
        replaces=replaces,
        micro_batch=micro_batch,
        rows=rows if fail_on_data_loss else None,
    )
    held_back = any(message.held_back for message in messages)
    try:
        slot = _append_until_known(store, CheckReplay(job) if held_back else CommitTasks(job, messages[0].new_columns))
    except Replayed as replayed:
        store.environment.reached("spark.job.replay_found")
        _tell_replay(store.url, job_id, str(replayed), discarded_files=len(staged))
        if micro_batch and token is not None:
            _compare_rows(store, job_id, token, rows)
    else:
        _logger.info(
            "%s: job %s committed %d rows in %d files of %d bytes at slot %d, %d ms after it was planned",
            store.url,
            job_id,
            summary.rows,
            summary.files,
            summary.bytes,
            slot,
            summary.duration_ms,
        )
    mark_current(location)


def _tell_replay(url: str, job_id: str, what: str, *, discarded_files: int = 0) -> None:
    """Log that the work was committed before. The level is warning, because Spark's workers print no lower level."""
    left = f"; {discarded_files} files that were uploaded again are left to vacuum" if discarded_files else ""
    _logger.warning("[%s] %s: job %s: %s; nothing is written twice%s", Replayed.code, url, job_id, what, left)


def _compare_rows(store: Store, job_id: str, token: ApplicationToken, rows: int) -> None:
    """Log a warning if a replayed micro-batch has another number of rows than the committed one."""
    before = store.read(lambda state, slot: committed_rows(state, job_id, token), refresh=False)
    if before is not None and before != rows:
        _logger.warning(
            "%s: job %s: micro-batch %d was committed with %d rows, but has %d now. The new rows were not written",
            store.url,
            job_id,
            token.version,
            before,
            rows,
        )


def common(values: Iterable[T]) -> T | None:
    """Return the value if all are equal; otherwise None."""
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None


def same_for_all(messages: Sequence[TaskCommit | None], *, of_stream: bool = False) -> list[TaskCommit]:
    """Return the messages of a commit, after a check that each task sent one and that all belong to one run.

    The tasks of a streaming query all know their query. Those of a batch write in ``foreachBatch`` may not.

    Raises:
        IllegalState: a message is missing, or messages are of different runs.
    """
    complete = [message for message in messages if message is not None]
    if not complete or len(complete) < len(messages):
        raise IllegalState("Spark asked to commit a job without the messages of all its tasks; run it again")
    of_query = ("run_id", "query_id", "batch_id") if of_stream else ()
    for name in ("store_id", "sink", "new_columns", *of_query):
        if len({getattr(message, name) for message in complete}) > 1:
            raise IllegalState(f"Spark asked to commit tasks with different values of {name}; run the job again")
    return complete


def _append_until_known(store: Store, request: RepeatableRequest[int]) -> int:
    append = IdempotentAppend(store, HomeProcess("store"))
    for _ in range(_ATTEMPTS):
        with suppress(CommitStateUnknown):
            return append(request)
    # Ask for the last attempt, too. Without a token, a user who runs the job again would write its rows twice.
    landed = append.landed()
    return append(request) if landed is None else int(landed[0])
