"""Mutations of idempotence and fencing: who wrote a batch, and whether it is there already."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from eoslog.errors import EosLogError
from eoslog.producer.sender import Sender
from eoslog.producer.transaction_manager import TransactionManager
from eoslog.session.idempotent_append import IdempotentAppend
from eoslog.state import append_requests, partitions, producer_ids, sequences, transaction_ends
from eoslog.state.append_requests import AppendBatches
from eoslog.state.draft import Draft
from eoslog.state.partition_state import ProducerState
from eoslog.state.producer_ids import (
    IDS_OF_SLOT,
    ProducerIdentity,
    check_identity,
    check_may_register,
    check_registered,
    next_identity,
    task_producer_id,
)
from eoslog.state.sequences import check_sequence, with_marker
from eoslog.state.store_state import Transaction
from tests.simulation.focus import FOCUSES
from tests.simulation.mutations.mutation import Focus, instead_of, method, mutation

UNCLEAR = Focus(("idempotent0", "idempotent1", "writer0"), {"lost_answer": 0.4, "slow_down": 0.3}, steps=300)
OVERTAKEN = Focus(("writer0", "writer0"), {"pause": 0.05, "lost_answer": 0.6, "failed_read": 0.5}, steps=300)
ZOMBIES = Focus(("writer0", "writer0"), {"pause": 0.05}, steps=400)


@mutation(UNCLEAR)
def sequence_not_checked() -> Iterator[None]:
    """Sequences are not checked: a batch whose append was not answered is appended twice."""
    with instead_of(check_sequence, lambda known, producer_epoch, base_sequence, record_count, place: None):
        yield


@mutation(unit_test="unit/state/test_sequences.py::test_each_of_the_last_five_batches_is_a_duplicate_with_its_offset")
def duplicate_taken_for_a_gap() -> Iterator[None]:
    """A repeated batch is not known as a duplicate: its producer must search the log, or is refused for good."""
    original = sequences.check_sequence

    def check(known: ProducerState | None, producer_epoch: int, base_sequence: int, count: int, place: str) -> None:
        last = known._replace(batches=known.batches[-1:]) if known is not None else None
        try:
            original(last, producer_epoch, base_sequence, count, place)
        except sequences.DuplicateBatch as duplicate:
            raise sequences.OutOfOrderSequence(f"{place}: a gap") from duplicate

    with instead_of(original, check):
        yield


@mutation(unit_test="unit/state/test_sequences.py::test_each_of_the_last_five_batches_is_a_duplicate_with_its_offset")
def one_batch_remembered() -> Iterator[None]:
    """The state has only the last batch of a producer: an older batch that is repeated gets no offset."""
    with method(sequences, "BATCHES_TO_RETAIN", 1):
        yield


@mutation(ZOMBIES)
def epoch_not_raised_by_init() -> Iterator[None]:
    """An init returns the current epoch: two producers have the same epoch, and their sequences mix."""

    def same(draft: Draft, transaction: Transaction, kind: str) -> ProducerIdentity:
        return ProducerIdentity(transaction.producer_id, transaction.producer_epoch)

    with method(producer_ids, "next_identity", same):
        yield


@mutation(ZOMBIES)
def epoch_not_raised_by_the_end() -> Iterator[None]:
    """A transaction's end and its marker keep the epoch: a late end or batch changes the next transaction."""

    def same(draft: Draft, transaction: Transaction, kind: str) -> ProducerIdentity:
        return ProducerIdentity(transaction.producer_id, transaction.producer_epoch)

    def marker(
        known: ProducerState | None, producer_id: int, marker_epoch: int, timestamp: int, *, keeps_epoch: bool
    ) -> ProducerState:
        return ProducerState(producer_id, marker_epoch, (), timestamp, -1)

    with (
        method(transaction_ends, "next_identity", same),
        method(transaction_ends, "marker_epoch", lambda transaction: transaction.producer_epoch),
        instead_of(with_marker, marker),
    ):
        yield


@mutation(unit_test="unit/state/test_sequences.py::test_a_marker_must_be_strictly_newer_than_the_data")
def marker_epoch_not_strictly_greater() -> Iterator[None]:
    """A marker of the partition's own epoch is accepted: a late marker ends a later transaction."""

    def marker(
        known: ProducerState | None, producer_id: int, marker_epoch: int, timestamp: int, *, keeps_epoch: bool
    ) -> ProducerState:
        if known is not None and marker_epoch < known.producer_epoch:
            raise sequences.InvalidProducerEpoch("an older epoch")
        return ProducerState(producer_id, marker_epoch, (), timestamp, -1)

    with instead_of(with_marker, marker):
        yield


@mutation(ZOMBIES)
def fencing_not_checked_at_the_slot() -> Iterator[None]:
    """A batch is not checked against its id's epoch at its slot: a zombie writes into its successor's transaction."""

    def unchecked(state: Any, transactional_id: str, identity: ProducerIdentity) -> Transaction:
        held: Transaction = state.transactions[transactional_id]
        return held

    with (
        instead_of(check_identity, unchecked),
        instead_of(check_sequence, lambda known, producer_epoch, base_sequence, record_count, place: None),
    ):
        yield


@mutation(FOCUSES["fences"])
def fencing_left_to_markers() -> Iterator[None]:
    """Only a marker in its partition fences a batch: a zombie still writes to the other partitions."""

    def unchecked(state: Any, transactional_id: str, identity: ProducerIdentity) -> Transaction:
        held: Transaction = state.transactions[transactional_id]
        return held

    with instead_of(check_identity, unchecked):
        yield


