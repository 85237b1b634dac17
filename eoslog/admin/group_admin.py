"""Administration of consumer groups: list, describe, set and delete offsets, remove members (Kafka's ``Admin``)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import ClassVar, NamedTuple

from eoslog.admin.transaction_descriptions import named_partition
from eoslog.arguments import Integer, Natural, checked_option, kinds_of
from eoslog.errors import CommitStateUnknown, InvalidRequest, StoreUnavailable
from eoslog.read.isolation import IsolationLevel
from eoslog.read.offset_lookup import offset_for_time
from eoslog.session.client_options import named_options
from eoslog.session.idempotent_append import IdempotentAppend
from eoslog.session.positions import OffsetAndMetadata, group_offsets, offsets_given
from eoslog.session.session import Session, partition_named
from eoslog.session.time_limits import DEFAULT_DELIVERY_TIMEOUT_MS, DEFAULT_MAX_BLOCK_MS, TimeLimits
from eoslog.state.draft import AppendEntry, Draft
from eoslog.state.expiry import known_offsets
from eoslog.state.group_entries import GroupDeleted, GroupOffsetsDeleted, OffsetPlace, OffsetsCommitted
from eoslog.state.group_members import ChangeGroup
from eoslog.state.groups import EMPTY_GROUP, check_empty, committed_offset, group_named
from eoslog.state.names import PartitionId, TopicPartition, check_id, names_given, topic_partition, topic_partitions
from eoslog.state.partition_state import Partition
from eoslog.state.partitions import partition_of
from eoslog.state.store_state import Group, StoreState, Topic
from eoslog.state.topics import topic_named
from eoslog.storage.process import HomeProcess
from eoslog.wording import quoted

_logger = logging.getLogger(__name__)
EMPTY, RECONCILING, STABLE = "Empty", "Reconciling", "Stable"
GROUP_STATES = (EMPTY, RECONCILING, STABLE)


class GroupListing(NamedTuple):
    """One line of the list of consumer groups."""

    group_id: str
    state: str
    """``Empty`` without members, ``Reconciling`` while a member has partitions to give up, otherwise ``Stable``."""


class MemberDescription(NamedTuple):
    """A member of a group: a consumer, or the coordinator of clients of Kafka's protocol."""

    member_id: str
    group_instance_id: str | None
    """The instance id of a static member; otherwise None."""
    topics: tuple[str, ...]
    """The topics to which it subscribes."""
    partitions: tuple[TopicPartition, ...]
    """The partitions that it reads. A coordinator has none: its clients share them among themselves."""
    revoking: tuple[TopicPartition, ...]
    """The partitions that it must give up."""
    client_id: str
    """The ``client_id`` of its consumer; empty if it has none."""
    host: str
    """The host name of its process; empty if it is unknown."""
    address: str | None
    """The address of a coordinator, which is the gateway that its clients use; None for a consumer."""


class GroupPartition(NamedTuple):
    """The progress of a group in one partition."""

    topic_partition: TopicPartition
    committed_offset: int | None
    """The next offset to read; None if the group has committed none."""
    last_stable_offset: int
    """The end of the rows that ``read_committed`` shows (exclusive)."""
    high_watermark: int
    """The partition's end (exclusive)."""
    lag: int | None
    """From the committed offset to the high watermark, as Kafka's tool counts it; None without a committed offset."""
    member_id: str | None
    """The member that reads the partition; None if no member does."""


class GroupDescription(NamedTuple):
    """A consumer group."""

    group_id: str
    state: str
    generation: int
    """It rises when members join or leave, or when partitions move."""
    members: tuple[MemberDescription, ...]
    partitions: tuple[GroupPartition, ...]
    """The partitions with a committed offset or a member that reads them."""


def list_groups(state: StoreState, states: Iterable[str] | None) -> list[GroupListing]:
    """Raises: InvalidRequest: an unknown state."""
    wanted = None if states is None else {_state_named(each) for each in names_given("states", states)}
    listed = [GroupListing(group_id, state_of(group)) for group_id, group in sorted(state.groups.items())]
    return [each for each in listed if wanted is None or each.state in wanted]


def _state_named(name: str) -> str:
    for known in GROUP_STATES:
        if name.lower() == known.lower():
            return known
    raise InvalidRequest(f"no group is ever in state {quoted(name)}; the states are: {', '.join(GROUP_STATES)}")


