"""Mutations of transactions: their ends, application versions and time-outs, and the offsets that go with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from eoslog.errors import Replayed
from eoslog.producer.producer import Producer
from eoslog.producer.sender import InFlightBatches
from eoslog.producer.transaction_manager import TransactionManager
from eoslog.session.positions import with_added
from eoslog.session.store_machine import StoreMachine
from eoslog.state import expiry, groups, producer_ids, transaction_ends, transaction_requests
from eoslog.state import group_members as members
from eoslog.state.application_versions import check_application_version, last_version
from eoslog.state.draft import AppendEntry, Draft
from eoslog.state.group_entries import GroupOffsets, OffsetsCommitted
from eoslog.state.names import PartitionId
from eoslog.state.store_state import (
    ApplicationVersionKey,
    LastVersion,
    Member,
    StoreState,
    Transaction,
    TransactionState,
)
from eoslog.state.transactions import timed_out
from eoslog.storage.clock import StoreClock
from tests.simulation.mutations.mutation import Focus, instead_of, method, mutation
from tests.simulation.store import SimulatedEnvironment

PIPELINES = Focus(("pipeline0", "pipeline1", "idempotent0"), {"pause": 0.03}, steps=500)
SUCCESSORS = Focus(("writer0", "writer0"), {"pause": 0.05}, steps=300)
BACKFILLS = Focus(("spark-shared-backfill0", "spark-shared-backfill1"), steps=300)
STREAMS = Focus(("spark-shared-stream0", "spark-shared-stream1", "writer0"), steps=300)
JOBS = Focus(("job0", "job0"), {"death": 0.02, "pause": 0.05}, steps=500)


@mutation(Focus(("writer0", "two-phase0"), steps=300))
def marker_in_one_partition_only() -> Iterator[None]:
    """A transaction's end places its marker in one partition: the others stay undecided for ever."""

    original = transaction_ends._planned

    def planned(draft: Draft, entry: Any) -> Any:
        found = original(draft, entry)
        return found.model_copy(update={"markers": found.markers[:1]})

    with method(transaction_ends, "_planned", planned):
        yield


@mutation(SUCCESSORS)
def open_transaction_left_by_init() -> Iterator[None]:
    """An init leaves the open transaction open: the successor's commit includes the rows of the dead producer."""
    original = transaction_requests._abort

    def abort(draft: Draft, transaction: Transaction, reason: str, time_ms: int) -> None:
        if reason != "fence":
            original(draft, transaction, reason, time_ms)

    def is_open(transaction: Transaction, entry: Any) -> bool:
        return transaction.state is TransactionState.ONGOING

    with method(transaction_requests, "_abort", abort), method(producer_ids, "_keeps", is_open):
        yield


@mutation(SUCCESSORS)
def open_transaction_forgotten_by_init() -> Iterator[None]:
    """An init forgets the open transaction: its rows stay undecided, and readers wait for ever."""
    original_abort, original_plan = transaction_requests._abort, producer_ids._planned

    def abort(draft: Draft, transaction: Transaction, reason: str, time_ms: int) -> None:
        if reason != "fence":
            original_abort(draft, transaction, reason, time_ms)

    def planned(draft: Draft, entry: Any) -> Any:
        before = draft.transactions.get(entry.transactional_id)
        if before is not None and before.state is TransactionState.ONGOING:
            draft.transactions[entry.transactional_id] = replace(before, state=TransactionState.COMPLETE_ABORT)
            draft.ongoing.pop(entry.transactional_id, None)
        return original_plan(draft, entry)

    with method(transaction_requests, "_abort", abort), method(producer_ids, "_planned", planned):
        yield


@mutation(Focus(("writer0", "daemon0", "reader0"), {"death": 0.01, "pause": 0.01}, steps=600))
def abort_deletes_files() -> Iterator[None]:
    """An abort deletes the files of its transaction: entries name them, or a commit that landed after all."""
    send, abort = InFlightBatches.send, Producer.abort_transaction

    def noting_send(self: InFlightBatches, files: Any, *arguments: Any, **options: Any) -> None:
        self.__dict__.setdefault("sent", []).extend(file.path for file in files)
        send(self, files, *arguments, **options)

    def deleting_abort(self: Producer) -> None:
        sender = self._sender
        paths = sender._in_flight.__dict__.pop("sent", []) + [file.path for file in sender._accumulator.files]
        abort(self)
        self._store.object_store.delete(paths)

    with method(InFlightBatches, "send", noting_send), method(Producer, "abort_transaction", deleting_abort):
        yield


