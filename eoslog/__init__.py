"""eoslog: Kafka's exactly-once semantics as a table format on object storage."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from eoslog.errors import *  # noqa: F403

if TYPE_CHECKING:
    from eoslog.client.admin import Admin as Admin
    from eoslog.client.commits import Commit as Commit
    from eoslog.client.consumer import Consumer as Consumer
    from eoslog.client.consumer_records import ConsumerRecord as ConsumerRecord
    from eoslog.client.consumer_records import RecordTransaction as RecordTransaction
    from eoslog.client.coordinator import Coordinator as Coordinator
    from eoslog.client.group import GroupMetadata as GroupMetadata
    from eoslog.client.history import History as History
    from eoslog.client.last_committed import LastCommitted as LastCommitted
    from eoslog.client.offset_lookup import OffsetAndTimestamp as OffsetAndTimestamp
    from eoslog.client.offset_resets import OffsetReset as OffsetReset
    from eoslog.client.operations import Operation as Operation
    from eoslog.client.positions import (
        OffsetAndMetadata as OffsetAndMetadata,
    )
    from eoslog.client.positions import (
        PartitionOffsets as PartitionOffsets,
    )
    from eoslog.client.positions import (
        RecordMetadata as RecordMetadata,
    )
    from eoslog.client.producer import Producer as Producer
    from eoslog.client.store import Store as Store
    from eoslog.client.store import connect as connect
    from eoslog.read.isolation import IsolationLevel as IsolationLevel
    from eoslog.read.progress import Progress as Progress
    from eoslog.read.scan import Scan as Scan
    from eoslog.rules.names import TopicPartition as TopicPartition
    from eoslog.rules.topic_entries import TopicConfig as TopicConfig

_PUBLIC = {
    "Admin": "eoslog.client.admin",
    "Commit": "eoslog.client.commits",
    "Consumer": "eoslog.client.consumer",
    "ConsumerRecord": "eoslog.client.consumer_records",
    "Coordinator": "eoslog.client.coordinator",
    "GroupMetadata": "eoslog.client.group",
    "History": "eoslog.client.history",
    "IsolationLevel": "eoslog.read.isolation",
    "LastCommitted": "eoslog.client.last_committed",
    "OffsetAndMetadata": "eoslog.client.positions",
    "OffsetAndTimestamp": "eoslog.client.offset_lookup",
    "OffsetReset": "eoslog.client.offset_resets",
    "Operation": "eoslog.client.operations",
    "PartitionOffsets": "eoslog.client.positions",
    "Producer": "eoslog.client.producer",
    "Progress": "eoslog.read.progress",
    "RecordMetadata": "eoslog.client.positions",
    "RecordTransaction": "eoslog.client.consumer_records",
    "Scan": "eoslog.read.scan",
    "Store": "eoslog.client.store",
    "TopicConfig": "eoslog.rules.topic_entries",
    "TopicPartition": "eoslog.rules.names",
    "connect": "eoslog.client.store",
}


def __getattr__(name: str) -> Any:
    """Public names are imported at their first use, so that importing eoslog costs next to nothing."""
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module 'eoslog' has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
