"""The rules of topics: creation, changes and deletion.

A topic that is created again gets another id, since the log still has the entries of the deleted one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from eoslog.errors import InvalidEntry, InvalidRequest, InvalidTopic, TopicAlreadyExists, UnknownTopicOrPartition
from eoslog.state.draft import Draft
from eoslog.state.entries import (
    PartitionsCreated,
    TopicConfig,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
    TopicSchema,
    TopicSchemaChanged,
)
from eoslog.state.groups import without_topic
from eoslog.state.names import check_topic_name
from eoslog.state.partition_state import Partition
from eoslog.state.partitions import oldest_record_of, oldest_shared_ms_of
from eoslog.state.store_state import PendingDeletion, SchemaVersion, StoreState, Topic
from eoslog.wording import counted, none_named, quoted


def topic_named(state: StoreState | Draft, name: str) -> Topic:
    """Return the topic of this name.

    Raises:
        InvalidRequest: the name is not a string.
        UnknownTopicOrPartition: no topic has this name. The message lists the existing topics.
    """
    if not isinstance(name, str):
        raise InvalidRequest(f"{quoted(name)} is not a topic name. Give a string")
    topic_id = state.topic_ids.get(name)
    if topic_id is None:
        raise UnknownTopicOrPartition(none_named("topic", name, state.topic_ids))
    return state.topics[topic_id]


@dataclass(frozen=True)
class CreateTopic:
    """Create a topic. The answer is the topic."""

    entry: TopicCreated

    def apply(self, draft: Draft) -> Topic:
        """Create the topic. Raises: TopicAlreadyExists, InvalidTopic"""
        return draft.topics[draft.append(self.entry).topic_id]


@dataclass(frozen=True)
class DeleteTopic:
    """Delete the topic that has this name now."""

    topic: str

    def apply(self, draft: Draft) -> None:
        """Delete the topic. Raises: UnknownTopicOrPartition"""
        draft.append(TopicDeleted(topic=self.topic, topic_id=topic_named(draft, self.topic).topic_id))


@dataclass(frozen=True)
class CreatePartitions:
    """Raise a topic's number of partitions. The answer is the changed topic."""

    topic: str
    total: int

    def apply(self, draft: Draft) -> Topic:
        """Add the partitions. Raises: UnknownTopicOrPartition, InvalidTopic"""
        found = topic_named(draft, self.topic)
        draft.append(PartitionsCreated(topic=self.topic, topic_id=found.topic_id, partitions=self.total))
        return draft.topics[found.topic_id]


def create_topic(draft: Draft, entry: TopicCreated) -> None:
    """Create a topic with empty partitions.

    Raises:
        TopicAlreadyExists: a topic of this name exists.
        InvalidTopic: the name, the id, the schema or the settings are not allowed.
    """
    check_topic_name(entry.topic)
    if entry.topic in draft.topic_ids:
        raise TopicAlreadyExists(f"topic {entry.topic} exists already. Choose another name, or delete it first")
    if entry.topic_id in draft.topics:
        raise InvalidTopic(f"topic id {entry.topic_id} is in use")
    if any(name.lower() == entry.topic.lower() for name in draft.topic_ids):
        raise InvalidTopic(
            f"topic {entry.topic} differs from an existing one only in upper and lower case, "
            "which some file systems do not distinguish. Choose another name"
        )
    schema = entry.topic_schema
    if (schema.kind == "columns") != (schema.arrow is not None):
        raise InvalidTopic(f"topic {entry.topic}: columns need a schema, and Kafka records must not have one")
    check_cleanup_policy(entry.topic, schema, entry.config)
    first = SchemaVersion(1, draft.slot, draft.time_ms)
    topic = Topic(
        topic=entry.topic,
        topic_id=entry.topic_id,
        partitions=entry.partitions,
        topic_schema=schema,
        config=entry.config,
        created_slot=draft.slot,
        schema_versions=(first,),
    )
    if any(deletion.prefix == topic.prefix for deletion in draft.pending_deletions):
        raise InvalidTopic(f"topic id {entry.topic_id} belonged to a deleted topic, whose files are pending deletion")
    draft.topic_ids[entry.topic] = entry.topic_id
    draft.topics[entry.topic_id] = topic
    for partition_id in topic.partition_ids():
        draft.partitions[partition_id] = Partition(partition_id, changed_slot=draft.slot, created_slot=draft.slot)


