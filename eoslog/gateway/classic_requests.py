"""Requests of the classic group protocol and their answers, for all versions of Kafka's messages."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kio.schema.errors import ErrorCode

NO_GENERATION = -1
UNKNOWN_MEMBER = ""
"""The member id of a client that has none yet. In Kafka's answers it means "no member"."""


@dataclass(frozen=True, kw_only=True)
class MemberIdentity:
    """The fields by which a request names its member."""

    member_id: str
    group_instance_id: str | None = None
    """The name of a static member (KIP-345)."""
    generation: int = NO_GENERATION


@dataclass(frozen=True, kw_only=True)
class JoinRequest:
    """A JoinGroup request."""

    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    """Version 0 has no such field: then it is the session timeout."""
    protocol_type: str
    protocols: tuple[tuple[str, bytes | memoryview], ...]
    """Names of protocols, each with the member's metadata. The one that the member prefers is first."""
    member_id: str = UNKNOWN_MEMBER
    group_instance_id: str | None = None
    needs_member_id: bool = True
    """A new dynamic member must join a second time, with the member id of the first answer (version 4, KIP-394)."""
    can_skip_assignment: bool = True
    """The client understands ``JoinAnswer.skip_assignment`` (version 9, KIP-814)."""

    @property
    def size(self) -> int:
        """Return the bytes of the member's names, protocols and metadata."""
        names = (self.client_id, self.protocol_type, self.group_instance_id or "")
        return sum(map(len, names)) + sum(len(name) + len(metadata) for name, metadata in self.protocols)


@dataclass(frozen=True, kw_only=True)
class JoinedMember:
    """A member as the leader sees it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, kw_only=True)
class JoinAnswer:
    """The answer to a JoinGroup request."""

    error: ErrorCode = ErrorCode.none
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = UNKNOWN_MEMBER
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()
    """All members of the generation if the client leads it."""


@dataclass(frozen=True, kw_only=True)
class SyncRequest:
    """A SyncGroup request."""

    member: MemberIdentity
    protocol_type: str | None = None
    protocol_name: str | None = None
    needs_protocol: bool = False
    """The request must name the protocol (version 5, KIP-559)."""
    assignments: tuple[tuple[str, bytes | memoryview], ...] = ()
    """Member ids, each with its assignment. Followers give none."""


@dataclass(frozen=True, kw_only=True)
class SyncAnswer:
    """The answer to a SyncGroup request."""

    error: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class GroupState(StrEnum):
    """The states of a classic group. The values are Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, kw_only=True)
class DescribedMember:
    """A member in the answer to DescribeGroups."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, kw_only=True)
class GroupDescription:
    """A group in the answer to DescribeGroups."""

    state: GroupState
    protocol_type: str
    protocol_name: str
    """Empty if the group is not stable. Then the metadata of its members is empty, too."""
    members: tuple[DescribedMember, ...]
