"""Groups and offsets that are forgotten: deleted, or expired."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eoslog.errors import GroupIdNotFound, GroupNotEmpty, GroupSubscribedToTopic, InvalidEntry, UnknownMember
from eoslog.format.checkpoint_codec import parts, restore
from eoslog.state.draft import Draft
from eoslog.state.expiry import NEVER, OFFSETS_RETENTION_MS
from eoslog.state.group_entries import GroupDeleted, GroupMember, GroupOffsetsDeleted, OffsetPlace, OffsetsCommitted
from eoslog.state.groups import committed_offset
from eoslog.state.names import PartitionId
from eoslog.state.pending_offsets import pending_partitions
from tests.unit.state.histories import NOW_MS, TOPIC_ID, History, coordinating, joining, offsets_of, planned_expiry
from tests.unit.state.test_groups import commit, position


def delete_offsets(draft: Draft) -> None:
    place = OffsetPlace(topic_id=TOPIC_ID, partition=0)
    draft.append(GroupOffsetsDeleted(group="g", partitions=(place,)))


def delete_group(draft: Draft) -> None:
    draft.append(GroupDeleted(group="g"))


def test_offsets_that_are_deleted_are_gone_and_the_group_stays() -> None:
    history = History()
    commit(history, 9)
    history.append(delete_offsets)

    assert position(history) is None
    assert "g" in history.state.groups
    assert isinstance(history.refused(delete_offsets), InvalidEntry)


@pytest.mark.parametrize("member", [joining, coordinating])
def test_offsets_of_a_topic_to_which_a_member_subscribes_are_not_deleted(member: Callable[..., GroupMember]) -> None:
    history = History()
    commit(history, 9)
    history.change_group(member("m1"))

    assert isinstance(history.refused(delete_offsets), GroupSubscribedToTopic)
    history.change_group(member("m1", "another"))
    history.append(delete_offsets)


@pytest.mark.scenario(162)
def test_a_group_with_members_is_not_deleted_and_one_without_is_gone() -> None:
    history = History()
    commit(history, 9)
    history.change_group(joining("m1"))
    assert isinstance(history.refused(delete_group), GroupNotEmpty)

    history.change_group(left=["m1"])
    history.append(delete_group)

    assert history.state.groups == {}
    assert isinstance(history.refused(delete_group), GroupIdNotFound)
    assert isinstance(history.refused(delete_offsets), GroupIdNotFound)


def test_a_member_of_a_group_that_was_deleted_commits_nothing_to_its_successor() -> None:
    history = History()
    history.change_group(joining("m1"))
    history.change_group(left=["m1"])
    history.append(delete_group)
    history.change_group(joining("m2"))
    late = OffsetsCommitted(committed=offsets_of("g", 9, 1, "m1"), time_ms=0)

    assert isinstance(history.refused(lambda draft: draft.append(late)), UnknownMember)


# Expiry


def expire(history: History, retention_ms: int = OFFSETS_RETENTION_MS) -> bool:
    """Whether something expired."""
    planned = planned_expiry(history.state, history.now_ms, offsets_retention_ms=retention_ms)
    if planned is not None:
        history.append(lambda draft: draft.append(planned))
    return planned is not None


def test_without_members_offsets_and_then_the_group_expire() -> None:
    history = History()
    commit(history, 9)
    history.now_ms += 1000
    identity = history.init()
    history.commit(identity, offsets=(offsets_of("g", 3, partition=1),))
    history.now_ms = NOW_MS + OFFSETS_RETENTION_MS - 1
    assert not expire(history)
    history.now_ms += 1
    assert expire(history)
    assert position(history) is None
    assert committed_offset(history.state, "g", PartitionId(TOPIC_ID, 1)) is not None

    history.now_ms += 1000
    assert expire(history)
    assert "g" not in history.state.groups


@pytest.mark.parametrize("member", [joining, coordinating])
def test_offsets_expire_by_the_time_their_group_became_empty(member: Callable[..., GroupMember]) -> None:
    history = History()
    history.change_group(member("m1"))
    commit(history, 9, 1, "m1")
    history.now_ms += 10 * OFFSETS_RETENTION_MS
    assert not expire(history)
    history.change_group(left=["m1"])
    left_ms = history.now_ms
    history.now_ms = left_ms + OFFSETS_RETENTION_MS - 1
    assert not expire(history)
    history.now_ms += 1

    assert expire(history)
    assert "g" not in history.state.groups


@pytest.mark.parametrize("member", [joining, coordinating])
def test_offsets_of_topics_to_which_no_member_subscribes_any_more_expire_by_their_commit(
    member: Callable[..., GroupMember],
) -> None:
    history = History()
    commit(history, 9)
    history.change_group(member("m1", "another"))
    history.now_ms += OFFSETS_RETENTION_MS

    assert expire(history)
    assert position(history) is None
    assert set(history.state.groups["g"].members) == {"m1"}


def without_topics() -> GroupMember:
    """A coordinator that does not know the topics of its clients."""
    return coordinating("m1").model_copy(update={"topics": ()})


def test_no_offset_expires_while_a_coordinator_does_not_know_the_topics_of_its_clients() -> None:
    history = History()
    history.change_group(without_topics())
    commit(history, 9, 1, "m1")
    history.now_ms += 10 * OFFSETS_RETENTION_MS
    assert not expire(history)

    history.change_group(left=["m1"])
    history.now_ms += OFFSETS_RETENTION_MS
    assert expire(history)
    assert "g" not in history.state.groups


def test_no_offset_is_deleted_while_a_coordinator_does_not_know_the_topics_of_its_clients() -> None:
    history = History()
    history.change_group(without_topics())
    commit(history, 9, 1, "m1")
    assert isinstance(history.refused(delete_offsets), GroupSubscribedToTopic)

    history.change_group(left=["m1"])
    history.append(delete_offsets)


def test_an_empty_group_without_offsets_is_forgotten() -> None:
    history = History()
    history.change_group(joining("m1"))
    history.change_group(left=["m1"])
    history.now_ms += OFFSETS_RETENTION_MS

    assert expire(history)
    assert history.state.groups == {}


def test_offsets_never_expire_if_their_retention_is_never() -> None:
    history = History()
    commit(history, 9)
    history.now_ms += 100 * OFFSETS_RETENTION_MS

    assert not expire(history, NEVER)


def test_offsets_that_were_committed_or_joined_after_their_expiry_was_planned_do_not_expire() -> None:
    for moved in (lambda history: commit(history, 9), lambda history: history.change_group(joining("m1"))):
        history = History()
        commit(history, 9)
        history.now_ms += OFFSETS_RETENTION_MS
        planned = planned_expiry(history.state, history.now_ms)
        moved(history)

        assert isinstance(history.refused(lambda draft, entry=planned: draft.append(entry)), InvalidEntry)


@pytest.mark.scenario(162)
def test_an_offset_with_a_prepared_successor_does_not_expire() -> None:
    history = History()
    commit(history, 9)
    identity = history.init()
    history.prepare(identity, offsets=(offsets_of("g", 12),))
    history.now_ms += OFFSETS_RETENTION_MS

    assert not expire(history)
    history.append(delete_group)

    assert "g" not in history.state.groups


# What a prepared transaction would set


@pytest.mark.scenario(162)
@pytest.mark.parametrize("forget", [delete_offsets, delete_group])
@pytest.mark.parametrize("committed", [9, None])
@pytest.mark.parametrize("keeps", [False, True])
def test_a_commit_does_not_set_offsets_that_were_deleted_after_its_prepare(
    forget: Callable[[Draft], None], committed: int | None, keeps: bool
) -> None:
    history = History()
    if committed is not None:
        commit(history, committed)
    prepared = (offsets_of("g", 12), offsets_of("h", 13), offsets_of("h", 14, partition=1))
    identity = history.init()
    history.prepare(identity, offsets=prepared)

    history.append(forget)
    assert pending_partitions(history.state, "g") == set()
    assert isinstance(history.refused(forget), InvalidEntry if "g" in history.state.groups else GroupIdNotFound)
    assert history.prepare(identity, offsets=prepared) == identity
    history.commit(history.init(keep_prepared=True) if keeps else identity)

    assert position(history) is None
    assert sorted(offset.offset for offset in history.state.groups["h"].offsets.values()) == [13, 14]


def test_an_offset_that_is_deleted_leaves_the_others_of_its_group_pending() -> None:
    history = History()
    identity = history.init()
    history.prepare(identity, offsets=(offsets_of("g", 12), offsets_of("g", 13, partition=1)))

    history.append(delete_offsets)
    history.commit(identity)

    assert {place.partition: offset.offset for place, offset in history.state.groups["g"].offsets.items()} == {1: 13}


def test_a_deletion_of_what_a_prepared_transaction_would_set_is_in_the_next_checkpoint() -> None:
    history = History()
    history.prepare(history.init(), offsets=(offsets_of("g", 12),))

    history.append(delete_group)

    assert restore({part.name: part.encode() for part in parts(history.state, history.slot)}) == history.state
