"""Where a consumer starts in partitions that are newer than its subscription, and in those of the last hour."""

from __future__ import annotations

from typing import Any

import pytest

from eoslog import errors
from eoslog.consumer.consumer import Consumer
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.groups import T0, send
from tests.unit.support.world import World

T2 = TopicPartition("t", 2)
HOUR_MS = 3_600_000


def reading(store: Store, group: str | None, topics: str | None = "t", **options: Any) -> Consumer:
    """A consumer that begins at the end and has polled once."""
    consumer = store.consumer(group, **options)
    consumer.subscribe(**({"topics": topics} if topics is not None else {"pattern": "u-.*"}))
    consumer.poll(0)
    return consumer


def values(consumer: Consumer) -> list[bytes | None]:
    return [record.value for record in consumer.poll(0)]


def sent_to(store: Store, topic: str, *sent: bytes, partition: int = 0) -> None:
    with store.producer() as producer:
        for value in sent:
            producer.send(topic, value, partition=partition)


@pytest.mark.parametrize("group", [None, "g"])
def test_the_first_rows_of_an_added_partition_are_read(store: Store, group: str | None) -> None:
    send(store, b"old")
    consumer = reading(store, group)
    store.admin.create_partitions("t", 3)
    send(store, b"first", partition=2)

    assert values(consumer) == [b"first"]


@pytest.mark.parametrize("group", [None, "g"])
def test_the_first_rows_of_a_new_topic_of_a_pattern_are_read(store: Store, group: str | None) -> None:
    store.admin.create_topic("u-1")
    sent_to(store, "u-1", b"old")
    consumer = reading(store, group, topics=None)
    store.admin.create_topic("u-2")
    sent_to(store, "u-2", b"first")

    assert values(consumer) == [b"first"]


@pytest.mark.parametrize("group", [None, "g"])
def test_the_first_rows_of_a_topic_that_was_created_again_are_read(store: Store, group: str | None) -> None:
    send(store, b"old")
    consumer = reading(store, group)
    store.admin.delete_topic("t")
    store.admin.create_topic("t", partitions=1)
    send(store, b"first")

    assert values(consumer) == [b"first"]


def test_a_consumer_that_subscribes_later_does_not_read_from_the_beginning(store: Store) -> None:
    reading(store, "g")
    store.admin.create_topic("u-1")
    store.admin.create_partitions("t", 3)
    send(store, b"old", partition=2)
    sent_to(store, "u-1", b"old")

    assert values(reading(store, None)) == []
    assert values(reading(store, None, topics=None)) == []
    assert values(reading(store, "other")) == []
    assert values(reading(store, "another", topics=None)) == []


def test_a_group_that_subscribes_to_another_topic_begins_at_its_end(store: Store) -> None:
    consumer = reading(store, "g")
    store.admin.create_topic("u-1")
    sent_to(store, "u-1", b"old")
    consumer.subscribe(["t", "u-1"])

    assert values(consumer) == []
    store.admin.create_partitions("u-1", 2)
    sent_to(store, "u-1", b"first", partition=1)
    assert values(consumer) == [b"first"]


def test_a_consumer_that_subscribes_to_one_more_topic_still_reads_the_added_partitions_of_the_first(
    store: Store,
) -> None:
    consumer = reading(store, None)
    store.admin.create_topic("u-1")
    store.admin.create_partitions("t", 3)
    send(store, b"first", partition=2)
    consumer.subscribe(["t", "u-1"])

    assert values(consumer) == [b"first"]


def test_a_partition_that_was_added_while_the_consumer_restarted_is_read(store: Store) -> None:
    reading(store, "g").close()
    store.admin.create_partitions("t", 3)
    send(store, b"first", partition=2)

    consumer = store.consumer("g")
    consumer.subscribe("t")

    assert values(consumer) == [b"first"]


def test_a_member_that_joined_later_reads_an_added_partition_from_its_beginning(store: Store, world: World) -> None:
    first = reading(store, "g")
    store.admin.create_partitions("t", 4)
    for number in range(4):
        send(store, b"%d" % number, partition=number)
    second = world.process().consumer("g")
    second.subscribe("t")
    first_of_second = values(second)
    first.close()

    assert first_of_second + values(second) == [b"2", b"3"]


