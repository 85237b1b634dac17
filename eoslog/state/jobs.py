"""A job commits the transactions of all its tasks in one slot, and may replace a topic's rows in the same step.

See ``transaction_requests`` for what a request is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from eoslog.errors import ConcurrentTransactions, InvalidRequest, ProducerFenced
from eoslog.state.application_versions import check_micro_batch, check_token, last_version, starts_anew
from eoslog.state.draft import Draft
from eoslog.state.features import STARTS_ANEW_AFTER, need_feature
from eoslog.state.partitions import topic_of
from eoslog.state.producer_ids import DEFAULT_TRANSACTION_TIMEOUT_MS, MAX_TASKS, ProducerIdentity
from eoslog.state.segment_entries import LogStartMoved
from eoslog.state.store_state import Transaction, TransactionState
from eoslog.state.transaction_entries import ApplicationToken, CommitSummary, StagedBatch
from eoslog.state.transaction_requests import AbortOverdueTransactions, InitProducerId, end_request


def check_task_count(count: int) -> None:
    """Check that the job's slot has a producer id for each task.

    Raises:
        InvalidRequest: the job has more tasks.
    """
    if count > MAX_TASKS:
        raise InvalidRequest(
            f"a job has at most {MAX_TASKS} tasks, but this one has {count} or more. Write with fewer tasks: call "
            "coalesce() first"
        )


def _check_not_fenced(transaction: Transaction | None, job_id: str, owner: str, *, take_over: bool) -> None:
    if transaction is not None and transaction.owner == owner:
        return
    if not take_over or (transaction is not None and owner in transaction.fenced_owners):
        raise ProducerFenced(
            f"transactional id {job_id!r}: another run has taken this job over; stop one of them, or give each a "
            "transactionalId of its own"
        )


@dataclass(frozen=True)
class TakeOverJob:
    """Fence the earlier runs of a job. The answer is False if the version of the token was committed before.

    The request does not ask which query committed that version: the commit does. Before the tasks run nobody knows the
    query.
    """

    job_id: str
    owner: str
    token: ApplicationToken | None
    time_ms: int

    def apply(self, draft: Draft) -> bool:
        token = self.token
        if token is not None:
            last = last_version(draft, self.job_id, token.application_id, token.sink)
            if last is not None and token.version <= last.version and not starts_anew(token, last):
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

    A run that was fenced never commits again. One that never held the job takes it over if ``take_over``, else it is
    fenced too. Without a token a run commits once: a repeated request is answered again.
    """

    job_id: str
    owner: str
    """The run that planned the job."""
    take_over: bool
    batches: Sequence[StagedBatch]
    upload_ms: int
    token: ApplicationToken | None
    task_count: int
    summary: CommitSummary
    time_ms: int
    replaces: str | None = None
    """The id of a topic whose rows so far go in the same step. Overdue transactions there are aborted."""
    micro_batch: bool = False
    """The token is that of a stream's sink.

    A query that committed under another transactional id before goes on under this one. Runs that still use the other
    one are fenced.
    """
    rows: int | None = None
    """How many rows the micro-batch has, to compare if it was committed before; None: do not compare."""
    name: ClassVar = "commit"
    is_final: ClassVar = True

    def apply(self, draft: Draft) -> int:
        """
        Raises:
            CheckpointMismatch: the token does not follow what was committed last.
            ConcurrentTransactions: a transaction is open in the topic whose rows are to go.
            InvalidRequest: the job has too many tasks.
            ProducerFenced: another run holds the job.
            Replayed: the application token was committed before.
        """
        check_task_count(self.task_count)
        transaction = draft.transactions.get(self.job_id)
        is_holder = transaction is not None and transaction.owner == self.owner
        _check_not_fenced(transaction, self.job_id, self.owner, take_over=self.take_over)
        self.check_token(draft, goes_on=is_holder)
        if transaction is not None and is_holder:
            is_committed = transaction.state is TransactionState.COMPLETE_COMMIT
            if self.token is None and is_committed and transaction.last_commit is not None:
                return transaction.last_commit.slot
            identity = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
        else:
            identity = _take_over(draft, self.job_id, self.owner, self.time_ms)
        if self.token is not None and self.token.starts_anew_after is not None:
            need_feature(draft, STARTS_ANEW_AFTER)
        if self.replaces is not None:
            # Not left to the end of the record: a topic with an open transaction refuses the replacement.
            AbortOverdueTransactions(self.time_ms).apply(draft)
            replace_rows(draft, self.replaces)
        draft.append(
            end_request(
                self.job_id,
                identity,
                "commit",
                owner=self.owner,
                batches=self.batches,
                upload_ms=self.upload_ms if self.batches else None,
                token=self.token,
                task_count=self.task_count,
                summary=self.summary,
                time_ms=self.time_ms,
            )
        )
        return draft.slot

    def check_token(self, draft: Draft, *, goes_on: bool = False) -> None:
        """Check that the work of the token is still to be done.

        Args:
            goes_on: whether this run holds the job.

        Raises:
            CheckpointMismatch, ProducerFenced, Replayed: as ``apply``.
        """
        if self.micro_batch and self.token is not None:
            check_micro_batch(draft, self.job_id, self.token, goes_on=goes_on, rows=self.rows)
        else:
            check_token(draft, self.job_id, self.token)


def replace_rows(draft: Draft, topic_id: str) -> None:
    """Drop all rows that a topic has, for readers that plan from this slot on.

    Raises:
        ConcurrentTransactions: a transaction is open in the topic; what it wrote may not be lost.
    """
    topic = topic_of(draft, topic_id)
    for place in topic.partition_ids():
        partition = draft.partitions[place]
        if partition.is_held_back:
            holders = [name for name in draft.ongoing if place in draft.transactions[name].partitions]
            prepared = [name for name in holders if draft.transactions[name].prepared is not None]
            raise ConcurrentTransactions(
                f"the rows of topic {topic.topic} cannot be replaced while a transaction is open in it: that of "
                f"transactional id {min(prepared or holders)!r} in partition {place.partition}"
                + (
                    ", which is prepared and waits for its verdict: its producer completes it (complete_transaction), "
                    "or force_terminate_transaction (eoslog transactions force-terminate) aborts it; then run this "
                    "again"
                    if prepared
                    else "; run this again when it has ended"
                )
            )
        if partition.next_offset > partition.log_start_offset:
            draft.append(
                LogStartMoved(
                    topic_id=topic_id, partition=place.partition, offset=partition.next_offset, reason="overwrite"
                )
            )
