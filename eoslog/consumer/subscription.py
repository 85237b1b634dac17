"""The subscription of a consumer: its topics, its group, and the partitions that the group assigns to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from eoslog.consumer.membership import Membership
from eoslog.errors import IllegalState
from eoslog.session.group_metadata import GroupMetadata
from eoslog.session.session import Session
from eoslog.state.names import PartitionId, TopicPartition
from eoslog.state.store_state import Member, StoreState, Topic

RebalanceListener = Callable[[list[TopicPartition]], None]
_NO_GENERATION = -1


class RebalanceListeners(NamedTuple):
    """The application's listeners for rebalances (Kafka's ``ConsumerRebalanceListener``)."""

    on_revoked: RebalanceListener | None = None
    on_assigned: RebalanceListener | None = None
    on_lost: RebalanceListener | None = None

    def tell_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Call ``on_revoked`` with partitions that the consumer is about to give up. They can still be committed."""
        _tell(self.on_revoked, partitions)

    def tell_lost(self, partitions: Iterable[TopicPartition]) -> None:
        """Call ``on_lost`` with partitions that are already lost. Their offsets can no longer be committed."""
        _tell(self.on_lost or self.on_revoked, partitions)

    def tell_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Call ``on_assigned`` with new partitions."""
        _tell(self.on_assigned, partitions)


def _tell(listener: RebalanceListener | None, partitions: Iterable[TopicPartition]) -> None:
    moved = sorted(partitions)
    if moved and listener is not None:
        listener(moved)


class _Basis(NamedTuple):
    """The basis of an assignment. While it stays the same, so does the assignment."""

    member_id: str
    generation: int
    partitions: tuple[PartitionId, ...]


class Assignment(NamedTuple):
    """An assignment of partitions that the consumer has not followed yet."""

    basis: _Basis
    topics: Mapping[TopicPartition, Topic]
    """The partitions of this consumer, with the topic of each."""
    gives_up: bool
    """True if other members wait for partitions that this consumer must give up."""
    is_lost: bool
    """True if the group rebalanced without this consumer. Other members may have read its partitions since."""


class Subscription:
    """The subscription of one consumer. Without a group it gets all partitions."""

    def __init__(
        self, store: Session, group_id: str | None, session_timeout_ms: int, group_instance_id: str | None = None
    ) -> None:
        self._store = store
        self._group_id = group_id
        self._membership = (
            Membership(store, group_id, session_timeout_ms, group_instance_id) if group_id is not None else None
        )
        self._generation = _NO_GENERATION
        self._wanted: tuple[str, ...] | re.Pattern[str] | None = None
        self._followed: _Basis | None = None
        self._member_id = ""
        """The member id to which the current partitions were assigned."""
        self.listeners = RebalanceListeners()

    @property
    def is_active(self) -> bool:
        """True if topics are subscribed."""
        return self._wanted is not None

    @property
    def topics(self) -> tuple[str, ...]:
        """The subscribed topics; for a pattern, the known topics that match."""
        wanted = self._wanted
        if isinstance(wanted, re.Pattern):
            return self._store.read(lambda state, slot: _matching(state, wanted), refresh=False)
        return wanted or ()

    def begin(self, wanted: tuple[str, ...] | re.Pattern[str], listeners: RebalanceListeners) -> None:
        """Subscribe to these topics and no others. ``next_assignment`` joins the group."""
        self._wanted = wanted
        self.listeners = listeners
        self._followed = None

    def end(self) -> None:
        """End the subscription, and leave the group."""
        self.leave()
        self._generation = _NO_GENERATION

    def leave(self) -> None:
        """Leave the group for good.

        The generation is kept: with none, a late commit would be accepted like that of a consumer without membership.
        """
        if self._membership is not None:
            self._membership.leave()
        self._wanted = None
        self._followed = None
        self._member_id = ""

    def keep_alive(self) -> None:
        """Write a heartbeat if one is due."""
        if self._membership is not None:
            self._membership.keep_alive()

    def group_metadata(self) -> GroupMetadata:
        """Return the membership in the generation whose partitions this consumer reads.

        Raises:
            IllegalState: the consumer has no group.
        """
        if self._group_id is None or self._membership is None:
            raise IllegalState("this consumer has no group: give it a group_id")
        member_id = self._membership.member_id
        instance_id = self._membership.group_instance_id if member_id else None
        return GroupMetadata(self._group_id, self._generation, member_id, instance_id)

    @property
    def is_new(self) -> bool:
        """True if topics are subscribed and no partitions were assigned yet."""
        return self.is_active and self._followed is None

    def next_assignment(self) -> Assignment | None:
        """Join the group if necessary, and return the newest assignment; None if this consumer already follows it.

        Raises:
            FencedInstanceId
        """
        if not self.is_active:
            return None
        if self._membership is None:
            return self._all_of(self.topics)
        group = self._membership.follow(self.topics)
        member_id = self._membership.member_id
        member = group.members[member_id]
        basis = _Basis(member_id, group.generation, member.assigned)
        if basis == self._followed and not member.revoking:
            return None
        return Assignment(
            basis, self._with_topics(member), bool(member.revoking), self._member_id not in ("", member_id)
        )

    def _with_topics(self, member: Member) -> dict[TopicPartition, Topic]:
        def snapshot(state: StoreState, slot: int) -> dict[TopicPartition, Topic]:
            topics = [(state.topics.get(each.topic_id), each.partition) for each in member.assigned]
            return {TopicPartition(topic.topic, number): topic for topic, number in topics if topic is not None}

        return self._store.read(snapshot, refresh=False)

    def _all_of(self, topics: tuple[str, ...]) -> Assignment | None:
        def snapshot(state: StoreState, slot: int) -> dict[TopicPartition, Topic]:
            found = [state.topics[state.topic_ids[name]] for name in topics if name in state.topic_ids]
            return {TopicPartition(each.topic, number): each for each in found for number in range(each.partitions)}

        assigned = self._store.read(snapshot, refresh=False)
        partitions = tuple(PartitionId(topic.topic_id, each.partition) for each, topic in assigned.items())
        basis = _Basis("", _NO_GENERATION, partitions)
        return None if basis == self._followed else Assignment(basis, assigned, False, False)

    def enter(self, assignment: Assignment) -> None:
        """Commit in the generation of ``assignment`` from now on."""
        self._generation = assignment.basis.generation

    def follow(self, assignment: Assignment) -> None:
        """Note that this consumer reads only its assigned partitions. Tell the group if other members wait for that."""
        self._member_id = assignment.basis.member_id
        if assignment.gives_up and self._membership is not None:
            self._membership.give_up()
        self._followed = assignment.basis


def _matching(state: StoreState, pattern: re.Pattern[str]) -> tuple[str, ...]:
    return tuple(name for name in sorted(state.topic_ids) if pattern.fullmatch(name))
