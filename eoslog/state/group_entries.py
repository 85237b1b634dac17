"""The entries of consumer groups: their members, the assignment of partitions, and their offsets."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from eoslog.state.entry_fields import Hex, Identifier, Milliseconds, Model, Offset, PartitionIndex

LONGEST_METADATA = 4096
"""The longest metadata of an offset (characters). Kafka's default limit is the same number of bytes."""
LONGEST_HOST = 255
"""The longest host name of a member (characters)."""
ClientId = Annotated[str, Field(max_length=1024)]
Host = Annotated[str, Field(max_length=LONGEST_HOST)]
Address = Annotated[
    str, Field(max_length=LONGEST_HOST + 8, pattern=r"^([0-9A-Za-z._-]+|\[[0-9A-Za-z:.%_-]+\]):[0-9]{1,5}$")
]
"""``host:port``. An IPv6 address is in brackets."""


class GroupOffset(Model):
    """A group's position in one partition."""

    topic_id: Hex
    partition: PartitionIndex
    offset: Offset
    """The next offset to read."""
    metadata: Annotated[str, Field(max_length=LONGEST_METADATA)] = ""
    """A note from the application."""
    leader_epoch: Annotated[int, Field(strict=True, ge=-1, lt=2**31)] = -1
    """Kafka's leader epoch, kept if the client gives one; -1 otherwise."""


class GroupOffsets(Model):
    """Offsets of a consumer group, with the generation of the consumer that commits them."""

    group: Identifier
    generation: Annotated[int, Field(strict=True, ge=-1)] = -1
    """-1 for offsets that no member commits."""
    member_id: str = ""
    """Empty for offsets that no member commits."""
    group_instance_id: Identifier | None = None
    """The instance id of a static member (KIP-345). If another member has it now, the commit is fenced."""
    offsets: tuple[GroupOffset, ...]


class OffsetsCommitted(Model):
    """Offsets of a group, committed outside of a transaction."""

    type: Literal["offsets"] = "offsets"
    committed: GroupOffsets
    time_ms: Milliseconds


class GroupMember(Model):
    """A consumer that joins a group, or changes its subscription.

    A member with an address is a coordinator: a gateway that stands for all the group's clients of Kafka's protocol.
    """

    member_id: Identifier
    topics: tuple[str, ...]
    """The names of the topics to which it subscribes. A coordinator without topics does not know those of its clients:
    then no offset of the group expires or is deleted.
    """
    group_instance_id: Identifier | None = None
    """The instance id of a static member. A consumer that joins with a known instance id replaces the member that has
    it, and gets this member's partitions.
    """
    client_id: ClientId = ""
    """The name that the application gave the consumer. Empty: it gave none."""
    host: Host = ""
    """The host name of the consumer's process. Empty: it is unknown."""
    address: Address | None = None
    """The address at which the clients of a coordinator reach it; None for a consumer. A coordinator has no instance
    id, and it joins again for each rebalance of its clients."""

    @property
    def is_coordinator(self) -> bool:
        """True for a gateway that coordinates the group's clients of Kafka's protocol; False for a consumer."""
        return self.address is not None

    @field_validator("address")
    @classmethod
    def _without_instance_id(cls, address: str | None, info: ValidationInfo) -> str | None:
        # ``group_instance_id`` is declared before ``address``, so it has been validated.
        if address is not None and info.data.get("group_instance_id") is not None:
            raise ValueError("a coordinator must not have a group instance id")
        return address


class AssignedPartitions(Model):
    """Partitions of one topic."""

    topic_id: Hex
    partitions: tuple[PartitionIndex, ...]


class MemberAssignment(Model):
    """The partitions that a member reads."""

    member_id: Identifier
    topics: tuple[AssignedPartitions, ...]


class GroupChanged(Model):
    """Members joined or left a group or gave up partitions, and the partitions were assigned again.

    A partition that a member must give up stays with it until the member has given it up or has left. Only then is it
    assigned to another member.
    """

    type: Literal["group"] = "group"
    group: Identifier
    generation: Annotated[int, Field(strict=True, ge=0)]
    """The group's generation from here on. It rises by 1 if a member joins, leaves, changes its subscription or must
    give up a partition, and each time that a coordinator is in ``joined``. Otherwise it stays."""
    joined: tuple[GroupMember, ...] = ()
    left: tuple[Identifier, ...] = ()
    """The ids of members that left."""
    revoked: tuple[Identifier, ...] = ()
    """The ids of members that have given up their partitions."""
    assigned: tuple[MemberAssignment, ...] = ()
    """The partitions that each member reads from here on. A coordinator has none: its clients share the partitions
    among themselves."""
    time_ms: Milliseconds


class OffsetPlace(Model):
    """A partition for which a group has committed an offset."""

    topic_id: Hex
    partition: PartitionIndex


class GroupOffsetsDeleted(Model):
    """A group's offsets of some partitions are deleted. No member of the group subscribes to the topics."""

    type: Literal["delete_offsets"] = "delete_offsets"
    group: Identifier
    partitions: tuple[OffsetPlace, ...]


class GroupDeleted(Model):
    """A group without members is deleted, with its offsets and its generation."""

    type: Literal["delete_group"] = "delete_group"
    group: Identifier
