"""Groups of Kafka's classic protocol: what their members are answered, and what the log has of them."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NoReturn

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from kio.schema.errors import ErrorCode

from eoslog.errors import InconsistentGroupProtocol
from eoslog.gateway import group_coordinator
from eoslog.gateway.addresses import Address
from eoslog.gateway.classic_members import subscribed_topics
from eoslog.gateway.protocol import ApiKey
from eoslog.session.heartbeats import Heartbeats, host_name
from eoslog.state.expiry import OFFSETS_RETENTION_MS, plan_offset_expiry
from eoslog.state.group_members import ChangeGroup
from eoslog.state.groups import EMPTY_GROUP
from eoslog.state.store_state import Group
from eoslog.store import Store
from tests.unit.gateway.group_clients import GroupClient, commit_plainly, fetch_offsets
from tests.unit.gateway.raw_client import Client, Running, Transactional, offsets_of, part, running, versions_of
from tests.unit.support.paused_processes import asleep_at
from tests.unit.support.world import SLOTS, World, faulty

NONE = ErrorCode.none
_PATIENCE_S = 20


@pytest.fixture
def gateway(store: Store) -> Iterator[Running]:
    with running(store, group_initial_rebalance_delay_ms=0) as found:
        yield found


@pytest.fixture
def client(gateway: Running) -> Iterator[Client]:
    with Client(gateway.port) as client:
        yield client


@pytest.fixture
def member(client: Client) -> GroupClient:
    """The only member of its group."""
    member = GroupClient(client)
    assert member.join().error_code is NONE
    assert member.sync({member.member_id: b"all"}).assignment == b"all"
    return member


def in_log(store: Store, group_id: str = "g") -> Group:
    return store.read(lambda state, slot: state.groups.get(group_id, EMPTY_GROUP))


def wait_until(is_reached: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not is_reached():
        assert time.monotonic() < end
        time.sleep(0.01)


def coordinator(client: Client, group_id: str = "g", version: int = 4) -> Any:
    """Return the answer of FindCoordinator for a group."""
    key = ApiKey.FIND_COORDINATOR
    if version >= 4:
        (found,) = client.call(key, version, key_type=0, coordinator_keys=(group_id,)).coordinators
        return found
    return client.call(key, version, key=group_id, **({"key_type": 0} if version else {}))


# Members


@pytest.mark.parametrize("version", versions_of(ApiKey.JOIN_GROUP))
def test_a_member_joins_gets_its_assignment_commits_and_leaves(client: Client, store: Store, version: int) -> None:
    member = GroupClient(client)

    joined = member.join(version)
    assert (joined.error_code, joined.leader, joined.member_id) == (NONE, member.member_id, member.member_id)
    assert [each.member_id for each in joined.members] == [member.member_id]
    assert member.sync({member.member_id: b"all"}, min(version, 5)).assignment == b"all"
    assert member.heartbeat(min(version, 4)) is NONE
    assert member.commit((0, 7), version=max(2, min(version, 9))) == {0: NONE}
    assert fetch_offsets(client, 0)[1][0][0] == 7

    (log_member,) = in_log(store).members.values()
    assert (log_member.topics, log_member.address, log_member.assigned) == (("t",), f"127.0.0.1:{port(client)}", ())
    assert in_log(store).generation == joined.generation_id
    assert member.leave(min(version, 5)) is NONE
    wait_until(lambda: not in_log(store).members)


def port(client: Client) -> int:
    found: int = client.socket.getpeername()[1]
    return found


def test_the_leader_assigns_for_all_members(gateway: Running, member: GroupClient) -> None:
    with Client(gateway.port) as other:
        follower = GroupClient(other)
        follower.send_join()
        follower.joined()
        follower.send_join()
        wait_until(lambda: member.heartbeat() is ErrorCode.rebalance_in_progress)

        led = member.join()
        followed = follower.joined()

        assert led.generation_id == followed.generation_id > 1
        assert {each.member_id for each in led.members} == {member.member_id, follower.member_id}
        assert not followed.members
        follower.send_sync()
        assert member.sync({member.member_id: b"0", follower.member_id: b"1"}).assignment == b"0"
        assert other.answer(ApiKey.SYNC_GROUP, 5).assignment == b"1"


def test_generations_of_a_group_never_go_back(store: Store, client: Client) -> None:
    found = []
    for _ in range(3):
        member = GroupClient(client)
        found.append(member.join().generation_id)
        assert member.leave() is NONE
        wait_until(lambda: not in_log(store).members)
    assert found == sorted(set(found))


def test_a_member_that_does_not_wait_for_its_answer_holds_up_no_other(gateway: Running, member: GroupClient) -> None:
    with Client(gateway.port) as gone:
        joining = GroupClient(gone)
        joining.send_join(session_timeout_ms=6_000)
        joining.joined()
        joining.send_join(session_timeout_ms=6_000)
        wait_until(lambda: member.heartbeat() is ErrorCode.rebalance_in_progress)
    answer = member.join()
    assert answer.error_code is NONE
    assert member.sync({member.member_id: b"all"}).assignment == b"all"


def test_members_of_one_group_do_not_disturb_another_group(client: Client, member: GroupClient) -> None:
    other = GroupClient(client, "other")
    assert other.join().error_code is NONE
    assert member.heartbeat() is NONE


def test_a_group_without_a_name_is_refused(client: Client) -> None:
    member = GroupClient(client, "")
    assert member.join().error_code is ErrorCode.invalid_group_id
    assert member.heartbeat() is ErrorCode.invalid_group_id
    assert member.sync().error_code is ErrorCode.invalid_group_id
    assert member.leave() is ErrorCode.invalid_group_id


def test_members_have_a_bounded_memory(store: Store) -> None:
    with running(store, group_initial_rebalance_delay_ms=0, group_bytes=25_000) as found, Client(found.port) as client:
        first = GroupClient(client, topics=["x" * 9_000])
        assert first.join().error_code is NONE
        assert GroupClient(client, "h", topics=["x" * 9_000]).join().error_code is ErrorCode.group_max_size_reached
        assert first.leave() is NONE
        assert GroupClient(client, "h", topics=["x" * 9_000]).join().error_code is NONE


def test_groups_without_members_take_no_memory(store: Store) -> None:
    with running(store, group_initial_rebalance_delay_ms=0, group_bytes=25_000) as found, Client(found.port) as client:
        first = GroupClient(client, topics=["x" * 200] * 50)
        assert first.join().error_code is NONE
        for number in range(50):
            refused = GroupClient(client, f"refused{number}", topics=["x" * 200] * 50).join()
            assert refused.error_code is ErrorCode.group_max_size_reached
        assert first.leave() is NONE
        assert GroupClient(client, "h", topics=["x" * 200] * 50).join().error_code is NONE


def test_members_that_do_not_join_a_second_time_take_memory(store: Store) -> None:
    with running(store, group_initial_rebalance_delay_ms=0, group_bytes=50_000) as found, Client(found.port) as client:
        codes = []
        for _ in range(100):
            pending = GroupClient(client, topics=())
            pending.send_join()
            codes.append(pending.joined().error_code)
        assert set(codes) == {ErrorCode.member_id_required, ErrorCode.group_max_size_reached}
        refused = codes.index(ErrorCode.group_max_size_reached)
        assert set(codes[refused:]) == {ErrorCode.group_max_size_reached}


def test_names_of_protocols_take_memory(store: Store) -> None:
    with running(store, group_initial_rebalance_delay_ms=0, group_bytes=40_000) as found, Client(found.port) as client:
        names = [f"protocol{number}" for number in range(100)]
        protocols = [part(ApiKey.JOIN_GROUP, 9, "JoinGroupRequestProtocol", name=each, metadata=b"") for each in names]
        assert GroupClient(client).join(protocols=tuple(protocols)).error_code is NONE
        assert GroupClient(client, "h").join(protocols=tuple(protocols)).error_code is ErrorCode.group_max_size_reached


def test_assignments_take_memory(store: Store) -> None:
    with running(store, group_initial_rebalance_delay_ms=0, group_bytes=50_000) as found, Client(found.port) as client:
        member = GroupClient(client)
        assert member.join().error_code is NONE
        assert member.sync({member.member_id: b"x" * 60_000}).error_code is ErrorCode.group_max_size_reached
        assert member.sync({member.member_id: b"x" * 6_000}).error_code is NONE


def test_a_member_joins_again_while_there_is_no_memory_for_others(store: Store) -> None:
    with running(store, group_initial_rebalance_delay_ms=0, group_bytes=20_000) as found, Client(found.port) as client:
        member = GroupClient(client, topics=["x" * 200] * 65)
        assert member.join().error_code is NONE
        assert member.join().error_code is NONE


def test_a_member_with_too_much_metadata_is_refused(client: Client) -> None:
    member = GroupClient(client, topics=["x" * 30_000] * 40)
    assert member.join().error_code is ErrorCode.group_max_size_reached


def test_the_log_has_some_of_the_topics_that_do_not_exist(client: Client, store: Store) -> None:
    assert GroupClient(client, topics=["t", *(f"new{number}" for number in range(2_000))]).join().error_code is NONE
    (member,) = in_log(store).members.values()
    assert "t" in member.topics
    assert len(member.topics) == 1_001


def test_names_that_no_topic_can_have_are_not_in_the_log(client: Client, store: Store) -> None:
    assert GroupClient(client, topics=["t", "../t", "\x1b[2J", "__state"]).join().error_code is NONE
    (member,) = in_log(store).members.values()
    assert member.topics == ("t",)


# Offsets


def test_only_members_of_the_generation_commit(client: Client, member: GroupClient, store: Store) -> None:
    assert member.commit((0, 1)) == {0: NONE}
    assert member.commit((0, 2), generation_id_or_member_epoch=member.generation - 1) == {
        0: ErrorCode.illegal_generation
    }
    assert member.commit((0, 2), member_id="somebody") == {0: ErrorCode.unknown_member_id}
    assert commit_plainly(client, (0, 2)) == {0: ErrorCode.unknown_member_id}
    (log_member,) = in_log(store).members
    assert member.commit((0, 2), member_id=log_member) == {0: ErrorCode.unknown_member_id}
    assert fetch_offsets(client, 0)[1][0][0] == 1


@pytest.mark.parametrize("version", [2, 9])
def test_a_client_without_a_generation_commits_while_a_group_has_no_members(client: Client, version: int) -> None:
    assert commit_plainly(client, (0, 1), version=version, member_id="a name") == {0: NONE}
    joining = GroupClient(client)
    joining.send_join()
    assert joining.joined().error_code is ErrorCode.member_id_required
    assert commit_plainly(client, (0, 2), version=version, member_id="a name") == {0: NONE}
    assert joining.join().error_code is NONE
    assert commit_plainly(client, (0, 3), version=version, member_id="a name") == {0: ErrorCode.unknown_member_id}
    assert fetch_offsets(client, 0)[1][0][0] == 2


def test_a_commit_that_reaches_the_log_after_the_next_generation_is_refused(
    client: Client, member: GroupClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator has accepted the commit, and the group goes on before its record is put."""
    append = store.append
    is_asked, may_go_on = threading.Event(), threading.Event()

    def late(request: Any, **options: Any) -> Any:
        if not isinstance(request, ChangeGroup):
            is_asked.set()
            assert may_go_on.wait(_PATIENCE_S)
        return append(request, **options)

    with Client(port(client)) as other:
        joining = GroupClient(other)
        joining.send_join()
        joining.joined()
        joining.send_join()
        wait_until(lambda: member.heartbeat() is ErrorCode.rebalance_in_progress)
        with Client(port(client)) as third:
            monkeypatch.setattr(store, "append", late)
            committing = threading.Thread(target=lambda: codes.append(replace_client(member, third).commit((0, 1))))
            codes: list[dict[int, Any]] = []
            committing.start()
            assert is_asked.wait(_PATIENCE_S)
            member.join()
            joining.joined()
            may_go_on.set()
            committing.join(_PATIENCE_S)
    assert codes == [{0: ErrorCode.illegal_generation}]


