"""The members of a classic group, as its coordinator keeps them in memory."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from kio.schema.errors import ErrorCode

from eoslog.gateway.classic_requests import UNKNOWN_MEMBER, JoinAnswer, JoinRequest, SyncAnswer

CONSUMER_PROTOCOL_TYPE = "consumer"

_NEW_MEMBER_TIMEOUT_MS = 300_000
"""A new member whose JoinGroup waits this long is removed (Kafka's ``group.new.member.join.timeout.ms``)."""
_LONGEST_TOPIC = 249
_MEMBER_BYTES, _PENDING_BYTES, _NAME_BYTES = 2_000, 1_000, 300
"""The memory of a member, of a pending member id and of the name of a topic or protocol. Each is at least as large as
Python's objects for it."""
_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")


class ClassicMember:
    """A member of a classic group."""

    def __init__(self, member_id: str, request: JoinRequest) -> None:
        self.member_id = member_id
        self.group_instance_id = request.group_instance_id
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.assignment = b""
        self.knows_its_id = request.member_id == member_id
        """The client has joined with this id. Otherwise it learns the id from the answer."""
        self.is_new = False
        """The member has not seen its first generation, so it cannot send heartbeats."""
        self.must_sync = False
        """The member has not sent SyncGroup in the current generation."""
        self._deadline_ms = 0
        self._join: Callable[[JoinAnswer], object] | None = None
        self._sync: Callable[[SyncAnswer], object] | None = None
        self.update(request)

    def update(self, request: JoinRequest) -> None:
        """Take the timeouts and protocols of a request."""
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.protocols = _protocols(request)
        self.topics: frozenset[str] | None = None
        """The topics to which it subscribes; None if they are unknown."""
        if request.protocol_type == CONSUMER_PROTOCOL_TYPE:
            self.topics = _union(map(subscribed_topics, self.protocols.values()))
        names = len(self.topics or ()) + len(self.protocols)
        self._own_bytes = _MEMBER_BYTES + request.size + names * _NAME_BYTES

    def matches(self, request: JoinRequest) -> bool:
        """Return whether a request has the member's protocols, in the same order and with the same metadata."""
        return list(self.protocols.items()) == list(_protocols(request).items())

    @property
    def size(self) -> int:
        """Return about how many bytes of memory the member takes."""
        return self._own_bytes + len(self.assignment)

    @property
    def is_joining(self) -> bool:
        """Return whether a JoinGroup request of the member waits."""
        return self._join is not None

    @property
    def is_syncing(self) -> bool:
        """Return whether a SyncGroup request of the member waits."""
        return self._sync is not None

    @property
    def deadline_ms(self) -> int | None:
        """Return the time at which the member's session ends, or None if it does not end.

        A member cannot send heartbeats while its request waits, so its session does not end then. The session of a new
        member ends even then: a client whose connection breaks may repeat its first JoinGroup without a member id, and
        each repetition would leave a member behind.
        """
        return None if (self.is_joining or self.is_syncing) and not self.is_new else self._deadline_ms

    def begin_session(self, now_ms: int) -> None:
        """Start the session timeout again. A new member has a longer one."""
        self._deadline_ms = now_ms + (_NEW_MEMBER_TIMEOUT_MS if self.is_new else self.session_timeout_ms)

    def wait_for_join(self, respond: Callable[[JoinAnswer], object]) -> None:
        """Keep a JoinGroup request. An earlier one, whose client no longer waits for it, is answered."""
        earlier, self._join = self._join, respond
        if earlier is not None:
            earlier(JoinAnswer(error=ErrorCode.rebalance_in_progress, member_id=self.member_id))

    def wait_for_sync(self, respond: Callable[[SyncAnswer], object]) -> None:
        """Keep a SyncGroup request. An earlier one, whose client no longer waits for it, is answered."""
        earlier, self._sync = self._sync, respond
        if earlier is not None:
            earlier(SyncAnswer(error=ErrorCode.rebalance_in_progress))

    def answer_join(self, answer: JoinAnswer) -> None:
        """Answer the JoinGroup request if one waits."""
        respond, self._join = self._join, None
        if respond is not None:
            respond(answer)

    def answer_sync(self, answer: SyncAnswer) -> None:
        """Answer the SyncGroup request if one waits."""
        respond, self._sync = self._sync, None
        if respond is not None:
            respond(answer)


class ClassicMembers:
    """The members of a group, in the order in which they came, and the member ids that no client has used yet."""

    def __init__(self) -> None:
        self.leader: str | None = None
        """The member that assigns. A group with members has one."""
        self.pending: dict[str, int] = {}
        """Member ids that no client has used yet, each with the time at which it expires."""
        self._by_id: dict[str, ClassicMember] = {}
        self._static_ids: dict[str, str] = {}
        """The member ids of static members by their instance ids."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[ClassicMember]:
        return iter(list(self._by_id.values()))

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._by_id

    def __getitem__(self, member_id: str) -> ClassicMember:
        return self._by_id[member_id]

    def static_id(self, group_instance_id: str | None) -> str | None:
        """Return the member id of a static member, or None if the group has no such member."""
        return None if group_instance_id is None else self._static_ids.get(group_instance_id)

    def check(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Return the code for a request with these ids; ``none`` if they are those of a member."""
        if group_instance_id is not None:
            known = self._static_ids.get(group_instance_id)
            if known != member_id:
                return ErrorCode.unknown_member_id if known is None else ErrorCode.fenced_instance_id
        return ErrorCode.none if member_id in self._by_id else ErrorCode.unknown_member_id

    def add(self, member: ClassicMember) -> None:
        """Add a member. The first one leads."""
        self.pending.pop(member.member_id, None)
        self._by_id[member.member_id] = member
        if member.group_instance_id is not None:
            self._static_ids[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def replace(self, old: ClassicMember, new: ClassicMember) -> None:
        """Let the new process of a static member take the place of the old one, which is fenced."""
        new.assignment = old.assignment
        del self._by_id[old.member_id]
        self.add(new)
        if self.leader == old.member_id:
            self.leader = new.member_id
        old.answer_join(JoinAnswer(error=ErrorCode.fenced_instance_id, member_id=old.member_id))
        old.answer_sync(SyncAnswer(error=ErrorCode.fenced_instance_id))

    def remove(self, member_id: str) -> bool:
        """Remove a member or a pending member id, and return whether it was a member.

        A client whose request waits joins again, as a new member.
        """
        self.pending.pop(member_id, None)
        member = self._by_id.pop(member_id, None)
        if member is None:
            return False
        if member.group_instance_id is not None:
            del self._static_ids[member.group_instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self._by_id), None)
        member.answer_join(JoinAnswer(error=ErrorCode.unknown_member_id, member_id=UNKNOWN_MEMBER))
        member.answer_sync(SyncAnswer(error=ErrorCode.unknown_member_id))
        return True

    def remove_absent(self) -> None:
        """Remove the members that have not joined. Static ones stay: their processes may be about to start again."""
        for member in self:
            if not member.is_joining and member.group_instance_id is None:
                self.remove(member.member_id)

    def elect_leader(self) -> None:
        """Keep the leader if it has joined. Otherwise the first member that has joined leads."""
        joined = [each.member_id for each in self if each.is_joining]
        if self.leader not in joined:
            self.leader = joined[0]

    @property
    def size(self) -> int:
        """Return about how many bytes of memory the members and pending member ids take."""
        return len(self.pending) * _PENDING_BYTES + sum(each.size for each in self._by_id.values())

    @property
    def joining(self) -> int:
        """Return the number of members whose JoinGroup requests wait."""
        return sum(each.is_joining for each in self._by_id.values())

    @property
    def all_have_joined(self) -> bool:
        """Return whether all members have joined, and no client is about to join with a pending member id."""
        return not self.pending and self.joining == len(self)

    @property
    def rebalance_timeout_ms(self) -> int:
        """Return the longest rebalance timeout."""
        return max((each.rebalance_timeout_ms for each in self._by_id.values()), default=0)

    @property
    def topics(self) -> frozenset[str] | None:
        """Return the topics to which members subscribe; None if those of a member are unknown."""
        return _union(each.topics for each in self._by_id.values())

    @property
    def deadlines_ms(self) -> list[int]:
        """Return the times at which sessions end or pending member ids expire."""
        sessions = (each.deadline_ms for each in self._by_id.values())
        return [*self.pending.values(), *(each for each in sessions if each is not None)]

    def ended(self, now_ms: int) -> list[str]:
        """Return the members whose sessions have ended, and the pending member ids that have expired."""
        sessions = ((each.member_id, each.deadline_ms) for each in self._by_id.values())
        deadlines = (*sessions, *self.pending.items())
        return [member_id for member_id, end_ms in deadlines if end_ms is not None and end_ms <= now_ms]

    @property
    def common_protocols(self) -> set[str]:
        """Return the protocols that all members have. The group must have a member."""
        return set.intersection(*(set(each.protocols) for each in self._by_id.values()))

    @property
    def selected_protocol(self) -> str:
        """Return the protocol with most votes. Each member votes for its first protocol that all members have."""
        common = self.common_protocols
        votes = Counter(next(name for name in each.protocols if name in common) for each in self._by_id.values())
        return max(votes, key=votes.__getitem__)


def _protocols(request: JoinRequest) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name, metadata in request.protocols:
        found.setdefault(name, bytes(metadata))
    return found


def _union(topics: Iterable[frozenset[str] | None]) -> frozenset[str] | None:
    """Return all topics; None if some are unknown."""
    found: set[str] = set()
    for each in topics:
        if each is None:
            return None
        found |= each
    return frozenset(found)


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics of a consumer's metadata (Kafka's ``ConsumerProtocolSubscription``).

    All versions begin like version 0. Clients may send any bytes: the topics are None if the bytes are no subscription.
    Names that are too long for a topic are left out.
    """
    topics = []
    try:
        (count,) = _INT.unpack_from(metadata, _SHORT.size)
        at = _SHORT.size + _INT.size
        for _ in range(count):
            (length,) = _SHORT.unpack_from(metadata, at)
            at += _SHORT.size + length
            if length < 0 or at > len(metadata):
                return None
            if length <= _LONGEST_TOPIC:
                topics.append(metadata[at - length : at].decode())
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
