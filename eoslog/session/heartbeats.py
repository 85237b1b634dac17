"""Heartbeats of group members: one small object each, overwritten. They decide nothing; an eviction is an entry."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from eoslog.storage.object_store import ObjectStore

_DIRECTORY = "__consumer_groups"
SHORTEST_SESSION_TIMEOUT_MS = 6_000
LONGEST_SESSION_TIMEOUT_MS = 1_800_000


class Heartbeats:
    """The heartbeats of one group."""

    def __init__(self, store: ObjectStore, group_id: str) -> None:
        self._store = store
        self._prefix = f"{_DIRECTORY}/{hashlib.sha256(group_id.encode()).hexdigest()[:32]}/"
        self._session_timeouts: dict[str, int] = {}

    def put(self, member_id: str, session_timeout_ms: int) -> None:
        """Say that a member is alive."""
        body = json.dumps({"session_timeout_ms": session_timeout_ms}, separators=(",", ":"))
        self._store.put(self._prefix + member_id, body.encode())

    def delete(self, member_ids: Iterable[str]) -> None:
        """Forget members that are gone."""
        paths = [self._prefix + member_id for member_id in sorted(member_ids)]
        if paths:
            self._store.delete_many(paths)

    def silent(self, members: Iterable[str]) -> set[str]:
        """Those of ``members`` that have not been heard of for longer than their session time-out. One LIST.

        ``members`` were read from the log before: a member's first heartbeat comes before its entry, so one without any
        has gone. Heartbeats that no member owns any more are deleted.
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
    """What a heartbeat says; for one that says nothing sensible the longest there may be."""
    try:
        timeout = json.loads(body)["session_timeout_ms"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return LONGEST_SESSION_TIMEOUT_MS
    valid = isinstance(timeout, int) and SHORTEST_SESSION_TIMEOUT_MS <= timeout <= LONGEST_SESSION_TIMEOUT_MS
    return timeout if valid else LONGEST_SESSION_TIMEOUT_MS