@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_new_process_of_a_static_member_begins_after_the_commits_of_the_old_one(
    client: Client, gateway: Running, store: Store, in_transaction: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new process gets no new generation, so the log would take a late commit of the old one."""
    member = GroupClient(client, instance="i")
    assert member.join().error_code is NONE
    assert member.sync({member.member_id: b"all"}).error_code is NONE
    append = store.append
    is_asked, may_go_on = threading.Event(), threading.Event()

    def late(request: Any, **options: Any) -> Any:
        is_asked.set()
        assert may_go_on.wait(_PATIENCE_S)
        return append(request, **options)

    with Client(gateway.port) as old, Client(gateway.port) as other:
        producer = Transactional(old)
        producer.init()
        monkeypatch.setattr(store, "append", late)
        named: dict[str, Any] = {"group_id": "g", "member_id": member.member_id, "group_instance_id": "i"}
        if in_transaction:
            key, version, name = ApiKey.TXN_OFFSET_COMMIT, 5, "TxnOffsetCommitRequest"
            named |= producer.of | {"generation_id": member.generation}
        else:
            key, version, name = ApiKey.OFFSET_COMMIT, 8, "OffsetCommitRequest"
            named |= {"generation_id_or_member_epoch": member.generation}
        old.send(key, version, **named, topics=(offsets_of(key, version, name, [(0, 10)]),))
        assert is_asked.wait(_PATIENCE_S)
        # The process ends, and its connection with it. Its commit goes on.
        old.socket.close()
        new = GroupClient(other, instance="i")
        new.send_join()
        time.sleep(0.1)
        assert member.heartbeat() is NONE
        may_go_on.set()
        assert new.joined().error_code is NONE
        assert new.sync().assignment == b"all"
        found = fetch_offsets(other, 0, stable=True)[1][0]
        assert found[2 if in_transaction else 0] == (ErrorCode.unstable_offset_commit if in_transaction else 10)
        assert member.heartbeat() is ErrorCode.fenced_instance_id


def replace_client(member: GroupClient, client: Client) -> GroupClient:
    """Return the member as it is now, with another connection."""
    found = copy.copy(member)
    found.client = client
    return found


@pytest.mark.parametrize("version", [3, 5])
def test_offsets_in_transactions_are_those_of_members(client: Client, member: GroupClient, version: int) -> None:
    producer = Transactional(client, api_version=version)
    producer.init()
    named: dict[str, Any] = {"member_id": member.member_id, "generation_id": member.generation}
    producer.add_offsets()
    older = producer.commit_offsets((0, 5), version=version, **named | {"generation_id": member.generation - 1})
    unknown = producer.commit_offsets((0, 5), version=version, **named | {"member_id": "somebody"})
    assert (older, unknown) == ({0: ErrorCode.illegal_generation}, {0: ErrorCode.unknown_member_id})

    assert producer.commit_offsets((0, 5), version=version, **named) == {0: NONE}
    assert producer.end() is NONE
    assert fetch_offsets(client, 0)[1][0][0] == 5


# Several gateways


def test_a_gateway_that_clients_do_not_find_keeps_its_groups(
    store: Store, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    settings: dict[str, Any] = {"group_initial_rebalance_delay_ms": 0}
    elsewhere = Address("kafka.example", 9092)
    with running(world.process(), **settings) as second, Client(second.port) as client:
        # Clients of a gateway with a loopback address are not told of one with another address.
        with running(store, advertised=elsewhere, **settings) as first, Client(first.port) as other:
            second.know_newest()
            old = GroupClient(other)
            assert old.join().error_code is NONE
            member = GroupClient(client)
            assert member.join().error_code is ErrorCode.not_coordinator
            assert member.heartbeat() is ErrorCode.not_coordinator
            refused = [coordinator(client) for _ in range(3)]
            assert {each.error_code for each in refused} == {ErrorCode.coordinator_not_available}
            assert str(elsewhere) in refused[-1].error_message
            (told,) = [each.getMessage() for each in caplog.records if "clients ask here" in each.getMessage()]
            assert str(elsewhere) in told
            assert old.leave() is NONE
            wait_until(lambda: not in_log(store).members)
        assert coordinator(client).error_code is NONE
        assert member.join().generation_id > old.generation


class _Killed(Exception):
    """The step ends here, and the rest of it is lost."""


def die() -> NoReturn:
    raise _Killed


def test_a_gateway_that_is_started_again_replaces_the_killed_one_at_once(store: Store, world: World) -> None:
    settings = {"group_initial_rebalance_delay_ms": 0}
    killed = world.process()
    with running(killed, **settings) as first, Client(first.port) as client:
        asleep_at(killed, "gateway.group.joined", die)
        assert GroupClient(client).join().error_code is ErrorCode.unknown_server_error
    assert len(in_log(store).members) == 1
    with running(store, port=first.port, **settings) as second, Client(second.port) as client:
        member = GroupClient(client)
        assert member.join().error_code is NONE
        assert member.sync({member.member_id: b"all"}).error_code is NONE
        assert member.commit((0, 3)) == {0: NONE}
        assert len(in_log(store).members) == 1


def test_gateways_with_one_advertised_address_do_not_take_groups_from_each_other(store: Store, world: World) -> None:
    shared: dict[str, Any] = {"advertised": Address("127.0.0.1", 9092), "group_initial_rebalance_delay_ms": 0}
    with running(world.process(), **shared) as first, running(store, **shared) as second, ExitStack() as clients:
        old, new = (GroupClient(clients.enter_context(Client(each.port))) for each in (first, second))
        assert old.join().error_code is NONE
        assert new.join().error_code is ErrorCode.not_coordinator
        assert old.heartbeat() is NONE


def test_a_gateway_that_is_killed_while_it_leaves_a_group_leaves_no_member(store: Store, world: World) -> None:
    killed = world.process()
    with running(killed, group_initial_rebalance_delay_ms=0) as first, Client(first.port) as client:
        member = GroupClient(client)
        assert member.join().error_code is NONE
        asleep_at(killed, "gateway.group.left", die)
        assert member.leave() is NONE
        wait_until(lambda: not in_log(store).members)
    with store.consumer(group_id="g") as consumer:
        consumer.subscribe(["t"])
        consumer.poll()
        assert len(in_log(store).members) == 1


def test_a_silent_gateway_is_replaced(store: Store, world: World) -> None:
    settings = {"group_initial_rebalance_delay_ms": 0}
    frozen = world.process()
    with running(frozen, **settings) as first, running(store, **settings) as second, ExitStack() as clients:
        old, new = (GroupClient(clients.enter_context(Client(each.port))) for each in (first, second))
        old.join()
        assert old.sync({old.member_id: b"all"}).error_code is NONE
        world.pass_time(60_000)

        assert new.join().error_code is NONE
        assert new.sync({new.member_id: b"all"}).error_code is NONE
        assert old.commit((0, 1)) == {0: ErrorCode.not_coordinator}
        assert new.commit((0, 2)) == {0: NONE}
        assert old.join().error_code is ErrorCode.not_coordinator


def test_a_gateway_that_is_no_longer_silent_is_not_replaced(store: Store, world: World) -> None:
    settings = {"group_initial_rebalance_delay_ms": 0}
    with running(world.process(), **settings) as first, running(store, **settings) as second, ExitStack() as clients:
        old, new = (GroupClient(clients.enter_context(Client(each.port))) for each in (first, second))
        old.join()
        assert old.sync({old.member_id: b"all"}).error_code is NONE
        world.pass_time(60_000)
        new.send_join()
        assert new.joined().error_code is ErrorCode.member_id_required

        (gateway_id,) = in_log(store).members
        Heartbeats(store.object_store, "g").put(gateway_id, 30_000)
        assert new.join().error_code is ErrorCode.not_coordinator
        assert old.commit((0, 1)) == {0: NONE}


def test_a_gateway_leaves_a_group_that_it_may_have_joined(store: Store, world: World) -> None:
    cut_off = world.process()
    with running(cut_off, group_initial_rebalance_delay_ms=0) as gateway, ExitStack() as clients:
        member, same = (GroupClient(clients.enter_context(Client(gateway.port))) for _ in range(2))
        member.send_join()
        same.member_id = member.joined().member_id
        faulty(cut_off).lose_answers(SLOTS, lands=True)
        member.send_join()
        wait_until(lambda: bool(in_log(store).members))
        assert same.leave() is NONE
        assert member.joined().error_code is ErrorCode.unknown_member_id
        faulty(cut_off).heal()
        wait_until(lambda: not in_log(store).members)


def test_an_administrator_ends_the_membership_of_a_gateway(store: Store, member: GroupClient) -> None:
    store.admin.remove_members("g")
    assert member.commit((0, 1)) == {0: ErrorCode.not_coordinator}
    assert member.join().error_code is ErrorCode.unknown_member_id
    member.member_id = ""
    assert member.join().error_code is NONE
    assert member.sync({member.member_id: b"all"}).error_code is NONE
    assert member.commit((0, 1)) == {0: NONE}


def test_a_gateway_learns_with_its_next_heartbeat_that_it_was_replaced(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_coordinator, "_HEARTBEAT_MS", 20)
    with running(store, group_initial_rebalance_delay_ms=0) as gateway, Client(gateway.port) as client:
        member = GroupClient(client)
        assert member.join().error_code is NONE
        world.pass_time(60_000)
        (log_member,) = in_log(store).members
        heartbeats = Heartbeats(world.process().object_store, "g")
        wait_until(lambda: not heartbeats.silent([log_member]))

        world.process().admin.remove_members("g")

        wait_until(lambda: member.heartbeat() is ErrorCode.unknown_member_id)


@pytest.mark.parametrize("lands", [True, False])
def test_a_group_goes_on_after_an_append_without_an_answer(store: Store, client: Client, lands: bool) -> None:
    faulty(store).lose_one_answer(SLOTS, lands=lands)
    member = GroupClient(client)
    joined = member.join()
    assert joined.error_code is NONE
    assert member.sync({member.member_id: b"all"}).error_code is NONE
    assert member.commit((0, 1)) == {0: NONE}
    assert in_log(store).generation == joined.generation_id


# Expiry

_UNREADABLE = (
    part(
        *(ApiKey.JOIN_GROUP, 9, "JoinGroupRequestProtocol"),
        name="range",
        metadata=b"\x00\x00\x00\x00\x00\x05broken",
    ),
)
"""The protocols of a member whose metadata is no subscription."""


def expired(store: Store) -> list[str]:
    """Return the groups whose offsets would expire a year from now."""
    later_ms = store.now_ms() + 365 * 24 * 3_600_000
    planned = store.read(lambda state, slot: plan_offset_expiry(state, later_ms, OFFSETS_RETENTION_MS))
    return [each.group for each in planned if each.offsets]


def test_offsets_of_topics_to_which_members_subscribe_do_not_expire(client: Client, store: Store) -> None:
    for group_id, topic in (("g", "t"), ("other", "u")):
        member = GroupClient(client, group_id, topics=[topic])
        assert member.join().error_code is NONE
        assert member.sync().error_code is NONE
        assert member.commit((0, 1)) == {0: NONE}
    assert expired(store) == ["other"]


@pytest.mark.parametrize("protocol_type", ["connect", "consumer"])
def test_offsets_of_a_live_group_whose_topics_are_unknown_do_not_expire(
    client: Client, store: Store, protocol_type: str
) -> None:
    member = GroupClient(client, protocol_type=protocol_type)
    assert member.join(protocols=_UNREADABLE).error_code is NONE
    assert member.sync().error_code is NONE
    assert member.commit((0, 1)) == {0: NONE}
    assert expired(store) == []

    assert member.leave() is NONE
    wait_until(lambda: not in_log(store).members)
    assert expired(store) == ["g"]


def test_the_log_learns_of_unknown_topics_before_the_generation_begins(
    gateway: Running, client: Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member with unknown topics joins while the generation of the others is put."""
    append = store.append
    is_asked, may_go_on = threading.Event(), threading.Event()

    def late(request: Any, **options: Any) -> Any:
        is_asked.set()
        assert may_go_on.wait(_PATIENCE_S)
        return append(request, **options)

    first = GroupClient(client, topics=["u"])
    first.send_join()
    first.joined()
    monkeypatch.setattr(store, "append", late)
    first.send_join()
    assert is_asked.wait(_PATIENCE_S)
    with Client(gateway.port) as other, Client(gateway.port) as third:
        second = GroupClient(other)
        for _ in range(2):
            second.send_join(protocols=_UNREADABLE)
            if not second.member_id:
                second.joined()
        wait_until(lambda: len(described(third).members) == 2)
        may_go_on.set()
        assert second.joined().error_code is NONE
        (log_member,) = in_log(store).members.values()
        assert log_member.topics == ()


# Other members


def test_consumers_of_eoslog_and_clients_of_kafka_do_not_share_a_group(
    store: Store, world: World, client: Client
) -> None:
    with world.process().consumer(group_id="own") as own:
        own.subscribe(["t"])
        own.poll()
        member = GroupClient(client, "own")
        assert member.join().error_code is ErrorCode.inconsistent_group_protocol
    assert member.join().error_code is NONE
    with world.process().consumer(group_id="own") as own:
        own.subscribe(["t"])
        with pytest.raises(InconsistentGroupProtocol):
            own.poll()
    assert member.heartbeat() in (NONE, ErrorCode.rebalance_in_progress)


def test_clients_of_kafka_take_over_a_group_whose_consumers_have_died(
    store: Store, world: World, client: Client
) -> None:
    for _ in range(2):
        own = world.process().consumer(group_id="own")
        own.subscribe(["t"])
        own.poll()
    member = GroupClient(client, "own")
    assert member.join().error_code is ErrorCode.inconsistent_group_protocol
    world.pass_time(3_600_000)
    assert member.join().error_code is NONE
    assert member.sync({member.member_id: b"all"}).error_code is NONE
    assert member.commit((0, 1)) == {0: NONE}


# Administration


def described(client: Client, group_id: str = "g", version: int = 6) -> Any:
    (found,) = client.call(
        ApiKey.DESCRIBE_GROUPS,
        version,
        groups=(group_id,),
        **({"include_authorized_operations": False} if version >= 3 else {}),
    ).groups
    return found


@pytest.mark.parametrize("version", versions_of(ApiKey.DESCRIBE_GROUPS))
def test_a_group_is_described_with_its_members(client: Client, member: GroupClient, version: int) -> None:
    found = described(client, version=version)
    assert (found.error_code, found.group_state, found.protocol_type, found.protocol_data) == (
        NONE,
        "Stable",
        "consumer",
        "range",
    )
    (each,) = found.members
    assert (each.member_id, each.client_host, each.member_assignment) == (member.member_id, "/127.0.0.1", b"all")


@pytest.mark.parametrize("version", versions_of(ApiKey.DESCRIBE_GROUPS))
def test_a_group_of_consumers_of_eoslog_is_described_as_kafka_s_consumers_are(
    gateway: Running, world: World, version: int
) -> None:
    """Kafka's tools show the partitions of each consumer, through any gateway."""
    store = world.process()
    store.admin.create_topic("other", partitions=2)
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(world.process().consumer(group_id="own", client_id=each)) for each in ("a", "b")
        )
        for each in (first, second):
            each.subscribe(["other"])
            each.poll()
        client = stack.enter_context(Client(gateway.port))
        handing_over = described(client, "own", version)
        assert handing_over.group_state == "CompletingRebalance"
        shares = [partitions_of(each.member_assignment) for each in handing_over.members]
        assert sorted(shares, key=len) == [{}, {"other": (0, 1)}]
        for each in (first, second):
            each.poll()
        found = described(client, "own", version)
        log_members = in_log(store, "own").members

    assert (found.error_code, found.group_state, found.protocol_type, found.protocol_data) == (
        NONE,
        "Stable",
        "consumer",
        "eoslog",
    )
    names = {member_id: member.client_id for member_id, member in log_members.items()}
    assert {each.member_id: each.client_id for each in found.members} == names
    assert set(names.values()) == {"a", "b"}
    assert {each.client_host for each in found.members} == {host_name()}
    assert sorted(partitions_of(each.member_assignment)["other"] for each in found.members) == [(0,), (1,)]
    assert {subscribed_topics(each.member_metadata) for each in found.members} == {frozenset({"other"})}


