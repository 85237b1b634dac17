"""Producer ids and epochs. An init assigns an identity, the next init fences it, an exhausted epoch rolls it over.

The rules are those of Kafka's InitProducerId (KIP-360) under transaction version 2.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple

from eoslog.arguments import is_whole_number
from eoslog.errors import (
    InvalidEntry,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    ProducerFenced,
    RecordFull,
    UnknownProducerId,
)
from eoslog.state.draft import Draft
from eoslog.state.entries import StoreConfigChanged
from eoslog.state.names import check_id
from eoslog.state.partition_state import NO_SLOT
from eoslog.state.sequences import LAST_USABLE_EPOCH, MAX_EPOCH
from eoslog.state.store_state import IdempotentProducer, StoreState, Transaction, TransactionState
from eoslog.state.transaction_entries import ProducerInitialized
from eoslog.wording import quoted

IDS_OF_SLOT = 1 << 20
"""The number of producer ids that a slot can give out."""
IDS_OF_JOB = 1 << 19
"""The number of producer ids of a job: its own, and one for each of its at most ``MAX_TASKS`` tasks."""
MAX_TASKS = IDS_OF_JOB - 1
DEFAULT_TRANSACTION_TIMEOUT_MS = 60_000
_FENCED_OWNERS_KEPT = 16


class ProducerIdentity(NamedTuple):
    """A producer id and an epoch. Together they name one transaction, except under transaction version 1."""

    producer_id: int
    producer_epoch: int


def task_transactional_id(job_id: str, task: int) -> str:
    """Return the transactional id of a writer task of a job."""
    return f"{job_id}/{task}"


def task_producer_id(job_producer_id: int, task: int) -> int:
    """Return the producer id of a writer task. It follows its job's producer id, in the order of the tasks."""
    return job_producer_id + task + 1


def new_producer_id(draft: Draft, kind: str) -> int:
    """Take the next producer id of this slot. It is unique because the slot is.

    Args:
        kind: the kind of its holder. A job also takes the ids after its own, for its tasks.

    Raises:
        RecordFull: earlier entries of the same record have taken too many.
    """
    count = IDS_OF_JOB if kind == "job" else 1
    index = draft.producer_ids_taken
    if index + count > IDS_OF_SLOT:
        raise RecordFull
    draft.producer_ids_taken += count
    return draft.slot * IDS_OF_SLOT + index


def next_identity(draft: Draft, transaction: Transaction, kind: str) -> ProducerIdentity:
    """Return the identity after the current one: the next epoch, or a new producer id if the epoch is exhausted.

    Args:
        kind: the kind of the holder that gets the identity.
    """
    # The marker of the last transaction carries its epoch + 1. The highest epoch is therefore kept for a marker.
    is_exhausted = transaction.producer_epoch >= LAST_USABLE_EPOCH
    # The ids after a producer's id belong to other producers. A job that takes over the transactional id of a producer
    # therefore gets new ids.
    lacks_ids = kind == "job" and transaction.kind != "job"
    if is_exhausted or lacks_ids:
        return ProducerIdentity(new_producer_id(draft, kind), 0)
    return ProducerIdentity(transaction.producer_id, transaction.producer_epoch + 1)


def raised_epoch(identity: ProducerIdentity) -> ProducerIdentity | None:
    """Return the next identity of a producer without transactional id; None if it needs a new producer id.

    The producer raises its epoch without a request (``TransactionManager.bumpIdempotentProducerEpoch``). It has no
    markers, so it may use every epoch.
    """
    if identity.producer_epoch >= MAX_EPOCH:
        return None
    return identity._replace(producer_epoch=identity.producer_epoch + 1)


def forget_producer_ids(draft: Draft, producer_ids: Set[int]) -> None:
    """Remove the state that partitions keep of these producers.

    Only a batch that ``check_may_register`` allows may use one of these ids again.
    """
    if not producer_ids:
        return
    for partition_id, partition in list(draft.partitions.items()):
        if not producer_ids.isdisjoint(partition.producers) or not producer_ids.isdisjoint(partition.start_producers):
            partition = draft.edit_partition(partition_id)
            for producer_id in producer_ids:
                partition.producers.pop(producer_id, None)
            left = {each: known for each, known in partition.start_producers.items() if each not in producer_ids}
            partition.start_producers = left


