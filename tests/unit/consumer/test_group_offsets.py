"""Offsets of consumer groups in transactions: when they count, who may commit them, and when they are forgotten.

Kafka writes them when they are sent, and they are pending until the marker. Here they stand in the slot that ends the
transaction, so they are pending only while it is prepared.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from eoslog.consumer.consumer import Consumer
from eoslog.errors import (
    FencedInstanceId,
    GroupIdNotFound,
    GroupNotEmpty,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InvalidRequest,
    RequestTimedOut,
    UnknownMember,
    UnstableOffsetCommit,
)
from eoslog.maintenance.coordinator import Coordinator
from eoslog.producer.producer import Producer
from eoslog.session.positions import GroupMetadata
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.world import SLOTS, World, faulty

FOO_0, FOO_1, BAR_0, BAR_1 = (TopicPartition(topic, partition) for topic in ("foo", "bar") for partition in (0, 1))
PLACES = [FOO_0, FOO_1, BAR_0, BAR_1]
PENDING = {FOO_1: 111, BAR_0: 201, BAR_1: 211}
WEEK_MS = 7 * 24 * 3600 * 1000


@pytest.fixture
def store(world: World) -> Store:
    """The topics ``foo`` and ``bar`` with 300 rows in each partition; the group ``g`` has offsets of three of them."""
    store = world.process()
    with store.producer() as producer:
        for topic in ("foo", "bar"):
            store.admin.create_topic(topic, partitions=2)
            for number in range(600):
                producer.send(topic, b"value", partition=number % 2)
    store.admin.alter_consumer_group_offsets("g", {FOO_0: 100, FOO_1: 110, BAR_0: 200})
    return store


def sending(store: Store, offsets: dict[TopicPartition, int], name: str = "tx", group: str = "g") -> Producer:
    """A producer with a transaction that is open, and offsets in it."""
    producer = store.producer(name)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction(offsets, group)
    return producer


def committed(store: Store, group: str = "g") -> list[int | None]:
    """What the group has committed of the four partitions, whatever a prepared transaction may still set."""
    found = store.consumer(group, isolation_level="read_uncommitted").committed(PLACES)
    return [None if (known := found[place]) is None else known.offset for place in PLACES]


def reader(store: Store) -> Consumer:
    """A consumer of the group that is no member of it, as one that checks where to go on."""
    consumer = store.consumer("g", auto_offset_reset="earliest")
    consumer.assign(PLACES)
    return consumer


def delete_group(store: Store, group: str, places: list[TopicPartition]) -> None:
    store.admin.delete_consumer_group(group)


def delete_offsets(store: Store, group: str, places: list[TopicPartition]) -> None:
    store.admin.delete_consumer_group_offsets(group, places)


@pytest.mark.scenario(160)
def test_offsets_of_an_open_transaction_show_to_nobody_and_count_at_its_commit(store: Store) -> None:
    producer = sending(store, PENDING)
    assert committed(store) == [100, 110, 200, None]
    assert [reader(store).position(place) for place in PLACES] == [100, 110, 200, 0]

    producer.commit_transaction()

    assert committed(store) == [100, 111, 201, 211]
    assert [reader(store).position(place) for place in PLACES] == [100, 111, 201, 211]


@pytest.mark.scenario(160)
def test_offsets_of_an_aborted_transaction_never_count(store: Store) -> None:
    sending(store, PENDING).abort_transaction()

    assert committed(store) == [100, 110, 200, None]


@pytest.mark.scenario(160)
def test_a_consumer_waits_for_a_prepared_transaction_that_may_set_its_offset(store: Store) -> None:
    producer = sending(store, PENDING)
    producer.prepare_transaction()
    waiting = reader(store)

    assert committed(store) == [100, 110, 200, None]
    assert waiting.position(FOO_0) == 100
    for place in PENDING:
        with pytest.raises(UnstableOffsetCommit):
            waiting.position(place)
    assert {record.topic for record in waiting.poll(0)} == {"foo"}

    producer.commit_transaction()

    assert committed(store) == [100, 111, 201, 211]
    assert [waiting.position(place) for place in PENDING] == [111, 201, 211]


@pytest.mark.scenario(160)
def test_an_offset_that_was_committed_while_a_prepared_one_was_pending_is_the_newer_one(store: Store) -> None:
    producer = sending(store, PENDING)
    producer.prepare_transaction()
    store.admin.alter_consumer_group_offsets("g", {FOO_1: 250})

    producer.commit_transaction()

    assert committed(store) == [100, 250, 201, 211]


@pytest.mark.further("Offsets and tools")
@pytest.mark.parametrize("first_to_commit", [0, 1])
def test_of_two_prepared_transactions_the_offset_of_the_later_prepare_stays(store: Store, first_to_commit: int) -> None:
    producers = [sending(store, {FOO_0: offset}, f"tx-{offset}") for offset in (150, 151)]
    for producer in producers:
        producer.prepare_transaction()

    producers[first_to_commit].commit_transaction()
    producers[1 - first_to_commit].commit_transaction()

    assert committed(store)[0] == 151


@pytest.mark.further("Offsets and tools")
def test_of_two_transactions_that_were_not_prepared_the_offset_of_the_later_commit_stays(store: Store) -> None:
    earlier, later = (sending(store, {FOO_0: offset}, f"tx-{offset}") for offset in (150, 151))

    later.commit_transaction()
    earlier.commit_transaction()

    assert committed(store)[0] == 150


@pytest.mark.further("Offsets and tools")
def test_offsets_in_transactions_of_several_groups_and_producers_do_not_touch_each_other(store: Store) -> None:
    producers = {
        (name, group): sending(store, {place: 7}, f"{name}-{group}", group)
        for name, place in (("a", FOO_0), ("b", BAR_1))
        for group in ("g", "h")
    }

    producers["a", "g"].commit_transaction()
    producers["a", "h"].abort_transaction()
    producers["b", "g"].abort_transaction()
    producers["b", "h"].commit_transaction()

    assert committed(store, "g") == [7, 110, 200, None]
    assert committed(store, "h") == [None, None, None, 7]


# Who may commit


@pytest.mark.scenario(162)
def test_offsets_of_a_member_that_its_group_left_behind_are_refused_and_leave_no_trace(
    store: Store, world: World
) -> None:
    member = store.consumer("m")
    member.subscribe("foo")
    member.poll(0)
    stale = member.group_metadata()
    with world.process().consumer("m") as other:
        other.subscribe("foo")
        other.poll(0)
        producer = store.producer("tx")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("foo", b"output", partition=0)
        producer.send_offsets_to_transaction({FOO_0: 100, FOO_1: 100}, stale)
        member.poll(0)
        assert member.assignment() == {FOO_0}

        with pytest.raises(IllegalGeneration):
            producer.commit_transaction()

        producer.abort_transaction()
        assert committed(store, "m") == [None] * 4


@pytest.mark.parametrize("group", ["m", GroupMetadata("m")])
def test_offsets_of_a_group_with_members_are_warned_of_once_if_they_name_no_member(
    store: Store, world: World, group: str | GroupMetadata, caplog: pytest.LogCaptureFixture
) -> None:
    def send_offsets(given: str | GroupMetadata) -> int:
        caplog.clear()
        with caplog.at_level(logging.WARNING, "eoslog"), store.producer("tx") as producer:
            producer.init_transactions()
            for _ in range(2):
                producer.begin_transaction()
                producer.send_offsets_to_transaction({FOO_0: 1}, given)
                producer.commit_transaction()
        return len([each for each in caplog.records if "consumer.group_metadata()" in each.getMessage()])

    counts = [send_offsets(group)]
    member = world.process().consumer("m")
    member.subscribe("foo")
    member.poll(0)
    counts.append(send_offsets(member.group_metadata()))
    counts += [send_offsets(group), send_offsets(group)]

    assert counts == [0, 0, 1, 0]


@pytest.mark.scenario(162)
@pytest.mark.parametrize(
    "member", [GroupMetadata("new", 0), GroupMetadata("new", 100, "m"), GroupMetadata("new", 100, "m", "instance")]
)
def test_a_group_that_is_not_there_is_at_no_generation(store: Store, member: GroupMetadata) -> None:
    producer = sending(store, {FOO_0: 1}, group=member)

    with pytest.raises(IllegalGeneration):
        producer.commit_transaction()

    assert committed(store, "new") == [None] * 4


@pytest.mark.scenario(162)
@pytest.mark.parametrize(
    ("claims", "error"),
    [
        ({"generation": 100}, IllegalGeneration),
        ({"generation": 0}, IllegalGeneration),
        ({"member_id": "nobody", "group_instance_id": None}, UnknownMember),
        ({"member_id": "nobody", "group_instance_id": "i1"}, FencedInstanceId),
    ],
)
def test_a_group_takes_offsets_of_its_own_members_at_its_generation(
    store: Store, claims: dict[str, object], error: type[Exception]
) -> None:
    member = store.consumer("m", group_instance_id="i1")
    member.subscribe("foo")
    member.poll(0)
    current = member.group_metadata()
    assert current.generation == 1

    with pytest.raises(error):
        sending(store, {FOO_0: 100}, group=current._replace(**claims)).commit_transaction()
    sending(store, {FOO_0: 101}, group=current).commit_transaction()

    assert committed(store, "m")[0] == 101


# What is forgotten


@pytest.mark.scenario(162)
def test_a_pending_offset_keeps_the_one_it_may_replace_from_expiring(store: Store, world: World) -> None:
    producer = store.producer("tx", prepared_timeout_ms=None)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({FOO_0: 101}, "g")
    producer.prepare_transaction()
    world.pass_time(WEEK_MS)

    Coordinator(store).expire()
    assert committed(store) == [100, None, None, None]

    producer.abort_transaction()
    Coordinator(store).expire()
    assert committed(store) == [None] * 4


@pytest.mark.scenario(162)
@pytest.mark.parametrize("forget", [delete_group, delete_offsets])
def test_offsets_that_are_deleted_while_they_are_pending_do_not_come_back(
    store: Store, forget: Callable[[Store, str, list[TopicPartition]], None]
) -> None:
    producer = sending(store, PENDING)
    producer.prepare_transaction()

    forget(store, "g", PLACES)
    assert reader(store).position(FOO_1) == 0
    producer.commit_transaction()

    assert committed(store) == [None] * 4


@pytest.mark.further("Offsets and tools")
@pytest.mark.parametrize("forget", [delete_group, delete_offsets])
def test_a_group_that_has_only_pending_offsets_can_be_forgotten_too(
    store: Store, forget: Callable[[Store, str, list[TopicPartition]], None]
) -> None:
    producer = sending(store, PENDING, group="new")
    producer.prepare_transaction()

    forget(store, "new", list(PENDING))
    producer.commit_transaction()

    assert committed(store, "new") == [None] * 4
    with pytest.raises(GroupIdNotFound):
        forget(store, "new", list(PENDING))


@pytest.mark.further("Offsets and tools")
def test_a_prepare_that_is_repeated_does_not_bring_back_what_was_deleted_since(store: Store) -> None:
    producer = sending(store, PENDING)
    faulty(store).lose_answers(SLOTS, lands=True)
    with pytest.raises(RequestTimedOut):
        producer.prepare_transaction()
    faulty(store).heal()
    delete_offsets(store, "g", [FOO_1])

    producer.prepare_transaction()
    producer.commit_transaction()

    assert committed(store) == [100, None, 201, 211]


@pytest.mark.further("Offsets and tools")
def test_an_offset_that_is_committed_after_a_deletion_counts(store: Store) -> None:
    producer = sending(store, PENDING)
    delete_group(store, "g", PLACES)

    producer.commit_transaction()

    assert committed(store) == [None, 111, 201, 211]


@pytest.mark.further("Offsets and tools")
def test_a_group_that_is_not_there_has_committed_nothing(store: Store) -> None:
    assert committed(store, "unknown") == [None] * 4
    with pytest.raises(GroupIdNotFound):
        store.admin.list_consumer_group_offsets("unknown")


@pytest.mark.further("Offsets and tools")
def test_offsets_that_members_use_are_not_deleted_nor_is_their_group(store: Store) -> None:
    member = store.consumer("g")
    member.subscribe("foo")
    member.poll(0)

    with pytest.raises(GroupSubscribedToTopic):
        delete_offsets(store, "g", [FOO_0, BAR_0])
    with pytest.raises(GroupNotEmpty):
        delete_group(store, "g", [])
    assert committed(store) == [100, 110, 200, None]

    assert store.admin.delete_consumer_group_offsets("g", [BAR_0, BAR_1]) == [BAR_0]
    member.close()
    assert committed(store) == [100, 110, None, None]
    delete_group(store, "g", [])
    assert committed(store) == [None] * 4


@pytest.mark.further("Offsets and tools")
def test_offsets_of_a_deleted_topic_are_forgotten_committed_and_pending(store: Store) -> None:
    producer = sending(store, PENDING)
    producer.prepare_transaction()
    store.admin.delete_topic("foo")
    store.admin.create_topic("foo", partitions=2)

    assert committed(store) == [None, None, 200, None]
    producer.commit_transaction()
    assert committed(store) == [None, None, 201, 211]


@pytest.mark.further("Offsets and tools")
@pytest.mark.parametrize("subscribes", [True, False])
def test_offsets_expire_when_the_group_was_empty_for_long_and_not_while_a_member_reads_their_topic(
    store: Store, world: World, subscribes: bool
) -> None:
    member = store.consumer("g", session_timeout_ms=1_800_000)
    if subscribes:
        member.subscribe("foo")
        member.poll(0)
    world.pass_time(2 * WEEK_MS)
    Coordinator(world.process()).expire()
    assert committed(store) == ([100, 110, None, None] if subscribes else [None] * 4)

    member.close()
    world.pass_time(WEEK_MS - 1_000)
    Coordinator(world.process()).expire()
    assert committed(store) == ([100, 110, None, None] if subscribes else [None] * 4)

    world.pass_time(1_000)
    Coordinator(world.process()).expire()
    assert committed(store) == [None] * 4


@pytest.mark.further("Offsets and tools")
def test_a_pending_offset_blocks_no_other_group_and_no_other_partition(store: Store) -> None:
    producer = sending(store, {FOO_1: 111})
    producer.prepare_transaction()
    other = store.consumer("h", auto_offset_reset="earliest")
    other.assign([FOO_1])

    assert other.position(FOO_1) == 0
    assert reader(store).position(BAR_0) == 200
    by_hand = reader(store)
    by_hand.seek(FOO_1, 50)
    assert by_hand.position(FOO_1) == 50


@pytest.mark.parametrize("offset", [None, 1.5, -1, "7"])
def test_offsets_that_are_none_are_refused_before_anything_is_sent(store: Store, offset: object) -> None:
    given = {TopicPartition("foo", 0): offset}
    with store.producer("tx") as producer, store.consumer("new") as consumer:
        producer.init_transactions()
        producer.begin_transaction()
        consumer.assign([TopicPartition("foo", 0)])

        for call in (lambda: producer.send_offsets_to_transaction(given, "new"), lambda: consumer.commit(given)):  # type: ignore[arg-type]
            with pytest.raises(InvalidRequest, match=r"must be a whole number, 0 or more\. Leave out a partition"):
                call()
        producer.commit_transaction()

    assert "new" not in [each.group_id for each in store.admin.list_consumer_groups()]


def test_a_list_of_partitions_is_no_mapping_of_offsets(store: Store) -> None:
    given = [TopicPartition("foo", 0)]
    with store.producer("tx") as producer, store.consumer("g") as consumer:
        producer.init_transactions()
        producer.begin_transaction()
        consumer.assign(given)

        for call in (lambda: producer.send_offsets_to_transaction(given, "g"), lambda: consumer.commit(given)):  # type: ignore[arg-type]
            with pytest.raises(InvalidRequest, match="offsets are given by partition, as"):
                call()
        producer.abort_transaction()
