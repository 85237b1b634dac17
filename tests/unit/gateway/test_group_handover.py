"""A gateway that ends hands its groups over: the next one replaces it, and the clients stay members.

The first test ends a gateway while another one joins its group: all orders of their writes, with a kill at each.
"""

from __future__ import annotations

import base64
import gc
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import permutations
from typing import Any, NoReturn, TypeVar

import pytest
from kio.schema.errors import ErrorCode

from eoslog.errors import IllegalGeneration, NotCoordinator, StoreUnavailable, UnknownMember
from eoslog.gateway.addresses import Address
from eoslog.gateway.group_coordinator import GroupCoordinator
from eoslog.gateway.group_memberships import Membership, Memberships
from eoslog.gateway.live_gateways import LiveGateways
from eoslog.gateway.protocol import ApiKey
from eoslog.maintenance.coordinator import Coordinator
from eoslog.state.group_members import ChangeGroup
from eoslog.state.groups import EMPTY_GROUP
from eoslog.state.store_state import Member
from eoslog.store import Store
from tests.unit.gateway.group_clients import GroupClient, fetch_offsets
from tests.unit.gateway.raw_client import Client, Running, Transactional, offsets_of, running
from tests.unit.support.paused_processes import asleep_at
from tests.unit.support.world import SLOTS, World, faulty

NONE = ErrorCode.none
SETTINGS: dict[str, Any] = {"group_initial_rebalance_delay_ms": 0}
_PATIENCE_S = 20
HAND_OVER, JOIN, OWN = "handover", "join", "own"
"""The heartbeat by which the first gateway hands the group over, the record by which the second one joins, and the late
join of the first one's own client. If this client joined before SIGTERM, its join is a record, too."""
_ORDERS = list(permutations((HAND_OVER, JOIN, OWN)))
T = TypeVar("T")
Kill = tuple[str, bool]
"""The write at which its gateway is killed, and whether the store has it."""


def _cases() -> Iterator[tuple[tuple[str, ...], bool, Kill | None]]:
    """Return each order, with or without a join before SIGTERM, and with each kill."""
    for order in _ORDERS:
        for is_early in (False, True):
            if is_early and order.index(HAND_OVER) < order.index(OWN):
                # A gateway hands a group over only when the joins that have begun are in the log.
                continue
            yield order, is_early, None
            for step in (HAND_OVER, JOIN, OWN) if is_early else (HAND_OVER, JOIN):
                yield order, is_early, (step, False)
                yield order, is_early, (step, True)


class _Killed(Exception):
    """The process is gone."""


class Held:
    """The appends and the last heartbeat of a process, which wait until the test lets them go on."""

    def __init__(self, process: Store, step_of: Callable[[Any], str]) -> None:
        """
        Args:
            step_of: returns the name of an append that waits; an empty one for others.
        """
        self._process = process
        self._append = process.append
        self._put_object = process.object_store.put
        self._step_of = step_of
        self._is_asked: dict[str, threading.Event] = {}
        self._may_go_on: dict[str, threading.Event] = {}
        self._has_ended: dict[str, threading.Event] = {}
        self._kill: Kill | None = None
        self.requests: dict[str, Any] = {}
        self.is_dead = False
        process.append = self._held  # type: ignore[method-assign]
        process.object_store.put = self._held_put  # type: ignore[method-assign]

    def _event(self, events: dict[str, threading.Event], step: str) -> threading.Event:
        return events.setdefault(step, threading.Event())

    def _held(self, request: Any, **options: Any) -> Any:
        return self._at(self._step_of(request), request, lambda: self._append(request, **options))

    def _held_put(self, path: str, body: bytes) -> None:
        self._at(HAND_OVER if b"generation_in_log" in body else "", body, lambda: self._put_object(path, body))

    def _at(self, step: str, written: Any, write: Callable[[], T]) -> T:
        if self.is_dead:
            raise _Killed
        if not step or self._event(self._has_ended, step).is_set():
            return write()
        self.requests[step] = written
        self._event(self._is_asked, step).set()
        assert self._event(self._may_go_on, step).wait(_PATIENCE_S)
        try:
            if self._kill == (step, False):
                self.die()
            found = write()
            if self._kill == (step, True):
                self.die()
            return found
        finally:
            self._event(self._has_ended, step).set()

    def die(self) -> NoReturn:
        self.is_dead = True
        faulty(self._process).go_down()
        raise _Killed

    def wait_for(self, step: str) -> None:
        """Wait until the process wants to write."""
        assert self._event(self._is_asked, step).wait(_PATIENCE_S)

    def pass_over(self, step: str) -> None:
        """Do not hold the process at this step."""
        self._event(self._has_ended, step).set()

    def let_go(self, step: str, kill: Kill | None = None) -> None:
        """Let the process write, and wait for the end of the step."""
        self._kill = kill
        self._event(self._may_go_on, step).set()
        assert self._event(self._has_ended, step).wait(_PATIENCE_S)


