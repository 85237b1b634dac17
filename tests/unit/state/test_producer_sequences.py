"""Sequences and epochs of one producer in one partition."""

from __future__ import annotations

import pytest

from eoslog.errors import InvalidProducerEpoch, OutOfOrderSequence
from eoslog.state.sequences import BATCHES_TO_RETAIN
from tests.unit.state.answers import KnownProducer

LARGEST_SEQUENCE = 2**31 - 1


@pytest.fixture
def producer() -> KnownProducer:
    return KnownProducer()


@pytest.mark.scenario(10)
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


@pytest.mark.scenario(14)
def test_a_marker_raises_the_epoch_and_empties_the_batches(producer: KnownProducer) -> None:
    producer.batch(0, 0)

    producer.marker(1)

    assert producer.known.producer_epoch == 1
    assert producer.known.batches == ()
    assert producer.known.current_txn_first_offset == -1
    producer.batch(1, 0)


@pytest.mark.scenario(14)
@pytest.mark.parametrize("producer_epoch", [1, 2])
def test_after_a_marker_any_other_sequence_than_zero_is_out_of_order(
    producer: KnownProducer, producer_epoch: int
) -> None:
    producer.batch(0, 0, 2)
    producer.marker(1)

    with pytest.raises(OutOfOrderSequence):
        producer.batch(producer_epoch, 2)


@pytest.mark.scenario(37)
def test_of_two_first_batches_that_arrive_in_the_wrong_order_the_later_waits(producer: KnownProducer) -> None:
    with pytest.raises(OutOfOrderSequence):
        producer.batch(0, 4)

    producer.batch(0, 0, 4)
    producer.batch(0, 4)

    assert producer.last_sequence == 4


@pytest.mark.scenario(37, 165)
def test_a_first_batch_of_a_higher_epoch_replaces_and_one_of_a_lower_is_refused(producer: KnownProducer) -> None:
    producer.batch(1, 0)
    producer.batch(2, 0)

    with pytest.raises(InvalidProducerEpoch):
        producer.batch(1, 1)

    assert producer.known.producer_epoch == 2


@pytest.mark.scenario(39, 67)
@pytest.mark.parametrize("producer_epoch", [0, 1, 5])
def test_an_unknown_producer_begins_at_sequence_zero_whatever_its_epoch(
    producer: KnownProducer, producer_epoch: int
) -> None:
    with pytest.raises(OutOfOrderSequence):
        producer.batch(producer_epoch, 5)

    producer.batch(producer_epoch, 0)


@pytest.mark.scenario(39)
def test_a_raised_epoch_begins_at_sequence_zero(producer: KnownProducer) -> None:
    producer.batch(0, 0, 3)

    with pytest.raises(OutOfOrderSequence):
        producer.batch(1, 3)

    producer.batch(1, 0)


@pytest.mark.scenario(49)
def test_a_batch_of_an_older_epoch_is_refused(producer: KnownProducer) -> None:
    producer.batch(1, 0)

    with pytest.raises(InvalidProducerEpoch):
        producer.batch(0, 0)


@pytest.mark.scenario(50)
@pytest.mark.parametrize("marker_epoch", [4, 5])
def test_a_marker_whose_epoch_is_not_above_the_partitions_is_refused(
    producer: KnownProducer, marker_epoch: int
) -> None:
    producer.batch(5, 0)

    with pytest.raises(InvalidProducerEpoch):
        producer.marker(marker_epoch)


@pytest.mark.scenario(50)
def test_a_marker_with_the_epoch_after_the_batch_is_taken_and_kept(producer: KnownProducer) -> None:
    producer.batch(5, 0)

    producer.marker(6)

    assert producer.known.producer_epoch == 6


def at_sequence(producer: KnownProducer, last_sequence: int) -> None:
    """The producer's last batch ends at this sequence."""
    producer.batch(0, 0, last_sequence)
    producer.batch(0, last_sequence)


@pytest.mark.further("Producer state")
def test_the_sequence_after_the_largest_is_zero(producer: KnownProducer) -> None:
    at_sequence(producer, LARGEST_SEQUENCE)

    with pytest.raises(OutOfOrderSequence):
        producer.batch(0, 1)
    producer.batch(0, 0)

    assert producer.last_sequence == 0


@pytest.mark.further("Producer state")
def test_a_batch_may_hold_the_wrap_of_its_sequences(producer: KnownProducer) -> None:
    at_sequence(producer, LARGEST_SEQUENCE - 11)
    base_offset = producer.next_offset

    producer.batch(0, LARGEST_SEQUENCE - 10, 21)

    assert producer.last_sequence == 9
    assert producer.batch(0, LARGEST_SEQUENCE - 10, 21) == base_offset
    assert producer.batch(0, 10) == base_offset + 21


@pytest.mark.further("Producer state")
def test_a_repeat_of_the_last_five_batches_has_its_first_offset_and_an_older_one_is_known_to_be_a_repeat(
    producer: KnownProducer,
) -> None:
    for number in range(7):
        producer.batch(0, 2 * number, 2)

    answers = [producer.batch(0, 2 * number, 2) for number in range(7)]

    assert answers == [-1, -1, 4, 6, 8, 10, 12]
    assert producer.next_offset == 14
    assert len(producer.known.batches) == BATCHES_TO_RETAIN == 5


@pytest.mark.further("Producer state")
@pytest.mark.parametrize(("base_sequence", "count"), [(8, 1), (9, 2), (8, 4), (7, 2), (11, 1)])
def test_a_batch_that_overlaps_an_earlier_one_in_part_is_out_of_order(
    producer: KnownProducer, base_sequence: int, count: int
) -> None:
    for number in range(5):
        producer.batch(0, 2 * number, 2)

    with pytest.raises(OutOfOrderSequence):
        producer.batch(0, base_sequence, count)


@pytest.mark.further("Producer state")
def test_a_raised_epoch_forgets_the_batches_of_the_one_before(producer: KnownProducer) -> None:
    producer.batch(0, 0, 2)
    producer.batch(1, 0, 1)

    assert producer.batch(1, 0, 1) == 2
    with pytest.raises(OutOfOrderSequence):
        producer.batch(1, 0, 2)
