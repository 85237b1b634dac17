"""The requests of a job's driver. A job commits the transactions of all its tasks in one slot.

The same slot may replace the rows of a topic. ``transaction_requests`` defines what a request is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from eoslog.errors import ConcurrentTransactions, InvalidRequest, ProducerFenced
from eoslog.state.application_versions import (
    check_application_version,
    check_micro_batch,
    check_same_work,
    last_version,
    starts_anew,
)
from eoslog.state.draft import Draft
from eoslog.state.end_requests import TransactionContent, end_request
from eoslog.state.entries import LogStartMoved
from eoslog.state.features import STARTS_ANEW_AFTER, need_feature
from eoslog.state.partitions import topic_of
from eoslog.state.producer_ids import DEFAULT_TRANSACTION_TIMEOUT_MS, MAX_TASKS, ProducerIdentity, current_identity
from eoslog.state.store_state import Transaction, TransactionState
from eoslog.state.transaction_entries import ApplicationVersion
from eoslog.state.transaction_requests import AbortOverdueTransactions, InitProducerId


def check_task_count(count: int) -> None:
    """Check that a job has a producer id for each task.

    Raises:
        InvalidRequest: the job has more tasks.
    """
    if count > MAX_TASKS:
        raise InvalidRequest(
            f"a job has at most {MAX_TASKS} tasks, but this one has {count} or more. Write with fewer tasks: call "
            "coalesce() first"
        )


def _check_not_fenced(transaction: Transaction | None, job_id: str, owner: str, *, take_over: bool) -> None:
    """Check that a run may commit.

    Raises:
        ProducerFenced: another run has taken the job over, or this run does not hold it and may not take it over.
    """
    if transaction is not None and transaction.owner == owner:
        return
    # A fenced run never returns, even with ``take_over``. Otherwise two runs would take the job from each other in
    # turn, and each would commit what it planned before the other's commits.
    if not take_over or (transaction is not None and owner in transaction.fenced_owners):
        raise ProducerFenced(
            f"transactional id {job_id!r}: another run has taken this job over. Stop one of the two runs, or give each "
            "its own transactionalId"
        )


@dataclass(frozen=True)
class TakeOverJob:
    """Fence the earlier runs of a job. The answer is False if its version was committed before.

    This request does not check which query committed that version. The query is not known before the tasks run; the
    commit checks it.
    """

    job_id: str
    owner: str
    application_version: ApplicationVersion | None
    time_ms: int

    def apply(self, draft: Draft) -> bool:
        """Take the job over, unless its version was committed before."""
        work = self.application_version
        if work is not None:
            last = last_version(draft, self.job_id, work.application_id, work.sink)
            if last is not None and work.version <= last.version and not starts_anew(work, last):
                return False
        _take_over(draft, self.job_id, self.owner, self.time_ms)
        return True


def _take_over(draft: Draft, job_id: str, owner: str, time_ms: int) -> ProducerIdentity:
    return InitProducerId(
        job_id, timeout_ms=DEFAULT_TRANSACTION_TIMEOUT_MS, time_ms=time_ms, kind="job", owner=owner
    ).take(draft)


@dataclass(frozen=True, kw_only=True)
class CommitJob:
    """Commit the transactions of all tasks of a job in one slot. The answer is the slot.

    A fenced run never commits again. A run that never held the job takes it over if ``take_over`` is true; otherwise it
    is refused as fenced. A run without an application version commits once: a repeated request gets the same answer.
    """

    job_id: str
    owner: str
    """The id of the run that planned the job."""
    take_over: bool
    content: TransactionContent
    time_ms: int
    replaces: str | None = None
    """The id of a topic whose existing rows are dropped in the same slot. Overdue transactions in it are aborted."""
    micro_batch: bool = False
    """True if the application version belongs to a stream's sink.

    Then a query that committed under another transactional id before continues under this one. Runs that still use the
    other id are fenced.
    """
    rows: int | None = None
    """The number of rows of the work, compared with the number committed before; None to skip the comparison."""
    name: ClassVar = "commit"
    is_final: ClassVar = True

    def apply(self, draft: Draft) -> int:
        """Commit the job, and return the slot.

        Raises:
            CheckpointMismatch: the application version does not follow the last committed version.
            ConcurrentTransactions: a transaction is open in the topic whose rows are to be replaced.
            InvalidRequest: the job has too many tasks.
            ProducerFenced: another run holds the job.
            Replayed: the application version was committed before.
        """
        check_task_count(self.content.task_count)
        draft.offer_files(self.content.files)
        transaction = draft.transactions.get(self.job_id)
        is_holder = transaction is not None and transaction.owner == self.owner
        _check_not_fenced(transaction, self.job_id, self.owner, take_over=self.take_over)
        self.check_application_version(draft, is_holder=is_holder)
        work = self.content.application_version
        if transaction is not None and is_holder:
            is_committed = transaction.state is TransactionState.COMPLETE_COMMIT
            # The answer to an earlier attempt was lost. Without a version only the owner tells that the job is done.
            if work is None and is_committed:
                return transaction.last_slot
            identity = current_identity(transaction)
        else:
            identity = _take_over(draft, self.job_id, self.owner, self.time_ms)
        if work is not None and work.starts_anew_after is not None:
            need_feature(draft, STARTS_ANEW_AFTER)
        if self.replaces is not None:
            # The writer aborts overdue transactions at the end of each record. That is too late here: a topic with an
            # open transaction refuses the replacement.
            AbortOverdueTransactions(self.time_ms).apply(draft)
            replace_rows(draft, self.replaces)
        draft.append(
            end_request(self.job_id, identity, "commit", content=self.content, owner=self.owner, time_ms=self.time_ms)
        )
        return draft.slot

    def check_application_version(self, draft: Draft, *, is_holder: bool = False) -> None:
        """Check that the job's work was not committed before.

        Args:
            is_holder: True if this run holds the job.

        Raises:
            CheckpointMismatch, ProducerFenced, Replayed: as ``apply``.
        """
        work = self.content.application_version
        if self.micro_batch and work is not None:
            check_micro_batch(draft, self.job_id, work, is_holder=is_holder, rows=self.rows)
        else:
            if self.rows is not None:
                check_same_work(draft, self.job_id, work)
            check_application_version(draft, self.job_id, work)


def replace_rows(draft: Draft, topic_id: str) -> None:
    """Drop all rows of a topic, for readers that plan from this slot on.

    Raises:
        ConcurrentTransactions: a transaction is open in the topic. Its rows must not be lost.
    """
    topic = topic_of(draft, topic_id)
    for partition_id in topic.partition_ids():
        partition = draft.partitions[partition_id]
        if partition.is_held_back:
            holders = [name for name in draft.ongoing if partition_id in draft.transactions[name].partitions]
            prepared = [name for name in holders if draft.transactions[name].prepared is not None]
            raise ConcurrentTransactions(
                f"the rows of topic {topic.topic} cannot be replaced while a transaction is open in it: that of "
                f"transactional id {min(prepared or holders)!r} in partition {partition_id.partition}"
                + (
                    ", which is prepared and waits for its outcome. Let its producer complete it "
                    "(complete_transaction), or abort it with force_terminate_transaction (eoslog transactions "
                    "force-terminate). Then run this again"
                    if prepared
                    else ". Run this again when it has ended"
                )
            )
        if partition.next_offset > partition.log_start_offset:
            draft.append(
                LogStartMoved(
                    topic_id=topic_id,
                    partition=partition_id.partition,
                    offset=partition.next_offset,
                    reason="overwrite",
                )
            )
