"""A group of Kafka's classic protocol: a state machine without I/O and without a clock.

The clients of a group join, get a generation, and their leader assigns partitions to them. The answers are those of
Kafka's coordinator (``GroupMetadataManager`` of Kafka 4 for a ``ClassicGroup``).

The number of a generation comes from the log, which takes time. So Kafka's step from the join phase to the next
generation is two steps here. The group *needs a generation* when all members have joined. Its host, the coordinator,
*begins* the generation when the log has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Self

from kio.schema.errors import ErrorCode

from eoslog.gateway.classic_members import ClassicMember, ClassicMembers
from eoslog.gateway.classic_requests import (
    UNKNOWN_MEMBER,
    DescribedMember,
    GroupDescription,
    GroupState,
    JoinAnswer,
    JoinedMember,
    JoinRequest,
    MemberIdentity,
    SyncAnswer,
    SyncRequest,
)
from eoslog.gateway.handed_over_group import HandedOverGroup, HandedOverMember

_LONGEST_NAME = 255
"""A member id begins with at most this many characters of a name that the client has chosen."""
_LEAST_POSTPONEMENT_MS = 1_000
"""A client's rebalance timeout may be 0. A group without joined members must not wake its host all the time."""


@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    """Kafka's broker settings ``group.*``."""

    initial_rebalance_delay_ms: int = 3_000
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = (1 << 31) - 1


@dataclass(frozen=True)
class _InitialDelay:
    """The wait for further members of a group that was empty. New members extend it."""

    delay_ms: int
    remaining_ms: int
    has_new_member: bool = False


