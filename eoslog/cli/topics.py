"""``eoslog topics``: create, list, describe, delete."""

from __future__ import annotations

import click
import pyarrow as pa
import pyarrow.parquet as pq

from eoslog.cli.context import Session, pass_session
from eoslog.errors import InvalidRequest
from eoslog.read.columns import stored_schema

_TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


@click.group()
def topics() -> None:
    """Create, list, describe and delete topics."""


@topics.command("create")
@click.argument("name")
@click.option("--partitions", default=1, show_default=True, help="How many partitions the topic has.")
@click.option(
    "--column", "columns", multiple=True, metavar="NAME:TYPE", help="A column; give the option once for each."
)
@click.option("--schema-from", type=click.Path(exists=True, dir_okay=False), help="Take the columns of a Parquet file.")
@click.option("--key", "key", multiple=True, metavar="COLUMN", help="The column whose value chooses the partition.")
@pass_session
def create(
    session: Session,
    name: str,
    partitions: int,
    columns: tuple[str, ...],
    schema_from: str | None,
    key: tuple[str, ...],
) -> None:
    """Create a topic, and the store with it if there is none.

    Without columns it holds Kafka records: key, value, headers, timestamp.

    \b
    Examples:
      eoslog --store my-store topics create payments --partitions 3
      eoslog --store my-store topics create flights --column carrier:string --column miles:long --key carrier
      eoslog --store my-store topics create flights --schema-from flights.parquet --key carrier
    """
    schema = _schema(columns, schema_from)
    topic = session.store().admin.create_topic(name, partitions=partitions, schema=schema, key=key)
    if session.as_json:
        session.print_json({"topic": topic.topic, "topic_id": topic.topic_id, "partitions": topic.partitions})
    session.say(f"created topic {topic.topic} with {topic.partitions} partition{'s' * (topic.partitions > 1)}")


@topics.command("list")
@pass_session
def list_topics(session: Session) -> None:
    """List the topics.

    \b
    Example:
      eoslog --store my-store topics list
    """
    admin = session.store().admin
    described = [admin.describe_topic(name) for name in admin.list_topics()]
    session.print_rows(
        ("Topic", "Partitions", "Kind", "TopicId"),
        [(each.topic, each.partitions, each.topic_schema.kind, each.topic_id) for each in described],
        empty="the store has no topics",
    )


@topics.command("describe")
@click.argument("name")
@pass_session
def describe_topic(session: Session, name: str) -> None:
    """Describe a topic: its columns, settings and partitions.

    \b
    Example:
      eoslog --store my-store topics describe flights
    """
    store = session.store()
    topic = store.admin.describe_topic(name)
    schema = stored_schema(topic)
    partitions = store.read(lambda state, slot: [state.partitions[place] for place in topic.partition_ids()])
    session.print_facts(
        {
            "topic": topic.topic,
            "topic_id": topic.topic_id,
            "kind": topic.topic_schema.kind,
            "key": list(topic.topic_schema.key),
            "columns": [f"{field.name} {field.type}{'' if field.nullable else ' not null'}" for field in schema],
            "segment_bytes": topic.config.segment_bytes,
            "segment_batches": topic.config.segment_batches,
            "partitions": topic.partitions,
            "sealed_segments": sum(len(partition.sealed) for partition in partitions),
            "bytes": sum(
                partition.active_bytes + sum(segment.bytes for segment in partition.sealed) for partition in partitions
            ),
        }
    )


@topics.command("delete")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_session
def delete(session: Session, name: str, yes: bool) -> None:
    """Delete a topic. Its files go when vacuum runs.

    \b
    Example:
      eoslog --store my-store topics delete payments --yes
    """
    admin = session.store().admin
    admin.describe_topic(name)
    if not yes:
        click.confirm(f"Delete topic {name} with all its rows?", abort=True)
    admin.delete_topic(name)
    session.say(f"deleted topic {name}")


def _schema(columns: tuple[str, ...], schema_from: str | None) -> pa.Schema | None:
    if columns and schema_from:
        raise click.UsageError("give --column or --schema-from, not both")
    if schema_from:
        try:
            return pq.read_schema(schema_from)
        except (pa.ArrowInvalid, OSError) as error:
            raise InvalidRequest(f"{schema_from} is not a Parquet file: {error}") from None
    return pa.schema([_column(text) for text in columns]) if columns else None


def _column(text: str) -> pa.Field:  # type: ignore[type-arg]
    name, _, kind = text.rpartition(":")
    if not name or kind.lower() not in _TYPES:
        raise click.BadParameter(f"{text!r} is not NAME:TYPE; the types are {', '.join(_TYPES)}", param_hint="--column")
    return pa.field(name, _TYPES[kind.lower()])