def check_timeout(timeout_ms: int) -> None:
    """Check a transaction timeout. The store's maximum is checked when a producer is initialized.

    Raises:
        InvalidTransactionTimeout: it is not a number of ms from 1 to 2^31 - 1.
    """
    if not is_whole_number(timeout_ms) or not 0 < timeout_ms < 2**31:
        raise InvalidTransactionTimeout(
            f"transaction_timeout_ms is {quoted(timeout_ms)}; it must be a whole number of ms, 1 or more, below 2^31"
        )


def check_allowed_timeout(draft: StoreState | Draft, entry: ProducerInitialized) -> None:
    """Check the timeout of a producer against the store's maximum, as Kafka does.

    Transactions of a job, and rows without a transaction, have no timeout.

    Raises:
        InvalidTransactionTimeout: it is longer.
    """
    longest_ms = draft.max_transaction_timeout_ms
    if entry.kind == "producer" and entry.transactional_id is not None and entry.timeout_ms > longest_ms:
        raise InvalidTransactionTimeout(
            f"transactional id {entry.transactional_id!r}: transaction_timeout_ms is {entry.timeout_ms}, and this "
            f"store allows at most {longest_ms} (Kafka's transaction.max.timeout.ms). Give a shorter one, or raise the "
            "maximum with admin.alter_store(max_transaction_timeout_ms=...)"
        )


def change_store_config(draft: Draft, entry: StoreConfigChanged) -> None:
    """Change the settings of the store. Producers that are initialized keep their timeouts.

    Raises:
        InvalidEntry: nothing changes.
    """
    if draft.max_transaction_timeout_ms == entry.max_transaction_timeout_ms:
        raise InvalidEntry("the store has these settings already")
    draft.max_transaction_timeout_ms = entry.max_transaction_timeout_ms


def check_transactional_id(draft: StoreState | Draft, transactional_id: str) -> None:
    """Check that an init may use a transactional id. The id of a task belongs to its job; no other may initialize it.

    Raises:
        InvalidRequest: the id is empty or too long, or belongs to a task of a job.
    """
    check_id("transactional id", transactional_id)
    job_id, slash, task = transactional_id.rpartition("/")
    owner = draft.transactions.get(job_id) if slash and task.isdigit() else None
    if owner is not None and owner.kind == "job":
        raise InvalidRequest(
            f"transactional id {transactional_id!r} belongs to a task of the job {job_id!r}. Choose another one"
        )


def check_expected(
    transaction: Transaction | None, expected: ProducerIdentity | None, *, keep_prepared: bool = False
) -> ProducerIdentity | None:
    """Check that a producer that states its identity may continue with the next one (KIP-360).

    Returns:
        The answer of an earlier attempt if this request repeats it; None if the request is new.

    Raises:
        ProducerFenced: another producer took over the transactional id.
    """
    # If the transactional id has expired, nobody can have taken it over, and the producer starts again.
    if expected is None or transaction is None:
        return None
    current = current_identity(transaction)
    if expected == current:
        return None
    if transaction.producer_epoch == 0 and transaction.previous_producer_id >= 0:
        last = ProducerIdentity(transaction.previous_producer_id, transaction.last_producer_epoch)
    else:
        last = ProducerIdentity(transaction.producer_id, transaction.last_producer_epoch)
    # ``expected`` names the identity before the current one. Either this request repeats the one that assigned the
    # current identity, or another producer has it by now. An open transaction tells: its producer has received the
    # answer, so it does not ask again. A prepared transaction that an init has kept open tells nothing: its rows have
    # an earlier epoch, so the current holder did not begin it.
    kept = keep_prepared and prepared_identity(transaction) not in (None, current)
    if expected == last and (kept or transaction.state is not TransactionState.ONGOING):
        return current
    raise ProducerFenced(
        f"transactional id {transaction.transactional_id!r}: another producer holds it now, with producer id and epoch "
        f"{current.producer_id}:{current.producer_epoch}. This one had "
        f"{expected.producer_id}:{expected.producer_epoch}. Close this producer"
    )


