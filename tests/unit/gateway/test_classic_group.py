"""The classic group protocol: what a client gets, by the state of its group and the request."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from eoslog.gateway.classic_group import ClassicGroup, GroupSettings
from eoslog.gateway.classic_members import subscribed_topics
from eoslog.gateway.classic_requests import GroupState, JoinAnswer, JoinRequest, MemberIdentity, SyncAnswer, SyncRequest
from eoslog.gateway.handed_over_group import HandedOverGroup
from tests.unit.gateway.classic_clients import REBALANCE_MS, SESSION_MS, Host, Reply, subscription

NONE = ErrorCode.none
REBALANCE = ErrorCode.rebalance_in_progress
UNKNOWN = ErrorCode.unknown_member_id
ILLEGAL = ErrorCode.illegal_generation
FENCED = ErrorCode.fenced_instance_id
INCONSISTENT = ErrorCode.inconsistent_group_protocol
DELAY_MS = 3_000


@pytest.fixture
def host() -> Host:
    return Host()


def next_host(host: Host) -> Host:
    """Return the coordinator to which another one has handed its group over. The one that ends answers all requests."""
    found = host.group.handed_over(host.now_ms)
    assert found is not None
    host.group.close(ErrorCode.not_coordinator)
    other = Host()
    other.now_ms, other.log_generation = host.now_ms + 5_000, host.log_generation + 1
    other.group = ClassicGroup.taken_over(
        "g",
        HandedOverGroup.model_validate_json(found.model_dump_json()),
        other.now_ms,
        settings=GroupSettings(),
        new_id=lambda: "new",
    )
    return other


# The first members


def test_a_new_member_gets_a_member_id_and_joins_with_it(host: Host) -> None:
    answer = host.join().answer
    assert (answer.error, answer.member_id) == (ErrorCode.member_id_required, "client-1")
    assert host.group.describe().state is GroupState.EMPTY
    assert not host.group.is_unused

    assert host.join("client-1").waits
    assert host.group.describe().state is GroupState.PREPARING


@pytest.mark.parametrize("instance", [None, "x" * 30_000])
def test_a_member_id_is_not_much_longer_than_others(host: Host, instance: str | None) -> None:
    reply = host.join(instance=instance, old=True, client_id="y" * 30_000)
    host.sleep(DELAY_MS)
    host.begin()
    assert reply.answer.member_id == ("y" if instance is None else "x") * 255 + "-1"


def test_a_new_member_of_an_old_client_joins_at_once(host: Host) -> None:
    reply = host.join(old=True)
    assert reply.waits
    host.sleep(DELAY_MS)
    generation = host.begin()
    assert (reply.answer.error, reply.answer.generation) == (NONE, generation)
    assert reply.answer.member_id == "client-1"


def test_a_member_id_that_no_member_uses_expires_after_the_session_timeout(host: Host) -> None:
    first, second = (host.join().answer.member_id for _ in range(2))
    host.sleep(SESSION_MS - 1)
    assert host.join(first).waits
    host.sleep(1)
    assert host.join(second).answer.error is UNKNOWN


def test_a_member_id_that_the_group_never_gave_is_unknown(host: Host) -> None:
    answer = host.join("other").answer
    assert (answer.error, answer.member_id) == (UNKNOWN, "other")
    assert host.group.is_unused


def test_the_first_generation_waits_for_the_initial_delay(host: Host) -> None:
    _, reply = host.join_new()
    host.sleep(DELAY_MS - 1)
    assert not host.group.needs_generation
    host.sleep(1)
    assert host.group.needs_generation
    assert reply.waits


def test_a_new_member_extends_the_initial_delay(host: Host) -> None:
    host.join_new()
    host.sleep(DELAY_MS - 1)
    host.join_new()
    host.sleep(DELAY_MS)
    assert not host.group.needs_generation
    host.sleep(1)
    assert host.group.needs_generation


def test_new_members_extend_the_initial_delay_up_to_the_rebalance_timeout(host: Host) -> None:
    host.join_new(rebalance_ms=10_000)
    for _ in range(9):
        host.sleep(1_000)
        host.join_new(rebalance_ms=10_000)
    host.sleep(999)
    assert not host.group.needs_generation
    host.sleep(1)
    assert host.group.needs_generation


def test_the_initial_delay_does_not_wait_for_members_that_only_have_an_id(host: Host) -> None:
    host.join_new()
    host.join()
    host.sleep(DELAY_MS)
    assert host.group.needs_generation


def test_a_group_that_is_empty_again_has_a_new_initial_delay(host: Host) -> None:
    member, reply = host.join_new()
    host.sleep(DELAY_MS - 1)
    assert host.leave((member, None)) == [NONE]
    assert (reply.answer.error, reply.answer.member_id) == (UNKNOWN, "")
    assert host.group.state is GroupState.EMPTY
    assert host.group.next_deadline_ms is None

    host.join_new()
    host.sleep(DELAY_MS - 1)
    assert not host.group.needs_generation
    host.sleep(1)
    assert host.group.needs_generation


def test_all_members_learn_the_generation_and_the_leader_learns_its_members(host: Host) -> None:
    leader, leads = host.join_new(protocols="range", metadata=b"one")
    follower, follows = host.join_new(protocols="range", metadata=b"two")
    host.sleep(REBALANCE_MS)
    host.log_generation = 41
    host.begin()

    for reply, member in ((leads, leader), (follows, follower)):
        answer = reply.answer
        assert (answer.error, answer.member_id, answer.leader) == (NONE, member, leader)
        assert (answer.generation, answer.protocol_type, answer.protocol_name) == (42, "consumer", "range")
        assert not answer.skip_assignment
    assert [(each.member_id, each.group_instance_id, each.metadata) for each in leads.answer.members] == [
        (leader, None, b"one"),
        (follower, None, b"two"),
    ]
    assert follows.answer.members == ()
    assert host.group.state is GroupState.COMPLETING


def test_generations_only_rise(host: Host) -> None:
    (member,) = host.stable(1)
    host.join(member)
    with pytest.raises(ValueError, match="generation 1 is not higher than 1"):
        host.group.begin_generation(1, host.now_ms)
    host.group.begin_generation(7, host.now_ms)
    assert host.heartbeat(member, generation=7) is NONE


@pytest.mark.parametrize(
    ("session_ms", "allowed"), [(5_999, False), (6_000, True), (1_800_000, True), (1_800_001, False)]
)
def test_a_session_timeout_outside_of_the_limits_is_refused(host: Host, session_ms: int, allowed: bool) -> None:
    reply = host.join(old=True, session_ms=session_ms)
    assert reply.waits is allowed
    if not allowed:
        assert reply.answer.error is ErrorCode.invalid_session_timeout


# Protocols


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", "range"), ("consumer", "")])
def test_the_first_member_must_have_a_protocol(host: Host, protocol_type: str, protocols: str) -> None:
    assert host.join(protocol_type=protocol_type, protocols=protocols).answer.error is INCONSISTENT
    assert host.group.is_unused


@pytest.mark.parametrize(
    ("protocol_type", "protocols"), [("connect", "range"), ("consumer", ""), ("consumer", "sticky"), ("", "range")]
)
def test_a_member_must_have_a_protocol_of_all_others(host: Host, protocol_type: str, protocols: str) -> None:
    (member,) = host.stable(1, protocols="range")
    assert host.join(protocol_type=protocol_type, protocols=protocols).answer.error is INCONSISTENT
    # A member also needs a protocol that it had before, even if it is the only one.
    answer = host.join(member, protocol_type=protocol_type, protocols=protocols).answer
    assert (answer.error, answer.member_id) == (INCONSISTENT, member)
    assert host.group.state is GroupState.STABLE


def test_the_members_vote_for_a_protocol_that_all_have(host: Host) -> None:
    replies = [
        host.join_new(protocols=protocols)[1]
        for protocols in ("range roundrobin", "other roundrobin range", "roundrobin range")
    ]
    host.sleep(REBALANCE_MS)
    host.begin()
    assert {each.answer.protocol_name for each in replies} == {"roundrobin"}


def test_an_empty_group_takes_another_protocol_type(host: Host) -> None:
    (member,) = host.stable(1)
    host.leave((member, None))
    assert host.join_new(protocol_type="connect", protocols="sessioned")[1].waits
    assert host.group.describe().protocol_type == "connect"


# The size of a group


def test_a_full_group_refuses_new_members() -> None:
    host = Host(max_size=2)
    pending = host.join().answer.member_id
    leader, follower = host.stable(2)
    for member_id in ("", pending):
        answer = host.join(member_id).answer
        assert (answer.error, answer.member_id) == (ErrorCode.group_max_size_reached, "")
    assert host.join(follower).answer.error is NONE

    # A pending member that was refused is forgotten, so the group does not wait for it.
    assert host.join(leader).waits
    assert host.join(follower).waits
    assert host.group.needs_generation


def test_a_full_group_keeps_the_members_that_join_first(host: Host) -> None:
    leader, second, last = host.stable(3)
    host.group._settings = GroupSettings(max_size=2)
    replies = [host.join(leader), host.join(second)]
    assert host.join(second).waits, "a member that waits may repeat its request"
    assert host.join(last).answer.error is ErrorCode.group_max_size_reached
    host.begin()
    assert replies[0].answer.error is NONE
    assert host.heartbeat(last) is UNKNOWN


# CompletingRebalance


def completing(host: Host, members: int, **request: Any) -> list[str]:
    joined = [host.join_new(**request)[0] for _ in range(members)]
    host.sleep(REBALANCE_MS)
    host.begin()
    return joined


def test_followers_wait_for_the_assignment_of_the_leader(host: Host) -> None:
    leader, follower, late = completing(host, 3)
    waiting = host.sync(follower)
    assert waiting.waits

    leads = host.sync(leader, {follower: b"b", leader: b"a", late: b"c", "other": b"d"})
    assert (leads.answer.error, leads.answer.assignment) == (NONE, b"a")
    assert (leads.answer.protocol_type, leads.answer.protocol_name) == ("consumer", "range")
    assert waiting.answer.assignment == b"b"
    assert host.group.state is GroupState.STABLE
    assert host.sync(late).answer.assignment == b"c"
    assert host.sync(follower).answer.assignment == b"b"


def test_assignments_of_followers_do_not_count(host: Host) -> None:
    leader, follower = completing(host, 2)
    waiting = host.sync(follower, {follower: b"all"})
    host.sync(leader, {leader: b"a"})
    assert (waiting.answer.error, waiting.answer.assignment) == (NONE, b"")
    host.sync(leader, {leader: b"other"})
    assert host.sync(leader).answer.assignment == b"a"


def test_a_sync_needs_the_member_the_generation_and_the_protocol(host: Host) -> None:
    leader, _ = completing(host, 2)
    assert host.sync("other").answer.error is UNKNOWN
    assert host.sync(leader, instance="i").answer.error is UNKNOWN
    for generation in (host.group.generation - 1, host.group.generation + 1):
        assert host.sync(leader, generation=generation).answer.error is ILLEGAL
    for wrong in ({"protocol_type": "connect"}, {"protocol_name": "sticky"}, {"needs_protocol": True}):
        assert host.sync(leader, **wrong).answer.error is INCONSISTENT
    right = host.sync(leader, needs_protocol=True, protocol_type="consumer", protocol_name="range")
    assert right.answer.error is NONE


def test_a_member_that_lost_its_generation_gets_it_again(host: Host) -> None:
    leader, follower = completing(host, 2)
    again = [host.join(each).answer for each in (leader, follower)]
    assert [(each.error, each.generation, each.leader) for each in again] == [(NONE, 1, leader)] * 2
    assert [each.member_id for each in again[0].members] == [leader, follower]
    assert again[1].members == ()
    assert host.group.state is GroupState.COMPLETING


@pytest.mark.parametrize("change", [{"metadata": b"new"}, {"protocols": "range sticky"}])
def test_new_metadata_in_a_rebalance_starts_it_again(host: Host, change: dict[str, Any]) -> None:
    leader, follower = completing(host, 2)
    waiting = host.sync(follower)
    assert host.join(leader, **change).waits
    assert (waiting.answer.error, waiting.answer.protocol_name) == (REBALANCE, None)
    assert host.group.state is GroupState.PREPARING


def test_a_new_member_in_a_rebalance_starts_it_again(host: Host) -> None:
    leader, follower = completing(host, 2)
    waiting = host.sync(follower)
    host.join_new()
    assert waiting.answer.error is REBALANCE
    assert host.sync(leader, {leader: b"a"}).answer.error is REBALANCE


def test_a_new_rebalance_ends_the_sync_timeout_of_the_last(host: Host) -> None:
    members = completing(host, 2, session_ms=200_000)
    host.sleep(REBALANCE_MS - 1)
    host.join_new()
    host.sleep(1)
    assert [host.heartbeat(each) for each in members] == [REBALANCE, REBALANCE]


def test_a_member_without_its_assignment_sends_heartbeats_but_commits_only_in_transactions(host: Host) -> None:
    (member,) = completing(host, 1)
    assert host.heartbeat(member) is NONE
    assert host.commit(member) is REBALANCE
    assert host.commit(member, in_transaction=True) is NONE


def test_members_that_do_not_sync_within_the_rebalance_timeout_are_removed(host: Host) -> None:
    leader, follower = completing(host, 2)
    waiting = host.sync(follower)
    for _ in range(REBALANCE_MS // 5_000 - 1):
        host.sleep(5_000)
        assert host.heartbeat(leader) is NONE
    host.sleep(4_999)
    assert waiting.waits
    host.sleep(1)
    assert waiting.answer.error is REBALANCE
    assert host.heartbeat(leader) is UNKNOWN
    assert host.heartbeat(follower) is REBALANCE
    reply = host.join(follower)
    host.begin()
    assert reply.answer.leader == follower


def test_followers_must_sync_in_a_stable_group_too(host: Host) -> None:
    leader, follower = completing(host, 2)
    host.sync(leader, {leader: b"a", follower: b"b"})
    for _ in range(REBALANCE_MS // 5_000):
        assert [host.heartbeat(each) for each in (leader, follower)] == [NONE, NONE]
        host.sleep(5_000)
    assert [host.heartbeat(each) for each in (leader, follower)] == [REBALANCE, UNKNOWN]


def test_a_group_whose_members_have_all_synced_has_no_sync_timeout(host: Host) -> None:
    (member,) = host.stable(1, session_ms=100_000)
    host.sleep(REBALANCE_MS)
    assert host.group.state is GroupState.STABLE
    assert host.heartbeat(member) is NONE


def test_a_member_that_leaves_while_its_sync_waits_gets_an_answer(host: Host) -> None:
    leader, follower = completing(host, 2)
    waiting = host.sync(follower)
    assert host.leave((follower, None)) == [NONE]
    assert waiting.answer.error is UNKNOWN
    assert host.sync(leader).answer.error is REBALANCE


def test_a_session_does_not_end_while_a_sync_waits_and_begins_after_it(host: Host) -> None:
    leader, follower = completing(host, 2)
    waiting = host.sync(follower)
    for _ in range(3):
        host.sleep(SESSION_MS - 1)
        assert host.heartbeat(leader) is NONE
    host.sync(leader, {follower: b"b"})
    assert waiting.answer.assignment == b"b"
    host.sleep(SESSION_MS - 1)
    assert host.heartbeat(follower) is NONE


def test_a_repeated_sync_takes_the_place_of_the_first(host: Host) -> None:
    leader, follower = completing(host, 2)
    first, second = host.sync(follower), host.sync(follower)
    assert first.answer.error is REBALANCE
    host.sync(leader, {follower: b"b"})
    assert second.answer.assignment == b"b"


# Stable


def test_a_follower_that_joins_again_unchanged_gets_the_current_generation(host: Host) -> None:
    leader, follower = host.stable(2)
    answer = host.join(follower).answer
    assert (answer.error, answer.generation, answer.leader, answer.members) == (NONE, 1, leader, ())
    assert host.group.state is GroupState.STABLE


def test_a_leader_that_joins_again_starts_a_rebalance(host: Host) -> None:
    leader, follower = host.stable(2)
    reply = host.join(leader)
    assert reply.waits
    assert host.heartbeat(follower) is REBALANCE
    assert not host.group.needs_generation
    host.join(follower)
    assert host.begin() == 2
    assert (reply.answer.generation, reply.answer.leader) == (2, leader)


@pytest.mark.parametrize("change", [{"metadata": b"new"}, {"protocols": "range"}, {"protocols": "sticky range"}])
def test_a_follower_that_joins_again_changed_starts_a_rebalance(host: Host, change: dict[str, Any]) -> None:
    _, follower = host.stable(2, protocols="range sticky", metadata=b"old")
    unchanged: dict[str, Any] = {"protocols": "range sticky", "metadata": b"old"}
    assert host.join(follower, **unchanged).answer.error is NONE
    assert host.join(follower, **unchanged | change).waits


def test_heartbeats_and_commits_need_the_member_and_its_generation(host: Host) -> None:
    leader, _ = host.stable(2)
    for ask in (host.heartbeat, host.commit, lambda *given, **more: host.commit(*given, **more, in_transaction=True)):
        assert ask(leader) is NONE
        assert ask("other") is UNKNOWN
        assert ask(leader, "instance") is UNKNOWN
        assert ask(leader, generation=0) is ILLEGAL
        assert ask(leader, generation=2) is ILLEGAL
        assert ask(leader, generation=-1) is ILLEGAL


def test_a_new_member_has_no_generation_yet(host: Host) -> None:
    host.stable(1)
    member, _ = host.join_new()
    assert host.heartbeat(member) is ILLEGAL
    assert host.commit(member) is ILLEGAL
    assert host.sync(member).answer.error is ILLEGAL


def test_only_transactions_commit_without_a_member_in_a_group_with_members(host: Host) -> None:
    for in_transaction in (False, True):
        assert host.commit("", generation=-1, in_transaction=in_transaction) is NONE
        assert host.commit("other", generation=1, in_transaction=in_transaction) is UNKNOWN
    host.stable(1)
    assert host.commit("", generation=-1) is UNKNOWN
    assert host.commit("", generation=-1, in_transaction=True) is NONE
    assert host.commit("", "instance", generation=-1, in_transaction=True) is UNKNOWN


def test_a_silent_member_is_removed_after_its_session_timeout(host: Host) -> None:
    leader, follower = host.stable(2)
    host.sleep(SESSION_MS - 1)
    assert host.heartbeat(follower) is NONE
    host.sleep(1)
    assert host.heartbeat(leader) is UNKNOWN
    assert host.heartbeat(follower) is REBALANCE
    assert host.commit(follower) is NONE, "a member may commit before it joins again"
    assert host.group.describe().members[0].member_id == follower


@pytest.mark.parametrize(("in_transaction", "lives"), [(False, True), (True, False)])
def test_commits_keep_the_session_unless_in_a_transaction(host: Host, in_transaction: bool, lives: bool) -> None:
    (member,) = host.stable(1)
    host.sleep(SESSION_MS - 1)
    assert host.commit(member, in_transaction=in_transaction) is NONE
    host.sleep(1)
    assert host.heartbeat(member) is (NONE if lives else UNKNOWN)


def test_a_group_whose_members_all_fall_silent_is_empty_and_unused(host: Host) -> None:
    host.stable(3)
    host.sleep(SESSION_MS)
    assert host.group.state is GroupState.EMPTY
    assert host.group.is_unused
    assert host.group.next_deadline_ms is None
    assert not host.group.needs_generation


# PreparingRebalance


def test_the_rebalance_waits_for_all_members_and_pending_members(host: Host) -> None:
    leader, follower = host.stable(2)
    host.join(leader)
    pending = host.join().answer.member_id
    host.join(follower)
    assert not host.group.needs_generation
    host.join(pending)
    assert host.group.needs_generation


def test_the_rebalance_does_not_wait_for_a_pending_member_that_left_or_expired(host: Host) -> None:
    (member,) = host.stable(1)
    leaves = host.join().answer.member_id
    host.join(member)
    assert not host.group.needs_generation
    assert host.leave((leaves, None), (leaves, None)) == [NONE, UNKNOWN]
    assert host.group.needs_generation
    host.begin()
    host.assign(member)

    host.join(session_ms=6_000)
    host.join(member)
    host.sleep(6_000)
    assert host.group.needs_generation


def test_a_pending_member_that_leaves_starts_no_rebalance(host: Host) -> None:
    host.stable(1)
    pending = host.join().answer.member_id
    assert host.leave((pending, None)) == [NONE]
    assert host.group.state is GroupState.STABLE


def test_the_rebalance_timeout_begins_with_the_rebalance(host: Host) -> None:
    leader, follower, slow = host.stable(3)
    host.join(leader)
    for _ in range(REBALANCE_MS // 5_000 - 1):
        host.sleep(5_000)
        assert [host.heartbeat(each) for each in (follower, slow)] == [REBALANCE, REBALANCE]
    host.join(follower)
    host.sleep(4_999)
    assert not host.group.needs_generation
    host.sleep(1)
    assert host.group.needs_generation


def test_the_longest_rebalance_timeout_counts(host: Host) -> None:
    leader, _ = host.stable(2, session_ms=400_000, rebalance_ms=1_000)
    host.join_new(rebalance_ms=300_000, session_ms=400_000)
    host.join(leader, session_ms=400_000)
    host.sleep(299_999)
    assert not host.group.needs_generation


def test_a_repeated_join_takes_the_place_of_the_first(host: Host) -> None:
    member, first = host.join_new()
    host.sleep(DELAY_MS)
    second = host.join(member)
    assert (first.answer.error, first.answer.member_id) == (REBALANCE, member)
    host.begin()
    assert second.answer.error is NONE


def test_a_session_does_not_end_while_a_join_waits(host: Host) -> None:
    leader, follower = host.stable(2)
    reply = host.join(leader)
    for _ in range(5):
        host.sleep(SESSION_MS - 1)
        assert host.heartbeat(follower) is REBALANCE
    host.join(follower)
    host.begin()
    assert reply.answer.error is NONE
    host.sleep(SESSION_MS - 1)
    assert host.heartbeat(leader) is NONE


def test_a_new_member_whose_join_waits_is_removed_after_five_minutes(host: Host) -> None:
    (member,) = host.stable(1, rebalance_ms=1_000_000)
    new, reply = host.join_new(rebalance_ms=1_000_000)
    for _ in range(59):
        host.sleep(5_000)
        assert host.heartbeat(member) is REBALANCE
    host.sleep(4_999)
    assert reply.waits
    host.sleep(1)
    assert (reply.answer.error, reply.answer.member_id) == (UNKNOWN, "")
    assert host.join(new).answer.error is UNKNOWN


def test_the_leader_is_kept_if_it_joins(host: Host) -> None:
    leader, follower = host.stable(2)
    replies = [host.join(follower, metadata=b"new"), host.join(leader)]
    host.begin()
    assert {each.answer.leader for each in replies} == {leader}


def test_another_member_leads_after_the_leader_has_left(host: Host) -> None:
    leader, second, third = host.stable(3)
    host.leave((leader, None))
    new, _ = host.join_new()
    replies = [host.join(third), host.join(second)]
    host.begin()
    assert {each.answer.leader for each in replies} == {second}
    assert [each.member_id for each in replies[1].answer.members] == [second, third, new]


# LeaveGroup


def test_several_members_leave_with_one_request(host: Host) -> None:
    leader, follower, other = host.stable(3)
    assert host.leave((leader, None), ("unknown", None), (other, None), (other, None), ("", None)) == [
        NONE,
        UNKNOWN,
        NONE,
        UNKNOWN,
        UNKNOWN,
    ]
    assert host.heartbeat(follower) is REBALANCE
    host.join(follower)
    assert host.group.needs_generation


def test_a_group_is_empty_after_its_last_member_leaves(host: Host) -> None:
    (member,) = host.stable(1)
    assert host.leave((member, None)) == [NONE]
    assert host.group.state is GroupState.EMPTY
    assert host.group.is_unused
    for ask in (host.heartbeat, host.commit):
        assert ask(member) is UNKNOWN
    assert host.sync(member).answer.error is UNKNOWN
    assert host.leave((member, None)) == [UNKNOWN]
    assert host.join(member).answer.error is UNKNOWN


# Static members (KIP-345)


def static(host: Host, *instances: str, **request: Any) -> list[str]:
    """Return the member ids of static members of a stable group. The first one leads."""
    joined = [host.join(instance=each, **request) for each in instances]
    host.sleep(REBALANCE_MS)
    host.begin()
    member_ids = [each.answer.member_id for each in joined]
    host.assign(*member_ids)
    return member_ids


def test_a_static_member_joins_at_once_and_its_id_names_its_instance(host: Host) -> None:
    assert static(host, "one", "two") == ["one-1", "two-2"]
    assert [each.group_instance_id for each in host.group.describe().members] == ["one", "two"]


def test_a_static_member_that_starts_again_keeps_its_assignment_without_a_rebalance(host: Host) -> None:
    leader, old = static(host, "one", "two")
    answer = host.join(instance="two").answer
    assert (answer.error, answer.member_id, answer.generation) == (NONE, "two-3", 1)
    assert (answer.leader, answer.members, answer.skip_assignment) == (leader, (), False)
    assert host.sync("two-3", instance="two").answer.assignment == old.encode()
    assert host.group.state is GroupState.STABLE
    assert host.heartbeat(leader, "one") is NONE


def test_the_former_process_of_a_static_member_is_fenced(host: Host) -> None:
    _, old = static(host, "one", "two")
    host.join(instance="two")
    assert host.heartbeat(old, "two") is FENCED
    assert host.commit(old, "two") is FENCED
    assert host.commit(old, "two", in_transaction=True) is FENCED
    assert host.sync(old, instance="two").answer.error is FENCED
    assert host.join(old, instance="two").answer.error is FENCED
    assert host.leave((old, "two")) == [FENCED]
    assert host.heartbeat(old) is UNKNOWN


def test_a_static_leader_that_starts_again_leads_but_skips_the_assignment(host: Host) -> None:
    old, follower = static(host, "one", "two")
    answer = host.join(instance="one").answer
    assert (answer.leader, answer.member_id, answer.skip_assignment) == ("one-3", "one-3", True)
    assert [each.member_id for each in answer.members] == [follower, "one-3"]
    assert host.sync("one-3", instance="one").answer.assignment == old.encode()

    # It still leads, so its join starts a rebalance.
    reply = host.join("one-3", instance="one")
    assert reply.waits
    host.join(follower, instance="two")
    host.begin()
    assert reply.answer.leader == "one-3"


def test_a_static_leader_that_cannot_skip_the_assignment_follows_its_former_process(host: Host) -> None:
    old, _ = static(host, "one", "two")
    answer = host.join(instance="one", old=True).answer
    assert (answer.leader, answer.member_id, answer.skip_assignment) == (old, "one-3", False)
    assert answer.members == ()
    assert host.sync("one-3", instance="one").answer.assignment == old.encode()


def test_a_static_member_that_starts_again_and_changes_the_protocol_starts_a_rebalance(host: Host) -> None:
    static(host, "one", protocols="range sticky")
    reply = host.join(instance="one", protocols="sticky")
    assert reply.waits
    host.begin()
    assert (reply.answer.protocol_name, reply.answer.leader) == ("sticky", reply.answer.member_id)


def test_a_static_member_that_starts_again_in_a_rebalance_starts_it_again(host: Host) -> None:
    leader, follower = (host.join(instance=each) for each in ("one", "two"))
    host.sleep(REBALANCE_MS)
    host.begin()
    waiting = host.sync(follower.answer.member_id, instance="two")
    reply = host.join(instance="two")
    assert waiting.answer.error is FENCED
    assert reply.waits
    assert host.heartbeat(leader.answer.member_id, "one") is REBALANCE


def test_a_static_member_that_starts_again_while_its_join_waits_takes_its_place(host: Host) -> None:
    first = host.join(instance="one")
    second = host.join(instance="one")
    assert (first.answer.error, first.answer.member_id) == (FENCED, "one-1")
    host.sleep(DELAY_MS)
    host.begin()
    assert [each.member_id for each in second.answer.members] == ["one-2"]
    assert second.answer.leader == "one-2"


def test_a_static_member_that_starts_again_need_not_sync_within_the_time_of_the_old_one(host: Host) -> None:
    leader, follower = (host.join(instance=each, session_ms=100_000) for each in ("one", "two"))
    host.sleep(REBALANCE_MS)
    host.begin()
    host.sync(leader.answer.member_id, instance="one")
    assert follower.answer.error is NONE
    host.join(instance="two", session_ms=100_000)
    host.sleep(REBALANCE_MS)
    assert host.group.state is GroupState.STABLE


def test_a_silent_static_member_is_removed_after_its_session_timeout(host: Host) -> None:
    static(host, "one")
    host.sleep(SESSION_MS)
    assert host.group.state is GroupState.EMPTY
    assert host.join(instance="one").waits


def test_a_static_member_that_does_not_join_in_time_stays(host: Host) -> None:
    leader, absent = static(host, "one", "two", session_ms=200_000)
    reply = host.join(leader, instance="one", session_ms=200_000)
    host.sleep(REBALANCE_MS)
    host.begin()
    assert [each.member_id for each in reply.answer.members] == [leader, absent]
    host.sync(leader, {absent: b"kept"}, instance="one")
    assert host.heartbeat(absent, "two", generation=1) is ILLEGAL
    again = host.join(absent, instance="two", session_ms=200_000).answer
    assert (again.error, again.generation) == (NONE, 2)
    assert host.sync(absent, instance="two").answer.assignment == b"kept"


def test_a_static_leader_that_does_not_join_in_time_does_not_lead(host: Host) -> None:
    leader, follower = static(host, "one", "two", session_ms=200_000)
    reply = host.join(follower, instance="two", session_ms=200_000, metadata=b"new")
    host.sleep(REBALANCE_MS)
    host.begin()
    assert reply.answer.leader == follower
    assert {each.member_id for each in reply.answer.members} == {leader, follower}


def test_a_rebalance_that_no_member_joins_begins_again_with_the_static_members(host: Host) -> None:
    leader, dynamic = host.stable(2, session_ms=400_000)
    statics = [host.join(instance=each, session_ms=400_000) for each in ("one", "two")]
    for each in (leader, dynamic):
        host.join(each, session_ms=400_000)
    host.begin()
    one, two = (each.answer.member_id for each in statics)
    host.sync(leader)
    host.leave((leader, None))
    host.sleep(REBALANCE_MS - 1)
    assert host.heartbeat(dynamic) is REBALANCE
    host.sleep(1)
    assert host.heartbeat(dynamic) is UNKNOWN
    assert [host.heartbeat(one, "one"), host.heartbeat(two, "two")] == [REBALANCE, REBALANCE]

    reply = host.join(one, instance="one", session_ms=400_000)
    host.sleep(REBALANCE_MS - 1)
    assert not host.group.needs_generation
    host.sleep(1)
    host.begin()
    assert [each.member_id for each in reply.answer.members] == [one, two]


def test_a_rebalance_that_no_member_joins_leaves_the_group_empty(host: Host) -> None:
    leader, *_ = host.stable(3, session_ms=200_000)
    host.leave((leader, None))
    host.sleep(REBALANCE_MS)
    assert host.group.state is GroupState.EMPTY
    assert host.group.next_deadline_ms is None


def test_a_rebalance_timeout_of_zero_does_not_wake_the_host_all_the_time(host: Host) -> None:
    one, two = static(host, "one", "two", rebalance_ms=5_000)
    for member, instance in ((one, "one"), (two, "two")):
        host.join(member, instance=instance, rebalance_ms=0)
    host.begin()
    for member, instance in ((two, "two"), (one, "one")):
        host.sync(member, instance=instance)
    host.leave((one, "one"))
    host.sleep(1)
    assert host.group.next_deadline_ms == host.now_ms - 1 + 1_000


def test_an_administrator_removes_a_static_member_by_its_instance(host: Host) -> None:
    leader, removed = static(host, "one", "two")
    assert host.leave(("", "two"), ("", "two"), ("", "three"), (leader, "two")) == [NONE, UNKNOWN, UNKNOWN, UNKNOWN]
    assert host.heartbeat(removed, "two") is UNKNOWN
    assert host.heartbeat(leader, "one") is REBALANCE


def test_a_pending_member_id_is_not_that_of_a_static_member(host: Host) -> None:
    pending = host.join().answer.member_id
    assert host.join(pending, instance="one").answer.error is UNKNOWN


# While the log does not have the generation yet


def test_a_member_that_joins_late_is_in_the_generation(host: Host) -> None:
    (leader,) = host.stable(1)
    first = host.join(leader)
    assert host.group.needs_generation
    _, late = host.join_new()
    assert host.group.needs_generation
    assert host.join().answer.error is ErrorCode.member_id_required
    host.begin()
    assert len(first.answer.members) == 2
    assert late.answer.generation == 2


def test_a_slow_member_that_joins_late_is_in_the_generation(host: Host) -> None:
    leader, slow = host.stable(2, session_ms=200_000)
    host.join(leader, session_ms=200_000)
    host.sleep(REBALANCE_MS)
    assert host.group.needs_generation
    reply = host.join(slow, session_ms=200_000)
    host.begin()
    assert reply.answer.error is NONE


def test_a_slow_member_that_does_not_join_late_is_removed(host: Host) -> None:
    leader, slow = host.stable(2, session_ms=200_000)
    reply = host.join(leader, session_ms=200_000)
    host.sleep(REBALANCE_MS - 1)
    assert not host.group.needs_generation
    host.sleep(1)
    assert host.heartbeat(slow) is REBALANCE
    host.begin()
    assert [each.member_id for each in reply.answer.members] == [leader]
    assert host.heartbeat(slow, generation=1) is UNKNOWN


def test_a_member_that_leaves_before_the_log_has_the_generation_is_not_in_it(host: Host) -> None:
    leader, follower = host.stable(2)
    leads, follows = host.join(leader), host.join(follower)
    assert host.leave((leader, None)) == [NONE]
    assert leads.answer.error is UNKNOWN
    assert host.group.needs_generation
    host.begin()
    assert [each.member_id for each in follows.answer.members] == [follower]


def test_a_new_member_that_expires_before_the_log_has_the_generation_is_not_in_it(host: Host) -> None:
    member, _ = host.join_new()
    host.sleep(DELAY_MS)
    assert host.group.needs_generation
    host.sleep(300_000 - DELAY_MS - 1)
    assert host.join(member).waits
    host.sleep(1)
    assert not host.group.needs_generation
    assert host.group.state is GroupState.EMPTY


def test_members_learn_of_the_rebalance_while_the_log_gets_the_generation(host: Host) -> None:
    (member,) = host.stable(1)
    host.join(member)
    assert host.heartbeat(member) is REBALANCE
    assert host.sync(member).answer.error is REBALANCE
    assert host.commit(member) is NONE
    assert host.group.state is GroupState.PREPARING


def test_a_group_that_empties_before_the_log_has_its_generation_begins_none(host: Host) -> None:
    (member,) = host.stable(1)
    reply = host.join(member)
    host.leave((member, None))
    assert reply.answer.error is UNKNOWN
    assert not host.group.needs_generation
    host.group.begin_generation(2, host.now_ms)
    assert host.group.state is GroupState.EMPTY
    assert host.group.generation == 1

    new, waits = host.join_new()
    host.group.begin_generation(3, host.now_ms)
    assert waits.waits, "the initial delay is not over"
    host.sleep(DELAY_MS)
    host.group.begin_generation(4, host.now_ms)
    assert (waits.answer.member_id, waits.answer.generation) == (new, 4)


def test_absent_members_get_time_again_if_all_joined_ones_leave_before_the_generation_begins(host: Host) -> None:
    leader, absent = host.stable(2, session_ms=200_000)
    host.join(leader, session_ms=200_000)
    host.sleep(REBALANCE_MS)
    assert host.group.needs_generation
    host.leave((leader, None))
    assert not host.group.needs_generation
    assert host.heartbeat(absent) is REBALANCE
    reply = host.join(absent, session_ms=200_000)
    assert host.group.needs_generation
    host.begin()
    assert reply.answer.leader == absent


# The end


def test_a_closed_group_answers_all_requests_with_its_error(host: Host) -> None:
    error = ErrorCode.not_coordinator
    leader, follower = completing(host, 2)
    pending = host.join().answer.member_id
    syncs = host.sync(follower)
    host.group.close(error)
    assert syncs.answer.error is error
    assert host.group.state is GroupState.DEAD
    assert host.group.next_deadline_ms is None
    assert host.group.is_unused

    for member_id in ("", leader, pending):
        assert host.join(member_id).answer.error is error
        assert host.sync(member_id).answer.error is error
        assert host.heartbeat(member_id) is error
        assert host.commit(member_id) is error
        assert host.leave((member_id, None)) == [error]
    host.sleep(REBALANCE_MS)
    assert host.group.state is GroupState.DEAD


def test_a_closed_group_answers_the_joins_that_wait(host: Host) -> None:
    member, joins = host.join_new()
    host.sleep(DELAY_MS)
    host.group.close(ErrorCode.not_coordinator)
    assert (joins.answer.error, joins.answer.member_id) == (ErrorCode.not_coordinator, member)
    assert not host.group.needs_generation
    host.group.begin_generation(1, host.now_ms)
    assert host.group.state is GroupState.DEAD


# What a group keeps and shows


def test_a_description_has_metadata_and_assignments_of_a_stable_group(host: Host) -> None:
    assert (host.group.describe().protocol_type, host.group.describe().members) == ("", ())
    (member,) = completing(host, 1, metadata=b"data")
    host.assign(member)
    described = host.group.describe()
    assert (described.state, described.protocol_type, described.protocol_name) == ("Stable", "consumer", "range")
    (only,) = described.members
    assert (only.member_id, only.group_instance_id) == (member, None)
    assert (only.client_id, only.client_host) == ("client", "/10.0.0.1")
    assert (only.metadata, only.assignment) == (b"data", member.encode())

    host.join(member)
    described = host.group.describe()
    assert (described.state, described.protocol_name) == ("PreparingRebalance", "")
    assert (described.members[0].metadata, described.members[0].assignment) == (b"", member.encode())

    host.leave((member, None))
    described = host.group.describe()
    assert (described.state, described.protocol_type, described.members) == ("Empty", "consumer", ())


def test_a_group_keeps_copies_of_what_clients_send() -> None:
    buffer = bytearray(b"data")
    group = ClassicGroup("g", settings=GroupSettings(initial_rebalance_delay_ms=0), new_id=lambda: "1")
    joins: Reply[JoinAnswer] = Reply()
    request = JoinRequest(
        client_id="c",
        client_host="h",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        protocol_type="connect",
        protocols=(("p", memoryview(buffer)),),
        needs_member_id=False,
    )
    group.join(request, 0, joins)
    buffer[:] = b"gone"
    group.advance(0)
    group.begin_generation(1, 0)
    assert joins.answer.members[0].metadata == b"data"

    syncs: Reply[SyncAnswer] = Reply()
    group.sync(
        SyncRequest(
            member=MemberIdentity(member_id="c-1", generation=1), assignments=(("c-1", memoryview(buffer)[:2]),)
        ),
        0,
        syncs,
    )
    buffer[:] = b"away"
    assert (type(syncs.answer.assignment), syncs.answer.assignment) == (bytes, b"go")


def test_the_subscribed_topics_are_those_of_all_consumers(host: Host) -> None:
    assert host.group.subscribed_topics == frozenset()
    leader, _ = host.join_new(metadata=subscription("a", "b"))
    host.join_new(metadata=subscription("b", "c", version=3, rest=b""))
    assert host.group.subscribed_topics == {"a", "b", "c"}
    host.join(leader, metadata=subscription("d"))
    assert host.group.subscribed_topics == {"b", "c", "d"}
    host.leave((leader, None))
    assert host.group.subscribed_topics == {"b", "c"}


def test_the_topics_of_members_of_other_protocol_types_are_unknown(host: Host) -> None:
    host.join_new(metadata=subscription("a"), protocol_type="connect")
    assert host.group.subscribed_topics is None


def test_the_topics_are_unknown_while_the_metadata_of_a_member_is_no_subscription(host: Host) -> None:
    host.join_new(metadata=subscription("a"))
    other, _ = host.join_new(metadata=b"\x00\x00\x00\x00\x00\x05broken")
    assert host.group.subscribed_topics is None
    host.leave((other, None))
    assert host.group.subscribed_topics == {"a"}


def test_a_topic_has_no_negative_length() -> None:
    assert subscribed_topics(b"\x00\x00" + b"\x00\x00\x00\x01" + b"\xff\xff" + b"\x00") is None


@given(st.binary(max_size=40))
def test_any_metadata_is_allowed(metadata: bytes) -> None:
    assert all(topic.encode() in metadata for topic in subscribed_topics(metadata) or ())


@given(st.lists(st.text(max_size=5), max_size=5), st.data())
def test_a_subscription_that_is_cut_off_has_no_topics(topics: list[str], data: st.DataObject) -> None:
    whole = subscription(*topics, rest=b"")
    assert subscribed_topics(whole) == frozenset(topics)
    if topics:
        assert subscribed_topics(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None


# Handover


def test_a_group_without_a_generation_is_not_handed_over(host: Host) -> None:
    assert host.group.handed_over(host.now_ms) is None
    host.join_new()
    assert host.group.handed_over(host.now_ms) is None


def test_members_of_a_stable_group_go_on_at_the_next_coordinator(host: Host) -> None:
    leader, follower = host.stable(2, metadata=b"\xff\x00", protocols="range sticky")
    described = host.group.describe()
    other = next_host(host)

    assert other.group.describe() == described
    assert other.group.generation == host.group.generation
    assert not other.group.needs_generation
    for member in (leader, follower):
        assert other.heartbeat(member) is NONE
        assert other.commit(member) is NONE
        assert other.sync(member).answer.assignment == member.encode()
    joined = other.join(follower, metadata=b"\xff\x00", protocols="range sticky").answer
    assert (joined.generation, joined.leader) == (host.group.generation, leader)
    assert other.join(leader, metadata=b"\xff\x00", protocols="range sticky").waits


def test_sessions_begin_anew_at_the_next_coordinator(host: Host) -> None:
    member, silent = host.stable(2)
    host.sleep(SESSION_MS - 1)
    assert host.heartbeat(member) is NONE
    other = next_host(host)
    other.sleep(SESSION_MS - 1)
    assert other.heartbeat(member) is NONE
    other.sleep(1)
    assert other.heartbeat(member) is REBALANCE
    assert other.heartbeat(silent) is UNKNOWN


@pytest.mark.parametrize("is_assigning", [True, False])
def test_a_rebalance_begins_again_at_the_next_coordinator(host: Host, is_assigning: bool) -> None:
    leader, follower = host.stable(2)
    replies = [host.join(leader)]
    if is_assigning:
        replies.append(host.join(follower))
        host.begin()
    other = next_host(host)
    if not is_assigning:
        assert replies[0].answer.error is ErrorCode.not_coordinator

    assert other.heartbeat(follower) is REBALANCE
    joins = [other.join(each) for each in (follower, leader)]
    generation = other.begin()
    assert {each.answer.generation for each in joins} == {generation}
    other.assign(leader, follower)


def test_new_members_that_know_their_ids_join_at_the_next_coordinator(host: Host) -> None:
    (member,) = host.stable(1)
    pending = host.join().answer.member_id
    joining, reply = host.join_new()
    old = host.join(old=True)
    static = host.join(instance="i")
    other = next_host(host)
    for each in (reply, old, static):
        assert each.answer.error is ErrorCode.not_coordinator

    joins = [other.join(each) for each in (pending, joining, member)]
    assert [each.waits for each in joins] == [True] * 3
    other.begin()
    assert [each.answer.error for each in joins] == [NONE] * 3
    assert len(other.group.describe().members) == 3


def test_a_pending_member_id_expires_at_the_next_coordinator(host: Host) -> None:
    host.stable(1)
    pending = host.join().answer.member_id
    other = next_host(host)
    other.sleep(SESSION_MS)
    assert other.join(pending).answer.error is UNKNOWN


def test_a_static_member_is_fenced_at_the_next_coordinator_too(host: Host) -> None:
    first = host.join(instance="i")
    host.sleep(DELAY_MS)
    host.begin()
    old = first.answer.member_id
    host.sync(old, {old: b"all"}, instance="i")
    other = next_host(host)
    new = other.join(instance="i").answer
    assert (new.error, new.generation) == (NONE, host.group.generation)
    assert other.heartbeat(old, "i") is FENCED
    assert other.heartbeat(new.member_id, "i") is NONE


@pytest.mark.parametrize(
    "request_",
    [{"rebalance_ms": -5}, {"protocol_type": "x" * 70_000}, {"client_id": ""}, {"protocols": "a a"}, {"metadata": b""}],
    ids=str,
)
def test_any_member_that_may_join_is_handed_over(host: Host, request_: dict[str, Any]) -> None:
    (member,) = host.stable(1, **request_)
    assert next_host(host).heartbeat(member) is NONE
