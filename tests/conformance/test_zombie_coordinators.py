"""A coordinator that was paused changes nothing wrongly: each of its steps is validated at the tail of the log."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eoslog.errors import OffsetOutOfRange
from eoslog.maintenance.coordinator import Coordinator
from eoslog.maintenance.sealing import seal_segments
from eoslog.maintenance.vacuum import vacuum
from eoslog.state.end_requests import end_request
from eoslog.state.entries import Entry, LogStartMoved
from eoslog.state.expiry import TRANSACTIONAL_ID_EXPIRATION_MS
from eoslog.state.state_machine import encode_entry
from eoslog.state.store_state import StoreState, TransactionState
from eoslog.state.transaction_requests import AbortOverdueTransactions
from eoslog.store import Store
from tests.unit.state.answers import is_inert, reloaded
from tests.unit.state.histories import TOPIC_ID, History, new_draft, planned_expiry
from tests.unit.support.partitions import read, topic_of_small_segments, write
from tests.unit.support.paused_processes import asleep_at
from tests.unit.support.world import World

DAY_MS = 24 * 3600 * 1000


def prepared_by_a_zombie(history: History) -> Entry:
    """What a coordinator makes of an open transaction, before it falls asleep."""
    identity = history.init()
    history.send(identity)
    request = end_request("tx", identity, "abort", reason="timeout", time_ms=history.now_ms)
    return new_draft(history.state, history.slot + 1).append(request)


def is_inert_in(state: StoreState, history: History, entry: Entry) -> bool:
    return is_inert(state, history.slot + 1, [encode_entry(entry)])


@pytest.mark.scenario(33, 51)
@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_a_late_end_changes_nothing_after_the_transaction_was_ended(history: History, outcome: str) -> None:
    late = prepared_by_a_zombie(history)
    identity = history.transaction()
    history.end(identity, outcome)  # type: ignore[arg-type]

    assert is_inert_in(history.state, history, late)
    assert is_inert_in(reloaded(history), history, late)


@pytest.mark.scenario(33, 51)
def test_a_late_end_changes_nothing_after_the_next_transaction_began(history: History) -> None:
    late = prepared_by_a_zombie(history)
    first = history.transaction()
    second = history.commit(first)  # type: ignore[arg-type]
    history.send(second)

    assert is_inert_in(history.state, history, late)
    assert history.transaction().state is TransactionState.ONGOING


@pytest.mark.scenario(51)
def test_a_late_end_of_a_transaction_without_rows_changes_nothing(history: History) -> None:
    identity = history.init()
    request = end_request("tx", identity, "abort", time_ms=history.now_ms)
    late = new_draft(history.state, history.slot + 1).append(request)
    history.init()

    assert is_inert_in(history.state, history, late)


@pytest.mark.scenario(33, 114)
def test_of_two_coordinators_that_meet_the_same_time_out_one_aborts(store: Store, world: World) -> None:
    write(store, "t", "open", transaction_timeout_ms=1_000)
    one, other = Coordinator(world.process()), Coordinator(world.process())
    other.abort_timed_out_transactions()
    world.pass_time(2_000)

    assert [one.abort_timed_out_transactions(), other.abort_timed_out_transactions()] == [["tx"], []]

    assert store.admin.offsets("t")[0].high_watermark == 2


@pytest.mark.scenario(33, 114)
def test_a_late_abort_by_time_out_loses_to_the_commit(history: History) -> None:
    identity = history.init(timeout_ms=1_000)
    history.send(identity)
    history.now_ms += 2_000
    draft = new_draft(history.state, history.slot + 1)
    assert AbortOverdueTransactions(history.now_ms).apply(draft) == ["tx"]
    history.commit(identity)

    assert is_inert_in(history.state, history, draft.entries[0])


@pytest.mark.scenario(33)
@pytest.mark.parametrize("use", ["init", "send", "abort"])
def test_a_late_expiry_changes_nothing_after_the_id_was_used(history: History, use: str) -> None:
    identity = history.init()
    history.now_ms += TRANSACTIONAL_ID_EXPIRATION_MS
    late = planned_expiry(history.state, history.now_ms)
    assert late is not None
    if use == "init":
        history.init()
    elif use == "send":
        history.send(identity)
    else:
        history.abort(identity)

    assert is_inert_in(history.state, history, late)


@pytest.mark.scenario(33)
def test_a_late_seal_changes_nothing_after_the_segment_was_sealed(history: History) -> None:
    identity = history.init()
    history.send(identity)
    history.commit(identity)
    late = history.seal_entry(2)
    history.seal(2)

    assert is_inert_in(history.state, history, late)
    assert isinstance(history.refused(lambda draft: draft.append(late)), OffsetOutOfRange)


def with_sealed_segments(history: History) -> None:
    """Two sealed segments, each of one transaction of one row."""
    identity = history.init()
    for _ in range(2):
        history.send(identity)
        identity = history.commit(identity)
        history.seal(history.partition().high_watermark)


@pytest.mark.scenario(33)
def test_a_late_compaction_changes_nothing_after_the_segments_were_compacted_or_dropped(history: History) -> None:
    with_sealed_segments(history)
    late = history.replace_entry(0, 1)
    compacted = history.replace_entry(0, 1)
    history.append(lambda draft: draft.append(compacted))
    assert is_inert_in(history.state, history, late)

    again = history.replace_entry(0, 0)
    history.append(lambda draft: draft.append(log_start(4)))
    assert is_inert_in(history.state, history, again)


def log_start(offset: int) -> LogStartMoved:
    return LogStartMoved(topic_id=TOPIC_ID, partition=0, offset=offset, reason="retention")


def asleep_during(world: World, step: Callable[[Store], object], meanwhile: Callable[[], object], at: str) -> None:
    """A process that begins a step, sleeps at a point of it while others work, and goes on."""
    zombie = world.process()
    slept = asleep_at(zombie, at, meanwhile)
    step(zombie)
    assert slept == [at]


@pytest.mark.scenario(33)
def test_a_vacuum_that_slept_deletes_nothing_that_was_named_meanwhile(store: Store, world: World) -> None:
    topic_of_small_segments(store, "s")
    world.pass_time(30 * DAY_MS)

    def others_write() -> None:
        write(store, "s", "commit")
        seal_segments(store)
        world.pass_time(30 * DAY_MS)

    asleep_during(
        world,
        lambda zombie: vacuum(zombie),
        others_write,
        at="segment.vacuum.horizon_moved",
    )

    assert read(world.process(), "s") == [(0, b"0")]
