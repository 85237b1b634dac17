"""A job: its tasks upload files, and one slot commits the transactions of all of them, or none.

A job consists of plain values, so one process may plan it, others run its tasks, and another one commit it. For the
planner, this module also finds the topics to write to.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from eoslog.errors import CommitStateUnknown, IllegalState
from eoslog.format.file_writer import TopicTarget, WrittenFile, contents_of, upload_beyond
from eoslog.format.statistics import decode_statistics, order
from eoslog.format.topic_schemas import stored_schema
from eoslog.producer.new_columns import NewColumns
from eoslog.session.idempotent_append import IdempotentAppend
from eoslog.session.session import Session
from eoslog.state.application_versions import (
    committed_rows,
    last_at_location,
    last_version,
    location_name,
    queries_on_other_hosts,
    starts_anew,
)
from eoslog.state.draft import Draft
from eoslog.state.end_requests import TransactionContent
from eoslog.state.entry_fields import LONGEST_STATISTICS
from eoslog.state.jobs import CommitJob, TakeOverJob, check_task_count
from eoslog.state.store_state import StoreState, Topic
from eoslog.state.topics import topic_named
from eoslog.state.transaction_entries import ApplicationVersion, CommitSummary, QueryVersion
from eoslog.storage.process import HomeProcess

_ATTEMPTS = 3
_LONGEST_NAME = 200
_MOST_COMPARED_COLUMNS = 32


class WorkVersion(NamedTuple):
    """The version of an application's work, and the streaming query that gave it this number."""

    version: int
    query_id: str | None = None
    """None outside of streams."""


