"""Random histories of a classic group: clients start, stop and repeat requests, and generations come late."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from kio.schema.errors import ErrorCode

from eoslog.gateway.classic_group import ClassicGroup, GroupSettings
from eoslog.gateway.classic_requests import (
    GroupState,
    JoinAnswer,
    JoinRequest,
    MemberIdentity,
    SyncAnswer,
    SyncRequest,
)
from eoslog.gateway.handed_over_group import HandedOverGroup
from tests.depth import examples
from tests.unit.gateway.classic_clients import Reply

DYNAMIC, STATIC = 3, 2
PROTOCOLS = ("range", "range sticky", "sticky range", "sticky")
LEFT_OUT = b""
"""The assignment of a member to which the leader gives none."""


@dataclass(eq=False)
class Process:
    """A process of a client. A static member may have several, one after another."""

    name: str
    is_static: bool
    session_ms: int = 6_000
    member_id: str = ""
    generation: int = -1
    leads: dict[str, str] | None = None
    """The members to which it assigns: their names by their ids."""
    seen_ms: int = 0
    """The last time at which the group heard of it."""
    protocols: str = "range"

    @property
    def identity(self) -> MemberIdentity:
        instance = self.name if self.is_static else None
        return MemberIdentity(member_id=self.member_id, group_instance_id=instance, generation=self.generation)


@dataclass(eq=False)
class Waiting:
    """A request whose answer its client has not read, and the client's state when it sent the request."""

    process: Process
    reply: Reply[Any]
    learn: Callable[[Waiting], None]
    identity: MemberIdentity = field(init=False)
    protocols: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.identity = self.process.identity
        self.protocols = self.process.protocols.split()


processes = st.integers(0, DYNAMIC + STATIC - 1)
durations = st.sampled_from([1, 999, 1_000, 3_000, 5_999, 6_000, 20_000, 60_000, 300_000])


