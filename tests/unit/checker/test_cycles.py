"""Information flows in no circle."""

from __future__ import annotations

from tests.checker import Outcome, check
from tests.unit.checker.histories import illegal, legal, operation, polled, sent


def test_two_transactions_that_were_shown_each_other_are_a_cycle() -> None:
    first = operation("a", sent("j", 1, 0), polled(k=[(0, 2)]), lasted=(0, 10))
    second = operation("b", sent("k", 2, 0), polled(j=[(0, 1)]), lasted=(1, 11))

    assert illegal(first, second) == {"G1c"}


def test_three_transactions_are_a_cycle_and_the_witness_names_them_alone() -> None:
    history = [
        operation("a", sent("i", 1, 0), polled(k=[(0, 3)]), lasted=(0, 10)),
        operation("b", sent("j", 2, 0), polled(i=[(0, 1)]), lasted=(1, 11)),
        operation("c", sent("k", 3, 0), polled(j=[(0, 2)]), lasted=(2, 12)),
        operation("bystander", polled(k=[(0, 3)]), lasted=(3, 13)),
    ]

    (anomaly,) = check(history).illegal

    assert anomaly.rule == "G1c"
    assert "bystander" not in anomaly.witness
    assert anomaly.witness.count("->") == 3


def test_a_transaction_of_unknown_outcome_may_be_in_the_cycle() -> None:
    first = operation("a", sent("j", 1), polled(k=[(0, 2)]), lasted=(0, 10), outcome=Outcome.INFO)
    second = operation("b", sent("k", 2, 0), polled(j=[(0, 1)]), lasted=(1, 11))

    assert "G1c" in illegal(first, second, all_was_polled=False)


def test_a_process_that_is_shown_what_it_sends_later_is_a_cycle() -> None:
    read = operation("a", polled(k=[(0, 1)]), lasted=(0, 10))
    write = operation("a", sent("k", 1, 0), lasted=(11, 20))

    assert illegal(read, write) == {"G1c-process"}


def test_a_read_of_what_is_sent_only_after_it_is_a_cycle() -> None:
    read = operation("a", polled(k=[(0, 1)]), lasted=(0, 10))
    write = operation("b", sent("k", 1, 0), lasted=(11, 20))

    assert illegal(read, write) == {"G1c-realtime"}


def test_a_read_of_what_was_sent_meanwhile_is_none() -> None:
    read = operation("a", polled(k=[(0, 1)]), lasted=(0, 10))
    write = operation("b", sent("k", 1, 0), lasted=(9, 20))

    assert not legal(read, write)


def test_real_time_leads_over_operations_that_read_nothing() -> None:
    history = [
        operation("a", polled(k=[(0, 1)]), lasted=(0, 10)),
        operation("b", sent("j", 1, 0), polled(j=[]), lasted=(11, 12)),
        operation("c", sent("k", 1, 0), lasted=(13, 20)),
        operation("d", polled(j=[(0, 1)]), lasted=(21, 30)),
    ]

    assert illegal(*history) == {"G1c-realtime"}


def test_an_operation_without_a_known_end_comes_before_no_other() -> None:
    unknown = operation("a", sent("j", 2), polled(k=[(0, 1)]), lasted=(0, 10), outcome=Outcome.INFO)
    write = operation("b", sent("k", 1, 0), lasted=(11, 20))
    read = operation("c", polled(k=[(0, 1)]), lasted=(21, 30))

    assert not legal(unknown, write, read)


def test_interleaved_writes_are_no_cycle() -> None:
    first = operation("a", sent("k", 1, 0), sent("k", 3, 2), lasted=(0, 10))
    second = operation("b", sent("k", 2, 1), sent("k", 4, 3), lasted=(1, 11))
    read = operation("c", polled(k=[(0, 1), (1, 2), (2, 3), (3, 4)]), lasted=(12, 20))

    assert legal(first, second, read) == {"int-send-skip"}