def test_a_committed_offset_counts_also_in_an_added_partition(store: Store) -> None:
    consumer = reading(store, "g")
    store.admin.create_partitions("t", 3)
    send(store, b"first", b"second", partition=2)
    consumer.poll(0)
    consumer.commit({T2: 1})
    consumer.close()

    again = store.consumer("g")
    again.subscribe("t")
    assert values(again) == [b"second"]


def test_a_group_that_expired_knows_no_partition_as_added(store: Store) -> None:
    consumer = reading(store, "g")
    consumer.close()
    store.admin.create_partitions("t", 3)
    send(store, b"old", partition=2)
    store.admin.delete_consumer_group("g")

    assert values(reading(store, "g")) == []


@pytest.mark.parametrize("policy", ["latest", "by_duration:PT0S"])
def test_on_request_an_added_partition_begins_by_the_policy(store: Store, policy: str) -> None:
    consumer = reading(store, "g", auto_offset_reset=policy, new_partitions_from_beginning=False)
    store.admin.create_partitions("t", 3)
    send(store, b"first", partition=2)
    store.environment.sleep_ms(1_000)

    assert values(consumer) == []
    assert consumer.position(T2) == 1


def test_the_policy_none_raises_in_an_added_partition_too(store: Store) -> None:
    consumer = store.consumer("g", auto_offset_reset="none")
    consumer.subscribe("t")
    consumer.commit({T0: 0, TopicPartition("t", 1): 0})
    consumer.poll(0)
    store.admin.create_partitions("t", 3)

    with pytest.raises(errors.NoOffsetForPartition):
        consumer.poll(0)


# The rows of the last hour (KIP-1106)


def sent_at(store: Store, *ages_ms: int) -> None:
    now_ms = store.now_ms()
    with store.producer() as producer:
        for age_ms in ages_ms:
            producer.send("t", b"%d" % age_ms, partition=0, timestamp=now_ms - age_ms)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("by_duration:PT1H", [b"600000", b"0"]),
        ("by_duration:P1D", [b"36000000", b"600000", b"0"]),
        ("by_duration:P9000D", [b"864000000", b"36000000", b"600000", b"0"]),
    ],
)
@pytest.mark.parametrize("from_config", [False, True])
def test_a_duration_begins_at_its_first_row(
    store: Store, policy: str, expected: list[bytes], from_config: bool
) -> None:
    sent_at(store, 240 * HOUR_MS, 10 * HOUR_MS, HOUR_MS // 6, 0)
    options: dict[str, Any] = {"auto_offset_reset": policy}
    if from_config:
        options = {"config": {"auto.offset.reset": policy}}
    consumer = store.consumer("g", **options)
    consumer.subscribe("t")

    assert values(consumer) == expected


def test_a_duration_without_rows_begins_at_the_end(store: Store) -> None:
    sent_at(store, 2 * HOUR_MS)
    consumer = reading(store, None, auto_offset_reset="by_duration:PT1H")

    assert consumer.position(T0) == 1
    sent_at(store, 2 * HOUR_MS)
    assert len(values(consumer)) == 1


def test_a_position_that_was_deleted_is_reset_to_the_duration(store: Store) -> None:
    sent_at(store, 2 * HOUR_MS, 2 * HOUR_MS, HOUR_MS // 6)
    consumer = store.consumer(auto_offset_reset="by_duration:PT1H")
    consumer.assign([T0])
    consumer.seek(T0, 0)
    store.admin.delete_records({T0: 1})

    assert values(consumer) == [b"600000"]


@pytest.mark.parametrize(
    "policy", ["by_duration:", "by_duration:1H", "by_duration:-PT1H", "by_duration:P1Y", "newest", "", None, 5, True]
)
def test_another_policy_is_refused_with_the_valid_ones(store: Store, policy: Any) -> None:
    with pytest.raises(errors.InvalidOption, match=r"PT1H"):
        store.consumer(auto_offset_reset=policy)


@pytest.mark.parametrize("given", ["false", 0, None])
def test_the_option_for_new_partitions_is_true_or_false(store: Store, given: Any) -> None:
    with pytest.raises(errors.InvalidOption, match="new_partitions_from_beginning"):
        store.consumer(new_partitions_from_beginning=given)
