"""Committing a job: the transactions of all its tasks end in one slot, or none does."""

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
    """Commit a job, and give its topic the columns that its rows bring. The answer is the slot."""

    job: CommitJob
    new_columns: NewColumns | None
    name: ClassVar = CommitJob.name
    is_final: ClassVar = CommitJob.is_final

    def apply(self, draft: Draft) -> int:
        """Raises: SchemaMismatch, and what ``CommitJob.apply`` raises"""
        slot = self.job.apply(draft)
        if self.new_columns is not None:
            append_new_columns(draft, self.new_columns, self.job.time_ms)
        return slot


@dataclass(frozen=True)
class CheckReplay:
    """Check that the work of a job was committed before. Its tasks held their rows back, so there is nothing else."""

    job: CommitJob
    name: ClassVar = "check"
    is_final: ClassVar = False

    def apply(self, draft: Draft) -> int:
        """
        Raises:
            Replayed: it was.
            IllegalState: it was not.
        """
        self.job.check_token(draft)
        raise IllegalState(
            f"job {self.job.job_id}: another run has committed meanwhile; nothing was committed, run this again"
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
    """Commit what the tasks uploaded. Work whose token was committed before is done already, and stays as it is.

    ``replaces`` is the id of a topic whose rows so far go in the same step; ``micro_batch`` says that the token is a
    stream sink's. If a micro-batch was committed with another number of rows, it is refused unless not
    ``fail_on_data_loss``. ``operation`` and ``query_name`` are what the history tells of the commit beside its numbers.

    Raises:
        CheckpointMismatch: the token does not follow what was committed last.
        IllegalState: the tasks held their rows back, but the work was not committed before.
        ProducerFenced: another run has taken the job over.
        SchemaMismatch: a column that the job adds was added by another one meanwhile, with another type.
        CommitStateUnknown: the store did not tell whether the commit landed.
        OutcomeLost: nor will it, for the slot was deleted meanwhile.
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
    """Tell the user that work was found to be committed before. A warning: Spark's workers print nothing below."""
    left = f"; {discarded_files} files that were uploaded again are left to vacuum" if discarded_files else ""
    _logger.warning("[%s] %s: job %s: %s; nothing is written twice%s", Replayed.code, url, job_id, what, left)


def _compare_rows(store: Store, job_id: str, token: ApplicationToken, rows: int) -> None:
    """Say if a replayed micro-batch is not what it was, where that may be."""
    before = store.read(lambda state, slot: committed_rows(state, job_id, token), refresh=False)
    if before is not None and before != rows:
        _logger.warning(
            "%s: job %s: micro-batch %d was committed with %d rows, and has %d now, which were not written",
            store.url,
            job_id,
            token.version,
            before,
            rows,
        )


def common(values: Iterable[T]) -> T | None:
    """The value, if it is the same for all."""
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None


def same_for_all(messages: Sequence[TaskCommit | None], *, of_stream: bool = False) -> list[TaskCommit]:
    """The messages of a commit: one of each task, all of the same run.

    A streaming query's tasks all know it; those of a batch that ``foreachBatch`` writes may.

    Raises:
        IllegalState: Spark asks to commit a job that is not complete.
    """
    complete = [message for message in messages if message is not None]
    if not complete or len(complete) < len(messages):
        raise IllegalState("Spark asked to commit a job without the messages of all its tasks; run it again")
    of_query = ("run_id", "query_id", "batch_id") if of_stream else ()
    for name in ("store_id", "sink", "new_columns", *of_query):
        if len({getattr(message, name) for message in complete}) > 1:
            raise IllegalState(f"Spark asked to commit tasks of which each has another {name}; run the job again")
    return complete


def _append_until_known(store: Store, request: RepeatableRequest[int]) -> int:
    append = IdempotentAppend(store, HomeProcess("store"))
    for _ in range(_ATTEMPTS - 1):
        with suppress(CommitStateUnknown):
            return append(request)
    return append(request)
