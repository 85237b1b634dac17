"""What the state machine refuses, and the state that a reload or a replay of the log finds."""

from __future__ import annotations

from eoslog.format.checkpoint_codec import parts, restore
from eoslog.state.end_requests import EndTransaction, end_request
from eoslog.state.producer_ids import ProducerIdentity
from eoslog.state.store_state import StoreState
from tests.unit.state.histories import History, fold


def batch_refused(
    history: History, identity: ProducerIdentity, base_sequence: int = 0, *, transactional_id: str | None = "tx"
) -> type[Exception]:
    """The error of a batch that may not be appended."""
    batch = history.batch(identity, base_sequence, transactional_id=transactional_id)
    return type(history.refused(lambda draft: draft.append(batch).base_offset))


def end_refused(
    history: History,
    identity: ProducerIdentity,
    outcome: str,
    transactional_id: str = "tx",
    *,
    keeps_epoch: bool = False,
) -> type[Exception]:
    """The error of an end that may not be."""
    request = end_request(transactional_id, identity, outcome, keeps_epoch=keeps_epoch, time_ms=history.now_ms)
    return type(history.refused(lambda draft: EndTransaction(request).apply(draft)))


def reloaded(history: History) -> StoreState:
    """The state as a cold process finds it in a checkpoint."""
    return restore({part.name: part.encode() for part in parts(history.state, history.slot)})


def replayed(history: History, slots: int | None = None) -> StoreState:
    """The state of a process that folds the first ``slots`` records of the log, all if None."""
    state = StoreState()
    for slot, entries in enumerate(history.records[:slots]):
        assert fold(state, slot, entries) is None
    return state


def is_inert(state: StoreState, slot: int, entries: list[object]) -> bool:
    """Whether a record that somebody wrote without asking the rules changes nothing for those who fold it."""
    before = state.frozen_copy()
    reason = fold(state, slot, entries)
    return reason is not None and state == before


def previous(identity: ProducerIdentity) -> ProducerIdentity:
    """The identity before the last end."""
    return identity._replace(producer_epoch=identity.producer_epoch - 1)