def state_of(group: Group) -> str:
    """Return the group's state, as in ``GroupListing``."""
    if not group.members:
        return EMPTY
    return RECONCILING if any(member.revoking for member in group.members.values()) else STABLE


def describe_group(state: StoreState, group_id: str) -> GroupDescription:
    """Raises: GroupIdNotFound"""
    group = group_named(state, group_id)
    readers = {
        partition_id: member_id for member_id, member in group.members.items() for partition_id in member.revoking
    }
    readers |= {
        partition_id: member_id for member_id, member in group.members.items() for partition_id in member.assigned
    }
    return GroupDescription(
        group_id,
        state_of(group),
        group.generation,
        tuple(
            MemberDescription(
                member_id=member_id,
                group_instance_id=member.group_instance_id,
                topics=member.topics,
                partitions=_all_named(state, member.assigned),
                revoking=_all_named(state, member.revoking),
                client_id=member.client_id,
                host=member.host,
                address=member.address,
            )
            for member_id, member in sorted(group.members.items())
        ),
        tuple(
            sorted(
                _partition(state, group, partition_id, readers.get(partition_id))
                for partition_id in {*group.offsets, *readers}
            )
        ),
    )


def _all_named(state: StoreState, partition_ids: Iterable[PartitionId]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(named_partition(state, partition_id) for partition_id in partition_ids))


def _partition(state: StoreState, group: Group, partition_id: PartitionId, member_id: str | None) -> GroupPartition:
    partition = partition_of(state, partition_id)
    committed = group.offsets.get(partition_id)
    return GroupPartition(
        topic_partition=named_partition(state, partition_id),
        committed_offset=committed.offset if committed is not None else None,
        last_stable_offset=partition.last_stable_offset,
        high_watermark=partition.high_watermark,
        lag=max(0, partition.high_watermark - committed.offset) if committed is not None else None,
        member_id=member_id,
    )


