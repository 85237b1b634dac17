"""What a reader is shown of transactions, and where its position is then, however the log keeps them."""

from __future__ import annotations

import pytest

from eoslog.state.entries import TopicConfig
from eoslog.store import Store
from tests.unit.support.partitions import partition_of
from tests.unit.support.readers import PLACE, Keep, any_keep, assigned, consumed, producer_of, send
from tests.unit.support.world import SLOTS, World, faulty

pytestmark = any_keep


@pytest.fixture
def store(world: World) -> Store:
    """A store whose topic ``t`` has one partition, and a segment for each batch as soon as they are sealed."""
    store = world.process()
    store.admin.create_topic("t", config=TopicConfig(segment_batches=1))
    return store


@pytest.mark.scenario(140, 148)
def test_aborted_rows_are_left_out_and_shown_to_who_reads_uncommitted(store: Store, keep: Keep) -> None:
    values = [b"%d" % number for number in range(10)]
    producer = producer_of(store)
    send(producer, *values, begin=True)
    producer.abort_transaction()
    keep(store)

    assert consumed(store) == []
    assert consumed(store, "read_uncommitted") == values


@pytest.mark.scenario(140)
def test_transactions_that_lie_between_each_other_are_told_apart(store: Store, keep: Keep) -> None:
    first, second = producer_of(store, "1"), producer_of(store, "2")
    send(first, b"commit1-1", begin=True)
    send(second, b"abort2-1", begin=True)
    send(first, b"commit1-2")
    send(second, b"abort2-2")
    second.abort_transaction()
    send(second, b"commit2-1", begin=True)
    first.commit_transaction()
    send(first, b"abort1-1", begin=True)
    second.commit_transaction()
    first.abort_transaction()
    keep(store)

    assert consumed(store) == [b"commit1-1", b"commit1-2", b"commit2-1"]
    assert len(consumed(store, "read_uncommitted")) == 6


@pytest.mark.scenario(142)
def test_a_second_abort_of_a_producer_does_not_hide_what_it_commits_next(store: Store, keep: Keep) -> None:
    producer = producer_of(store)
    send(producer, b"abort1-1", b"abort1-2", begin=True)
    producer.abort_transaction()
    producer.begin_transaction()
    producer.abort_transaction()
    send(producer, b"abort1-3", begin=True)
    producer.abort_transaction()
    send(producer, b"commit1-1", b"commit1-2", begin=True)
    producer.commit_transaction()
    keep(store)

    assert consumed(store) == [b"commit1-1", b"commit1-2"]


@pytest.mark.scenario(142)
def test_an_abort_that_is_repeated_since_its_answer_was_lost_hides_nothing_more(store: Store, keep: Keep) -> None:
    producer = producer_of(store)
    send(producer, b"abort1-1", begin=True)
    faulty(store).lose_one_answer(SLOTS, lands=True)
    producer.abort_transaction()
    send(producer, b"commit1-1", b"commit1-2", begin=True)
    producer.commit_transaction()
    keep(store)

    assert partition_of(store, "t").high_watermark == 5
    assert consumed(store) == [b"commit1-1", b"commit1-2"]


@pytest.mark.scenario(145)
def test_the_position_goes_to_the_end_of_aborted_rows_though_none_is_shown(store: Store, keep: Keep) -> None:
    producer = producer_of(store)
    send(producer, b"abort1-1", b"abort1-2", begin=True)
    producer.abort_transaction()
    keep(store)
    consumer = assigned(store, "read_committed")

    assert consumer.poll(0) == []

    assert consumer.position(PLACE) == 3
    assert consumer.lag() == {PLACE: 0}


@pytest.mark.scenario(146)
def test_the_position_goes_over_control_rows_alone(store: Store, keep: Keep) -> None:
    producer = producer_of(store)
    for end in (producer.commit_transaction, producer.abort_transaction):
        send(producer, b"value", begin=True)
        end()
    keep(store)

    for isolation_level, values in (("read_committed", [b"value"]), ("read_uncommitted", [b"value"] * 2)):
        consumer = assigned(store, isolation_level)
        assert [record.value for record in consumer.poll(0)] == values
        consumer.poll(0)
        assert consumer.position(PLACE) == 4
        consumer.seek(PLACE, 3)
        assert consumer.poll(0) == []
        assert consumer.position(PLACE) == 4


@pytest.mark.further("Reader")
@pytest.mark.parametrize("start", [1, 4])
def test_a_reader_that_starts_inside_an_aborted_transaction_sees_nothing(store: Store, keep: Keep, start: int) -> None:
    first, second = producer_of(store, "1"), producer_of(store, "2")
    send(first, b"abort-0", b"abort-1", begin=True)
    send(second, b"commit-2", begin=True)
    send(first, b"abort-3", b"abort-4")
    send(second, b"commit-5")
    first.abort_transaction()
    second.commit_transaction()
    keep(store)

    assert consumed(store, start=start) == [b"commit-%d" % offset for offset in (2, 5) if offset >= start]


@pytest.mark.further("Reader")
def test_the_lag_ends_at_what_a_reader_may_be_shown(store: Store, keep: Keep) -> None:
    done, undecided = producer_of(store, "done"), producer_of(store, "undecided")
    send(done, b"1", b"2", begin=True)
    done.commit_transaction()
    send(undecided, b"3", begin=True)
    send(done, b"4", begin=True)
    done.commit_transaction()
    keep(store)

    for isolation_level, end in (("read_committed", 3), ("read_uncommitted", 6)):
        consumer = assigned(store, isolation_level)
        assert consumer.end_offsets([PLACE]) == {PLACE: end}
        consumer.seek(PLACE, 1)
        assert consumer.lag() == {PLACE: end - 1}
        assert consumer.poll(0)
        consumer.poll(0)
        assert consumer.lag() == {PLACE: 0}


@pytest.mark.further("Reader")
def test_a_reader_waits_at_an_undecided_row_and_goes_on_with_its_outcome(store: Store, keep: Keep) -> None:
    waiting, undecided = producer_of(store, "waiting"), producer_of(store, "undecided")
    send(undecided, b"undecided", begin=True)
    send(waiting, b"decided", begin=True)
    waiting.commit_transaction()
    consumer = assigned(store, "read_committed")
    assert consumer.poll(0) == []
    assert consumer.position(PLACE) == 0

    undecided.abort_transaction()
    keep(store)

    assert [record.value for record in consumer.poll(0)] == [b"decided"]
