"""What a producer's transactions promise, eager and staged, and the identity under which the producer goes on."""

from __future__ import annotations

import pytest

from eoslog import errors
from eoslog.errors import (
    CommitStateUnknown,
    IllegalState,
    StoreAccessDenied,
    TransactionAborted,
    UnknownTopicOrPartition,
)
from eoslog.producer.producer import Producer
from eoslog.state.names import TopicPartition
from eoslog.state.producer_ids import LAST_USABLE_EPOCH
from eoslog.store import Store
from tests.unit.support.partitions import partition_of, read
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import CALLS, SLOTS, World, at_last_epoch, faulty, values


def test_uncommitted_rows_show_under_read_uncommitted_if_eager_and_hold_the_lso(store: Store) -> None:
    producer = open_transaction(store, "tx")
    producer.send("t", b"open", partition=0)
    producer.flush()

    assert values(store) == []
    assert values(store, isolation_level="read_uncommitted") == [b"open"]
    assert store.admin.offsets("t")[0] == (0, 0, 0, 1)


def test_staged_rows_show_nowhere_before_the_commit_and_hold_nothing_back(store: Store) -> None:
    producer = open_transaction(store, "tx", staged=True)
    future = producer.send("t", b"staged", partition=0)
    producer.flush()
    assert values(store, isolation_level="read_uncommitted") == []
    assert store.admin.offsets("t")[0] == (0, 0, 0, 0)

    producer.commit_transaction()

    assert values(store) == [b"staged"]
    assert future.result(0) == ("t", 0, -1)


def test_offsets_below_zero_or_of_an_unknown_partition_are_refused(store: Store) -> None:
    producer = open_transaction(store, "tx")

    with pytest.raises(errors.InvalidRequest):
        producer.send_offsets_to_transaction({TopicPartition("t", 0): -1}, "g")
    with pytest.raises(errors.UnknownTopicOrPartition):
        producer.send_offsets_to_transaction({TopicPartition("t", 9): 1}, "g")
    producer.commit_transaction()


def test_a_warm_commit_of_small_staged_batches_costs_one_slot(store: Store) -> None:
    producer = store.producer("tx", staged=True)
    producer.init_transactions()
    for _ in range(2):
        before = store.requests.copy()
        producer.begin_transaction()
        producer.send("t", b"0", partition=0)
        producer.send("t", b"1", partition=1)
        producer.commit_transaction()

    assert store.requests - before == {"PUT": 1}


PLACES = [TopicPartition("t", 0), TopicPartition("t", 1)]


def initialised(store: Store, *, staged: bool = False) -> Producer:
    producer = store.producer("tx", staged=staged)
    producer.init_transactions()
    return producer


def transact(producer: Producer, *rows: bytes, end: str = "commit") -> None:
    producer.begin_transaction()
    for row in rows:
        producer.send("t", row, partition=0)
        producer.flush()
    CALLS[end](producer)


def committed(store: Store, group: str) -> dict[int, int | None]:
    found = store.consumer(group).committed(PLACES)
    return {place.partition: offset.offset if offset else None for place, offset in found.items()}


@pytest.mark.scenario(150)
@pytest.mark.parametrize("staged", [True, False])
@pytest.mark.parametrize("flushes", [True, False])
def test_rows_are_published_by_the_commit_and_not_before(store: Store, staged: bool, flushes: bool) -> None:
    producer = initialised(store, staged=staged)
    producer.begin_transaction()
    for value in (b"1", b"2"):
        producer.send("t", value)
        if flushes:
            producer.flush()
        assert values(store) == []

    producer.commit_transaction()

    assert values(store) == [b"1", b"2"]


@pytest.mark.scenario(150)
@pytest.mark.parametrize("staged", [True, False])
@pytest.mark.parametrize("flushes", [True, False])
def test_rows_are_dropped_by_the_abort_and_earlier_commits_stay(store: Store, staged: bool, flushes: bool) -> None:
    producer = initialised(store, staged=staged)
    transact(producer, b"1")
    producer.begin_transaction()
    future = producer.send("t", b"2")
    if flushes:
        producer.flush()

    producer.abort_transaction()

    assert values(store) == [b"1"]
    assert future.done()
    assert flushes or isinstance(future.exception(0), TransactionAborted)
    transact(producer, end="abort")
    assert values(store) == [b"1"]


@pytest.mark.scenario(151)
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_offsets_of_two_groups_are_published_by_the_commit_and_dropped_by_the_abort(store: Store, end: str) -> None:
    producer = initialised(store)
    producer.begin_transaction()
    producer.send_offsets_to_transaction({PLACES[0]: 42, PLACES[1]: 73}, "g1")
    producer.send_offsets_to_transaction({PLACES[0]: 101}, "g2")
    assert committed(store, "g1") == committed(store, "g2") == {0: None, 1: None}

    CALLS[end](producer)

    published = end == "commit"
    assert committed(store, "g1") == ({0: 42, 1: 73} if published else {0: None, 1: None})
    assert committed(store, "g2") == ({0: 101, 1: None} if published else {0: None, 1: None})


