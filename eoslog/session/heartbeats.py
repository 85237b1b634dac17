"""Heartbeats of group members and of gateways. Each of them overwrites one small object.

Heartbeats decide nothing: an eviction is an entry of the log. The last heartbeat of a gateway also names the clients of
its group, for the next gateway.
"""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence

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


class HeartbeatDirectory:
    """A directory in which each process overwrites a small object of its own, to show that it is alive."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        """
        Args:
            prefix: the path of the directory, with a slash at its end.
        """
        self._store = store
        self._prefix = prefix

    def put(self, name: str, content: Mapping[str, object]) -> None:
        """Write a heartbeat."""
        self._store.put(self._prefix + name, json.dumps(content, separators=(",", ":")).encode())

    def delete(self, names: Iterable[str]) -> None:
        """Delete heartbeats."""
        paths = [self._prefix + name for name in sorted(names)]
        if paths:
            self._store.delete_many(paths)

    def ages_ms(self) -> dict[str, int]:
        """Return the age of each heartbeat by the dates of the object store (ms). This costs one LIST."""
        clock = self._store.clock
        asked_ms = clock.now_ms()
        heard = {info.path[len(self._prefix) :]: info.last_modified_ms for info in self._store.list(self._prefix)}
        # This process may have been paused since the LIST, and another thread may know the time already. By that time
        # all heartbeats of the LIST would be old.
        now_ms = min(asked_ms or clock.last_date_ms, clock.last_date_ms)
        return {name: now_ms - last_ms for name, last_ms in heard.items()}

    def bodies(self, names: Sequence[str]) -> list[bytes | None]:
        """Return the bytes of heartbeats; None for those that do not exist."""
        found = self._store.get_many([self._prefix + name for name in names]) if names else ()
        return [None if stored is None else stored.body for stored in found]


class Heartbeats:
    """The heartbeats of one group."""

    def __init__(self, store: ObjectStore, group_id: str) -> None:
        self._directory = HeartbeatDirectory(
            store, f"{_DIRECTORY}/{hashlib.sha256(group_id.encode()).hexdigest()[:32]}/"
        )
        self._session_timeouts: dict[str, int] = {}

    def put(self, member_id: str, session_timeout_ms: int, **more: object) -> None:
        """Write the heartbeat of a member.

        Args:
            session_timeout_ms: the member is silent if its heartbeat is older (ms).
            more: further fields, for the process that takes the member's place.
        """
        self._directory.put(member_id, {"session_timeout_ms": session_timeout_ms, **more})

    def body(self, member_id: str) -> bytes | None:
        """Return the bytes of a member's last heartbeat; None if there is none."""
        return self._directory.bodies([member_id])[0]

    def delete(self, member_ids: Iterable[str]) -> None:
        """Delete the heartbeats of members that have left."""
        self._directory.delete(member_ids)

    def silent(self, members: Iterable[str], *, ended: Container[str] = ()) -> set[str]:
        """Return the members whose last heartbeat is older than their session timeout. This costs one LIST.

        Heartbeats without a member are deleted.

        Args:
            members: the members of the group, read from the log before this call. A member writes its first heartbeat
                before it joins, so a member without one has left.
            ended: members that seem to have ended. They have the shortest session timeout.
        """
        members = set(members)
        ages = self._directory.ages_ms()
        late = [member_id for member_id, age in ages.items() if age > SHORTEST_SESSION_TIMEOUT_MS]
        self._learn_timeouts([member_id for member_id in late if member_id not in self._session_timeouts])
        silent = {
            member_id for member_id in late if member_id in ended or ages[member_id] > self._session_timeouts[member_id]
        }
        self.delete(silent - members)
        return (members - ages.keys()) | (silent & members)

    def _learn_timeouts(self, member_ids: list[str]) -> None:
        for member_id, body in zip(member_ids, self._directory.bodies(member_ids), strict=True):
            self._session_timeouts[member_id] = _session_timeout(body or b"")


def _session_timeout(body: bytes) -> int:
    """Return the session timeout in a heartbeat (ms); the longest allowed one if the heartbeat is invalid."""
    try:
        timeout = json.loads(body)["session_timeout_ms"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return LONGEST_SESSION_TIMEOUT_MS
    valid = isinstance(timeout, int) and SHORTEST_SESSION_TIMEOUT_MS <= timeout <= LONGEST_SESSION_TIMEOUT_MS
    return timeout if valid else LONGEST_SESSION_TIMEOUT_MS