def group_offsets_of(state: StoreState, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the committed offsets of a group. Raises: GroupIdNotFound"""
    offsets = group_named(state, group_id).offsets
    return {
        named_partition(state, partition_id): OffsetAndMetadata(offset.offset, offset.metadata, offset.leader_epoch)
        for partition_id, offset in sorted(offsets.items())
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetReset:
    """The position to which a group's offsets are reset. Give exactly one field."""

    to_earliest: bool = False
    """The first offset of the partition."""
    to_latest: bool = False
    """The last stable offset: rows of transactions that are open now are read when they end."""
    to_current: bool = False
    """The committed offset; the last stable offset if the group has committed none."""
    to_offset: Natural | None = None
    """This offset, or the nearest one that exists."""
    shift_by: Integer | None = None
    """The committed offset plus this number (negative: back), limited to the offsets that exist."""
    to_datetime: datetime | None = None
    """The first record at or after this time (UTC if it has no time zone); the last stable offset if there is none."""
    by_duration: timedelta | None = None
    """As ``to_datetime``, with the time this long before now."""

    def __post_init__(self) -> None:
        kinds = kinds_of({field.name: field.type for field in fields(self)})
        for name, kind in kinds.items():
            checked_option(name, kind, getattr(self, name))
        for name, form in (("to_datetime", datetime), ("by_duration", timedelta)):
            value = getattr(self, name)
            # pandas' NaT is a datetime that is not even equal to itself.
            if value is not None and (not isinstance(value, form) or value != value):
                raise InvalidRequest(f"{name} is {quoted(value)}; it must be a {form.__name__}")
        ways = [field.name for field in fields(self)]
        given = [field.name for field in fields(self) if getattr(self, field.name) is not field.default]
        if len(given) != 1:
            raise InvalidRequest(f"give one way to reset offsets, not {len(given)}: {', '.join(ways)}")


class OffsetChange(NamedTuple):
    """The change of one partition's offset by a reset."""

    topic_partition: TopicPartition
    offset: int | None
    """The committed offset before; None if there was none."""
    new_offset: int


class _ResetPartition(NamedTuple):
    topic_partition: TopicPartition
    topic: Topic
    partition: Partition
    committed: int | None


def planned_changes(
    store: Session, group_id: str, wanted: Iterable[str | TopicPartition] | None, reset: OffsetReset
) -> list[OffsetChange]:
    """Return the change of each partition.

    Args:
        wanted: topics and partitions; if None, all partitions with a committed offset of the group.

    Raises:
        GroupIdNotFound: ``wanted`` is None, and the group does not exist.
        UnknownTopicOrPartition
        InvalidRequest: ``shift_by`` needs a committed offset, and a partition has none.
    """
    targets = store.read(lambda state, slot: _partitions_to_reset(state, group_id, wanted))
    return [OffsetChange(each.topic_partition, each.committed, _new_offset(store, each, reset)) for each in targets]


def _partitions_to_reset(
    state: StoreState, group_id: str, wanted: Iterable[str | TopicPartition] | None
) -> list[_ResetPartition]:
    chosen: set[TopicPartition] = set()
    if wanted is None:
        chosen = {named_partition(state, each) for each in group_named(state, group_id).offsets}
    elif isinstance(wanted, str):
        wanted = [wanted]
    elif not isinstance(wanted, Iterable):
        raise InvalidRequest(f"partitions are topics, or TopicPartition(topic, partition), not {quoted(wanted)}")
    for each in () if wanted is None else wanted:
        if isinstance(each, str):
            chosen |= {
                named_partition(state, partition_id) for partition_id in topic_named(state, each).partition_ids()
            }
        else:
            chosen.add(topic_partition(each))
    found = []
    for each in sorted(chosen):
        topic, partition = partition_named(state, each)
        committed = committed_offset(state, group_id, partition.id)
        found.append(_ResetPartition(each, topic, partition, committed.offset if committed is not None else None))
    return found


def _new_offset(store: Session, target: _ResetPartition, reset: OffsetReset) -> int:
    partition = target.partition
    if reset.to_earliest:
        return partition.log_start_offset
    if reset.to_latest:
        return partition.last_stable_offset
    if reset.to_current:
        return partition.last_stable_offset if target.committed is None else target.committed
    if reset.to_offset is not None:
        return _within(target, reset.to_offset)
    if reset.shift_by is not None:
        if target.committed is None:
            raise InvalidRequest(
                f"the offset of {target.topic_partition.topic}-{target.topic_partition.partition} cannot be shifted: "
                "none is committed"
            )
        return _within(target, target.committed + reset.shift_by)
    found = offset_for_time(
        store, target.topic, partition, isolation=IsolationLevel.READ_COMMITTED, timestamp_ms=_moment_ms(store, reset)
    )
    return partition.last_stable_offset if found is None else found.offset


def _moment_ms(store: Session, reset: OffsetReset) -> int:
    if reset.by_duration is not None:
        return store.now_ms() - reset.by_duration // timedelta(milliseconds=1)
    assert reset.to_datetime is not None
    return epoch_ms(reset.to_datetime)


def epoch_ms(moment: datetime) -> int:
    """Return a time in ms since the epoch. A time without a zone is in UTC."""
    in_zone = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (in_zone - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _within(target: _ResetPartition, offset: int) -> int:
    """Return the offset, or the nearest one that the partition has, with a warning as in Kafka."""
    nearest = max(target.partition.log_start_offset, min(offset, target.partition.high_watermark))
    if nearest != offset:
        partition = target.topic_partition
        _logger.warning(
            "%s-%d has no offset %d, the nearest is %d", partition.topic, partition.partition, offset, nearest
        )
    return nearest


@dataclass(frozen=True)
class SetOffsets:
    """Set offsets of a group without members."""

    group_id: str
    offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    time_ms: int
    name: ClassVar = "offsets"
    is_final: ClassVar = False

    def apply(self, draft: Draft) -> None:
        """Raises: GroupNotEmpty, UnknownTopicOrPartition, InvalidRequest"""
        check_empty(draft.groups.get(self.group_id, EMPTY_GROUP), self.group_id)
        committed = group_offsets(draft, self.offsets, self.group_id)
        if committed.offsets:
            draft.append(OffsetsCommitted(committed=committed, time_ms=self.time_ms))


@dataclass(frozen=True)
class AdvanceOffsets:
    """Raise offsets of a group without members. The answer contains the raised offsets.

    The request ignores offsets that are not larger than the committed ones, and offsets of deleted topics. So it may
    be repeated, and it may arrive late.
    """

    group_id: str
    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]
    """The ids of the topics. An offset counts only in the topic of this id."""
    time_ms: int

    def apply(self, draft: Draft) -> dict[TopicPartition, int]:
        """Raises: GroupNotEmpty, InvalidRequest"""
        check_empty(draft.groups.get(self.group_id, EMPTY_GROUP), self.group_id)
        ahead = {}
        for partition, offset in self.offsets.items():
            partition_id = PartitionId(self.topic_ids[partition.topic], partition.partition)
            known = committed_offset(draft, self.group_id, partition_id)
            if partition_id in draft.partitions and (known is None or known.offset < offset):
                ahead[partition] = offset
        if ahead:
            committed = group_offsets(draft, ahead, self.group_id)
            draft.append(OffsetsCommitted(committed=committed, time_ms=self.time_ms))
        return ahead


@dataclass(frozen=True)
class DeleteOffsets:
    """Delete a group's offsets of these partitions. The answer lists the partitions that had an offset."""

    group_id: str
    partitions: Sequence[TopicPartition]

    def apply(self, draft: Draft) -> list[TopicPartition]:
        """Raises: GroupIdNotFound, GroupSubscribedToTopic, UnknownTopicOrPartition"""
        found = {partition: partition_named(draft, partition)[1].id for partition in self.partitions}
        offsets = known_offsets(draft, self.group_id, found.values())
        known = [partition for partition in self.partitions if found[partition] in offsets]
        if known:
            deleted = tuple(
                OffsetPlace(topic_id=found[partition].topic_id, partition=partition.partition) for partition in known
            )
            draft.append(GroupOffsetsDeleted(group=self.group_id, partitions=deleted))
        return known


@dataclass(frozen=True)
class RemoveMembers:
    """Remove members from a group. The answer lists their member ids."""

    group_id: str
    members: Collection[str] | None
    """Member ids or group instance ids; None: all members."""
    time_ms: int

    def apply(self, draft: Draft) -> list[str]:
        """Raises: GroupIdNotFound"""
        left = sorted(
            member_id
            for member_id, member in group_named(draft, self.group_id).members.items()
            if self.members is None or member_id in self.members or member.group_instance_id in self.members
        )
        if left:
            ChangeGroup(self.group_id, self.time_ms, left=left).apply(draft)
        return left


class GroupAdministration:
    """Looks at consumer groups and changes them. Every answer is as of the log's tail."""

    _store: Session

    def list_consumer_groups(self, *, states: Iterable[str] | None = None) -> list[GroupListing]:
        """All groups that have members or offsets, in the order of their ids.

        Args:
            states: only those in one of these states: ``Empty``, ``Reconciling``, ``Stable``.

        Raises:
            InvalidRequest: an unknown state.
        """
        return self._store.read(lambda state, slot: list_groups(state, states))

    def describe_consumer_group(self, group_id: str) -> GroupDescription:
        """Return a group's state, members, committed offsets and lags.

        Raises:
            GroupIdNotFound
        """
        check_id("group id", group_id)
        return self._store.read(lambda state, slot: describe_group(state, group_id))

    def list_consumer_group_offsets(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of a group.

        Raises:
            GroupIdNotFound
        """
        check_id("group id", group_id)
        return self._store.read(lambda state, slot: group_offsets_of(state, group_id))

    def alter_consumer_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> None:
        """Set offsets of a group without members. A group that does not exist is created.

        Raises:
            GroupNotEmpty: the group has members, and they would not notice the change.
            UnknownTopicOrPartition, InvalidRequest
        """
        check_id("group id", group_id)
        self._store.append(SetOffsets(group_id, offsets_given(offsets), self._store.now_ms()))

    def advance_consumer_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, topic_ids: Mapping[str, str]
    ) -> dict[TopicPartition, int]:
        """Raise offsets of a group without members. They show the progress of a reader that keeps its own position.

        An offset never goes back. So the call may be repeated, also after ``CommitStateUnknown``. It creates the group
        if it does not exist.

        Args:
            topic_ids: by name, the ids of the topics that the reader has read. The call ignores offsets of a topic that
                was deleted or created again meanwhile.

        Returns:
            The offsets that were raised.

        Raises:
            GroupNotEmpty: the group has members. Its members commit its offsets.
            InvalidRequest
        """
        check_id("group id", group_id)
        wanted = {partition: position.offset for partition, position in offsets_given(offsets).items()}
        if not isinstance(topic_ids, Mapping) or not all(isinstance(each, str) for each in topic_ids.values()):
            raise InvalidRequest(
                f"topic_ids are ids of topics by name, such as {{'payments': '…'}}, not {quoted(topic_ids)}"
            )
        for partition in wanted:
            if partition.topic not in topic_ids:
                raise InvalidRequest(f"topic_ids lacks the topic {partition.topic}. Give the id of each topic")
        return self._store.append(AdvanceOffsets(group_id, wanted, dict(topic_ids), self._store.now_ms()))

    @named_options("reset_consumer_group_offsets()")
    def reset_consumer_group_offsets(
        self,
        group_id: str,
        reset: OffsetReset,
        *,
        partitions: Iterable[str | TopicPartition] | None = None,
        dry_run: bool = False,
    ) -> list[OffsetChange]:
        """Reset offsets of a group without members.

        The result of a relative reset (``shift_by``) depends on the committed offset. So do not simply repeat it after
        ``CommitStateUnknown``: the first call may have landed, or may land later.

        Args:
            partitions: partitions, and names of topics for all their partitions. If None, all partitions with a
                committed offset of the group.
            dry_run: return the changes and make none. The group may have members then.

        Raises:
            GroupNotEmpty, GroupIdNotFound, UnknownTopicOrPartition, InvalidRequest
            StoreUnavailable: nothing was changed, and nothing will be.
            CommitStateUnknown: the offsets may have been set, or may be set later. Call ``Store.resolve(error)``.
            OutcomeLost: the log can no longer show whether they were set.
        """
        check_id("group id", group_id)
        if not isinstance(reset, OffsetReset):
            raise InvalidRequest(f"reset is OffsetReset(to_earliest=True) or another one, not {quoted(reset)}")
        changes = planned_changes(self._store, group_id, partitions, reset)
        if not dry_run:
            self._set_planned(group_id, {each.topic_partition: each.new_offset for each in changes})
        return changes

    def _set_planned(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set offsets and find out whether they were set. A repeated call by the user would plan other offsets."""
        limits = TimeLimits(self._store.environment, DEFAULT_MAX_BLOCK_MS, DEFAULT_DELIVERY_TIMEOUT_MS)
        append = IdempotentAppend(self._store, HomeProcess("store"), limits)
        name = "reset_consumer_group_offsets()"
        try:
            try:
                with limits.call(name, DEFAULT_MAX_BLOCK_MS):
                    append(SetOffsets(group_id, offsets, self._store.now_ms()))
            except CommitStateUnknown as error:
                with limits.call(name, DEFAULT_MAX_BLOCK_MS):
                    if limits.repeat(append.landed) is None:
                        raise StoreUnavailable(
                            f"{self._store.url}: the offsets of group {group_id} were not reset. Repeat the call"
                        ) from error
        except CommitStateUnknown as unknown:
            raise CommitStateUnknown(
                f"{self._store.url}: the offsets of group {group_id} may have been reset, or may be reset later. Call "
                "Store.resolve(error) when the store answers again. Do not repeat a relative reset before",
                slot=unknown.slot,
                append_id=unknown.append_id,
            ) from unknown

    def delete_consumer_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> list[TopicPartition]:
        """Delete a group's offsets of these partitions, and return the partitions that had an offset.

        Offsets that an open transaction would commit are deleted too.

        Raises:
            GroupIdNotFound
            GroupSubscribedToTopic: a member reads one of the topics.
            UnknownTopicOrPartition
        """
        check_id("group id", group_id)
        return self._store.append(DeleteOffsets(group_id, sorted(set(topic_partitions(partitions)))))

    def delete_consumer_group(self, group_id: str) -> None:
        """Delete a group and its offsets, also those that an open transaction would commit.

        Raises:
            GroupIdNotFound
            GroupNotEmpty: it has members.
            InvalidRequest: the group id is not valid.
        """
        check_id("group id", group_id)
        self._store.append(AppendEntry(GroupDeleted(group=group_id)))

    def remove_members(self, group_id: str, members: Iterable[str] | None = None) -> list[str]:
        """Remove members from a group. A consumer that is still alive joins again.

        For a static member this ends the wait for its return (KIP-345). If the member is a coordinator, all its clients
        of Kafka's protocol join again.

        Args:
            members: member ids or group instance ids; all members if None.

        Returns:
            The removed member ids.

        Raises:
            GroupIdNotFound
        """
        check_id("group id", group_id)
        wanted = None if members is None else frozenset(names_given("members", members))
        return self._store.append(RemoveMembers(group_id, wanted, self._store.now_ms()))
