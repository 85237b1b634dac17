"""The checker compares the rows that readers were shown with their outcomes, also with those decided later."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.checker import Shown, check_shown
from tests.simulation.ledger import Ledger, Outcome, Work
from tests.simulation.service import IN, TABLE
from tests.simulation.world import Violation


def a_read_of_one_row(topic: str = IN, *, committed: bool = True) -> tuple[Ledger, Work]:
    """A row that a reader was shown while nobody knew what becomes of its transaction."""
    ledger = Ledger()
    work = ledger.begin("writer0")
    ledger.observe(topic, 0, iter([(0, work.row(topic, 0))]), committed=committed)
    return ledger, work


def all_of(work: Work) -> Shown:
    return {work.name: Counter(work.rows)}


def test_an_aborted_row_is_not_shown_as_committed() -> None:
    ledger = Ledger()
    work = ledger.begin("writer0")
    work.outcome = Outcome.ABORTED

    with pytest.raises(Violation, match="though its transaction was aborted"):
        ledger.observe(IN, 0, iter([(0, work.row(IN, 0))]), committed=True)


def test_a_row_that_was_shown_as_committed_is_not_aborted_later() -> None:
    ledger, work = a_read_of_one_row()
    work.outcome = Outcome.ABORTED

    with pytest.raises(Violation, match="was shown as committed, and was not"):
        check_shown(ledger, {})


def test_a_row_shown_as_committed_while_unknown_is_there_later() -> None:
    ledger, work = a_read_of_one_row()
    check_shown(ledger, all_of(work))

    with pytest.raises(Violation, match="was shown as committed, and was not"):
        check_shown(ledger, {})


def test_a_row_that_was_shown_may_be_compacted_away() -> None:
    ledger, work = a_read_of_one_row(TABLE)
    check_shown(ledger, {})
    work.outcome = Outcome.ABORTED

    with pytest.raises(Violation, match="was shown as committed, and was not"):
        check_shown(ledger, {})


def test_an_uncommitted_read_may_show_what_is_aborted_later() -> None:
    ledger, work = a_read_of_one_row(committed=False)
    work.outcome = Outcome.ABORTED

    check_shown(ledger, {})


def test_a_row_that_a_committed_read_passed_over_must_not_be_committed_later() -> None:
    ledger = Ledger()
    slow, fast = ledger.begin("writer0"), ledger.begin("writer1")
    undecided, committed = slow.row(IN, 0), fast.row(IN, 0)
    ledger.observe(IN, 0, iter([(1, committed)]), committed=True, all_decided=True)
    check_shown(ledger, all_of(fast))
    ledger.observe(IN, 0, iter([(0, undecided), (1, committed)]), committed=True)

    with pytest.raises(Violation, match="passed over"):
        check_shown(ledger, all_of(slow) | all_of(fast))


def test_a_snapshot_may_pass_over_what_is_committed_later() -> None:
    ledger = Ledger()
    slow, fast = ledger.begin("writer0"), ledger.begin("writer1")
    undecided, committed = slow.row(IN, 0), fast.row(IN, 0)
    ledger.observe(IN, 0, iter([(1, committed)]), committed=True)
    ledger.observe(IN, 0, iter([(0, undecided), (1, committed)]), committed=True, all_decided=True)

    check_shown(ledger, all_of(slow) | all_of(fast))


@pytest.mark.parametrize("value", [None, b"", b"noise", b"writer0:1#0", b"\xff#0"])
def test_a_row_that_nobody_wrote_does_not_show(value: bytes | None) -> None:
    ledger, _ = a_read_of_one_row()

    with pytest.raises(Violation, match="which nobody wrote"):
        ledger.observe(IN, 0, iter([(1, value)]), committed=True)
