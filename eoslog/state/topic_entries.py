"""The entries of topics: creation, changes of schema and settings, and deletion."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from eoslog.state.entry_fields import Hex, Milliseconds, Model


class TopicSchema(Model):
    """The kind of a topic's rows: Kafka records, or columns that the user defines."""

    kind: Literal["records", "columns"]
    arrow: str | None = None
    """The columns, as a base64 Arrow IPC schema."""
    spark: str | None = None
    """The same columns as Spark's JSON, if Spark created the topic."""
    key: tuple[str, ...] = ()
    """The columns whose values determine the partition."""


class TopicConfig(Model):
    """A topic's settings."""

    segment_bytes: Annotated[int, Field(strict=True, ge=1, lt=2**53)] = 1 << 30
    """The size at which an active segment is sealed (bytes)."""
    segment_batches: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] = 1000
    """The number of batches at which an active segment is sealed."""
    segment_ms: Annotated[int, Field(strict=True, ge=1, lt=2**53)] = 7 * 24 * 3600 * 1000
    """The age at which an active segment is sealed (ms). It counts from the outcome of its oldest row."""
    retention_ms: Annotated[int, Field(strict=True, ge=-1, lt=2**53)] = -1
    """Segments are dropped when their latest row is older than this (ms). -1, the default, keeps them for ever."""
    retention_bytes: Annotated[int, Field(strict=True, ge=-1, lt=2**53)] = -1
    """The oldest segments of a partition are dropped as long as so many bytes remain; -1 for no limit."""
    cleanup_policy: Literal["delete", "compact", "compact,delete"] = "delete"
    """Which rows are removed: old ones, those with a newer row of the same key, or both."""
    min_cleanable_dirty_ratio: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Compaction is due when more than this fraction of the sealed bytes was never compacted."""
    delete_retention_ms: Milliseconds = 24 * 3600 * 1000
    """How long compaction keeps tombstones, and markers of transactions without rows, after it first met them (ms)."""
    min_compaction_lag_ms: Milliseconds = 0
    """Rows are not compacted until this time after their outcome (ms)."""
    max_compaction_lag_ms: Annotated[int, Field(strict=True, ge=-1, lt=2**53)] = -1
    """Compaction is due when never compacted sealed rows had their outcome this long ago (ms); -1 for no limit."""
    statistics_columns: Annotated[int, Field(strict=True, ge=0, le=1000)] = 16
    """The number of columns with statistics in the log, for each new file of a topic of columns.

    The first columns whose values can be compared get statistics.
    """

    @field_validator("cleanup_policy", mode="before")
    @classmethod
    def _in_one_order(cls, policy: object) -> object:
        return "compact,delete" if policy == "delete,compact" else policy

    @property
    def is_compacted(self) -> bool:
        """True if compaction keeps only the newest row of each key."""
        return self.cleanup_policy != "delete"

    @property
    def longest_segment_ms(self) -> int:
        """The age at which an active segment is sealed (ms). Only sealed rows are compacted, so
        ``max_compaction_lag_ms`` limits it, too.
        """
        if self.is_compacted and self.max_compaction_lag_ms >= 0:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms


class TopicCreated(Model):
    """A topic was created."""

    type: Literal["topic"] = "topic"
    topic: str
    topic_id: Hex
    """The id of this incarnation. A topic that is deleted and created again gets another."""
    partitions: Annotated[int, Field(strict=True, ge=1, le=10_000)]
    """The number of partitions."""
    topic_schema: TopicSchema
    config: TopicConfig = TopicConfig()
    time_ms: Milliseconds


class TopicConfigChanged(Model):
    """A topic has other settings from here on (Kafka's AlterConfigs)."""

    type: Literal["topic_config"] = "topic_config"
    topic: str
    topic_id: Hex
    config: TopicConfig
    """All settings, not only the changed ones."""


class TopicSchemaChanged(Model):
    """A topic got more columns. Existing files do not change: readers return null for the columns that they lack."""

    type: Literal["topic_schema"] = "topic_schema"
    topic: str
    topic_id: Hex
    topic_schema: TopicSchema
    """The whole schema: the earlier columns unchanged, and the new ones after them."""
    schema_version: Annotated[int, Field(strict=True, ge=2, lt=2**53)]
    """The version before plus 1. The schema with which the topic was created has version 1."""
    time_ms: Milliseconds


class PartitionsCreated(Model):
    """A topic has more partitions from here on (Kafka's CreatePartitions). Rows stay where they are."""

    type: Literal["create_partitions"] = "create_partitions"
    topic: str
    topic_id: Hex
    partitions: Annotated[int, Field(strict=True, ge=1, le=10_000)]
    """The new number of partitions."""


class TopicDeleted(Model):
    """A topic was deleted. Vacuum deletes its files later."""

    type: Literal["delete_topic"] = "delete_topic"
    topic: str
    topic_id: Hex