def partitions_of(assignment: bytes) -> dict[str, tuple[int, ...]]:
    """Return the partitions of an assignment, as a client of Kafka decodes it."""
    found = ConsumerProtocolMemberAssignment.decode(assignment)
    return {topic: tuple(partitions) for topic, partitions in found.assignment}


def test_a_group_that_is_asked_for_many_times_is_described_once(client: Client, member: GroupClient) -> None:
    answer = client.call(ApiKey.DESCRIBE_GROUPS, 2, groups=(*("g",) * 1_000, "none"))
    assert [each.group_id for each in answer.groups] == ["g", "none"]


def test_a_group_whose_offsets_are_asked_for_many_times_is_answered_once(client: Client) -> None:
    assert commit_plainly(client, (0, 1)) == {0: NONE}
    key = ApiKey.OFFSET_FETCH
    asked = part(key, 8, "OffsetFetchRequestGroup", group_id="g", topics=None)
    (answer,) = client.call(key, 8, groups=(asked,) * 1_000, require_stable=False).groups
    assert answer.group_id == "g"


def test_groups_without_members_are_described(client: Client) -> None:
    assert commit_plainly(client, (0, 1)) == {0: NONE}
    assert described(client).group_state == "Empty"
    assert described(client, "none", 5).group_state == "Dead"
    assert described(client, "none", 6).error_code is ErrorCode.group_id_not_found