class ClassicGroup:
    """A group of Kafka's classic protocol in the memory of its coordinator.

    Each method takes the monotonic time in milliseconds. The group calls the ``respond`` of each request exactly once,
    at once or in a later call. ``respond`` must not call the group, and must not raise.

    After each call the host does two things:

    - It plans to call ``advance`` at ``next_deadline_ms``.
    - If ``needs_generation``, it appends a new generation for ``subscribed_topics`` to the log, and then calls
      ``begin_generation``. It appends one at a time. If ``subscribed_topics`` has further topics by then, or if they
      have become unknown, it appends another generation first.

    Until ``begin_generation`` the group is in PreparingRebalance, as in Kafka, so every call is allowed meanwhile:

    - A join waits, and its member is in the generation. A member whose rebalance timeout is over may still join.
    - A member that leaves or whose time is over is removed, and its join is answered with UNKNOWN_MEMBER_ID.
    - If no member is left, the group is empty and needs no generation. Then ``begin_generation`` does nothing: no
      client learns the generation that the log has. The next generation is higher.
    - If the append fails, the host repeats it or closes the group.
    """

    def __init__(self, group_id: str, *, settings: GroupSettings, new_id: Callable[[], str]) -> None:
        """Create an empty group.

        Args:
            new_id: returns a unique id, the last part of a new member id.
        """
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self._settings = settings
        self._new_id = new_id
        self._members = ClassicMembers()
        self._initial_delay: _InitialDelay | None = None
        self._join_deadline_ms: int | None = None
        self._sync_deadline_ms: int | None = None
        self._join_phase_is_over = False
        self._closed = ErrorCode.none

    @property
    def needs_generation(self) -> bool:
        """Return whether the host must put a new generation into the log."""
        return self._join_phase_is_over

    @property
    def is_unused(self) -> bool:
        """Return whether the host can forget the group: no client knows a member id of it."""
        return not self._members and not self._members.pending

    @property
    def member_count(self) -> int:
        return len(self._members)

    @property
    def size(self) -> int:
        """Return about how many bytes of memory the members take, and the member ids that no client has used yet."""
        return self._members.size

    def size_of(self, member_id: str) -> int:
        """Return about how many bytes of memory a member takes; 0 if it is none."""
        return self._members[member_id].size if member_id in self._members else 0

    @property
    def next_deadline_ms(self) -> int | None:
        """Return the time at which ``advance`` must be called; None if time changes nothing."""
        phases = (self._join_deadline_ms, self._sync_deadline_ms)
        return min((*self._members.deadlines_ms, *(each for each in phases if each is not None)), default=None)

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the names of topics to which members subscribe; None if those of a member are unknown.

        A client may give any string as a name. Only consumers give topics.
        """
        return self._members.topics

    def describe(self) -> GroupDescription:
        """Return the group as DescribeGroups shows it."""
        name = (self.protocol_name if self.state is GroupState.STABLE else None) or ""
        return GroupDescription(
            state=self.state,
            protocol_type=self.protocol_type or "",
            protocol_name=name,
            members=tuple(
                DescribedMember(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    client_id=each.client_id,
                    client_host=each.client_host,
                    metadata=each.protocols.get(name, b""),
                    assignment=each.assignment,
                )
                for each in self._members
            ),
        )

    # JoinGroup

    def join(self, request: JoinRequest, now_ms: int, respond: Callable[[JoinAnswer], object]) -> None:
        """Let a member join, or join again."""
        member_id = request.member_id
        settings = self._settings
        if self._closed is not ErrorCode.none:
            respond(JoinAnswer(error=self._closed, member_id=member_id))
        elif not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
            respond(JoinAnswer(error=ErrorCode.invalid_session_timeout, member_id=member_id))
        elif not self._has_room_for(member_id):
            respond(JoinAnswer(error=ErrorCode.group_max_size_reached, member_id=UNKNOWN_MEMBER))
            self._remove([member_id], now_ms)
        elif not self._supports(request):
            respond(JoinAnswer(error=ErrorCode.inconsistent_group_protocol, member_id=member_id))
        elif member_id == UNKNOWN_MEMBER:
            self._join_first(request, now_ms, respond)
        elif member_id in self._members.pending and request.group_instance_id is None:
            self._add(member_id, request, now_ms, respond)
        elif (error := self._members.check(member_id, request.group_instance_id)) is not ErrorCode.none:
            respond(JoinAnswer(error=error, member_id=member_id))
        else:
            self._join_again(self._members[member_id], request, now_ms, respond)

    def _has_room_for(self, member_id: str) -> bool:
        if self.state is GroupState.EMPTY:
            return True
        if self.state is GroupState.PREPARING:
            # Members that have not joined do not count: a group over its limit keeps those that join first.
            is_joining = member_id in self._members and self._members[member_id].is_joining
            return is_joining or self._members.joining < self._settings.max_size
        return member_id in self._members or len(self._members) < self._settings.max_size

    def _supports(self, request: JoinRequest) -> bool:
        """Return whether a protocol of the request is common to all members."""
        names = {name for name, _ in request.protocols}
        if self.state is GroupState.EMPTY:
            return bool(request.protocol_type and names)
        return request.protocol_type == self.protocol_type and not names.isdisjoint(self._members.common_protocols)

    def _join_first(self, request: JoinRequest, now_ms: int, respond: Callable[[JoinAnswer], object]) -> None:
        """Let a client without a member id join."""
        instance_id = request.group_instance_id
        name = request.client_id if instance_id is None else instance_id
        # Answers have the ids of other members, and in old versions a string has at most 32,767 bytes.
        member_id = f"{name[:_LONGEST_NAME]}-{self._new_id()}"
        old_id = self._members.static_id(instance_id)
        if old_id is not None:
            self._join_in_place_of(self._members[old_id], member_id, request, now_ms, respond)
        elif instance_id is None and request.needs_member_id:
            self._members.pending[member_id] = now_ms + request.session_timeout_ms
            respond(JoinAnswer(error=ErrorCode.member_id_required, member_id=member_id))
        else:
            self._add(member_id, request, now_ms, respond)

    def _add(self, member_id: str, request: JoinRequest, now_ms: int, respond: Callable[[JoinAnswer], object]) -> None:
        member = ClassicMember(member_id, request)
        member.is_new = True
        member.begin_session(now_ms)
        member.wait_for_join(respond)
        self._members.add(member)
        self.protocol_type = request.protocol_type
        if self._initial_delay is not None:
            self._initial_delay = replace(self._initial_delay, has_new_member=True)
        self._rebalance(now_ms)

    def _join_in_place_of(
        self,
        old: ClassicMember,
        member_id: str,
        request: JoinRequest,
        now_ms: int,
        respond: Callable[[JoinAnswer], object],
    ) -> None:
        """Let a static member that started again take the place of its former process (KIP-345)."""
        old_leader = self._members.leader
        member = ClassicMember(member_id, request)
        member.begin_session(now_ms)
        self._members.replace(old, member)
        if self.state is not GroupState.STABLE or self._members.selected_protocol != self.protocol_name:
            # CompletingRebalance begins again, too: the leader may know the old member id only, and would assign
            # nothing to the new one.
            member.wait_for_join(respond)
            self._rebalance(now_ms)
        elif request.can_skip_assignment:
            respond(self._generation_answer(member, skip_assignment=member_id == self._members.leader))
        else:
            # This client would assign if it learned that it leads. So the answer names its former process as leader.
            respond(self._generation_answer(member, leader=old_leader))

    def _join_again(
        self, member: ClassicMember, request: JoinRequest, now_ms: int, respond: Callable[[JoinAnswer], object]
    ) -> None:
        """Let a member join that has joined before."""
        # A leader that joins again asks for a rebalance: its assignment may depend on more than the metadata.
        keeps_generation = self.state is GroupState.COMPLETING or (
            self.state is GroupState.STABLE and member.member_id != self._members.leader
        )
        if keeps_generation and member.matches(request):
            respond(self._generation_answer(member))
        else:
            member.update(request)
            member.wait_for_join(respond)
            self._rebalance(now_ms)

    def _generation_answer(
        self, member: ClassicMember, *, leader: str | None = None, skip_assignment: bool = False
    ) -> JoinAnswer:
        """Return the answer that gives a member the current generation.

        Args:
            leader: the leader in the answer, if it is not the group's.
        """
        leader = leader or self._members.leader or UNKNOWN_MEMBER
        members: tuple[JoinedMember, ...] = ()
        if leader == member.member_id:
            members = tuple(
                JoinedMember(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    metadata=each.protocols[self.protocol_name or ""],
                )
                for each in self._members
            )
        return JoinAnswer(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=leader,
            skip_assignment=skip_assignment,
            members=members,
        )

    # Rebalances

    def _rebalance(self, now_ms: int) -> None:
        """Begin a rebalance. If one is in its join phase, end this phase if all members have joined."""
        if self.state is GroupState.PREPARING:
            self._end_join_phase_if_all_joined(now_ms)
            return
        was_empty = self.state is GroupState.EMPTY
        if self.state is GroupState.COMPLETING:
            self._assign({}, ErrorCode.rebalance_in_progress, now_ms)
        self._sync_deadline_ms = None
        self.state = GroupState.PREPARING
        timeout_ms = self._members.rebalance_timeout_ms
        if was_empty:
            delay_ms = self._settings.initial_rebalance_delay_ms
            self._initial_delay = _InitialDelay(delay_ms, max(timeout_ms - delay_ms, 0))
            self._join_deadline_ms = now_ms + delay_ms
        else:
            self._join_deadline_ms = now_ms + timeout_ms
            self._end_join_phase_if_all_joined(now_ms)

    def _end_join_phase_if_all_joined(self, now_ms: int) -> None:
        if self._join_phase_is_over:
            if not self._members.joining:
                # All joined members left before their generation began. The others get time again.
                self._postpone(now_ms)
        elif self._initial_delay is None and self._members.all_have_joined:
            self._end_join_phase(now_ms)

    def _end_join_phase(self, now_ms: int) -> None:
        self._initial_delay = None
        if self._members.joining:
            self._join_deadline_ms = None
            self._join_phase_is_over = True
            return
        self._members.remove_absent()
        if self._members:
            self._postpone(now_ms)
        else:
            self._become_empty()

    def _postpone(self, now_ms: int) -> None:
        self._join_phase_is_over = False
        self._join_deadline_ms = now_ms + max(self._members.rebalance_timeout_ms, _LEAST_POSTPONEMENT_MS)

    def begin_generation(self, generation: int, now_ms: int) -> None:
        """Begin a generation that the log has: answer the joins that wait.

        Does nothing if the group needs none any more.

        Args:
            generation: the number of the generation. It is higher than the generations that members have seen. It is
                lower only if the empty group was deleted from the log: then all members are new.
        """
        if not self.needs_generation:
            return
        if generation <= self.generation and not all(each.is_new for each in self._members):
            raise ValueError(f"generation {generation} is not higher than {self.generation}")
        self._members.remove_absent()
        self._members.elect_leader()
        self.generation = generation
        self.protocol_name = self._members.selected_protocol
        self._join_phase_is_over = False
        self.state = GroupState.COMPLETING
        self._sync_deadline_ms = now_ms + self._members.rebalance_timeout_ms
        for member in self._members:
            member.must_sync = True
            member.is_new = False
            member.begin_session(now_ms)
            member.answer_join(self._generation_answer(member))

    # SyncGroup

    def sync(self, request: SyncRequest, now_ms: int, respond: Callable[[SyncAnswer], object]) -> None:
        """Give a member its assignment when the leader has sent it."""
        error = self._sync_error(request)
        if error is not ErrorCode.none:
            respond(SyncAnswer(error=error))
            return
        member = self._members[request.member.member_id]
        member.must_sync = False
        if self.state is GroupState.STABLE:
            respond(self._assignment_answer(member))
            return
        member.wait_for_sync(respond)
        if member.member_id == self._members.leader:
            self.state = GroupState.STABLE
            assignments = {member_id: bytes(assignment) for member_id, assignment in request.assignments}
            self._assign(assignments, ErrorCode.none, now_ms)

    def _sync_error(self, request: SyncRequest) -> ErrorCode:
        given = (request.protocol_type, request.protocol_name)
        if self._closed is not ErrorCode.none:
            return self._closed
        if request.needs_protocol and None in given:
            return ErrorCode.inconsistent_group_protocol
        error = self._check(request.member)
        if error is not ErrorCode.none:
            return error
        known = (self.protocol_type, self.protocol_name)
        if any(name is not None and name != selected for name, selected in zip(given, known, strict=True)):
            return ErrorCode.inconsistent_group_protocol
        return ErrorCode.rebalance_in_progress if self.state is GroupState.PREPARING else ErrorCode.none

    def _assign(self, assignments: dict[str, bytes], error: ErrorCode, now_ms: int) -> None:
        """Give each member its assignment, or none, and answer the syncs that wait."""
        for member in self._members:
            member.assignment = assignments.get(member.member_id, b"")
            if member.is_syncing:
                # Its session did not end while the request waited.
                member.begin_session(now_ms)
                has_assignment = error is ErrorCode.none
                member.answer_sync(self._assignment_answer(member) if has_assignment else SyncAnswer(error=error))

    def _assignment_answer(self, member: ClassicMember) -> SyncAnswer:
        return SyncAnswer(
            protocol_type=self.protocol_type, protocol_name=self.protocol_name, assignment=member.assignment
        )

    # Heartbeat, OffsetCommit, LeaveGroup

    def heartbeat(self, member: MemberIdentity, now_ms: int) -> ErrorCode:
        """Keep the session of a member alive, and return the code that answers its Heartbeat."""
        error = self._check(member)
        if error is not ErrorCode.none:
            return error
        self._members[member.member_id].begin_session(now_ms)
        return ErrorCode.rebalance_in_progress if self.state is GroupState.PREPARING else ErrorCode.none

    def check_commit(self, member: MemberIdentity, now_ms: int, *, in_transaction: bool) -> ErrorCode:
        """Return the code for a commit of offsets. Outside of a transaction it keeps the member's session alive.

        Args:
            in_transaction: the request is TxnOffsetCommit.
        """
        if self._closed is not ErrorCode.none:
            return self._closed
        if member.generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.none
        if member.generation < 0 and member.member_id == UNKNOWN_MEMBER and member.group_instance_id is None:
            # Producers before KIP-447 send no member with the offsets of a transaction.
            return ErrorCode.none if in_transaction else ErrorCode.unknown_member_id
        error = self._check(member)
        if error is not ErrorCode.none or in_transaction:
            return error
        if self.state is GroupState.COMPLETING:
            # The member has the generation, but no assignment yet.
            return ErrorCode.rebalance_in_progress
        self._members[member.member_id].begin_session(now_ms)
        return ErrorCode.none

    def _check(self, member: MemberIdentity) -> ErrorCode:
        """Return the code for a request of a member; ``none`` if the member has the current generation."""
        if self._closed is not ErrorCode.none:
            return self._closed
        error = self._members.check(member.member_id, member.group_instance_id)
        if error is not ErrorCode.none:
            return error
        is_old = member.generation != self.generation or self._members[member.member_id].is_new
        return ErrorCode.illegal_generation if is_old else ErrorCode.none

    def leave(self, members: Iterable[MemberIdentity], now_ms: int) -> list[tuple[MemberIdentity, ErrorCode]]:
        """Remove members, and return the outcome of each. Their generations do not matter.

        An administrator names a static member by its instance id only.
        """
        outcomes = []
        removed = []
        for member in members:
            instance_id = member.group_instance_id
            member_id = member.member_id or self._members.static_id(instance_id) or UNKNOWN_MEMBER
            error = self._closed
            if error is ErrorCode.none and member_id not in self._members.pending:
                error = self._members.check(member_id, instance_id)
            if error is ErrorCode.none:
                removed.append(self._members.remove(member_id))
            outcomes.append((member, error))
        if removed:
            self._go_on_without(removed, now_ms)
        return outcomes

    def _remove(self, member_ids: Iterable[str], now_ms: int) -> None:
        """Remove members and pending member ids."""
        self._go_on_without([self._members.remove(each) for each in member_ids], now_ms)

    def _go_on_without(self, removed: list[bool], now_ms: int) -> None:
        """Let the other members rebalance.

        Args:
            removed: for each removed id, whether it was that of a member. A pending one matters only in a rebalance,
                which waits for it.
        """
        if not self._members:
            self._become_empty()
        elif any(removed) or self.state is GroupState.PREPARING:
            self._rebalance(now_ms)

    def _become_empty(self) -> None:
        self.state = GroupState.EMPTY
        self._initial_delay = self._join_deadline_ms = self._sync_deadline_ms = None
        self._join_phase_is_over = False

    # Time

    def advance(self, now_ms: int) -> None:
        """End the sessions, the initial delay, and the phases of a rebalance whose time is over."""
        while (deadline_ms := self.next_deadline_ms) is not None and deadline_ms <= now_ms:
            self._remove(self._members.ended(now_ms), now_ms)
            if self._join_deadline_ms is not None and self._join_deadline_ms <= now_ms:
                self._end_delay_or_join_phase(now_ms)
            if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now_ms:
                self._sync_deadline_ms = None
                self._remove([each.member_id for each in self._members if each.must_sync], now_ms)

    def _end_delay_or_join_phase(self, now_ms: int) -> None:
        delay = self._initial_delay
        if delay is not None and delay.has_new_member:
            next_ms = min(self._settings.initial_rebalance_delay_ms, delay.remaining_ms)
            self._initial_delay = _InitialDelay(next_ms, max(delay.remaining_ms - delay.delay_ms, 0))
            self._join_deadline_ms = now_ms + next_ms
        else:
            self._end_join_phase(now_ms)

    def close(self, error: ErrorCode) -> None:
        """End the group, because this process no longer coordinates it.

        Args:
            error: the answer to requests that wait, and to later ones.
        """
        members, self._members = self._members, ClassicMembers()
        self._become_empty()
        self._closed = error
        self.state = GroupState.DEAD
        for member in members:
            member.answer_join(JoinAnswer(error=error, member_id=member.member_id))
            member.answer_sync(SyncAnswer(error=error))

    # Handover

    def handed_over(self, now_ms: int) -> HandedOverGroup | None:
        """Return the group for its next coordinator, where the clients stay members; None if it has no members.

        As in Kafka, a client that waits for its first generation is no member yet. If it knows its member id, it can
        join the next coordinator with this id.
        """
        members = [each for each in self._members if not each.is_new]
        if not members:
            return None
        leader = self._members.leader
        if leader not in {each.member_id for each in members}:
            leader = members[0].member_id
        new = [each for each in self._members if each.is_new and each.knows_its_id]
        return HandedOverGroup(
            generation=self.generation,
            protocol_type=self.protocol_type or "",
            protocol_name=self.protocol_name or "",
            leader=leader,
            is_stable=self.state is GroupState.STABLE,
            members=tuple(
                HandedOverMember(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    client_id=each.client_id,
                    client_host=each.client_host,
                    session_timeout_ms=each.session_timeout_ms,
                    rebalance_timeout_ms=each.rebalance_timeout_ms,
                    protocols=tuple(each.protocols.items()),
                    assignment=each.assignment,
                )
                for each in members
            ),
            pending={member_id: max(0, end_ms - now_ms) for member_id, end_ms in self._members.pending.items()}
            | {each.member_id: each.session_timeout_ms for each in new},
        )

    @classmethod
    def taken_over(
        cls,
        group_id: str,
        found: HandedOverGroup,
        now_ms: int,
        *,
        settings: GroupSettings,
        new_id: Callable[[], str],
    ) -> Self:
        """Return a group that its former coordinator has handed over.

        The sessions of all members begin anew. If the former coordinator ended in a rebalance, it begins again here.

        Args:
            found: the group as the former coordinator handed it over.
            settings, new_id: as for an empty group.
        """
        group = cls(group_id, settings=settings, new_id=new_id)
        group.generation = found.generation
        group.protocol_type, group.protocol_name = found.protocol_type, found.protocol_name
        for each in found.members:
            request = JoinRequest(protocol_type=found.protocol_type, **each.model_dump(exclude={"assignment"}))
            member = ClassicMember(each.member_id, request)
            member.assignment = each.assignment
            member.begin_session(now_ms)
            group._members.add(member)
        group._members.leader = found.leader
        group._members.pending = {member_id: now_ms + left_ms for member_id, left_ms in found.pending.items()}
        group.state = GroupState.STABLE
        if not found.is_stable:
            group._rebalance(now_ms)
        return group
