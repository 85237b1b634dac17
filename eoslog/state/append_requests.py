"""The requests that append batches of producers: the batches of one, or of several in one record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from eoslog.errors import EosLogError, InvalidTxnState
from eoslog.state.draft import Draft
from eoslog.state.names import PartitionId
from eoslog.state.producer_ids import ProducerIdentity, check_identity
from eoslog.state.sequences import DuplicateBatch
from eoslog.state.shared_entries import is_shareable_batch
from eoslog.state.transaction_entries import BatchAppended


class AppendedRows(NamedTuple):
    """Consecutive rows that were appended to a partition."""

    partition_id: PartitionId
    base_offset: int
    """-1 for an old duplicate whose offset the state no longer knows."""
    record_count: int


class DuplicateRows(AppendedRows):
    """Rows of a batch that the log had already. It equals the ``AppendedRows`` of the same rows."""

    __slots__ = ()


@dataclass(frozen=True)
class AppendBatches:
    """Append a producer's batches, except batches that the log already has. The answer lists the offsets of all."""

    batches: Sequence[BatchAppended]
    files: Mapping[str, bytes] = field(default_factory=dict)
    """The contents of the files that are to be in the record, by path."""
    needs_added_partition: bool = False
    """Refuse a batch whose partition was not added to its open transaction (Kafka's verification, KIP-890).

    Under transaction version 1 a late batch would begin the next transaction otherwise.
    """
    name: ClassVar = "batches"

    @property
    def is_final(self) -> bool:
        return all(batch.transactional_id is None for batch in self.batches)

    def apply(self, draft: Draft) -> list[AppendedRows]:
        """Append the batches. Raises what ``apply_batch`` raises, except ``DuplicateBatch``."""
        draft.offer_files(self.files)
        if self.needs_added_partition:
            for batch in self.batches:
                _check_added_partition(draft, batch)
        return [_append_batch(draft, batch) for batch in self.batches]

    @property
    def shared_entries(self) -> Sequence[BatchAppended]:
        # Another process does not check the partitions.
        return self.batches if not self.needs_added_partition and all(map(is_shareable_batch, self.batches)) else ()

    def shared_answer(self, entries: Sequence[Mapping[str, Any]], slot: int) -> list[AppendedRows]:
        """Return the offsets of the batches, as their entries in the log state them.

        Raises:
            ValueError: an entry belongs to another batch.
        """
        return [_appended(batch, entry) for batch, entry in zip(self.batches, entries, strict=True)]


@dataclass(frozen=True)
class AppendMany:
    """Append batches of several producers. The answer lists the rows or the error of each request, in their order.

    A refused request leaves nothing behind, and the others are appended all the same. The requests are applied in
    order, so a later batch of the same producer follows an earlier one.

    Only its own process appends it: the entries in a record do not say which requests were refused. So it has no
    ``shared_answer``.
    """

    requests: Sequence[AppendBatches]

    def apply(self, draft: Draft) -> list[list[AppendedRows] | EosLogError]:
        """Append the batches of the requests that the state does not refuse."""
        return [_answer(request, draft) for request in self.requests]


def _answer(request: AppendBatches, draft: Draft) -> list[AppendedRows] | EosLogError:
    # A refused batch changes nothing. So a single batch needs no child, which would copy the partition for each batch.
    child = draft if len(request.batches) == 1 else draft.child()
    try:
        appended = request.apply(child)
    except EosLogError as error:
        # The traceback would keep the draft in memory for as long as the caller keeps the error.
        return error.with_traceback(None)
    if child is not draft:
        child.merge()
    return appended


def _check_added_partition(draft: Draft, batch: BatchAppended) -> None:
    """Check that the partition of a batch belongs to the open transaction of its producer.

    Raises:
        InvalidTxnState: it does not. A repeated batch is refused, too, once its transaction has ended.
        InvalidProducerIdMapping, InvalidProducerEpoch, ProducerFenced: see ``check_identity``.
    """
    if batch.transactional_id is None:
        return
    identity = ProducerIdentity(batch.producer_id, batch.producer_epoch)
    transaction = check_identity(draft, batch.transactional_id, identity)
    partition_id = PartitionId(batch.topic_id, batch.partition)
    if partition_id not in transaction.added_partitions | transaction.partitions:
        raise InvalidTxnState(
            f"transactional id {batch.transactional_id!r} has no open transaction with partition {batch.partition} of "
            "this topic. Add the partition to the transaction first"
        )


def _append_batch(draft: Draft, batch: BatchAppended) -> AppendedRows:
    partition_id = PartitionId(batch.topic_id, batch.partition)
    try:
        return AppendedRows(partition_id, draft.append(batch).base_offset, batch.record_count)
    except DuplicateBatch as duplicate:
        return DuplicateRows(partition_id, duplicate.base_offset, batch.record_count)


def _appended(batch: BatchAppended, entry: Mapping[str, Any]) -> AppendedRows:
    found = BatchAppended.model_validate(entry)
    if found != batch.model_copy(update={"base_offset": found.base_offset}):
        raise ValueError(f"{found.file.path} is not the file of this batch, {batch.file.path}")
    return AppendedRows(PartitionId(found.topic_id, found.partition), found.base_offset, found.record_count)
