"""A consumer's membership in its group: joined, kept alive, and left by entries of the log.

The log alone says who is a member and of which generation. Liveness only decides whom the others propose to evict.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

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
_TopicsThere = tuple[tuple[str, int], ...]


class Membership:
    """One member of one group. After an eviction it joins anew, under another member id."""

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
        self._last_look_ms: int | None = None
        self._has_joined = False
        self._fenced = False
        self._settled: tuple[Group, _TopicsThere] | None = None
        """The group and its topics when all partitions were seen to be shared out as they should be."""
        self.member_id = ""
        """Empty while this consumer does not belong to the group."""

    def follow(self, topics: tuple[str, ...]) -> Group:
        """Join if need be, keep alive, evict the silent, and share out anew what is not shared out as it should be.

        Costs no request but, once in a third of the session time-out, a PUT and, in company, a LIST.

        Returns:
            The group as of the newest state that is known; this consumer is a member of it.

        Raises:
            FencedInstanceId: another consumer has taken this one's place.
        """
        while True:
            group = self._group()
            if self.member_id not in group.members:
                self._check_not_fenced(group)
                self.member_id = self._store.environment.new_token()
                self._has_joined = False
                self._last_heartbeat_ms = None
            self.keep_alive()
            silent = self._look_for_silent(group)
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
        """Say that this member no longer reads what it was to give up."""
        self._append(revoked=(self.member_id,))
        self._store.environment.reached("client.group.given_up")

    def keep_alive(self) -> None:
        """Say that this member is alive, unless that was just done."""
        if self.member_id and self._is_due(self._last_heartbeat_ms):
            self._heartbeats.put(self.member_id, self._session_timeout_ms)
            self._store.environment.reached("client.group.heartbeat_written")
            self._last_heartbeat_ms = self._store.environment.monotonic_ms()

    def leave(self) -> None:
        """Leave the group; its other members share the partitions out anew. They do without a farewell, too.

        A static member does not: its partitions wait for its return, within the session time-out.
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
        """A static member that finds another in its place does not push it out in turn."""
        if self._has_joined and self.group_instance_id is not None:
            self._fenced = static_member(group, self.group_instance_id) is not None
        if self._fenced:
            raise FencedInstanceId(
                f"another consumer has joined group {self._group_id!r} as {self.group_instance_id!r} since; close this "
                "one"
            )

    def _look_for_silent(self, group: Group) -> set[str]:
        others = set(group.members) - {self.member_id}
        if not others or not self._is_due(self._last_look_ms):
            return set()
        self._last_look_ms = self._store.environment.monotonic_ms()
        return self._heartbeats.silent(group.members) - {self.member_id}

    def _is_due(self, last_ms: int | None) -> bool:
        now_ms = self._store.environment.monotonic_ms()
        return last_ms is None or now_ms - last_ms >= self._session_timeout_ms // _HEARTBEATS_A_SESSION

    def _is_settled(self) -> bool:
        """Whether topics that came or went leave everything where it is. Looked at once for each change."""

        def look(state: StoreState, slot: int) -> bool:
            group = state.groups.get(self._group_id, EMPTY_GROUP)
            names = sorted({name for member in group.members.values() for name in member.topics})
            there = [state.topics[state.topic_ids[name]] for name in names if name in state.topic_ids]
            seen = (group, tuple((topic.topic_id, topic.partitions) for topic in there))
            if self._settled is not None and self._settled[0] is group and self._settled[1] == seen[1]:
                return True
            if plan_group_change(state, self._group_id, time_ms=0) is not None:
                return False
            self._settled = seen
            return True

        return self._store.read(look, refresh=False)

    def _change(self, topics: tuple[str, ...], silent: set[str]) -> None:
        """Join, unless this member was evicted meanwhile: who lost its partitions joins under another id."""
        me = GroupMember(member_id=self.member_id, topics=topics, group_instance_id=self.group_instance_id)
        self._append(joined=me, left=silent)

    def _append(
        self, *, joined: GroupMember | None = None, left: Iterable[str] = (), revoked: Iterable[str] = ()
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
        def look(state: StoreState, slot: int) -> Group:
            return state.groups.get(self._group_id, EMPTY_GROUP)

        return self._store.read(look, refresh=False)
