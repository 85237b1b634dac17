"""The batch writer and the stream writer. One process plans them, tasks run them, and another process commits.

A commit ends the transactions of all tasks of a job in one slot, or none of them.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar, cast

import pyarrow as pa
from pyspark import __version__ as pyspark_version
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from eoslog import Store
from eoslog.errors import EosLogError, IllegalState, InvalidOption, InvalidRequest, Replayed, UnknownTopicOrPartition
from eoslog.producer.job import CheckpointLocation, Job, JobCommit, work_content
from eoslog.wording import counted
from pyspark_eoslog.options import Options, StoreLocation
from pyspark_eoslog.pyspark_version import is_at_least
from pyspark_eoslog.worker import mark_current, plain_errors, store_with_id, this_worker
from pyspark_eoslog.write.tasks import TaskCommit, WritePlan, write_task
from pyspark_eoslog.write.write_plan import plan_batch_write, plan_stream_write

if TYPE_CHECKING or is_at_least(4, 1):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:
    # The data source refuses to write streams.
    from pyspark.sql.datasource import DataSourceStreamWriter as DataSourceStreamArrowWriter

_logger = logging.getLogger(__name__)
_Messages = Sequence[WriterCommitMessage | None]
_MOST_NAMED = 3
T = TypeVar("T")


class EosLogWriter(DataSourceArrowWriter):
    """The writer of a batch. The planner makes it once, and Spark sends it to the tasks and to the commit."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        with plain_errors():
            self._location = options.location
            owner = this_worker().environment.new_id()
            named = _named_job(options)
            self._plan, store = plan_batch_write(options, schema)
            replaces = _replaced_topic(self._plan) if overwrite else None
            self._publishes = options.publish_on_commit
            _check_version(options)
            job = Job(
                job_id=named or f"spark-{owner}",
                sink=self._plan.sink,
                version=options.version,
                application_id=options.application_id,
                starts_anew_after=options.start_anew_after,
            )
            self._commit = JobCommit(
                job=job,
                owner=owner,
                take_over=named is None,
                replaces=replaces,
                compares_rows=options.fail_on_data_loss,
                operation="append" if replaces is None else "overwrite",
            )
            if named is not None and not job.take_over(store, owner):
                last = job.last_version(store)
                is_last = last is not None and last.version == options.version
                self._plan = replace(self._plan, replayed=True, compared=is_last and options.fail_on_data_loss)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        with plain_errors():
            return write_task(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with plain_errors():
            complete = same_for_all(cast("Sequence[TaskCommit | None]", messages))
            commit_tasks(self._location, complete, self._commit, publish=self._publishes)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _log_abort(self._commit.job.job_id, messages)


class EosLogStreamWriter(DataSourceStreamArrowWriter):
    """The writer of micro-batches. Spark makes one for each planning and another one for each commit."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        with plain_errors():
            if options.version is not None or options.application_id is not None:
                raise InvalidOption(
                    "options 'txnVersion' and 'txnAppId' are for batch writes: a micro-batch of a stream is recognized "
                    "by its query id and batch id"
                )
            self._options = options
            self._overwrite = overwrite
            # A process that only commits needs no plan, and an error of planning would hide the error of the commit.
            self._plan = None if this_worker().only_commits else plan_stream_write(options, schema)
            if overwrite and self._plan is not None:
                _replaced_topic(self._plan)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        with plain_errors():
            assert self._plan is not None
            return write_task(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        with plain_errors():
            complete = same_for_all(cast("Sequence[TaskCommit | None]", messages), of_stream=True)
            query_id = complete[0].query_id
            if query_id is None:
                raise IllegalState(
                    "Spark did not pass the query id to the tasks, so nothing was committed. Start the query again"
                )
            checkpoint = complete[0].checkpoint
            location = None if checkpoint is None else checkpoint.of_query(query_id)
            job = Job(
                job_id=self._options.transactional_id or _job_name(query_id, location),
                sink=complete[0].sink,
                location=location,
                version=batchId,
                starts_anew_after=self._options.start_anew_after,
                is_micro_batch=True,
            )
            commit = JobCommit(
                job=job,
                owner=complete[0].run_id or f"{query_id}-{this_worker().id}",
                take_over=True,
                replaces=job.sink.rpartition(":")[2] if self._overwrite else None,
                compares_rows=self._options.fail_on_data_loss,
                operation="complete" if self._overwrite else "append",
                query_name=self._options.query_name,
            )
            try:
                commit_tasks(self._options.location, complete, commit, publish=self._options.publish_on_commit)
            except UnknownTopicOrPartition:
                raise UnknownTopicOrPartition(
                    f"micro-batch {batchId} was planned for the sink {job.sink}, but its topic was deleted, or "
                    "created again, so nothing was committed. Start the query again (it refreshes its topics every ten "
                    "seconds)"
                ) from None

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        _log_abort(f"micro-batch {batchId}", messages)


def _replaced_topic(plan: WritePlan) -> str:
    """Return the id of the topic whose rows ``mode("overwrite")`` and ``outputMode("complete")`` replace.

    Raises:
        InvalidRequest: the column ``topic`` names the topics.
    """
    if plan.by_column:
        raise InvalidRequest("rows that name their topics cannot replace a topic's rows. Name it with option 'topic'")
    return plan.targets[0][0].topic_id


def _named_job(options: Options) -> str | None:
    """Return the transactional id that the user gave; otherwise the application id, which names the job too."""
    return options.transactional_id or options.application_id


def _check_version(options: Options) -> None:
    """Raises: InvalidOption: an option of the application version lacks the option that it needs."""
    if options.version is None:
        if options.application_id is not None:
            raise InvalidOption("option 'txnAppId' needs option 'txnVersion', the number of this piece of work")
        if options.start_anew_after is not None:
            raise InvalidOption("option 'startAnewAfter' is for streams, and for batch writes with option 'txnVersion'")
    elif _named_job(options) is None:
        raise InvalidOption(
            "option 'txnVersion' needs option 'transactionalId' or 'txnAppId': it counts the work of one application"
        )


def _job_name(query_id: str, location: CheckpointLocation | None) -> str:
    """Return the transactional id of a stream, which is the same for each run of the query on its checkpoint.

    A copy of the checkpoint at another location has another id. It may write to another topic at the same time.
    """
    named = query_id if location is None else f"{query_id} {location.name}"
    return "spark-" + hashlib.sha256(named.encode()).hexdigest()[:16]


def _log_abort(what: str, messages: _Messages) -> None:
    """Log an abort. Delete nothing: a failed commit may have landed, and vacuum deletes unreferenced files."""
    files = sum(len(message.files) for message in messages if isinstance(message, TaskCommit))
    _logger.info("%s was aborted; %d uploaded files are left to vacuum", what, files)


def commit_tasks(
    location: StoreLocation, messages: Sequence[TaskCommit], commit: JobCommit, *, publish: bool = False
) -> None:
    """Commit the files that the tasks uploaded. If the version of the job was committed before, this is a no-op.

    Args:
        commit: the commit as it was planned. The messages add the files, the query and the amounts.
        publish: publish the topic for other engines afterwards.

    Raises:
        The errors of ``JobCommit.append``, except ``Replayed``.
    """
    store = store_with_id(location, messages[0].store_id)
    commit = _with_messages(commit, messages, store)
    job = commit.job
    others = job.queries_on_other_hosts(store)
    try:
        slot = commit.append(store)
    except Replayed as replayed:
        store.environment.reached("spark.job.replay_found")
        _tell_replay(store, job, str(replayed), discarded_files=len(commit.files))
        before = job.committed_rows(store) if job.is_micro_batch else None
        if before is not None and before != commit.rows:
            _logger.warning(
                "%s: job %s: micro-batch %d was committed with %s, but has %d now. The new rows were not written",
                store.url,
                job.job_id,
                job.version,
                counted(before, "row"),
                commit.rows,
            )
    else:
        summary = commit.summary
        _logger.info(
            "%s: job %s committed %s in %s of %d bytes at slot %d, %d ms after it was planned",
            store.url,
            job.job_id,
            counted(summary.rows, "row"),
            counted(summary.files, "file"),
            summary.bytes,
            slot,
            summary.duration_ms,
        )
    if others:
        _tell_similar_location(store, job, others)
    mark_current(location)
    if publish:
        _publish(store, job.sink.rpartition(":")[0])


def _with_messages(commit: JobCommit, messages: Sequence[TaskCommit], store: Store) -> JobCommit:
    """Return the commit with the reports of the tasks."""
    files = [(message.task, file) for message in messages for file in message.files]
    rows = sum(message.rows for message in messages)
    job = replace(commit.job, query_id=common(message.query_id for message in messages))
    if job.version is not None and not job.is_micro_batch:
        compared = [file for message in messages for file in message.compared]
        content = work_content(store, [file for _, file in files] or compared)
        job = replace(job, rows=rows, content=content, invocation=common(each.invocation for each in messages))
    return replace(
        commit,
        job=job,
        files=files,
        task_count=max(message.task for message in messages) + 1,
        upload_ms=min(message.upload_ms for message in messages),
        rows=rows,
        new_columns=messages[0].new_columns,
        held_back=any(message.held_back for message in messages),
        duration_ms=max(0, store.now_ms() - min(message.planned_ms for message in messages)),
        batch_id=common(message.batch_id for message in messages),
        engine=f"spark-{pyspark_version}",
    )


def _tell_similar_location(store: Store, job: Job, others: Sequence[str]) -> None:
    """Log that a new query may replace one of another host. Only the user knows if the pod is new or a second one."""
    _logger.warning(
        "%s: streaming query %s begins to write to %s. Its checkpoint has the same path as that of %s on another host. "
        "If that checkpoint was lost, rows that the source delivers again are there twice. A checkpoint on shared "
        "storage, or a transactionalId, prevents this",
        store.url,
        job.query_id,
        job.sink.partition(":")[0],
        ", ".join(others[:_MOST_NAMED]),
    )


def _publish(store: Store, topic: str) -> None:
    """Publish a topic after a commit. The rows are committed in any case, so a failure is only logged."""
    try:
        found = store.admin.publish(topic)
    except EosLogError as error:
        _logger.warning(
            "%s: the rows are committed, but topic %s was not published: %s. The next commit or a coordinator "
            "publishes them",
            store.url,
            topic,
            error,
        )
    else:
        for each in found:
            _logger.info(
                "%s: topic %s is published as %s version %d at slot %d",
                store.url,
                topic,
                each.format,
                each.version,
                each.slot,
            )


def _tell_replay(store: Store, job: Job, what: str, *, discarded_files: int) -> None:
    """Log that the work was committed before. The level is warning, because Spark's workers print no lower level."""
    left = f"; left to vacuum: {counted(discarded_files, 'file')} uploaded again" if discarded_files else ""
    _logger.warning("[%s] %s: job %s: %s; nothing is written twice%s", Replayed.code, store.url, job.job_id, what, left)


def common(values: Iterable[T]) -> T | None:
    """Return the value if all are equal; otherwise None."""
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None


def same_for_all(messages: Sequence[TaskCommit | None], *, of_stream: bool = False) -> list[TaskCommit]:
    """Return the messages of a commit, after a check that each task sent one and that all belong to one run.

    All tasks of a streaming query know their query. Tasks of a batch write in ``foreachBatch`` may not know it.

    Raises:
        IllegalState: a message is missing, or messages are of different runs.
    """
    complete = [message for message in messages if message is not None]
    if not complete or len(complete) < len(messages):
        raise IllegalState("Spark asked to commit a job without the messages of all its tasks. Run it again")
    of_query = ("run_id", "query_id", "batch_id") if of_stream else ()
    for name in ("store_id", "sink", "new_columns", *of_query):
        if len({getattr(message, name) for message in complete}) > 1:
            raise IllegalState(f"Spark asked to commit tasks with different values of {name}. Run the job again")
    return complete
