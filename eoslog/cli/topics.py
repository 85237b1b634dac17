"""``eoslog topics``: create, list, describe, alter, delete, and delete the oldest records."""

from __future__ import annotations

from typing import Any

import click
import pyarrow as pa

from eoslog.cli import output
from eoslog.cli.columns import TYPE_NAMES, column, schema_of_file
from eoslog.cli.context import Session, global_options, pass_session
from eoslog.client.records_deletion import ALL_DECIDED
from eoslog.client.topic_config import changed_config, kafka_spelling, parsed_settings, setting_named
from eoslog.errors import TopicAlreadyExists, UnknownTopicOrPartition
from eoslog.rules.names import TopicPartition
from eoslog.rules.partition_state import Partition
from eoslog.rules.partitions import partition_of
from eoslog.rules.state import StoreState, Topic
from eoslog.rules.topic_entries import TopicConfig
from eoslog.rules.topics import topic_named
from eoslog.segment.stored_schema import stored_schema

_SETTINGS = ", ".join(kafka_spelling(name) for name in TopicConfig.model_fields)


@click.group()
def topics() -> None:
    """Create, list, describe, alter and delete topics."""


@topics.command("create")
@click.argument("name")
@click.option("--partitions", type=click.IntRange(min=1), default=1, show_default=True, help="How many there are.")
@click.option(
    "--column", "columns", multiple=True, metavar="NAME:TYPE", help=f"A column, once for each. Types: {TYPE_NAMES}."
)
@click.option(
    "--schema-from",
    type=click.Path(exists=True, dir_okay=False, readable=True),
    metavar="FILE",
    help="Take the columns of this Parquet file.",
)
@click.option("--key", multiple=True, metavar="COLUMN", help="A column whose value chooses the partition.")
@click.option(
    "--add-config", "settings", multiple=True, metavar="NAME=VALUE", help=f"A setting, once for each: {_SETTINGS}."
)
@click.option("--if-not-exists", is_flag=True, help="Leave a topic that is there as it is.")
@global_options
@pass_session
def create(
    session: Session,
    name: str,
    partitions: int,
    columns: tuple[str, ...],
    schema_from: str | None,
    key: tuple[str, ...],
    settings: tuple[str, ...],
    if_not_exists: bool,
) -> None:
    """Create the topic NAME, and the store with it if there is none.

    Without columns it holds Kafka records: key, value, headers, timestamp.

    \b
    Examples:
      eoslog --store my-store topics create payments --partitions 3 --add-config retention.ms=604800000
      eoslog --store my-store topics create flights --column carrier:string --column miles:long --key carrier
      eoslog --store my-store topics create flights --schema-from flights.parquet --key carrier
    """
    if columns and schema_from:
        raise click.UsageError("give --column or --schema-from, not both")
    schema = pa.schema([column(text) for text in columns]) if columns else None
    admin = session.store().admin
    done = "created topic"
    try:
        topic = admin.create_topic(
            name,
            partitions=partitions,
            schema=schema_of_file(schema_from) if schema_from else schema,
            key=key,
            config=changed_config(name, TopicConfig(), parsed_settings(name, settings)),
        )
    except TopicAlreadyExists:
        if not if_not_exists:
            raise
        topic, done = admin.describe_topic(name), "there is already topic"
    session.print_result(
        f"{done} {topic.topic} with {topic.partitions} partition{'s' * (topic.partitions > 1)}",
        {"topic": topic.topic, "topic_id": topic.topic_id, "partitions": topic.partitions},
    )


@topics.command("list")
@global_options
@pass_session
def list_topics(session: Session) -> None:
    """List the topics.

    \b
    Examples:
      eoslog --store my-store topics list
      eoslog --store my-store topics list --json
    """

    def look(state: StoreState, slot: int) -> list[tuple[str, int, str, str]]:
        return [(each.topic, each.partitions, each.topic_schema.kind, each.topic_id) for each in state.topics.values()]

    session.print_rows(
        ("Topic", "Partitions", "Kind", "TopicId"), sorted(session.store().read(look)), empty="the store has no topics"
    )


@topics.command("describe")
@click.argument("name")
@global_options
@pass_session
def describe(session: Session, name: str) -> None:
    """Describe the topic NAME: its columns, settings and partitions.

    \b
    Example:
      eoslog --store my-store topics describe flights
    """

    def look(state: StoreState, slot: int) -> tuple[Topic, list[Partition]]:
        topic = topic_named(state, name)
        return topic, [partition_of(state, place).copy() for place in topic.partition_ids()]

    topic, partitions = session.store().read(look)
    facts = _facts(topic)
    columns = ("Partition", "Earliest", "LastStableOffset", "HighWatermark", "SealedSegments", "ActiveBatches", "Bytes")
    rows = [_row(partition) for partition in partitions]
    if session.as_json:
        listed = [output.named(columns, row) for row in rows]
        output.print_json(output.named(facts.keys(), facts.values()) | {"partitions": listed})
        return
    output.print_facts(facts)
    output.print_line("")
    output.print_table(columns, rows)


def _facts(topic: Topic) -> dict[str, Any]:
    schema = stored_schema(topic)
    return {
        "Topic": topic.topic,
        "TopicId": topic.topic_id,
        "Kind": topic.topic_schema.kind,
        "PartitionCount": topic.partitions,
        "Key": list(topic.topic_schema.key),
        "Columns": [f"{field.name} {field.type}{'' if field.nullable else ' not null'}" for field in schema],
        "SchemaVersion": topic.schema_version,
        **{field.title().replace("_", ""): value for field, value in topic.config.model_dump().items()},
        "CreatedSlot": topic.created_slot,
    }


