"""What administration shows of transactions and their producers, and how it ends them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from eoslog import errors
from eoslog.admin.transaction_descriptions import (
    NO_TRANSACTIONAL_ID,
    NOT_ITS_PARTITION,
    PAST_TIMEOUT,
    PREPARED,
    WITHIN_TIMEOUT,
    hanging_transactions,
)
from eoslog.maintenance.coordinator import Coordinator
from eoslog.state.names import TopicPartition
from eoslog.state.store_state import StoreState
from eoslog.state.transaction_entries import TransactionPrepared
from eoslog.store import Store
from tests.unit.support.partitions import write
from tests.unit.support.transactions import begun, open_transaction
from tests.unit.support.world import World


@pytest.mark.scenario(93)
def test_transactions_are_listed_with_their_states(store: Store) -> None:
    begun(store, "committed", 0).commit_transaction()
    begun(store, "aborted", 0).abort_transaction()
    ongoing = begun(store, "ongoing", 0)
    store.producer("fresh").init_transactions()

    listed = {each.transactional_id: each.transaction_state for each in store.admin.list_transactions()}

    assert listed == {
        "committed": "COMPLETE_COMMIT",
        "aborted": "COMPLETE_ABORT",
        "ongoing": "ONGOING",
        "fresh": "EMPTY",
    }
    for name in ("Ongoing", "ONGOING"):
        assert store.admin.list_transactions(states=[name]) == [
            ("ongoing", ongoing.producer_id, "ONGOING", None, "producer")
        ]
    assert [each.transactional_id for each in store.admin.list_transactions(states=["CompleteAbort"])] == ["aborted"]
    assert store.admin.list_transactions(producer_ids=[ongoing.producer_id]) == [
        ("ongoing", ongoing.producer_id, "ONGOING", None, "producer")
    ]


def test_states_that_do_not_exist_are_told_and_are_no_error(store: Store) -> None:
    begun(store, "tx", 0)

    some = store.admin.list_transactions(states=["Hanging", "Ongoing", "Lost"])
    none = store.admin.list_transactions(states=["Hanging"])
    dead = store.admin.list_transactions(states=["Dead"])

    assert ([each.transactional_id for each in some], some.unknown_states) == (["tx"], ("Hanging", "Lost"))
    assert (none, none.unknown_states) == ([], ("Hanging",))
    assert (dead, dead.unknown_states) == ([], ())


@pytest.mark.scenario(93)
def test_transactions_are_listed_by_how_long_they_are_open(store: Store, world: World) -> None:
    begun(store, "done", 0).commit_transaction()
    store.producer("fresh").init_transactions()
    for name in ("oldest", "older", "young"):
        begun(store, name, 0, transaction_timeout_ms=900_000)
        world.pass_time(1_000)

    def open_longer_than(duration_ms: int) -> list[str]:
        return [each.transactional_id for each in store.admin.list_transactions(running_longer_than_ms=duration_ms)]

    assert open_longer_than(0) == ["oldest", "older", "young"]
    assert open_longer_than(999) == ["oldest", "older", "young"]
    assert open_longer_than(1_000) == ["oldest", "older"]
    assert open_longer_than(2_000) == ["oldest"]
    assert open_longer_than(3_000) == []


@pytest.mark.scenario(93)
def test_transactional_ids_are_listed_by_a_pattern_that_matches_them_whole(store: Store) -> None:
    for name in ("my-special-0", "your-special-1", "special", "plain"):
        store.producer(name).init_transactions()

    def matching(pattern: str) -> list[str]:
        found = store.admin.list_transactions(transactional_id_pattern=pattern)
        return [each.transactional_id for each in found]

    assert matching(".*special-.*") == ["my-special-0", "your-special-1"]
    assert matching("special") == ["special"]
    assert len(matching("")) == 4
    with pytest.raises(errors.InvalidRegularExpression, match=re.escape("(ab(cd")):
        matching("(ab(cd")


@pytest.mark.scenario(116)
def test_a_transaction_is_described_with_its_age_and_partitions(store: Store, world: World) -> None:
    producer = begun(store, "tx", 1, 0, transaction_timeout_ms=5_000)
    started_ms = world.time_ms
    world.pass_time(1_234)

    described = store.admin.describe_transaction("tx")

    assert described == (
        "tx",
        producer.producer_id,
        producer.producer_epoch,
        "ONGOING",
        5_000,
        started_ms,
        1_234,
        (TopicPartition("t", 0), TopicPartition("t", 1)),
        "producer",
        started_ms,
        None,
        -1,
        -1,
    )
    producer.commit_transaction()
    described = store.admin.describe_transaction("tx")
    assert (described.transaction_start_time_ms, described.transaction_duration_ms) == (started_ms, -1)
    assert described.topic_partitions == ()


@pytest.mark.scenario(116)
def test_an_unknown_transactional_id_is_named(store: Store) -> None:
    for call in (store.admin.describe_transaction, store.admin.abort_transaction, store.admin.fence_producer):
        with pytest.raises(errors.TransactionalIdNotFound, match="nobody"):
            call("nobody")
    with pytest.raises(errors.InvalidRequest, match="not empty"):
        store.admin.describe_transaction("")


def test_an_administrator_aborts_what_is_open_and_only_that(store: Store) -> None:
    producer = begun(store, "tx", 0)

    assert store.admin.abort_transaction("tx") is True
    assert store.admin.abort_transaction("tx") is False

    assert store.admin.offsets("t")[0].last_stable_offset == 2
    producer.send("t", b"zombie")
    with pytest.raises(errors.InvalidProducerEpoch, match="an administrator aborted it"):
        producer.flush()


def test_a_producer_whose_transaction_an_administrator_aborted_may_begin_its_next_one(store: Store) -> None:
    producer = begun(store, "tx", 0)
    store.admin.abort_transaction("tx")

    with pytest.raises(errors.TransactionAborted, match="an administrator aborted it"):
        producer.commit_transaction()
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send("t", b"next", partition=0)
    producer.commit_transaction()

    assert store.scan("t").to_table().column("value").to_pylist() == [b"next"]


@pytest.mark.parametrize("is_open", [True, False])
def test_an_administrator_fences_a_producer_until_its_id_is_taken_again(store: Store, is_open: bool) -> None:
    producer = begun(store, "tx", 0)
    if not is_open:
        producer.abort_transaction()

    assert store.admin.fence_producer("tx") is is_open

    if not is_open:
        producer.begin_transaction()
        producer.send("t", b"zombie")
    with pytest.raises(errors.ProducerFenced):
        producer.commit_transaction()
    begun(store, "tx", 0).commit_transaction()
    assert store.scan("t").to_table().num_rows == 1


@pytest.mark.further("Offsets and tools")
def test_an_administrator_aborts_what_begins_at_an_offset_of_a_partition(store: Store) -> None:
    begun(store, "first", 0)
    begun(store, "second", 0, 1)
    (_, second) = store.admin.describe_producers("t", 0)

    for offset in (second.current_transaction_start_offset + 1, -1):
        with pytest.raises(errors.InvalidRequest, match=f"offset {offset} of partition t-0"):
            store.admin.abort_transaction_at("t", 0, offset)
    aborted = store.admin.abort_transaction_at("t", 0, second.current_transaction_start_offset)

    assert aborted == "second"
    assert [each.transactional_id for each in store.admin.list_transactions(states=["Ongoing"])] == ["first"]
    assert store.admin.offsets("t")[1].last_stable_offset == 2
    with pytest.raises(errors.UnknownTopicOrPartition):
        store.admin.abort_transaction_at("t", 2, 0)


@pytest.mark.parametrize("timeout_ms", [5_000, None])
def test_a_prepared_transaction_is_listed_and_described_as_such(
    store: Store, world: World, timeout_ms: int | None
) -> None:
    producer = begun(store, "tx", 0, prepared_timeout_ms=timeout_ms)
    prepared = producer.prepare_transaction()
    prepared_ms = world.time_ms
    world.pass_time(10)
    holder = world.process().producer("tx")
    holder.init_transactions(keep_prepared=True)

    (listed,) = store.admin.list_transactions()
    described = store.admin.describe_transaction("tx")

    assert (listed.transaction_state, listed.prepared_transaction) == ("ONGOING", prepared)
    assert (described.transaction_state, described.prepared_transaction) == ("ONGOING", prepared)
    assert (described.prepared_time_ms, described.prepared_timeout_ms) == (prepared_ms, timeout_ms or -1)
    assert described.producer_epoch == holder.producer_epoch
    holder.complete_transaction(prepared)
    assert store.admin.describe_transaction("tx")[-3:] == (None, -1, -1)


def test_a_prepared_staged_transaction_is_described_with_its_files_partitions(store: Store) -> None:
    begun(store, "tx", 1, staged=True).prepare_transaction()

    assert store.admin.describe_transaction("tx").topic_partitions == (TopicPartition("t", 1),)


def test_a_prepared_transaction_is_ended_by_force_alone_and_its_producer_fenced(store: Store) -> None:
    producer = begun(store, "tx", 0)
    prepared = producer.prepare_transaction()
    with pytest.raises(errors.InvalidTxnState, match="force_terminate_transaction"):
        store.admin.abort_transaction("tx")
    with pytest.raises(errors.InvalidTxnState, match="force_terminate_transaction"):
        store.admin.abort_transaction_at("t", 0, 0)
    with pytest.raises(errors.InvalidTxnState, match="force_terminate_transaction"):
        store.admin.fence_producer("tx")

    assert store.admin.force_terminate_transaction("tx") is True
    assert store.admin.force_terminate_transaction("tx") is False

    assert store.admin.offsets("t")[0].last_stable_offset == 2
    with pytest.raises(errors.ProducerFenced):
        producer.complete_transaction(prepared)
    with pytest.raises(errors.TransactionalIdNotFound, match="nobody"):
        store.admin.force_terminate_transaction("nobody")


@pytest.mark.further("Offsets and tools")
def test_transactions_open_for_too_long_are_found(store: Store, world: World) -> None:
    old = begun(store, "old", 0, 1, transaction_timeout_ms=900_000)
    world.pass_time(60_000)
    begun(store, "young", 0)
    world.pass_time(1_000)

    assert store.admin.find_hanging_transactions() == []
    found = store.admin.find_hanging_transactions(max_transaction_timeout_ms=30_000)
    assert [each.topic_partition for each in found] == [TopicPartition("t", 0), TopicPartition("t", 1)]
    for each in found:
        assert (each.transactional_id, each.producer_id, each.producer_epoch) == (
            "old",
            old.producer_id,
            old.producer_epoch,
        )
        assert (each.start_offset, each.last_timestamp, each.duration_ms) == (0, world.time_ms - 61_000, 61_000)
        assert each.reason == WITHIN_TIMEOUT


def test_hanging_transactions_are_found_in_one_topic_or_partition(store: Store, world: World) -> None:
    store.admin.create_topic("other")
    begun(store, "old", 0, 1)
    world.pass_time(16 * 60_000)

    def places(**chosen: Any) -> list[TopicPartition]:
        return [each.topic_partition for each in store.admin.find_hanging_transactions(**chosen)]

    assert places() == places(topic="t") == [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert places(topic="t", partition=1) == [TopicPartition("t", 1)]
    assert places(topic="other") == []
    for chosen in ({"topic": "absent"}, {"topic": "t", "partition": 2}):
        with pytest.raises(errors.UnknownTopicOrPartition):
            places(**chosen)
    assert {each.reason for each in store.admin.find_hanging_transactions()} == {PAST_TIMEOUT}


def test_a_prepared_transaction_without_an_outcome_is_found_and_says_so(store: Store, world: World) -> None:
    producer = begun(store, "tx", 0, transaction_timeout_ms=900_000)
    world.pass_time(60_000)

    def prepared(state: StoreState, slot: int) -> list[tuple[str | None, int, str]]:
        entry = TransactionPrepared(
            transactional_id="tx", producer_id=producer.producer_id, producer_epoch=0, time_ms=world.time_ms
        )
        state = state.frozen_copy()
        # Another holder has taken the id over, with another producer id.
        state.transactions["tx"] = replace(state.transactions["tx"], prepared=entry, producer_id=77)
        found = hanging_transactions(state, world.time_ms, 30_000)
        return [(each.transactional_id, each.producer_id, each.reason) for each in found]

    assert store.read(prepared) == [("tx", producer.producer_id, PREPARED)]


def test_a_transaction_nobody_would_end_is_found_and_says_so(store: Store, world: World) -> None:
    """KIP-664's two cases. No entry leads there: they are states that only a fault could leave."""
    for name in ("lost", "elsewhere"):
        begun(store, name, 0, transaction_timeout_ms=900_000)
    world.pass_time(60_000)

    def damage(state: StoreState, slot: int) -> list[tuple[str | None, int, str]]:
        damaged = state.frozen_copy()
        del damaged.ongoing["lost"]
        damaged.transactions["elsewhere"] = replace(damaged.transactions["elsewhere"], partitions=frozenset())
        found = hanging_transactions(damaged, world.time_ms, 30_000)
        return [(each.transactional_id, each.duration_ms, each.reason) for each in found]

    assert store.read(damage) == [
        (None, 60_000, NO_TRANSACTIONAL_ID),
        ("elsewhere", 60_000, NOT_ITS_PARTITION),
    ]


