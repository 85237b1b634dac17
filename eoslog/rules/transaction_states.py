"""From which state of a transaction which one may be entered (Kafka's ``TransactionState``)."""

from __future__ import annotations

from dataclasses import replace

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


def transit(transaction: Transaction, *states: TransactionState) -> Transaction:
    """The transaction after it passed through ``states``.

    Raises:
        InvalidTxnState: Kafka allows no such transition.
    """
    for state in states:
        if transaction.state not in VALID_PREVIOUS_STATES[state]:
            raise InvalidTxnState(
                f"transactional id {transaction.transactional_id!r} cannot go from {transaction.state.name} "
                f"to {state.name}"
            )
        transaction = replace(transaction, state=state)
    return transaction
