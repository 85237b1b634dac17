"""What an administrator may see of consumer groups, and change."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eoslog import errors
from eoslog.admin.group_admin import GroupPartition, OffsetReset
from eoslog.session.positions import OffsetAndMetadata
from eoslog.state.names import TopicPartition
from eoslog.store import Store
from tests.unit.support.groups import coordinate
from tests.unit.support.reading import send
from tests.unit.support.transactions import open_transaction
from tests.unit.support.world import SLOTS, World, faulty

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def hold_back(store: Store, *values: bytes) -> None:
    """An open transaction in partition 0."""
    producer = open_transaction(store, "open")
    for value in values:
        producer.send("t", value, partition=0)
    producer.flush()


def member(world: World, group_id: str = "g", **options: Any) -> Any:
    consumer = world.process().consumer(group_id, **{"auto_offset_reset": "earliest", **options})
    consumer.subscribe(["t"])
    consumer.poll(0)
    return consumer


def test_groups_are_listed_with_their_states(store: Store, world: World) -> None:
    assert store.admin.list_consumer_groups() == []
    store.consumer("empty").commit({T0: 0})
    member(world, "stable")
    member(world, "reconciling")
    member(world, "reconciling")

    assert store.admin.list_consumer_groups() == [
        ("empty", "Empty"),
        ("reconciling", "Reconciling"),
        ("stable", "Stable"),
    ]
    assert store.admin.list_consumer_groups(states=["stable", "EMPTY"]) == [("empty", "Empty"), ("stable", "Stable")]
    with pytest.raises(errors.InvalidRequest, match="Reconciling"):
        store.admin.list_consumer_groups(states=["Dead"])


def test_a_group_is_described_with_its_members_offsets_and_lags(store: Store, world: World) -> None:
    send(store, b"1", b"2", b"3")
    hold_back(store, b"4")
    first, second = member(world), member(world, group_instance_id="i2")
    first.poll(0)
    second.poll(0)
    first.commit({T0: 2})
    one, two = first.group_metadata().member_id, second.group_metadata().member_id

    found = store.admin.describe_consumer_group("g")

    assert (found.group_id, found.state, found.generation) == ("g", "Stable", 2)
    assert {each[:5] for each in found.members} == {(one, None, ("t",), (T0,), ()), (two, "i2", ("t",), (T1,), ())}
    assert found.partitions == (GroupPartition(T0, 2, 3, 4, 2, one), GroupPartition(T1, None, 0, 0, None, two))


def test_a_partition_that_a_member_must_give_up_is_described_as_its_own(store: Store, world: World) -> None:
    first = member(world)
    member(world)

    found = store.admin.describe_consumer_group("g")

    assert (found.state, [each.revoking for each in found.members if each.revoking]) == ("Reconciling", [(T1,)])
    assert [each.member_id for each in found.partitions] == [first.group_metadata().member_id] * 2


@pytest.mark.parametrize(
    "call",
    [
        lambda admin: admin.describe_consumer_group("g"),
        lambda admin: admin.list_consumer_group_offsets("g"),
        lambda admin: admin.delete_consumer_group("g"),
        lambda admin: admin.delete_consumer_group_offsets("g", [T0]),
        lambda admin: admin.remove_members("g"),
        lambda admin: admin.reset_consumer_group_offsets("g", OffsetReset(to_earliest=True)),
    ],
)
def test_a_group_that_is_not_there_is_not_found(store: Store, call: Callable[[Any], object]) -> None:
    store.consumer("other").commit({T0: 0})

    with pytest.raises(errors.GroupIdNotFound, match="other"):
        call(store.admin)


def test_offsets_of_a_group_without_members_are_set_and_listed(store: Store) -> None:
    store.admin.alter_consumer_group_offsets("g", {T0: 5, T1: OffsetAndMetadata(7, "note", 3)})

    assert store.admin.list_consumer_group_offsets("g") == {T0: (5, "", -1), T1: (7, "note", 3)}


def test_nothing_is_changed_under_the_members_of_a_group(store: Store, world: World) -> None:
    consumer = member(world)
    consumer.commit({T0: 0})
    reset = OffsetReset(to_offset=1)

    with pytest.raises(errors.GroupNotEmpty):
        store.admin.alter_consumer_group_offsets("g", {T0: 5})
    with pytest.raises(errors.GroupNotEmpty):
        store.admin.reset_consumer_group_offsets("g", reset)
    with pytest.raises(errors.GroupNotEmpty):
        store.admin.delete_consumer_group("g")
    with pytest.raises(errors.GroupSubscribedToTopic, match="or remove its members"):
        store.admin.delete_consumer_group_offsets("g", [T0])
    assert store.admin.list_consumer_group_offsets("g") == {T0: (0, "", -1)}


RESETS: dict[str, tuple[OffsetReset, int]] = {
    "to the earliest": (OffsetReset(to_earliest=True), 0),
    "to the latest, which is the last stable offset": (OffsetReset(to_latest=True), 6),
    "to where it stands": (OffsetReset(to_current=True), 3),
    "to an offset": (OffsetReset(to_offset=4), 4),
    "to an offset that is there not any more, or not yet": (OffsetReset(to_offset=99), 8),
    "forward": (OffsetReset(shift_by=2), 5),
    "back": (OffsetReset(shift_by=-1), 2),
    "back beyond the beginning": (OffsetReset(shift_by=-100), 0),
    "to a time": (OffsetReset(to_datetime=datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)), 4),
    "to a time without a zone": (OffsetReset(to_datetime=datetime(2023, 11, 14, 22, 13, 20)), 4),
    "to a time after all": (OffsetReset(to_datetime=datetime(2099, 1, 1, tzinfo=UTC)), 6),
    "by a duration": (OffsetReset(by_duration=timedelta(hours=1)), 2),
}


@pytest.mark.parametrize(("reset", "expected"), RESETS.values(), ids=RESETS.keys())
def test_offsets_are_reset(store: Store, world: World, reset: OffsetReset, expected: int) -> None:
    """Partition 0 holds two records of two hours ago, two of half an hour ago, two of now, and two undecided."""
    now_ms = world.time_ms
    for ago_minutes in (120, 30, 0):
        send(store, b"a", b"b", timestamp=now_ms - ago_minutes * 60_000)
    hold_back(store, b"c", b"d")
    store.admin.alter_consumer_group_offsets("g", {T0: 3})

    planned = store.admin.reset_consumer_group_offsets("g", reset, dry_run=True)
    assert store.admin.list_consumer_group_offsets("g")[T0].offset == 3
    done = store.admin.reset_consumer_group_offsets("g", reset)

    assert planned == done == [(T0, 3, expected)]
    assert store.admin.list_consumer_group_offsets("g")[T0].offset == expected


def test_a_reset_to_an_offset_that_the_partition_lacks_is_told(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    send(store, b"a")
    store.admin.alter_consumer_group_offsets("g", {T0: 0})

    store.admin.reset_consumer_group_offsets("g", OffsetReset(to_offset=99), dry_run=True)

    assert f"{T0.topic}-0 has no offset 99, the nearest is 1" in caplog.text


@pytest.mark.parametrize("lands", [True, False])
def test_a_relative_reset_answered_late_is_done_or_reported_as_undone(store: Store, world: World, lands: bool) -> None:
    """The store answers again when the append has given up, while the reset asks what became of it."""
    send(store, *[b"1"] * 9)
    store.admin.alter_consumer_group_offsets("g", {T0: 6})
    back = OffsetReset(shift_by=-2)
    heals_ms = world.time_ms + store.log.config.commit_timeout_ms + 10_000
    world.while_asleep = lambda: faulty(store).heal() if world.time_ms > heals_ms else None
    faulty(store).lose_answers(SLOTS, lands=lands)

    if lands:
        assert store.admin.reset_consumer_group_offsets("g", back) == [(T0, 6, 4)]
    else:
        with pytest.raises(errors.StoreUnavailable, match="not reset"):
            store.admin.reset_consumer_group_offsets("g", back)

    assert store.admin.list_consumer_group_offsets("g")[T0].offset == (4 if lands else 6)


@pytest.mark.parametrize("lands", [True, False])
def test_a_reset_whose_outcome_cannot_be_learnt_says_how_it_will_be(store: Store, lands: bool) -> None:
    send(store, *[b"1"] * 9)
    store.admin.alter_consumer_group_offsets("g", {T0: 6})
    faulty(store).lose_answers(SLOTS, lands=lands)

    with pytest.raises(errors.CommitStateUnknown, match=r"Store\.resolve\(error\)") as unknown:
        store.admin.reset_consumer_group_offsets("g", OffsetReset(shift_by=-2))
    faulty(store).heal()

    assert store.resolve(unknown.value) is lands
    assert store.admin.list_consumer_group_offsets("g")[T0].offset == (4 if lands else 6)


def test_a_reset_of_named_topics_and_partitions_needs_no_group(store: Store) -> None:
    send(store, b"1", partition=1)
    latest = OffsetReset(to_latest=True)

    assert store.admin.reset_consumer_group_offsets("g", latest, partitions=[T1]) == [(T1, None, 1)]
    assert store.admin.reset_consumer_group_offsets("g", latest, partitions=["t"]) == [(T0, None, 0), (T1, 1, 1)]
    assert store.admin.list_consumer_group_offsets("g") == {T0: (0, "", -1), T1: (1, "", -1)}
    with pytest.raises(errors.InvalidRequest, match="none is committed"):
        store.admin.reset_consumer_group_offsets("h", OffsetReset(shift_by=1), partitions=[T0])
    with pytest.raises(errors.UnknownTopicOrPartition):
        store.admin.reset_consumer_group_offsets("g", latest, partitions=["nowhere"])


@pytest.mark.parametrize("ways", [{}, {"to_earliest": True, "to_offset": 0}])
def test_a_reset_has_one_way(ways: Any) -> None:
    with pytest.raises(errors.InvalidRequest, match="one way"):
        OffsetReset(**ways)


def test_an_offset_of_zero_and_a_shift_by_nothing_are_ways_too() -> None:
    assert (OffsetReset(to_offset=0).to_offset, OffsetReset(shift_by=0).shift_by) == (0, 0)


def test_a_topics_offsets_are_deleted_and_others_stay(store: Store) -> None:
    store.admin.alter_consumer_group_offsets("g", {T0: 5, T1: 6})

    assert store.admin.delete_consumer_group_offsets("g", [T0]) == [T0]
    assert store.admin.delete_consumer_group_offsets("g", [T0]) == []
    assert store.admin.list_consumer_group_offsets("g") == {T1: (6, "", -1)}


def test_a_deleted_group_begins_anew(store: Store, world: World) -> None:
    send(store, b"1")
    consumer = member(world)
    consumer.commit()
    consumer.close()
    store.admin.delete_consumer_group("g")

    assert store.admin.list_consumer_groups() == []
    again = member(world)
    assert again.group_metadata().generation == 1
    assert again.position(T0) == 1
    assert again.committed([T0]) == {T0: None}


def test_the_coordinator_of_kafkas_clients_is_described_and_removed_as_a_member(store: Store) -> None:
    coordinate(store)
    coordinate(store, "k2", left=["k1"])
    heard = ("k2", None, ("t",), (), (), "eoslog gateway", "far", "k2.example:9092")

    found = store.admin.describe_consumer_group("g")

    assert (found.state, found.generation, found.members, found.partitions) == ("Stable", 2, (heard,), ())
    with pytest.raises(errors.GroupNotEmpty, match="has 1 member"):
        store.admin.delete_consumer_group("g")
    assert store.admin.remove_members("g", ["k2"]) == ["k2"]
    assert store.admin.list_consumer_groups() == [("g", "Empty")]


def test_members_removed_by_id_or_instance_id_join_anew_if_alive(store: Store, world: World) -> None:
    plain, static = member(world), member(world, group_instance_id="i")
    one, two = plain.group_metadata().member_id, static.group_metadata().member_id
    static.close()

    assert store.admin.remove_members("g", ["i", "nobody"]) == [two]
    plain.poll(0)
    assert plain.assignment() == {T0, T1}
    assert store.admin.remove_members("g") == [one]
    assert store.admin.list_consumer_groups() == [("g", "Empty")]
    plain.poll(0)
    assert plain.group_metadata().member_id not in ("", one)


def test_a_group_whose_offsets_expired_is_listed_no_more(store: Store, world: World) -> None:
    from eoslog.maintenance.coordinator import Coordinator

    store.consumer("g").commit({T0: 1})
    world.pass_time(7 * 24 * 3600 * 1000 - 1000)
    assert Coordinator(store).expire() is None
    world.pass_time(1000)
    assert Coordinator(store, offsets_retention_ms=-1).expire() is None

    assert Coordinator(store).expire_offsets() == {"g": 1}

    assert store.admin.list_consumer_groups() == []


@pytest.mark.parametrize("limit", ["_MOST_EXPIRED", "_MOST_OFFSETS_EXPIRED"])
def test_more_offsets_expire_than_one_record_has_room_for(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    from eoslog.maintenance.coordinator import Coordinator

    for group in ("g", "h"):
        store.consumer(group).commit({TopicPartition("t", partition): 1 for partition in range(2)})
    world.pass_time(7 * 24 * 3600 * 1000)
    monkeypatch.setattr(f"eoslog.state.expiry.{limit}", 1)
    slot = store.read(lambda state, slot: slot)

    assert Coordinator(store).expire_offsets() == {"g": 2, "h": 2}

    assert store.read(lambda state, slot: slot) == slot + (2 if limit == "_MOST_EXPIRED" else 4)
    assert store.admin.list_consumer_groups() == []
