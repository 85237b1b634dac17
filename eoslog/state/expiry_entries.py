"""The entries with which the store forgets: files that nothing names, and what nobody used for long."""

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
    """Files uploaded at or before the horizon that no entry names may be deleted, and can no longer be named."""

    type: Literal["horizon"] = "horizon"
    horizon_ms: Milliseconds


class DoomedDeleted(Model):
    """Files that entries up to ``slot`` dropped have been deleted from the store."""

    type: Literal["doomed_deleted"] = "doomed_deleted"
    slot: Offset


class ExpiredTransactionalId(Model):
    """A transactional id as it stood when it was found to be unused."""

    transactional_id: Identifier
    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class ExpiredProducer(Model):
    """A producer id without transactional id as it stood when it was found to be unused."""

    producer_id: ProducerId
    last_update_ms: Milliseconds


class ExpiredOffset(Model):
    """A committed offset as it stood when it was found to be old."""

    topic_id: Hex
    partition: PartitionIndex
    slot: Offset
    """The slot that committed it; of a prepared transaction's offset, that of the prepare."""


class ExpiredGroup(Model):
    """Offsets of a group that expire; without members and offsets left, the group is forgotten too."""

    group: Identifier
    generation: Annotated[int, Field(strict=True, ge=0)]
    """As it stood when the offsets were found to be old."""
    offsets: tuple[ExpiredOffset, ...] = ()


class Expired(Model):
    """What nobody used for long is forgotten; what moved meanwhile refuses the entry."""

    type: Literal["expire"] = "expire"
    transactional_ids: tuple[ExpiredTransactionalId, ...] = ()
    producers: tuple[ExpiredProducer, ...] = ()
    groups: tuple[ExpiredGroup, ...] = ()
