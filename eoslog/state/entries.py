"""The entries of the log: every change of a store's state, as it stands in a slot record.

An entry carries its result (base offset, producer id, epoch) beside its cause, and the fold checks it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from eoslog.state.entry_fields import Hex, Milliseconds, Model
from eoslog.state.expiry_entries import DoomedDeleted, Expired, HorizonMoved
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
    """What a reader must know."""
    writer_features: tuple[str, ...] = ()
    """What a writer must know."""
    time_ms: Milliseconds
    """By the store's clock, as all times of entries (ms since the epoch)."""


class FeaturesAdded(Model):
    """The store needs more features from here on: an entry behind this one asks for them."""

    type: Literal["features"] = "features"
    reader_features: tuple[str, ...] = ()
    """What a reader must know beside those so far."""
    writer_features: tuple[str, ...] = ()
    """What a writer must know beside those so far."""


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
    | DoomedDeleted
    | Expired,
    Field(discriminator="type"),
]

ENTRY: TypeAdapter[Entry] = TypeAdapter(Entry)
