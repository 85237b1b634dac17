"""A job commits the transactions of all its tasks in one slot, and may replace a topic's rows in the same step.

As those of the coordinator, each function proposes entries to a draft, and its answer holds at the draft's slot.
"""

from __future__ import annotations

from collections.abc import Sequence

from eoslog.errors import ConcurrentTransactions, InvalidRequest, ProducerFenced
from eoslog.rules.coordinator import abort_timed_out, end_request, end_transaction, initialise
from eoslog.rules.draft import Draft
from eoslog.rules.features import STARTS_ANEW_AFTER, need_feature
from eoslog.rules.partitions import topic_of
from eoslog.rules.producer_ids import DEFAULT_TRANSACTION_TIMEOUT_MS, MAX_TASKS, ProducerIdentity
from eoslog.rules.segment_entries import LogStartMoved
from eoslog.rules.state import TransactionState
from eoslog.rules.tokens import check_micro_batch, check_token
from eoslog.rules.transaction_entries import ApplicationToken, CommitSummary, StagedBatch


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


def commit_job(
    draft: Draft,
    job_id: str,
    owner: str,
    *,
    take_over: bool,
    batches: Sequence[StagedBatch],
    upload_ms: int,
    token: ApplicationToken | None,
    task_count: int,
    summary: CommitSummary,
    time_ms: int,
    replaces: str | None = None,
    micro_batch: bool = False,
    rows: int | None = None,
) -> ProducerIdentity:
    """Commit the transactions of all tasks of a job in this slot.

    ``owner`` is the run that planned the job. A run that was fenced never commits again; one that never held the job
    takes it over if ``take_over``, else it is fenced too. Without a token a run commits once: a call that repeats its
    commit is answered again. ``replaces`` is the id of a topic whose rows so far go in the same step; what is open
    there past its time-out is aborted.

    With ``micro_batch`` the token is that of a stream sink. A query that committed under another transactional id
    before goes on from there, and the runs that still use that are fenced.
    ``rows`` is how many the micro-batch has, by which it is compared if it was committed before.

    Raises:
        CheckpointMismatch: the token does not follow what was committed last.
        ConcurrentTransactions: a transaction is open in the topic whose rows are to go.
        InvalidRequest: the job has too many tasks.
        ProducerFenced: another run holds the job.
        Replayed: the application token was committed before.
    """
    check_task_count(task_count)
    transaction = draft.transactions.get(job_id)
    if transaction is not None and transaction.owner == owner:
        identity = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
    else:
        if not take_over or (transaction is not None and owner in transaction.fenced_owners):
            raise ProducerFenced(
                f"transactional id {job_id!r}: another run has taken this job over; stop one of them, or give each a "
                "transactionalId of its own"
            )
        identity = ProducerIdentity(0, 0)
    wanted = end_request(
        job_id,
        identity,
        "commit",
        owner=owner,
        batches=batches,
        upload_ms=upload_ms if batches else None,
        token=token,
        task_count=task_count,
        summary=summary,
        time_ms=time_ms,
    )
    if micro_batch and token is not None:
        goes_on = transaction is not None and transaction.owner == owner
        check_micro_batch(draft, job_id, token, goes_on=goes_on, rows=rows)
    else:
        check_token(draft, job_id, token)
    if (
        token is None
        and transaction is not None
        and transaction.owner == owner
        and transaction.state is TransactionState.COMPLETE_COMMIT
    ):
        return identity
    if transaction is None or transaction.owner != owner:
        identity = initialise(
            draft, job_id, timeout_ms=DEFAULT_TRANSACTION_TIMEOUT_MS, time_ms=time_ms, kind="job", owner=owner
        )
        wanted = wanted.model_copy(
            update={"producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch}
        )
    if token is not None and token.starts_anew_after is not None:
        need_feature(draft, STARTS_ANEW_AFTER)
    if replaces is not None:
        # Not left to the end of the record: a topic with an open transaction refuses the replacement.
        abort_timed_out(draft, time_ms)
        replace_rows(draft, replaces)
    return end_transaction(draft, wanted)


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
