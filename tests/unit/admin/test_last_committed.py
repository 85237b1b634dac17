"""An application's own versions, committed with its rows and read back after a restart."""

from __future__ import annotations

from typing import Any

import pytest

from eoslog import IllegalState, InvalidRequest, Producer, RetriableError, Store, TransactionalIdNotFound
from eoslog.maintenance.coordinator import Coordinator
from eoslog.session.positions import OffsetAndMetadata
from eoslog.state.names import TopicPartition
from tests.unit.support.world import SLOTS, FaultyStore, World


@pytest.fixture
def store(world: World) -> Store:
    store = world.process()
    store.admin.create_topic("t")
    return store


def opened(store: Store, transactional_id: str = "etl", **options: Any) -> Producer:
    producer = store.producer(transactional_id, **options)
    producer.init_transactions()
    return producer


def run(producer: Producer, value: bytes, **work: Any) -> bool:
    producer.begin_transaction()
    producer.send("t", value)
    return producer.commit_transaction(**work)


def values(store: Store, **options: Any) -> list[bytes]:
    found: list[bytes] = store.scan("t", columns=["value"], **options).to_table()["value"].to_pylist()
    return found


def test_the_last_commit_tells_where_to_go_on(store: Store, world: World) -> None:
    producer = opened(store)
    identity = (producer.producer_id, producer.producer_epoch)
    producer.begin_transaction()
    producer.send("t", b"1")
    producer.send("t", b"2")
    producer.send_offsets_to_transaction({TopicPartition("t", 0): OffsetAndMetadata(7, "note")}, "g")
    producer.commit_transaction(application_id="loader", version=3)

    found = world.process().admin.last_committed("etl")

    assert found.slot == store.read(lambda state, slot: slot)
    assert found.timestamp == world.time_ms
    assert (found.producer_id, found.producer_epoch) == identity
    assert (found.application_id, found.version) == ("loader", 3)
    assert found.offsets == {"g": {TopicPartition("t", 0): OffsetAndMetadata(7, "note")}}
    assert found.rows == {"t": 2}
    assert [tuple(each) for each in found.versions] == [("loader", "*", 3, None)]


def test_it_tells_all_offsets_of_a_group_whoever_gave_them(store: Store) -> None:
    store.admin.create_topic("u")
    first, second = TopicPartition("t", 0), TopicPartition("u", 0)
    consumer = store.consumer("g")
    consumer.subscribe(["t", "u"])
    consumer.poll(0)
    producer = opened(store)
    producer.begin_transaction()
    producer.send_offsets_to_transaction({first: 1, second: 2}, "g")
    producer.send_offsets_to_transaction({second: 3}, consumer.group_metadata())
    producer.send_offsets_to_transaction({first: 4}, "g")

    producer.commit_transaction()

    offsets = store.admin.last_committed("etl").offsets["g"]
    assert {place: offset.offset for place, offset in offsets.items()} == {first: 4, second: 3}
    assert consumer.committed([first, second]) == offsets


def test_before_the_first_commit_it_is_empty_and_unknown_ids_fail(store: Store) -> None:
    opened(store)

    found = store.admin.last_committed("etl")

    assert (found.slot, found.version, found.rows, found.versions) == (None, None, {}, ())
    with pytest.raises(TransactionalIdNotFound):
        store.admin.last_committed("other")


def test_the_versions_outlive_the_transactional_id(store: Store, world: World) -> None:
    run(opened(store), b"1", version=3)
    world.pass_time(8 * 24 * 3600 * 1000)
    assert Coordinator(store).expire() is not None

    found = store.admin.last_committed("etl")

    assert (found.slot, [each.version for each in found.versions]) == (None, [3])
    assert not run(opened(store), b"again", version=3)


@pytest.mark.parametrize("staged", [False, True])
def test_a_version_that_was_committed_before_is_not_committed_again(store: Store, world: World, staged: bool) -> None:
    assert run(opened(store, staged=staged), b"1", version=1)
    restarted = opened(world.process(), staged=staged)

    assert not run(restarted, b"replay", version=1)
    assert run(restarted, b"2", version=2)
    assert run(restarted, b"other", application_id="other", version=1)
    assert run(restarted, b"plain")

    assert values(store) == [b"1", b"2", b"other", b"plain"]
    assert (b"replay" in values(store, isolation_level="read_uncommitted")) is not staged
    assert store.admin.describe_transaction("etl").transaction_state == "COMPLETE_COMMIT"


def test_a_replay_commits_no_group_offsets(store: Store) -> None:
    producer = opened(store)
    run(producer, b"1", version=1)
    producer.begin_transaction()
    producer.send_offsets_to_transaction({TopicPartition("t", 0): 1}, "g")

    assert not producer.commit_transaction(version=1)

    with store.consumer("g") as consumer:
        assert consumer.committed([TopicPartition("t", 0)]) == {TopicPartition("t", 0): None}


def test_a_version_without_rows_is_committed_too(store: Store) -> None:
    producer = opened(store)
    producer.begin_transaction()

    assert producer.commit_transaction(version=9)
    assert store.admin.last_committed("etl").version == 9


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("is_replay", [True, False])
def test_a_commit_without_an_answer_is_repeated_and_answered_as_it_was(
    store: Store, lands: bool, is_replay: bool
) -> None:
    producer = store.producer("etl", max_block_ms=1000)
    producer.init_transactions()
    if is_replay:
        run(producer, b"1", version=1)
    producer.begin_transaction()
    producer.send("t", b"again")
    producer.flush()
    assert isinstance(store.object_store, FaultyStore)
    store.object_store.lose_answers(SLOTS, lands=lands)
    with pytest.raises(RetriableError):
        producer.commit_transaction(version=1)
    store.object_store.heal()

    with pytest.raises(IllegalState, match="Repeat it with the same"):
        producer.commit_transaction(version=2)
    assert producer.commit_transaction(version=1) is not is_replay

    assert values(store) == ([b"1"] if is_replay else [b"again"])
    assert run(producer, b"2", version=2)


@pytest.mark.parametrize(
    "work", [{"application_id": "a"}, {"version": -1}, {"version": "1"}, {"version": True}, {"version": 2**63}]
)
def test_a_wrong_version_is_refused_and_the_transaction_goes_on(store: Store, work: dict[str, Any]) -> None:
    producer = opened(store)
    producer.begin_transaction()
    producer.send("t", b"1")

    with pytest.raises(InvalidRequest):
        producer.commit_transaction(**work)

    assert producer.commit_transaction()
    assert values(store) == [b"1"]


def test_a_prepared_transaction_takes_no_version(store: Store) -> None:
    producer = opened(store)
    producer.begin_transaction()
    producer.send("t", b"1")
    producer.prepare_transaction()

    with pytest.raises(IllegalState, match=r"takes no version\. Commit it without one"):
        producer.commit_transaction(version=1)

    assert producer.commit_transaction()
    assert store.admin.last_committed("etl").rows == {"t": 1}
