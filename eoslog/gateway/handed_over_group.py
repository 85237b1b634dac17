"""A group of Kafka's clients, as a gateway that ends hands it over to the next one.

The gateway writes the group into its last heartbeat. The next gateway takes the old one's place in the log, and reads
the group from the heartbeat. The log decides whether the clients stay members: they do if the group's generation in the
log was still the one that the heartbeat names.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator

from eoslog.arguments import LONGEST_SESSION_TIMEOUT_MS
from eoslog.state.entry_fields import Model

_LONGEST_STRING = 1 << 20
"""The longest string (characters). A JoinGroup request has at most this many bytes."""
_Text = Annotated[str, Field(strict=True, max_length=_LONGEST_STRING)]
_Name = Annotated[_Text, Field(min_length=1)]
_Number = Annotated[int, Field(strict=True, ge=0, lt=1 << 31)]
_SessionTimeout = Annotated[int, Field(strict=True, ge=0, le=LONGEST_SESSION_TIMEOUT_MS)]
"""A session timeout, or the rest of one (ms). A forged heartbeat keeps members without a client no longer than this."""
_RebalanceTimeout = Annotated[int, Field(strict=True, ge=-(1 << 31), lt=1 << 31)]
"""A rebalance timeout (ms). A client may give any number."""


class _Part(Model):
    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_bytes="base64", val_json_bytes="base64")


class HandedOverMember(_Part):
    """A client that has had a generation. The fields are those of its ``JoinRequest``, and its assignment."""

    member_id: _Name
    group_instance_id: _Text | None = None
    client_id: _Text
    client_host: _Text
    session_timeout_ms: _SessionTimeout
    rebalance_timeout_ms: _RebalanceTimeout
    protocols: Annotated[tuple[tuple[_Text, bytes], ...], Field(min_length=1)]
    assignment: bytes


class HandedOverGroup(_Part):
    """A group that has had a generation."""

    generation: _Number
    """The generation that the clients know. Each handover begins another generation, but only in the log."""
    protocol_type: _Name
    protocol_name: _Text
    leader: _Name
    is_stable: bool
    """False in a rebalance. Then the clients join again at the next gateway."""
    members: Annotated[tuple[HandedOverMember, ...], Field(min_length=1)]
    pending: dict[_Name, _SessionTimeout] = Field(default_factory=dict)
    """The ids of clients that are not members yet, and the time until each id expires (ms). The client has not used its
    id, or its JoinGroup request had no answer."""

    @model_validator(mode="after")
    def _check_members(self) -> Self:
        ids = [each.member_id for each in self.members]
        static_ids = [each.group_instance_id for each in self.members if each.group_instance_id is not None]
        protocols = set.intersection(*({name for name, _ in each.protocols} for each in self.members))
        if len({*ids, *self.pending}) < len(ids) + len(self.pending) or len(set(static_ids)) < len(static_ids):
            raise ValueError("two members have the same id")
        if self.leader not in ids:
            raise ValueError("the leader is no member")
        if not protocols or (self.is_stable and self.protocol_name not in protocols):
            raise ValueError("the members have no common protocol")
        return self


class LastHeartbeat(_Part):
    """The last heartbeat of a gateway in a group that it hands over."""

    session_timeout_ms: _SessionTimeout
    generation_in_log: _Number
    """The group's generation in the log. If it changes before the next gateway joins, the clients join again."""
    group: HandedOverGroup

    @model_validator(mode="after")
    def _check_generation(self) -> Self:
        # The next generation of the clients is that of the log, and it must be higher than their last one.
        if self.group.generation > self.generation_in_log:
            raise ValueError("the clients have a generation that the log does not have")
        return self


def decode_last_heartbeat(body: bytes | None) -> LastHeartbeat | None:
    """Return the content of a heartbeat; None if there is none, if it hands no group over, or if it is invalid."""
    try:
        return None if body is None else LastHeartbeat.model_validate_json(body)
    except (ValidationError, RecursionError):
        return None
