"""Which aborted transactions a read of a range of offsets must know."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eoslog.state.partition_state import AbortedTransaction, collect_aborted

FIRST = AbortedTransaction(producer_id=1, first_offset=10, last_offset=19, last_stable_offset=12)
SECOND = AbortedTransaction(producer_id=2, first_offset=12, last_offset=30, last_stable_offset=31)


def test_a_transaction_that_ended_before_the_first_offset_is_left_out() -> None:
    assert collect_aborted([FIRST, SECOND], 20, 25)[0] == [SECOND]


def test_the_marker_itself_belongs_to_its_transaction() -> None:
    assert collect_aborted([FIRST], 19, 20)[0] == [FIRST]


def test_a_transaction_that_begins_at_the_upper_bound_is_left_out() -> None:
    assert collect_aborted([FIRST, SECOND], 0, 12)[0] == [FIRST]


def test_the_answer_is_complete_once_the_last_stable_offset_reached_the_upper_bound() -> None:
    assert collect_aborted([FIRST, SECOND], 0, 12) == ([FIRST], True)
    assert collect_aborted([FIRST, SECOND], 0, 31) == ([FIRST, SECOND], True)


def test_the_answer_is_not_complete_while_a_later_segment_may_hold_the_marker() -> None:
    assert collect_aborted([FIRST], 0, 13) == ([FIRST], False)
    assert collect_aborted([], 0, 1) == ([], False)


@given(st.data())
def test_a_complete_answer_holds_every_aborted_transaction_of_the_range(data: st.DataObject) -> None:
    """Transactions begin and end in any order; the index is cut into segments; the lookup stops when complete."""
    size = data.draw(st.integers(1, 12))
    steps = data.draw(st.permutations([*range(size), *range(size)]))
    begun: dict[int, int] = {}
    index: list[AbortedTransaction] = []
    offset = 0
    for producer in steps:
        if producer not in begun:
            begun[producer] = offset
        else:
            first = begun.pop(producer)
            index.append(AbortedTransaction(producer, first, offset, min(begun.values(), default=offset + 1)))
        offset += 1
    fetch = data.draw(st.integers(0, offset))
    upper = data.draw(st.integers(fetch, offset))
    cut = data.draw(st.integers(0, len(index)))

    found: list[AbortedTransaction] = []
    for segment in (index[:cut], index[cut:]):
        part, complete = collect_aborted(segment, fetch, upper)
        found += part
        if complete:
            break

    assert found == [entry for entry in index if entry.last_offset >= fetch and entry.first_offset < upper]