def step_of_first(request: Any) -> str:
    if not isinstance(request, ChangeGroup):
        return "commit"
    if request.joined is None:
        return HAND_OVER
    return OWN if request.only_if_member else ""


def step_of_second(request: Any) -> str:
    return JOIN if isinstance(request, ChangeGroup) and request.joined is not None else ""


def members(store: Store) -> dict[str, Member]:
    return store.read(lambda state, slot: dict(state.groups.get("g", EMPTY_GROUP).members))


def heartbeats(store: Store) -> set[str]:
    """Return the ids of the members that have a heartbeat object."""
    return {info.path.rsplit("/", 1)[1] for info in store.object_store.list("__consumer_groups/")}


def send_commit(member: GroupClient) -> None:
    key, version = ApiKey.OFFSET_COMMIT, 8
    named = {"group_id": "g", "member_id": member.member_id, "group_instance_id": member.instance}
    topics = (offsets_of(key, version, "OffsetCommitRequest", [(0, 9)]),)
    member.client.send(key, version, **named, generation_id_or_member_epoch=member.generation, topics=topics)


def stop(gateway: Running) -> threading.Thread:
    """Send SIGTERM to a gateway, and do not wait for its end."""
    ending = threading.Thread(target=gateway.stop)
    ending.start()
    return ending


@pytest.mark.parametrize(("order", "is_early", "kill"), list(_cases()), ids=str)
def test_a_group_goes_on_at_another_gateway_while_its_own_one_ends(
    store: Store, world: World, order: tuple[str, ...], is_early: bool, kill: Kill | None
) -> None:
    first_process, second_process = world.process(), world.process()
    with ExitStack() as stack:
        first, second = (stack.enter_context(running(each, **SETTINGS)) for each in (first_process, second_process))
        connections = [
            stack.enter_context(Client(port)) for port in (first.port, first.port, first.port, second.port, second.port)
        ]
        old, new = GroupClient(connections[0]), GroupClient(connections[3])
        assert old.join().error_code is NONE
        assert old.sync({old.member_id: b"all"}).error_code is NONE

        of_first, of_second = Held(first_process, step_of_first), Held(second_process, step_of_second)
        may_end = threading.Event()
        for step in ("handed_over", "left"):
            asleep_at(first_process, f"gateway.group.{step}", lambda: may_end.wait(_PATIENCE_S))
        # The first gateway was slow for a while, so the other one may take its groups.
        world.pass_time(60_000)
        committing = GroupClient(connections[1])
        committing.member_id, committing.generation = old.member_id, old.generation
        send_commit(committing)
        of_first.wait_for("commit")
        for _ in range(2):
            new.send_join()
            if not new.member_id:
                assert new.joined().error_code is ErrorCode.member_id_required
        of_second.wait_for(JOIN)
        if is_early:
            old.send_join()
            of_first.wait_for(OWN)
        ending = stop(first)
        if is_early:
            assert old.joined().error_code is ErrorCode.not_coordinator
        else:
            of_first.wait_for(HAND_OVER)
        for step in order:
            if step == JOIN:
                of_second.let_go(JOIN, kill)
            elif of_first.is_dead:
                continue
            elif step == OWN and not is_early:
                assert old.join().error_code is ErrorCode.not_coordinator
            else:
                of_first.wait_for(step)
                of_first.let_go(step, kill)
            assert len(members(store)) <= 1
        may_end.set()
        if of_second.is_dead:
            world.pass_time(60_000)
        else:
            assert new.joined().error_code is NONE
            (joined,) = members(store).values()
            assert joined.address == f"127.0.0.1:{second.port}"

        # The clients of the first gateway join again at a third one, or at the second one.
        port = second.port
        if of_second.is_dead:
            port = stack.enter_context(running(store, **SETTINGS)).port
        late, moved = (GroupClient(stack.enter_context(Client(port))) for _ in range(2))
        if of_second.is_dead:
            # Unless the second gateway has joined, the third one takes the place of the first.
            moved.member_id = old.member_id
            assert moved.leave() in (NONE, ErrorCode.unknown_member_id)
        else:
            assert new.leave() is NONE
        assert late.join().error_code is NONE
        assert late.sync({late.member_id: b"all"}).error_code is NONE
        assert late.commit((0, 3)) == {0: NONE}
        # The record of the commit that the first gateway has accepted arrives only now.
        with pytest.raises((UnknownMember, IllegalGeneration)):
            store.append(of_first.requests["commit"])
        of_first.let_go("commit")
        ending.join(_PATIENCE_S)
        assert late.commit((0, 4)) == {0: NONE}
        assert late.leave() is NONE
    assert not members(store)
    world.pass_time(30 * 24 * 3_600_000)
    store.admin.vacuum()
    assert not heartbeats(store)


