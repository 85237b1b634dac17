"""Mutations of shared commits: what is sent to another process, who appends it, and what its process is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eoslog.errors import StoreUnavailable
from eoslog.log.append_queue import Proposal
from eoslog.log.appender import Appender
from eoslog.log.contention import AppendErrors
from eoslog.log.log_reader import LogReader
from eoslog.log.replica import Replica
from eoslog.log.shared_commits import SharedCommits
from eoslog.log.slots import decode_line
from eoslog.session.store_machine import StoreMachine
from eoslog.state import append_requests, shared_entries
from eoslog.state.append_requests import AppendedRows
from eoslog.state.draft import Draft
from eoslog.state.names import PartitionId
from eoslog.state.state_machine import decode_entry
from eoslog.state.transaction_entries import BatchAppended
from tests.simulation.focus import FOCUSES
from tests.simulation.mutations.mutation import instead_of, method, mutation
from tests.unit.log.ledger import LedgerDraft, LedgerMachine

QUEUE = FOCUSES["queue"]
SHARING = "unit/log/test_sharing.py::"
TURNS = "unit/log/test_turns.py::"
REQUESTS = "unit/state/test_shared_requests.py::"


@mutation(QUEUE)
def requests_of_others_taken_as_they_are() -> Iterator[None]:
    """A process does not validate the requests that it appends for others: a record is invalid, and writers stop."""

    def append_for_another(self: LedgerMachine, draft: LedgerDraft, entries: Sequence[Any], files: object) -> None:
        draft.entries += entries

    with method(LedgerMachine, "append_for_another", append_for_another):
        yield


@mutation(QUEUE)
def sent_request_given_up() -> Iterator[None]:
    """A writer forgets a sent request at its deadline: it reports a failure, and the request lands later."""
    with method(AppendErrors, "unsettled", lambda self, proposal: StoreUnavailable("nothing was appended")):
        yield


@mutation(QUEUE)
def answer_of_the_own_attempt() -> Iterator[None]:
    """The answer comes from the own attempt and not from the record that has the request: it names another slot."""

    def tell(self: Proposal, entries: Sequence[Mapping[str, Any]], slot: int) -> None:
        self.has_landed = not self.done

    with method(Proposal, "tell", tell):
        yield


@mutation(QUEUE)
def sent_requests_forgotten() -> Iterator[None]:
    """A process does not look for a request that it sent to another process: it reports it as refused."""
    original = SharedCommits.message

    def message(self: SharedCommits, replica: Replica[Any], proposals: Sequence[Proposal], most_bytes: int) -> bytes:
        body = original(self, replica, proposals, most_bytes)
        for proposal in proposals:
            if proposal.sent is not None:
                replica.awaited.pop(proposal.sent.request_id, None)
                proposal.sent = None
        return body

    with method(SharedCommits, "message", message):
        yield


@mutation(unit_test=TURNS + "test_a_record_that_cannot_be_made_durable_is_not_acknowledged")
def records_read_before_they_are_durable() -> Iterator[None]:
    """A process reads another one's record before it is durable: a power failure loses acknowledged rows."""
    original = LogReader.read

    def read(self: LogReader[Any], slots: Sequence[int]) -> list[bytes | None]:
        with method(self.store, "make_durable", lambda path: None):
            return original(self, slots)

    with method(LogReader, "read", read):
        yield


@mutation(unit_test=TURNS + "test_records_of_another_log_are_passed_over")
def records_handed_over_not_checked() -> Iterator[None]:
    """Records from another process are folded unchecked: records of another log become part of the state."""

    def follow(self: Replica[Any], records: bytes) -> bool:
        first, *lines = records.split(b"\n")
        for slot, line in enumerate(lines, int(first or 0)):
            if slot > self.slot:
                self.fold(decode_line(line, slot), line)
        return bool(lines)

    with method(Replica, "follow", follow):
        yield


@mutation(unit_test=SHARING + "test_a_reopened_replica_looks_for_its_request_in_the_skipped_records")
def records_passed_over_not_searched() -> Iterator[None]:
    """A refusal counts though the replica skipped records: an appended request is reported as refused."""
    with method(Appender, "_refuse", lambda self, proposal, error, base: proposal.fail(error)):
        yield


@mutation(unit_test=REQUESTS + "test_only_batches_and_ends_of_producers_are_appended_for_others")
def any_entry_appended_for_others() -> Iterator[None]:
    """Any entry is appended for another process: an entry that the state does not recognize is there twice."""

    def append_for_another(
        self: StoreMachine, draft: Draft, entries: Sequence[object], files: Mapping[str, bytes]
    ) -> None:
        draft.offer_files(files)
        for value in entries:
            draft.append(decode_entry(value))

    with method(StoreMachine, "append_for_another", append_for_another):
        yield


@mutation(unit_test=REQUESTS + "test_an_old_batch_is_refused_after_its_producer_has_used_all_sequences")
def old_batches_appended_for_others() -> Iterator[None]:
    """Another process appends a batch that is too old: after 2^31 rows it is in its partition twice."""
    with instead_of(shared_entries.check_not_outlived, lambda draft, entry: None):
        yield


@mutation(unit_test=REQUESTS + "test_a_batch_that_may_register_its_producer_is_appended_by_its_own_process_alone")
def registering_batches_shared() -> Iterator[None]:
    """Any process appends a batch that may register its producer id: a late copy is there twice after an expiry."""
    with instead_of(shared_entries.is_shareable_batch, lambda entry: True):
        yield


@mutation(unit_test=REQUESTS + "test_an_end_with_the_offsets_of_a_member_is_appended_by_its_own_process_alone")
def offsets_of_members_shared() -> Iterator[None]:
    """Any process appends an end with a member's offsets: a commit that was refused lands at the next assignment."""
    with instead_of(shared_entries.is_shareable_end, lambda entry: True):
        yield


@mutation(unit_test="unit/producer/test_shared_answers.py::test_entries_of_other_requests_answer_no_batches")
def any_entries_answer_a_request() -> Iterator[None]:
    """The answer to a request may name any entries: a batch gets the offsets of another batch."""

    def appended(batch: BatchAppended, entry: Mapping[str, Any]) -> AppendedRows:
        return AppendedRows(PartitionId(batch.topic_id, batch.partition), entry["base_offset"], batch.record_count)

    with instead_of(append_requests._appended, appended):
        yield
