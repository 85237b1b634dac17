"""In which order a producer's values lie."""

from __future__ import annotations

from tests.checker import Outcome
from tests.unit.checker.histories import illegal, legal, operation, poll, send, sent


def test_a_transaction_whose_rows_lie_in_another_order_than_it_sent_them_is_not_monotonic() -> None:
    assert illegal(operation("a", sent("k", 1, 1), sent("k", 2, 0)), poll("b", k=[(0, 2), (1, 1)])) == {
        "int-nonmonotonic-send"
    }


def test_rows_of_unknown_offsets_lie_where_they_are_read() -> None:
    unknown = operation("a", sent("k", 1), sent("k", 2), outcome=Outcome.INFO)

    assert illegal(unknown, poll("b", k=[(0, 2), (1, 1)])) == {"int-nonmonotonic-send"}


def test_foreign_rows_may_lie_between_those_of_a_transaction() -> None:
    transactions = [operation("a", sent("k", 1, 0), sent("k", 3, 2)), operation("b", sent("k", 2, 1))]

    assert legal(*transactions, poll("c", k=[(0, 1), (1, 2), (2, 3)])) == {"int-send-skip"}


def test_between_the_rows_of_a_staged_transaction_lie_none() -> None:
    transactions = [operation("a", sent("k", 1, 0), sent("k", 3, 2), staged=True), operation("b", sent("k", 2, 1))]

    assert illegal(*transactions, poll("c", k=[(0, 1), (1, 2), (2, 3)])) == {"int-send-skip"}


def test_a_process_whose_later_send_lies_before_an_earlier_one_is_not_monotonic() -> None:
    assert illegal(send("a", "k", 1, 1), send("a", "k", 2, 0), poll("b", k=[(0, 2), (1, 1)])) == {"nonmonotonic-send"}


def test_a_send_of_unknown_outcome_counts_where_it_is_read() -> None:
    unknown = send("a", "k", 1, None, Outcome.INFO)

    assert illegal(unknown, send("a", "k", 2, 0), poll("b", k=[(0, 2), (1, 1)])) == {"nonmonotonic-send"}


def test_another_process_may_be_overtaken() -> None:
    assert not legal(send("a", "k", 1, 1), send("b", "k", 2, 0), poll("c", k=[(0, 2), (1, 1)]))


def test_a_failed_send_lies_nowhere() -> None:
    assert not legal(send("a", "k", 1, None, Outcome.FAIL), send("a", "k", 2, 0), poll("c", k=[(0, 2)]))