def test_no_heartbeat_is_written_while_or_after_a_gateway_leaves(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = world.process()
    memberships = Memberships(
        process, LiveGateways(process, Address("127.0.0.1", 9092), rack=None), listens_elsewhere=False
    )
    membership = memberships.new("g")
    assert membership.join(frozenset("t")) == 1
    put = process.object_store.put
    is_asked, may_go_on, has_left = threading.Event(), threading.Event(), threading.Event()

    def late(path: str, body: bytes) -> None:
        is_asked.set()
        assert may_go_on.wait(_PATIENCE_S)
        put(path, body)

    monkeypatch.setattr(process.object_store, "put", late)
    asleep_at(process, "gateway.group.left", has_left.set)
    threads = [threading.Thread(target=each) for each in (membership.keep_alive, membership.leave)]
    threads[0].start()
    assert is_asked.wait(_PATIENCE_S)
    threads[1].start()
    assert has_left.wait(_PATIENCE_S)
    threads[1].join(0.1)
    may_go_on.set()
    for each in threads:
        each.join(_PATIENCE_S)
    assert not heartbeats(store)

    membership.keep_alive()
    assert not heartbeats(store)


# The clients stay members


def wait_until(is_reached: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not is_reached():
        assert time.monotonic() < end
        time.sleep(0.01)


def moved(member: GroupClient, client: Client) -> GroupClient:
    """Return a member as it goes on at another gateway."""
    found = GroupClient(client, instance=member.instance)
    found.member_id, found.generation = member.member_id, member.generation
    return found


def generation_in_log(store: Store) -> int:
    return store.read(lambda state, slot: state.groups.get("g", EMPTY_GROUP).generation)


@contextmanager
def handed_over(
    store: Store, *, syncs: bool = True, advertised: Address | None = None, **join: Any
) -> Iterator[GroupClient]:
    """A member of a group whose gateway has ended."""
    with running(store, advertised=advertised, **SETTINGS) as gateway, Client(gateway.port) as client:
        member = GroupClient(client, **join)
        assert member.join().error_code is NONE
        if syncs:
            assert member.sync({member.member_id: b"all"}).assignment == b"all"
    yield member


def test_members_go_on_at_the_next_gateway_in_their_generation(store: Store, world: World) -> None:
    with handed_over(world.process()) as old, running(store, **SETTINGS) as gateway, Client(gateway.port) as client:
        member = moved(old, client)
        assert member.heartbeat() is NONE
        assert member.sync().assignment == b"all"
        assert member.commit((0, 7)) == {0: NONE}
        producer = Transactional(client)
        producer.init()
        producer.add_offsets()
        named: dict[str, Any] = {"member_id": member.member_id, "generation_id": member.generation}
        assert producer.commit_offsets((1, 5), **named) == {1: NONE}
        assert producer.end() is NONE
        assert fetch_offsets(client, 0, 1)[1] == {0: (7, "m", NONE), 1: (5, "m", NONE)}
        assert generation_in_log(store) == member.generation + 1


@pytest.mark.parametrize("first", ["heartbeat", "commit", "describe", "join", "leave", "sync"])
def test_the_first_request_of_a_group_at_the_next_gateway_takes_it_over(store: Store, world: World, first: str) -> None:
    with handed_over(world.process()) as old, running(store, **SETTINGS) as gateway, Client(gateway.port) as client:
        member = moved(old, client)
        if first == "describe":
            (group,) = client.call(ApiKey.DESCRIBE_GROUPS, 5, groups=("g",), include_authorized_operations=False).groups
            assert (group.group_state, [each.member_id for each in group.members]) == ("Stable", [old.member_id])
        elif first == "join":
            assert member.join().generation_id > old.generation
        elif first == "sync":
            assert member.sync().assignment == b"all"
        else:
            answer = {"heartbeat": member.heartbeat, "commit": lambda: member.commit((0, 7))[0], "leave": member.leave}
            assert answer[first]() is NONE
        if first == "leave":
            wait_until(lambda: not members(store))
        else:
            (log_member,) = members(store).values()
            assert log_member.address == f"127.0.0.1:{gateway.port}"


def test_clients_find_a_gateway_that_starts_again_at_an_advertised_address(store: Store, world: World) -> None:
    address = Address("kafka.example", 9092)
    with (
        handed_over(world.process(), advertised=address) as old,
        running(store, advertised=address, **SETTINGS) as gateway,
        Client(gateway.port) as client,
    ):
        (found,) = client.call(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("g",)).coordinators
        assert (found.error_code, found.host, found.port) == (NONE, address.host, address.port)
        assert moved(old, client).heartbeat() is NONE


def test_the_sessions_of_a_group_that_shall_be_deleted_begin_at_the_next_gateway(store: Store, world: World) -> None:
    with handed_over(world.process()), running(store, **SETTINGS) as gateway, Client(gateway.port) as client:
        (result,) = client.call(ApiKey.DELETE_GROUPS, 2, groups_names=("g",)).results
        assert result.error_code is ErrorCode.non_empty_group
        (log_member,) = members(store).values()
        assert log_member.address == f"127.0.0.1:{gateway.port}"
        assert gateway.gateway.metrics().group_members == 1


def test_a_group_is_handed_over_again_and_again(store: Store, world: World) -> None:
    with handed_over(world.process()) as member:
        for number in range(3):
            with running(world.process(), **SETTINGS) as gateway, Client(gateway.port) as client:
                member = moved(member, client)
                assert member.commit((0, number)) == {0: NONE}
        with running(store, **SETTINGS) as gateway, Client(gateway.port) as client:
            member = moved(member, client)
            former = member.generation
            assert member.join().generation_id > former + 3
            assert member.sync({member.member_id: b"new"}).assignment == b"new"
            assert member.commit((0, 9)) == {0: NONE}
        assert len(members(store)) == 1


def test_a_gateway_that_ends_in_a_rebalance_hands_over_members_that_join_again(store: Store, world: World) -> None:
    with (
        handed_over(world.process(), syncs=False) as old,
        running(store, **SETTINGS) as gateway,
        Client(gateway.port) as client,
    ):
        member = moved(old, client)
        assert member.heartbeat() is ErrorCode.rebalance_in_progress
        joined = member.join()
        assert (joined.error_code, joined.member_id) == (NONE, old.member_id)
        assert joined.generation_id > old.generation


def test_a_static_member_goes_on(store: Store, world: World) -> None:
    with (
        handed_over(world.process(), instance="i") as old,
        running(store, **SETTINGS) as gateway,
        Client(gateway.port) as client,
    ):
        assert moved(old, client).heartbeat() is NONE
        new = GroupClient(client, instance="i")
        assert new.join().generation_id == old.generation
        assert moved(old, client).heartbeat() is ErrorCode.fenced_instance_id
        assert new.commit((0, 1)) == {0: NONE}


def test_a_new_process_of_a_static_member_waits_for_the_commits_of_the_old_one_that_takes_the_group_over(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = world.process()
    of_gateway = Held(process, lambda request: "" if isinstance(request, ChangeGroup) else "commit")
    of_gateway.pass_over(HAND_OVER)
    looks, may_look, joins = threading.Event(), threading.Event(), threading.Event()
    read, join = Memberships.predecessor, GroupCoordinator.join

    async def noted(coordinator: GroupCoordinator, group_id: str, request: Any) -> Any:
        joins.set()
        return await join(coordinator, group_id, request)

    def slow(memberships: Memberships, group_id: str) -> Any:
        looks.set()
        assert may_look.wait(_PATIENCE_S)
        return read(memberships, group_id)

    with (
        handed_over(world.process(), instance="i") as old,
        running(process, **SETTINGS) as gateway,
        Client(gateway.port) as old_client,
        Client(gateway.port) as new_client,
    ):
        monkeypatch.setattr(Memberships, "predecessor", slow)
        monkeypatch.setattr(GroupCoordinator, "join", noted)
        send_commit(moved(old, old_client))
        assert looks.wait(_PATIENCE_S)
        new = GroupClient(new_client, instance="i")
        new.send_join()
        assert joins.wait(_PATIENCE_S)
        may_look.set()
        of_gateway.wait_for("commit")
        new_client.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            new.joined()
        new_client.socket.settimeout(_PATIENCE_S)
        of_gateway.let_go("commit")
        assert new.joined().generation_id == old.generation
        assert fetch_offsets(new_client, 0)[1] == {0: (9, "m", NONE)}


def test_a_gateway_that_ends_in_a_takeover_hands_the_group_over(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Membership.take_over
    takes_over, may_take_over = threading.Event(), threading.Event()

    def held(membership: Membership, *arguments: Any) -> Any:
        takes_over.set()
        assert may_take_over.wait(_PATIENCE_S)
        return take(membership, *arguments)

    with handed_over(world.process()) as old:
        with running(world.process(), **SETTINGS) as gateway, Client(gateway.port) as client:
            monkeypatch.setattr(Membership, "take_over", held)
            member = moved(old, client)
            member.send_heartbeat()
            assert takes_over.wait(_PATIENCE_S)
            ending = stop(gateway)
            wait_until(lambda: gateway.gateway._groups._is_ending)
            may_take_over.set()
            assert client.answer(ApiKey.HEARTBEAT, 4).error_code in (NONE, ErrorCode.not_coordinator)
            ending.join(_PATIENCE_S)
        with running(store, **SETTINGS) as gateway, Client(gateway.port) as client:
            assert moved(old, client).heartbeat() is NONE


def test_of_two_gateways_one_takes_a_group_over(store: Store, world: World) -> None:
    with handed_over(world.process()) as old, ExitStack() as stack:
        gateways = [stack.enter_context(running(each, **SETTINGS)) for each in (store, world.process())]
        clients = [moved(old, stack.enter_context(Client(each.port))) for each in gateways]
        assert clients[0].heartbeat() is NONE
        assert clients[1].heartbeat() is ErrorCode.not_coordinator
        assert clients[1].commit((0, 1)) == {0: ErrorCode.not_coordinator}
        assert clients[0].commit((0, 2)) == {0: NONE}


def test_a_client_that_joins_while_another_one_has_the_group_taken_over_gets_an_answer(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"group_initial_rebalance_delay_ms": 500}
    read, is_free, take = Memberships.predecessor, Memberships.replaceable, Membership.take_over
    looks: list[str] = []
    has_looked, may_join, takes_over, may_take_over = (threading.Event() for _ in range(4))

    def late(memberships: Memberships, group_id: str) -> Any:
        looks.append(group_id)
        # The first client comes before the group is handed over.
        return None if len(looks) == 1 else read(memberships, group_id)

    def slow(memberships: Memberships, group_id: str) -> Any:
        has_looked.set()
        assert may_join.wait(_PATIENCE_S)
        return is_free(memberships, group_id)

    def held(membership: Membership, *arguments: Any) -> Any:
        takes_over.set()
        assert may_take_over.wait(_PATIENCE_S)
        return take(membership, *arguments)

    with (
        handed_over(world.process()) as old,
        running(store, **settings) as gateway,
        Client(gateway.port) as old_client,
        Client(gateway.port) as new_client,
    ):
        monkeypatch.setattr(Memberships, "predecessor", late)
        monkeypatch.setattr(Memberships, "replaceable", slow)
        monkeypatch.setattr(Membership, "take_over", held)
        new, member = GroupClient(new_client), moved(old, old_client)
        new.send_join(version=3)
        assert has_looked.wait(_PATIENCE_S)
        member.send_heartbeat()
        assert takes_over.wait(_PATIENCE_S)
        may_join.set()
        time.sleep(0.1)
        may_take_over.set()
        assert old_client.answer(ApiKey.HEARTBEAT, 4).error_code is NONE
        member.send_join()
        assert new.joined(version=3).error_code is NONE
        assert member.joined().generation_id == new.generation


def test_nobody_need_wait_for_the_end_of_a_takeover(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks, may_look = threading.Event(), threading.Event()

    def slow(memberships: Memberships, group_id: str) -> NoReturn:
        looks.set()
        assert may_look.wait(_PATIENCE_S)
        raise NotCoordinator("another gateway coordinates the group")

    monkeypatch.setattr(Memberships, "predecessor", slow)
    with running(store, **SETTINGS) as gateway:
        with Client(gateway.port) as client:
            GroupClient(client).send_sync()
            assert looks.wait(_PATIENCE_S)
        gateway.in_loop(lambda: [each.cancel() for each in gateway.gateway._connections])
        wait_until(lambda: not gateway.gateway._connections)
        may_look.set()
        wait_until(lambda: not gateway.gateway._groups._taking_over)
        gateway.in_loop(gc.collect)
    assert not [each.getMessage() for each in caplog.records if each.name == "asyncio"]


def test_a_takeover_does_not_depend_on_the_deletion_of_the_old_heartbeat(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = world.process()

    def refuse(paths: Any) -> NoReturn:
        raise StoreUnavailable("no answer")

    with (
        handed_over(world.process()) as old,
        running(process, advertised=Address("kafka.example", 9092), **SETTINGS) as gateway,
        Client(gateway.port) as client,
    ):
        monkeypatch.setattr(process.object_store, "delete_many", refuse)
        member = moved(old, client)
        assert member.heartbeat() is NONE
        assert member.commit((0, 1)) == {0: NONE}
        monkeypatch.undo()
    assert len(heartbeats(store)) == 2


def test_clients_join_again_if_somebody_has_changed_the_group_since(store: Store, world: World) -> None:
    with (
        handed_over(world.process()) as old,
        running(world.process(), **SETTINGS) as gateway,
        Client(gateway.port) as client,
    ):
        read = Memberships.predecessor

        def changed_since(memberships: Memberships, group_id: str) -> Any:
            found = read(memberships, group_id)
            store.admin.remove_members("g")
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Memberships, "predecessor", changed_since)
            assert moved(old, client).heartbeat() is ErrorCode.unknown_member_id
        wait_until(lambda: not members(store))
        assert GroupClient(client).join().error_code is NONE


def test_clients_join_again_if_a_coordinator_of_the_store_has_evicted_their_gateway(store: Store, world: World) -> None:
    with handed_over(world.process()) as old, running(store, **SETTINGS) as gateway, Client(gateway.port) as client:
        coordinator = Coordinator(store)
        assert coordinator.evict_silent_members() == []
        world.pass_time(31_000)
        assert len(coordinator.evict_silent_members()) == 1
        member = moved(old, client)
        assert member.heartbeat() is ErrorCode.unknown_member_id
        assert member.join().error_code is ErrorCode.unknown_member_id
        assert GroupClient(client).join().generation_id > old.generation


def last_heartbeat(store: Store) -> tuple[str, dict[str, Any]]:
    (info,) = store.object_store.list("__consumer_groups/")
    return info.path, json.loads(store.object_store.get(info.path).body)


_MEMBER = ("group", "members", 0)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (("generation_in_log",), 1_000),
        (("generation_in_log",), "1"),
        (("group",), None),
        (("group", "generation"), -1),
        (("group", "generation"), 2),
        (("group", "leader"), "somebody"),
        (("group", "protocol_name"), "other"),
        (("group", "protocol_type"), ""),
        (("group", "members"), []),
        (("group", "pending"), {"": 1}),
        (("group", "pending"), {"p": -1}),
        (("group", "pending"), {"p": 1_800_001}),
        ((*_MEMBER, "member_id"), ""),
        ((*_MEMBER, "member_id"), "x" * 40_000),
        ((*_MEMBER, "session_timeout_ms"), 1_800_001),
        ((*_MEMBER, "rebalance_timeout_ms"), None),
        ((*_MEMBER, "protocols"), []),
        ((*_MEMBER, "protocols"), [["range", "not base64!"]]),
        ((*_MEMBER, "assignment"), 7),
    ],
)
def test_an_invalid_handover_is_left_out(store: Store, world: World, at: tuple[Any, ...], value: object) -> None:
    with handed_over(world.process()) as old, running(store, **SETTINGS) as gateway, Client(gateway.port) as client:
        path, content = last_heartbeat(store)
        part = content
        for each in at[:-1]:
            part = part[each]
        part[at[-1]] = value
        store.object_store.put(path, json.dumps(content).encode())
        member = moved(old, client)
        # The gateway seems to be one that was killed.
        assert member.heartbeat() in (ErrorCode.not_coordinator, ErrorCode.unknown_member_id)
        world.pass_time(60_000)
        assert member.heartbeat() is ErrorCode.unknown_member_id
        assert GroupClient(client).join().error_code is NONE


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_an_unreadable_handover_is_left_out(store: Store, world: World, body: bytes) -> None:
    with handed_over(world.process()) as old, running(store, **SETTINGS) as gateway, Client(gateway.port) as client:
        path, _ = last_heartbeat(store)
        store.object_store.put(path, body)
        world.pass_time(3_600_000)
        assert moved(old, client).heartbeat() is ErrorCode.unknown_member_id


def test_a_forged_handover_names_members_and_the_log_fences_the_live_gateway(store: Store, world: World) -> None:
    with (
        running(world.process(), **SETTINGS) as first,
        Client(first.port) as client,
        running(store, **SETTINGS) as second,
        Client(second.port) as other_client,
    ):
        victim, invented = GroupClient(client), GroupClient(other_client)
        assert victim.join().error_code is NONE
        assert victim.sync({victim.member_id: b"all"}).assignment == b"all"
        assert victim.commit((0, 7)) == {0: NONE}
        path, _ = last_heartbeat(store)
        member = {
            "member_id": "invented",
            "client_id": "",
            "client_host": "",
            "session_timeout_ms": 1_800_000,
            "rebalance_timeout_ms": 0,
            "protocols": [["range", ""]],
            "assignment": base64.urlsafe_b64encode(b"mine").decode(),
        }
        group = {
            # An earlier generation than the log's: the forged heartbeat lets a member of it commit again.
            "generation": 0,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "leader": "invented",
            "is_stable": True,
            "members": [member],
        }
        last = {"session_timeout_ms": 30_000, "generation_in_log": generation_in_log(store), "group": group}
        store.object_store.put(path, json.dumps(last).encode())
        invented.member_id, invented.generation = "invented", 0
        assert invented.sync().assignment == b"mine"
        (gateway,) = members(store).values()
        assert gateway.address == f"127.0.0.1:{second.port}"
        assert victim.commit((0, 8)) == {0: ErrorCode.not_coordinator}
        assert fetch_offsets(client, 0)[1] == {0: (7, "m", NONE)}
        assert invented.commit((0, 9)) == {0: NONE}
        assert moved(victim, other_client).heartbeat() is ErrorCode.unknown_member_id


def test_a_group_for_which_the_next_gateway_has_no_memory_is_not_taken_over(
    store: Store, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with handed_over(world.process()) as old:
        with running(store, group_bytes=1_000, **SETTINGS) as gateway, Client(gateway.port) as client:
            assert moved(old, client).heartbeat() is ErrorCode.unknown_member_id
        assert "group 'g' is not taken over: there is no memory left" in caplog.text
        with running(store, **SETTINGS) as gateway, Client(gateway.port) as client:
            assert moved(old, client).heartbeat() is NONE


def test_takeovers_at_the_same_time_keep_to_the_memory_for_groups(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Membership.take_over
    takes_over, may_take_over = threading.Semaphore(0), threading.Event()

    def held(membership: Membership, *arguments: Any) -> Any:
        takes_over.release()
        assert may_take_over.wait(_PATIENCE_S)
        return take(membership, *arguments)

    with running(world.process(), **SETTINGS) as first, Client(first.port) as client:
        members = [GroupClient(client, group_id) for group_id in "gh"]
        for each in members:
            assert each.join().error_code is NONE
            assert each.sync({each.member_id: b"all"}).error_code is NONE
    with (
        running(store, group_bytes=12_000, **SETTINGS) as gateway,
        Client(gateway.port) as of_g,
        Client(gateway.port) as of_h,
    ):
        monkeypatch.setattr(Membership, "take_over", held)
        members[0].client, members[1].client = of_g, of_h
        members[0].send_heartbeat()
        assert takes_over.acquire(timeout=_PATIENCE_S)
        members[1].send_heartbeat()
        # The second one must not come so far.
        takes_over.acquire(timeout=0.3)
        may_take_over.set()
        answers = [each.client.answer(ApiKey.HEARTBEAT, 4).error_code for each in members]
        assert answers == [NONE, ErrorCode.unknown_member_id]
        assert 0 < gateway.gateway.metrics().memory["groups"][0] <= 12_000
        assert members[0].leave() is NONE
        wait_until(lambda: not gateway.gateway.metrics().memory["groups"][0])


def test_a_takeover_that_fails_takes_no_memory(store: Store, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(membership: Membership, *arguments: Any) -> NoReturn:
        raise NotCoordinator("another gateway coordinates the group")

    with handed_over(world.process()) as old, running(store, **SETTINGS) as gateway, Client(gateway.port) as client:
        monkeypatch.setattr(Membership, "take_over", refuse)
        assert moved(old, client).heartbeat() is ErrorCode.not_coordinator
        assert gateway.gateway.metrics().memory["groups"][0] == 0


def test_the_sessions_begin_at_the_end_of_a_takeover(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, now_ms = Membership.take_over, GroupCoordinator._now_ms
    slow_ms = 0

    def slow(membership: Membership, *arguments: Any) -> Any:
        nonlocal slow_ms
        slow_ms = 60_000
        return take(membership, *arguments)

    monkeypatch.setattr(GroupCoordinator, "_now_ms", staticmethod(lambda: now_ms() + slow_ms))
    with handed_over(world.process()) as old, running(store, **SETTINGS) as gateway, Client(gateway.port) as client:
        monkeypatch.setattr(Membership, "take_over", slow)
        (group,) = client.call(ApiKey.DESCRIBE_GROUPS, 5, groups=("g",), include_authorized_operations=False).groups
        assert group.group_state == "Stable"
        time.sleep(0.1)
        assert moved(old, client).heartbeat() is NONE


def test_a_gateway_that_cannot_reach_the_store_ends_in_time(store: Store, world: World) -> None:
    process = world.process()
    with running(process, **SETTINGS) as gateway, Client(gateway.port) as client:
        member = GroupClient(client)
        assert member.join().error_code is NONE
        faulty(process).go_down()
    assert len(members(store)) == 1


@pytest.mark.parametrize("lands", [True, False])
def test_a_gateway_that_cannot_hand_a_group_over_leaves_it(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch, lands: bool
) -> None:
    process = world.process()
    put = process.object_store.put

    def lost(path: str, body: bytes) -> None:
        is_last = b"generation_in_log" in body
        if lands or not is_last:
            put(path, body)
        if is_last:
            raise StoreUnavailable("no answer")

    monkeypatch.setattr(process.object_store, "put", lost)
    with handed_over(process) as old, running(store, **SETTINGS) as gateway, Client(gateway.port) as client:
        assert not members(store)
        assert not heartbeats(store)
        assert moved(old, client).heartbeat() is ErrorCode.unknown_member_id
        assert GroupClient(client).join().error_code is NONE


@pytest.mark.parametrize("lands", [True, False])
def test_a_gateway_that_is_killed_while_it_takes_a_group_over_is_replaced(
    store: Store, world: World, lands: bool
) -> None:
    killed = world.process()
    with handed_over(world.process()) as old:
        with running(killed, **SETTINGS) as gateway, Client(gateway.port) as client:
            faulty(killed).lose_answers(SLOTS, lands=lands)
            moved(old, client).heartbeat()
            faulty(killed).go_down()
        with running(store, port=gateway.port, **SETTINGS) as gateway, Client(gateway.port) as client:
            member = moved(old, client)
            if lands:
                assert member.heartbeat() is ErrorCode.unknown_member_id
            else:
                assert member.heartbeat() is NONE
