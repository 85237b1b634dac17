"""Which batch may follow, which is a repeat, and which is neither."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.errors import InvalidProducerEpoch, OutOfOrderSequence
from eoslog.rules.partition_state import NO_OFFSET, ProducerState, SequenceRange
from eoslog.rules.sequences import (
    DuplicateBatch,
    check_sequence,
    last_sequence_of,
    sequence_after,
    with_batch,
    with_marker,
)

LARGEST = 2**31 - 1


def after(*batches: tuple[int, int], epoch: int = 0, base_offset: int = 0) -> ProducerState:
    """The state after batches of (base sequence, count), whose rows begin at ``base_offset``."""
    known: ProducerState | None = None
    for base_sequence, count in batches:
        known = with_batch(known, 1, epoch, base_sequence, count, base_offset, 0, False)
        base_offset += count
    assert known is not None
    return known


def check(known: ProducerState | None, base_sequence: int, count: int = 1, epoch: int = 0) -> None:
    check_sequence(known, epoch, base_sequence, count, "t-0")


def duplicate(known: ProducerState, base_sequence: int, count: int = 1) -> int:
    with pytest.raises(DuplicateBatch) as caught:
        check(known, base_sequence, count)
    return caught.value.base_offset


def test_the_first_batch_of_a_producer_begins_at_zero() -> None:
    check(None, 0)
    with pytest.raises(OutOfOrderSequence):
        check(None, 1)


def test_the_next_batch_follows_without_a_gap() -> None:
    known = after((0, 5))

    check(known, 5)
    with pytest.raises(OutOfOrderSequence):
        check(known, 6)


def test_a_higher_epoch_begins_at_zero_again() -> None:
    check(after((0, 5)), 0, epoch=1)
    with pytest.raises(OutOfOrderSequence):
        check(after((0, 5)), 5, epoch=1)


def test_a_lower_epoch_is_refused() -> None:
    with pytest.raises(InvalidProducerEpoch):
        check(after((0, 5), epoch=2), 0, epoch=1)


def test_after_a_marker_only_sequence_zero_of_the_new_epoch_or_a_later_one_follows() -> None:
    known = with_marker(after((0, 5), epoch=0), 1, 1, 0)

    check(known, 0, epoch=1)
    check(known, 0, epoch=2)
    for base_sequence, epoch in ((2, 1), (2, 2), (5, 1)):
        with pytest.raises(OutOfOrderSequence):
            check(known, base_sequence, epoch=epoch)
    with pytest.raises(InvalidProducerEpoch):
        check(known, 5, epoch=0)


def test_a_marker_must_be_strictly_newer_than_the_data() -> None:
    for marker_epoch in (4, 5):
        with pytest.raises(InvalidProducerEpoch):
            with_marker(after((0, 1), epoch=5), 1, marker_epoch, 0)
    assert with_marker(after((0, 1), epoch=5), 1, 6, 0).producer_epoch == 6
    assert with_marker(None, 1, 2, 0) == ProducerState(1, 2, (), 0, NO_OFFSET)


@pytest.mark.parametrize("back", range(5))
def test_each_of_the_last_five_batches_is_a_duplicate_with_its_offset(back: int) -> None:
    known = after(*((number * 3, 3) for number in range(9)))

    assert duplicate(known, (8 - back) * 3, 3) == (8 - back) * 3


def test_a_batch_older_than_the_last_five_is_a_duplicate_whose_offset_is_forgotten() -> None:
    known = after(*((number * 3, 3) for number in range(9)))

    for number in range(4):
        assert duplicate(known, number * 3, 3) == NO_OFFSET
    assert len(known.batches) == 5


def test_a_batch_that_overlaps_one_of_the_last_five_in_part_is_out_of_order() -> None:
    known = after((0, 5), (5, 5))

    for base_sequence, count in ((0, 3), (3, 5), (5, 4), (6, 4), (0, 10), (8, 4), (9, 1)):
        with pytest.raises(OutOfOrderSequence):
            check(known, base_sequence, count)


def test_a_batch_that_reaches_from_before_the_last_five_into_them_is_out_of_order() -> None:
    known = after(*((number * 3, 3) for number in range(9)))

    with pytest.raises(OutOfOrderSequence):
        check(known, 9, 4)


def test_sequences_wrap_to_zero() -> None:
    assert sequence_after(LARGEST, 1) == 0
    assert sequence_after(LARGEST - 1, 5) == 3
    assert last_sequence_of(LARGEST - 1, 5) == 2


def wrapped() -> ProducerState:
    """Far along: the last of six batches goes over the largest sequence."""
    return after(*((LARGEST - 52 + number * 10, 10) for number in range(6)), base_offset=LARGEST + 1)


def test_a_batch_over_the_largest_sequence_is_followed_and_recognised() -> None:
    known = wrapped()

    check(known, 7)
    assert duplicate(known, LARGEST - 2, 10) == LARGEST + 51
    assert duplicate(known, LARGEST - 52, 10) == NO_OFFSET
    with pytest.raises(OutOfOrderSequence):
        check(known, 8)
    with pytest.raises(OutOfOrderSequence):
        check(known, LARGEST, 3)


def test_a_sequence_below_zero_is_not_taken_for_an_old_one_before_sequences_have_wrapped() -> None:
    """There are only five rows before: nothing can have had the largest sequence."""
    known = after((0, 5))

    with pytest.raises(OutOfOrderSequence):
        check(known, LARGEST - 9, 3)


def test_a_retained_state_over_a_gap_of_offsets_recognises_all_that_came_before() -> None:
    batch = SequenceRange(100, 109, 5_000, 5_009, 0)
    known = ProducerState(1, 0, (batch,), 0, NO_OFFSET)

    assert duplicate(known, 0, 100) == NO_OFFSET


@given(st.lists(st.integers(1, 4), min_size=1, max_size=12), st.data())
def test_every_repeat_is_recognised_and_everything_else_is_refused(counts: list[int], data: st.DataObject) -> None:
    known: ProducerState | None = None
    sent: list[tuple[int, int, int]] = []
    sequence = offset = 0
    for count in counts:
        check(known, sequence, count)
        known = with_batch(known, 1, 0, sequence, count, offset, 0, False)
        sent.append((sequence, count, offset))
        sequence, offset = sequence + count, offset + count + data.draw(st.integers(0, 2))
    assert known is not None

    for at, (base_sequence, count, base_offset) in enumerate(sent):
        expected = base_offset if at >= len(sent) - 5 else NO_OFFSET
        assert duplicate(known, base_sequence, count) == expected
    for ahead in (1, 7, 2**30, 2**31 - sequence - 1):
        with pytest.raises(OutOfOrderSequence):
            check(known, (sequence + ahead) % 2**31)