class Histories(RuleBasedStateMachine):
    """The clients of a group, and what they may learn."""

    @initialize(
        delay_ms=st.sampled_from([0, 1_000, 3_000]), max_size=st.sampled_from([1, 3, 100]), closes=st.booleans()
    )
    def start(self, delay_ms: int, max_size: int, closes: bool) -> None:
        self.ids = 0
        self.group_settings = GroupSettings(initial_rebalance_delay_ms=delay_ms, max_size=max_size)
        self.group = ClassicGroup("g", settings=self.group_settings, new_id=self.new_id)
        self.closes = closes
        self.now_ms = 0
        self.log_generation = self.begun = 0
        names = [f"dynamic{number}" for number in range(DYNAMIC)] + [f"static{number}" for number in range(STATIC)]
        self.running = [Process(name, name.startswith("static")) for name in names]
        self.former: list[Process] = []
        self.waiting: list[Waiting] = []
        self.granted: dict[int, set[str]] = {}
        """The member ids that learned of a generation."""
        self.leaders: dict[int, str] = {}
        self.assigned: dict[int, dict[str, bytes]] = {}
        """What the leader of a generation gave, by the names of members."""
        self.gone: set[str] = set()
        """The member ids that left, or of which another process took the place."""

    def new_id(self) -> str:
        self.ids += 1
        return str(self.ids)

    # The requests of clients

    @rule(
        number=processes,
        metadata=st.sampled_from([b"", b"1"]),
        protocols=st.sampled_from(PROTOCOLS),
        changes=st.booleans(),
        session_ms=st.sampled_from([6_000, 30_000]),
        rebalance_ms=st.sampled_from([0, 1_000, 20_000]),
        old=st.booleans(),
    )
    def join(
        self,
        number: int,
        metadata: bytes = b"",
        protocols: str = "range",
        changes: bool = False,
        session_ms: int = 6_000,
        rebalance_ms: int = 20_000,
        old: bool = False,
    ) -> None:
        process = self.running[number]
        process.seen_ms, process.session_ms = self.now_ms, session_ms
        if changes:
            process.protocols = protocols
        reply: Reply[JoinAnswer] = Reply()
        self.waiting.append(Waiting(process, reply, self.learn_generation))
        self.group.join(
            JoinRequest(
                client_id="c",
                client_host="h",
                session_timeout_ms=session_ms,
                rebalance_timeout_ms=rebalance_ms,
                protocol_type="consumer",
                protocols=tuple((name, metadata) for name in process.protocols.split()),
                member_id=process.member_id,
                group_instance_id=process.identity.group_instance_id,
                needs_member_id=not old,
                can_skip_assignment=not old,
            ),
            self.now_ms,
            reply,
        )
        self.learn()

    @rule(number=processes, leave_out=st.booleans())
    def sync(self, number: int, leave_out: bool = False) -> None:
        process = self.running[number]
        process.seen_ms = self.now_ms
        reply: Reply[SyncAnswer] = Reply()
        self.waiting.append(Waiting(process, reply, self.learn_assignment))
        # Each attempt assigns something else. Followers try to assign, too.
        given = {
            member_id: f"{name} in {process.generation}, attempt {self.new_id()}".encode()
            for member_id, name in (process.leads or {process.member_id: "itself"}).items()
            if not (leave_out and member_id == process.member_id)
        }
        identity = process.identity
        self.group.sync(SyncRequest(member=identity, assignments=tuple(given.items())), self.now_ms, reply)
        if process.leads and reply.answers and reply.answer.error is ErrorCode.none:
            names = process.leads
            self.assigned.setdefault(identity.generation, {names[each]: data for each, data in given.items()})
        self.learn()

    @rule(number=processes, of_former=st.booleans(), kind=st.sampled_from(["heartbeat", "commit", "transaction"]))
    def ask(self, number: int, of_former: bool, kind: str) -> None:
        known = self.former if of_former and self.former else self.running
        process = known[number % len(known)]
        if kind == "heartbeat":
            code = self.group.heartbeat(process.identity, self.now_ms)
        else:
            is_in = kind == "transaction"
            code = self.group.check_commit(process.identity, self.now_ms, in_transaction=is_in)
        if process.generation < 0 and kind != "heartbeat":
            return
        if code is ErrorCode.none:
            self.check_member(process.identity)
            waits = any(each.process is process for each in self.waiting)
            assert waits or self.now_ms - process.seen_ms < process.session_ms, "its session had ended"
            assert (self.group.state is GroupState.PREPARING) <= (kind != "heartbeat")
            assert (self.group.state is GroupState.COMPLETING) <= (kind != "commit")
        keeps_session = {"heartbeat": (ErrorCode.none, ErrorCode.rebalance_in_progress), "commit": (ErrorCode.none,)}
        if code in keeps_session.get(kind, ()):
            process.seen_ms = self.now_ms

    @rule(numbers=st.lists(processes, min_size=1, max_size=3), by_instance=st.booleans())
    def leave(self, numbers: list[int], by_instance: bool) -> None:
        leaving = [self.running[number] for number in numbers]
        members = [
            MemberIdentity(
                member_id="" if by_instance and each.is_static else each.member_id,
                group_instance_id=each.identity.group_instance_id,
            )
            for each in leaving
        ]
        outcomes = self.group.leave(members, self.now_ms)
        for process, (_, code) in zip(leaving, outcomes, strict=True):
            if code is ErrorCode.none:
                self.gone.add(process.member_id)
        self.learn()

    @rule(number=processes)
    def restart(self, number: int) -> None:
        old = self.running[number]
        self.former = [*self.former[-3:], old]
        self.running[number] = Process(old.name, old.is_static)

    # The host

    @rule(duration_ms=durations)
    def sleep(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while (deadline_ms := self.group.next_deadline_ms) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.group.advance(self.now_ms)
            assert self.group.next_deadline_ms is None or self.group.next_deadline_ms > self.now_ms
        self.now_ms = end_ms
        self.learn()

    @rule(duration_ms=durations)
    def sleep_without_timers(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        self.group.advance(self.now_ms)
        self.learn()

    @rule(step=st.integers(1, 3))
    def generation_is_in_log(self, step: int = 1) -> None:
        """A generation may also come when the group no longer needs it."""
        self.log_generation += step
        if self.group.needs_generation:
            self.begun = self.log_generation
        self.group.begin_generation(self.log_generation, self.now_ms)
        self.learn()

    @rule()
    def hand_over(self) -> None:
        """Another coordinator goes on with the group. The log has a new generation then, of which no client learns."""
        found = self.group.handed_over(self.now_ms)
        if found is None:
            return
        former, read = self.group, HandedOverGroup.model_validate_json(found.model_dump_json())
        former.close(ErrorCode.not_coordinator)
        self.group = ClassicGroup.taken_over("g", read, self.now_ms, settings=self.group_settings, new_id=self.new_id)
        self.log_generation += 1
        for each in (*self.running, *self.former):
            each.seen_ms = self.now_ms
        self.learn()

    @rule(leave_out=st.booleans())
    def rebalance(self, leave_out: bool) -> None:
        """Most histories would never be stable without this."""
        for _ in range(2):
            for number, process in enumerate(self.running):
                if not any(each.process is process for each in self.waiting):
                    self.join(number)
        self.sleep(3_000)
        if self.group.needs_generation:
            self.generation_is_in_log()
        for number, process in enumerate(self.running):
            if not any(each.process is process for each in self.waiting):
                self.sync(number, leave_out=leave_out)

    # What clients learn

    def learn(self) -> None:
        answered = [each for each in self.waiting if not each.reply.waits]
        self.waiting = [each for each in self.waiting if each.reply.waits]
        for each in answered:
            each.process.seen_ms = self.now_ms
            each.learn(each)

    def learn_generation(self, request: Waiting) -> None:
        process, answer = request.process, request.reply.answer
        if answer.error is ErrorCode.none:
            assert answer.generation == self.begun
            assert answer.protocol_name in request.protocols
            if process.is_static:
                earlier = takewhile(lambda each: each is not process, self.former)
                self.gone |= {each.member_id for each in earlier if each.name == process.name}
            assert answer.member_id not in self.gone
            process.member_id, process.generation, process.leads = answer.member_id, answer.generation, None
            self.granted.setdefault(answer.generation, set()).add(answer.member_id)
            if answer.members:
                assert answer.leader == answer.member_id
                names = {each.member_id: each.group_instance_id or each.member_id for each in answer.members}
                leader = names[answer.leader]
                assert self.leaders.setdefault(answer.generation, leader) == leader
                process.leads = None if answer.skip_assignment else names
        elif answer.error is ErrorCode.member_id_required:
            process.member_id, process.generation = answer.member_id, -1
        elif answer.error in (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id):
            self.forget(request)
        else:
            assert answer.error in (
                ErrorCode.not_coordinator,
                ErrorCode.rebalance_in_progress,
                ErrorCode.inconsistent_group_protocol,
                ErrorCode.group_max_size_reached,
            )

    def learn_assignment(self, request: Waiting) -> None:
        identity, answer = request.identity, request.reply.answer
        if answer.error is ErrorCode.none:
            self.check_member(identity)
            name = identity.group_instance_id or identity.member_id
            assert answer.assignment == self.assigned[identity.generation].get(name, LEFT_OUT)
        elif answer.error in (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id):
            self.forget(request)

    def forget(self, request: Waiting) -> None:
        """Do what a client does whose member is unknown: join again as a new one."""
        self.gone.add(request.identity.member_id)
        if request.process.member_id == request.identity.member_id:
            request.process.member_id, request.process.generation, request.process.leads = "", -1, None

    def check_member(self, identity: MemberIdentity) -> None:
        assert identity.generation == self.begun
        assert identity.member_id in self.granted[identity.generation]
        assert identity.member_id not in self.gone

    # At each time

    @invariant()
    def requests_wait_only_for_something(self) -> None:
        group = self.group
        if self.waiting:
            assert group.needs_generation or group.next_deadline_ms is not None
        if group.needs_generation:
            assert group.state is GroupState.PREPARING
            assert any(each.learn == self.learn_generation for each in self.waiting)
        if group.state is GroupState.EMPTY:
            assert not self.waiting

    @invariant()
    def the_generation_is_the_one_that_began(self) -> None:
        assert self.group.generation == self.begun
        assert (self.group.state is GroupState.EMPTY) == (not self.group.describe().members)

    def teardown(self) -> None:
        """All clients fall silent, or the group has another coordinator."""
        if not hasattr(self, "group"):
            return
        if self.closes:
            waiting = list(self.waiting)
            self.group.close(ErrorCode.not_coordinator)
            assert all(each.reply.answer.error is ErrorCode.not_coordinator for each in waiting)
            assert self.group.next_deadline_ms is None
            return
        for _ in range(1_000):
            if self.group.needs_generation:
                self.generation_is_in_log()
            elif (deadline_ms := self.group.next_deadline_ms) is not None:
                self.sleep(max(0, deadline_ms - self.now_ms))
            else:
                break
        assert self.group.state is GroupState.EMPTY
        assert self.group.is_unused
        assert not self.waiting


TestHistories = Histories.TestCase
TestHistories.settings = settings(examples(60), stateful_step_count=60)
