"""Mutations of rows in records: their content, their move to data files, and the slots that have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from eoslog.log.slots import files_line
from eoslog.maintenance import sealing
from eoslog.session.store_machine import StoreMachine
from eoslog.state.draft import Draft
from eoslog.state.partition_state import Batch, Outcome
from eoslog.state.partitions import oldest_record_of
from eoslog.storage.object_store import RecentObjects
from tests.simulation.mutations.mutation import Focus, instead_of, method, mutation

SEALERS = Focus(("writer0", "writer1", "daemon0"), steps=500)
TESTS = "unit/session/test_rows_in_records.py::"
STATE_TESTS = "unit/state/test_files_in_records.py::"


@mutation(unit_test=TESTS + "test_a_coordinator_moves_rows_out_of_old_slots_and_deletes_those")
def slots_deleted_with_living_rows() -> Iterator[None]:
    """Slots are deleted though a batch has its rows there: the rows are lost."""
    with method(StoreMachine, "oldest_needed_slot", lambda self, state: None):
        yield


@mutation(unit_test=STATE_TESTS + "test_a_seal_replaces_each_run_of_files_in_records_by_a_data_file")
def slots_deleted_under_older_plans() -> Iterator[None]:
    """A seal lets the slots of its rows be deleted at once: a reader with an older plan misses rows."""
    with instead_of(oldest_record_of, lambda batches: None):
        yield


@mutation(SEALERS)
def rows_moved_to_the_start_of_their_file() -> Iterator[None]:
    """All batches that a seal moves begin at row 0 of the new file: offsets have the rows of others."""
    original = sealing._MovedRows._moved

    def at_the_start(self: Any, batches: Sequence[Batch]) -> list[Batch]:
        return [batch._replace(first_row=0) for batch in original(self, batches)]

    with method(sealing._MovedRows, "_moved", at_the_start):
        yield


@mutation(SEALERS)
def moved_rows_count_as_committed() -> Iterator[None]:
    """A seal that moves rows forgets that their transaction aborted: readers see aborted rows."""
    original = sealing._MovedRows._moved

    def committed(self: Any, batches: Sequence[Batch]) -> list[Batch]:
        return [batch._replace(outcome=Outcome.COMMITTED) for batch in original(self, batches)]

    with method(sealing._MovedRows, "_moved", committed):
        yield


@mutation(unit_test=TESTS + "test_an_answer_that_is_cut_short_is_not_kept_in_memory")
def cut_answers_kept() -> Iterator[None]:
    """A process keeps the files of a record that it has read only in part: it never finds the other files."""

    def in_part(body: bytes) -> bytes:
        return body[body.rfind(b'\n{"files"') + 1 :] if b'\n{"files"' in body else b""

    with instead_of(files_line, in_part), method(RecentObjects, "drop", lambda self, path: None):
        yield


@mutation(unit_test=TESTS + "test_a_flush_of_small_batches_over_100_partitions_is_one_request")
def records_without_their_rows() -> Iterator[None]:
    """A record names files that it does not hold: acknowledged rows are lost."""
    with method(Draft, "take_file", lambda self, file: None):
        yield


@mutation(unit_test=TESTS + "test_each_record_answers_for_its_own_rows")
def memory_answers_for_another_slot() -> Iterator[None]:
    """The rows kept in memory are not told apart by their slot: a reader finds no rows, or wrong ones."""

    def any_kept(self: RecentObjects, path: str) -> bytes | None:
        return next((content for content in self._own().contents.values() if content), None)

    with method(RecentObjects, "find", any_kept):
        yield
