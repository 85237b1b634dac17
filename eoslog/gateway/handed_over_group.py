"""A group of Kafka's clients as a gateway that ends hands it over to the next one.

It is the last heartbeat of the gateway in the group. The log decides whether it counts: the next gateway takes the old
one's place in the log, and uses it only if the group's generation there is still the one that the heartbeat names.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator

from eoslog.state.entry_fields import Model

_LONGEST_STRING = 1 << 20
"""A member is not larger than this (characters)."""
_Text = Annotated[str, Field(strict=True, max_length=_LONGEST_STRING)]
_Name = Annotated[_Text, Field(min_length=1)]
_Number = Annotated[int, Field(strict=True, ge=0, lt=1 << 31)]
_Timeout = Annotated[int, Field(strict=True, ge=-(1 << 31), lt=1 << 31)]
"""A client may give any number."""


class _Part(Model):
    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_bytes="base64", val_json_bytes="base64")


class HandedOverMember(_Part):
    """A member that has the generation, or an earlier one. The fields are those of ``JoinRequest``."""

    member_id: _Name
    group_instance_id: _Text | None = None
    client_id: _Text
    client_host: _Text
    session_timeout_ms: _Number
    rebalance_timeout_ms: _Timeout
    protocols: Annotated[tuple[tuple[_Text, bytes], ...], Field(min_length=1)]
    assignment: bytes


class HandedOverGroup(_Part):
    """A group that has had a generation."""

    generation: _Number
    """The generation that the clients know. That of the log is higher after each handover."""
    protocol_type: _Name
    protocol_name: _Text
    leader: _Name
    is_stable: bool
    """False in a rebalance. Then the clients join again at the next gateway."""
    members: Annotated[tuple[HandedOverMember, ...], Field(min_length=1)]
    pending: dict[_Name, _Number] = Field(default_factory=dict)
    """Member ids that no client has used yet, or only for a JoinGroup request that was not answered. Each has the time
    after which it expires (ms)."""

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
    """The heartbeat of a gateway that has handed a group over."""

    session_timeout_ms: _Number
    generation_in_log: _Number
    group: HandedOverGroup

    @model_validator(mode="after")
    def _check_generation(self) -> Self:
        # The next generation of the clients is that of the log, and it must be higher than their last one.
        if self.group.generation > self.generation_in_log:
            raise ValueError("the clients have a generation that the log does not have")
        return self


def decode_last_heartbeat(body: bytes | None) -> LastHeartbeat | None:
    """Return a heartbeat that hands a group over; None if it is another one, or invalid."""
    try:
        return None if body is None else LastHeartbeat.model_validate_json(body)
    except (ValidationError, RecursionError):
        return None
