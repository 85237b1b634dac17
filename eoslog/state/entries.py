"""The entries of the log. Each one is a change of a store's state, and is part of a slot record.

An entry has its result (base offset, producer id, epoch) beside its cause. Readers compute the result again and
compare.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from eoslog.state.entry_fields import Hex, Milliseconds, Model
from eoslog.state.expiry_entries import Expired, HorizonMoved, PendingDeletionsDone
from eoslog.state.group_entries import GroupChanged, GroupDeleted, GroupOffsetsDeleted, OffsetsCommitted
from eoslog.state.segment_entries import LogCleaned, LogStartMoved, SegmentSealed, SegmentsReplaced
from eoslog.state.topic_entries import (
    PartitionsCreated,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
    TopicSchemaChanged,
)
from eoslog.state.transaction_entries import BatchAppended, ProducerInitialized, TransactionEnded, TransactionPrepared


class StoreCreated(Model):
    """The first entry of every log."""

    type: Literal["store"] = "store"
    store_id: Hex
    """The id that `eoslog.json` gives the store."""
    reader_features: tuple[str, ...] = ()
    """The features that a reader must know."""
    writer_features: tuple[str, ...] = ()
    """The features that a writer must know."""
    time_ms: Milliseconds
    """The time of the store's clock (ms since the epoch). All entries use this clock."""


class FeaturesAdded(Model):
    """The store needs more features from here on, because a later entry uses them."""

    type: Literal["features"] = "features"
    reader_features: tuple[str, ...] = ()
    """The further features that a reader must know."""
    writer_features: tuple[str, ...] = ()
    """The further features that a writer must know."""


Entry = Annotated[
    StoreCreated
    | FeaturesAdded
    | TopicCreated
    | TopicConfigChanged
    | TopicSchemaChanged
    | PartitionsCreated
    | TopicDeleted
    | ProducerInitialized
    | BatchAppended
    | TransactionPrepared
    | TransactionEnded
    | OffsetsCommitted
    | GroupChanged
    | GroupOffsetsDeleted
    | GroupDeleted
    | SegmentSealed
    | SegmentsReplaced
    | LogCleaned
    | LogStartMoved
    | HorizonMoved
    | PendingDeletionsDone
    | Expired,
    Field(discriminator="type"),
]

ENTRY: TypeAdapter[Entry] = TypeAdapter(Entry)
