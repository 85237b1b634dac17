"""Positions that a poll commits by itself."""

from __future__ import annotations

from typing import Any

import pytest

from eoslog.consumer.consumer import Consumer
from eoslog.errors import InvalidOption
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.groups import T0, member, send
from tests.unit.support.world import World


def test_automatic_commits_follow_the_polls(store: Store, world: World) -> None:
    send(store, b"1", b"2")
    consumer = member(world, enable_auto_commit=True, auto_commit_interval_ms=1_000)
    assert consumer.committed([T0]) == {T0: None}
    world.pass_time(1_000)
    consumer.poll(0)
    assert consumer.committed([T0]) == {T0: (2, "", -1)}
    send(store, b"3")
    consumer.poll(0)
    consumer.close()

    assert store.consumer("g").committed([T0]) == {T0: (3, "", -1)}


def test_an_automatic_commit_that_the_group_refuses_stops_nobody(store: Store, world: World) -> None:
    send(store, b"1")
    consumer = member(world, enable_auto_commit=True, auto_commit_interval_ms=0)
    member(world)

    consumer.poll(0)
    consumer.close()


@pytest.mark.parametrize("due", [True, False])
def test_an_automatic_commit_leaves_out_a_deleted_topic_and_stops_nobody(store: Store, world: World, due: bool) -> None:
    store.admin.create_topic("u")
    send(store, b"1")
    consumer = world.process().consumer("g", auto_offset_reset="earliest", enable_auto_commit=True)
    consumer.subscribe(["t", "u"])
    consumer.poll(0)
    store.admin.delete_topic("u")
    store.admin.create_topic("u")
    world.pass_time(5_000 if due else 1_000)
    send(store, b"2")

    assert [record.value for record in consumer.poll(0)] == [b"2"]

    assert consumer.committed([T0, TopicPartition("u", 0)]) == {T0: (1, "", -1), TopicPartition("u", 0): None}
    consumer.close()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_block_that_an_exception_leaves_commits_nothing(
    store: Store, world: World, error: type[BaseException]
) -> None:
    """The block failed at a record that the poll had returned. Its position is past that record already."""
    send(store, b"1", b"2")

    def process(consumer: Consumer) -> None:
        with consumer:
            assert consumer.position(T0) == 2
            raise error

    with pytest.raises(error):
        process(member(world, enable_auto_commit=True))

    assert store.consumer("g").committed(T0) is None


def test_a_block_that_ends_commits_its_positions(store: Store, world: World) -> None:
    send(store, b"1", b"2")

    with member(world, enable_auto_commit=True) as consumer:
        assert consumer.position(T0) == 2

    assert store.consumer("g").committed(T0) == 2


@pytest.mark.parametrize("wrong", ["false", "0", "true", "", 0, 1, None])
@pytest.mark.parametrize("name", ["enable_auto_commit", "with_transaction"])
def test_a_switch_of_a_consumer_is_true_or_false(store: Store, name: str, wrong: Any) -> None:
    """Truthiness would read the text ``false`` of an environment variable as true."""
    with pytest.raises(InvalidOption, match=f"{name} is .*; it must be true or false"):
        store.consumer("g", **{name: wrong})


@pytest.mark.parametrize("text", ["false", "False", " FALSE "])
def test_a_text_in_a_configuration_switches_automatic_commits_off(store: Store, world: World, text: str) -> None:
    send(store, b"1")
    config = {"group.id": "g", "enable.auto.commit": text, "auto.offset.reset": "earliest"}

    with world.process().consumer(config=config) as consumer:
        consumer.subscribe("t")
        assert len(consumer.poll(0)) == 1

    assert store.consumer("g").committed(T0) is None


@pytest.mark.parametrize("wrong", [None, "1000", -1, float("nan"), 1.0, True, 2**63])
def test_the_interval_of_automatic_commits_is_checked_when_it_is_given(store: Store, wrong: Any) -> None:
    """None would switch them off without a word."""
    for enabled in (True, False):
        with pytest.raises(InvalidOption, match=r"auto_commit_interval_ms is .*; it must be a whole number, 0 or more"):
            store.consumer("g", enable_auto_commit=enabled, auto_commit_interval_ms=wrong)


@pytest.mark.parametrize("wrong", ["x", "", "1.5", "-1", None, 1.5])
def test_the_interval_in_a_configuration_is_named_by_its_key(store: Store, wrong: Any) -> None:
    with pytest.raises(InvalidOption, match=r"auto\.commit\.interval\.ms is"):
        store.consumer(config={"group.id": "g", "auto.commit.interval.ms": wrong})


@pytest.mark.parametrize("wrong", [5_999, 1_800_001, "10000", None, 1e4, True])
@pytest.mark.parametrize("group_id", ["g", None])
def test_a_session_timeout_is_checked_with_and_without_a_group(store: Store, group_id: str | None, wrong: Any) -> None:
    with pytest.raises(InvalidOption, match="session_timeout_ms must be 6000 to 1800000, not"):
        store.consumer(group_id, session_timeout_ms=wrong)
