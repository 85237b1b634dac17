"""What no reader may be shown."""

from __future__ import annotations

from tests.checker import Kind, Outcome
from tests.unit.checker.histories import illegal, legal, operation, poll, polled, send, sent, snapshot


def test_an_offset_that_held_two_values_is_inconsistent() -> None:
    assert illegal(
        send("a", "k", 1, 0), poll("b", k=[(0, 1)]), poll("c", k=[(0, 2)]), send("a", "k", 2, 1), poll("c", k=[(1, 2)])
    ) >= {"inconsistent-offsets"}


def test_an_acknowledgement_with_the_offset_of_another_value_is_inconsistent() -> None:
    assert illegal(send("a", "k", 1, 0), send("b", "k", 2, 0), all_was_polled=False) == {"inconsistent-offsets"}


def test_everybody_is_shown_the_same_value_at_an_offset() -> None:
    assert not legal(send("a", "k", 1, 0), poll("b", k=[(0, 1)]), poll("c", k=[(0, 1)]))


def test_a_failed_send_that_shows_is_an_aborted_read() -> None:
    assert illegal(send("a", "k", 1, None, Outcome.FAIL), poll("b", k=[(0, 1)])) == {"G1a"}


def test_an_aborted_transaction_that_shows_to_a_transaction_that_fails_is_an_aborted_read_too() -> None:
    aborted = operation("a", sent("k", 1), outcome=Outcome.FAIL)
    failed = operation("b", polled(k=[(0, 1)]), outcome=Outcome.FAIL)

    assert illegal(aborted, failed) == {"G1a"}


def test_a_reader_may_be_shown_a_value_whose_send_has_an_unknown_outcome() -> None:
    assert not legal(send("a", "k", 1, None, Outcome.INFO), poll("b", k=[(0, 1)]))


def test_a_reader_may_be_shown_a_value_that_was_sent_again_after_a_failure() -> None:
    assert not legal(send("a", "k", 1, None, Outcome.FAIL), send("b", "k", 1, 0), poll("c", k=[(0, 1)]))


def test_a_value_that_nobody_sent_does_not_show() -> None:
    assert illegal(poll("b", k=[(0, 7)])) == {"unwritten-read"}


def test_a_value_sent_for_another_key_does_not_show() -> None:
    assert illegal(send("a", "j", 7, 0), poll("b", j=[(0, 7)], k=[(0, 7)])) == {"unwritten-read"}


def test_a_transaction_that_is_shown_its_own_row_reads_before_it_is_committed() -> None:
    assert illegal(operation("a", sent("k", 1, 0), polled(k=[(0, 1)]))) == {"precommitted-read"}


def test_a_producer_is_shown_its_own_rows_after_the_commit() -> None:
    assert not legal(operation("a", sent("k", 1, 0)), operation("a", polled(k=[(0, 1)])))


def test_a_client_without_transactions_is_shown_its_own_rows_at_once() -> None:
    assert not legal(operation("a", sent("k", 1, 0), polled(k=[(0, 1)]), kind=Kind.SEND))


def test_a_snapshot_that_shows_a_transaction_in_one_partition_and_not_in_another_is_intermediate() -> None:
    assert illegal(
        operation("a", sent("j", 1, 0), sent("k", 2, 0)),
        snapshot("b", ("j", "k"), j=[(0, 1)]),
        all_was_polled=False,
    ) == {"G1b"}


def test_a_snapshot_that_shows_the_first_of_two_rows_is_intermediate() -> None:
    assert illegal(
        operation("a", sent("k", 1, 0), sent("k", 2, 1)), snapshot("b", ("k",), k=[(0, 1)]), all_was_polled=False
    ) == {"G1b"}


def test_a_snapshot_shows_a_transaction_whole_or_not_at_all() -> None:
    transaction = operation("a", sent("j", 1, 0), sent("k", 2, 0))

    assert not legal(
        transaction,
        snapshot("b", ("j", "k"), j=[], k=[]),
        snapshot("b", ("j", "k"), j=[(0, 1)], k=[(0, 2)]),
        all_was_polled=False,
    )


def test_a_snapshot_is_asked_only_for_the_partitions_that_it_read() -> None:
    transaction = operation("a", sent("j", 1, 0), sent("k", 2, 0))

    assert not legal(transaction, snapshot("b", ("j",), j=[(0, 1)]), all_was_polled=False)


def test_a_snapshot_may_show_a_part_of_what_was_sent_without_a_transaction() -> None:
    sends = operation("a", sent("k", 1, 0), sent("k", 2, 1), kind=Kind.SEND)

    assert not legal(sends, snapshot("b", ("k",), k=[(0, 1)]), all_was_polled=False)


def test_a_poll_may_end_within_a_transaction() -> None:
    transaction = operation("a", sent("k", 1, 0), sent("k", 2, 1))

    assert not legal(transaction, poll("b", k=[(0, 1)]), poll("b", k=[(1, 2)]))
