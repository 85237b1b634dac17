"""What becomes of values."""

from __future__ import annotations

from tests.checker import Kind, Outcome, check
from tests.checker.values import unseen_over_time
from tests.checker.version_order import VersionOrder
from tests.unit.checker.histories import illegal, legal, operation, poll, polled, send, sent, snapshot


def test_a_committed_value_that_all_polls_pass_over_is_lost() -> None:
    assert "lost-write" in illegal(
        send("a", "k", 1, 0), send("a", "k", 2, 1), send("a", "k", 3, 2), poll("b", k=[(0, 1), (2, 3)])
    )


def test_a_committed_value_before_the_first_one_that_was_read_is_lost() -> None:
    history = [send("a", "k", 1, 0), send("a", "k", 2, 1), poll("b", k=[(1, 2)])]

    assert illegal(*history, all_was_polled=False) == {"lost-write"}


def test_a_value_behind_the_last_read_one_is_not_lost_yet() -> None:
    history = [send("a", "k", 1, 0), send("a", "k", 2, 1), poll("b", k=[(0, 1)])]

    assert not legal(*history, all_was_polled=False)


def test_a_value_of_unknown_outcome_may_be_passed_over() -> None:
    unknown = send("a", "k", 2, 1, Outcome.INFO)

    assert not legal(send("a", "k", 1, 0), unknown, send("b", "k", 3, 2), poll("c", k=[(0, 1), (2, 3)]))


def test_a_transaction_of_unknown_outcome_that_shows_in_one_partition_shows_in_the_other() -> None:
    unknown = operation("a", sent("j", 1, 0), sent("k", 2, 0), outcome=Outcome.INFO)

    assert "lost-write" in illegal(unknown, send("b", "k", 3, 2), poll("c", j=[(0, 1)], k=[(2, 3)]))


def test_a_transaction_that_was_told_no_offsets_does_not_show_in_part() -> None:
    unknown = operation("a", sent("k", 1), sent("k", 2), outcome=Outcome.INFO)

    assert illegal(unknown, poll("b", k=[(1, 2)]), all_was_polled=False) == {"lost-write"}


def test_the_first_rows_of_a_transaction_of_unknown_outcome_may_show_alone_for_a_while() -> None:
    unknown = operation("a", sent("k", 1), sent("k", 2), outcome=Outcome.INFO)

    assert not legal(unknown, poll("b", k=[(0, 1)]), all_was_polled=False)


def test_of_sends_without_a_transaction_some_may_fail() -> None:
    sends = operation("a", sent("k", 1, 0), sent("k", 2), kind=Kind.SEND, outcome=Outcome.INFO)

    assert not legal(sends, poll("b", k=[(0, 1)]))


def test_a_value_that_only_a_failed_transaction_and_a_snapshot_saw_is_lost() -> None:
    sends = [send("a", "k", 1, 0), send("a", "k", 2, 1), send("a", "k", 3, 2)]
    failed = operation("b", polled(k=[(0, 1), (1, 2)]), outcome=Outcome.FAIL)

    assert "lost-write" in illegal(*sends, failed, snapshot("d", ("k",), k=[(1, 2)]), poll("c", k=[(2, 3)]))


def test_a_snapshot_may_show_what_lies_behind_an_open_transaction() -> None:
    sends = [send("a", "k", 1, 0), send("a", "k", 2, 1)]

    assert not legal(*sends, snapshot("b", ("k",), k=[(1, 2)]), all_was_polled=False)


def test_a_value_at_two_offsets_is_a_duplicate() -> None:
    assert illegal(send("a", "k", 1, 0), poll("b", k=[(0, 1), (4, 1)])) >= {"duplicate"}


def test_a_value_that_was_acknowledged_at_another_offset_than_it_is_read_at_is_a_duplicate() -> None:
    assert illegal(send("a", "k", 1, 3), poll("b", k=[(0, 1)])) == {"duplicate"}


def test_the_same_value_may_lie_in_two_keys() -> None:
    assert not legal(send("a", "j", 1, 0), send("a", "k", 1, 0), poll("b", j=[(0, 1)], k=[(0, 1)]))


def test_an_acknowledged_value_that_nobody_polls_to_the_end_is_unseen() -> None:
    assert illegal(send("a", "k", 1, 0), send("a", "k", 2, 1), poll("b", k=[(0, 1)])) == {"unseen"}


def test_a_transaction_of_unknown_outcome_that_shows_in_part_to_the_end_is_unseen_in_part() -> None:
    unknown = operation("a", sent("k", 1), sent("k", 2), outcome=Outcome.INFO)

    assert illegal(unknown, poll("b", k=[(0, 1)])) == {"unseen"}


def test_a_value_whose_send_failed_or_may_have_failed_need_not_be_seen() -> None:
    assert not legal(send("a", "k", 1, None, Outcome.FAIL), send("b", "k", 2, None, Outcome.INFO))


def test_how_many_values_wait_to_be_seen_is_told_over_time() -> None:
    history = [
        operation("a", sent("k", 1, 0), lasted=(0, 10)),
        operation("a", sent("k", 2, 1), lasted=(11, 20)),
        operation("b", polled(k=[(0, 1)]), lasted=(15, 30)),
        operation("b", polled(k=[(1, 2)]), lasted=(31, 60)),
    ]

    assert unseen_over_time(VersionOrder(history)) == [(10, 1), (20, 2), (30, 1), (60, 0)]
    assert check(history).worst_lag == {"k": 40}