@pytest.mark.parametrize("version", versions_of(ApiKey.LIST_GROUPS))
def test_all_groups_of_the_store_are_listed(client: Client, member: GroupClient, world: World, version: int) -> None:
    with world.process().consumer(group_id="own") as own:
        own.subscribe(["t"])
        own.poll()
        commit_plainly(client, (0, 1), group_id="plain")

        def listed(**filters: Any) -> dict[str, str]:
            values: dict[str, Any] = {"states_filter": ()} if version >= 4 else {}
            values |= {"types_filter": ()} if version >= 5 else {}
            answer = client.call(ApiKey.LIST_GROUPS, version, **values | filters)
            return {each.group_id: getattr(each, "group_state", "") for each in answer.groups}

        assert listed().keys() == {"g", "own", "plain"}
        if version >= 4:
            assert listed() == {"g": "Stable", "own": "Stable", "plain": "Empty"}
            assert listed(states_filter=("empty",)) == {"plain": "Empty"}
        if version >= 5:
            assert listed(types_filter=("Classic",)).keys() == {"g", "plain"}
            assert listed(types_filter=("consumer",)).keys() == {"own"}


@pytest.mark.parametrize("version", versions_of(ApiKey.DELETE_GROUPS))
def test_a_group_without_members_is_deleted(client: Client, member: GroupClient, store: Store, version: int) -> None:
    commit_plainly(client, (0, 1), group_id="plain")

    def deleted() -> dict[str, ErrorCode]:
        results = client.call(ApiKey.DELETE_GROUPS, version, groups_names=("g", "plain", "none")).results
        return {each.group_id: each.error_code for each in results}

    assert deleted() == {"g": ErrorCode.non_empty_group, "plain": NONE, "none": ErrorCode.group_id_not_found}
    assert member.leave() is NONE
    wait_until(lambda: not in_log(store).members)
    assert deleted()["g"] is NONE


