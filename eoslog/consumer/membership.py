"""A consumer's membership in its group: it joins, stays alive and leaves.

The log alone decides which consumers are members, and in which generation. Heartbeats only decide which members the
others propose to evict.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from eoslog.errors import EosLogError, FencedInstanceId, InvalidOption
from eoslog.session.heartbeats import LONGEST_SESSION_TIMEOUT_MS, SHORTEST_SESSION_TIMEOUT_MS, Heartbeats
from eoslog.session.session import Session
from eoslog.state.group_entries import GroupMember
from eoslog.state.group_members import ChangeGroup, plan_group_change
from eoslog.state.groups import EMPTY_GROUP, static_member
from eoslog.state.names import check_id
from eoslog.state.store_state import Group, StoreState

_logger = logging.getLogger(__name__)
_HEARTBEATS_A_SESSION = 3
_ExistingTopics = tuple[tuple[str, int], ...]


class Membership:
    """One member of one group. After an eviction it joins again with a new member id."""

    def __init__(
        self, store: Session, group_id: str, session_timeout_ms: int, group_instance_id: str | None = None
    ) -> None:
        if not SHORTEST_SESSION_TIMEOUT_MS <= session_timeout_ms <= LONGEST_SESSION_TIMEOUT_MS:
            raise InvalidOption(
                f"session_timeout_ms must be {SHORTEST_SESSION_TIMEOUT_MS} to {LONGEST_SESSION_TIMEOUT_MS}, "
                f"not {session_timeout_ms}"
            )
        if group_instance_id is not None:
            check_id("group instance id", group_instance_id)
        self._store = store
        self._group_id = group_id
        self.group_instance_id = group_instance_id
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
            FencedInstanceId: another consumer has taken this one's place.
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
                self._change(topics, silent)
                self._store.environment.reached("client.group.members_changed")
                self._heartbeats.delete(silent)
                group = self._group()
            if self.member_id in group.members:
                self._has_joined = True
                return group

    def give_up(self) -> None:
        """Tell the group that this member no longer reads the partitions that it had to give up."""
        self._append(revoked=(self.member_id,))
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
        if self._has_joined and self.group_instance_id is not None:
            self._fenced = static_member(group, self.group_instance_id) is not None
        if self._fenced:
            raise FencedInstanceId(
                f"another consumer has joined group {self._group_id!r} as {self.group_instance_id!r} since; close this "
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
        me = GroupMember(member_id=self.member_id, topics=topics, group_instance_id=self.group_instance_id)
        self._append(joined=me, left=silent)

    def _append(
        self, *, joined: GroupMember | None = None, left: Collection[str] = (), revoked: Collection[str] = ()
    ) -> None:
        self._store.append(
            ChangeGroup(
                self._group_id,
                self._store.now_ms(),
                joined=joined,
                only_if_member=self._has_joined,
                left=left,
                revoked=revoked,
            )
        )

    def _group(self) -> Group:
        def snapshot(state: StoreState, slot: int) -> Group:
            return state.groups.get(self._group_id, EMPTY_GROUP)

        return self._store.read(snapshot, refresh=False)
