"""A coordinator that was paused changes nothing wrongly: each of its steps is validated at the tail of the log."""

from __future__ import annotations

import pytest

from eoslog.maintenance.sealing import seal_segments
from eoslog.maintenance.vacuum import vacuum
from eoslog.state.end_requests import end_request
from eoslog.state.entries import Entry
from eoslog.state.state_machine import encode_entry
from eoslog.state.store_state import StoreState, TransactionState
from eoslog.state.transaction_requests import AbortOverdueTransactions
from eoslog.store import Store
from tests.unit.state.answers import is_inert, reloaded
from tests.unit.state.histories import History, new_draft
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
def test_a_late_abort_by_time_out_loses_to_the_commit(history: History) -> None:
    identity = history.init(timeout_ms=1_000)
    history.send(identity)
    history.now_ms += 2_000
    draft = new_draft(history.state, history.slot + 1)
    assert AbortOverdueTransactions(history.now_ms).apply(draft) == ["tx"]
    history.commit(identity)

    assert is_inert_in(history.state, history, draft.entries[0])


@pytest.mark.scenario(33)
def test_a_vacuum_that_slept_deletes_nothing_that_was_named_meanwhile(store: Store, world: World) -> None:
    topic_of_small_segments(store, "s")
    world.pass_time(30 * DAY_MS)

    def others_write() -> None:
        write(store, "s", "commit")
        seal_segments(store)
        world.pass_time(30 * DAY_MS)

    zombie = world.process()
    slept = asleep_at(zombie, "segment.vacuum.horizon_moved", others_write)
    vacuum(zombie)

    assert slept
    assert read(world.process(), "s") == [(0, b"0")]
