"""What a producer's transactions promise, eager and staged."""

from __future__ import annotations

import pytest

from eoslog import errors
from eoslog.session.group_metadata import GroupMetadata
from eoslog.state.names import TopicPartition
from eoslog.state.store_state import StoreState
from eoslog.store import Store
from tests.unit.support.world import values


@pytest.mark.parametrize("staged", [True, False])
def test_a_commit_shows_everything_and_an_abort_nothing(store: Store, staged: bool) -> None:
    with store.producer("tx", staged=staged) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for number in range(4):
            producer.send("t", b"kept%d" % number, partition=number % 2)
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send("t", b"dropped")
        producer.flush()
        producer.abort_transaction()

    assert values(store) == [b"kept0", b"kept1", b"kept2", b"kept3"]


def test_uncommitted_rows_show_under_read_uncommitted_if_eager_and_hold_the_lso(store: Store) -> None:
    producer = store.producer("tx")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"open", partition=0)
    producer.flush()

    assert values(store) == []
    assert values(store, isolation_level="read_uncommitted") == [b"open"]
    assert store.admin.offsets("t")[0] == (0, 0, 0, 1)


def test_staged_rows_show_nowhere_before_the_commit_and_hold_nothing_back(store: Store) -> None:
    producer = store.producer("tx", staged=True)
    producer.init_transactions()
    producer.begin_transaction()
    future = producer.send("t", b"staged", partition=0)
    producer.flush()
    assert values(store, isolation_level="read_uncommitted") == []
    assert store.admin.offsets("t")[0] == (0, 0, 0, 0)

    producer.commit_transaction()

    assert values(store) == [b"staged"]
    assert future.result(0) == ("t", 0, -1)


def test_each_transaction_raises_the_epoch_and_an_empty_one_does_not_touch_the_log(store: Store) -> None:
    producer = store.producer("tx")
    producer.init_transactions()
    slot = store.read(lambda state, slot: slot)
    producer.begin_transaction()
    producer.commit_transaction()
    producer.begin_transaction()
    producer.abort_transaction()
    assert producer.producer_epoch == 0
    assert store.read(lambda state, slot: slot) == slot

    producer.begin_transaction()
    producer.send("t", b"v")
    producer.commit_transaction()

    assert producer.producer_epoch == 1


def test_offsets_of_a_group_are_committed_with_the_transaction_and_dropped_with_it(store: Store) -> None:
    place = TopicPartition("t", 0)
    producer = store.producer("tx")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({place: 7, TopicPartition("t", 1): 3}, "g")
    producer.send_offsets_to_transaction({place: 9}, "g")
    producer.send_offsets_to_transaction({}, "unheard of")
    producer.commit_transaction()
    producer.begin_transaction()
    producer.send("t", b"x")
    producer.send_offsets_to_transaction({place: 100}, "g")
    producer.abort_transaction()

    committed = store.consumer("g").committed([place, TopicPartition("t", 1)])

    assert [each.offset if each else None for each in committed.values()] == [9, 3]


def test_offsets_without_a_group_or_of_an_unknown_partition_are_refused(store: Store) -> None:
    producer = store.producer("tx")
    producer.init_transactions()
    producer.begin_transaction()

    for offsets in ({}, {TopicPartition("t", 0): 1}):
        for group in (None, "", GroupMetadata("g", generation=2)):
            with pytest.raises(errors.InvalidRequest):
                producer.send_offsets_to_transaction(offsets, group)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidRequest):
        producer.send_offsets_to_transaction({TopicPartition("t", 0): -1}, "g")
    with pytest.raises(errors.UnknownTopicOrPartition):
        producer.send_offsets_to_transaction({TopicPartition("t", 9): 1}, "g")
    producer.commit_transaction()


def test_a_warm_commit_of_staged_rows_costs_the_data_files_and_one_slot(store: Store) -> None:
    producer = store.producer("tx", staged=True)
    producer.init_transactions()
    for _ in range(2):
        before = store.requests.copy()
        producer.begin_transaction()
        producer.send("t", b"0", partition=0)
        producer.send("t", b"1", partition=1)
        producer.commit_transaction()

    assert store.requests - before == {"PUT": 3}


def test_the_last_identity_stands_in_the_state(store: Store) -> None:
    producer = store.producer("tx")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"v")
    producer.commit_transaction()

    def identity(state: StoreState, slot: int) -> tuple[int, int]:
        return state.transactions["tx"].producer_id, state.transactions["tx"].producer_epoch

    assert store.read(identity) == (producer.producer_id, producer.producer_epoch)
