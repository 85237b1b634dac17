"""What a consumer subscribes to: topics by name, or by a pattern that is looked at again and again."""

from __future__ import annotations

import re

import pytest

from eoslog import errors
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.world import World


def places(*names: str) -> set[TopicPartition]:
    return {TopicPartition(name, 0) for name in names}


@pytest.mark.parametrize("group_id", [None, "g"])
def test_topics_that_come_and_go_are_read_as_long_as_they_match(
    store: Store, world: World, group_id: str | None
) -> None:
    consumer = world.process().consumer(group_id, auto_offset_reset="earliest")
    consumer.subscribe(pattern=r"orders-.*")
    assert consumer.poll(0) == []
    for name in ("orders-a", "orders-b", "other-orders-c"):
        store.admin.create_topic(name)
    with store.producer() as producer:
        producer.send("orders-b", b"1")

    assert [record.value for record in consumer.poll(0)] == [b"1"]
    assert consumer.subscription() == {"orders-a", "orders-b"}
    assert consumer.assignment() == places("orders-a", "orders-b")
    store.admin.delete_topic("orders-a")
    consumer.poll(0)
    assert consumer.assignment() == places("orders-b")


def test_topics_that_come_hinder_nobody_in_what_is_read_already(store: Store, world: World) -> None:
    store.admin.create_topic("orders-a")
    consumer = world.process().consumer("g", auto_offset_reset="earliest")
    consumer.subscribe(pattern=re.compile("orders-.*"))
    consumer.poll(0)
    with store.producer() as producer:
        producer.send("orders-a", b"1")
    consumer.poll(0)
    store.admin.create_topic("orders-b")
    consumer.poll(0)

    assert consumer.position(TopicPartition("orders-a", 0)) == 1
    consumer.commit()


def test_a_pattern_is_a_regular_expression_and_has_no_topics_beside_it(store: Store) -> None:
    consumer = store.consumer()
    with pytest.raises(errors.InvalidRequest, match="regular expression"):
        consumer.subscribe(pattern="(")
    with pytest.raises(errors.InvalidRequest, match="not both"):
        consumer.subscribe("t", pattern="t")
    with pytest.raises(errors.InvalidRequest, match=r"'\^t' is a pattern. Give it as subscribe\(pattern=…\)"):
        consumer.subscribe(["^t"])
    consumer.subscribe(pattern="nothing")
    with pytest.raises(errors.IllegalState):
        consumer.assign([TopicPartition("t", 0)])


def test_automatic_commits_are_done_before_partitions_go(store: Store, world: World) -> None:
    with store.producer() as producer:
        producer.send("t", b"0", partition=0)
        producer.send("t", b"1", partition=1)
    first = world.process().consumer("g", auto_offset_reset="earliest", enable_auto_commit=True)
    first.subscribe("t")
    assert len(first.poll(0)) == 2
    second = world.process().consumer("g", auto_offset_reset="earliest")
    second.subscribe("t")
    second.poll(0)

    first.poll(0)

    assert second.poll(0) == []
    assert second.assignment() == {TopicPartition("t", 1)}
    assert second.position(TopicPartition("t", 1)) == 1


def test_a_listener_is_given_all_partitions_when_a_subscription_ends(store: Store) -> None:
    told: list[list[TopicPartition]] = []
    for end in ("unsubscribe", "close"):
        consumer = store.consumer("g")
        consumer.subscribe("t", on_revoked=told.append)
        consumer.poll(0)
        getattr(consumer, end)()

    assert told == [[TopicPartition("t", 0), TopicPartition("t", 1)]] * 2
