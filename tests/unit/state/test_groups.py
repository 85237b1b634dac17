"""Offsets of consumer groups: who may commit them, and when they are forgotten."""

from __future__ import annotations

import pytest

from eoslog.errors import (
    CommitFailed,
    EosLogError,
    FencedInstanceId,
    IllegalGeneration,
    UnknownMember,
    UnknownTopicOrPartition,
)
from eoslog.state.end_requests import EndTransaction, TransactionContent, end_request
from eoslog.state.group_entries import GroupOffsets, OffsetsCommitted
from eoslog.state.groups import committed_offset
from eoslog.state.names import PartitionId
from tests.unit.state.histories import NOW_MS, OTHER_TOPIC_ID, TOPIC_ID, History, joining, offsets_of, topic_created

PLACE = PartitionId(TOPIC_ID, 0)


def commit(history: History, offset: int, generation: int = -1, member_id: str = "") -> None:
    entry = OffsetsCommitted(committed=offsets_of("g", offset, generation, member_id), time_ms=history.now_ms)
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
    assert (found.offset, found.slot, found.commit_ms) == (42, history.slot, NOW_MS)


def test_the_later_slot_wins() -> None:
    history = History()
    identity = history.init()
    history.commit(identity, offsets=(offsets_of("g", 42),))
    commit(history, 7)

    assert position(history) == 7


# Who may commit (KIP-447)


def two_members() -> History:
    """At generation 2; ``m1``, a static member, reads partition 0 and ``m2`` partition 1."""
    history = History()
    history.change_group(joining("m1", instance="i1"))
    history.change_group(joining("m2"))
    history.change_group(revoked=["m1"])
    return history


def two_members_and_one_that_left() -> History:
    """At generation 4; ``m1`` reads partition 0 since generation 1 and ``m2`` partition 1 since generation 2."""
    history = two_members()
    history.change_group(joining("m3"))
    history.change_group(left=["m3"])
    return history


def came_back() -> History:
    """At generation 3; ``m1`` reads partition 0 since generation 1, and again partition 1, which ``m2`` had."""
    history = two_members()
    history.change_group(left=["m2"])
    return history


REFUSED: dict[str, tuple[GroupOffsets, type[EosLogError]]] = {
    "a generation before the member had the partition": (offsets_of("g", 42, 1, "m2", partition=1), IllegalGeneration),
    "a generation that is over, for a partition given up": (
        offsets_of("g", 42, 1, "m1", partition=1),
        IllegalGeneration,
    ),
    "a generation that is not yet": (offsets_of("g", 42, 3, "m1"), IllegalGeneration),
    "a member id without a generation": (offsets_of("g", 42, -1, "m1"), IllegalGeneration),
    "a generation without a member id": (offsets_of("g", 42, 2), UnknownMember),
    "one that is no member": (offsets_of("g", 42, 2, "m3"), UnknownMember),
    "another than holds the instance id": (offsets_of("g", 42, 2, "m2", instance="i1"), FencedInstanceId),
    "one that is no member, under its instance id": (offsets_of("g", 42, 2, "m3", instance="i1"), FencedInstanceId),
    "an instance id that nobody holds": (offsets_of("g", 42, 2, "m3", instance="i3"), UnknownMember),
    "an instance id alone": (offsets_of("g", 42, instance="i1"), FencedInstanceId),
    "a partition that is another member's": (offsets_of("g", 42, 2, "m2"), IllegalGeneration),
}


@pytest.mark.scenario(162)
@pytest.mark.parametrize(("committed", "error"), REFUSED.values(), ids=REFUSED.keys())
def test_offsets_are_refused_from(committed: GroupOffsets, error: type[EosLogError]) -> None:
    history = two_members()
    identity = history.init()
    request = end_request("tx", identity, "commit", content=TransactionContent(offsets=(committed,)), time_ms=0)
    plain = OffsetsCommitted(committed=committed, time_ms=0)

    assert type(history.refused(lambda draft: EndTransaction(request).apply(draft))) is error
    assert type(history.refused(lambda draft: draft.append(plain))) is error
    assert position(history) is None


def may_commit(history: History, committed: GroupOffsets) -> bool:
    """Whether a commit is accepted; a transaction gets the same answer as a plain commit."""
    request = end_request("tx", history.init(), "commit", content=TransactionContent(offsets=(committed,)), time_ms=0)
    answers = []
    for propose in (
        lambda draft: EndTransaction(request).apply(draft),
        lambda draft: draft.append(OffsetsCommitted(committed=committed, time_ms=0)),
    ):
        try:
            history.append(propose)
        except IllegalGeneration:
            answers.append(False)
        else:
            answers.append(True)
    assert len(set(answers)) == 1
    return answers[0]


@pytest.mark.parametrize("generation", [1, 2, 3, 4])
def test_a_partition_that_its_member_has_kept_is_accepted_at_each_generation_since(generation: int) -> None:
    history = two_members_and_one_that_left()

    assert may_commit(history, offsets_of("g", 42, generation, "m1"))
    assert may_commit(history, offsets_of("g", 42, generation, "m2", partition=1)) == (generation >= 2)


