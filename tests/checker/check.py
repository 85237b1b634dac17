"""All rules over one history."""

from __future__ import annotations

from tests.checker.cycles import circular_information
from tests.checker.history import History, Outcome
from tests.checker.polls import internal_polls, polls_of_processes
from tests.checker.reads import (
    aborted_reads,
    inconsistent_offsets,
    intermediate_reads,
    precommitted_reads,
    unwritten_reads,
)
from tests.checker.sends import internal_sends, sends_of_processes
from tests.checker.values import duplicates, lost_writes, torn_transactions, unseen_values, worst_lag
from tests.checker.verdict import Verdict
from tests.checker.version_order import VersionOrder

_RULES = (
    inconsistent_offsets,
    aborted_reads,
    unwritten_reads,
    precommitted_reads,
    intermediate_reads,
    lost_writes,
    torn_transactions,
    duplicates,
    internal_polls,
    polls_of_processes,
    internal_sends,
    sends_of_processes,
    circular_information,
)


def check(history: History, *, all_was_polled: bool = True) -> Verdict:
    """Everything in a history that clients should not have been shown or told.

    Args:
        all_was_polled: it ends with polls of every key to its end, so that what nobody was shown is gone.
    """
    order = VersionOrder(history)
    rules = (*_RULES, unseen_values) if all_was_polled else _RULES
    return Verdict(
        anomalies=[anomaly for rule in rules for anomaly in rule(order)],
        operations=len(history),
        values_acknowledged=sum(map(len, order.writes[Outcome.OK].values())),
        values_polled=sum(map(len, order.reads.values())),
        worst_lag=worst_lag(order),
    )
