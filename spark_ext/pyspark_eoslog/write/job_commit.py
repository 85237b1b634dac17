"""Committing a job: the transactions of all its tasks end in one slot, or none does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from pyspark import __version__ as pyspark_version

from eoslog.client.store import Store
from eoslog.errors import CommitStateUnknown, IllegalState, Replayed
from eoslog.rules.coordinator import initialise
from eoslog.rules.draft import Draft
from eoslog.rules.jobs import commit_job
from eoslog.rules.producer_ids import DEFAULT_TRANSACTION_TIMEOUT_MS
from eoslog.rules.tokens import check_micro_batch, check_token, committed_rows, last_version, starts_anew
from eoslog.rules.transaction_entries import ApplicationToken, CommitSummary
from pyspark_eoslog.options import StoreLocation
from pyspark_eoslog.stores import mark_current, store_with_id
from pyspark_eoslog.write.new_columns import append_new_columns
from pyspark_eoslog.write.tasks import TaskCommit

T = TypeVar("T")
_logger = logging.getLogger(__name__)
_ATTEMPTS = 3
_LONGEST_NAME = 200


def take_job_over(store: Store, job_id: str, owner: str, token: ApplicationToken | None) -> bool:
    """Fence earlier runs of a job. False, and nothing is done, if the version of ``token`` was committed before.

    Whose version that was, the commit looks at: before the tasks run nobody knows the query.
    """

    def propose(draft: Draft) -> bool:
        if token is not None:
            last = last_version(draft, job_id, token.application_id, token.sink)
            if last is not None and token.version <= last.version and not starts_anew(token, last):
                return False
        initialise(
            draft,
            job_id,
            timeout_ms=DEFAULT_TRANSACTION_TIMEOUT_MS,
            time_ms=store.now_ms(),
            kind="job",
            owner=owner,
        )
        return True

    return store.append(propose)


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
    compared = rows if fail_on_data_loss else None
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

    def propose(draft: Draft) -> int:
        commit_job(
            draft,
            job_id,
            owner,
            take_over=take_over,
            batches=staged,
            upload_ms=min(message.upload_ms for message in messages),
            token=token,
            task_count=max(message.task for message in messages) + 1,
            summary=summary,
            time_ms=now_ms,
            replaces=replaces,
            micro_batch=micro_batch,
            rows=compared,
        )
        if messages[0].new_columns is not None:
            append_new_columns(draft, messages[0].new_columns, now_ms)
        return draft.slot

    def look(draft: Draft) -> int:
        if micro_batch and token is not None:
            check_micro_batch(draft, job_id, token, rows=compared)
        else:
            check_token(draft, job_id, token)
        raise IllegalState(f"job {job_id}: another run has committed meanwhile; nothing was committed, run this again")

    held_back = any(message.held_back for message in messages)
    try:
        slot = _append_until_known(store, lambda: store.append(look if held_back else propose))
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


def _append_until_known(store: Store, append: Callable[[], int]) -> int:
    """The slot that the append has won, or would have: a run that commits again is answered, and nothing is written."""
    for attempt in range(_ATTEMPTS):
        try:
            return append()
        except CommitStateUnknown as error:
            if _landed(store, error):
                return error.slot
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _landed(store: Store, error: CommitStateUnknown) -> bool:
    for attempt in range(_ATTEMPTS):
        try:
            return store.resolve(error)
        except CommitStateUnknown:
            if attempt == _ATTEMPTS - 1:
                raise
    raise error
