"""The memberships by which the log knows that a gateway coordinates groups.

A gateway is the only member of each group that it coordinates. It joins anew for each generation. Some methods wait for
the store, and say so. They run in a thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from eoslog.errors import EosLogError, InconsistentGroupProtocol, InvalidTopic, NotCoordinator
from eoslog.gateway.handed_over_group import HandedOverGroup, LastHeartbeat, decode_last_heartbeat
from eoslog.gateway.live_gateways import LiveGateways
from eoslog.session.heartbeats import Heartbeats, host_name
from eoslog.session.session import Session
from eoslog.state.group_entries import GroupMember
from eoslog.state.group_members import ChangeGroup
from eoslog.state.groups import EMPTY_GROUP
from eoslog.state.names import check_topic_name
from eoslog.state.store_state import Member

SESSION_TIMEOUT_MS = 30_000
"""Another gateway may replace a gateway whose heartbeat is older than this (ms)."""
_CLIENT_ID = "eoslog gateway"
_MOST_NEW_TOPICS = 1_000
"""The log has at most this many names of topics that do not exist yet for a group."""
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Predecessor:
    """A gateway that has ended, and has handed a group over."""

    member_id: str
    generation_in_log: int
    group: HandedOverGroup


class Memberships:
    """The memberships of groups as one gateway sees them: its own, and those of other gateways and of consumers."""

    def __init__(self, store: Session, gateways: LiveGateways, *, listens_elsewhere: bool) -> None:
        """
        Args:
            listens_elsewhere: True if the gateway does not listen at its advertised address. Then other gateways may
                advertise the same one.
        """
        self.store = store
        self._gateways = gateways
        self._listens_elsewhere = listens_elsewhere
        self.address = str(gateways.own.address)
        self.host = host_name()

    def new(self, group_id: str) -> Membership:
        """Return a membership of this gateway that is not in the log yet."""
        return Membership(self, group_id)

    def known_gateways(self, group_id: str) -> dict[str, Member]:
        """Return the other gateways that are members of a group in the known state."""
        return self._other_gateways(self.store.known_state.groups.get(group_id, EMPTY_GROUP).members)

    def has_gateway(self, group_id: str) -> bool:
        """Return whether a gateway is a member of a group in the known state."""
        members = self.store.known_state.groups.get(group_id, EMPTY_GROUP).members
        return any(member.is_coordinator for member in members.values())

    def check_newest(self, group_id: str) -> None:
        """Check that no other gateway is a member of a group in the newest state. Waits for the store.

        Raises:
            NotCoordinator
        """
        gateways = self._other_gateways(self._newest_members(group_id))
        if gateways:
            raise _coordinated_by(gateways, group_id)

    def check_silent(self, group_id: str) -> None:
        """Check that no other gateway coordinates a group. A gateway does not if it died or handed the group over.

        Waits for the store, and costs a LIST at most.

        Raises:
            NotCoordinator: the heartbeat of another gateway is not older than its session timeout.
        """
        # A gateway that has handed the group over may have been started again at its address since. Then it is live.
        self.predecessor(group_id)

    def predecessor(self, group_id: str) -> Predecessor | None:
        """Return the gateway that has handed a group over; None if no gateway has. Waits for the store.

        Raises:
            NotCoordinator: another gateway is a member, which seems to be alive.
        """
        group = self.store.read(lambda state, slot: state.groups.get(group_id, EMPTY_GROUP))
        # A gateway is the only member of its group.
        member_id = next((each for each, member in group.members.items() if member.is_coordinator), None)
        if member_id is None:
            return None
        found = decode_last_heartbeat(Heartbeats(self.store.object_store, group_id).body(member_id))
        if found is not None and found.generation_in_log == group.generation:
            return Predecessor(member_id, found.generation_in_log, found.group)
        gateways = self._other_gateways(group.members)
        if gateways and not self._are_silent(group_id, gateways):
            raise _coordinated_by(gateways, group_id)
        return None

    def replaceable(self, group_id: str) -> tuple[str, ...]:
        """Return the ids of the members of a group if this gateway may replace all of them. Waits for the store.

        Raises:
            InconsistentGroupProtocol: a consumer of eoslog is alive.
            NotCoordinator: another gateway is alive.
        """
        members = self._newest_members(group_id)
        gateways = self._other_gateways(members)
        consumers = {member_id: member for member_id, member in members.items() if not member.is_coordinator}
        others = gateways | consumers
        if others and not self._are_silent(group_id, others):
            if gateways:
                raise _coordinated_by(gateways, group_id)
            raise InconsistentGroupProtocol(
                f"group {group_id!r} has consumers of eoslog, so clients of Kafka's protocol cannot join it"
            )
        return tuple(members)

    def has_ended(self, member: Member) -> bool:
        """Return whether a member is a gateway that seems to have ended."""
        return member.is_coordinator and self._gateways.has_ended(member)

    def _newest_members(self, group_id: str) -> Mapping[str, Member]:
        return self.store.read(lambda state, slot: state.groups.get(group_id, EMPTY_GROUP).members)

    def _other_gateways(self, members: Mapping[str, Member]) -> dict[str, Member]:
        """Return the gateways among members, without those that have ended because this one has their address.

        Two processes cannot listen at one address of a host.
        """
        own = None if self._listens_elsewhere else (self.host, self.address)
        return {
            member_id: member
            for member_id, member in members.items()
            if member.is_coordinator and (member.host, member.address) != own
        }

    def _are_silent(self, group_id: str, members: Mapping[str, Member]) -> bool:
        # A gateway registers before it joins a group. Its heartbeat in the group must be older than the list of
        # gateways, because this list may be from before the gateway's start.
        ended = [member_id for member_id, each in members.items() if self.has_ended(each)]
        heartbeats = Heartbeats(self.store.object_store, group_id)
        alive = members.keys() - heartbeats.silent(members, ended=ended)
        # A gateway that has ended and handed the group over is silent at once, in whatever generation.
        return all(each in ended and decode_last_heartbeat(heartbeats.body(each)) is not None for each in alive)


class Membership:
    """The membership of a gateway in one group.

    Its methods wait for the store. ``join`` and ``leave`` are called one at a time, and ``keep_alive`` at any time.
    """

    def __init__(self, memberships: Memberships, group_id: str) -> None:
        self._memberships = memberships
        self._store = memberships.store
        self._group_id = group_id
        self._heartbeats = Heartbeats(self._store.object_store, group_id)
        self.member_id = self._store.environment.new_id()
        """The id of the member in the log. It is another one after each ``leave``."""
        self.has_joined = False
        """True if the log has the membership."""
        self.may_have_joined = False
        """True if the log may have the membership: the outcome of an append may be unknown."""
        self._lock = threading.Lock()
        """Held while a heartbeat is written or deleted, so that none is written after its deletion."""

    @property
    def generation(self) -> int | None:
        """Return the group's generation in the known state; None if this gateway is not a member there."""
        found = self._store.known_state.groups.get(self._group_id, EMPTY_GROUP)
        return found.generation if self.member_id in found.members else None

    def join(self, topics: frozenset[str] | None, predecessor: str | None = None) -> int | None:
        """Join the group, or join it anew, and return the new generation; None if the gateway was removed meanwhile.

        Args:
            topics: the topics to which the group's clients subscribe; None if they are unknown.
            predecessor: the member id of a gateway that has ended, which this one replaces; None if there is none.

        Raises:
            InconsistentGroupProtocol, NotCoordinator: the group has other members.
        """
        self.may_have_joined = True
        replaced: tuple[str, ...] = ()
        if not self.has_joined:
            # The members may be others than at the client's first JoinGroup: it may join a second time long after.
            replaced = self._memberships.replaceable(self._group_id) if predecessor is None else (predecessor,)
            self._put_heartbeat()
        self._store.append(
            ChangeGroup(
                self._group_id,
                self._store.now_ms(),
                joined=GroupMember(
                    member_id=self.member_id,
                    topics=self._topics_for_log(topics),
                    client_id=_CLIENT_ID,
                    host=self._memberships.host,
                    address=self._memberships.address,
                ),
                only_if_member=self.has_joined,
                left=set(replaced) - {self.member_id},
            )
        )
        self._store.environment.reached("gateway.group.joined")
        generation = self.generation
        self.has_joined = self.has_joined or generation is not None
        try:
            self._heartbeats.delete(set(replaced) - {self.member_id})
        except EosLogError as error:
            # The membership is in the log. The next search for silent members deletes the rest.
            _logger.warning("group %r: heartbeats of former members are not deleted: %s", self._group_id, error)
        return generation

    def take_over(self, topics: frozenset[str] | None, predecessor: Predecessor) -> int | None:
        """Join in the place of a gateway that has ended. ``topics`` and the errors are those of ``join``.

        Returns:
            The group's new generation in the log; None if the group was changed after the gateway handed it over. Then
            its clients must join again.
        """
        generation = self.join(topics, predecessor.member_id)
        return generation if generation == predecessor.generation_in_log + 1 else None

    def hand_over(self, group: HandedOverGroup) -> bool:
        """Write the group into the last heartbeat. The membership stays in the log until the next gateway replaces it.

        Returns:
            True; False if the log does not have the membership, so there is nothing to hand over.
        """
        with self._lock:
            generation = self.generation
            if generation is None:
                return False
            last = LastHeartbeat(session_timeout_ms=SESSION_TIMEOUT_MS, generation_in_log=generation, group=group)
            self._heartbeats.put(self.member_id, **last.model_dump(mode="json"))
            self._store.environment.reached("gateway.group.handed_over")
            self.has_joined = self.may_have_joined = False
            return True

    def leave(self, timeout_ms: int | None = None) -> None:
        """Leave the group. The next ``join`` is that of another member.

        Args:
            timeout_ms: the longest time for the append (ms); None for that of all appends.
        """
        request = ChangeGroup(self._group_id, self._store.now_ms(), left=(self.member_id,))
        self._store.append(request, timeout_ms=timeout_ms)
        self._store.environment.reached("gateway.group.left")
        with self._lock:
            self._heartbeats.delete((self.member_id,))
            self.has_joined = self.may_have_joined = False
            self.member_id = self._store.environment.new_id()

    def keep_alive(self) -> None:
        """Write the heartbeat of the gateway if it is a member."""
        with self._lock:
            if self.has_joined:
                self._put_heartbeat()

    def _put_heartbeat(self) -> None:
        self._heartbeats.put(self.member_id, SESSION_TIMEOUT_MS)

    def _topics_for_log(self, topics: frozenset[str] | None) -> tuple[str, ...]:
        """Return the names of existing topics, and some of the others: clients may name any number.

        A coordinator whose clients subscribe to unknown topics has none in the log. Then all offsets are in use.
        """
        if topics is None:
            return ()
        existing = topics & self._store.known_state.topic_ids.keys()
        others = islice(sorted(topics - existing), _MOST_NEW_TOPICS)
        return tuple(sorted((*existing, *filter(_is_topic_name, others))))


def _coordinated_by(gateways: Mapping[str, Member], group_id: str) -> NotCoordinator:
    named = ", ".join(f"{gateway.address} on {gateway.host}" for gateway in gateways.values())
    return NotCoordinator(
        f"the gateway at {named} coordinates group {group_id!r}, and clients of this gateway do not find it"
    )


def _is_topic_name(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidTopic:
        return False
    return True
