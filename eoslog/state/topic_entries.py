"""The entries of topics: made, changed and deleted, with what their rows are and their settings."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from eoslog.state.entry_fields import Hex, Milliseconds, Model


class TopicSchema(Model):
    """What a topic's rows are: Kafka records, or columns of the user's own."""

    kind: Literal["records", "columns"]
    arrow: str | None = None
    """The columns, as a base64 Arrow IPC schema."""
    spark: str | None = None
    """The same as Spark's own JSON, if Spark made the topic."""
    key: tuple[str, ...] = ()
    """The columns whose values choose the partition."""


class TopicConfig(Model):
    """A topic's settings."""

    segment_bytes: Annotated[int, Field(strict=True, ge=1, lt=2**53)] = 1 << 30
    """An active segment of so many bytes is sealed."""
    segment_batches: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] = 1000
    """An active segment of so many batches is sealed."""
    segment_ms: Annotated[int, Field(strict=True, ge=1, lt=2**53)] = 7 * 24 * 3600 * 1000
    """An active segment whose oldest row was decided so long ago (ms) is sealed."""
    retention_ms: Annotated[int, Field(strict=True, ge=-1, lt=2**53)] = -1
    """Segments whose latest row is older (ms) are dropped; -1, a table's default, keeps them for ever."""
    retention_bytes: Annotated[int, Field(strict=True, ge=-1, lt=2**53)] = -1
    """The oldest segments of a partition are dropped while so many bytes are left without them; -1 for no limit."""
    cleanup_policy: Literal["delete", "compact", "compact,delete"] = "delete"
    """Whether old rows are deleted, or those that a newer row of the same key replaces, or both."""
    min_cleanable_dirty_ratio: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Compaction is due when more than this part of the sealed bytes was never compacted."""
    delete_retention_ms: Milliseconds = 24 * 3600 * 1000
    """How long compaction keeps tombstones, and markers of transactions without rows, after it met them first."""
    min_compaction_lag_ms: Milliseconds = 0
    """Rows that were decided less than this ago are not compacted."""
    max_compaction_lag_ms: Annotated[int, Field(strict=True, ge=-1, lt=2**53)] = -1
    """Compaction is due when sealed rows that were never compacted were decided longer ago; -1 for never."""
    statistics_columns: Annotated[int, Field(strict=True, ge=0, le=1000)] = 16
    """Of so many of its columns, the first that can be compared, each new file of a topic of columns has statistics in
    the log."""

    @field_validator("cleanup_policy", mode="before")
    @classmethod
    def _in_one_order(cls, policy: object) -> object:
        return "compact,delete" if policy == "delete,compact" else policy

    @property
    def is_compacted(self) -> bool:
        """Whether only the newest row of each key is kept."""
        return self.cleanup_policy != "delete"

    @property
    def longest_segment_ms(self) -> int:
        """How old an active segment may become (ms): what waits for compaction must be sealed in time."""
        if self.is_compacted and self.max_compaction_lag_ms >= 0:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms


class TopicCreated(Model):
    """A topic was made."""

    type: Literal["topic"] = "topic"
    topic: str
    topic_id: Hex
    """This incarnation's id: a topic that is deleted and made again has another."""
    partitions: Annotated[int, Field(strict=True, ge=1, le=10_000)]
    """How many."""
    topic_schema: TopicSchema
    config: TopicConfig = TopicConfig()
    time_ms: Milliseconds


class TopicConfigChanged(Model):
    """A topic has other settings from here on (Kafka's AlterConfigs)."""

    type: Literal["topic_config"] = "topic_config"
    topic: str
    topic_id: Hex
    config: TopicConfig
    """All of them, not only those that change."""


class TopicSchemaChanged(Model):
    """A topic of columns has more of them from here on. Files stay as they are: what they lack is read as null."""

    type: Literal["topic_schema"] = "topic_schema"
    topic: str
    topic_id: Hex
    topic_schema: TopicSchema
    """All of it: the columns so far as they were, and the new ones behind them."""
    schema_version: Annotated[int, Field(strict=True, ge=2, lt=2**53)]
    """One more than the version so far; that with which the topic was made is 1."""
    time_ms: Milliseconds


class PartitionsCreated(Model):
    """A topic has more partitions from here on (Kafka's CreatePartitions). Rows stay where they are."""

    type: Literal["create_partitions"] = "create_partitions"
    topic: str
    topic_id: Hex
    partitions: Annotated[int, Field(strict=True, ge=1, le=10_000)]
    """How many there are now."""


class TopicDeleted(Model):
    """A topic was deleted; its files go when vacuum runs."""

    type: Literal["delete_topic"] = "delete_topic"
    topic: str
    topic_id: Hex
