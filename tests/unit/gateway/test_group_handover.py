"""A gateway leaves a group while another one joins it: all orders of their records, with a kill at each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import permutations
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from eoslog.errors import IllegalGeneration, UnknownMember
from eoslog.gateway.addresses import Address
from eoslog.gateway.group_memberships import Memberships
from eoslog.gateway.live_gateways import LiveGateways
from eoslog.gateway.protocol import ApiKey
from eoslog.state.group_members import ChangeGroup
from eoslog.state.groups import EMPTY_GROUP
from eoslog.state.store_state import Member
from eoslog.store import Store
from tests.unit.gateway.group_clients import GroupClient
from tests.unit.gateway.raw_client import Client, Running, offsets_of, running
from tests.unit.support.paused_processes import asleep_at
from tests.unit.support.world import World, faulty

NONE = ErrorCode.none
_PATIENCE_S = 20
LEAVE, JOIN, OWN = "leave", "join", "own"
"""The record by which the first gateway leaves, the one by which the second joins, and the late join of the first's own
client. If this client joined before SIGTERM, its join is a record, too."""
_ORDERS = list(permutations((LEAVE, JOIN, OWN)))
Kill = tuple[str, bool]
"""The record at which its gateway is killed, and whether the log has the record."""


def _cases() -> Iterator[tuple[tuple[str, ...], bool, Kill | None]]:
    """Return each order, with or without a join before SIGTERM, and with each kill."""
    for order in _ORDERS:
        for is_early in (False, True):
            if is_early and order.index(LEAVE) < order.index(OWN):
                # A gateway leaves only when the joins that have begun are in the log.
                continue
            yield order, is_early, None
            for step in (LEAVE, JOIN, OWN) if is_early else (LEAVE, JOIN):
                yield order, is_early, (step, False)
                yield order, is_early, (step, True)


class _Killed(Exception):
    """The process is gone."""


class Held:
    """The appends of a process, which wait until the test lets them go on."""

    def __init__(self, process: Store, step_of: Callable[[Any], str]) -> None:
        """
        Args:
            step_of: returns the name of an append that waits; an empty one for others.
        """
        self._process = process
        self._append = process.append
        self._step_of = step_of
        self._is_asked: dict[str, threading.Event] = {}
        self._may_go_on: dict[str, threading.Event] = {}
        self._has_ended: dict[str, threading.Event] = {}
        self._kill: Kill | None = None
        self.requests: dict[str, Any] = {}
        self.is_dead = False
        process.append = self._held  # type: ignore[method-assign]

    def _event(self, events: dict[str, threading.Event], step: str) -> threading.Event:
        return events.setdefault(step, threading.Event())

    def _held(self, request: Any, **options: Any) -> Any:
        step = "" if self.is_dead else self._step_of(request)
        if step and not self._event(self._has_ended, step).is_set():
            self.requests[step] = request
            self._event(self._is_asked, step).set()
            assert self._event(self._may_go_on, step).wait(_PATIENCE_S)
            try:
                if self._kill == (step, False):
                    self.die()
                found = self._put(request, **options)
                if self._kill == (step, True):
                    self.die()
                return found
            finally:
                self._event(self._has_ended, step).set()
        return self._put(request, **options)

    def _put(self, request: Any, **options: Any) -> Any:
        if self.is_dead:
            raise _Killed
        return self._append(request, **options)

    def die(self) -> None:
        self.is_dead = True
        faulty(self._process).go_down()
        raise _Killed

    def wait_for(self, step: str) -> None:
        """Wait until the append is asked for."""
        assert self._event(self._is_asked, step).wait(_PATIENCE_S)

    def let_go(self, step: str, kill: Kill | None = None) -> None:
        """Let the append go on, and wait for its end."""
        self._kill = kill
        self._event(self._may_go_on, step).set()
        assert self._event(self._has_ended, step).wait(_PATIENCE_S)


def step_of_first(request: Any) -> str:
    if not isinstance(request, ChangeGroup):
        return "commit"
    if request.joined is None:
        return LEAVE
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
    named = {"group_id": "g", "member_id": member.member_id, "group_instance_id": None}
    topics = (offsets_of(key, version, "OffsetCommitRequest", [(0, 9)]),)
    member.client.send(key, version, **named, generation_id_or_member_epoch=member.generation, topics=topics)


def stop(gateway: Running) -> threading.Thread:
    """Send SIGTERM to a gateway, and do not wait for its end."""
    ending = threading.Thread(target=gateway.stop)
    ending.start()
    return ending


@pytest.mark.parametrize(("order", "is_early", "kill"), list(_cases()), ids=str)
def test_a_group_goes_on_at_another_gateway_while_its_own_one_leaves(
    store: Store, world: World, order: tuple[str, ...], is_early: bool, kill: Kill | None
) -> None:
    settings: dict[str, Any] = {"group_initial_rebalance_delay_ms": 0}
    first_process, second_process = world.process(), world.process()
    with ExitStack() as stack:
        first, second = (stack.enter_context(running(each, **settings)) for each in (first_process, second_process))
        connections = [
            stack.enter_context(Client(port)) for port in (first.port, first.port, first.port, second.port, second.port)
        ]
        old, new = GroupClient(connections[0]), GroupClient(connections[3])
        assert old.join().error_code is NONE
        assert old.sync({old.member_id: b"all"}).error_code is NONE

        of_first, of_second = Held(first_process, step_of_first), Held(second_process, step_of_second)
        may_end = threading.Event()
        asleep_at(first_process, "gateway.group.left", lambda: may_end.wait(_PATIENCE_S))
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
            of_first.wait_for(LEAVE)
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
            port = stack.enter_context(running(store, **settings)).port
        late = GroupClient(stack.enter_context(Client(port)))
        if not of_second.is_dead:
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
    if kill is not None:
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
