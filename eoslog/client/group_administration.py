"""Administration of consumer groups: list, describe, set and delete offsets, remove members (Kafka's ``Admin``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from eoslog.client.group import group_offsets
from eoslog.client.group_descriptions import (
    GroupDescription,
    GroupListing,
    describe_group,
    group_offsets_of,
    list_groups,
)
from eoslog.client.offset_resets import OffsetChange, OffsetReset, planned_changes
from eoslog.client.positions import OffsetAndMetadata
from eoslog.client.time_limits import DEFAULT_DELIVERY_TIMEOUT_MS, DEFAULT_MAX_BLOCK_MS, TimeLimits
from eoslog.client.topics import partition_named
from eoslog.errors import CommitStateUnknown, StoreUnavailable
from eoslog.rules.draft import Draft
from eoslog.rules.group_entries import GroupDeleted, GroupOffsetsDeleted, OffsetPlace, OffsetsCommitted
from eoslog.rules.group_forgetting import known_offsets
from eoslog.rules.groups import EMPTY_GROUP, check_empty, group_named
from eoslog.rules.members import plan_group_change
from eoslog.rules.names import TopicPartition, check_id, topic_partition

if TYPE_CHECKING:
    from eoslog.client.store import Store


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
        now_ms = self._store.now_ms()

        def propose(draft: Draft) -> None:
            check_empty(draft.groups.get(group_id, EMPTY_GROUP), group_id)
            committed = group_offsets(draft, offsets, group_id)
            if committed.offsets:
                draft.append(OffsetsCommitted(committed=committed, time_ms=now_ms))

        self._store.append(propose)

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
        """Set offsets, and learn whether they were: the caller would plan others, were it to make its call again."""
        try:
            self.alter_consumer_group_offsets(group_id, offsets)
        except CommitStateUnknown as error:
            if not self._landed(group_id, error):
                raise StoreUnavailable(
                    f"{self._store.url}: the offsets of group {group_id} were not reset; make the call again"
                ) from error

    def _landed(self, group_id: str, put: CommitStateUnknown) -> bool:
        limits = TimeLimits(self._store.environment, DEFAULT_MAX_BLOCK_MS, DEFAULT_DELIVERY_TIMEOUT_MS)
        try:
            with limits.call("reset_consumer_group_offsets()", DEFAULT_MAX_BLOCK_MS):
                return limits.repeat(lambda: self._store.resolve(put, timeout_ms=limits.remaining_ms()))
        except CommitStateUnknown as unknown:
            raise CommitStateUnknown(
                f"{self._store.url}: it is not known whether the offsets of group {group_id} were reset, or will "
                "be. Store.resolve(error) tells when the store answers; do not repeat a relative reset before",
                slot=put.slot,
                token=put.token,
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
        wanted = sorted({topic_partition(place) for place in partitions})

        def propose(draft: Draft) -> list[TopicPartition]:
            found = {place: partition_named(draft, place)[1].id for place in wanted}
            offsets = known_offsets(draft, group_id, found.values())
            known = [place for place in wanted if found[place] in offsets]
            if known:
                places = tuple(
                    OffsetPlace(topic_id=found[place].topic_id, partition=place.partition) for place in known
                )
                draft.append(GroupOffsetsDeleted(group=group_id, partitions=places))
            return known

        return self._store.append(propose)

    def delete_consumer_group(self, group_id: str) -> None:
        """Forget a group and its offsets, also those that a prepared transaction would set.

        Raises:
            GroupIdNotFound
            GroupNotEmpty: it has members.
            InvalidRequest: no group can have this id.
        """
        check_id("group id", group_id)
        self._store.append(lambda draft: draft.append(GroupDeleted(group=group_id)))

    def remove_members(self, group_id: str, members: Iterable[str] | None = None) -> list[str]:
        """Remove members from a group; consumers that are alive join anew. Static ones need not be waited for.

        Args:
            members: member ids or group instance ids; all members if None.

        Returns:
            The member ids of those that were removed.

        Raises:
            GroupIdNotFound
        """
        wanted = None if members is None else set(members)
        now_ms = self._store.now_ms()

        def propose(draft: Draft) -> list[str]:
            left = [
                member_id
                for member_id, member in group_named(draft, group_id).members.items()
                if wanted is None or not wanted.isdisjoint((member_id, member.group_instance_id))
            ]
            entry = plan_group_change(draft, group_id, left=left, time_ms=now_ms) if left else None
            if entry is not None:
                draft.append(entry)
            return sorted(left)

        return self._store.append(propose)