def change_config(draft: Draft, entry: TopicConfigChanged) -> None:
    """Change a topic's settings.

    Raises:
        UnknownTopicOrPartition
        InvalidTopic: the settings do not fit the topic's schema.
        InvalidEntry: nothing changes.
    """
    topic = _incarnation(draft, entry.topic, entry.topic_id)
    check_cleanup_policy(entry.topic, topic.topic_schema, entry.config)
    if topic.config == entry.config:
        raise InvalidEntry(f"topic {entry.topic} has these settings already")
    draft.topics[topic.topic_id] = replace(topic, config=entry.config)


def change_schema(draft: Draft, entry: TopicSchemaChanged) -> None:
    """Add columns to a topic.

    Raises:
        UnknownTopicOrPartition
        InvalidTopic: the topic holds Kafka records, or the columns of its key change.
        UnsupportedSchema: the change is more than an addition of nullable columns and fields.
        InvalidEntry: nothing is added, or the entry has not the next version.
    """
    topic = _incarnation(draft, entry.topic, entry.topic_id)
    before, after = topic.topic_schema, entry.topic_schema
    if before.arrow is None or after.arrow is None or after.kind != "columns":
        raise InvalidTopic(
            f"topic {entry.topic}: columns can only be added to a topic of columns, and none can be dropped"
        )
    if after.key != before.key:
        raise InvalidTopic(
            f"topic {entry.topic}: the columns of its key cannot change. They are: {', '.join(before.key) or 'none'}"
        )
    added = draft.added_columns(before.arrow, after.arrow)
    if not added:
        raise InvalidEntry(f"topic {entry.topic} has these columns already")
    if entry.schema_version != topic.schema_version + 1:
        raise InvalidEntry(
            f"topic {entry.topic}: its schema has version {topic.schema_version}, so the next version cannot be "
            f"{entry.schema_version}"
        )
    version = SchemaVersion(entry.schema_version, draft.slot, draft.time_ms, added)
    draft.topics[topic.topic_id] = replace(topic, topic_schema=after, schema_versions=(*topic.schema_versions, version))


def create_partitions(draft: Draft, entry: PartitionsCreated) -> None:
    """Add empty partitions after the existing ones.

    The members of groups that read the topic assign the new partitions when they see them.

    Raises:
        UnknownTopicOrPartition
        InvalidTopic: the topic has at least as many partitions already (Kafka's ``InvalidPartitionsException``).
    """
    topic = _incarnation(draft, entry.topic, entry.topic_id)
    if entry.partitions <= topic.partitions:
        raise InvalidTopic(
            f"topic {entry.topic} has {counted(topic.partitions, 'partition')}, and cannot have {entry.partitions}. "
            "Their number can only rise"
        )
    grown = replace(topic, partitions=entry.partitions)
    draft.topics[topic.topic_id] = grown
    for partition_id in grown.partition_ids()[topic.partitions :]:
        draft.partitions[partition_id] = Partition(partition_id, changed_slot=draft.slot, created_slot=draft.slot)


def check_cleanup_policy(topic: str, schema: TopicSchema, config: TopicConfig) -> None:
    """Check that a topic's cleanup policy fits its schema.

    Raises:
        InvalidTopic: the topic should be compacted, but its rows have no key.
    """
    if config.is_compacted and schema.kind == "columns" and not schema.key:
        raise InvalidTopic(
            f"topic {topic}: compaction keeps the newest row of each key, but the topic has no key. "
            "Name the key's columns"
        )


def delete_topic(draft: Draft, entry: TopicDeleted) -> None:
    """Delete a topic. Its files are pending deletion. Open transactions with rows in it end without these rows."""
    topic = _incarnation(draft, entry.topic, entry.topic_id)
    del draft.topic_ids[entry.topic]
    del draft.topics[entry.topic_id]
    batches = [batch for partition_id in topic.partition_ids() for batch in draft.partitions[partition_id].active]
    for partition_id in topic.partition_ids():
        del draft.partitions[partition_id]
    for name, group in list(draft.groups.items()):
        forgotten = without_topic(group, entry.topic_id)
        if forgotten != group:
            draft.groups[name] = forgotten
    draft.pending_deletions = (
        *draft.pending_deletions,
        PendingDeletion(
            draft.slot,
            topic.prefix,
            oldest_record=oldest_record_of(batches),
            oldest_shared_ms=oldest_shared_ms_of(batches),
        ),
    )


def _incarnation(draft: Draft, name: str, topic_id: str) -> Topic:
    topic = topic_named(draft, name)
    if topic.topic_id != topic_id:
        raise UnknownTopicOrPartition(f"topic {name} was deleted and created again. Its id is now {topic.topic_id}")
    return topic
