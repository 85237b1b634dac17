"""Sequences and epochs of one producer in one partition: which batch follows, which is a repeat, which is neither."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.errors import InvalidProducerEpoch, OutOfOrderSequence
from eoslog.state.partition_state import NO_OFFSET, Batch, Outcome, ProducerState, SequenceRange
from eoslog.state.sequences import (
    BATCHES_TO_RETAIN,
    DuplicateBatch,
    check_sequence,
    last_sequence_of,
    sequence_after,
    with_batch,
    with_marker,
)

LARGEST = 2**31 - 1


def batch_of(base_sequence: int, count: int, base_offset: int, *, epoch: int = 0) -> Batch:
    """A batch of the producer without a transaction."""
    return Batch(
        base_offset=base_offset,
        record_count=count,
        last_offset_delta=count - 1,
        file=None,
        first_row=0,
        control=None,
        slot=0,
        end_slot=0,
        end_time_ms=0,
        outcome=Outcome.COMMITTED,
        transactional_id=None,
        producer_id=1,
        producer_epoch=epoch,
        base_sequence=base_sequence,
        min_timestamp=0,
        max_timestamp=0,
        transactional=False,
    )


def after(*batches: tuple[int, int], epoch: int = 0, base_offset: int = 0) -> ProducerState:
    """The state after batches of (base sequence, count), whose rows begin at ``base_offset``."""
    known: ProducerState | None = None
    for base_sequence, count in batches:
        known = with_batch(known, batch_of(base_sequence, count, base_offset, epoch=epoch))
        base_offset += count
    assert known is not None
    return known


def check(known: ProducerState | None, base_sequence: int, count: int = 1, epoch: int = 0) -> None:
    check_sequence(known, epoch, base_sequence, count, "t-0")


def duplicate(known: ProducerState, base_sequence: int, count: int = 1) -> int:
    with pytest.raises(DuplicateBatch) as caught:
        check(known, base_sequence, count)
    return caught.value.base_offset


@pytest.mark.scenario(14)
def test_after_a_marker_a_batch_begins_at_sequence_zero() -> None:
    known = with_marker(after((0, 5), epoch=0), 1, 1, 0, keeps_epoch=False)

    check(known, 0, epoch=1)
    check(known, 0, epoch=2)
    for base_sequence, epoch in ((2, 1), (2, 2), (5, 1)):
        with pytest.raises(OutOfOrderSequence):
            check(known, base_sequence, epoch=epoch)
    with pytest.raises(InvalidProducerEpoch):
        check(known, 5, epoch=0)


@pytest.mark.scenario(50)
def test_a_marker_must_be_strictly_newer_than_the_data() -> None:
    for marker_epoch in (4, 5):
        with pytest.raises(InvalidProducerEpoch):
            with_marker(after((0, 1), epoch=5), 1, marker_epoch, 0, keeps_epoch=False)
    assert with_marker(after((0, 1), epoch=5), 1, 6, 0, keeps_epoch=False).producer_epoch == 6
    assert with_marker(None, 1, 2, 0, keeps_epoch=False) == ProducerState(1, 2, (), 0, NO_OFFSET)


@pytest.mark.scenario(50)
def test_a_marker_of_transaction_version_1_may_have_the_epoch_of_the_data() -> None:
    known = after((0, 1), (1, 2), epoch=5)

    with pytest.raises(InvalidProducerEpoch):
        with_marker(known, 1, 4, 0, keeps_epoch=True)
    assert with_marker(known, 1, 5, 7, keeps_epoch=True) == known._replace(last_timestamp=7)
    assert with_marker(known, 1, 6, 0, keeps_epoch=True) == ProducerState(1, 6, (), 0, NO_OFFSET)
    assert with_marker(None, 1, 0, 0, keeps_epoch=True) == ProducerState(1, 0, (), 0, NO_OFFSET)


@pytest.mark.further("Producer state")
@pytest.mark.parametrize("back", range(5))
def test_each_of_the_last_five_batches_is_a_duplicate_with_its_offset(back: int) -> None:
    known = after(*((number * 3, 3) for number in range(9)))

    assert duplicate(known, (8 - back) * 3, 3) == (8 - back) * 3


@pytest.mark.further("Producer state")
def test_a_batch_older_than_the_last_five_is_a_duplicate_whose_offset_is_forgotten() -> None:
    known = after(*((number * 3, 3) for number in range(9)))

    for number in range(4):
        assert duplicate(known, number * 3, 3) == NO_OFFSET
    assert len(known.batches) == BATCHES_TO_RETAIN == 5


@pytest.mark.further("Producer state")
def test_a_partial_overlap_with_the_last_five_is_refused() -> None:
    known = after((0, 5), (5, 5))

    for base_sequence, count in ((0, 3), (3, 5), (5, 4), (6, 4), (0, 10), (8, 4), (9, 1)):
        with pytest.raises(OutOfOrderSequence):
            check(known, base_sequence, count)


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


@pytest.mark.parametrize("base_offset", [0, LARGEST, 2**40])
def test_sequences_that_the_epoch_never_wrote_are_out_of_order_wherever_its_rows_lie(base_offset: int) -> None:
    """The epoch wrote five records. The offsets before them belong to other producers or earlier epochs."""
    known = after((0, 5), base_offset=base_offset)

    for base_sequence, count in ((LARGEST - 10, 10), (LARGEST - 9, 3), (LARGEST - 1, 2), (LARGEST, 1), (LARGEST, 2)):
        with pytest.raises(OutOfOrderSequence):
            check(known, base_sequence, count)


def test_a_batch_that_skips_records_over_the_largest_sequence_is_out_of_order() -> None:
    """Sequence 0 comes again 10 records after the newest one: the batch is a new one, and 10 records are missing."""
    known = ProducerState(1, 0, (SequenceRange(LARGEST - 59, LARGEST - 10, 0, 49, 0),), 0, NO_OFFSET)

    for base_sequence, count in ((0, 10), (5, 1)):
        with pytest.raises(OutOfOrderSequence):
            check(known, base_sequence, count)


def test_a_batch_before_a_kept_wrap_is_recognized() -> None:
    known = after(*(((LARGEST - 52 + number * 10) % 2**31, 10) for number in range(10)))

    assert known.batches[0].base_sequence == LARGEST - 2
    assert duplicate(known, LARGEST - 52, 10) == NO_OFFSET

    known = with_batch(known, batch_of(47, 10, 100))
    with pytest.raises(OutOfOrderSequence):
        check(known, LARGEST - 52, 10)


def test_a_retained_state_over_a_gap_of_offsets_recognises_all_that_came_before() -> None:
    batch = SequenceRange(100, 109, 5_000, 5_009, 0)
    known = ProducerState(1, 0, (batch,), 0, NO_OFFSET)

    assert duplicate(known, 0, 100) == NO_OFFSET


def test_a_batch_that_overlaps_a_kept_one_after_the_wrap_is_out_of_order() -> None:
    known = after((LARGEST - 9, 10), (0, 1))

    for count in (2, 10, LARGEST - 20):
        with pytest.raises(OutOfOrderSequence):
            check(known, 0, count)


@dataclass
class RememberedEpoch:
    """A model that remembers every batch of one epoch as (number of its first record, count, offset).

    Records are numbered from 0 without a wrap. The record with number n has sequence n modulo 2^31.
    """

    sent: list[tuple[int, int, int]] = field(default_factory=list)
    written: int = 0

    def answer(self, base_sequence: int, count: int) -> int | type[OutOfOrderSequence] | None:
        """Return the offset of a duplicate, None for a batch that follows, or the error."""
        if base_sequence == self.written % 2**31:
            return None
        kept = self.sent[-5:]
        for first, kept_count, offset in kept:
            if (first % 2**31, kept_count) == (base_sequence, count):
                return offset
        back = (self.written - base_sequence) % 2**31
        first = self.written - back
        lies_below_the_kept = first + count <= kept[0][0]
        same_round = first // 2**31 == (first + count - 1) // 2**31 == kept[0][0] // 2**31
        if first >= 0 and back <= 2**30 and lies_below_the_kept and same_round:
            return NO_OFFSET
        return OutOfOrderSequence


def answer_of(known: ProducerState, base_sequence: int, count: int) -> int | type[OutOfOrderSequence] | None:
    try:
        check(known, base_sequence, count)
    except DuplicateBatch as caught:
        return caught.base_offset
    except OutOfOrderSequence:
        return OutOfOrderSequence
    return None


SMALL = st.integers(1, 4)
LARGE = st.integers(2**27, 2**27 + 2**26)


@given(st.integers(0, 40), st.lists(SMALL | LARGE, min_size=1, max_size=12), st.data())
def test_batches_are_answered_as_by_a_model_that_remembers_the_whole_epoch(
    large_ones_before: int, counts: list[int], data: st.DataObject
) -> None:
    """Sixteen of the large batches before bring the sequences to their wrap."""
    known: ProducerState | None = None
    model = RememberedEpoch()
    offset = data.draw(st.sampled_from([0, LARGEST, 2**40]))
    for count in [2**27] * large_ones_before + counts:
        base_sequence = model.written % 2**31
        check(known, base_sequence, count)
        known = with_batch(known, batch_of(base_sequence, count, offset))
        model.sent.append((model.written, count, offset))
        model.written += count
        offset += count + data.draw(st.integers(0, 2))
    assert known is not None

    repeats = [(first % 2**31, count) for first, count, _ in model.sent]
    near = st.sampled_from([0, model.written, model.written + 2**30, *(first for first, _, _ in model.sent[-6:])])
    placed = st.builds(lambda place, by: (place + by) % 2**31, near, st.integers(-12, 12))
    drawn = st.tuples(placed | st.integers(0, LARGEST), SMALL | LARGE)
    for base_sequence, count in [*repeats, *data.draw(st.lists(drawn, min_size=5, max_size=20))]:
        assert answer_of(known, base_sequence, count) == model.answer(base_sequence, count)


class KnownProducer:
    """One producer as one partition knows it: batches and markers, without transactional id or store around it."""

    def __init__(self) -> None:
        self.state: ProducerState | None = None
        self.next_offset = 0

    def batch(self, producer_epoch: int, base_sequence: int, count: int = 1) -> int:
        """Append a batch; the base offset of the first time if it is a repeat, -1 if that is no longer known."""
        try:
            check_sequence(self.state, producer_epoch, base_sequence, count, "t-0")
        except DuplicateBatch as duplicate:
            return duplicate.base_offset
        base_offset = self.next_offset
        self.state = with_batch(self.state, batch_of(base_sequence, count, base_offset, epoch=producer_epoch))
        self.next_offset += count
        return base_offset

    def marker(self, marker_epoch: int, *, keeps_epoch: bool = False) -> None:
        self.state = with_marker(self.state, 1, marker_epoch, 0, keeps_epoch=keeps_epoch)
        self.next_offset += 1

    @property
    def known(self) -> ProducerState:
        assert self.state is not None
        return self.state

    @property
    def last_sequence(self) -> int:
        return self.known.batches[-1].last_sequence if self.known.batches else NO_OFFSET


@pytest.fixture
def producer() -> KnownProducer:
    return KnownProducer()


@pytest.mark.scenario(10, 49)
def test_sequences_follow_each_other_and_a_new_epoch_begins_at_zero(producer: KnownProducer) -> None:
    producer.batch(0, 0)
    producer.batch(0, 1)

    assert producer.batch(0, 1) == 1
    with pytest.raises(OutOfOrderSequence):
        producer.batch(0, 5)
    producer.batch(1, 0)
    with pytest.raises(InvalidProducerEpoch):
        producer.batch(0, 0)
    assert producer.next_offset == 3


@pytest.mark.scenario(11)
def test_a_marker_alone_fences_older_epochs_and_asks_for_sequence_zero(producer: KnownProducer) -> None:
    producer.marker(2)
    assert (producer.known.producer_epoch, producer.last_sequence) == (2, -1)

    with pytest.raises(InvalidProducerEpoch):
        producer.batch(0, 0)
    with pytest.raises(OutOfOrderSequence):
        producer.batch(2, 17)
    producer.batch(2, 0)

    assert (producer.known.producer_epoch, producer.last_sequence) == (2, 0)


@pytest.mark.scenario(37)
def test_of_two_first_batches_that_arrive_in_the_wrong_order_the_later_waits(producer: KnownProducer) -> None:
    with pytest.raises(OutOfOrderSequence):
        producer.batch(0, 4)

    producer.batch(0, 0, 4)
    producer.batch(0, 4)

    assert producer.last_sequence == 4


@pytest.mark.scenario(39, 67)
@pytest.mark.parametrize("producer_epoch", [0, 1, 5])
def test_an_unknown_producer_begins_at_sequence_zero_whatever_its_epoch(
    producer: KnownProducer, producer_epoch: int
) -> None:
    with pytest.raises(OutOfOrderSequence):
        producer.batch(producer_epoch, 5)

    producer.batch(producer_epoch, 0)


@pytest.mark.further("Producer state")
def test_a_raised_epoch_forgets_the_batches_of_the_one_before(producer: KnownProducer) -> None:
    producer.batch(0, 0, 2)
    producer.batch(1, 0, 1)

    assert producer.batch(1, 0, 1) == 2
    with pytest.raises(OutOfOrderSequence):
        producer.batch(1, 0, 2)
