"""The assignment of a group's partitions: balanced, each partition to one member, and moved only if it must be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eoslog.state.group_members import Assignment, partitions_to_read, share_out
from eoslog.state.names import PartitionId
from eoslog.state.store_state import Member, StoreState, Topic
from tests.unit.state.histories import topic_created

NAMES = ("a", "b", "c")


def state_of(**partitions: int) -> StoreState:
    state = StoreState()
    for name, count in partitions.items():
        created = topic_created(name, name * 32, count)
        topic = Topic(name, name * 32, count, created.topic_schema, created.config, 0, ())
        state.topics[topic.topic_id] = topic
        state.topic_ids[name] = topic.topic_id
    return state


def subscribers(*member_ids: str, topics: tuple[str, ...] = ("a",)) -> dict[str, Member]:
    return {member_id: Member(topics) for member_id in member_ids}


def reading(members: dict[str, Member], assignment: Assignment) -> dict[str, Member]:
    """The members when each reads what it was given; who is new reads nothing yet."""
    return {
        member_id: Member(member.topics, None, assignment.get(member_id, ())) for member_id, member in members.items()
    }


def numbers(assignment: Assignment) -> dict[str, list[int]]:
    return {member_id: [place.partition for place in places] for member_id, places in assignment.items()}


def test_partitions_are_dealt_out_in_turn() -> None:
    shared = share_out(state_of(a=5), subscribers("m1", "m2"))

    assert numbers(shared) == {"m1": [0, 2, 4], "m2": [1, 3]}


def test_a_newcomer_gets_its_part_and_nothing_else_moves() -> None:
    state = state_of(a=6)
    before = share_out(state, subscribers("m1", "m2"))
    after = share_out(state, reading(subscribers("m0", "m1", "m2"), before))

    assert numbers(before) == {"m1": [0, 2, 4], "m2": [1, 3, 5]}
    assert numbers(after) == {"m0": [4, 5], "m1": [0, 2], "m2": [1, 3]}


def test_only_the_partitions_of_a_member_that_left_move() -> None:
    state = state_of(a=6)
    before = share_out(state, subscribers("m1", "m2", "m3"))
    after = share_out(state, reading(subscribers("m1", "m3"), before))

    assert set(before["m1"]) < set(after["m1"])
    assert set(before["m3"]) < set(after["m3"])


def test_loads_of_several_topics_are_balanced_together() -> None:
    shared = share_out(state_of(a=1, b=1, c=1), subscribers("m1", "m2", "m3", topics=NAMES))

    assert sorted(len(places) for places in shared.values()) == [1, 1, 1]


def test_a_member_reads_only_topics_to_which_it_subscribes() -> None:
    members = subscribers("m1", topics=("a",)) | subscribers("m2", topics=("a", "b"))
    shared = share_out(state_of(a=2, b=2), members)

    assert numbers(shared) == {"m1": [0, 1], "m2": [0, 1]}
    assert {place.topic_id[0] for place in shared["m1"]} == {"a"}


def test_topics_that_are_not_there_are_left_out() -> None:
    assert share_out(state_of(), subscribers("m1")) == {"m1": ()}


def test_a_revoked_partition_is_free_and_returns_if_nobody_has_less() -> None:
    t0, t1 = (PartitionId("a" * 32, number) for number in (0, 1))
    state = state_of(a=2)
    gives_up = {"m1": Member(("a",), None, (t0,), (t1,)), "m2": Member(("a",))}

    assert share_out(state, gives_up)["m2"] == (t1,)
    assert share_out(state, {"m1": gives_up["m1"]}) == {"m1": (t0, t1)}


@st.composite
def groups(draw: st.DrawFn) -> tuple[StoreState, dict[str, Member]]:
    """A group in which the members read any part of what they may, as it is after any history."""
    state = state_of(**{name: draw(st.integers(1, 8)) for name in NAMES})
    members = {
        f"m{number}": Member(tuple(sorted(draw(st.sets(st.sampled_from(NAMES), min_size=1)))))
        for number in range(draw(st.integers(1, 6)))
    }
    owned: dict[str, list[PartitionId]] = {member_id: [] for member_id in members}
    for name, places in partitions_to_read(state, members).items():
        may_read = [member_id for member_id, member in members.items() if name in member.topics]
        for place in places:
            owner = draw(st.sampled_from([None, *may_read]))
            if owner is not None:
                owned[owner].append(place)
    return state, {
        member_id: Member(member.topics, None, tuple(sorted(owned[member_id]))) for member_id, member in members.items()
    }


@given(groups())
def test_every_partition_has_one_reader_who_subscribes_to_it(group: tuple[StoreState, dict[str, Member]]) -> None:
    state, members = group
    shared = share_out(state, members)

    given_out = [place for places in shared.values() for place in places]
    assert sorted(given_out) == sorted(
        place for places in partitions_to_read(state, members).values() for place in places
    )
    for member_id, places in shared.items():
        assert {state.topics[place.topic_id].topic for place in places} <= set(members[member_id].topics)


@given(groups())
def test_no_subscriber_has_two_partitions_fewer_than_who_reads_one_of_the_topic(
    group: tuple[StoreState, dict[str, Member]],
) -> None:
    state, members = group
    shared = share_out(state, members)

    for places in shared.values():
        for place in places:
            topic = state.topics[place.topic_id].topic
            for other, member in members.items():
                if topic in member.topics:
                    assert len(places) - len(shared[other]) <= 1


@given(groups())
def test_a_balanced_assignment_stays_as_it_is(group: tuple[StoreState, dict[str, Member]]) -> None:
    state, members = group
    shared = share_out(state, members)

    assert share_out(state, reading(members, shared)) == shared


@given(st.integers(1, 30), st.integers(1, 8), st.data())
def test_among_equals_as_few_partitions_move_as_a_balance_allows(count: int, size: int, data: st.DataObject) -> None:
    state = state_of(a=count)
    names = [f"m{number}" for number in range(size)]
    owners = data.draw(st.lists(st.sampled_from(names), min_size=count, max_size=count))
    owned = {name: tuple(PartitionId("a" * 32, n) for n, each in enumerate(owners) if each == name) for name in names}
    shared = share_out(state, {name: Member(("a",), None, owned[name]) for name in names})

    moved = sum(len(set(owned[name]) - set(shared[name])) for name in names)
    least, with_one_more = divmod(count, size)
    loads = sorted((len(owned[name]) for name in names), reverse=True)
    quotas = [least + (at < with_one_more) for at in range(size)]
    assert moved == sum(max(0, load - quota) for load, quota in zip(loads, quotas, strict=True))
