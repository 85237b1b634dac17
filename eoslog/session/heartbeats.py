"""Heartbeats of group members. Each member overwrites one small object.

Heartbeats decide nothing: an eviction is an entry of the log.
"""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Collection, Iterable, Iterator

from eoslog.arguments import LONGEST_SESSION_TIMEOUT_MS, SHORTEST_SESSION_TIMEOUT_MS
from eoslog.state.group_entries import LONGEST_HOST
from eoslog.storage.object_store import ObjectInfo, ObjectStore

_DIRECTORY = "__consumer_groups"


def host_name() -> str:
    """Return the name of this host in ASCII. A system may have a name of any bytes."""
    return socket.gethostname().encode("ascii", "replace").decode()[:LONGEST_HOST]


def forgotten_heartbeats(store: ObjectStore, members: Collection[str], before_ms: int) -> Iterator[ObjectInfo]:
    """Return heartbeats that no process writes or reads any more. This costs one LIST.

    A process that was killed while it left its group may leave one behind. Members of the group delete it, but a group
    may have no members any more.

    Args:
        members: the ids of the members of all groups.
        before_ms: return only heartbeats that were written before this time (ms, by the store's clock).
    """
    newest_ms = min(before_ms, store.clock.now_ms() - LONGEST_SESSION_TIMEOUT_MS)
    for info in store.list(f"{_DIRECTORY}/"):
        if info.last_modified_ms < newest_ms and info.path.rpartition("/")[2] not in members:
            yield info


class Heartbeats:
    """The heartbeats of one group."""

    def __init__(self, store: ObjectStore, group_id: str) -> None:
        self._store = store
        self._prefix = f"{_DIRECTORY}/{hashlib.sha256(group_id.encode()).hexdigest()[:32]}/"
        self._session_timeouts: dict[str, int] = {}

    def put(self, member_id: str, session_timeout_ms: int) -> None:
        """Write the heartbeat of a member."""
        body = json.dumps({"session_timeout_ms": session_timeout_ms}, separators=(",", ":"))
        self._store.put(self._prefix + member_id, body.encode())

    def delete(self, member_ids: Iterable[str]) -> None:
        """Delete the heartbeats of members that have left."""
        paths = [self._prefix + member_id for member_id in sorted(member_ids)]
        if paths:
            self._store.delete_many(paths)

    def silent(self, members: Iterable[str]) -> set[str]:
        """Return the members whose last heartbeat is older than their session timeout. This costs one LIST.

        Heartbeats without a member are deleted.

        Args:
            members: the members of the group, read from the log before this call. A member writes its first heartbeat
                before it joins, so a member without one has left.
        """
        members = set(members)
        heard = {info.path[len(self._prefix) :]: info.last_modified_ms for info in self._store.list(self._prefix)}
        now_ms = self._store.clock.last_date_ms
        ages = {member_id: now_ms - last_ms for member_id, last_ms in heard.items()}
        late = [member_id for member_id, age in ages.items() if age > SHORTEST_SESSION_TIMEOUT_MS]
        self._learn_timeouts([member_id for member_id in late if member_id not in self._session_timeouts])
        silent = {member_id for member_id in late if ages[member_id] > self._session_timeouts[member_id]}
        self.delete(silent - members)
        return (members - heard.keys()) | (silent & members)

    def _learn_timeouts(self, member_ids: list[str]) -> None:
        found = self._store.get_many([self._prefix + member_id for member_id in member_ids]) if member_ids else ()
        for member_id, stored in zip(member_ids, found, strict=True):
            self._session_timeouts[member_id] = _session_timeout(stored.body if stored is not None else b"")


def _session_timeout(body: bytes) -> int:
    """Return the session timeout in a heartbeat (ms); the longest allowed one if the heartbeat is invalid."""
    try:
        timeout = json.loads(body)["session_timeout_ms"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return LONGEST_SESSION_TIMEOUT_MS
    valid = isinstance(timeout, int) and SHORTEST_SESSION_TIMEOUT_MS <= timeout <= LONGEST_SESSION_TIMEOUT_MS
    return timeout if valid else LONGEST_SESSION_TIMEOUT_MS
