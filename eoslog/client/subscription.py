"""What a consumer subscribes to: topics, the group that shares them out, and this consumer's part of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from eoslog.client.group import GroupMetadata
from eoslog.client.membership import Membership
from eoslog.errors import IllegalState
from eoslog.rules.groups import assignment
from eoslog.rules.names import TopicPartition
from eoslog.rules.state import Group, StoreState, Topic
from eoslog.rules.topics import topic_named

if TYPE_CHECKING:
    from eoslog.client.store import Store

RebalanceListener = Callable[[list[TopicPartition]], None]
_NO_GENERATION = -1


class _Basis(NamedTuple):
    """What a sharing-out depends on. While it stays the same, so does the consumer's part."""

    generation: int
    topics: tuple[tuple[str, int] | None, ...]
    """Topic id and number of partitions."""


class SharedOut(NamedTuple):
    """A sharing-out that the consumer has not followed yet."""

    basis: _Basis
    topics: Mapping[TopicPartition, Topic]
    """This consumer's part, with the topic of each partition."""


class Subscription:
    """The subscription of one consumer; of all partitions if it has no group."""

    def __init__(self, store: Store, group_id: str | None, session_timeout_ms: int) -> None:
        self._store = store
        self._group_id = group_id
        self._membership = Membership(store, group_id, session_timeout_ms) if group_id is not None else None
        self._generation = _NO_GENERATION
        self._followed: _Basis | None = None
        self.topics: tuple[str, ...] | None = None
        """None while nothing is subscribed to."""
        self._on_revoked: RebalanceListener | None = None
        self._on_assigned: RebalanceListener | None = None

    def begin(
        self, topics: tuple[str, ...], on_revoked: RebalanceListener | None, on_assigned: RebalanceListener | None
    ) -> None:
        """Subscribe to these topics and no others. The group is joined when the partitions are shared out."""
        self.topics = topics
        self._on_revoked, self._on_assigned = on_revoked, on_assigned
        self._followed = None

    def end(self) -> None:
        """Subscribe to nothing, and leave the group."""
        self.leave()
        self._generation = _NO_GENERATION

    def leave(self) -> None:
        """Leave the group for good. Its generation is kept, so that no late commit passes for one without a member."""
        if self._membership is not None:
            self._membership.leave()
        self.topics = None
        self._followed = None

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
        return GroupMetadata(self._group_id, self._generation, self._membership.member_id)

    @property
    def is_new(self) -> bool:
        """Whether topics are subscribed to of which no partitions were shared out yet."""
        return self.topics is not None and self._followed is None

    def share_out(self) -> SharedOut | None:
        """Join the group if need be, and look at the newest generation. None if this consumer follows it already."""
        topics = self.topics
        if topics is None:
            return None
        group = self._membership.follow(topics) if self._membership is not None else None
        generation = group.generation if group is not None else _NO_GENERATION

        def look(state: StoreState, slot: int) -> SharedOut | None:
            found = [state.topics.get(state.topic_ids.get(name, "")) for name in topics]
            basis = _Basis(generation, tuple((each.topic_id, each.partitions) if each else None for each in found))
            if basis == self._followed:
                return None
            part = self._part(state, group, topics)
            return SharedOut(basis, {place: topic_named(state, place.topic) for place in part})

        return self._store.read(look, refresh=False)

    def _part(self, state: StoreState, group: Group | None, topics: tuple[str, ...]) -> list[TopicPartition]:
        if group is not None and self._membership is not None:
            return assignment(state, group).get(self._membership.member_id, [])
        found = [state.topics[state.topic_ids[name]] for name in topics if name in state.topic_ids]
        return [TopicPartition(each.topic, number) for each in found for number in range(each.partitions)]

    def tell_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Call who wanted to know that these partitions, if any, are about to go."""
        gone = sorted(partitions)
        if gone and self._on_revoked is not None:
            self._on_revoked(gone)

    def follow(self, shared_out: SharedOut) -> None:
        """From here on this consumer belongs to the generation of ``shared_out``. Calls who wanted to know its part."""
        self._followed = shared_out.basis
        self._generation = shared_out.basis.generation
        if self._on_assigned is not None:
            self._on_assigned(sorted(shared_out.topics))
