"""What administration shows and changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from eoslog import errors
from eoslog.client.producer import Producer
from eoslog.client.store import Store
from eoslog.rules.names import TopicPartition
from tests.unit.client.world import World


def begun(store: Store, transactional_id: str, *partitions: int, **options: Any) -> Producer:
    """A producer with an open transaction that has a row in each of the partitions of ``t``."""
    producer = store.producer(transactional_id, **options)
    producer.init_transactions()
    producer.begin_transaction()
    for partition in partitions:
        producer.send("t", b"v", partition=partition)
    producer.flush()
    return producer


# Topics


def test_topics_are_created_listed_described_and_deleted(store: Store) -> None:
    store.admin.create_topic("a", partitions=3)
    described = store.admin.describe_topic("a")
    assert (described.topic, described.partitions, described.topic_schema.kind) == ("a", 3, "records")
    assert store.admin.list_topics() == ["a", "t"]

    store.admin.delete_topic("a")

    assert store.admin.list_topics() == ["t"]
    for call in (store.admin.delete_topic, store.admin.describe_topic, store.admin.offsets):
        with pytest.raises(errors.UnknownTopicOrPartition, match="t"):
            call("a")


def test_a_topic_created_again_is_another_and_empty(store: Store) -> None:
    with store.producer() as producer:
        producer.send("t", b"old")
    before = store.admin.describe_topic("t")
    store.admin.delete_topic("t")

    after = store.admin.create_topic("t", partitions=2)

    assert after.topic_id != before.topic_id
    assert store.scan("t").record_count == 0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"topic": "t"}, errors.TopicAlreadyExists),
        ({"topic": "T"}, errors.InvalidTopic),
        ({"topic": ""}, errors.InvalidTopic),
        ({"topic": ".."}, errors.InvalidTopic),
        ({"topic": "a/b"}, errors.InvalidTopic),
        ({"topic": "__own"}, errors.InvalidTopic),
        ({"topic": "x" * 250}, errors.InvalidTopic),
        ({"topic": "x", "partitions": 0}, errors.InvalidTopic),
        ({"topic": "x", "partitions": 10_001}, errors.InvalidTopic),
        ({"topic": "x", "partitions": "2"}, errors.InvalidTopic),
        ({"topic": "x", "key": "id"}, errors.InvalidTopic),
        ({"topic": "x", "schema": pa.schema([("a", pa.int64())]), "key": "id"}, errors.InvalidTopic),
        ({"topic": "x", "schema": {"a": "int"}}, errors.InvalidRequest),
    ],
)
def test_a_topic_that_cannot_be_is_refused(store: Store, arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        store.admin.create_topic(**arguments)
    assert store.admin.list_topics() == ["t"]


def test_offsets_are_earliest_last_stable_and_high_watermark(store: Store) -> None:
    begun(store, "done", 0, 0).commit_transaction()
    begun(store, "open", 0)

    assert store.admin.offsets("t") == [(0, 0, 3, 4), (1, 0, 0, 0)]


# Transactions


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
        assert store.admin.list_transactions(states=[name]) == [("ongoing", ongoing.producer_id, "ONGOING")]
    assert [each.transactional_id for each in store.admin.list_transactions(states=["CompleteAbort"])] == ["aborted"]
    assert store.admin.list_transactions(producer_ids=[ongoing.producer_id]) == [
        ("ongoing", ongoing.producer_id, "ONGOING")
    ]
    with pytest.raises(errors.InvalidRequest, match="ONGOING"):
        store.admin.list_transactions(states=["Hanging"])


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
    )
    producer.commit_transaction()
    described = store.admin.describe_transaction("tx")
    assert (described.transaction_start_time_ms, described.transaction_duration_ms) == (-1, -1)
    assert described.topic_partitions == ()


def test_an_unknown_transactional_id_is_named(store: Store) -> None:
    for call in (store.admin.describe_transaction, store.admin.abort_transaction):
        with pytest.raises(errors.TransactionalIdNotFound, match="nobody"):
            call("nobody")


def test_an_administrator_aborts_what_is_open_and_only_that(store: Store) -> None:
    producer = begun(store, "tx", 0)

    assert store.admin.abort_transaction("tx") is True
    assert store.admin.abort_transaction("tx") is False

    assert store.admin.offsets("t")[0].last_stable_offset == 2
    producer.send("t", b"zombie")
    with pytest.raises(errors.ProducerFenced):
        producer.flush()


def test_producers_of_a_partition_are_described(store: Store) -> None:
    producer = begun(store, "tx", 0)
    (known,) = store.admin.describe_producers("t", 0)

    assert known[:3] == (producer.producer_id, producer.producer_epoch, 0)
    assert known.current_transaction_start_offset == 0
    assert store.admin.describe_producers("t", 1) == []
    producer.commit_transaction()
    (known,) = store.admin.describe_producers("t", 0)
    assert (known.last_sequence, known.current_transaction_start_offset) == (-1, -1)
    with pytest.raises(errors.UnknownTopicOrPartition):
        store.admin.describe_producers("t", 2)


def test_transactions_open_for_too_long_are_found(store: Store, world: World) -> None:
    old = begun(store, "old", 0, 1, transaction_timeout_ms=900_000)
    world.pass_time(60_000)
    begun(store, "young", 0)
    world.pass_time(1_000)

    assert store.admin.find_hanging_transactions() == []
    assert store.admin.find_hanging_transactions(max_transaction_timeout_ms=30_000) == [
        (TopicPartition("t", partition), "old", old.producer_id, 0, 61_000) for partition in (0, 1)
    ]


def test_a_transaction_in_a_topic_deleted_meanwhile_is_shown_and_ended_without_it(store: Store) -> None:
    producer = begun(store, "tx", 0)
    store.admin.delete_topic("t")

    assert store.admin.describe_transaction("tx").topic_partitions == ()
    assert store.admin.find_hanging_transactions(max_transaction_timeout_ms=-1) == []
    producer.commit_transaction()
    assert store.admin.describe_transaction("tx").transaction_state == "COMPLETE_COMMIT"


def test_every_answer_is_as_of_the_logs_tail(store: Store, world: World) -> None:
    other = world.process()
    looks: list[Callable[[], object]] = [
        other.admin.list_topics,
        lambda: other.admin.offsets("t"),
        other.admin.list_transactions,
    ]
    before = [look() for look in looks]
    store.admin.create_topic("new")
    begun(store, "tx", 0)

    assert all(look() != seen for look, seen in zip(looks, before, strict=True))