def _planned(draft: Draft, entry: ProducerInitialized) -> ProducerInitialized:
    """Return the entry with the identity that it assigns at this slot."""
    check_allowed_timeout(draft, entry)
    if entry.transactional_id is None:
        return entry.model_copy(update={"producer_id": new_producer_id(draft, entry.kind), "producer_epoch": 0})
    if entry.keep_prepared and entry.kind != "producer":
        raise InvalidRequest(f"transactional id {entry.transactional_id!r}: a job cannot keep a prepared transaction")
    check_transactional_id(draft, entry.transactional_id)
    transaction = draft.transactions.get(entry.transactional_id)
    if entry.expected_producer_id is not None and entry.expected_producer_epoch is not None:
        expected = ProducerIdentity(entry.expected_producer_id, entry.expected_producer_epoch)
        if check_expected(transaction, expected, keep_prepared=entry.keep_prepared) is not None:
            raise InvalidEntry("a repeated init must not be appended again")
    if transaction is None:
        identity = ProducerIdentity(new_producer_id(draft, entry.kind), 0)
    elif transaction.state is TransactionState.ONGOING and not _keeps(transaction, entry):
        raise InvalidEntry(f"{entry.transactional_id!r} has an open transaction, which must end before an init")
    else:
        identity = next_identity(draft, transaction, entry.kind)
    return entry.model_copy(update={"producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch})


def apply_init(draft: Draft, entry: ProducerInitialized) -> ProducerInitialized:
    """Assign an identity. An open transaction must have ended before, unless the init keeps it prepared.

    Returns:
        The entry with the identity that it assigns at this slot.

    Raises:
        InvalidTransactionTimeout, InvalidRequest, ProducerFenced, RecordFull
        InvalidEntry: a transaction is open, or the entry repeats an earlier one.
    """
    entry = _planned(draft, entry)
    if entry.transactional_id is None:
        draft.producers[entry.producer_id] = IdempotentProducer(entry.producer_id, entry.time_ms)
        return entry
    before = draft.transactions.get(entry.transactional_id)
    rolled_over = before is not None and before.producer_id != entry.producer_id
    fresh = Transaction(
        transactional_id=entry.transactional_id,
        kind=entry.kind,
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        previous_producer_id=(before.producer_id if rolled_over else before.previous_producer_id) if before else -1,
        # Only a holder that states its identity may repeat the init. An init that states none fences the holder before.
        last_producer_epoch=before.producer_epoch if before and entry.expected_producer_epoch is not None else -1,
        timeout_ms=entry.timeout_ms,
        state=TransactionState.EMPTY,
        partitions=frozenset(),
        start_ms=-1,
        last_update_ms=entry.time_ms,
        start_slot=NO_SLOT,
        last_slot=draft.slot,
        last_end_reason="",
        owner=entry.owner,
        fenced_owners=_fenced_owners(before, entry.owner),
        # The tasks have the producer ids after that of their job.
        task_count=before.task_count if before and entry.kind == "job" and not rolled_over else 0,
        last_commit=before.last_commit if before else None,
    )
    if before is not None and _keeps(before, entry):
        fresh = replace(
            fresh,
            state=before.state,
            partitions=before.partitions,
            start_ms=before.start_ms,
            start_slot=before.start_slot,
            prepared=before.prepared,
            prepared_slot=before.prepared_slot,
            deleted_offsets=before.deleted_offsets,
        )
    draft.transactions[entry.transactional_id] = fresh
    if before is not None:
        forget_producer_ids(draft, {before.producer_id} - {fresh.producer_id, fresh.open_producer_id})
    return entry


def _keeps(transaction: Transaction, entry: ProducerInitialized) -> bool:
    """Return True if an init leaves the prepared transaction to the new holder of the transactional id."""
    return entry.keep_prepared and transaction.prepared is not None


def current_identity(transaction: Transaction) -> ProducerIdentity:
    """Return the identity of the producer that holds a transactional id."""
    return ProducerIdentity(transaction.producer_id, transaction.producer_epoch)


def prepared_identity(transaction: Transaction) -> ProducerIdentity | None:
    """Return the identity that names the prepared transaction; None without one. Its holder may have a later one."""
    prepared = transaction.prepared
    return None if prepared is None else ProducerIdentity(prepared.producer_id, prepared.producer_epoch)


def _fenced_owners(before: Transaction | None, owner: str | None) -> tuple[str, ...]:
    if before is None:
        return ()
    fenced = tuple(name for name in before.fenced_owners if name != owner)
    if before.owner is not None and before.owner != owner:
        fenced = (*fenced, before.owner)
    return fenced[-_FENCED_OWNERS_KEPT:]


def identities_before(transaction: Transaction) -> set[ProducerIdentity]:
    """Return the identities that the holder of a transactional id may have had before its last end.

    There is none if that end kept the epoch.
    """
    if transaction.last_producer_epoch < 0:
        return set()
    before = {ProducerIdentity(transaction.producer_id, transaction.producer_epoch - 1)}
    if transaction.producer_epoch == 0 and transaction.previous_producer_id >= 0:
        before.add(ProducerIdentity(transaction.previous_producer_id, transaction.last_producer_epoch))
    return before


def why_aborted(transaction: Transaction, identity: ProducerIdentity) -> str:
    """Return why a timeout or an administrator aborted the transaction of this identity.

    Empty if neither did, or if another producer has taken over the transactional id since. The producer learns of the
    abort late. It then aborts too, gets the next epoch and continues (KIP-588).
    """
    if transaction.state is not TransactionState.COMPLETE_ABORT or identity not in identities_before(transaction):
        return ""
    return {
        "timeout": "it timed out",
        "admin": "an administrator aborted it",
    }.get(transaction.last_end_reason, "")


def check_identity(state: StoreState | Draft, transactional_id: str, identity: ProducerIdentity) -> Transaction:
    """Return the transaction of a producer that still holds its transactional id.

    Raises:
        InvalidProducerIdMapping: the id is unknown or has expired, or has another producer id.
        InvalidProducerEpoch: a timeout or an administrator aborted the transaction.
        ProducerFenced: another producer took over the id.
    """
    transaction = state.transactions.get(transactional_id)
    if transaction is None:
        raise InvalidProducerIdMapping(f"transactional id {transactional_id!r} is unknown or has expired")
    current = current_identity(transaction)
    if identity == current:
        return transaction
    known_ids = (transaction.producer_id, transaction.previous_producer_id)
    if identity.producer_id not in known_ids:
        raise InvalidProducerIdMapping(
            f"transactional id {transactional_id!r} has producer id {current.producer_id}, not {identity.producer_id}"
        )
    why = why_aborted(transaction, identity)
    if why:
        raise InvalidProducerEpoch(
            f"transactional id {transactional_id!r}: the transaction of epoch {identity.producer_epoch} was aborted "
            f"({why}). Call abort_transaction() and begin it again"
        )
    raise ProducerFenced(
        f"transactional id {transactional_id!r}: another producer has taken it over (epoch "
        f"{current.producer_epoch}, this producer has {identity.producer_epoch}). Close this producer"
    )


def check_may_register(draft: Draft, producer_id: int) -> None:
    """Check that a batch may register a producer id that the store does not know, because it has expired.

    Raises:
        UnknownProducerId: no earlier slot has given the id out. A later one would give it to another producer.
        InvalidProducerIdMapping: the id belongs to a transactional id or to a task of a job.
    """
    first_new_id = draft.slot * IDS_OF_SLOT
    if producer_id >= first_new_id:
        raise UnknownProducerId(
            f"producer id {producer_id} is not an id of this store: its ids are below {first_new_id}. Ask for a new "
            "producer id"
        )
    holder = draft.before_record(_holders).of(producer_id)
    if holder is not None:
        raise InvalidProducerIdMapping(
            f"producer id {producer_id} belongs to the transactional id {holder!r}, but the batch names none. Ask for "
            "a new producer id"
        )


class _Holders(NamedTuple):
    """The transactional ids that hold producer ids."""

    by_producer_id: Mapping[int, str]
    """The transactional ids by their producer ids, now, before, and in an open transaction."""
    jobs: Sequence[tuple[int, str]]
    """The producer id of each job and its transactional id, in order. The next ids belong to the tasks of the job."""

    def of(self, producer_id: int) -> str | None:
        """Return the transactional id that holds a producer id, itself or for a task; None if none does."""
        if producer_id in self.by_producer_id:
            return self.by_producer_id[producer_id]
        index = bisect_right(self.jobs, producer_id, key=lambda job: job[0]) - 1
        if index >= 0 and producer_id - self.jobs[index][0] < IDS_OF_JOB:
            return self.jobs[index][1]
        return None


def _holders(state: StoreState) -> _Holders:
    transactions = state.transactions.values()
    by_producer_id = {
        producer_id: each.transactional_id
        for each in transactions
        for producer_id in (each.producer_id, each.previous_producer_id, each.open_producer_id)
    }
    jobs = sorted((each.producer_id, each.transactional_id) for each in transactions if each.kind == "job")
    return _Holders(by_producer_id, jobs)


def check_registered(state: StoreState | Draft, producer_id: int) -> None:
    """Check that a producer id without transactional id is registered in the store.

    The store keeps no epoch of it. Its producer raises the epoch by itself, and each partition checks the epochs that
    it has seen. So a batch in flight of the earlier epoch may still land in the other partitions, as in Kafka.

    Raises:
        UnknownProducerId: it has expired or was never registered.
    """
    if producer_id not in state.producers:
        raise UnknownProducerId(
            f"producer id {producer_id} is not registered: it has expired, or never was registered. Open a new producer"
        )
