"""Administration of consumer groups: list, describe, set and delete offsets, remove members (Kafka's ``Admin``)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from eoslog.client.group import group_offsets
from eoslog.client.group_descriptions import (
    GroupDescription,
    GroupListing,
    describe_group,
    group_offsets_of,
    list_groups,
)
from eoslog.client.idempotent_append import IdempotentAppend
from eoslog.client.offset_resets import OffsetChange, OffsetReset, planned_changes
from eoslog.client.positions import OffsetAndMetadata
from eoslog.client.time_limits import DEFAULT_DELIVERY_TIMEOUT_MS, DEFAULT_MAX_BLOCK_MS, TimeLimits
from eoslog.client.topics import partition_named
from eoslog.errors import CommitStateUnknown, StoreUnavailable
from eoslog.rules.draft import Draft
from eoslog.rules.group_entries import GroupDeleted, GroupOffsetsDeleted, OffsetPlace, OffsetsCommitted
from eoslog.rules.group_forgetting import known_offsets
from eoslog.rules.groups import EMPTY_GROUP, check_empty, group_named
from eoslog.rules.members import ChangeGroup
from eoslog.rules.names import TopicPartition, check_id, topic_partition
from eoslog.rules.requests import AppendEntry
from eoslog.store.process import HomeProcess

if TYPE_CHECKING:
    from eoslog.client.store import Store


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
class DeleteOffsets:
    """Forget the offsets of a group of these partitions. The answer lists the partitions of which it had some."""

    group_id: str
    partitions: Sequence[TopicPartition]

    def apply(self, draft: Draft) -> list[TopicPartition]:
        """Raises: GroupIdNotFound, GroupSubscribedToTopic, UnknownTopicOrPartition"""
        found = {place: partition_named(draft, place)[1].id for place in self.partitions}
        offsets = known_offsets(draft, self.group_id, found.values())
        known = [place for place in self.partitions if found[place] in offsets]
        if known:
            places = tuple(OffsetPlace(topic_id=found[place].topic_id, partition=place.partition) for place in known)
            draft.append(GroupOffsetsDeleted(group=self.group_id, partitions=places))
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

    _store: Store

    def list_consumer_groups(self, *, states: Iterable[str] | None = None) -> list[GroupListing]:
        """All groups that have members or offsets, in the order of their ids.

        Args:
            states: only those in one of these states: ``Empty``, ``Reconciling``, ``Stable``.

        Raises:
            InvalidRequest: an unknown state.
        """
        return self._store.read(lambda state, slot: list_groups(state, states))

    def describe_consumer_group(self, group_id: str) -> GroupDescription:
        """A group's state, members, committed offsets and lags.

        Raises:
            GroupIdNotFound
        """
        return self._store.read(lambda state, slot: describe_group(state, group_id))

    def list_consumer_group_offsets(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed.

        Raises:
            GroupIdNotFound
        """
        return self._store.read(lambda state, slot: group_offsets_of(state, group_id))

    def alter_consumer_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> None:
        """Set offsets of a group without members, which need not exist before.

        Raises:
            GroupNotEmpty: its members would not notice.
            UnknownTopicOrPartition, InvalidRequest
        """
        check_id("group id", group_id)
        self._store.append(SetOffsets(group_id, offsets, self._store.now_ms()))

    def reset_consumer_group_offsets(
        self,
        group_id: str,
        reset: OffsetReset,
        *,
        partitions: Iterable[str | TopicPartition] | None = None,
        dry_run: bool = False,
    ) -> list[OffsetChange]:
        """Set offsets of a group without members to another place.

        What a relative reset (``shift_by``) does depends on where the group stands: after ``CommitStateUnknown`` it
        must not simply be repeated, for it may have been done, or be done late.

        Args:
            partitions: names of topics, for all their partitions, and partitions; if None, all that the group has
                committed offsets of.
            dry_run: say what would be done, also of a group with members, and do nothing.

        Raises:
            GroupNotEmpty, GroupIdNotFound, UnknownTopicOrPartition, InvalidRequest
            StoreUnavailable: nothing was changed, and nothing will be.
            CommitStateUnknown: whether the offsets were set is not known; ``Store.resolve(error)`` tells.
            OutcomeLost: it cannot be learnt any more.
        """
        check_id("group id", group_id)
        changes = planned_changes(self._store, group_id, partitions, reset)
        if not dry_run:
            self._set_planned(group_id, {each.topic_partition: each.new_offset for each in changes})
        return changes

    def _set_planned(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set offsets, and learn whether they were set. A repeated call of the user's would plan other offsets."""
        limits = TimeLimits(self._store.environment, DEFAULT_MAX_BLOCK_MS, DEFAULT_DELIVERY_TIMEOUT_MS)
        append = IdempotentAppend(self._store, HomeProcess("store"), limits.remaining_ms)
        name = "reset_consumer_group_offsets()"
        try:
            try:
                with limits.call(name, DEFAULT_MAX_BLOCK_MS):
                    append(SetOffsets(group_id, offsets, self._store.now_ms()))
            except CommitStateUnknown as error:
                with limits.call(name, DEFAULT_MAX_BLOCK_MS):
                    if limits.repeat(append.landed) is None:
                        raise StoreUnavailable(
                            f"{self._store.url}: the offsets of group {group_id} were not reset; make the call again"
                        ) from error
        except CommitStateUnknown as unknown:
            raise CommitStateUnknown(
                f"{self._store.url}: it is not known whether the offsets of group {group_id} were reset, or will "
                "be. Store.resolve(error) tells when the store answers; do not repeat a relative reset before",
                slot=unknown.slot,
                token=unknown.token,
            ) from unknown

    def delete_consumer_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> list[TopicPartition]:
        """Forget the offsets that a group has committed of these partitions. Returns those of which it had.

        Those that a prepared transaction would set are forgotten too.

        Raises:
            GroupIdNotFound
            GroupSubscribedToTopic: a member reads one of the topics.
            UnknownTopicOrPartition
        """
        return self._store.append(DeleteOffsets(group_id, sorted({topic_partition(place) for place in partitions})))

    def delete_consumer_group(self, group_id: str) -> None:
        """Forget a group and its offsets, also those that a prepared transaction would set.

        Raises:
            GroupIdNotFound
            GroupNotEmpty: it has members.
            InvalidRequest: no group can have this id.
        """
        check_id("group id", group_id)
        self._store.append(AppendEntry(GroupDeleted(group=group_id)))

    def remove_members(self, group_id: str, members: Iterable[str] | None = None) -> list[str]:
        """Remove members from a group; consumers that are alive join anew. Static ones need not be waited for.

        Args:
            members: member ids or group instance ids; all members if None.

        Returns:
            The member ids of those that were removed.

        Raises:
            GroupIdNotFound
        """
        wanted = None if members is None else frozenset(members)
        return self._store.append(RemoveMembers(group_id, wanted, self._store.now_ms()))
