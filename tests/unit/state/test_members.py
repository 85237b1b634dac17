"""Members of a group: joining, leaving, and handing partitions over so that no two may commit one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.errors import IllegalGeneration, InvalidEntry
from eoslog.state.draft import Draft
from eoslog.state.group_entries import GroupChanged, GroupMember
from eoslog.state.group_members import plan_group_change
from eoslog.state.groups import check_offsets
from eoslog.state.names import PartitionId
from eoslog.state.partition_state import NO_TIME
from eoslog.state.store_state import Group
from tests.unit.state.histories import (
    NOW_MS,
    OTHER_TOPIC_ID,
    TOPIC_ID,
    History,
    joining,
    new_draft,
    offsets_of,
    topic_created,
)


def assigned(group: Group) -> dict[str, list[int]]:
    return {name: [place.partition for place in member.assigned] for name, member in sorted(group.members.items())}


def revoking(group: Group) -> dict[str, list[int]]:
    return {name: [place.partition for place in each.revoking] for name, each in group.members.items() if each.revoking}


def planned(history: History, *joined: Any, **changes: Any) -> GroupChanged:
    entry = plan_group_change(new_draft(history.state, history.slot + 1), "g", joined=joined, time_ms=0, **changes)
    assert entry is not None
    return entry


def test_the_first_member_reads_everything() -> None:
    group = History(partitions=3).change_group(joining("m1"))

    assert (group.generation, assigned(group), revoking(group)) == (1, {"m1": [0, 1, 2]}, {})


def test_a_partition_is_the_newcomers_only_when_its_reader_has_given_it_up() -> None:
    history = History(partitions=4)
    history.change_group(joining("m1"))

    told = history.change_group(joining("m2"))
    given_up = history.change_group(revoked=["m1"])

    assert (told.generation, assigned(told), revoking(told)) == (2, {"m1": [0, 1], "m2": []}, {"m1": [2, 3]})
    assert (given_up.generation, assigned(given_up), revoking(given_up)) == (2, {"m1": [0, 1], "m2": [2, 3]}, {})


def test_a_partition_that_a_dead_member_had_to_give_up_is_free() -> None:
    history = History(partitions=4)
    history.change_group(joining("m1"))
    history.change_group(joining("m2"))

    group = history.change_group(left=["m1"])

    assert (group.generation, assigned(group), revoking(group)) == (3, {"m2": [0, 1, 2, 3]}, {})


def test_a_member_keeps_the_partitions_that_it_had_to_give_up_to_a_newcomer_that_left() -> None:
    history = History(partitions=4)
    history.change_group(joining("m1"))
    history.change_group(joining("m2"))

    group = history.change_group(left=["m2"])

    assert (assigned(group), revoking(group)) == ({"m1": [0, 1, 2, 3]}, {})


def test_a_group_knows_since_when_it_is_empty() -> None:
    history = History()
    assert history.change_group(joining("m1")).empty_since_ms == NO_TIME
    history.now_ms += 5

    assert history.change_group(left=["m1"]).empty_since_ms == NOW_MS + 5
    assert history.change_group(joining("m2")).empty_since_ms == NO_TIME


def test_a_topic_that_comes_is_shared_out_without_a_new_generation_if_nothing_moves() -> None:
    history = History(partitions=2)
    history.change_group(joining("m1", "t", "u"))
    history.change_group(joining("m2", "t", "u"))
    history.change_group(revoked=["m1"])
    history.append(lambda draft: draft.append(topic_created("u", OTHER_TOPIC_ID)))

    group = history.change_group()

    assert (group.generation, assigned(group)) == (2, {"m1": [0, 0], "m2": [1, 1]})
    slot = history.slot
    history.change_group()
    assert history.slot == slot


def test_nobody_reads_a_topic_that_was_deleted_and_its_successor_is_shared_out_anew() -> None:
    history = History()
    history.change_group(joining("m1"))
    history.change_group(joining("m2"))
    history.delete_topic()
    group = history.state.groups["g"]
    assert (assigned(group), revoking(group)) == ({"m1": [], "m2": []}, {})

    history.append(lambda draft: draft.append(topic_created("t", OTHER_TOPIC_ID)))

    assert assigned(history.change_group()) == {"m1": [0], "m2": [1]}


def test_a_changed_subscription_is_a_new_generation() -> None:
    history = History()
    history.change_group(joining("m1"))

    group = history.change_group(joining("m1", "u"))

    assert (group.generation, assigned(group), revoking(group)) == (2, {"m1": []}, {"m1": [0, 1]})
    assert history.change_group(revoked=["m1"]).generation == 2


# Static members (KIP-345)


def test_a_static_member_that_comes_back_has_its_partitions_and_nobody_else_notices() -> None:
    history = History(partitions=4)
    history.change_group(joining("a", instance="i1"))
    history.change_group(joining("b", instance="i2"))
    history.change_group(revoked=["a"])

    group = history.change_group(joining("z", instance="i1"))

    assert (group.generation, assigned(group)) == (2, {"b": [2, 3], "z": [0, 1]})


def test_a_static_member_that_comes_back_with_other_topics_makes_a_new_generation() -> None:
    history = History()
    history.change_group(joining("a", instance="i1"))

    assert history.change_group(joining("z", "u", instance="i1")).generation == 2


def test_a_replaced_members_partitions_to_revoke_are_free() -> None:
    history = History(partitions=4)
    history.change_group(joining("a", instance="i1"))
    history.change_group(joining("b"))

    group = history.change_group(joining("z", instance="i1"))

    assert (group.generation, assigned(group), revoking(group)) == (2, {"b": [2, 3], "z": [0, 1]}, {})


# What no correct writer proposes


def test_of_two_changes_of_one_generation_the_second_is_refused() -> None:
    history = History()
    entry = planned(history, joining("m1"))
    history.change_group(joining("m1"))
    history.change_group(joining("m2"))

    assert isinstance(history.refused(lambda draft: draft.append(entry)), IllegalGeneration)


@pytest.mark.parametrize(
    "change",
    [
        {"generation": 1},
        {"generation": 3},
        {"left": ("m9",)},
        {"revoked": ("m1",)},
        {"assigned": ()},
        {"joined": ()},
    ],
)
def test_an_entry_that_contradicts_the_group_is_refused(change: dict[str, Any]) -> None:
    history = History()
    history.change_group(joining("m1"))
    entry = planned(history, joining("m2")).model_copy(update=change)

    assert isinstance(history.refused(lambda draft: draft.append(entry)), InvalidEntry | IllegalGeneration)


@pytest.mark.parametrize("partitions", [[[0, 1], [1]], [[0, 1], [2]], [[1], [0]]])
def test_a_partition_of_two_or_one_that_is_not_there_is_refused(partitions: list[list[int]]) -> None:
    history = History()
    history.change_group(joining("m1"))
    history.change_group(joining("m2"))
    history.change_group(revoked=["m1"])
    valid = planned(history, joining("m3"))
    given = [
        {"member_id": name, "topics": [{"topic_id": TOPIC_ID, "partitions": numbers}]}
        for name, numbers in zip(("m1", "m2"), partitions, strict=True)
    ]
    value = valid.model_dump() | {"assigned": [*given, {"member_id": "m3", "topics": []}]}
    entry = GroupChanged.model_validate(value)

    assert isinstance(history.refused(lambda draft: draft.append(entry)), InvalidEntry)


def test_a_partition_of_nobody_is_refused() -> None:
    history = History()
    history.change_group(joining("m1"))
    history.change_group(joining("m2"))
    history.change_group(revoked=["m1"])
    entry = planned(history, left=["m2"])
    topics = entry.assigned[0].topics[0].model_copy(update={"partitions": (0,)})
    lost = entry.model_copy(update={"assigned": (entry.assigned[0].model_copy(update={"topics": (topics,)}),)})

    assert isinstance(history.refused(lambda draft: draft.append(lost)), InvalidEntry)


@pytest.mark.parametrize("generation", [1, 2])
def test_an_entry_without_a_change_is_refused(generation: int) -> None:
    history = History()
    entry = planned(history, joining("m1")).model_copy(update={"joined": ()})
    history.change_group(joining("m1"))
    same = entry.model_copy(update={"generation": generation})

    assert isinstance(history.refused(lambda draft: draft.append(same)), InvalidEntry)


def test_a_group_knows_since_when_it_subscribes_to_each_topic() -> None:
    history = History()
    history.append(lambda draft: draft.append(topic_created("u", OTHER_TOPIC_ID)))
    history.change_group(joining("m1"))
    first = history.slot
    history.change_group(joining("m2", "t", "u"))
    second = history.slot

    assert history.change_group().subscribed == {"t": first, "u": second}
    assert history.change_group(left=["m1", "m2"]).subscribed == {"t": first, "u": second}
    back = history.change_group(joining("m3", "u"))
    assert (back.subscribed, back.created_slot) == ({"u": second}, first)
    history.change_group(joining("m3", "t", "u"))
    assert history.change_group().subscribed == {"t": history.slot, "u": second}


# Any history

NAMES = ["m1", "m2", "m3", "m4"]


class Handover:
    """What a group's members believe that they read, each from the last time that it looked."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.history = History(partitions=data.draw(st.integers(1, 6)))
        self.reads: dict[str, set[PartitionId]] = {}
        self.generations: dict[str, int] = {}
        self.kept: dict[str, set[PartitionId]] = {}
        """What each has really held at all times since it looked."""

    def change(self, *joined: GroupMember, **changes: Any) -> Group:
        group = self.history.change_group(*joined, **changes)
        for name, places in self.kept.items():
            member = group.members.get(name)
            places.intersection_update(() if member is None else (*member.assigned, *member.revoking))
        return group

    def step(self) -> None:
        name = self.data.draw(st.sampled_from(NAMES))
        {"look": self.look, "die": self.die, "come back": self.come_back}[
            self.data.draw(st.sampled_from(["look", "look", "die", "come back"]))
        ](name)

    def look(self, name: str) -> None:
        """Join if need be; drop what is to be given up, and then say so."""
        group = self.change(joining(name, instance=f"i-{name[:2]}"))
        self.generations[name] = group.generation
        self.reads[name] = set(group.members[name].assigned)
        self.kept[name] = set(self.reads[name])
        if group.members[name].revoking and self.data.draw(st.booleans()):
            self.change(revoked=[name])

    def die(self, name: str) -> None:
        """It does not know that it was evicted."""
        self.change(left=[name])

    def come_back(self, name: str) -> None:
        self.look(f"{name}'" if name in self.history.change_group().members else name)

    def check(self) -> None:
        group = self.history.state.groups.get("g", Group(0, {}, {}))
        held = [place for each in group.members.values() for place in (*each.assigned, *each.revoking)]
        assert len(held) == len(set(held))
        if group.members:
            assert set(held) == set(self.history.state.topics[TOPIC_ID].partition_ids())
        for name, places in self.reads.items():
            assert {place for place in places if self.may_commit(name, place)} == self.kept[name]
        kept = [place for places in self.kept.values() for place in places]
        assert len(kept) == len(set(kept))

    def may_commit(self, name: str, place: PartitionId) -> bool:
        draft: Draft = new_draft(self.history.state, self.history.slot + 1)
        committed = offsets_of("g", 1, self.generations[name], name, partition=place.partition)
        try:
            check_offsets(draft, committed)
        except Exception:
            return False
        return True


@given(st.data())
def test_a_member_may_commit_what_it_read_if_it_has_kept_the_partition_at_all_times_since(data: st.DataObject) -> None:
    run = Handover(data)
    for _ in range(data.draw(st.integers(1, 25))):
        run.step()
        run.check()


@given(st.data())
def test_when_all_have_looked_twice_each_reads_its_part_of_the_final_generation(data: st.DataObject) -> None:
    run = Handover(data)
    for _ in range(data.draw(st.integers(1, 25))):
        run.step()
    members = list(run.history.change_group(joining("m1")).members)
    for _ in range(2):
        for name in members:
            run.history.change_group(revoked=[name])
    group = run.history.change_group()

    loads = [len(member.assigned) for member in group.members.values()]
    assert revoking(group) == {}
    assert max(loads) - min(loads) <= 1
    assert sum(loads) == run.history.state.topics[TOPIC_ID].partitions