@mutation(JOBS)
def replays_land_again() -> Iterator[None]:
    """Application versions are not checked: a micro-batch that is replayed lands again."""
    with instead_of(check_application_version, lambda draft, transactional_id, work: None):
        yield


@mutation(JOBS)
def versions_compared_for_equality() -> Iterator[None]:
    """Only the last version counts as a replay: an older one lands again, if its run is not fenced."""

    def check(draft: Draft, transactional_id: str, work: Any) -> None:
        last = work and last_version(draft, transactional_id, work.application_id, work.sink)
        if last is not None and work.version == last.version:
            raise Replayed(work.application_id, work.version, last.version)

    with instead_of(check_application_version, check), method(producer_ids, "_fenced_owners", lambda before, owner: ()):
        yield


@mutation(BACKFILLS, shows="lost|committed version")
def versions_of_any_application() -> Iterator[None]:
    """A version is found by the transactional id alone: an application's work counts as another's replay."""

    def found(state: StoreState | Draft, transactional_id: str, application_id: str, sink: str) -> LastVersion | None:
        return _newest(state, lambda key: key.transactional_id == transactional_id)

    with instead_of(last_version, found):
        yield


@mutation(STREAMS)
def versions_of_any_sink() -> Iterator[None]:
    """A version counts for all sinks of an application: a query that writes elsewhere under the id is refused."""

    def found(state: StoreState | Draft, transactional_id: str, application_id: str, sink: str) -> LastVersion | None:
        return _newest(state, lambda key: key[:2] == (transactional_id, application_id))

    with instead_of(last_version, found):
        yield


def _newest(state: StoreState | Draft, counts: Callable[[ApplicationVersionKey], bool]) -> LastVersion | None:
    found = [state.application_versions[key] for key in state.application_versions if counts(key)]
    return max(found, key=lambda last: last.version, default=None)


@mutation(Focus(("job0", "daemon0", "job0"), {"death": 0.03, "pause": 0.05}, steps=600))
def application_versions_expire_with_their_id() -> Iterator[None]:
    """Versions go with the id that expires: a pipeline that paused for long commits its last batch twice."""
    original = expiry.expire

    def expire(draft: Draft, entry: Any) -> None:
        original(draft, entry)
        expired = {each.transactional_id for each in entry.transactional_ids}
        for key in [key for key in draft.application_versions if key.transactional_id in expired]:
            del draft.application_versions[key]

    with instead_of(original, expire):
        yield


@mutation(Focus(("two-phase0", "pipeline0", "daemon0"), steps=500))
def prepared_transaction_aborted_by_its_time_out() -> Iterator[None]:
    """The time-out of open transactions also ends prepared ones: a commit that a database decided is aborted."""

    def overdue(transactions: Iterable[Transaction], now_ms: int) -> list[Transaction]:
        return [
            transaction
            for transaction in transactions
            if transaction.state is TransactionState.ONGOING and transaction.start_ms + transaction.timeout_ms < now_ms
        ]

    with instead_of(timed_out, overdue):
        yield


@mutation(Focus(("two-phase0", "two-phase1"), {"death": 0.03}, steps=300))
def prepared_transaction_aborted_by_init() -> Iterator[None]:
    """An init aborts a prepared transaction that it must keep: a commit that a database decided is aborted."""
    original = TransactionManager.initialize

    with method(TransactionManager, "initialize", lambda self, *, keep_prepared=False: original(self)):
        yield


@mutation(Focus(("writer0", "two-phase0", "idempotent0", "daemon0"), steps=500))
def time_told_by_hosts() -> Iterator[None]:
    """Each process takes its host's clock for the store's: a fast clock ends and expires others' transactions."""
    original = StoreClock.now_ms

    def now_ms(self: StoreClock) -> int:
        environment = self._environment
        assert isinstance(environment, SimulatedEnvironment)
        ahead_ms = 30 * 86_400_000 if sum(environment._process.name.encode()) % 2 else 0
        return original(self) + ahead_ms

    with method(StoreClock, "now_ms", now_ms):
        yield


