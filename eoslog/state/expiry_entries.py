"""The entries of vacuum and expiry: files, ids, offsets and groups that the store deletes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from eoslog.state.entry_fields import (
    Hex,
    Identifier,
    Milliseconds,
    Model,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
)


class HorizonMoved(Model):
    """Vacuum's horizon moved. Unnamed files uploaded at or before it may be deleted, and can no longer be named."""

    type: Literal["horizon"] = "horizon"
    horizon_ms: Milliseconds


class PendingDeletionsDone(Model):
    """The files that entries up to ``slot`` dropped were deleted from the object store."""

    type: Literal["pending_deletions_done"] = "pending_deletions_done"
    slot: Offset


class ExpiredTransactionalId(Model):
    """A transactional id, with its identity when the expiry was planned."""

    transactional_id: Identifier
    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class ExpiredProducer(Model):
    """A producer id without transactional id, with its last use when the expiry was planned."""

    producer_id: ProducerId
    last_update_ms: Milliseconds


class ExpiredOffset(Model):
    """A committed offset, with its slot when the expiry was planned."""

    topic_id: Hex
    partition: PartitionIndex
    slot: Offset
    """The slot that committed it; for a prepared transaction, the slot of the prepare."""


class ExpiredGroup(Model):
    """Offsets of a group that expire. If no member and no offset is left, the group expires, too."""

    group: Identifier
    generation: Annotated[int, Field(strict=True, ge=0)]
    """The group's generation when the expiry was planned."""
    offsets: tuple[ExpiredOffset, ...] = ()


class Expired(Model):
    """Unused ids, offsets and groups expire. If one of them was used since the planning, the entry is refused."""

    type: Literal["expire"] = "expire"
    transactional_ids: tuple[ExpiredTransactionalId, ...] = ()
    producers: tuple[ExpiredProducer, ...] = ()
    groups: tuple[ExpiredGroup, ...] = ()