@pytest.mark.scenario(151)
def test_of_offsets_that_are_sent_again_the_latest_of_each_partition_is_published(store: Store) -> None:
    store.admin.create_partitions("t", 3)
    producer = initialised(store)
    producer.begin_transaction()
    producer.send_offsets_to_transaction({PLACES[0]: 42, PLACES[1]: 73}, "g")
    producer.send_offsets_to_transaction({PLACES[1]: 101, TopicPartition("t", 2): 21}, "g")
    producer.commit_transaction()

    assert committed(store, "g") == {0: 42, 1: 101}
    third = TopicPartition("t", 2)
    found = store.consumer("g").committed([third])[third]
    assert found is not None
    assert found.offset == 21


@pytest.mark.scenario(151)
def test_an_abort_takes_back_neither_offsets_nor_rows_of_an_earlier_commit(store: Store) -> None:
    producer = initialised(store)
    for offset, end in ((42, "commit"), (73, "abort")):
        producer.begin_transaction()
        producer.send("t", b"%d" % offset)
        producer.send_offsets_to_transaction({PLACES[0]: offset}, "g")
        CALLS[end](producer)

    assert committed(store, "g") == {0: 42, 1: None}
    assert values(store) == [b"42"]


@pytest.mark.scenario(154)
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_each_end_answers_the_next_epoch_and_sequences_begin_anew(store: Store, end: str) -> None:
    producer = initialised(store)
    producer_id = producer.producer_id
    for number in range(3):
        assert (producer.producer_id, producer.producer_epoch) == (producer_id, number)
        transact(producer, b"a", b"b", end=end)

    batches = [batch for batch in partition_of(store, "t").active if batch.control is None]
    assert [(batch.producer_epoch, batch.base_sequence) for batch in batches] == [
        (epoch, sequence) for epoch in range(3) for sequence in range(2)
    ]


@pytest.mark.scenario(154)
@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("end", ["commit", "abort"])
@pytest.mark.parametrize("epoch", ["an epoch", "the last epoch"])
def test_the_identity_of_an_end_that_is_repeated_is_adopted_all_the_same(
    store: Store, end: str, lands: bool, epoch: str
) -> None:
    producer = initialised(store)
    if epoch == "the last epoch":
        at_last_epoch(store, producer)
    before = (producer.producer_id, producer.producer_epoch)
    producer.begin_transaction()
    producer.send("t", b"1", partition=0)
    producer.flush()
    faulty(store).lose_answers(SLOTS, lands=lands)
    with pytest.raises(CommitStateUnknown):
        CALLS[end](producer)
    assert (producer.producer_id, producer.producer_epoch) == before
    faulty(store).heal()

    CALLS[end](producer)

    known = store.admin.describe_transaction("tx")
    assert (producer.producer_id, producer.producer_epoch) == (known.producer_id, known.producer_epoch)
    assert (known.producer_id == before[0]) == (epoch == "an epoch")
    transact(producer, b"2")
    assert values(store) == ([b"1", b"2"] if end == "commit" else [b"2"])


@pytest.mark.scenario(154)
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_after_the_last_epoch_a_new_producer_id_starts_at_zero(store: Store, world: World, end: str) -> None:
    producer = initialised(store)
    at_last_epoch(store, producer)
    exhausted = producer.producer_id
    transact(producer, b"1", end=end)
    assert producer.producer_id != exhausted
    assert producer.producer_epoch == 0

    transact(producer, b"2", b"3")

    batches = [batch for batch in partition_of(world.process(), "t").active if batch.control is None]
    assert [(batch.producer_id, batch.producer_epoch, batch.base_sequence) for batch in batches] == [
        (exhausted, LAST_USABLE_EPOCH, 0),
        (producer.producer_id, 0, 0),
        (producer.producer_id, 0, 1),
    ]
    assert values(world.process()) == ([b"1", b"2", b"3"] if end == "commit" else [b"2", b"3"])