def test_a_transaction_is_shown_and_ended_without_its_deleted_topic(store: Store) -> None:
    producer = begun(store, "tx", 0)
    store.admin.delete_topic("t")

    assert store.admin.describe_transaction("tx").topic_partitions == ()
    assert store.admin.find_hanging_transactions(max_transaction_timeout_ms=-1) == []
    producer.commit_transaction()
    assert store.admin.describe_transaction("tx").transaction_state == "COMPLETE_COMMIT"


@pytest.mark.scenario(116)
@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_an_ended_transaction_is_described_with_its_start_and_without_partitions(
    store: Store, world: World, outcome: str
) -> None:
    producer = write(store, "t", "open")
    began_ms = store.now_ms()
    world.pass_time(1_500)
    end = producer.commit_transaction if outcome == "commit" else producer.abort_transaction
    end()

    described = store.admin.describe_transaction("tx")

    assert described.transaction_state == f"COMPLETE_{outcome.upper()}"
    assert described.topic_partitions == ()
    assert (described.transaction_start_time_ms, described.transaction_duration_ms) == (began_ms, -1)

    store.producer("tx").init_transactions()
    assert store.admin.describe_transaction("tx").transaction_start_time_ms == -1


@pytest.mark.scenario(116)
def test_an_expired_id_is_not_found(store: Store, world: World) -> None:
    """Kafka's DEAD is never stored: the id is there, or it is not."""
    write(store, "t", "commit")
    world.pass_time(8 * 24 * 3600 * 1000)
    Coordinator(store).expire()

    with pytest.raises(errors.TransactionalIdNotFound, match=r"no transactional id is named .* An unused id expires"):
        store.admin.describe_transaction("tx")


