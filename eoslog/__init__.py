"""eoslog: Kafka's exactly-once semantics as a table format on object storage."""

from __future__ import annotations

from importlib import import_module  # noqa: TID251 - the imports below show the same modules to the rules
from typing import TYPE_CHECKING, Any

from eoslog.errors import *  # noqa: F403

if TYPE_CHECKING:
    from eoslog.admin.admin import Admin as Admin
    from eoslog.admin.group_admin import OffsetReset as OffsetReset
    from eoslog.admin.topic_admin import PartitionDescription as PartitionDescription
    from eoslog.admin.transaction_admin import LastCommitted as LastCommitted
    from eoslog.admin.transaction_descriptions import TransactionListing as TransactionListing
    from eoslog.consumer.consumer import Consumer as Consumer
    from eoslog.consumer.consumer_records import ConsumerRecord as ConsumerRecord
    from eoslog.consumer.consumer_records import RecordTransaction as RecordTransaction
    from eoslog.maintenance.coordinator import Coordinator as Coordinator
    from eoslog.maintenance.file_compaction import FileCompactionReport as FileCompactionReport
    from eoslog.maintenance.key_compaction import KeyCompactionReport as KeyCompactionReport
    from eoslog.maintenance.vacuum import VacuumReport as VacuumReport
    from eoslog.processor import Processor as Processor
    from eoslog.processor import ProcessorOutput as ProcessorOutput
    from eoslog.producer.producer import Producer as Producer
    from eoslog.read.commits import Commit as Commit
    from eoslog.read.history import History as History
    from eoslog.read.history import Operation as Operation
    from eoslog.read.isolation import IsolationLevel as IsolationLevel
    from eoslog.read.offset_lookup import OffsetAndTimestamp as OffsetAndTimestamp
    from eoslog.read.scan import Progress as Progress
    from eoslog.read.scan import RowRange as RowRange
    from eoslog.read.scan import Scan as Scan
    from eoslog.read.scan import ScanFile as ScanFile
    from eoslog.session.positions import GroupMetadata as GroupMetadata
    from eoslog.session.positions import OffsetAndMetadata as OffsetAndMetadata
    from eoslog.session.positions import PartitionOffsets as PartitionOffsets
    from eoslog.session.positions import RecordMetadata as RecordMetadata
    from eoslog.state.entries import TopicConfig as TopicConfig
    from eoslog.state.names import TopicPartition as TopicPartition
    from eoslog.state.store_state import Topic as Topic
    from eoslog.store import Store as Store
    from eoslog.store import connect as connect

_PUBLIC = {
    "Admin": "eoslog.admin.admin",
    "Commit": "eoslog.read.commits",
    "Consumer": "eoslog.consumer.consumer",
    "ConsumerRecord": "eoslog.consumer.consumer_records",
    "Coordinator": "eoslog.maintenance.coordinator",
    "FileCompactionReport": "eoslog.maintenance.file_compaction",
    "GroupMetadata": "eoslog.session.positions",
    "History": "eoslog.read.history",
    "IsolationLevel": "eoslog.read.isolation",
    "KeyCompactionReport": "eoslog.maintenance.key_compaction",
    "LastCommitted": "eoslog.admin.transaction_admin",
    "OffsetAndMetadata": "eoslog.session.positions",
    "OffsetAndTimestamp": "eoslog.read.offset_lookup",
    "OffsetReset": "eoslog.admin.group_admin",
    "Operation": "eoslog.read.history",
    "PartitionDescription": "eoslog.admin.topic_admin",
    "PartitionOffsets": "eoslog.session.positions",
    "Processor": "eoslog.processor",
    "ProcessorOutput": "eoslog.processor",
    "Producer": "eoslog.producer.producer",
    "Progress": "eoslog.read.scan",
    "RecordMetadata": "eoslog.session.positions",
    "RecordTransaction": "eoslog.consumer.consumer_records",
    "RowRange": "eoslog.read.scan",
    "Scan": "eoslog.read.scan",
    "ScanFile": "eoslog.read.scan",
    "Store": "eoslog.store",
    "Topic": "eoslog.state.store_state",
    "TopicConfig": "eoslog.state.entries",
    "TopicPartition": "eoslog.state.names",
    "TransactionListing": "eoslog.admin.transaction_descriptions",
    "VacuumReport": "eoslog.maintenance.vacuum",
    "connect": "eoslog.store",
}


def __getattr__(name: str) -> Any:
    """Public names are imported at their first use, so that importing eoslog costs next to nothing."""
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module 'eoslog' has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
