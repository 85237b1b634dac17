"""Consumer groups: generations, committed offsets, and who reads what."""

from __future__ import annotations

from eoslog.errors import IllegalGeneration, InvalidEntry, UnknownMember, UnknownTopicOrPartition
from eoslog.rules.coordinator import end_request, end_transaction
from eoslog.rules.entries import GroupChanged, GroupMember, OffsetsCommitted
from eoslog.rules.groups import assignment, committed_offset
from eoslog.rules.names import PartitionId, TopicPartition
from tests.unit.rules.histories import OTHER_TOPIC_ID, TOPIC_ID, History, offsets_of, topic_created

PLACE = PartitionId(TOPIC_ID, 0)


def change(history: History, generation: int, joined: tuple[str, ...] = (), left: tuple[str, ...] = ()) -> None:
    entry = GroupChanged(
        group="g",
        generation=generation,
        joined=tuple(GroupMember(member_id=name, topics=("t",)) for name in joined),
        left=left,
        time_ms=0,
    )
    history.append(lambda draft: draft.append(entry))


def commit(history: History, offset: int, generation: int = -1, member_id: str = "") -> None:
    entry = OffsetsCommitted(committed=offsets_of("g", offset, generation, member_id), time_ms=0)
    history.append(lambda draft: draft.append(entry))


def position(history: History) -> int | None:
    found = committed_offset(history.state, "g", PLACE)
    return None if found is None else found.offset


def test_offsets_of_a_transaction_count_from_the_slot_that_commits_it() -> None:
    history = History()
    identity = history.init()
    commit(history, 5)

    history.commit(identity, offsets=(offsets_of("g", 42),))

    found = committed_offset(history.state, "g", PLACE)
    assert found is not None
    assert (found.offset, found.slot) == (42, history.slot)


def test_the_later_slot_wins() -> None:
    history = History()
    identity = history.init()
    history.commit(identity, offsets=(offsets_of("g", 42),))
    commit(history, 7)

    assert position(history) == 7


def test_the_generation_is_checked_at_the_slot_that_commits() -> None:
    history = History()
    identity = history.init()
    change(history, 1, joined=("m1",))
    request = end_request("tx", identity, "commit", offsets=(offsets_of("g", 42, 1, "m1"),), time_ms=0)
    change(history, 2, joined=("m2",))

    assert isinstance(history.refused(lambda draft: end_transaction(draft, request)), IllegalGeneration)
    assert position(history) is None
    current = end_request("tx", identity, "commit", offsets=(offsets_of("g", 42, 2, "m1"),), time_ms=0)
    history.append(lambda draft: end_transaction(draft, current))


def test_a_member_that_left_commits_nothing_even_at_the_current_generation() -> None:
    history = History()
    change(history, 1, joined=("m1", "m2"))
    change(history, 2, left=("m1",))
    entry = OffsetsCommitted(committed=offsets_of("g", 42, 2, "m1"), time_ms=0)

    assert isinstance(history.refused(lambda draft: draft.append(entry)), UnknownMember)


def test_offsets_from_outside_of_the_groups_protocol_are_accepted() -> None:
    history = History()
    change(history, 1, joined=("m1",))
    commit(history, 9)

    assert position(history) == 9


def test_offsets_of_a_topic_that_is_no_more_are_refused_and_those_stored_are_forgotten() -> None:
    history = History()
    commit(history, 9)
    history.delete_topic()
    history.append(lambda draft: draft.append(topic_created("t", OTHER_TOPIC_ID)))

    assert committed_offset(history.state, "g", PLACE) is None
    assert committed_offset(history.state, "g", PartitionId(OTHER_TOPIC_ID, 0)) is None
    entry = OffsetsCommitted(committed=offsets_of("g", 9), time_ms=0)
    assert isinstance(history.refused(lambda draft: draft.append(entry)), UnknownTopicOrPartition)


def test_of_two_changes_of_one_generation_the_second_is_refused() -> None:
    history = History()
    change(history, 1, joined=("m1",))
    entry = GroupChanged(group="g", generation=1, joined=(GroupMember(member_id="m2", topics=()),), time_ms=0)

    assert isinstance(history.refused(lambda draft: draft.append(entry)), IllegalGeneration)


def test_a_generation_without_a_change_is_invalid() -> None:
    history = History()
    change(history, 1, joined=("m1",))
    entry = GroupChanged(group="g", generation=2, joined=(GroupMember(member_id="m1", topics=("t",)),), time_ms=0)

    assert isinstance(history.refused(lambda draft: draft.append(entry)), InvalidEntry)


def test_partitions_are_dealt_out_among_the_members_that_subscribe() -> None:
    history = History(partitions=3)
    change(history, 1, joined=("m2", "m1"))

    assert assignment(history.state, history.state.groups["g"]) == {
        "m1": [TopicPartition("t", 0), TopicPartition("t", 2)],
        "m2": [TopicPartition("t", 1)],
    }
    history.delete_topic()
    assert assignment(history.state, history.state.groups["g"]) == {"m1": [], "m2": []}