def test_clients_join_a_group_that_was_deleted_meanwhile(client: Client, member: GroupClient, store: Store) -> None:
    with Client(port(client)) as other:
        joining = GroupClient(other)
        joining.send_join()
        assert joining.joined().error_code is ErrorCode.member_id_required
        assert member.leave() is NONE
        wait_until(lambda: not in_log(store).members)
        store.admin.delete_consumer_group("g")
        assert joining.join().error_code is NONE
        assert joining.sync({joining.member_id: b"all"}).error_code is NONE
        assert joining.commit((0, 1)) == {0: NONE}


def test_offsets_are_deleted_unless_a_member_reads_their_topic(
    client: Client, member: GroupClient, store: Store
) -> None:
    key = ApiKey.OFFSET_DELETE

    def deleted(group_id: str, *partitions: int, topic: str = "t") -> tuple[ErrorCode, list[ErrorCode]]:
        named = tuple(part(key, 0, "OffsetDeleteRequestPartition", partition_index=each) for each in partitions)
        topics = (part(key, 0, "OffsetDeleteRequestTopic", name=topic, partitions=named),)
        answer = client.call(key, 0, group_id=group_id, topics=topics)
        return answer.error_code, [each.error_code for topic in answer.topics for each in topic.partitions]

    commit_plainly(client, (0, 1), (1, 2), group_id="plain")
    member.commit((0, 1))

    slots = store.read(lambda state, slot: slot)
    unknown = ErrorCode.unknown_topic_or_partition
    assert deleted("plain", 0, 1, 9) == (NONE, [NONE, NONE, unknown])
    assert store.read(lambda state, slot: slot) == slots + 1
    assert deleted("plain", 0, -1, topic="none") == (NONE, [unknown, unknown])
    assert deleted("none", 9) == (ErrorCode.group_id_not_found, [])
    assert deleted("g", 0) == (NONE, [ErrorCode.group_subscribed_to_topic])
    assert deleted("none", 0) == (ErrorCode.group_id_not_found, [])
    left = fetch_offsets(client, 0, 1, group_id="plain")[1]
    assert {partition: found[0] for partition, found in left.items()} == {0: -1, 1: -1}
