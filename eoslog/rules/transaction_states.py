"""From which state of a transaction which one may be entered (Kafka's ``TransactionState``)."""

from __future__ import annotations

from eoslog.errors import InvalidTxnState
from eoslog.rules.state import Transaction, TransactionState

_E = TransactionState
VALID_PREVIOUS_STATES: dict[TransactionState, frozenset[TransactionState]] = {
    _E.EMPTY: frozenset({_E.EMPTY, _E.COMPLETE_COMMIT, _E.COMPLETE_ABORT}),
    _E.ONGOING: frozenset({_E.ONGOING, _E.EMPTY, _E.COMPLETE_COMMIT, _E.COMPLETE_ABORT}),
    _E.PREPARE_COMMIT: frozenset({_E.ONGOING}),
    _E.PREPARE_ABORT: frozenset({_E.ONGOING, _E.PREPARE_EPOCH_FENCE, _E.EMPTY, _E.COMPLETE_COMMIT, _E.COMPLETE_ABORT}),
    _E.COMPLETE_COMMIT: frozenset({_E.PREPARE_COMMIT}),
    _E.COMPLETE_ABORT: frozenset({_E.PREPARE_ABORT}),
    _E.DEAD: frozenset({_E.EMPTY, _E.COMPLETE_ABORT, _E.COMPLETE_COMMIT}),
    _E.PREPARE_EPOCH_FENCE: frozenset({_E.ONGOING}),
}
"""From which states each may be entered (``TransactionState.java``)."""


def transit(transaction: Transaction, *states: TransactionState) -> TransactionState:
    """The state of a transaction after it passed through ``states``: the last of them.

    Raises:
        InvalidTxnState: Kafka allows no such transition.
    """
    current = transaction.state
    for state in states:
        if current not in VALID_PREVIOUS_STATES[state]:
            raise InvalidTxnState(
                f"transactional id {transaction.transactional_id!r} cannot go from {current.name} to {state.name}"
            )
        current = state
    return current
