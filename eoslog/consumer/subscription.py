"""The subscription of a consumer: its topics, its membership in a group, and the partitions that the group assigns.

The log alone decides which consumers are members of a group, and in which generation. Heartbeats only decide which
members the others propose to evict.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from eoslog.errors import EosLogError, FencedInstanceId, IllegalState, InconsistentGroupProtocol
from eoslog.session.heartbeats import Heartbeats, host_name
from eoslog.session.positions import GroupMetadata
from eoslog.session.serializers import check_callable
from eoslog.session.session import Session
from eoslog.state.group_entries import GroupMember
from eoslog.state.group_members import ChangeGroup, plan_group_change
from eoslog.state.groups import EMPTY_GROUP, static_member
from eoslog.state.names import PartitionId, TopicPartition, check_id
from eoslog.state.partition_state import Partition
from eoslog.state.store_state import Group, Member, StoreState, Topic

RebalanceListener = Callable[[list[TopicPartition]], None]
_NO_GENERATION = -1
_logger = logging.getLogger(__name__)
_HEARTBEATS_A_SESSION = 3
_ExistingTopics = tuple[tuple[str, int], ...]


class Membership:
    """One member of one group: it joins, stays alive and leaves. After an eviction it joins with a new member id."""

    def __init__(
        self,
        store: Session,
        group_id: str,
        session_timeout_ms: int,
        *,
        group_instance_id: str | None = None,
        client_id: str = "",
    ) -> None:
        if group_instance_id is not None:
            check_id("group instance id", group_instance_id)
        self._store = store
        self._group_id = group_id
        self.group_instance_id = group_instance_id
        self._client_id = client_id
        self._session_timeout_ms = session_timeout_ms
        self._heartbeats = Heartbeats(store.object_store, group_id)
        self._last_heartbeat_ms: int | None = None
        self._last_check_ms: int | None = None
        self._has_joined = False
        self._fenced = False
        self._settled: tuple[Group, _ExistingTopics] | None = None
        """The last group and topics for which all partitions were assigned correctly."""
        self.member_id = ""
        """Empty while this consumer is not in the group."""

    def follow(self, topics: tuple[str, ...]) -> Group:
        """Join if necessary, write a heartbeat, evict silent members, and reassign partitions where necessary.

        This costs no request, except once in a third of the session timeout: then it costs a PUT, and a LIST if the
        group has other members.

        Returns:
            The group in the newest known state. This consumer is a member of it.

        Raises:
            FencedInstanceId: another consumer has joined with this one's instance id.
            InconsistentGroupProtocol: the group has a coordinator that is not silent.
        """
        while True:
            group = self._group()
            if self.member_id not in group.members:
                self._check_not_fenced(group)
                self.member_id = self._store.environment.new_id()
                self._has_joined = False
                self._last_heartbeat_ms = None
            self.keep_alive()
            silent = self._find_silent(group)
            known = group.members.get(self.member_id)
            if silent or known is None or known.topics != topics or not self._is_settled():
                try:
                    self._change(topics, silent)
                except InconsistentGroupProtocol:
                    # The next call joins under another id, so nobody would delete this heartbeat before it is old.
                    self._heartbeats.delete([self.member_id])
                    raise
                self._store.environment.reached("client.group.members_changed")
                self._heartbeats.delete(silent)
                group = self._group()
            if self.member_id in group.members:
                self._has_joined = True
                return group

    def give_up(self, still_read: Collection[PartitionId]) -> None:
        """Tell the group that this member has given up partitions, and which ones it still reads.

        If the newest assignment tells it to give up a partition that it still reads, the group changes nothing: the
        next poll follows that assignment.
        """
        self._append(revoked=self.member_id, still_read=still_read)
        self._store.environment.reached("client.group.given_up")

    def keep_alive(self) -> None:
        """Write a heartbeat if one is due."""
        if self.member_id and self._is_due(self._last_heartbeat_ms):
            self._heartbeats.put(self.member_id, self._session_timeout_ms)
            self._store.environment.reached("client.group.heartbeat_written")
            self._last_heartbeat_ms = self._store.environment.monotonic_ms()

    def leave(self) -> None:
        """Leave the group, so that its other members take over the partitions at once.

        If this fails, they evict this member after the session timeout. A static member does not leave (KIP-345): its
        partitions wait for its return within the session timeout.
        """
        member_id, self.member_id = self.member_id, ""
        self._has_joined = False
        if not member_id or self.group_instance_id is not None:
            return
        try:
            self._append(left=(member_id,))
            self._store.environment.reached("client.group.left")
            self._heartbeats.delete([member_id])
        except EosLogError as error:
            _logger.info("%s: member %s did not leave group %r: %s", self._store, member_id, self._group_id, error)

    def _check_not_fenced(self, group: Group) -> None:
        """Raise an error if another consumer has joined with this instance id. Do not fence it in turn.

        Raises:
            FencedInstanceId
        """
        was_fenced = self._fenced
        if self._has_joined and self.group_instance_id is not None:
            self._fenced = static_member(group, self.group_instance_id) is not None
        if self._fenced and not was_fenced:
            # The caller gets the error below, whatever a handler of the application raises.
            with suppress(Exception):
                _logger.warning(
                    "%s: member %s of group %r is fenced: another consumer has joined as %r",
                    self._store,
                    self.member_id,
                    self._group_id,
                    self.group_instance_id,
                )
        if self._fenced:
            raise FencedInstanceId(
                f"another consumer has joined group {self._group_id!r} as {self.group_instance_id!r} since. Close this "
                "one"
            )

    def _find_silent(self, group: Group) -> set[str]:
        others = set(group.members) - {self.member_id}
        if not others or not self._is_due(self._last_check_ms):
            return set()
        self._last_check_ms = self._store.environment.monotonic_ms()
        return self._heartbeats.silent(group.members) - {self.member_id}

    def _is_due(self, last_ms: int | None) -> bool:
        now_ms = self._store.environment.monotonic_ms()
        return last_ms is None or now_ms - last_ms >= self._session_timeout_ms // _HEARTBEATS_A_SESSION

    def _is_settled(self) -> bool:
        """Return True if the newest topics need no reassignment. This is checked once for each change."""

        def snapshot(state: StoreState, slot: int) -> bool:
            group = state.groups.get(self._group_id, EMPTY_GROUP)
            names = sorted({name for member in group.members.values() for name in member.topics})
            topics = [state.topics[state.topic_ids[name]] for name in names if name in state.topic_ids]
            newest = (group, tuple((topic.topic_id, topic.partitions) for topic in topics))
            if self._settled is not None and self._settled[0] is group and self._settled[1] == newest[1]:
                return True
            if plan_group_change(state, self._group_id, time_ms=0) is not None:
                return False
            self._settled = newest
            return True

        return self._store.read(snapshot, refresh=False)

    def _change(self, topics: tuple[str, ...], silent: set[str]) -> None:
        """Join, or change the topics.

        A member that was evicted in the meantime does not join with its old id: it has lost its partitions.
        """
        me = GroupMember(
            member_id=self.member_id,
            topics=topics,
            group_instance_id=self.group_instance_id,
            client_id=self._client_id,
            host=host_name(),
        )
        self._append(joined=me, left=silent)

    def _append(
        self,
        *,
        joined: GroupMember | None = None,
        left: Collection[str] = (),
        revoked: str | None = None,
        still_read: Collection[PartitionId] = (),
    ) -> None:
        self._store.append(
            ChangeGroup(
                self._group_id,
                self._store.now_ms(),
                joined=joined,
                only_if_member=self._has_joined,
                left=left,
                revoked=revoked,
                still_read=still_read,
            )
        )

    def _group(self) -> Group:
        def snapshot(state: StoreState, slot: int) -> Group:
            return state.groups.get(self._group_id, EMPTY_GROUP)

        return self._store.read(snapshot, refresh=False)


@dataclass
class RebalanceListeners:
    """The application's listeners for rebalances (Kafka's ``ConsumerRebalanceListener``)."""

    on_revoked: RebalanceListener | None = None
    on_assigned: RebalanceListener | None = None
    on_lost: RebalanceListener | None = None
    _running: str = field(default="", init=False)
    """The listener that is running; empty if none is."""

    def __post_init__(self) -> None:
        for name in ("on_revoked", "on_assigned", "on_lost"):
            check_callable(name, getattr(self, name))

    def check_not_running(self, call: str) -> None:
        """Refuse a call that would rebalance within a rebalance.

        Raises:
            IllegalState: a listener makes the call.
        """
        if self._running:
            raise IllegalState(
                f"{call} is not allowed in a rebalance listener, here {self._running}. A listener may commit, seek and "
                f"pause. Make this call when the call that calls the listener has returned"
            )

    def tell_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Call ``on_revoked`` with partitions that the consumer is about to give up. They can still be committed."""
        self._tell("on_revoked", self.on_revoked, partitions)

    def tell_lost(self, partitions: Iterable[TopicPartition]) -> None:
        """Call ``on_lost`` with partitions that are already lost. Their offsets can no longer be committed."""
        self._tell("on_lost" if self.on_lost else "on_revoked", self.on_lost or self.on_revoked, partitions)

    def tell_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Call ``on_assigned`` with new partitions."""
        self._tell("on_assigned", self.on_assigned, partitions)

    def _tell(self, name: str, listener: RebalanceListener | None, partitions: Iterable[TopicPartition]) -> None:
        moved = sorted(partitions)
        if not moved or listener is None:
            return
        self._running = name
        try:
            listener(moved)
        finally:
            self._running = ""


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
        self,
        store: Session,
        group_id: str | None,
        session_timeout_ms: int,
        *,
        group_instance_id: str | None = None,
        client_id: str = "",
    ) -> None:
        self._store = store
        self._group_id = group_id
        self._membership = (
            None
            if group_id is None
            else Membership(
                store, group_id, session_timeout_ms, group_instance_id=group_instance_id, client_id=client_id
            )
        )
        self._generation = _NO_GENERATION
        self._wanted: tuple[str, ...] | re.Pattern[str] | None = None
        self._followed: _Basis | None = None
        self._member_id = ""
        """The member id to which the current partitions were assigned."""
        self._begun: dict[str | re.Pattern[str], int] = {}
        """The first slot after the subscription to each topic or to the pattern."""
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
        slot = self._store.read(lambda state, slot: slot, refresh=False)
        keys = (wanted,) if isinstance(wanted, re.Pattern) else wanted
        self._begun = {each: self._begun.get(each, slot + 1) for each in keys}
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
        self._begun = {}
        self._followed = None
        self._member_id = ""

    def was_added(self, state: StoreState, topic: str, partition: Partition) -> bool:
        """Return True if a partition is newer than the subscription to its topic.

        In a group the subscription of its first member counts. So a consumer that joins later, or that joins again
        after a restart, finds the same partitions new. A pattern names no topics, so the group has no time of
        subscription for each topic. Then a partition is new if it is newer than the group.
        """
        wanted = self._wanted
        if wanted is None:
            return False
        key = wanted if isinstance(wanted, re.Pattern) else topic
        begun = self._begun.get(key)
        if self._group_id is not None:
            group = state.groups.get(self._group_id)
            if group is None:
                return False
            begun = group.subscribed.get(topic) if key is topic else group.created_slot
        return begun is not None and partition.created_slot >= begun

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
            FencedInstanceId, InconsistentGroupProtocol
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
        """Note that this consumer reads only its assigned partitions. Tell the group if others wait for that."""
        self._member_id = assignment.basis.member_id
        if assignment.gives_up and self._membership is not None:
            self._membership.give_up(assignment.basis.partitions)
        self._followed = assignment.basis


def _matching(state: StoreState, pattern: re.Pattern[str]) -> tuple[str, ...]:
    return tuple(name for name in sorted(state.topic_ids) if pattern.fullmatch(name))
