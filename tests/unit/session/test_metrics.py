"""Numbers to watch: what they count, and what reading them costs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from eoslog import errors
from eoslog.session.metrics import CALL_TIMES, CallCounts, LogCounts, store_metrics
from eoslog.state.names import TopicPartition
from eoslog.state.store_state import StoreState
from eoslog.store import Store
from tests.unit.support.transactions import begun, open_transaction
from tests.unit.support.world import World

MINUTE_MS = 60_000


def test_a_partition_is_late_when_a_transaction_outlasts_the_largest_timeout(store: Store, world: World) -> None:
    begun(store, "first", 0, 1, transaction_timeout_ms=900_000)
    begun(store, "second", 0, transaction_timeout_ms=900_000)

    def late() -> int:
        return world.process().metrics().partitions_with_late_transactions_count

    world.pass_time(20 * MINUTE_MS)
    assert late() == 0
    world.pass_time(1)
    assert late() == 2
    store.admin.abort_transaction("first")
    assert late() == 0


def test_a_transaction_that_no_transactional_id_would_end_is_late_at_once(store: Store, world: World) -> None:
    begun(store, "tx", 0)

    def late(state: StoreState, slot: int) -> int:
        damaged = state.frozen_copy()
        del damaged.ongoing["tx"]
        found = store_metrics(
            damaged,
            slot,
            world.time_ms,
            slots_since_checkpoint=0,
            publications={},
            log_counts=LogCounts(),
            call_counts=CallCounts(),
            requests={},
            appends={},
            call_times_ns={},
        )
        return found.partitions_with_late_transactions_count

    assert store.read(late) == 1


def test_the_metrics_count_the_rows_behind_open_transactions_by_partition(store: Store) -> None:
    begun(store, "done", 0, 0).commit_transaction()
    begun(store, "open", 0)
    with store.producer() as producer:
        producer.send("t", b"1", partition=0)

    lag = store.metrics().last_stable_offset_lag

    assert lag == {TopicPartition("t", 0): 2, TopicPartition("t", 1): 0}


def test_producers_are_counted_in_each_partition_that_knows_them(store: Store) -> None:
    begun(store, "one", 0, 1)
    begun(store, "other", 1)

    assert store.metrics().producer_id_count == 3


def test_transactional_ids_are_counted_by_their_state(store: Store, world: World) -> None:
    store.producer("fresh").init_transactions()
    begun(store, "committed", 0).commit_transaction()
    begun(store, "aborted", 0).abort_transaction()
    begun(store, "first", 0)
    world.pass_time(1_000)
    producer = begun(store, "second", 0)
    world.pass_time(500)

    found = store.metrics()

    assert found.transactions_by_state == {"EMPTY": 1, "ONGOING": 2, "COMPLETE_COMMIT": 1, "COMPLETE_ABORT": 1}
    assert (found.prepared_transactions, found.longest_open_transaction_ms) == (0, 1_500)
    producer.prepare_transaction()
    assert store.metrics().prepared_transactions == 1
    producer.abort_transaction()
    store.admin.abort_transaction("first")
    assert store.metrics().longest_open_transaction_ms == 0


def test_the_length_of_the_log_since_its_checkpoint_is_told(store: Store) -> None:
    store.log.checkpoint()

    found = store.metrics()

    assert (found.slot, found.slots_since_checkpoint) == (2, 1)


def test_metrics_cost_one_small_read(store: Store) -> None:
    store.metrics()
    before = Counter(store.requests)

    found = store.metrics()

    assert Counter(store.requests) - before == {"GET": 1}
    assert found.requests == store.requests


# Times of calls


def slowly(world: World, store: Store, duration_ms: int) -> None:
    """From here on every append of the process takes so long."""
    append = store.log.append

    def take(request: Any, **options: Any) -> Any:
        world.pass_time(duration_ms)
        return append(request, **options)

    store.log.append = take  # type: ignore[method-assign]


def test_the_time_of_each_call_is_added_up(store: Store, world: World) -> None:
    slowly(world, store, 7)
    producer = store.producer("tx")
    producer.init_transactions()
    for end in (producer.commit_transaction, producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.send("t", b"v", partition=0)
        producer.flush()
        end()

    times = {name: value for name, value in producer.metrics().items() if name.endswith("time-ns-total")}
    assert times == {
        "txn-init-time-ns-total": 7_000_000,
        "txn-begin-time-ns-total": 0,
        "txn-send-offsets-time-ns-total": 0,
        "txn-commit-time-ns-total": 14_000_000,
        "txn-abort-time-ns-total": 7_000_000,
        "flush-time-ns-total": 21_000_000,
    }


def test_the_time_of_a_commit_includes_its_flush(store: Store, world: World) -> None:
    slowly(world, store, 7)
    producer = open_transaction(store, "tx")
    producer.send("t", b"v", partition=0)
    producer.commit_transaction()

    assert producer.metrics()["txn-commit-time-ns-total"] == 14_000_000
    assert producer.metrics()["flush-time-ns-total"] == 0


def test_a_call_that_fails_takes_its_time_too(store: Store, world: World) -> None:
    slowly(world, store, 7)
    zombie = begun(store, "tx", 0)
    before = zombie.metrics()["txn-commit-time-ns-total"]
    begun(store, "tx", 0)

    with pytest.raises(errors.ProducerFenced):
        zombie.commit_transaction()

    assert zombie.metrics()["txn-commit-time-ns-total"] > before


def test_a_store_adds_up_its_producers(store: Store, world: World) -> None:
    slowly(world, store, 7)
    producers = [begun(store, name, 0) for name in ("one", "other")]

    totals = store.metrics().call_times_ns

    assert totals["txn-init-time-ns-total"] == 14_000_000
    assert totals == {name: sum(producer.metrics()[name] for producer in producers) for name in CALL_TIMES.values()}


def test_the_appends_of_a_process_are_counted(store: Store) -> None:
    before = store.metrics().appends
    with store.producer() as producer:
        producer.send("t", b"1")
        producer.flush()
        producer.send("t", b"2")

    after = store.metrics().appends

    assert {name: after[name] - before[name] for name in after} == {
        "records": 3,
        "commits": 3,
        "conflicts": 0,
        "for_others": 0,
        "by_others": 0,
        "waited_ms": 0,
    }


def test_open_transactions_are_counted_by_the_ages_that_they_have_reached(store: Store, world: World) -> None:
    begun(store, "old", 0)
    world.pass_time(30_000)
    begun(store, "new", 0)

    counts = store.metrics().open_transactions_by_age_ms

    assert {age_ms: count for age_ms, count in counts.items() if count} == {0: 2, 10_000: 1}


def test_the_lag_of_a_group_counts_up_to_the_last_stable_offset(store: Store) -> None:
    with store.producer() as producer:
        for _ in range(3):
            producer.send("t", b"1", partition=1)
    begun(store, "open", 1)
    store.admin.alter_consumer_group_offsets("g", {TopicPartition("t", 1): 1})
    store.admin.alter_consumer_group_offsets("read all", {TopicPartition("t", 1): 3})
    store.admin.alter_consumer_group_offsets("read uncommitted", {TopicPartition("t", 1): 4})

    assert store.metrics().consumer_lag == {
        "g": {TopicPartition("t", 1): 2},
        "read all": {TopicPartition("t", 1): 0},
        "read uncommitted": {TopicPartition("t", 1): 0},
    }