@mutation(ZOMBIES)
def end_not_fenced() -> Iterator[None]:
    """An end is not checked against its id's epoch: a zombie's commit takes its successor's rows with it."""
    original = transaction_ends.check_end

    def unchecked(draft: Draft, entry: Any) -> Transaction:
        held = draft.transactions[entry.transactional_id]
        current = {"producer_id": held.producer_id, "producer_epoch": held.producer_epoch}
        return original(draft, entry.model_copy(update=current))

    with instead_of(original, unchecked):
        yield


@mutation(Focus(("idempotent0", "writer0"), {"pause": 0.05}, steps=300))
def producer_state_expires_by_age() -> Iterator[None]:
    """The state of a producer expires by age, without an entry: its next batch counts as a new producer's."""
    original = partitions.check_batch

    def check(partition: Any, place: str, entry: Any) -> None:
        known = partition.producers.get(entry.producer_id)
        if known is not None and known.last_timestamp + 60_000 < entry.time_ms:
            partition = partition.copy()
            del partition.producers[entry.producer_id]
        original(partition, place, entry)

    with instead_of(original, check):
        yield


@mutation(unit_test="unit/state/test_producer_ids.py::test_a_batch_of_an_unregistered_id_is_refused")
def expired_producer_accepted() -> Iterator[None]:
    """An expired producer id is accepted: a repeated first batch is not known as a duplicate."""
    with instead_of(check_registered, lambda state, producer_id: None):
        yield


@mutation(
    unit_test="unit/producer/test_producer_timeouts.py"
    "::test_a_producer_that_gave_rows_up_goes_on_without_a_request_for_another_id"
)
def epoch_kept_after_rows_were_given_up() -> Iterator[None]:
    """A producer that gives up rows keeps its epoch: the next rows count as duplicates of them, and are lost."""
    with method(TransactionManager, "raise_epoch", lambda self: None):
        yield


@mutation(
    unit_test="unit/state/test_idempotent_producers.py::test_an_id_that_the_store_has_not_given_out_is_not_registered"
)
def any_producer_id_registered() -> Iterator[None]:
    """A batch registers any producer id that it names: the store gives the id to another producer later."""
    with instead_of(check_may_register, lambda draft, producer_id: None):
        yield


@mutation(unit_test="unit/state/test_append_many.py::test_a_refused_request_of_several_batches_leaves_nothing_behind")
def refused_request_half_appended() -> Iterator[None]:
    """If a request among others is refused, its batches before the error stay: its producer does not know them."""

    def answer(request: AppendBatches, draft: Draft) -> Any:
        try:
            return request.apply(draft)
        except EosLogError as error:
            return error

    with instead_of(append_requests._answer, answer):
        yield


@mutation(unit_test="unit/state/test_append_many.py::test_a_refused_batch_has_its_error_and_the_others_are_appended")
def all_refused_with_one() -> Iterator[None]:
    """One refused batch refuses those of all producers in the call: one broken client stops the others."""

    with instead_of(append_requests._answer, lambda request, draft: request.apply(draft)):
        yield


@mutation(UNCLEAR)
def sequences_drawn_anew_for_a_repeat() -> Iterator[None]:
    """A batch that is sent again draws a new sequence: it is refused for the gap, or in the log twice."""
    original = Sender._append_in_flight

    def append_in_flight(self: Sender) -> Any:
        in_flight = self._in_flight
        if in_flight.was_sent:
            in_flight._batches = [
                batch.model_copy(
                    update={
                        "base_sequence": in_flight._next_sequence(batch.topic_id, batch.partition, batch.record_count)
                    }
                )
                for batch in in_flight._batches
            ]
        return original(self)

    with method(Sender, "_append_in_flight", append_in_flight):
        yield


@mutation(OVERTAKEN)
def unanswered_attempt_forgotten() -> Iterator[None]:
    """A producer does not look for an unanswered attempt: it reports a commit that landed as fenced."""
    with method(IdempotentAppend, "landed", lambda self: None):
        yield


@mutation(
    unit_test="unit/state/test_jobs.py::test_the_largest_job_has_a_producer_id_for_itself_and_for_each_task[524286]"
)
def last_task_beyond_its_jobs_producer_ids() -> Iterator[None]:
    """Each task gets the producer id after its own: the last task gets an id of another producer."""
    with instead_of(task_producer_id, lambda job_producer_id, task: job_producer_id + task + 2):
        yield


@mutation(unit_test="unit/state/test_producer_ids.py::test_the_new_ids_of_one_record_follow_each_other")
def producers_of_a_record_with_one_producer_id() -> Iterator[None]:
    """All new producers of a record get the same producer id: their sequences mix, and each one fences the others."""
    with method(producer_ids, "new_producer_id", lambda draft, kind: draft.slot * IDS_OF_SLOT):
        yield


@mutation(
    unit_test="unit/state/test_producer_ids.py::test_a_job_under_the_id_of_a_producer_gets_producer_ids_for_its_tasks"
)
def job_with_the_producer_id_of_a_producer() -> Iterator[None]:
    """A job keeps the producer id of a producer: the ids of its tasks belong to other producers."""
    original = next_identity

    def as_producer(draft: Draft, transaction: Transaction, kind: str) -> ProducerIdentity:
        return original(draft, replace(transaction, kind=kind), kind)

    with method(producer_ids, "next_identity", as_producer):
        yield
