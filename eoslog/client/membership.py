"""A consumer's membership in its group: joined, kept alive, and left by entries of the log.

The log alone says who is a member and of which generation. Liveness only decides whom the others propose to evict.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from eoslog.client.heartbeats import LONGEST_SESSION_TIMEOUT_MS, SHORTEST_SESSION_TIMEOUT_MS, Heartbeats
from eoslog.errors import EosLogError, InvalidOption
from eoslog.rules.draft import Draft
from eoslog.rules.entries import GroupChanged, GroupMember
from eoslog.rules.groups import EMPTY_GROUP
from eoslog.rules.state import Group, StoreState

if TYPE_CHECKING:
    from eoslog.client.store import Store

_logger = logging.getLogger(__name__)
_HEARTBEATS_A_SESSION = 3


class Membership:
    """One member of one group. After an eviction it joins anew, under another member id."""

    def __init__(self, store: Store, group_id: str, session_timeout_ms: int) -> None:
        if not SHORTEST_SESSION_TIMEOUT_MS <= session_timeout_ms <= LONGEST_SESSION_TIMEOUT_MS:
            raise InvalidOption(
                f"session_timeout_ms must be {SHORTEST_SESSION_TIMEOUT_MS} to {LONGEST_SESSION_TIMEOUT_MS}, "
                f"not {session_timeout_ms}"
            )
        self._store = store
        self._group_id = group_id
        self._session_timeout_ms = session_timeout_ms
        self._heartbeats = Heartbeats(store.object_store, group_id)
        self._last_heartbeat_ms: int | None = None
        self._last_look_ms: int | None = None
        self.member_id = ""
        """Empty while this consumer does not belong to the group."""

    def follow(self, topics: tuple[str, ...]) -> Group:
        """Join if need be, keep alive, and evict the silent; the group as of the newest state that is known.

        Costs no request but, once in a third of the session time-out, a PUT and, in company, a LIST.
        """
        group = self._group()
        if self.member_id not in group.members:
            self.member_id = self._store.environment.new_token()
            self._last_heartbeat_ms = None
        self.keep_alive()
        silent = self._look_for_silent(group)
        if silent or group.members.get(self.member_id) != topics:
            self._change(topics, silent)
            self._store.environment.reached("client.group.members_changed")
            self._heartbeats.delete(silent)
            return self._group()
        return group

    def keep_alive(self) -> None:
        """Say that this member is alive, unless that was just done."""
        if self.member_id and self._is_due(self._last_heartbeat_ms):
            self._heartbeats.put(self.member_id, self._session_timeout_ms)
            self._store.environment.reached("client.group.heartbeat_written")
            self._last_heartbeat_ms = self._store.environment.monotonic_ms()

    def leave(self) -> None:
        """Leave the group; its other members share the partitions out anew. They do without a farewell, too."""
        member_id, self.member_id = self.member_id, ""
        if not member_id:
            return

        def propose(draft: Draft) -> None:
            group = draft.groups.get(self._group_id, EMPTY_GROUP)
            if member_id in group.members:
                draft.append(self._entry(group, left=(member_id,)))

        try:
            self._store.append(propose)
            self._store.environment.reached("client.group.left")
            self._heartbeats.delete([member_id])
        except EosLogError as error:
            _logger.info("%s: member %s did not leave group %r: %s", self._store, member_id, self._group_id, error)

    def _look_for_silent(self, group: Group) -> set[str]:
        others = set(group.members) - {self.member_id}
        if not others or not self._is_due(self._last_look_ms):
            return set()
        self._last_look_ms = self._store.environment.monotonic_ms()
        return self._heartbeats.silent(group.members) - {self.member_id}

    def _is_due(self, last_ms: int | None) -> bool:
        now_ms = self._store.environment.monotonic_ms()
        return last_ms is None or now_ms - last_ms >= self._session_timeout_ms // _HEARTBEATS_A_SESSION

    def _change(self, topics: tuple[str, ...], silent: set[str]) -> None:
        def propose(draft: Draft) -> None:
            group = draft.groups.get(self._group_id, EMPTY_GROUP)
            left = tuple(sorted(silent & group.members.keys()))
            joins = group.members.get(self.member_id) != topics
            if left or joins:
                joined = (GroupMember(member_id=self.member_id, topics=topics),) if joins else ()
                draft.append(self._entry(group, joined=joined, left=left))

        self._store.append(propose)

    def _entry(self, group: Group, *, joined: tuple[GroupMember, ...] = (), left: tuple[str, ...] = ()) -> GroupChanged:
        return GroupChanged(
            group=self._group_id,
            generation=group.generation + 1,
            joined=joined,
            left=left,
            time_ms=self._store.now_ms(),
        )

    def _group(self) -> Group:
        def look(state: StoreState, slot: int) -> Group:
            return state.groups.get(self._group_id, EMPTY_GROUP)

        return self._store.read(look, refresh=False)
