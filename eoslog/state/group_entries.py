"""The entries of consumer groups: their members, who reads what, and their offsets."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from eoslog.state.entry_fields import Hex, Identifier, Milliseconds, Model, Offset, PartitionIndex


class GroupOffset(Model):
    """A group's position in one partition."""

    topic_id: Hex
    partition: PartitionIndex
    offset: Offset
    """The next offset to read."""
    metadata: Annotated[str, Field(max_length=4096)] = ""
    """A note of the application's."""
    leader_epoch: Annotated[int, Field(strict=True, ge=-1, lt=2**31)] = -1
    """Kafka's leader epoch, kept for those who bring one; -1 else."""


class GroupOffsets(Model):
    """Offsets of a consumer group, with the generation of the consumer that read up to them."""

    group: Identifier
    generation: Annotated[int, Field(strict=True, ge=-1)] = -1
    """-1 for offsets that no member commits."""
    member_id: str = ""
    """Empty for offsets that no member commits."""
    group_instance_id: Identifier | None = None
    """Of a static member (KIP-345): a member id that another one has taken the place of is fenced."""
    offsets: tuple[GroupOffset, ...]


class OffsetsCommitted(Model):
    """Offsets of a group, committed outside of a transaction."""

    type: Literal["offsets"] = "offsets"
    committed: GroupOffsets
    time_ms: Milliseconds


class GroupMember(Model):
    """A consumer that joins a group, or changes what it subscribes to."""

    member_id: Identifier
    topics: tuple[str, ...]
    """The topics that it subscribes to."""
    group_instance_id: Identifier | None = None
    """Of a static member: whoever joins under the id of one that is there takes its place and its partitions."""


class AssignedPartitions(Model):
    """Partitions of one topic."""

    topic_id: Hex
    partitions: tuple[PartitionIndex, ...]


class MemberAssignment(Model):
    """The partitions that a member reads."""

    member_id: Identifier
    topics: tuple[AssignedPartitions, ...]


class GroupChanged(Model):
    """Members joined or left a group, or gave up partitions, and all are shared out anew.

    What a member is to give up stays its own until it says so, or leaves; only then is it another's.
    """

    type: Literal["group"] = "group"
    group: Identifier
    generation: Annotated[int, Field(strict=True, ge=0)]
    """One more than before if members or subscriptions changed or one is to give up a partition, else the same."""
    joined: tuple[GroupMember, ...] = ()
    left: tuple[Identifier, ...] = ()
    """Member ids."""
    revoked: tuple[Identifier, ...] = ()
    """Member ids of those that have given up what they were to."""
    assigned: tuple[MemberAssignment, ...] = ()
    """What every member reads from here on."""
    time_ms: Milliseconds


class OffsetPlace(Model):
    """A partition for which a group has committed an offset."""

    topic_id: Hex
    partition: PartitionIndex


class GroupOffsetsDeleted(Model):
    """A group's offsets of some partitions are forgotten, as nobody reads these topics in the group."""

    type: Literal["delete_offsets"] = "delete_offsets"
    group: Identifier
    partitions: tuple[OffsetPlace, ...]


class GroupDeleted(Model):
    """A group without members is forgotten, with its offsets and its generation."""

    type: Literal["delete_group"] = "delete_group"
    group: Identifier
