"""The states of transactional ids: which of them end or expire by time, and how they are stored."""

from __future__ import annotations

import pytest

from eoslog.state.expiry import TRANSACTIONAL_ID_EXPIRATION_MS
from eoslog.state.store_state import StoreState, TransactionState
from eoslog.state.transaction_entries import ApplicationVersion
from tests.unit.state.answers import reloaded
from tests.unit.state.histories import History, fold, planned_expiry

S = TransactionState


def in_each_state(history: History) -> dict[TransactionState, str]:
    """A transactional id in each state that is at rest."""
    ids = {S.EMPTY: "empty", S.ONGOING: "ongoing", S.COMPLETE_COMMIT: "committed", S.COMPLETE_ABORT: "aborted"}
    for state, name in ids.items():
        identity = history.init(name)
        if state is not S.EMPTY:
            history.send(identity, transactional_id=name)
        if state is S.COMPLETE_COMMIT:
            history.commit(identity, name)
        elif state is S.COMPLETE_ABORT:
            history.abort(identity, name)
    return ids


@pytest.mark.scenario(94)
def test_of_all_states_only_an_open_transaction_times_out(history: History) -> None:
    ids = in_each_state(history)
    history.now_ms += 100 * 60_000

    assert history.abort_timed_out() == [ids[S.ONGOING]]


@pytest.mark.scenario(96, 98)
def test_ids_at_rest_expire_and_an_open_one_does_not(history: History) -> None:
    ids = in_each_state(history)
    history.now_ms += TRANSACTIONAL_ID_EXPIRATION_MS
    planned = planned_expiry(history.state, history.now_ms)
    assert planned is not None

    history.append(lambda draft: draft.append(planned))

    assert history.state.transactions.keys() == {ids[S.ONGOING]}
    assert reloaded(history) == history.state


@pytest.mark.scenario(100)
def test_every_state_comes_back_from_a_checkpoint(history: History) -> None:
    in_each_state(history)

    assert reloaded(history).transactions == history.state.transactions
    assert {known.state for known in reloaded(history).transactions.values()} == {
        S.EMPTY,
        S.ONGOING,
        S.COMPLETE_COMMIT,
        S.COMPLETE_ABORT,
    }


@pytest.mark.scenario(100)
def test_an_id_without_an_open_transaction_has_no_partitions(history: History) -> None:
    ids = in_each_state(history)

    for state, name in ids.items():
        assert bool(history.transaction(name).partitions) is (state is S.ONGOING)


@pytest.mark.scenario(100)
def test_fields_that_are_not_known_are_passed_over(history: History) -> None:
    identity = history.init()
    history.send(identity)
    history.commit(identity)

    follower = StoreState()
    for slot, entries in enumerate(history.records):
        assert fold(follower, slot, [entry | {"of_the_future": 1} for entry in entries]) is None

    assert follower == history.state


@pytest.mark.scenario(100)
def test_a_forgotten_id_is_gone_from_checkpoints_and_its_application_version_is_not(history: History) -> None:
    application_version = ApplicationVersion(application_id="app", sink="*", version=3)
    history.commit(history.init(), application_version=application_version)
    history.now_ms += TRANSACTIONAL_ID_EXPIRATION_MS
    planned = planned_expiry(history.state, history.now_ms)
    assert planned is not None
    history.append(lambda draft: draft.append(planned))

    state = reloaded(history)

    assert state.transactions == {}
    assert [last.version for last in state.application_versions.values()] == [3]
