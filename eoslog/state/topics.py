"""Topics: created, changed, deleted, created again under another id. The log itself is never emptied."""

from __future__ import annotations

from dataclasses import dataclass, replace

from eoslog.errors import (
    InvalidEntry,
    InvalidRequest,
    InvalidTopic,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
    quoted,
)
from eoslog.state.draft import Draft
from eoslog.state.groups import without_topic
from eoslog.state.names import check_topic_name
from eoslog.state.partition_state import Partition
from eoslog.state.store_state import Doomed, SchemaVersion, StoreState, Topic
from eoslog.state.topic_entries import (
    PartitionsCreated,
    TopicConfig,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
    TopicSchema,
    TopicSchemaChanged,
)
from eoslog.state.topic_schemas import added_columns


def topic_named(state: StoreState | Draft, name: str) -> Topic:
    """The live topic of this name.

    Raises:
        InvalidRequest: no string was given.
        UnknownTopicOrPartition: there is none; the message names those there are.
    """
    if not isinstance(name, str):
        raise InvalidRequest(f"a topic is given by its name, not as {quoted(name)}")
    topic_id = state.topic_ids.get(name)
    if topic_id is None:
        names = ", ".join(sorted(state.topic_ids)[:20]) or "none"
        raise UnknownTopicOrPartition(f"no topic is named {quoted(name)}; the store has: {names}")
    return state.topics[topic_id]


@dataclass(frozen=True)
class CreateTopic:
    """Create a topic. The answer is the topic."""

    entry: TopicCreated

    def apply(self, draft: Draft) -> Topic:
        """Raises: TopicAlreadyExists, InvalidTopic"""
        return draft.topics[draft.append(self.entry).topic_id]


@dataclass(frozen=True)
class DeleteTopic:
    """Delete the live topic of a name."""

    topic: str

    def apply(self, draft: Draft) -> None:
        """Raises: UnknownTopicOrPartition"""
        draft.append(TopicDeleted(topic=self.topic, topic_id=topic_named(draft, self.topic).topic_id))


@dataclass(frozen=True)
class CreatePartitions:
    """Raise a topic's number of partitions. The answer is the topic as it is then."""

    topic: str
    total: int

    def apply(self, draft: Draft) -> Topic:
        """Raises: UnknownTopicOrPartition, InvalidTopic"""
        found = topic_named(draft, self.topic)
        draft.append(PartitionsCreated(topic=self.topic, topic_id=found.topic_id, partitions=self.total))
        return draft.topics[found.topic_id]


def create_topic(draft: Draft, entry: TopicCreated) -> None:
    check_topic_name(entry.topic)
    if entry.topic in draft.topic_ids:
        raise TopicAlreadyExists(f"topic {entry.topic} exists already: take another name, or delete it first")
    if entry.topic_id in draft.topics:
        raise InvalidTopic(f"topic id {entry.topic_id} is in use")
    if any(name.lower() == entry.topic.lower() for name in draft.topic_ids):
        raise InvalidTopic(
            f"topic {entry.topic} differs from an existing one only in upper and lower case, "
            "which some file systems do not tell apart"
        )
    schema = entry.topic_schema
    if (schema.kind == "columns") != (schema.arrow is not None):
        raise InvalidTopic(f"topic {entry.topic}: columns need a schema, and Kafka records have their own")
    check_cleanup_policy(entry.topic, schema, entry.config)
    first = SchemaVersion(1, draft.slot, draft.time_ms)
    topic = Topic(entry.topic, entry.topic_id, entry.partitions, schema, entry.config, draft.slot, (first,))
    if any(doomed.prefix == topic.prefix for doomed in draft.doomed):
        raise InvalidTopic(f"topic id {entry.topic_id} was that of a deleted topic, whose files are being deleted")
    draft.topic_ids[entry.topic] = entry.topic_id
    draft.topics[entry.topic_id] = topic
    for partition_id in topic.partition_ids():
        draft.partitions[partition_id] = Partition(partition_id, changed_slot=draft.slot)


def change_config(draft: Draft, entry: TopicConfigChanged) -> None:
    """Raises: UnknownTopicOrPartition; InvalidTopic: no such topic can have these; InvalidEntry: nothing changes."""
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
        UnsupportedSchema: more is changed than that nullable columns, or fields within them, are added.
        InvalidEntry: nothing is added, or the version is not the next.
    """
    topic = _incarnation(draft, entry.topic, entry.topic_id)
    before, after = topic.topic_schema, entry.topic_schema
    if before.arrow is None or after.arrow is None or after.kind != "columns":
        raise InvalidTopic(f"topic {entry.topic}: only a topic of columns can be given columns, and it keeps its own")
    if after.key != before.key:
        raise InvalidTopic(f"topic {entry.topic}: the columns of its key stay {', '.join(before.key) or 'none'}")
    added = added_columns(before.arrow, after.arrow)
    if not added:
        raise InvalidEntry(f"topic {entry.topic} has these columns already")
    if entry.schema_version != topic.schema_version + 1:
        raise InvalidEntry(
            f"topic {entry.topic}: its schema has version {topic.schema_version}, so the next is not "
            f"{entry.schema_version}"
        )
    version = SchemaVersion(entry.schema_version, draft.slot, draft.time_ms, added)
    draft.topics[topic.topic_id] = replace(topic, topic_schema=after, schema_versions=(*topic.schema_versions, version))


def create_partitions(draft: Draft, entry: PartitionsCreated) -> None:
    """Add empty partitions at the end. The members of groups that read the topic share them out when they see them.

    Raises:
        UnknownTopicOrPartition
        InvalidTopic: the topic has as many already (Kafka's ``InvalidPartitionsException``).
    """
    topic = _incarnation(draft, entry.topic, entry.topic_id)
    if entry.partitions <= topic.partitions:
        raise InvalidTopic(
            f"topic {entry.topic} has {topic.partitions} partitions, and cannot have {entry.partitions}: their number "
            "can only rise"
        )
    grown = replace(topic, partitions=entry.partitions)
    draft.topics[topic.topic_id] = grown
    for partition_id in grown.partition_ids()[topic.partitions :]:
        draft.partitions[partition_id] = Partition(partition_id, changed_slot=draft.slot)


def check_cleanup_policy(topic: str, schema: TopicSchema, config: TopicConfig) -> None:
    """Raises: InvalidTopic: rows without a key cannot be compacted."""
    if config.is_compacted and schema.kind == "columns" and not schema.key:
        raise InvalidTopic(f"topic {topic}: compaction keeps the newest row of each key; name the key's columns")


def delete_topic(draft: Draft, entry: TopicDeleted) -> None:
    """Forget a topic. Transactions with rows in it end without them; its files are doomed."""
    topic = _incarnation(draft, entry.topic, entry.topic_id)
    del draft.topic_ids[entry.topic]
    del draft.topics[entry.topic_id]
    for partition_id in topic.partition_ids():
        del draft.partitions[partition_id]
    for name, group in list(draft.groups.items()):
        forgotten = without_topic(group, entry.topic_id)
        if forgotten != group:
            draft.groups[name] = forgotten
    draft.doomed = (*draft.doomed, Doomed(draft.slot, topic.prefix))


def _incarnation(draft: Draft, name: str, topic_id: str) -> Topic:
    topic = topic_named(draft, name)
    if topic.topic_id != topic_id:
        raise UnknownTopicOrPartition(f"topic {name} was created again meanwhile, its id is {topic.topic_id}")
    return topic
