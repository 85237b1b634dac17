"""The entries that a process may append on behalf of another process, which sent them as a request.

Only batches and ends of producers' transactions are among them. Once such an entry has landed, every later state
refuses it: a batch by its sequence, and the end of a transaction by its epoch (``log.machine.ShareableRequest``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eoslog.errors import InvalidEntry
from eoslog.state.draft import Draft
from eoslog.state.groups import is_from_outside
from eoslog.state.prepared import with_prepared_summary
from eoslog.state.state_machine import decode_entry
from eoslog.state.transaction_entries import BatchAppended, TransactionEnded


def append_for_another(draft: Draft, entries: Sequence[object], files: Mapping[str, bytes]) -> None:
    """Append the entries of a request of another process.

    Args:
        entries: the entries in JSON.
        files: the contents of the files that are to be in the record, by path.

    Raises:
        UnsupportedFormat, InvalidEntry: the entries are malformed, or only their own process may append them.
        The error of the rule that refuses an entry.
    """
    draft.offer_files(files)
    if not entries:
        raise InvalidEntry("a request has no entries")
    for value in entries:
        entry = decode_entry(value)
        if isinstance(entry, BatchAppended) and is_shareable_batch(entry):
            check_not_outlived(draft, entry)
        elif isinstance(entry, TransactionEnded) and is_shareable_end(entry):
            entry = with_prepared_summary(draft, entry)
        else:
            raise InvalidEntry(f"an entry of type {entry.type!r} may be appended only by its own process")
        draft.append(entry)


def is_shareable_batch(entry: BatchAppended) -> bool:
    """Return True if any process may append this batch on its producer's behalf.

    A batch that may register its producer id is excluded. Its id may expire after it has landed, and then the state
    would accept it again. A late copy must not come from a process that knows nothing of its producer.
    """
    return not entry.registers_producer


def is_shareable_end(entry: TransactionEnded) -> bool:
    """Return True if any process may append this end on its producer's behalf.

    That is safe only if an end that the newest state refuses stays refused for good. Four kinds are excluded:

    - Offsets of a group's member: a partition that the member gave up may be assigned to it again.
    - A commit with an application version: it may turn into an abort, and only its own process decides that.
    - The end of a job: only its driver ends it.
    - An end that keeps the epoch: the next transaction has the same epoch, so the state may accept the end again.
    """
    return (
        entry.reason == "client"
        and not entry.keeps_epoch
        and entry.application_version is None
        and entry.owner is None
        and not entry.task_count
        and all(is_from_outside(offsets) for offsets in entry.offsets)
    )


def check_not_outlived(draft: Draft, entry: BatchAppended) -> None:
    """Check that a producer has appended nothing since a batch was made.

    A process calls it before it appends a batch on behalf of another process. Sequences wrap around: after 2^31 rows a
    partition would accept an old copy of a batch again. Only the producer's own process knows that it has sent nothing
    since.

    Raises:
        InvalidEntry: the producer has appended a later batch.
    """
    if entry.transactional_id is None:
        producer = draft.producers.get(entry.producer_id)
        newest_ms = -1 if producer is None else producer.last_update_ms
    else:
        transaction = draft.transactions.get(entry.transactional_id)
        newest_ms = -1 if transaction is None else transaction.last_update_ms
    if entry.time_ms < newest_ms:
        raise InvalidEntry(f"producer {entry.producer_id} has appended batches since this one was made")
