"""Mutations of the group commit: what threads of one process that share a record are told of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from eoslog.errors import StoreUnavailable
from eoslog.log.append_queue import Proposal
from eoslog.log.contention import AppendErrors
from eoslog.log.next_record import Base, NextRecord, SortedProposals, sort_proposals
from eoslog.log.record_put import PutResult, RecordPut
from eoslog.log.replica import Replica
from tests.simulation.focus import FOCUSES
from tests.simulation.mutations.mutation import Focus, instead_of, method, mutation

REOPENED = Focus(("log-threads0", "log-threads1"), {"lost_answer": 0.3, "interrupt": 0.05, "death": 0.0}, steps=400)
INTERRUPTED = Focus(("log-threads0", "log-fast-writer0"), {"interrupt": 0.05}, steps=400)


@mutation(FOCUSES["threads"])
def follower_told_before_the_win() -> Iterator[None]:
    """Followers get their answers before the put succeeds: a record that lost its race is acknowledged."""
    original = RecordPut.put

    def put(self: RecordPut[Any], record: NextRecord) -> PutResult:
        for proposal in record.taken[1:]:
            proposal.finish()
        return original(self, record)

    with method(RecordPut, "put", put):
        yield


@mutation(FOCUSES["threads"])
def answer_of_the_first_draft_kept() -> Iterator[None]:
    """An answer is kept from the draft that lost its race: it names the slot of another record."""

    def sorted_once(replica: Replica[Any], draft: Any, pending: Sequence[Proposal]) -> SortedProposals:
        before = [(proposal, proposal.answer) for proposal in pending if proposal.answer is not None]
        this = sort_proposals(replica, draft, pending)
        for proposal, answer in before:
            proposal.answer = answer
        return this

    with instead_of(sort_proposals, sorted_once):
        yield


class _Now:
    """A base whose state, or slot too, is whatever the replica has now."""

    def __init__(self, base: Any, replica: Replica[Any], *, has_slot_of_now: bool) -> None:
        self.last_check, self.opening = base.last_check, base.opening
        self._slot = None if has_slot_of_now else base.slot
        self._replica = replica

    @property
    def state(self) -> Any:
        return self._replica.state

    @property
    def slot(self) -> int:
        return self._replica.slot if self._slot is None else self._slot


@contextmanager
def _put_on(has_slot_of_now: bool) -> Iterator[None]:
    original = RecordPut.put

    def put(self: RecordPut[Any], record: NextRecord) -> PutResult:
        now: Any = _Now(record.base, self._replica, has_slot_of_now=has_slot_of_now)
        return original(self, replace(record, base=now) if record.base.slot >= 0 else record)

    with method(RecordPut, "put", put):
        yield


@mutation(FOCUSES["threads"])
def win_merged_into_a_view_that_has_it() -> Iterator[None]:
    """A win is merged though another thread has folded its record meanwhile: its entries count twice."""
    with _put_on(has_slot_of_now=True):
        yield


@mutation(REOPENED)
def win_merged_into_a_state_that_was_replaced() -> Iterator[None]:
    """A won record is merged into its draft's state after another thread reopened the replica: it stays hidden."""
    with _put_on(has_slot_of_now=False):
        yield


@mutation(
    unit_test="unit/log/test_log_group_commit.py::test_another_threads_reopening_confirms_no_win_in_a_deleted_name"
)
def freshness_of_the_view_of_now() -> Iterator[None]:
    """A put counts if the replica is fresh now, though it was reopened: rows in a deleted slot's name are lost."""
    original = RecordPut._is_part_of_log

    def is_part_of_log(self: RecordPut[Any], base: Base, slot: int, append_id: str) -> bool:
        with self._replica.lock:
            now = base._replace(slot=self._replica.slot, last_check=self._replica.last_check)
        return original(self, now, slot, append_id)

    with method(RecordPut, "_is_part_of_log", is_part_of_log):
        yield


@mutation(INTERRUPTED)
def followers_of_the_interrupted_told_that_nothing_landed() -> Iterator[None]:
    """Followers of an interrupted leader are told that nothing was appended: their record may have landed."""
    original = AppendErrors.after

    def after(self: AppendErrors, error: BaseException, proposal: Proposal) -> BaseException:
        if not isinstance(error, Exception):
            return StoreUnavailable("nothing was appended")
        return original(self, error, proposal)

    with method(AppendErrors, "after", after):
        yield
