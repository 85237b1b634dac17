"""``eoslog topics`` and ``eoslog offsets``: topics, their settings and columns, and where their partitions end."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

import click
import pyarrow as pa
import pyarrow.parquet as pq

from eoslog.admin.group_admin import GroupPartition, describe_group, epoch_ms
from eoslog.admin.topic_admin import (
    ALL_DECIDED,
    PartitionDescription,
    changed_config,
    describe_partition,
    kafka_spelling,
    parsed_settings,
    setting_named,
)
from eoslog.cli import completion
from eoslog.cli.options import (
    COUNT,
    REGEX,
    TIME,
    Command,
    Group,
    Invocation,
    confirm,
    group_option,
    parsed,
    pass_invocation,
    yes_option,
)
from eoslog.cli.rendering import Columns, progress, shown, title_of
from eoslog.errors import TopicAlreadyExists, UnknownTopicOrPartition
from eoslog.format.arrow_input import TYPE_NAMES, type_named
from eoslog.format.topic_schemas import stored_schema
from eoslog.read.isolation import IsolationLevel
from eoslog.read.offset_lookup import OffsetAndTimestamp, offset_for_time
from eoslog.session.description import shown_url
from eoslog.state.entries import TopicConfig
from eoslog.state.names import TopicPartition
from eoslog.state.partition_state import Partition
from eoslog.state.partitions import partition_of
from eoslog.state.store_state import StoreState, Topic
from eoslog.state.topics import topic_named
from eoslog.wording import counted, first_line


def _column(text: str) -> pa.Field[Any]:
    name, _, kind = text.rpartition(":")
    data_type = type_named(kind)
    if not name or data_type is None:
        raise ValueError
    return pa.field(name, data_type)


def _schema_of_file(path: str) -> pa.Schema:
    try:
        return pq.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        raise click.BadParameter(
            f"{path} is not a Parquet file: {first_line(error)}", param_hint="--schema-from"
        ) from None


def _partition_offset(text: str) -> tuple[int, int]:
    partition, offset = text.split(":")
    return int(partition), int(offset)


_COLUMN = parsed(_column, f"NAME:TYPE; the types are {TYPE_NAMES}")
_FILE = click.Path(exists=True, dir_okay=False, readable=True)
_PARTITION_OFFSET = parsed(_partition_offset, "PARTITION:OFFSET, such as 0:1000")
_REPEATED = f"May be repeated. The types: {TYPE_NAMES}."
_SETTINGS = f"May be repeated. The settings: {', '.join(map(kafka_spelling, TopicConfig.model_fields))}."
_SETTINGS_FILE = "Give a settings file before the command: eoslog --config FILE topics"
_FOR_NEW = f"{_SETTINGS} {_SETTINGS_FILE} create."
_OF_EXISTING = f"{_SETTINGS} {_SETTINGS_FILE} alter."
_BELOW = (
    "Delete the records of PARTITION below OFFSET. -1 means the last stable offset, which is the default for all "
    "partitions. May be repeated."
)

topics = Group("topics", help="Create, list, describe, alter and delete topics.")


@topics.command(
    examples=[
        "payments --partitions 3 --config retention.ms=604800000",
        "flights --column carrier:string --column miles:long --key carrier",
        "flights --schema-from flights.parquet --key carrier",
    ]
)
@click.argument("name")
@click.option("--partitions", type=COUNT, default=1, show_default=True, help="The number of partitions.")
@click.option("--column", type=_COLUMN, metavar="NAME:TYPE", multiple=True, help=f"Add a column. {_REPEATED}")
@click.option("--schema-from", type=_FILE, metavar="FILE", help="Take the columns of this Parquet file.")
@click.option("--key", metavar="COLUMN", multiple=True, help="A column whose value chooses the partition.")
@click.option("--if-not-exists", is_flag=True, help="Leave the topic as it is if it exists.")
@click.option("--no-create", is_flag=True, help="Fail if there is no store. Otherwise it is created.")
@click.option(
    "--config", "--add-config", "config", multiple=True, metavar="NAME=VALUE", help=f"Give a setting. {_FOR_NEW}"
)
@pass_invocation
def create(
    invocation: Invocation,
    name: str,
    partitions: int,
    column: tuple[Any, ...],
    schema_from: str | None,
    key: tuple[str, ...],
    config: tuple[str, ...],
    if_not_exists: bool,
    no_create: bool,
) -> None:
    """Create the topic NAME, and the store if there is none. A message says that the store is new.

    Without columns the topic holds Kafka records: key, value, headers, timestamp.
    """
    if column and schema_from:
        raise click.UsageError("Give --column or --schema-from, not both.")
    schema = pa.schema(column) if column else _schema_of_file(schema_from) if schema_from else None
    store = invocation.store(create=not no_create)
    admin = store.admin
    done = "created topic"
    try:
        settings = changed_config(name, TopicConfig(), parsed_settings(name, config))
        topic = admin.create_topic(name, partitions=partitions, schema=schema, key=key, config=settings)
    except TopicAlreadyExists:
        if not if_not_exists:
            raise
        topic, done = admin.describe_topic(name), "there is already topic"
    if store.is_new:
        # On standard error, because standard output may be JSON.
        click.echo(f"created a new store at {shown(shown_url(store.url))}", err=True)
    facts = {"topic": topic.topic, "topic_id": topic.topic_id, "partitions": topic.partitions}
    invocation.print_result(f"{done} {topic.topic} with {counted(topic.partitions, 'partition')}", facts)


@topics.command("list", examples=["", "--pattern 'orders-.*' --json"])
@click.option("--pattern", type=REGEX, metavar="REGEX", help="Only topics whose whole name this matches.")
@click.option("--kind", type=click.Choice(["records", "columns"]), help="Only topics of Kafka records, or of columns.")
@pass_invocation
def list_topics(invocation: Invocation, pattern: re.Pattern[str] | None, kind: str | None) -> None:
    """List the topics."""

    def snapshot(state: StoreState, slot: int) -> list[Topic]:
        found = (state.topics[state.topic_ids[name]] for name in sorted(state.topic_ids))
        return [
            each
            for each in found
            if (pattern is None or pattern.fullmatch(each.topic)) and kind in (None, each.topic_schema.kind)
        ]

    columns = Columns("Topic Partitions Kind=topic_schema.kind TopicId?")
    nothing = "the store has no topics" if pattern is None and kind is None else "the store has no such topics"
    invocation.print_rows(columns, invocation.store().read(snapshot), empty=nothing)


def _form(setting: str) -> str:
    unit = setting.rpartition("_")[2]
    return f":{unit}" if unit in ("bytes", "ms") else ""


_TOPIC = Columns(
    "Topic TopicId Kind=topic_schema.kind PartitionCount=partitions Key=topic_schema.key",
    ("Columns", lambda topic: [_described(field) for field in stored_schema(topic)]),
    "SchemaVersion",
    *(f"{title_of(name)}=config.{name}{_form(name)}" for name in TopicConfig.model_fields),
    "CreatedSlot",
)
_PARTITION = Columns(
    "Partition=id.partition Earliest=log_start_offset LastStableOffset HighWatermark",
    ("SealedSegments?", lambda partition: len(partition.sealed)),
    ("ActiveBatches?", lambda partition: len(partition.active)),
    ("Bytes:size", lambda partition: partition.active_bytes + sum(segment.bytes for segment in partition.sealed)),
)


def _described(field: pa.Field[Any]) -> str:
    return f"{field.name} {field.type}{'' if field.nullable else ' not null'}"


@topics.command("describe", examples=["flights"])
@click.argument("name", shell_complete=completion.topics)
@pass_invocation
def describe_topic(invocation: Invocation, name: str) -> None:
    """Describe the topic NAME: its columns, settings and partitions."""

    def snapshot(state: StoreState, slot: int) -> tuple[Topic, list[dict[str, Any]]]:
        topic = topic_named(state, name)
        return topic, [_PARTITION.of(partition_of(state, place)) for place in topic.partition_ids()]

    topic, partitions = invocation.store().read(snapshot)
    invocation.print_facts(_TOPIC.of(topic), partitions=partitions)


@topics.command(
    examples=[
        "payments --config retention.ms=604800000",
        "payments --delete-config retention.ms",
        "payments --partitions 6",
        "flights --add-column tail_number:string",
    ]
)
@click.argument("name", shell_complete=completion.topics)
@click.option(
    "--config", "--add-config", "config", multiple=True, metavar="NAME=VALUE", help=f"Change a setting. {_OF_EXISTING}"
)
@click.option("--delete-config", metavar="NAME", multiple=True, help="Set a setting to its default.")
@click.option("--partitions", type=COUNT, help="The new number of partitions. It only rises.")
@click.option("--add-column", type=_COLUMN, metavar="NAME:TYPE", multiple=True, help=f"Add a column. {_REPEATED}")
@pass_invocation
def alter(
    invocation: Invocation,
    name: str,
    config: tuple[str, ...],
    delete_config: tuple[str, ...],
    partitions: int | None,
    add_column: tuple[Any, ...],
) -> None:
    """Change settings of the topic NAME, raise its number of partitions, or add columns.

    More partitions may move a key to another partition. Its new rows then have no order with its earlier rows.
    """
    given = [bool(config or delete_config), partitions is not None, bool(add_column)]
    if sum(given) > 1:
        raise click.UsageError("Give --config and --delete-config, or --partitions, or --add-column, not both.")
    if not any(given):
        raise click.UsageError("Nothing to alter: give --config, --delete-config, --partitions or --add-column.")
    changes = {setting_named(name, each): None for each in delete_config} | parsed_settings(name, config)
    admin = invocation.store().admin
    if add_column:
        topic = admin.add_columns(name, pa.schema(add_column))
    elif partitions is not None:
        topic = admin.create_partitions(name, partitions)
    else:
        topic = admin.alter_topic(name, **changes)
    facts = {"topic": name, "topic_id": topic.topic_id, "partitions": topic.partitions}
    facts |= {"schema_version": topic.schema_version, **topic.config.model_dump()}
    invocation.print_result(f"altered topic {name}", facts)


@topics.command(examples=["flights"])
@click.argument("name", shell_complete=completion.topics)
@pass_invocation
def schemas(invocation: Invocation, name: str) -> None:
    """List the schemas of the topic NAME, the first one first."""
    columns = Columns(
        "SchemaVersion=version Slot TimeMs=timestamp:time",
        ("Columns", lambda each: len(each.schema)),
        ("Added", lambda each: ", ".join(map(".".join, each.added))),
    )
    invocation.print_rows(columns, invocation.store().admin.schema_history(name))


@topics.command("delete", examples=["payments", "payments --yes"])
@click.argument("name", shell_complete=completion.topics)
@yes_option
@click.option("--if-exists", is_flag=True, help="Succeed if there is no such topic.")
@pass_invocation
def delete_topic(invocation: Invocation, name: str, yes: bool, if_exists: bool) -> None:
    """Delete the topic NAME with all its rows. `vacuum` deletes its files."""
    admin = invocation.store().admin
    try:
        topic = admin.describe_topic(name)
    except UnknownTopicOrPartition:
        if not if_exists:
            raise
        invocation.print_result(f"there is no topic {name}", {"topic": name, "topic_id": None, "deleted": False})
        return
    confirm(f"Delete topic {name} with all its rows?", yes=yes)
    admin.delete_topic(name)
    invocation.print_result(f"deleted topic {name}", {"topic": name, "topic_id": topic.topic_id, "deleted": True})


@topics.command(examples=["payments --offset 0:1000 --offset 1:-1", "payments --yes"])
@click.argument("name", shell_complete=completion.topics)
@click.option("--offset", type=_PARTITION_OFFSET, metavar="PARTITION:OFFSET", multiple=True, help=_BELOW)
@yes_option
@pass_invocation
def delete_records(invocation: Invocation, name: str, offset: tuple[tuple[int, int], ...], yes: bool) -> None:
    """Delete the oldest records of the topic NAME, at most up to the last stable offset. `vacuum` deletes the files."""
    admin = invocation.store().admin
    topic = admin.describe_topic(name)
    wanted = dict(offset) or dict.fromkeys(range(topic.partitions), ALL_DECIDED)
    ends = {ALL_DECIDED: "all up to the last stable offset"}
    below = ", ".join(f"{name}-{each}: {ends.get(end, f'below offset {end}')}" for each, end in wanted.items())
    confirm(f"Delete records of {below}?", yes=yes)
    starts = admin.delete_records({TopicPartition(name, each): end for each, end in wanted.items()})
    partition, earliest = ("Partition", lambda start: start[0].partition), ("Earliest", lambda start: start[1])
    invocation.print_rows(Columns(("Topic", lambda start: name), partition, earliest), starts.items())


@topics.command(examples=["payments --dry-run", "payments --yes"])
@click.argument("name", shell_complete=completion.topics)
@click.option("--dry-run", is_flag=True, help="Show the missing or damaged data files, and leave nothing out.")
@yes_option
@pass_invocation
def skip_damaged(invocation: Invocation, name: str, dry_run: bool, yes: bool) -> None:
    """Leave out the rows of missing and damaged data files of the topic NAME, so that its other rows can be read.

    The rows are lost for good. First look for the files in a backup. Readers meet a gap in the offsets, and streams
    that have not read the rows report their loss. The log and `verify` name what was left out.
    """
    admin = invocation.store().admin
    found = []
    if dry_run or not yes:
        with progress() as show:
            found = admin.skip_damaged_files(name, dry_run=True, progress=show)
    if not dry_run and (found or yes):
        rows, files = counted(sum(each.rows for each in found), "row"), counted(len(found), "file")
        confirm(f"Leave out {rows} of {files} of topic {name} for good?", yes=yes)
        with progress() as show:
            found = admin.skip_damaged_files(name, progress=show)
    columns = Columns("Partition BaseOffset EndOffset Rows Problem Skipped Path?")
    invocation.print_rows(columns, found, empty="no data file is missing or damaged")


class _PartitionOfTopic(NamedTuple):
    topic: str
    partition: PartitionDescription
    found: OffsetAndTimestamp | None = None
    """The first record since the time that the user named."""
    of_group: GroupPartition | None = None
    """The offsets of the group that the user named; None if it has none in this partition, and no member."""


@click.command(
    cls=Command, examples=["", "payments", "payments --group billing", "payments --time 2026-11-21T08:30:00"]
)
@click.argument("topic", required=False, shell_complete=completion.topics)
@group_option(help="Show the committed offsets of this group, and its lag.")
@click.option("--time", type=TIME, metavar="TIME", help="Show the first offset since this time (ISO 8601, UTC).")
@pass_invocation
def offsets(invocation: Invocation, topic: str | None, group: str | None, time: datetime | None) -> None:
    """Show the offsets at which the partitions of TOPIC begin and end, or those of all topics.

    These are the earliest offset, the last stable offset and the high watermark. read_committed shows rows below the
    last stable offset. LsoLag is the number of offsets that open transactions hold back. Lag is the number of offsets
    below the high watermark that the group has not read yet, as in `eoslog groups describe`. OffsetForTime is the
    first committed record since --time, which may cost a few requests for each partition.
    """
    store = invocation.store()

    def snapshot(state: StoreState, slot: int) -> tuple[list[tuple[Topic, Partition]], tuple[GroupPartition, ...]]:
        names = sorted(state.topic_ids) if topic is None else [topic]
        topics = [topic_named(state, name) for name in names]
        partitions = [(each, partition_of(state, place).copy()) for each in topics for place in each.partition_ids()]
        return partitions, () if group is None else describe_group(state, group).partitions

    partitions, of_group = store.read(snapshot)
    known = {each.topic_partition: each for each in of_group}
    rows = []
    for each, partition in partitions:
        found = None
        if time is not None:
            found = offset_for_time(
                store, each, partition, isolation=IsolationLevel.READ_COMMITTED, timestamp_ms=epoch_ms(time)
            )
        described = describe_partition(partition)
        rows.append(
            _PartitionOfTopic(each.topic, described, found, known.get(TopicPartition(each.topic, described.partition)))
        )

    # A table for a group has no room for the less important columns. The user knows the name of a single topic.
    wide = "" if group is None else "?"
    columns: list[str | tuple[str, Callable[[Any], Any]]] = [
        "Topic" if topic is None else "Topic?",
        f"Partition=partition.partition Earliest=partition.log_start_offset{wide}",
        "LastStableOffset=partition.last_stable_offset HighWatermark=partition.high_watermark",
        (f"LsoLag{wide}", lambda row: row.partition.high_watermark - row.partition.last_stable_offset),
    ]
    if group is not None:
        columns += [
            ("CommittedOffset", lambda row: None if row.of_group is None else row.of_group.committed_offset),
            ("Lag", lambda row: None if row.of_group is None else row.of_group.lag),
        ]
    if time is not None:
        columns.append(("OffsetForTime", lambda row: None if row.found is None else row.found.offset))
    invocation.print_rows(Columns(*columns), rows, empty="the store has no topics")
