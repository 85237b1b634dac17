"""What a consumer subscribes to: topics, the group that shares them out, and this consumer's part of them."""

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
    """Who wants to know of partitions that move (Kafka's ``ConsumerRebalanceListener``)."""

    on_revoked: RebalanceListener | None = None
    on_assigned: RebalanceListener | None = None
    on_lost: RebalanceListener | None = None

    def tell_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """These partitions, if any, are about to go; until then they may be committed."""
        _tell(self.on_revoked, partitions)

    def tell_lost(self, partitions: Iterable[TopicPartition]) -> None:
        """These partitions, if any, have gone already, and nothing of them can be committed."""
        _tell(self.on_lost or self.on_revoked, partitions)

    def tell_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """These partitions, if any, have come."""
        _tell(self.on_assigned, partitions)


def _tell(listener: RebalanceListener | None, partitions: Iterable[TopicPartition]) -> None:
    moved = sorted(partitions)
    if moved and listener is not None:
        listener(moved)


class _Basis(NamedTuple):
    """What a consumer's part depends on. While it stays the same, so does the part."""

    member_id: str
    generation: int
    partitions: tuple[PartitionId, ...]


class SharedOut(NamedTuple):
    """A sharing-out that the consumer has not followed yet."""

    basis: _Basis
    topics: Mapping[TopicPartition, Topic]
    """This consumer's part, with the topic of each partition."""
    gives_up: bool
    """Whether the others wait for partitions that are not of this consumer's part any more."""
    is_lost: bool
    """Whether the group had gone on without this consumer, so that what it read may have been read by others since."""


class Subscription:
    """The subscription of one consumer; of all partitions if it has no group."""

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
        """As which the partitions that are read were given."""
        self.listeners = RebalanceListeners()

    @property
    def is_active(self) -> bool:
        """Whether topics are subscribed to."""
        return self._wanted is not None

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that are subscribed to, of a pattern those that are known."""
        wanted = self._wanted
        if isinstance(wanted, re.Pattern):
            return self._store.read(lambda state, slot: _matching(state, wanted), refresh=False)
        return wanted or ()

    def begin(self, wanted: tuple[str, ...] | re.Pattern[str], listeners: RebalanceListeners) -> None:
        """Subscribe to these topics and no others. The group is joined when the partitions are shared out."""
        self._wanted = wanted
        self.listeners = listeners
        self._followed = None

    def end(self) -> None:
        """Subscribe to nothing, and leave the group."""
        self.leave()
        self._generation = _NO_GENERATION

    def leave(self) -> None:
        """Leave the group for good. Its generation is kept, so that no late commit passes for one without a member."""
        if self._membership is not None:
            self._membership.leave()
        self._wanted = None
        self._followed = None
        self._member_id = ""

    def keep_alive(self) -> None:
        """Say that this consumer is alive, unless that was just done."""
        if self._membership is not None:
            self._membership.keep_alive()

    def group_metadata(self) -> GroupMetadata:
        """Who commits, in the generation whose partitions this consumer reads.

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
        """Whether topics are subscribed to of which no partitions were shared out yet."""
        return self.is_active and self._followed is None

    def share_out(self) -> SharedOut | None:
        """Join the group if need be, and look at the newest generation. None if this consumer follows it already.

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
        return SharedOut(
            basis, self._with_topics(member), bool(member.revoking), self._member_id not in ("", member_id)
        )

    def _with_topics(self, member: Member) -> dict[TopicPartition, Topic]:
        def look(state: StoreState, slot: int) -> dict[TopicPartition, Topic]:
            topics = [(state.topics.get(place.topic_id), place.partition) for place in member.assigned]
            return {TopicPartition(topic.topic, number): topic for topic, number in topics if topic is not None}

        return self._store.read(look, refresh=False)

    def _all_of(self, topics: tuple[str, ...]) -> SharedOut | None:
        def look(state: StoreState, slot: int) -> dict[TopicPartition, Topic]:
            found = [state.topics[state.topic_ids[name]] for name in topics if name in state.topic_ids]
            return {TopicPartition(each.topic, number): each for each in found for number in range(each.partitions)}

        part = self._store.read(look, refresh=False)
        partitions = tuple(PartitionId(topic.topic_id, place.partition) for place, topic in part.items())
        basis = _Basis("", _NO_GENERATION, partitions)
        return None if basis == self._followed else SharedOut(basis, part, False, False)

    def enter(self, shared_out: SharedOut) -> None:
        """From here on this consumer commits in the generation of ``shared_out``."""
        self._generation = shared_out.basis.generation

    def follow(self, shared_out: SharedOut) -> None:
        """This consumer reads its part and no more. Tells the group so, if others wait for it."""
        self._member_id = shared_out.basis.member_id
        if shared_out.gives_up and self._membership is not None:
            self._membership.give_up()
        self._followed = shared_out.basis


def _matching(state: StoreState, pattern: re.Pattern[str]) -> tuple[str, ...]:
    return tuple(name for name in sorted(state.topic_ids) if pattern.fullmatch(name))