def test_a_partition_that_its_member_must_give_up_is_accepted_at_the_generation_before() -> None:
    history = History()
    history.change_group(joining("m1"))
    history.change_group(joining("m2"))

    assert may_commit(history, offsets_of("g", 42, 1, "m1", partition=1))
    history.change_group(revoked=["m1"])
    assert not may_commit(history, offsets_of("g", 42, 1, "m1", partition=1))


@pytest.mark.parametrize("generation", [1, 2, 3])
def test_a_partition_that_came_back_is_refused_at_the_generations_before(generation: int) -> None:
    history = came_back()

    assert may_commit(history, offsets_of("g", 42, generation, "m1", partition=1)) == (generation == 3)
    assert may_commit(history, offsets_of("g", 42, generation, "m1", partition=0))


def test_a_partition_that_was_never_handed_over_stays_its_members() -> None:
    history = History()
    history.change_group(joining("m1"))
    history.change_group(joining("m2"))
    history.change_group(left=["m2"])

    assert may_commit(history, offsets_of("g", 42, 1, "m1", partition=1))


def test_a_partition_that_nobody_in_the_group_reads_is_refused_at_an_earlier_generation() -> None:
    history = two_members()
    history.append(lambda draft: draft.append(topic_created("u", OTHER_TOPIC_ID)))

    assert not may_commit(history, offsets_of("g", 42, 1, "m1", OTHER_TOPIC_ID))
    assert may_commit(history, offsets_of("g", 42, 2, "m1", OTHER_TOPIC_ID))


def test_a_refused_commit_says_to_poll_again() -> None:
    history = came_back()
    plain = OffsetsCommitted(committed=offsets_of("g", 42, 1, "m1", partition=1), time_ms=0)
    unknown = OffsetsCommitted(committed=offsets_of("g", 42, 3, "m2", partition=1), time_ms=0)

    for entry in (plain, unknown):
        error = history.refused(lambda draft, entry=entry: draft.append(entry))
        assert isinstance(error, CommitFailed)
        assert "Poll again" in str(error)


@pytest.mark.scenario(162)
@pytest.mark.parametrize(
    "committed",
    [offsets_of("g", 42, 0), offsets_of("g", 42, 3, "m1"), offsets_of("g", 42, 3, "m1", instance="i1")],
)
def test_a_group_that_is_not_there_is_at_no_generation(committed: GroupOffsets) -> None:
    history = History()
    identity = history.init()
    content = TransactionContent(offsets=(committed,))
    request = end_request("tx", identity, "commit", content=content, time_ms=0)

    assert isinstance(history.refused(lambda draft: EndTransaction(request).apply(draft)), IllegalGeneration)


@pytest.mark.parametrize("instance", [None, "i1"])
def test_offsets_are_accepted_from_the_partitions_member_at_the_groups_generation(instance: str | None) -> None:
    history = two_members()
    committed = offsets_of("g", 42, 2, "m1", instance=instance)
    history.commit(history.init(), offsets=(committed,))
    plain = OffsetsCommitted(committed=committed, time_ms=0)
    history.append(lambda draft: draft.append(plain))

    assert position(history) == 42


def test_offsets_of_a_partition_that_nobody_in_the_group_reads_are_any_members() -> None:
    history = two_members()
    history.append(lambda draft: draft.append(topic_created("u", OTHER_TOPIC_ID)))
    history.commit(history.init(), offsets=(offsets_of("g", 42, 2, "m2", OTHER_TOPIC_ID),))

    assert committed_offset(history.state, "g", PartitionId(OTHER_TOPIC_ID, 0)) is not None


def test_the_generation_is_checked_at_the_slot_that_commits() -> None:
    history = History()
    identity = history.init()
    history.change_group(joining("m1"))
    content = TransactionContent(offsets=(offsets_of("g", 42, 1, "m1"),))
    request = end_request("tx", identity, "commit", content=content, time_ms=0)
    history.change_group(joining("m2"), left=["m1"])
    history.change_group(joining("m1"))
    history.change_group(revoked=["m2"])

    assert isinstance(history.refused(lambda draft: EndTransaction(request).apply(draft)), IllegalGeneration)
    content = TransactionContent(offsets=(offsets_of("g", 42, 3, "m1", partition=1),))
    current = end_request("tx", identity, "commit", content=content, time_ms=0)
    history.append(lambda draft: EndTransaction(current).apply(draft).identity)


def test_only_a_transaction_commits_offsets_without_a_member_while_members_exist() -> None:
    history = History()
    commit(history, 7)
    history.change_group(joining("m1"))
    history.commit(history.init(), offsets=(offsets_of("g", 9),))
    plain = OffsetsCommitted(committed=offsets_of("g", 11), time_ms=0)

    assert isinstance(history.refused(lambda draft: draft.append(plain)), UnknownMember)
    assert position(history) == 9
    history.change_group(left=["m1"])
    commit(history, 12)


def test_offsets_of_a_deleted_topic_are_refused_and_forgotten() -> None:
    history = History()
    commit(history, 9)
    history.delete_topic()
    history.append(lambda draft: draft.append(topic_created("t", OTHER_TOPIC_ID)))

    assert committed_offset(history.state, "g", PLACE) is None
    assert committed_offset(history.state, "g", PartitionId(OTHER_TOPIC_ID, 0)) is None
    entry = OffsetsCommitted(committed=offsets_of("g", 9), time_ms=0)
    assert isinstance(history.refused(lambda draft: draft.append(entry)), UnknownTopicOrPartition)
