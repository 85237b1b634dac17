"""The commit of a Spark job: the transactions of all its tasks end in one slot, or none does."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from pyspark import __version__ as pyspark_version

from eoslog import Store
from eoslog.errors import IllegalState, Replayed
from eoslog.producer.job import Job
from pyspark_eoslog.options import StoreLocation
from pyspark_eoslog.stores import mark_current, store_with_id
from pyspark_eoslog.write.tasks import TaskCommit

T = TypeVar("T")
_logger = logging.getLogger(__name__)


def commit_tasks(
    location: StoreLocation,
    messages: Sequence[TaskCommit],
    job: Job,
    *,
    owner: str,
    take_over: bool,
    replaces: str | None = None,
    fail_on_data_loss: bool = True,
    operation: str = "append",
    query_name: str | None = None,
) -> None:
    """Commit the files that the tasks uploaded. If the version of the job was committed before, this is a no-op.

    Args:
        job: the job, without its query: the messages tell it.
        owner, take_over, replaces, operation, query_name: as in ``Job.commit``.
        fail_on_data_loss: refuse a replayed micro-batch that was committed with another number of rows.

    Raises:
        The errors of ``Job.commit``, except ``Replayed``.
    """
    store = store_with_id(location, messages[0].store_id)
    files = [(message.task, file) for message in messages for file in message.files]
    rows = sum(message.rows for message in messages)
    duration_ms = max(0, store.now_ms() - min(message.planned_ms for message in messages))
    job = replace(job, query_id=common(message.query_id for message in messages))
    try:
        slot = job.commit(
            store,
            files,
            owner=owner,
            take_over=take_over,
            task_count=max(message.task for message in messages) + 1,
            upload_ms=min(message.upload_ms for message in messages),
            duration_ms=duration_ms,
            rows=rows if fail_on_data_loss else None,
            replaces=replaces,
            new_columns=messages[0].new_columns,
            held_back=any(message.held_back for message in messages),
            operation=operation,
            query_name=query_name,
            batch_id=common(message.batch_id for message in messages),
            engine=f"spark-{pyspark_version}",
        )
    except Replayed as replayed:
        store.environment.reached("spark.job.replay_found")
        _tell_replay(store, job, str(replayed), discarded_files=len(files))
        before = job.committed_rows(store) if job.is_micro_batch else None
        if before is not None and before != rows:
            _logger.warning(
                "%s: job %s: micro-batch %d was committed with %d rows, but has %d now. The new rows were not written",
                store.url,
                job.job_id,
                job.version,
                before,
                rows,
            )
    else:
        _logger.info(
            "%s: job %s committed %d rows in %d files of %d bytes at slot %d, %d ms after it was planned",
            store.url,
            job.job_id,
            sum(file.record_count for _, file in files),
            len(files),
            sum(file.length for _, file in files),
            slot,
            duration_ms,
        )
    mark_current(location)


def _tell_replay(store: Store, job: Job, what: str, *, discarded_files: int) -> None:
    """Log that the work was committed before. The level is warning, because Spark's workers print no lower level."""
    left = f"; {discarded_files} files that were uploaded again are left to vacuum" if discarded_files else ""
    _logger.warning("[%s] %s: job %s: %s; nothing is written twice%s", Replayed.code, store.url, job.job_id, what, left)


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