@pytest.mark.scenario(116)
def test_where_there_is_no_log_nothing_is_described(world: World) -> None:
    with pytest.raises(errors.NotAStore):
        world.process().admin.describe_transaction("tx")


@pytest.mark.further("Offsets and tools")
def test_a_transaction_that_ended_or_wrote_to_no_partition_never_hangs(store: Store, world: World) -> None:
    write(store, "t", "commit", "abort", transactional_id="ended")
    idle = write(store, "t", transactional_id="idle")
    idle.begin_transaction()
    world.pass_time(60 * 60_000)

    assert store.admin.find_hanging_transactions() == []


def test_the_stores_longest_timeout_is_checked_when_a_producer_is_initialized(store: Store, world: World) -> None:
    an_hour_ms = 3_600_000
    with pytest.raises(errors.InvalidTransactionTimeout, match=r"at most 900000 .*transaction\.max\.timeout\.ms"):
        store.producer("long", transaction_timeout_ms=an_hour_ms).init_transactions()
    store.admin.alter_store(max_transaction_timeout_ms=an_hour_ms)

    other = world.process()
    producer = open_transaction(other, "long", transaction_timeout_ms=an_hour_ms)
    producer.send("t", b"v")
    producer.flush()
    world.pass_time(an_hour_ms - 1_000)

    assert other.admin.find_hanging_transactions() == []
    store.admin.alter_store(max_transaction_timeout_ms=1_000)
    assert len(other.admin.find_hanging_transactions()) == 1
    producer.commit_transaction()
    with pytest.raises(errors.InvalidTransactionTimeout, match="at most 1000 "):
        store.producer("long", transaction_timeout_ms=1_001).init_transactions()