def _row(partition: Partition) -> tuple[int, ...]:
    return (
        partition.id.partition,
        partition.log_start_offset,
        partition.last_stable_offset,
        partition.high_watermark,
        len(partition.sealed),
        len(partition.active),
        partition.active_bytes + sum(segment.bytes for segment in partition.sealed),
    )


@topics.command("alter")
@click.argument("name")
@click.option(
    "--add-config",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help=f"Change a setting, once for each: {_SETTINGS}.",
)
@click.option("--delete-config", "defaults", multiple=True, metavar="NAME", help="Set the default of a setting again.")
@click.option("--partitions", type=click.IntRange(min=1), help="So many there are from here on. The number only rises.")
@click.option(
    "--add-column",
    "columns",
    multiple=True,
    metavar="NAME:TYPE",
    help=f"Add a column, null in all rows so far, once for each. Types: {TYPE_NAMES}.",
)
@global_options
@pass_session
def alter(
    session: Session,
    name: str,
    settings: tuple[str, ...],
    defaults: tuple[str, ...],
    partitions: int | None,
    columns: tuple[str, ...],
) -> None:
    """Change settings of the topic NAME, raise its number of partitions, or give it more columns.

    With more partitions a key may belong to another one from here on: its later rows are then not in one order with
    its earlier ones.

    \b
    Examples:
      eoslog --store my-store topics alter payments --add-config retention.ms=604800000
      eoslog --store my-store topics alter payments --delete-config retention.ms
      eoslog --store my-store topics alter payments --partitions 6
      eoslog --store my-store topics alter flights --add-column tail_number:string
    """
    given = [bool(settings or defaults), partitions is not None, bool(columns)]
    if sum(given) > 1:
        raise click.UsageError("give --add-config and --delete-config, or --partitions, or --add-column, not both")
    if not any(given):
        raise click.UsageError("nothing to alter: give --add-config, --delete-config, --partitions or --add-column")
    changes = {setting_named(name, each): None for each in defaults} | parsed_settings(name, settings)
    admin = session.store().admin
    if columns:
        topic = admin.add_columns(name, pa.schema([column(text, "--add-column") for text in columns]))
    elif partitions is not None:
        topic = admin.create_partitions(name, partitions)
    else:
        topic = admin.alter_topic(name, **changes)
    session.print_result(
        f"altered topic {name}",
        {
            "topic": name,
            "topic_id": topic.topic_id,
            "partitions": topic.partitions,
            "schema_version": topic.schema_version,
            **topic.config.model_dump(),
        },
    )


@topics.command("schemas")
@click.argument("name")
@global_options
@pass_session
def schemas(session: Session, name: str) -> None:
    """List the schemas that the topic NAME had, from the first one to that of now.

    \b
    Example:
      eoslog --store my-store topics schemas flights
    """
    history = session.store().admin.schema_history(name)
    session.print_rows(
        ("SchemaVersion", "Slot", "TimeMs", "Columns", "Added"),
        [
            (each.version, each.slot, each.timestamp, len(each.schema), ", ".join(map(".".join, each.added)))
            for each in history
        ],
    )


@topics.command("delete")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--if-exists", is_flag=True, help="Succeed if there is no such topic.")
@global_options
@pass_session
def delete(session: Session, name: str, yes: bool, if_exists: bool) -> None:
    """Delete the topic NAME with all its rows. Its files go when vacuum runs.

    \b
    Examples:
      eoslog --store my-store topics delete payments
      eoslog --store my-store topics delete payments --yes
    """
    admin = session.store().admin
    try:
        topic = admin.describe_topic(name)
    except UnknownTopicOrPartition:
        if not if_exists:
            raise
        session.print_result(f"there is no topic {name}", {"topic": name, "topic_id": None, "deleted": False})
        return
    if not yes:
        click.confirm(f"Delete topic {name} with all its rows?", abort=True, err=True)
    admin.delete_topic(name)
    session.print_result(f"deleted topic {name}", {"topic": name, "topic_id": topic.topic_id, "deleted": True})


@topics.command("delete-records")
@click.argument("name")
@click.option(
    "--offset",
    "offsets",
    multiple=True,
    metavar="PARTITION:OFFSET",
    help="Delete what lies below OFFSET, or with -1 all that is decided. Once for each; all by default.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@global_options
@pass_session
def delete_records(session: Session, name: str, offsets: tuple[str, ...], yes: bool) -> None:
    """Delete the oldest records of the topic NAME, up to the last stable offset at most. Their files go by vacuum.

    \b
    Examples:
      eoslog --store my-store topics delete-records payments --offset 0:1000 --offset 1:-1
      eoslog --store my-store topics delete-records payments --yes
    """
    wanted = {TopicPartition(name, partition): offset for partition, offset in map(_partition_offset, offsets)}
    admin = session.store().admin
    topic = admin.describe_topic(name)
    if not wanted:
        wanted = {TopicPartition(name, partition): ALL_DECIDED for partition in range(topic.partitions)}
    if not yes:
        below = ", ".join(f"{name}-{place.partition}: {_below(offset)}" for place, offset in wanted.items())
        click.confirm(f"Delete records of {below}?", abort=True, err=True)
    starts = admin.delete_records(wanted)
    session.print_rows(
        ("Topic", "Partition", "Earliest"), [(place.topic, place.partition, start) for place, start in starts.items()]
    )


def _partition_offset(text: str) -> tuple[int, int]:
    partition, separator, offset = text.partition(":")
    try:
        if separator:
            return int(partition), int(offset)
    except ValueError:
        pass
    raise click.UsageError(f"{text!r} is not PARTITION:OFFSET, as 0:1000")


def _below(offset: int) -> str:
    return "all that is decided" if offset == ALL_DECIDED else f"below offset {offset}"