@pytest.mark.scenario(159)
def test_a_transaction_that_was_never_written_is_aborted_without_a_request(store: Store) -> None:
    producer = initialised(store)
    producer.begin_transaction()
    future = producer.send("t", b"v")
    producer.send_offsets_to_transaction({PLACES[0]: 1}, "g")
    requests, epoch = store.requests.copy(), producer.producer_epoch

    producer.abort_transaction()

    assert store.requests == requests
    assert producer.producer_epoch == epoch
    assert isinstance(future.exception(0), TransactionAborted)
    transact(producer, b"next")
    assert read(store, "t") == [(0, b"next")]


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.scenario(159)
def test_a_transaction_whose_only_upload_was_refused_is_aborted_without_a_request(store: Store) -> None:
    producer = initialised(store)
    producer.begin_transaction()
    future = producer.send("t", b"v")
    faulty(store).deny("t/")
    with pytest.raises(StoreAccessDenied):
        producer.flush()
    requests, epoch = store.requests.copy(), producer.producer_epoch

    producer.abort_transaction()

    assert isinstance(future.exception(0), StoreAccessDenied)
    assert store.requests == requests
    assert producer.producer_epoch == epoch
    faulty(store).heal()
    transact(producer, b"next")
    assert read(store, "t") == [(0, b"next")]


@pytest.mark.scenario(159)
def test_a_transaction_whose_only_batch_the_log_refused_leaves_no_marker(store: Store, world: World) -> None:
    """The producer cannot tell whether an earlier attempt landed, so it asks; the log knows of nothing to end."""
    producer = initialised(store)
    producer.begin_transaction()
    future = producer.send("t", b"v")
    world.process().admin.delete_topic("t")
    world.process().admin.create_topic("t", partitions=2)
    with pytest.raises(UnknownTopicOrPartition):
        producer.flush()

    producer.abort_transaction()

    assert isinstance(future.exception(0), UnknownTopicOrPartition)
    assert [each.high_watermark for each in store.admin.offsets("t")] == [0, 0]
    transact(producer, b"next")
    assert read(store, "t") == [(0, b"next")]


@pytest.mark.usefixtures("files_are_objects")
@pytest.mark.scenario(159)
def test_a_transaction_of_which_one_write_came_through_is_aborted_in_the_log(store: Store) -> None:
    producer = initialised(store)
    producer.begin_transaction()
    producer.send("t", b"written", partition=0)
    producer.flush()
    producer.send("t", b"refused", partition=1)
    faulty(store).deny("t/")
    with pytest.raises(StoreAccessDenied):
        producer.flush()
    faulty(store).heal()

    producer.abort_transaction()

    assert store.admin.describe_transaction("tx").transaction_state == "COMPLETE_ABORT"
    assert [each.high_watermark for each in store.admin.offsets("t")] == [2, 0]
    assert [each.last_stable_offset for each in store.admin.offsets("t")] == [2, 0]


@pytest.mark.further("Producer client")
@pytest.mark.parametrize("call", ["init_transactions", "abort_transaction"])
def test_a_call_that_the_object_store_refused_may_be_repeated(store: Store, call: str) -> None:
    producer = store.producer("tx")
    if call == "abort_transaction":
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"dropped")
        producer.flush()
    faulty(store).deny(SLOTS)
    for _ in range(2):
        with pytest.raises(StoreAccessDenied):
            getattr(producer, call)()
    with pytest.raises(IllegalState, match=rf"[Rr]epeat {call}\(\)"):
        producer.begin_transaction()
    faulty(store).heal()

    getattr(producer, call)()

    transact(producer, b"next")
    assert [value for _, value in read(store, "t")] == [b"next"]


@pytest.mark.further("Producer client")
def test_a_close_says_that_the_object_store_refused_its_abort(store: Store) -> None:
    producer = initialised(store)
    producer.begin_transaction()
    producer.send("t", b"dropped")
    producer.flush()
    faulty(store).deny(SLOTS)
    with pytest.raises(StoreAccessDenied):
        producer.abort_transaction()

    with pytest.raises(StoreAccessDenied):
        producer.close()


@pytest.mark.further("Producer client")
def test_futures_are_done_in_the_order_of_the_sends_of_a_partition(store: Store) -> None:
    producer = initialised(store)
    producer.begin_transaction()
    done: list[int] = []
    for number in range(20):
        future = producer.send("t", b"%d" % number, partition=0)
        future.add_done_callback(lambda done_future: done.append(done_future.result(0).offset))
        if number % 3 == 0:
            producer.flush()

    producer.commit_transaction()

    assert done == list(range(20))


@pytest.mark.scenario(35, 134)
@pytest.mark.parametrize("before", ["", "commit", "abort"])
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_transaction_to_which_nothing_was_given_ends_without_a_request(store: Store, before: str, end: str) -> None:
    producer = initialised(store)
    if before:
        transact(producer, b"1", end=before)
    requests, epoch = store.requests.copy(), producer.producer_epoch

    transact(producer, end=end)

    assert store.requests == requests
    assert producer.producer_epoch == epoch
    transact(producer, b"2")
    assert values(store) == ([b"1", b"2"] if before == "commit" else [b"2"])
