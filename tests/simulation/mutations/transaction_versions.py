"""Mutations of transaction version 1, and of what clients of Kafka's protocol add to a transaction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from eoslog.format import checkpoint_codec
from eoslog.state import (
    append_requests,
    pending_offsets,
    shared_entries,
    transaction_ends,
    transactions,
)
from eoslog.state.draft import Draft
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import NO_OFFSET, ProducerState
from eoslog.state.partitions import append_marker
from eoslog.state.producer_ids import ProducerIdentity
from eoslog.state.sequences import with_marker
from eoslog.state.store_state import LastCommit, Transaction, TransactionState
from eoslog.state.transaction_ends import EndRepeated
from eoslog.state.transaction_entries import TransactionEnded
from tests.simulation.mutations.mutation import instead_of, method, mutation

VERSION_1 = "unit/state/test_transaction_version_1.py::"
PENDING = "unit/state/test_pending_offsets.py::"


@mutation(unit_test=VERSION_1 + "test_an_end_of_the_current_identity_is_answered_as_in_kafkas_table")
def epoch_raised_under_version_1() -> Iterator[None]:
    """An end of transaction version 1 raises the epoch: its client does not learn of it, and is fenced."""
    original = transaction_ends._planned

    def planned(draft: Draft, entry: TransactionEnded) -> TransactionEnded:
        found = original(draft, entry)
        if entry.transaction_version != 1:
            return found
        return found.model_copy(update={"next_producer_epoch": entry.producer_epoch + 1})

    with method(transaction_ends, "_planned", planned):
        yield


@mutation(unit_test=VERSION_1 + "test_the_marker_has_the_epoch_of_the_rows_and_decides_them")
def marker_above_the_rows_under_version_1() -> Iterator[None]:
    """A marker of transaction version 1 has the epoch after that of the rows: the next batch has an older one."""
    original = append_marker

    def marker(partition: Any, ended: TransactionEnded, identity: ProducerIdentity, *rest: Any, **options: Any) -> int:
        if ended.transaction_version == 1:
            identity = identity._replace(producer_epoch=identity.producer_epoch + 1)
        return original(partition, ended, identity, *rest, **options)

    with instead_of(original, marker):
        yield


@mutation(unit_test=VERSION_1 + "test_sequences_go_on_after_an_end_and_the_last_five_batches_are_still_recognized")
def batches_forgotten_at_each_marker() -> Iterator[None]:
    """A partition forgets a producer's batches at each marker: sequences do not go on, and repeats are not known."""

    def marker(
        known: ProducerState | None, producer_id: int, marker_epoch: int, timestamp: int, *, keeps_epoch: bool
    ) -> ProducerState:
        return ProducerState(producer_id, marker_epoch, (), timestamp, NO_OFFSET)

    with instead_of(with_marker, marker):
        yield


@mutation(unit_test=VERSION_1 + "test_an_end_of_the_current_identity_is_answered_as_in_kafkas_table")
def end_repeated_whatever_was_done() -> Iterator[None]:
    """Each end of a transaction at rest passes for a repetition: a commit of what was aborted is told as done."""
    original = transaction_ends._check_end_with_epoch_kept

    def check(
        transaction: Transaction, current: ProducerIdentity, wanted: ProducerIdentity, outcome: str
    ) -> Transaction:
        if wanted == current and transaction.state is not TransactionState.ONGOING:
            raise EndRepeated(current)
        return original(transaction, current, wanted, outcome)

    with method(transaction_ends, "_check_end_with_epoch_kept", check):
        yield


@mutation(
    unit_test=VERSION_1
    + "test_a_holder_before_is_not_told_that_its_end_was_done_because_its_successor_ended_one[False-commit-False]"
)
def identity_before_kept_by_version_1() -> Iterator[None]:
    """An end that keeps the epoch leaves an identity before it: a fenced holder is told that its commit was done."""
    original = transaction_ends._ended

    def ended(
        draft: Draft, transaction: Transaction, entry: TransactionEnded, last_commit: LastCommit | None
    ) -> Transaction:
        after = original(draft, transaction, entry, last_commit)
        return replace(after, last_producer_epoch=entry.producer_epoch)

    with method(transaction_ends, "_ended", ended):
        yield


@mutation(unit_test=VERSION_1 + "test_batches_need_an_added_partition_and_late_additions_an_open_transaction")
def added_partitions_not_needed() -> Iterator[None]:
    """A batch needs no added partition: one that comes after the end of its transaction begins the next one."""
    with method(append_requests, "_check_added_partition", lambda draft, batch: None):
        yield


@mutation(unit_test=VERSION_1 + "test_a_late_end_does_not_hit_the_next_transaction")
def any_begin_taken() -> Iterator[None]:
    """An end is not compared with the slot of its transaction's begin: a late one ends the next transaction."""
    with instead_of(transactions.check_start, lambda transaction, start_slot: None):
        yield


@mutation(unit_test=VERSION_1 + "test_no_other_process_may_append_an_end_that_keeps_the_epoch")
def every_end_shared() -> Iterator[None]:
    """Another process may append an end that keeps the epoch: a copy that comes late ends the next transaction."""
    original = shared_entries.is_shareable_end

    def is_shareable(entry: TransactionEnded) -> bool:
        return original(entry.model_copy(update={"transaction_version": None}))

    with instead_of(original, is_shareable):
        yield


@mutation(unit_test=PENDING + "test_offsets_of_an_aborted_transaction_never_count")
def added_offsets_committed_by_an_abort() -> Iterator[None]:
    """An abort commits the offsets that were added to its transaction: the input of the transaction is lost."""
    original = transaction_ends._ended

    def ended(
        draft: Draft, transaction: Transaction, entry: TransactionEnded, last_commit: LastCommit | None
    ) -> Transaction:
        pending_offsets.commit_added_offsets(draft, transaction)
        return original(draft, transaction, entry, last_commit)

    with method(transaction_ends, "_ended", ended):
        yield


@mutation(unit_test=PENDING + "test_of_a_plain_commit_and_an_addition_the_later_one_counts")
def added_offsets_put_over_later_ones() -> Iterator[None]:
    """A commit sets its added offsets whatever was committed since: a group goes back, and reads rows again."""

    def is_current(draft: Draft, group: str, partition_id: PartitionId, slot: int) -> bool:
        return partition_id in draft.partitions

    with method(pending_offsets, "_is_current", is_current):
        yield


@mutation(unit_test=PENDING + "test_a_checkpoint_of_an_open_transaction_holds_what_was_added")
def checkpoint_without_added_offsets() -> Iterator[None]:
    """A checkpoint lacks the offsets of open transactions: their commit leaves the group where it was."""
    original = checkpoint_codec._transaction_row

    with method(checkpoint_codec, "_transaction_row", lambda each: original(each) | {"added_offsets": []}):
        yield


@mutation(unit_test=PENDING + "test_the_generation_of_offsets_is_checked_when_they_are_added")
def generation_of_added_offsets_not_checked() -> Iterator[None]:
    """Offsets are added by any member of any generation: rows that another member has are processed twice."""
    with method(transactions, "check_offsets", lambda draft, offsets: None):
        yield