class CheckpointLocation(NamedTuple):
    """The location of a stream's checkpoint. It shows that an earlier query lost its checkpoint there."""

    path: str
    """A URL, or an absolute path."""
    host: str | None = None
    """The host of a path that other hosts do not share."""

    @property
    def name(self) -> str:
        """The name of the location in the log, which does not show the path."""
        digest = hashlib.sha256(self.path.encode(errors="surrogatepass")).hexdigest()[:16]
        return location_name(digest, self.host)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job, and the version of its work if it has one. The store commits each version once."""

    job_id: str
    """The transactional id."""
    sink: str
    """The scope of the version: a topic with its id, or ``*``."""
    version: int | None = None
    """The number of this work; None if the application gives no number."""
    application_id: str | None = None
    """The application that numbers its work; None if it is the job itself."""
    query_id: str | None = None
    """The streaming query that numbers the work; None outside of streams."""
    location: CheckpointLocation | None = None
    """The location of the checkpoint of a stream's sink, if the query names the job. It is the application then."""
    starts_anew_after: WorkVersion | None = None
    """The last committed version, if the application restarts its count after it."""
    rows: int | None = None
    """The number of rows of a batch write with a version."""
    content: str | None = None
    """The bounds of the columns of a batch write with a version: ``work_content``."""
    invocation: str | None = None
    """The execution that runs the batch write."""
    is_micro_batch: bool = False
    """True if the version belongs to a streaming sink."""

    def take_over(self, store: Session, owner: str) -> bool:
        """Fence the earlier runs of the job. Return False, and fence none, if its version was committed before.

        Args:
            owner: the id of this run.
        """
        return store.append(TakeOverJob(self.job_id, owner, self.application_version(), store.now_ms()))

    def last_version(self, store: Session) -> WorkVersion | None:
        """Return the last committed version of the known state; None if there is none, or if the count restarts."""
        work = self._application_version_of(0)
        last = store.read(
            lambda state, slot: last_version(state, self.job_id, work.application_id, self.sink), refresh=False
        )
        return None if last is None or starts_anew(work, last) else WorkVersion(last.version, last.query_id)

    def last_at_location(self, store: Session) -> tuple[WorkVersion | None, frozenset[str]]:
        """Return the last version that any query committed to the sink from the location, and all known queries.

        Both are of the known state. The caller refuses any other query that begins at this location. If no
        query has committed from the location, or if the count restarts, return None and an empty set.
        """
        work = self._application_version_of(0)

        def snapshot(state: StoreState, slot: int) -> tuple[WorkVersion | None, frozenset[str]]:
            last = last_at_location(state, work.application_id, self.sink)
            if last is None or starts_anew(work, last):
                return None, frozenset()
            return WorkVersion(last.version, last.query_id), frozenset(state.query_versions)

        return store.read(snapshot, refresh=False)

    def queries_on_other_hosts(self, store: Session) -> list[str]:
        """Return the other queries that wrote to the sink from a checkpoint at the same path, on other hosts.

        The list is empty if this query has committed before, or if the path or its host is not known.
        """
        location = self.location
        if location is None or location.host is None or self.last_version(store) is not None:
            return []
        name, host = location.name, location.host
        return store.read(
            lambda state, slot: sorted(set(queries_on_other_hosts(state, name, host, self.sink)) - {self.query_id}),
            refresh=False,
        )

    def committed_rows(self, store: Session) -> int | None:
        """Return the number of rows that this version of a streaming sink was committed with; None if unknown."""
        work = self.application_version()
        if work is None:
            return None
        return store.read(lambda state, slot: committed_rows(state, self.job_id, work), refresh=False)

    def application_version(self) -> ApplicationVersion | None:
        """Return the version of the work as an entry states it; None if the work has no version."""
        return None if self.version is None else self._application_version_of(self.version)

    def _application_version_of(self, version: int) -> ApplicationVersion:
        after = self.starts_anew_after
        return ApplicationVersion(
            application_id=self.location.name if self.location else self.application_id or self.job_id,
            sink=self.sink,
            version=version,
            query_id=self.query_id,
            starts_anew_after=None if after is None else QueryVersion(query_id=after.query_id, version=after.version),
            rows=self.rows,
            content=self.content,
            invocation=self.invocation,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCommit:
    """A commit of a job. The planner names the job and its run, and the driver adds the reports of the tasks."""

    job: Job
    owner: str
    """The run of the job. Its first commit fences earlier runs."""
    take_over: bool
    """True if this commit may fence an earlier run."""
    replaces: str | None = None
    """The id of a topic whose existing rows are deleted in the same step."""
    compares_rows: bool = True
    """True if a repetition with other rows is refused, as far as the log can show the difference."""
    operation: str = "append"
    """``append``, ``overwrite`` or ``complete``, for the history."""
    query_name: str | None = None
    """The name that the user gave the streaming query, for the history."""
    files: Sequence[tuple[int, WrittenFile]] = ()
    """The files that the tasks uploaded, each with the number of its task."""
    task_count: int = 0
    upload_ms: int = 0
    """A lower bound of the time at which the first upload began (ms by the store's clock)."""
    rows: int = 0
    """The number of rows of the work. A repetition may have rows without files."""
    new_columns: NewColumns | None = None
    """The columns that the topic lacked at planning."""
    held_back: bool = False
    """True if the tasks uploaded nothing, because the work was committed before. Then ``append`` commits nothing, and
    only checks that."""
    duration_ms: int = 0
    """The time from the planning to the commit (ms), for the history."""
    batch_id: int | None = None
    """The number of the query's micro-batch, for the history."""
    engine: str | None = None
    """The engine that ran the job, with its version, for the history."""

    @property
    def summary(self) -> CommitSummary:
        """The amounts of the files, and what the history shows of the commit."""
        return CommitSummary(
            rows=sum(file.record_count for _, file in self.files),
            files=len(self.files),
            bytes=sum(file.length for _, file in self.files),
            duration_ms=self.duration_ms,
            operation=self.operation,
            query_id=self.job.query_id,
            query_name=None if self.query_name is None else self.query_name[:_LONGEST_NAME],
            batch_id=self.batch_id,
            engine=self.engine,
        )

    def append(self, store: Session) -> int:
        """Commit the files, and return the slot.

        Raises:
            Replayed: the version was committed before.
            CheckpointMismatch: the version does not follow the last committed one.
            IllegalState: the work was held back, but was not committed before.
            ProducerFenced: another run has taken over the job.
            SchemaMismatch: another job has added a column of this job with another type in the meantime.
            CommitStateUnknown: the store did not answer, so the outcome of the commit is unknown.
            OutcomeLost: the slot was deleted in the meantime, so the outcome can no longer be read.
        """
        request = self._request(store)
        append = IdempotentAppend(store, HomeProcess("store"))
        for _ in range(_ATTEMPTS):
            with suppress(CommitStateUnknown):
                return append(request)
        # Ask for the last attempt, too. Without a version, a user who runs the job again would write its rows twice.
        landed = append.landed()
        return append(request) if landed is None else int(landed[0])

    def _request(self, store: Session) -> _CommitTasks | _CheckReplay:
        # Each task kept its own small files for the record. All of them may be too many for one record.
        fitting = upload_beyond(store.object_store, [file for _, file in self.files])
        request = CommitJob(
            job_id=self.job.job_id,
            owner=self.owner,
            take_over=self.take_over,
            content=TransactionContent(
                batches=[file.staged(task) for (task, _), file in zip(self.files, fitting, strict=True)],
                upload_ms=self.upload_ms,
                files=contents_of(fitting),
                application_version=self.job.application_version(),
                task_count=self.task_count,
                summary=self.summary,
            ),
            time_ms=store.now_ms(),
            replaces=self.replaces,
            micro_batch=self.job.is_micro_batch,
            rows=self.rows if self.compares_rows else None,
        )
        return _CheckReplay(request) if self.held_back else _CommitTasks(request, self.new_columns)


@dataclass(frozen=True)
class _CommitTasks:
    """Commit a job, and add the columns of its rows that the topic lacks. The answer is the slot."""

    job: CommitJob
    new_columns: NewColumns | None
    name: ClassVar = CommitJob.name
    is_final: ClassVar = CommitJob.is_final

    def apply(self, draft: Draft) -> int:
        """Commit the job, add the columns, and return the slot.

        Raises:
            SchemaMismatch: the topic has a column of this name with another type.
            The errors of ``CommitJob.apply``.
        """
        slot = self.job.apply(draft)
        if self.new_columns is not None:
            self.new_columns.append(draft, self.job.time_ms)
        return slot


@dataclass(frozen=True)
class _CheckReplay:
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
        self.job.check_application_version(draft)
        raise IllegalState(
            f"job {self.job.job_id}: another run has committed since, so nothing was committed. Run this job again"
        )


def work_content(store: Session, files: Sequence[WrittenFile]) -> str | None:
    """Return digests of the bounds of each column over some files of one topic, as JSON.

    They do not depend on how the rows are divided into files. The answer is None if no bounds are known.
    """
    topic_ids = {file.topic_id for file in files}
    if len(topic_ids) != 1:
        return None
    topic_id = topic_ids.pop()
    # The process that commits may know a state before the topic's creation.
    topic = store.read(lambda state, slot: state.topics.get(topic_id), refresh=False) or store.read(
        lambda state, slot: state.topics.get(topic_id)
    )
    if topic is None:
        return None
    types = {field.name: field.type for field in stored_schema(topic)}
    bounds = [decode_statistics(file.statistics, types) for file in files]
    digests = {}
    for name in types:
        if not all(name in each for each in bounds):
            continue
        of_column = [each[name] for each in bounds]
        ends = [end for each in of_column for end in (each.least, each.greatest) if each.has_values]
        if not ends or None in ends:
            continue
        known = [end for end in ends if end is not None]
        text = repr((min(known, key=order), max(known, key=order), any(each.has_nulls for each in of_column)))
        digests[name] = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
        if len(digests) == _MOST_COMPARED_COLUMNS:
            break
    text = json.dumps(digests)
    return text if digests and len(text) <= LONGEST_STATISTICS else None


def check_task(task: int) -> None:
    """Check that a job may have a task of this number, before the task uploads.

    Raises:
        InvalidRequest: the job has too many tasks.
    """
    check_task_count(task + 1)


def write_targets(store: Session, topic: str | None, *, refresh: bool) -> tuple[str, list[tuple[Topic, TopicTarget]]]:
    """Return the id of the store, and the topics to write to with the targets of their files, all from one state.

    Args:
        topic: the topic of all rows. None: each row names its topic, which is one of the topics of Kafka records.

    Raises:
        UnknownTopicOrPartition
    """

    def snapshot(state: StoreState, slot: int) -> tuple[str, list[tuple[Topic, TopicTarget]]]:
        if topic is None:
            topics = [each for each in state.topics.values() if each.topic_schema.kind == "records"]
        else:
            topics = [topic_named(state, topic)]
        return state.store_id, [(each, TopicTarget.of(state, each)) for each in topics]

    return store.read(snapshot, refresh=refresh)