def test_the_settings_of_a_store_outlive_its_slots_and_a_repetition_adds_none(store: Store, world: World) -> None:
    store.admin.alter_store(max_transaction_timeout_ms=5_000)
    newest = store.read(lambda state, slot: slot)
    store.admin.alter_store(max_transaction_timeout_ms=5_000)
    assert store.read(lambda state, slot: slot) == newest

    store.log.checkpoint()

    assert world.process().read(lambda state, slot: state.max_transaction_timeout_ms) == 5_000


@pytest.mark.parametrize("timeout_ms", [0, -1, 2**31, True, "60000"])
def test_the_stores_longest_timeout_is_a_number_of_ms(store: Store, timeout_ms: Any) -> None:
    with pytest.raises(errors.InvalidTransactionTimeout):
        store.admin.alter_store(max_transaction_timeout_ms=timeout_ms)


@pytest.mark.parametrize("how", ["fence_producer", "force_terminate_transaction"])
def test_a_producer_with_a_longer_timeout_than_the_store_now_allows_can_be_fenced(store: Store, how: str) -> None:
    producer = begun(store, "tx", 0)
    store.admin.alter_store(max_transaction_timeout_ms=1)

    assert getattr(store.admin, how)("tx") is True

    with pytest.raises(errors.ProducerFenced):
        producer.commit_transaction()
