"""In which order a consumer is shown a key."""

from __future__ import annotations

from tests.checker import Kind, Outcome, check
from tests.checker.polls import consumed_again
from tests.checker.version_order import VersionOrder
from tests.unit.checker.histories import assign, illegal, legal, operation, poll, polled, send, subscribe

THREE = (send("writer", "k", 1, 0), send("writer", "k", 2, 1), send("writer", "k", 3, 5))
"""Between the second and the third lie offsets of markers."""
ALL = poll("other", k=[(0, 1), (1, 2), (5, 3)])


def test_a_poll_that_leaves_a_value_out_skips() -> None:
    assert illegal(*THREE, ALL, poll("a", k=[(0, 1), (5, 3)])) == {"int-poll-skip"}


def test_a_transaction_whose_second_poll_leaves_a_value_out_skips() -> None:
    assert illegal(*THREE, ALL, operation("a", polled(k=[(0, 1)]), polled(k=[(5, 3)]))) == {"int-poll-skip"}


def test_a_poll_that_goes_back_is_not_monotonic() -> None:
    assert illegal(*THREE, ALL, poll("a", k=[(1, 2), (0, 1)])) == {"int-nonmonotonic-poll"}


def test_a_transaction_that_is_shown_a_value_twice_is_not_monotonic() -> None:
    assert illegal(*THREE, ALL, operation("a", polled(k=[(0, 1)]), polled(k=[(0, 1)]))) == {"int-nonmonotonic-poll"}


def test_a_partition_that_a_rebalance_took_meanwhile_may_begin_elsewhere() -> None:
    moved = operation("a", polled(k=[(1, 2)]), polled(k=[(0, 1)]), keys=("k",))

    assert not legal(*THREE, ALL, moved)


def test_offsets_of_markers_are_no_gap() -> None:
    assert not legal(*THREE, ALL, assign("a", "k"), poll("a", k=[(1, 2), (5, 3)]))


def test_a_process_that_goes_on_behind_a_value_skips() -> None:
    assert illegal(*THREE, ALL, assign("a", "k"), poll("a", k=[(0, 1)]), poll("a", k=[(5, 3)])) == {"poll-skip"}


def test_a_process_that_is_shown_a_value_again_is_not_monotonic() -> None:
    assert illegal(*THREE, ALL, assign("a", "k"), poll("a", k=[(1, 2)]), poll("a", k=[(1, 2)])) == {"nonmonotonic-poll"}


def test_a_consumer_may_poll_the_records_of_a_failed_transaction_again() -> None:
    before = [assign("a", "k"), poll("a", k=[(0, 1)])]
    failed = operation("a", polled(k=[(1, 2), (5, 3)]), outcome=Outcome.FAIL)

    assert not legal(*THREE, ALL, *before, failed, poll("a", k=[(1, 2), (5, 3)]))


def test_a_consumer_may_not_pass_over_the_records_of_a_failed_transaction() -> None:
    before = [assign("a", "k"), poll("a", k=[(0, 1)])]
    failed = operation("a", polled(k=[(1, 2)]), outcome=Outcome.FAIL)

    assert illegal(*THREE, ALL, *before, failed, poll("a", k=[(5, 3)])) == {"poll-skip"}


def test_a_member_of_a_group_may_be_shown_gaps_and_old_values() -> None:
    polls = [subscribe("a"), poll("a", k=[(0, 1)]), poll("a", k=[(5, 3)]), poll("a", k=[(1, 2)])]

    assert legal(*THREE, ALL, *polls) == {"poll-skip", "nonmonotonic-poll"}


def test_a_partition_that_was_given_up_and_assigned_again_may_begin_anywhere() -> None:
    polls = [assign("a", "k"), poll("a", k=[(0, 1)]), assign("a"), assign("a", "k"), poll("a", k=[(5, 3)])]

    assert not legal(*THREE, ALL, *polls)


def test_a_partition_that_stays_assigned_goes_on() -> None:
    polls = [assign("a", "k"), poll("a", k=[(0, 1)]), assign("a", "j", "k"), poll("a", k=[(5, 3)])]

    assert illegal(*THREE, ALL, *polls) == {"poll-skip"}


def test_a_consumer_that_seeks_may_begin_anywhere() -> None:
    before = [assign("a", "k"), poll("a", k=[(5, 3)])]
    seek = operation("a", kind=Kind.SEEK, keys=("k",))

    assert not legal(*THREE, ALL, *before, seek, poll("a", k=[(0, 1)]))


def test_another_process_begins_anywhere() -> None:
    assert not legal(*THREE, ALL, assign("a", "k"), poll("a", k=[(5, 3)]), assign("b", "k"), poll("b", k=[(1, 2)]))


def test_how_often_a_process_was_shown_a_value_again_is_told() -> None:
    history = [*THREE, ALL, subscribe("a"), poll("a", k=[(0, 1), (1, 2)]), poll("a", k=[(1, 2)])]

    assert consumed_again(VersionOrder(history)) == 1
    assert check(history).is_valid
