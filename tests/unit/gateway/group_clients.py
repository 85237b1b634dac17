"""Members of Kafka's groups that send each request by itself, and requests for the offsets of groups."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from eoslog.gateway.protocol import ApiKey
from tests.unit.gateway.raw_client import Client, codes_of, offsets_of, part

_NO_MEMBER = ""


def subscription(*topics: str) -> bytes:
    """Return the metadata of a consumer that subscribes to topics."""
    names = b"".join(struct.pack(">h", len(each)) + each.encode() for each in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


class GroupClient:
    """A member of a group of Kafka's classic protocol."""

    def __init__(
        self,
        client: Client,
        group_id: str = "g",
        *,
        topics: Iterable[str] = ("t",),
        instance: str | None = None,
        protocol_type: str = "consumer",
    ) -> None:
        self.client = client
        self.group_id = group_id
        self.instance = instance
        self.member_id = _NO_MEMBER
        self.generation = -1
        self._type = protocol_type
        self._metadata = subscription(*topics)

    def send_join(self, version: int = 9, *, session_timeout_ms: int = 10_000, **more: Any) -> None:
        """Send JoinGroup."""
        key = ApiKey.JOIN_GROUP
        values: dict[str, Any] = {
            "group_id": self.group_id,
            "session_timeout": timedelta(milliseconds=session_timeout_ms),
            "member_id": self.member_id,
            "protocol_type": self._type,
            "protocols": (part(key, version, "JoinGroupRequestProtocol", name="range", metadata=self._metadata),),
        }
        if version >= 1:
            values["rebalance_timeout"] = timedelta(milliseconds=session_timeout_ms)
        if version >= 5:
            values["group_instance_id"] = self.instance
        if version >= 8:
            values["reason"] = None
        self.client.send(key, version, **values | more)

    def joined(self, version: int = 9) -> Any:
        """Return the answer to JoinGroup, and take the member id and generation that it has."""
        answer = self.client.answer(ApiKey.JOIN_GROUP, version)
        if answer.error_code in (ErrorCode.none, ErrorCode.member_id_required):
            self.member_id = answer.member_id
        if answer.error_code is ErrorCode.none:
            self.generation = answer.generation_id
        return answer

    def join(self, version: int = 9, **more: Any) -> Any:
        """Join, and return the answer. The first one only has the member id, in versions from 4 on."""
        self.send_join(version, **more)
        answer = self.joined(version)
        if answer.error_code is ErrorCode.member_id_required:
            self.send_join(version, **more)
            answer = self.joined(version)
        return answer

    def send_sync(self, assignments: Mapping[str, bytes] | None = None, version: int = 5, **more: Any) -> None:
        """Send SyncGroup."""
        key = ApiKey.SYNC_GROUP
        values: dict[str, Any] = self._named(version, first_with_instances=3) | {
            "assignments": tuple(
                part(key, version, "SyncGroupRequestAssignment", member_id=name, assignment=assignment)
                for name, assignment in (assignments or {}).items()
            ),
        }
        if version >= 5:
            values |= {"protocol_type": self._type, "protocol_name": "range"}
        self.client.send(key, version, **values | more)

    def sync(self, assignments: Mapping[str, bytes] | None = None, version: int = 5, **more: Any) -> Any:
        """Send SyncGroup, and return the answer."""
        self.send_sync(assignments, version, **more)
        return self.client.answer(ApiKey.SYNC_GROUP, version)

    def send_heartbeat(self, version: int = 4, **more: Any) -> None:
        """Send Heartbeat."""
        self.client.send(ApiKey.HEARTBEAT, version, **self._named(version, first_with_instances=3) | more)

    def heartbeat(self, version: int = 4, **more: Any) -> ErrorCode:
        self.send_heartbeat(version, **more)
        code: ErrorCode = self.client.answer(ApiKey.HEARTBEAT, version).error_code
        return code

    def leave(self, version: int = 5) -> ErrorCode:
        """Leave, and return the code of this member."""
        key = ApiKey.LEAVE_GROUP
        if version < 3:
            values: dict[str, Any] = {"group_id": self.group_id, "member_id": self.member_id}
        else:
            named = {"member_id": self.member_id, "group_instance_id": self.instance}
            member = part(key, version, "MemberIdentity", **named | ({"reason": None} if version >= 5 else {}))
            values = {"group_id": self.group_id, "members": (member,)}
        answer = self.client.call(key, version, **values)
        found: ErrorCode = answer.members[0].error_code if getattr(answer, "members", ()) else answer.error_code
        return found

    def commit(self, *offsets: tuple[int, int], version: int = 8, **more: Any) -> dict[int, Any]:
        """Commit offsets of partitions of topic t as this member, and return the code of each partition."""
        named = {"member_id": self.member_id, "generation_id_or_member_epoch": self.generation}
        return commit_plainly(
            self.client, *offsets, version=version, group_id=self.group_id, **named | {"instance": self.instance} | more
        )

    def _named(self, version: int, *, first_with_instances: int) -> dict[str, Any]:
        values = {"group_id": self.group_id, "generation_id": self.generation, "member_id": self.member_id}
        return values | ({"group_instance_id": self.instance} if version >= first_with_instances else {})


def commit_plainly(
    client: Client, *offsets: tuple[int, int], version: int = 8, group_id: str = "g", **member: Any
) -> dict[int, Any]:
    """Commit offsets of partitions of topic t, and return the code of each partition. By default no member commits."""
    key = ApiKey.OFFSET_COMMIT
    values: dict[str, Any] = {
        "group_id": group_id,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": (offsets_of(key, version, "OffsetCommitRequest", offsets),),
    }
    if version <= 4:
        values["retention_time"] = timedelta(milliseconds=-1)
    instance = member.pop("instance", None)
    if version >= 7:
        values["group_instance_id"] = instance
    return codes_of(client.call(key, version, **values | member))


def fetch_offsets(
    client: Client, *partitions: int, version: int = 9, group_id: str = "g", stable: bool = False
) -> tuple[ErrorCode, dict[int, tuple[int, str | None, ErrorCode]]]:
    """Return the code, and for each partition its offset, metadata and code. Without partitions: those of the group."""
    key = ApiKey.OFFSET_FETCH
    name = "OffsetFetchRequestTopics" if version >= 8 else "OffsetFetchRequestTopic"
    topics = (part(key, version, name, name="t", partition_indexes=partitions),) if partitions else None
    values: dict[str, Any] = {"require_stable": stable} if version >= 7 else {}
    if version < 8:
        values |= {"group_id": group_id, "topics": topics}
    else:
        group = {"group_id": group_id, "topics": topics} | ({"member_id": None} if version >= 9 else {})
        values["groups"] = (part(key, version, "OffsetFetchRequestGroup", **group),)
    answer = client.call(key, version, **values)
    found = answer.groups[0] if version >= 8 else answer
    return getattr(found, "error_code", ErrorCode.none), {
        each.partition_index: (each.committed_offset, each.metadata, each.error_code)
        for topic in found.topics
        for each in topic.partitions
    }