def _commit_at_once(requests: TransactionManager, offsets: Iterable[GroupOffsets]) -> None:
    for each in offsets:
        entry = OffsetsCommitted(committed=each, time_ms=requests._store.now_ms())
        requests._store.append(AppendEntry(entry))


@mutation(PIPELINES)
def offsets_visible_before_the_decision() -> Iterator[None]:
    """A group's offsets count when they are sent, not when their transaction commits: an abort loses its input."""
    original = TransactionManager.add_offsets

    def add_offsets(self: TransactionManager, added: GroupOffsets) -> None:
        _commit_at_once(self, [added])
        original(self, added)

    with method(TransactionManager, "add_offsets", add_offsets):
        yield


@mutation(PIPELINES)
def offsets_kept_by_an_abort() -> Iterator[None]:
    """An abort commits the group's offsets all the same: the input of the aborted transaction is lost."""
    original = Producer.abort_transaction

    def abort_transaction(self: Producer) -> None:
        _commit_at_once(self._requests, self._requests._offsets)
        original(self)

    with method(Producer, "abort_transaction", abort_transaction):
        yield


@mutation(PIPELINES)
def generation_not_checked() -> Iterator[None]:
    """Offsets of any member and generation are accepted: rows of a partition that was given up are read twice."""
    with method(groups, "_check_member", lambda draft, committed, places: None):
        yield


@mutation(
    unit_test="unit/state/test_groups.py::test_a_partition_that_came_back_is_refused_at_the_generations_before[1]"
)
def partition_that_came_back_counts_as_kept() -> Iterator[None]:
    """A partition that came back counts as kept: rows that another member committed in between are read twice."""
    original = members._assigned

    def assigned(member: Member, places: tuple[PartitionId, ...], generation: int) -> Member:
        return original(replace(member, since={}), places, 0)

    with method(members, "_assigned", assigned):
        yield


@mutation(
    unit_test="unit/consumer/test_group_generations.py::"
    "test_offsets_of_a_partition_that_came_back_are_refused_beside_later_ones[later1]"
)
def partitions_of_earlier_items_forgotten() -> Iterator[None]:
    """An offset that is replaced loses its generation: rows that another member has read are there twice."""
    original = with_added

    def added_alone(offsets: Sequence[GroupOffsets], added: GroupOffsets) -> tuple[GroupOffsets, ...]:
        newer = {(each.topic_id, each.partition) for each in added.offsets}
        kept = [
            each.model_copy(
                update={"offsets": tuple(it for it in each.offsets if (it.topic_id, it.partition) not in newer)}
            )
            for each in offsets
        ]
        return original(kept, added)

    with instead_of(original, added_alone):
        yield


@mutation(
    unit_test="unit/state/test_members.py::test_a_partition_is_the_newcomers_only_when_its_reader_has_given_it_up"
)
def partition_handed_over_at_once() -> Iterator[None]:
    """A partition gets a new member before the old one gave it up: both process the same rows."""
    with (
        method(members, "_without_others", lambda target, of: target),
        method(members, "_check_assignment", lambda draft, group_id, of: None),
    ):
        yield


@mutation(unit_test="unit/consumer/test_rebalances.py::test_a_member_gives_up_only_what_it_was_told_to_give_up")
def given_up_while_it_is_read() -> Iterator[None]:
    """A member gives up a partition that it still reads: another member reads it, too."""
    apply = members.ChangeGroup.apply

    def without_check(self: members.ChangeGroup, draft: Draft) -> Sequence[str]:
        return apply(replace(self, still_read=()), draft)

    with method(members.ChangeGroup, "apply", without_check):
        yield


@mutation(Focus(("writer0", "idempotent0", "reader0"), {"death": 0.02}, steps=400))
def nobody_ends_what_timed_out() -> Iterator[None]:
    """No process may end a dead producer's transaction: it holds readers back for ever."""
    with instead_of(timed_out, lambda transactions, now_ms: []):
        yield


@mutation(unit_test="unit/maintenance/test_dead_producers.py::test_the_abort_shares_the_record_of_the_append")
def overdue_left_to_readers() -> Iterator[None]:
    """An append leaves transactions past their time-outs alone: rows stay hidden from readers that may not write."""
    with method(StoreMachine, "add_overdue", lambda self, draft, now_ms: None):
        yield
